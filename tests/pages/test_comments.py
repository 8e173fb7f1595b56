"""Comments in pages without scripts: reply, thread, stub, edit, on posts and articles."""

from __future__ import annotations

import re

from plaza.app import Plaza
from plaza.core.auth import API
from plaza.social.users import Users
from tests.pages.conftest import PageClient


async def test_a_discussion_below_an_article(ana: PageClient, guest: PageClient, url: str, plaza: Plaza) -> None:
    article = {"title": "Streams", "link": "https://example.org/streams"}
    await ana.submit("/app/articles", page="/app/articles/new", **article)
    page = "/app/articles/1"
    await ana.submit(f"{page}/comments", page=page, content="Worth <reading>")
    shown = (await guest.get(page)).text
    assert "Worth &lt;reading&gt;" in shown
    assert "1 comment</h2>" in shown
    (comment,) = re.findall(r'id="comment-(1-[0-9a-f]{32})"', shown)
    thread = f"{page}?thread={comment}"
    sent = await ana.submit(f"{page}/comments", page=thread, content="Indeed", reply_to=comment, next="")
    assert sent.headers["location"].startswith(thread)
    assert "Indeed" in (await guest.get(thread)).text
    assert "Indeed" not in (await guest.get(page)).text
    edit = f"{page}/comments/{comment}/edit"
    assert edit in (await ana.get(page)).text
    assert edit not in shown
    assert (await ana.submit(edit, page=edit, content=" ")).status_code == 422
    await ana.submit(edit, page=edit, content="Worth reading twice")
    assert "Worth reading twice" in (await guest.get(page)).text
    new = {"title": "Walk", "category": "1", "duration": "9", "is_public": "1"}
    await ana.submit("/app/challenges", page="/app/challenges/new", **new)
    for path, fields in (
        ("1/join", {"on": "1"}),
        ("1/posts", {"text": "Day 1"}),
        ("posts/1/comments", {"content": "?"}),
    ):
        await ana.submit(f"/app/challenges/{path}", **fields)
    async with PageClient(url) as admin:
        await admin.sign_up("robin")
        await plaza.get(Users).set_role(API, "robin", "admin")
        for place, id in ((page, comment), ("/app/challenges/posts/1", "1")):
            delete = f"{place}/comments/{id}/delete"
            assert (await ana.get(delete)).status_code == 403
            assert f'href="{delete}"' in (await admin.get(place)).text, "an admin is asked first"
            assert "This cannot be undone." in (await admin.get(delete)).text
            await admin.submit(delete, page=delete)
        assert 'id="comment-1"' not in (await guest.get("/app/challenges/posts/1")).text
    shown = (await guest.get(page)).text
    assert "Worth" not in shown
    assert "Deleted comment" in shown
    assert "1 reply" in shown


async def test_a_reply_to_a_comment_on_a_post_and_an_edit(ana: PageClient, guest: PageClient) -> None:
    page = (await ana.submit("/app/posts", content="Tea", next="")).headers["location"]
    await ana.submit(f"{page}/comments", page=page, content="First")
    (comment,) = re.findall(r'id="comment-([0-9a-f-]{36})"', (await guest.get(page)).text)
    thread = f"{page}?thread={comment}"
    await ana.submit(f"{page}/comments", page=thread, content="Second", reply_to=comment)
    assert "Second" in (await guest.get(thread)).text
    assert "Second" not in (await guest.get(page)).text
    edit = f"{page}/comments/{comment}/edit"
    assert "First" in (await ana.get(edit)).text
    refused = await ana.submit(edit, page=edit, content=" ")
    assert refused.status_code == 422
    await ana.submit(edit, page=edit, content="Changed")
    shown = (await guest.get(page)).text
    assert "Changed" in shown
    assert "edited" in shown
