"""A report's way through the pages: a user reports, an admin acts, the thing is gone for everyone."""

from __future__ import annotations

import asyncio
import re

from plaza.accounts.model import LogQuery
from plaza.accounts.security_log import SqlSecurityLog
from plaza.app import Plaza
from plaza.core.auth import API
from plaza.core.paging import Page
from plaza.reports.model import ReportsQuery
from plaza.reports.service import Reports
from plaza.social.feeds import Feeds
from plaza.social.posts import Posts
from plaza.social.users import Users
from tests.pages.conftest import PageClient


async def test_report_queue_ban_gone(plaza: Plaza, ana: PageClient, guest: PageClient, url: str) -> None:
    async with PageClient(url) as ben, PageClient(url) as root:
        await ben.sign_up("ben")
        await root.sign_up("cleo")
        await plaza.get(Users).set_role(API, "cleo", "admin")
        post = (await ben.submit("/app/posts", content="Buy <now>", next="")).headers["location"]
        id = post.rpartition("/")[2]
        form = f"/app/report?subject=post&id={id}"
        assert form.replace("&", "&amp;") in (await ana.get(post)).text
        assert "“Buy &lt;now&gt;”" in (await ana.get(form)).text
        sent = await ana.submit("/app/report", page=form, reason="Advertising")
        assert "Thank you" in sent.text
        again = await ana.submit("/app/report", page=form, reason="Advertising")
        assert again.status_code == 422
        assert (await ana.get("/app/operator/reports")).status_code == 403
        queue = (await root.get("/app/operator/reports")).text
        assert "Buy &lt;now&gt;" in queue
        assert "Advertising" in queue
        (number,) = re.findall(r'id="report-(\d+)"', queue)
        path = f"/app/operator/reports/{number}"
        asked = (await root.get(f"{path}/suspend")).text
        for shown in ("All sessions end", "“Buy &lt;now&gt;”"):
            assert shown in asked
        asked = (await root.get(f"{path}/remove")).text
        for shown in ("Ban the post of ben?", "“Buy &lt;now&gt;”", "“Advertising”"):
            assert shown in asked
        assert (await ana.get(f"{path}/remove")).status_code == 403
        assert (await guest.get(post)).status_code == 200, "it only asked"
        await root.submit(path, page=f"{path}/remove", note="An advertisement")
        assert (await guest.get(post)).status_code == 404
        assert "Buy" not in (await guest.get("/app")).text
        (closed,) = (await plaza.get(Reports).page(ReportsQuery(state="resolved"))).items
        assert (closed.note, closed.admin) == ("An advertisement", "cleo")
        assert "An advertisement" in (await root.get("/app/operator/reports?state=resolved")).text
        logged = await plaza.get(SqlSecurityLog).search(LogQuery(kind="admin", q="cleo"))
        assert any("/operator/reports/{id}" in action.action for action in logged.actions)

        banned = "/app/operator/reports/banned-posts"
        assert (await ana.get(banned)).status_code == 403
        for path in (banned, f"{banned}?author=ben"):
            shown = (await root.get(path)).text
            assert "Buy &lt;now&gt;" in shown
            assert "banned by cleo" in shown
        assert "No banned posts." in (await root.get(f"{banned}?author=ana")).text
        await root.submit(f"/app/posts/{id}/ban", page=banned, on="0")
        assert "No banned posts." in (await root.get(banned)).text
        assert (await guest.get(post)).status_code == 200


async def test_a_report_that_another_admin_closed_is_not_changed(plaza: Plaza, ana: PageClient, url: str) -> None:
    async with PageClient(url) as ben, PageClient(url) as cleo:
        for name, client in (("ben", ben), ("cleo", cleo)):
            await client.sign_up(name)
            await plaza.get(Users).set_role(API, name, "admin")
        await ana.submit("/app/posts", content="Hello", next="")
        await ben.submit("/app/report", subject="user", id="ana", reason="Rude")
        queue = "/app/operator/reports?subject=user"
        (number,) = re.findall(r'id="report-(\d+)"', (await ben.get(queue)).text)
        path = f"/app/operator/reports/{number}"
        forms = [await client.hidden_fields(queue) for client in (ben, cleo)]
        for _ in range(2):
            closed = await ben.post(path, data={**forms[0], "action": "resolve"})
            assert (closed.status_code, closed.headers["location"]) == (303, queue), "the same part of the queue"
        late = await cleo.post(path, data={**forms[1], "action": "dismiss"})
        assert (late.status_code, "ben has closed this report" in late.text) == (409, True)
        assert (await plaza.get(Reports).get(int(number))).state == "resolved"

        # An admin opens it again, also one that another admin has closed. Two who close it at once do not both do so.
        closed_path = "/app/operator/reports?state=resolved"
        for _ in range(5):
            reopened = await cleo.submit(path, page=closed_path, action="open")
            assert (reopened.status_code, reopened.headers["location"]) == (303, closed_path)
            assert (await plaza.get(Reports).get(int(number))).state == "open"
            actions = zip((ben, cleo), forms, ("resolve", "dismiss"), strict=True)
            sent = (client.post(path, data={**form, "action": action}) for client, form, action in actions)
            assert sorted(each.status_code for each in await asyncio.gather(*sent)) == [303, 409]


async def test_the_queue_shows_each_thing_and_what_was_done_with_it(plaza: Plaza, ana: PageClient, url: str) -> None:
    async with PageClient(url) as ben:
        await ben.sign_up("ben")
        await plaza.get(Users).set_role(API, "ben", "admin")
        post = (await ana.submit("/app/posts", content="Buy <now>", next="")).headers["location"].rpartition("/")[2]
        await ana.submit("/app/profile", page="/app/profile", display_name="Ana <b>", bio="Cheap bells")
        for subject, id in (("post", post), ("user", "ana")):
            await ben.submit("/app/report", subject=subject, id=id, reason=f"A {subject}")
        queue = (await ben.get("/app/operator/reports")).text
        for shown in ("Buy &lt;now&gt;", "Ana &lt;b&gt;\nCheap bells", "Ban…", "Suspend author…", "Suspend user…"):
            assert shown in queue
        await plaza.get(Posts).ban(API, post, on=True)
        await plaza.get(Users).suspend(API, "ana", on=True)
        (banned,) = re.findall(rf'href="([^"]+id={post})">1 report of this', queue)
        one = (await ben.get(banned.replace("&amp;", "&"))).text
        assert ("A post" in one, "A user" in one, ">banned<" in one, "Ban…" in one) == (True, False, True, False)
        one = (await ben.get("/app/operator/reports?subject=user&id=ana")).text
        assert ("A user" in one, ">suspended<" in one, "Suspend user…" in one) == (True, True, False)
        assert "No reports here." in (await ben.get("/app/operator/reports?subject=user&id=ben")).text


async def test_an_admin_who_blocks_the_author_still_moderates(plaza: Plaza, ana: PageClient, url: str) -> None:
    async with PageClient(url) as ben:
        await ben.sign_up("ben")
        await plaza.get(Users).set_role(API, "ben", "admin")
        posts = [(await ana.submit("/app/posts", content=f"Bell {n}", next="")).headers["location"] for n in (1, 2)]
        await ben.submit("/app/report", subject="post", id=posts[0].rpartition("/")[2], reason="Advertising")
        await ben.submit("/app/people/ana/block", on="1")
        assert (await ben.get(posts[0])).status_code == 404, "the block hides the post"
        queue = (await ben.get("/app/operator/reports")).text
        assert ("Bell 1" in queue, "Ban…" in queue, "It is gone." in queue) == (True, True, False)
        (number,) = re.findall(r'id="report-(\d+)"', queue)
        path = f"/app/operator/reports/{number}"
        assert "“Bell 1”" in (await ben.get(f"{path}/remove")).text
        for action in ("ban", "delete"):
            assert "“Bell 2”" in (await ben.get(f"{posts[1]}/{action}")).text
        assert (await ben.submit(path, page=f"{path}/remove")).status_code == 303
        for post, action in zip(posts, ("ban", "delete"), strict=True):
            done = await ben.submit(f"{post}/{action}", page=f"{post}/{action}", next="/app")
            assert done.status_code == 303, done.text
        (banned,) = (await plaza.get(Feeds).banned(Page())).items
        assert banned.content == "Bell 1"
        assert (await ana.get(posts[1])).status_code == 404
