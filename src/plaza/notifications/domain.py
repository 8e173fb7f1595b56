"""The declaration of the notifications domain. It tells users what the sources of the other domains say."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts
from plaza.notifications.invariants import INVARIANTS, NotificationInspector
from plaza.notifications.jobs import consumers
from plaza.notifications.library import LIBRARY
from plaza.notifications.personal_data import PERSONAL_KEYS, NotificationsPersonalData
from plaza.notifications.rebuild import NotificationRebuild
from plaza.notifications.recorder import Recorder
from plaza.notifications.routes import route
from plaza.notifications.service import Notifications
from plaza.notifications.topic_source import UnreadTopic
from plaza.notifications.unread_counts import UnreadCounts


def build(core: Core) -> Parts:
    """Build notifications on the sources of the domains that are built before it."""
    recorder = Recorder(core.functions, core.provided.notification_sources, core.provided.recipients)
    rebuild = NotificationRebuild(recorder, core.settings, core.clock)
    counts = UnreadCounts(core.functions, recorder)
    return Parts(
        [Notifications(core.functions, recorder), counts, recorder, rebuild],
        consumers=consumers(recorder, rebuild),
        personal_data=NotificationsPersonalData(core.valkey),
        personal_keys=PERSONAL_KEYS,
        inspectors=[NotificationInspector(core.valkey, recorder)],
        topic_sources=[UnreadTopic(counts)],
        on_close=[counts.close],
    )


DOMAIN = Domain(LIBRARY, [route], build, INVARIANTS, uses_all=True)
