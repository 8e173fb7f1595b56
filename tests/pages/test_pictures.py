"""Pictures on pages, in a browser without scripts: posts, avatars, items, and who may see them."""

from __future__ import annotations

import re

import httpx
from sqlalchemy import func, select

from plaza.app import Plaza
from plaza.core.auth import API
from plaza.media.tables import PICTURES
from plaza.shop.items import Items
from plaza.shop.model import NewItem
from tests.media.images import HTML, picture
from tests.pages.conftest import PageClient

PICTURES_COUNT = select(func.count()).select_from(PICTURES)

ID = r"[0-9a-f-]{36}"


async def send(
    client: PageClient, path: str, files: list[tuple[str, bytes]], page: str = "/app", **fields: str
) -> httpx.Response:
    """Submit a form with files, as a browser does."""
    data = {**await client.hidden_fields(page), **fields}
    origin = {"origin": str(client.base_url).rstrip("/")}
    return await client.post(path, data=data, files=[("file", file) for file in files], headers=origin)


async def post_pictures(client: PageClient, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
    return await send(client, "/app/posts", list(files), content="Look", **fields)


async def test_a_form_with_files_makes_a_post_with_pictures(ana: PageClient, guest: PageClient) -> None:
    sent = await post_pictures(ana, ("a.png", picture(300, 200)), ("b.png", picture(20, 20)), alt1="A beach", alt2="")
    assert sent.status_code == 303
    page = (await guest.get("/app")).text
    addresses = re.findall(rf'<img src="(/media/{ID}/medium)" width="(\d+)" height="(\d+)" alt="([^"]*)"', page)
    assert [shown[1:] for shown in addresses] == [("300", "200", "A beach"), ("20", "20", "Picture 2")]
    assert page.count('class="blur" src="data:image/png;base64,') == 2
    assert (await guest.get(addresses[0][0])).headers["content-type"] == "image/webp"


async def test_the_form_works_without_a_file(ana: PageClient) -> None:
    assert (await post_pictures(ana, ("", b""))).status_code == 303
    assert "Look" in (await ana.get("/app")).text


async def test_a_refused_picture_loses_neither_the_text_nor_the_other_pictures(ana: PageClient) -> None:
    refused = await post_pictures(ana, ("a.png", picture()), ("b.png", HTML), alt1="Kept")
    assert refused.status_code == 422
    assert "This is not a picture" in refused.text
    assert "Look</textarea>" in refused.text
    kept = re.search(rf'<input type="hidden" name="(picture\.{ID})" value="Kept">', refused.text)
    assert kept is not None
    fields = dict(reversed(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', refused.text)))
    again = await ana.post("/app/posts", data={**fields, "content": "Look again"})
    assert again.status_code == 303
    assert 'alt="Kept"' in (await ana.get("/app")).text


async def test_a_form_sent_twice_makes_one_post(ana: PageClient) -> None:
    data = {**await ana.hidden_fields("/app"), "content": "Once"}
    for _ in range(2):
        await ana.post("/app/posts", data=data, files=[("file", ("a.png", picture(seed=4)))])
    assert (await ana.get("/app/people/ana")).text.count('<article class="post"') == 1


async def test_more_than_four_pictures_are_refused(ana: PageClient) -> None:
    refused = await post_pictures(ana, *((f"{n}.png", b"x") for n in range(5)))
    assert refused.status_code == 422
    assert "at most 4 pictures" in refused.text


async def test_files_are_not_taken_from_strangers(guest: PageClient, url: str, plaza: Plaza) -> None:
    """Without a session no file is read; a form of another site, or without its token, does nothing."""
    files = [("file", ("a.png", picture()))]
    for path in ("/app/posts", "/app/media", "/app/profile/avatar"):
        assert (await guest.post(path, data={"content": "x"}, files=files)).status_code == 303  # to the sign-in page
    async with PageClient(url) as ben:
        await ben.sign_up("ben")
        for path in ("/app/posts", "/app/media", "/app/profile/avatar"):
            forged = await ben.post(path, data={"content": "x"}, files=files, headers={"accept": "application/json"})
            assert forged.status_code == 403
    rows = await plaza.core.sql.fetch_all(PICTURES_COUNT)
    assert rows[0][0] == 0


async def test_a_script_uploads_a_picture_and_names_it_in_the_form(ana: PageClient, guest: PageClient) -> None:
    data = await ana.hidden_fields("/app")
    headers = {"x-fragment": "1"}
    row = await ana.post("/app/media", data=data, files=[("file", ("a.png", picture()))], headers=headers)
    found = re.search(rf'<img src="(/app/media/{ID}/small)".*name="(picture\.{ID})"', row.text, re.DOTALL)
    assert found is not None
    assert (await ana.get(found[1])).status_code == 200
    assert (await guest.get(found[1])).status_code == 404
    await ana.submit("/app/posts", content="Look", **{found[2]: "By a script"})
    assert 'alt="By a script"' in (await guest.get("/app")).text


async def test_an_avatar_is_shown_wherever_its_user_is(ana: PageClient, guest: PageClient) -> None:
    await ana.submit("/app/posts", content="Hello")
    post = re.search(rf"/app/posts/({ID})", (await ana.get("/app")).text)
    assert post is not None
    await ana.submit(f"/app/posts/{post[1]}/comments", page=f"/app/posts/{post[1]}", content="Me too")
    changed = await send(ana, "/app/profile/avatar", [("me.png", picture(100, 100))], page="/app/profile")
    assert (changed.status_code, changed.headers["location"]) == (303, "/app/people/ana")
    address = re.search(rf'<img src="(/media/{ID}/small)"', (await ana.get("/app/profile")).text)
    assert address is not None
    shown = f'<img src="{address[1]}"'
    own_pages = {"/app": 3, "/app/people/ana": 3, f"/app/posts/{post[1]}": 4, "/app/articles": 1, "/app/profile": 2}
    for path, times in own_pages.items():
        assert (await ana.get(path)).text.count(shown) == times, path
    assert (await guest.get(f"/app/posts/{post[1]}")).text.count(shown) == 2
    await ana.submit("/app/profile/avatar/delete", page="/app/profile")
    for path in own_pages:
        assert shown not in (await ana.get(path)).text
    assert (await guest.get(address[1])).status_code == 404


async def test_the_avatar_form_needs_a_picture(ana: PageClient) -> None:
    assert (await send(ana, "/app/profile/avatar", [("", b"")], page="/app/profile")).status_code == 422
    assert (await send(ana, "/app/profile/avatar", [("a.png", b"x")], page="/app/profile")).status_code == 422


async def test_pictures_of_a_banned_post_are_shown_to_admins_only(
    plaza: Plaza, ana: PageClient, guest: PageClient, url: str
) -> None:
    await post_pictures(ana, ("a.png", picture()))
    post = re.search(rf"/app/posts/({ID})", (await ana.get("/app")).text)
    assert post is not None
    key = {"x-api-key": plaza.core.settings.secret("api_key")}
    (await guest.patch(f"/posts/{post[1]}/ban", headers=key)).raise_for_status()
    (await guest.patch("/users/ana/role", json={"role": "admin"}, headers=key)).raise_for_status()
    page = (await ana.get(f"/app/posts/{post[1]}")).text
    address = re.search(rf'<img src="(/app/media/{ID}/medium)"', page)
    assert address is not None
    assert [(await client.get(address[1])).status_code for client in (ana, guest)] == [200, 404]


async def test_items_show_their_pictures(plaza: Plaza, ana: PageClient, guest: PageClient) -> None:
    data = await ana.hidden_fields("/app")
    row = await ana.post(
        "/app/media", data=data, files=[("file", ("a.png", picture(500, 300)))], headers={"x-fragment": "1"}
    )
    id = re.findall(ID, row.text)[0]
    item = await plaza.get(Items).create(NewItem("Lamp", "Bright.", "9.00", 3, [id]), "one", API)
    assert f'<img src="/media/{id}/small"' in (await guest.get("/app/shop")).text
    shown = f'<img src="/media/{id}/medium" width="500" height="300"'
    assert shown in (await guest.get(f"/app/shop/items/{item.id}")).text
    cached = await guest.get(f"/shop/pages/items/{item.id}")
    assert f'<img src="/media/{id}/medium"' in cached.text
    assert "img-src 'self'" in cached.headers["content-security-policy"]
