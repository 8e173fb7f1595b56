"""An upload is an event, once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.event_reader import read_events
from tests.http_servers import is_problem
from tests.media.conftest import PictureUser
from tests.media.images import picture
from tests.waiting import eventually

# One Valkey and one store: `test_post_pictures.py` shows that the others make no difference.
pytestmark = pytest.mark.parametrize("place", ["server"], indirect=True)


async def test_an_upload_is_an_event(ana: PictureUser, redis_client: Any) -> None:
    content = picture(seed=1)
    first = await ana.send(content, **{"idempotency-key": "one"})
    assert (await ana.send(content, **{"idempotency-key": "one"})).json() == first.json()
    is_problem(await ana.send(b"not a picture"), 422, "bad_image")
    second = await ana.upload()

    async def both_arrived() -> bool:
        return len(await read_events(redis_client, "media")) >= 2

    await eventually(both_arrived)
    found = await read_events(redis_client, "media")
    expected = [{"picture": id, "username": "ana"} for id in (first.json()["id"], second["id"])]
    assert sorted((event.data for event in found), key=str) == sorted(expected, key=str)
    assert {(event.type, event.subject == event.data["picture"]) for event in found} == {("media.uploaded", True)}
