"""The audit finds files without pictures and pictures without files, and repairs them."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.app import Plaza
from plaza.core.clock import ManualClock
from plaza.core.invariants import Violation
from plaza.keyspace.audit import Audits
from plaza.media.invariants import FileInspector
from plaza.media.object_store import MediaStore
from plaza.media.tables import PICTURES
from tests.media.conftest import PictureUser, stored_files
from tests.media.images import picture


@pytest.fixture
def inspector(plaza: Plaza, monkeypatch: pytest.MonkeyPatch) -> FileInspector:
    """The inspector, two days later."""
    (found,) = [each for each in plaza.get(Audits).auditor.inspectors if isinstance(each, FileInspector)]
    clock = ManualClock(plaza.core.clock.now_ms())
    clock.advance(days=2)
    monkeypatch.setattr(found, "_clock", clock)
    return found


async def found_by(inspector: FileInspector) -> list[Violation]:
    return [each async for each in inspector.inspect()]


async def repair(inspector: FileInspector) -> list[Violation]:
    """Repair what is found, and return what is found then."""
    for each in await found_by(inspector):
        if each.repair:
            await inspector.repair(each)
    return await found_by(inspector)


def store_of(plaza: Plaza) -> MediaStore:
    return MediaStore.open(plaza.core.settings)


async def test_pictures_in_order_have_no_findings(ana: PictureUser, inspector: FileInspector) -> None:
    id = (await ana.upload(picture(500, 400)))["id"]
    await ana.json("PUT", "/users/me/avatar", media=id)
    assert await found_by(inspector) == []


async def test_a_file_without_a_picture_is_deleted(plaza: Plaza, ana: PictureUser, inspector: FileInspector) -> None:
    await ana.upload()
    before = await stored_files(plaza)
    await store_of(plaza).put(f"ab/{'ab' * 32}-00000000/small.webp", b"left by a crash")
    (found,) = await found_by(inspector)
    assert (found.rule, found.key) == ("orphan", f"ab/{'ab' * 32}-00000000")
    assert await repair(inspector) == []
    assert await stored_files(plaza) == before


async def test_a_fresh_file_may_belong_to_an_upload_and_is_no_finding(
    plaza: Plaza, inspector: FileInspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "_clock", plaza.core.clock)
    await store_of(plaza).put(f"ab/{'ab' * 32}-00000000/small.webp", b"being uploaded")
    assert await found_by(inspector) == []


async def test_missing_and_damaged_sizes_are_made_again_from_the_largest_left(
    plaza: Plaza, ana: PictureUser, inspector: FileInspector
) -> None:
    id = (await ana.upload(picture(500, 400)))["id"]
    store = store_of(plaza)
    for path in await stored_files(plaza):
        if "small" in path:
            await store.delete([path])
        elif path.endswith("medium.webp"):
            await store.put(path, b"damaged")
    assert not await ana.sees(id)
    (found,) = await found_by(inspector)
    assert (found.rule, found.member) == ("file", "medium.webp, small.webp, small.jpeg")
    assert await repair(inspector) == []
    for variant in ("small", "medium", "large"):
        for format in ("webp", "jpeg"):
            shown = await ana.call("GET", f"/media/{id}/{variant}", headers={"accept": f"image/{format}"})
            assert shown.headers["content-type"] == f"image/{format}"


async def test_a_picture_without_any_file_is_reported_and_kept(
    plaza: Plaza, ana: PictureUser, inspector: FileInspector
) -> None:
    """A wrong bucket in the settings must not delete every picture."""
    await ana.upload()
    await store_of(plaza).delete(await stored_files(plaza))
    (found,) = await repair(inspector)
    assert (found.rule, found.repair) == ("file", "")
    assert "backup" in found.says
    exported = await ana.json("GET", "/users/me/export")
    assert len(exported["media"]["pictures"]) == 1


async def test_contents_without_a_picture_are_deleted(plaza: Plaza, ana: PictureUser, inspector: FileInspector) -> None:
    """What a process leaves that dies between the deletion of a picture and that of its contents."""
    await ana.upload()
    async with plaza.core.sql.begin() as tx:
        await tx.execute(PICTURES.delete())
    (found,) = await found_by(inspector)
    assert found.rule == "unused"
    assert await repair(inspector) == []
    assert await stored_files(plaza) == []


async def test_the_whole_audit_includes_the_files(plaza: Plaza, ana: PictureUser, inspector: FileInspector) -> None:
    await store_of(plaza).put(f"ab/{'ab' * 32}-00000000/small.webp", b"left by a crash")
    report: Any = await plaza.get(Audits).auditor.run("repair")
    assert [group.rule for group in report.groups] == ["orphan"]
    assert report.repaired == 1
    assert await stored_files(plaza) == []
