"""The consumers of notifications: they record what events tell."""

from __future__ import annotations

from functools import partial
from typing import Final

from plaza.core.events import Consumer
from plaza.notifications.rebuild import NotificationRebuild
from plaza.notifications.recorder import Recorder

GROUP: Final = "notifications"
# A post that thousands like at once costs one write for so many likes. A step for more events would hold the event loop
# for longer than a millisecond.
BATCH_SIZE: Final = 48


def consumers(recorder: Recorder, rebuild: NotificationRebuild) -> list[Consumer]:
    """Return a consumer for each source."""
    return [
        Consumer(
            source.stream,
            GROUP,
            handle_batch=partial(recorder.handle_batch, source),
            types=[kind.type for kind in source.events],
            declared=source.events,
            rebuild=partial(rebuild.run, source),
            batch_size=BATCH_SIZE,
        )
        for source in recorder.sources
    ]
