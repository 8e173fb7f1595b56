"""Pictures that nothing shows are deleted after a day; all others stay."""

from __future__ import annotations

import pytest

from plaza.app import Plaza
from plaza.core.clock import ManualClock
from plaza.media.cleanup import PictureCleanup
from tests.media.conftest import PictureUser, many, stored_files
from tests.media.images import picture

FILES = 6
DAY = 1.001  # days


@pytest.fixture
def later(plaza: Plaza, monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Media's clock, which starts at the real time."""
    cleanup = plaza.get(PictureCleanup)
    clock = ManualClock(plaza.core.clock.now_ms())
    monkeypatch.setattr(cleanup, "_clock", clock)
    return clock


async def pass_days(plaza: Plaza, clock: ManualClock, days: int) -> int:
    """Let days pass, with a run of the job at the end of each; return how many pictures it deleted."""
    deleted = 0
    for _ in range(days):
        clock.advance(days=DAY)
        deleted += await plaza.get(PictureCleanup).delete_unused()
    return deleted


async def test_an_upload_that_is_never_used_is_deleted_after_a_day(
    plaza: Plaza, ana: PictureUser, later: ManualClock
) -> None:
    id = (await ana.upload())["id"]
    later.advance(days=0.99)
    assert await plaza.get(PictureCleanup).delete_unused() == 0
    assert await ana.sees(id)
    later.advance(days=0.02)
    assert await plaza.get(PictureCleanup).delete_unused() == 1
    assert not await ana.sees(id)
    assert await stored_files(plaza) == []


async def test_pictures_in_use_stay_however_long(
    plaza: Plaza, ana: PictureUser, api: PictureUser, guest: PictureUser, later: ManualClock
) -> None:
    avatar, posted, banned = [(await ana.upload())["id"] for _ in range(3)]
    await ana.json("PUT", "/users/me/avatar", media=avatar)
    await ana.json("POST", "/posts", 201, content="x", media=[posted])
    post = (await ana.json("POST", "/posts", 201, content="x", media=[banned]))["id"]
    await api.json("PATCH", f"/posts/{post}/ban")
    assert await pass_days(plaza, later, 5) == 0
    await api.call("DELETE", f"/posts/{post}/ban")
    assert [await guest.sees(id) for id in (avatar, posted, banned)] == [True, True, True]


async def test_the_picture_of_a_deleted_post_is_deleted_when_it_was_unused_for_a_day(
    plaza: Plaza, ana: PictureUser, later: ManualClock
) -> None:
    id = (await ana.upload())["id"]
    post = (await ana.json("POST", "/posts", 201, content="x", media=[id]))["id"]
    assert await pass_days(plaza, later, 1) == 0
    await ana.call("DELETE", f"/posts/{post}")
    assert await pass_days(plaza, later, 1) == 0
    assert len(await stored_files(plaza)) == FILES
    assert await pass_days(plaza, later, 1) == 1
    assert await stored_files(plaza) == []


async def test_a_picture_that_is_used_again_stays(plaza: Plaza, ana: PictureUser, later: ManualClock) -> None:
    id = (await ana.upload())["id"]
    post = (await ana.json("POST", "/posts", 201, content="x", media=[id]))["id"]
    await ana.call("DELETE", f"/posts/{post}")
    assert await pass_days(plaza, later, 1) == 0
    await ana.json("POST", "/posts", 201, content="again", media=[id])
    assert await pass_days(plaza, later, 3) == 0
    assert await PictureUser(ana.http, "", {}).sees(id)


async def test_files_that_another_picture_has_stay(
    plaza: Plaza, ana: PictureUser, ben: PictureUser, later: ManualClock
) -> None:
    content = picture(seed=3)
    await ana.upload(content)
    kept = (await ben.upload(content))["id"]
    await ben.json("PUT", "/users/me/avatar", media=kept)
    assert await pass_days(plaza, later, 1) == 1
    assert await ana.sees(kept, "large")


async def test_a_picture_that_is_posted_while_the_job_runs_is_posted_or_refused(
    plaza: Plaza, ana: PictureUser, later: ManualClock
) -> None:
    """Either the post has its picture, or it was told that there is none. Never a post without its picture."""
    ids = [(await ana.upload(picture(16, 16, seed=number)))["id"] for number in range(8)]
    later.advance(days=DAY)

    async def post(id: str) -> bool:
        answer = await ana.call("POST", "/posts", None, json={"content": "x", "media": [id]})
        assert answer.status_code in (201, 422)
        return answer.status_code == 201

    cleanup = plaza.get(PictureCleanup)
    *posted, _ = await many(*map(post, ids), cleanup.delete_unused())
    guest = PictureUser(ana.http, "", {})
    assert [await guest.sees(id) for id in ids] == posted
    later.advance(days=DAY)
    await cleanup.delete_unused()
    assert [await guest.sees(id, "large") for id in ids] == posted


async def test_a_picture_whose_domain_does_not_run_stays(
    plaza: Plaza, ana: PictureUser, later: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = (await ana.upload())["id"]
    await ana.json("POST", "/posts", 201, content="x", media=[id])
    visibility = plaza.get(PictureCleanup)._visibility
    monkeypatch.setattr(visibility, "hosts", {})
    assert await pass_days(plaza, later, 3) == 0
