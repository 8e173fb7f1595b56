"""How media plugs in."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.media import jobs, routes
from plaza.media.cleanup import PictureCleanup
from plaza.media.contents import Contents
from plaza.media.delivery import PictureDelivery
from plaza.media.events import EVENTS
from plaza.media.invariants import FileInspector
from plaza.media.library import LIBRARY
from plaza.media.object_store import MediaStore
from plaza.media.personal_data import MediaPersonalData
from plaza.media.picture_responses import PictureResponses
from plaza.media.pictures import PictureClaims, PictureDeletion, PictureVisibility
from plaza.media.processor import ImageProcessor
from plaza.media.uploads import Uploads


def build(core: Core) -> Parts:
    """Build uploads. What asks the other domains which pictures they show is built last."""
    settings = core.settings
    store = MediaStore.open(settings)
    contents = Contents(core.sql, store, core.clock)
    processor = ImageProcessor(settings.media_max_pixels, settings.media_processes)
    claims = PictureClaims(core.sql, core.valkey, core.clock, settings)
    personal_data = MediaPersonalData(core.sql, contents, store)
    return Parts(
        [Uploads(core.sql, core.functions, contents, processor, core.clock, settings), claims],
        Provided(pictures=claims, personal_files=personal_data),
        personal_data=personal_data,
        build_last=lambda provided: _build_last(core, store, contents, processor, provided),
    )


def _build_last(
    core: Core, store: MediaStore, contents: Contents, processor: ImageProcessor, provided: Provided
) -> Parts:
    visibility = PictureVisibility(provided.picture_hosts)
    delivery = PictureDelivery(core.sql, visibility)
    responses = PictureResponses(delivery, store, redirects=core.settings.media_serving == "redirect")
    cleanup = PictureCleanup(core.sql, contents, visibility, core.clock)
    return Parts(
        [delivery, responses, PictureDeletion(core.sql, contents, visibility), cleanup],
        timers=jobs.timers(cleanup),
        inspectors=[FileInspector(core.sql, store, contents, processor, core.clock)],
    )


DOMAIN = Domain(LIBRARY, [routes.route], build, events=EVENTS)
