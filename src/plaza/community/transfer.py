"""Writes a whole community to a file, one record per line, and reads it back.

The order of the lines depends on nothing but the records, so the export of an import is byte for byte the file that was
imported. Types come in the order in which they can be imported, so a file needs one run.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import msgspec

from plaza.app import Plaza
from plaza.articles.service import Articles
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.service import Challenges
from plaza.community.article_records import ArticlePart
from plaza.community.challenge_records import CHALLENGE_KINDS, challenge_part
from plaza.community.edit_records import EditPart
from plaza.community.live_records import LivePart
from plaza.community.moderation_records import note_part, report_part
from plaza.community.notification_records import NotificationPart
from plaza.community.picture_records import PicturePart
from plaza.community.records import CommunityPart
from plaza.community.references import WrittenRecords
from plaza.community.shop_records import SHOP_KINDS, shop_part
from plaza.community.social_export import SocialExport
from plaza.community.social_records import SocialPart
from plaza.core.encryption import FieldEncryption
from plaza.desk.notes import UserNotes
from plaza.live.heartbeats import LiveService
from plaza.media.pictures import PictureClaims
from plaza.notifications.service import Notifications
from plaza.reports.service import Reports
from plaza.search.rebuild import IndexRebuild
from plaza.shop.items import Items
from plaza.social.inbound_sync import InboundSync
from plaza.social.private_fields import PrivateFields

# Gets the type, and how many of it are written.
OnRecords = Callable[[str, int], None]
PROGRESS_RECORDS: Final = 500
# Types that are rows of tables, which are imported without events.
_ROWS: Final = frozenset({*CHALLENGE_KINDS, *SHOP_KINDS})


def community_parts(plaza: Plaza, *, private: bool = False, pictures: bool = True) -> list[CommunityPart]:
    """Return the parts of a community, without those of domains that are off.

    With `private`, users have their private fields and password hashes. Without `pictures`, nothing shows any.
    """
    core = plaza.core
    fields = PrivateFields(FieldEncryption(core.settings.data_keys()))
    parts: list[CommunityPart] = []
    export: SocialExport | None = None
    if InboundSync in plaza.services:
        claims = plaza.get(PictureClaims) if PictureClaims in plaza.services else None
        export = SocialExport(core.valkey, fields, claims, private=private)
        parts.append(SocialPart(plaza.get(InboundSync), export))
        if claims is not None and pictures:
            parts.append(PicturePart(plaza, export))
    article_part = ArticlePart(core.functions) if Articles in plaza.services else None
    if article_part is not None:
        parts.append(article_part)
    parts.append(EditPart(core.functions, export, article_part))
    if Challenges in plaza.services:
        parts.append(challenge_part(core.sql))
    if Items in plaza.services:
        parts.append(shop_part(core.sql, pictures=pictures))
    if LiveService in plaza.services:
        parts.append(LivePart(plaza))
    if Reports in plaza.services:
        parts.append(report_part(core.sql))
    if UserNotes in plaza.services:
        parts.append(note_part(core.sql))
    if Notifications in plaza.services and InboundSync in plaza.services:
        parts.append(NotificationPart(core.valkey))
    return parts


@dataclass(slots=True)
class Exported:
    """How many records a file has, by type, and how many were left out because of what they name."""

    counts: Counter[str] = field(default_factory=Counter)
    left_out: int = 0


async def export_community(parts: Sequence[CommunityPart], file: Path, on_records: OnRecords) -> Exported:
    """Write all records to a file that only this user can read."""
    done = Exported()
    written = WrittenRecords([kind for part in parts for kind in part.kinds])
    with _replaced(file) as out:
        for part in parts:
            async with part.snapshot():
                for kind in part.kinds:
                    async for found in part.export(kind):
                        record = written.complete(kind, found)
                        if record is None:
                            done.left_out += 1
                            continue
                        out.write(msgspec.json.encode({"type": kind, **record}) + b"\n")
                        done.counts[kind] += 1
                        if done.counts[kind] % PROGRESS_RECORDS == 0:
                            on_records(kind, done.counts[kind])
    return done


@contextmanager
def _replaced(file: Path) -> Iterator[IO[bytes]]:
    """Open a new file for writing, which takes its name when it is complete."""
    unfinished = file.with_name(f"{file.name}.unfinished-{secrets.token_hex(4)}")  # of this export alone
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


async def complete_import(plaza: Plaza, kinds: Collection[str]) -> None:
    """Compute what follows from imported rows: challenges in Valkey, and the search index."""
    if _ROWS.isdisjoint(kinds):
        return
    if DailyJob in plaza.services:
        await plaza.get(DailyJob).run(rebuild_all=True)
    if IndexRebuild in plaza.services:
        await plaza.get(IndexRebuild).run()
