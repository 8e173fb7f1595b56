"""Behaviour of the pages: sessions, idempotent forms, page sizes, errors, events, shop, and text formatting."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from plaza.app import Plaza, running
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.challenges.model import DAY_MS, Challenge
from plaza.core.auth import API, Actor
from plaza.core.comment_tree import MAX_COMMENT_CHARACTERS
from plaza.core.settings import Settings
from plaza.live.heartbeats import LiveService
from plaza.live.model import EventDeclaration, Heartbeat, Viewer
from plaza.sessions.keys import LOGIN_TOKENS
from plaza.shop.items import Items
from plaza.shop.model import ItemChange, NewItem
from plaza.shop.money import format_money
from plaza.social.comments import Comments
from plaza.social.model import MAX_CONTENT_CHARACTERS, NewComment, NewPost, Profile
from plaza.social.posts import Posts
from plaza.social.users import Users
from plaza.web.avatars import avatar
from plaza.web.routes_challenges import MAX_DAYS_SHOWN, days_shown
from plaza.web.text_html import (
    format_age,
    format_iso_date,
    is_image_url,
    linkify,
    time_ago,
    time_element,
    truncate_text,
)
from tests.http_servers import serving
from tests.pages.conftest import PageClient, ParsedPage
from tests.servers import running_server
from tests.timeouts import TIME_LIMIT_SECONDS


def trips(response: httpx.Response) -> int:
    found = re.search(r'desc="(\d+) round trips?"', response.headers["server-timing"])
    assert found
    return int(found[1])


async def test_a_page_takes_as_many_round_trips_as_its_json_route(ana: PageClient, plaza: Plaza) -> None:
    await ana.submit("/app/posts", content="hello")
    await ana.get("/app")
    token = {"authorization": f"Bearer {plaza.core.auth.issue('ana', 'user')}"}
    # Ana follows no user. Finding that out, for the suggested users, is sent at the same time as the query of the feed.
    for page, route, more in (
        ("/app", "/feed/explore", 0),
        ("/app/following", "/feed/following", 1),
        ("/app/articles", "/articles", 0),
    ):
        await ana.get(page)
        await ana.get(route, headers=token)  # it shows the authors' profiles, which the page does not read
        assert trips(await ana.get(page)) == trips(await ana.get(route, headers=token)) + more, page


async def test_a_session_ended_by_another_client_is_signed_out_here(ana: PageClient, url: str) -> None:
    assert "Sign out" in (await ana.get("/app")).text
    async with httpx.AsyncClient(base_url=url, cookies=ana.cookies, timeout=TIME_LIMIT_SECONDS) as other:
        await other.post("/shop/logout")
    assert "Sign out" not in (await ana.get("/app")).text


async def test_a_suspended_user_is_signed_out_at_once(ana: PageClient, plaza: Plaza) -> None:
    form = await ana.hidden_fields("/app")
    await plaza.get(Users).suspend(API, "ana", on=True)
    response = await ana.post("/app/posts", data={**form, "content": "hello"})
    assert response.headers["location"].startswith("/app/sign-in")
    assert "hello" not in (await ana.get("/app")).text


async def test_a_form_sent_twice_takes_effect_once(ana: PageClient) -> None:
    form = {**await ana.hidden_fields("/app"), "content": "only once"}
    for _ in range(2):
        assert (await ana.post("/app/posts", data=form)).status_code == 303
    assert (await ana.get("/app")).text.count("only once") == 1
    await ana.post("/app/posts", data=form | {"content": "changed by going back"})
    shown = (await ana.get("/app")).text
    assert "only once" in shown
    assert "changed by going back" in shown
    assert "Your post" not in (await ana.get("/app/following")).text, "a new post would not appear in that feed"


async def test_repeating_a_completed_action_is_not_an_error(ana: PageClient, guest: PageClient) -> None:
    post = (await ana.submit("/app/posts", next="", content="hello")).headers["location"]
    commented = await ana.submit(f"{post}/comments", page=post, content="hi")
    comment = commented.headers["location"].rpartition("#comment-")[2]
    await ana.submit("/app/articles", page="/app/articles/new", title="A link", link="https://example.org/")
    walk = {"title": "Walk", "category": "1", "duration": "7", "is_public": "1"}
    await ana.submit("/app/challenges", page="/app/challenges/new", **walk)
    for path, fields in (
        ("/app/challenges/1/join", {"on": "1"}),
        ("/app/challenges/1/track", {}),
        ("/app/challenges/1/track", {"on": "0"}),
        ("/app/challenges/1/join", {"on": "0"}),
        ("/app/challenges/1/delete", {}),
        (f"{post}/comments/{comment}/delete", {}),
        (f"{post}/delete", {}),
        ("/app/articles/1/delete", {}),
    ):
        form = {**await ana.hidden_fields("/app/bookmarks"), **fields}
        assert [(await ana.post(path, data=form)).status_code for _ in range(2)] == [303, 303], path
    form = {**await guest.hidden_fields("/app/sign-up"), "username": "bob", "password": "correct horse"}
    cookie = guest.cookies["plaza"]
    assert (await guest.post("/app/sign-up", data=form)).status_code == 303
    for password, status in (("correct horse", 303), ("incorrect horse", 409)):
        guest.cookies.clear()
        guest.cookies.set("plaza", cookie)
        assert (await guest.post("/app/sign-up", data={**form, "password": password})).status_code == status


@pytest.mark.parametrize("evil", ["<", "'", "👩", "#ab ", "https://a.example/' ", "ل"])
async def test_a_page_stays_below_100_kilobytes_for_any_text(ana: PageClient, plaza: Plaza, evil: str) -> None:
    actor = Actor("ana", "user")
    await plaza.get(Users).update_profile(actor, "ana", Profile(display_name="'" * 200))
    content = (evil * MAX_CONTENT_CHARACTERS)[:MAX_CONTENT_CHARACTERS]
    tags = [] if "#" in evil else [f"{'é' * 90}{number}" for number in range(30)]
    for _ in range(20):
        await plaza.get(Posts).create(actor, NewPost(content, "https://a.example/" + "'" * 1_900, tags))
    await plaza.get(LiveService).declare("e", EventDeclaration(title="'" * 500))
    response = await ana.get("/app")
    assert response.text.count("<article") == 20
    assert len(response.content) < 100_000


async def test_a_list_of_articles_stays_below_100_kilobytes(ana: PageClient, plaza: Plaza) -> None:
    for number in range(25):
        groups = [f"{'g' * 47}{number % 10}{each:02d}"[-50:] for each in range(20)]
        link = f"https://{'a' * 60}.{'b' * 60}.example/{number}?" + "'&" * 900
        await plaza.get(Articles).post(Actor("ana", "user"), NewArticle("'" * 300, link, groups), f"{number:032x}")
    response = await ana.get("/app/articles")
    assert response.text.count('class="article"') == 25
    assert len(response.content) < 100_000
    assert "&#39;&amp;" in (await ana.get("/app/articles/1")).text, "its own page shows the complete link"


@pytest.mark.parametrize("evil", ["'", "👩", "@a ", "#中 "])
async def test_a_page_of_complete_texts_shows_as_many_as_fit_and_the_rest_on_the_next(
    ana: PageClient, plaza: Plaza, evil: str
) -> None:
    actor = Actor("ana", "user")
    content = evil * (MAX_CONTENT_CHARACTERS // len(evil)) if "#" not in evil else "hello"
    post = (await plaza.get(Posts).create(actor, NewPost(content))).id
    for number in range(20):
        await plaza.get(Comments).create(
            actor, post, NewComment(evil * ((MAX_COMMENT_CHARACTERS - 3) // len(evil)) + f" {number}")
        )
    shown: list[str] = []
    path = f"/app/posts/{post}"
    while path:
        response = await ana.get(path)
        assert len(response.content) < 100_000
        shown += re.findall(r'id="comment-([^"]*)"', response.text)
        next_link = re.search(r'href="([^"]*)" rel="next"', response.text)
        path = next_link[1] if next_link else ""
    assert len(set(shown)) == len(shown) == 20


async def test_errors_are_pages_for_browsers_and_problem_documents_for_scripts(
    ana: PageClient, guest: PageClient
) -> None:
    missing = await ana.get("/app/people/missing")
    assert missing.status_code == 404
    assert missing.text.count("No user has this name") == 2, "the title of the page and its heading"
    assert any(tag == "nav" for tag, _ in ParsedPage(missing.text).elements), "with the navigation"
    assert "Sign out" in missing.text
    assert (await ana.get("/app/operator")).status_code == 403
    assert (await ana.submit("/app/sign-out", page="/app/operator")).status_code == 303, "its form works too"
    assert "Sign out" not in (await ana.get("/app/people/missing")).text
    await ana.sign_up("ana2")
    unknown = await ana.get("/app/no/such/page")
    assert unknown.headers["content-type"].startswith("text/html")
    assert "Sign out" in unknown.text, "also where nothing needs the session"
    assert "Create account" in (await guest.get("/app/no/such/page")).text
    problem = await ana.get("/app/people/missing", headers={"x-fragment": "1"})
    assert problem.json()["code"] == "no_profile"
    assert (await ana.get("/nowhere")).json()["code"] == "not_found"
    refused = await ana.submit("/app/posts", content=" ", next="/app/bookmarks")
    assert refused.status_code == 422
    assert '<a class="button" href="/app/bookmarks">Back</a>' in refused.text, "to the page of the form"


async def test_an_invalid_address_is_not_found(ana: PageClient) -> None:
    numbers = ("/posts/x", "/articles/0", "/shop/items/lamp", "/shop/cart/1", "/sign-out")
    for path in (*numbers, "/people/%C3%A9", "/people/ana/friends", "/tags/a-b"):
        response = await ana.get(f"/app{path}")
        assert response.status_code == 404, path
        assert "There is no page at this address." in response.text
        assert "Sign out" in response.text, "the page has the frame of its visitor"


async def test_an_invalid_parameter_leads_to_the_page_without_it(ana: PageClient) -> None:
    for path, field in (("/articles", "order"), ("/articles?order=top&period=<b>", "period"), ("", "cursor")):
        response = await ana.get(f"/app{path}" + ("" if "?" in path else f"?{field}=odd"))
        assert response.status_code == 422, path
        assert f"The value of “{field}” is not one that this page knows. Open the page without it." in response.text
        assert f'href="/app{path.partition("?")[0]}">Open the page</a>' in response.text
        assert "Sign out" in response.text, "the page has the frame of its visitor"
        assert "<b>" not in response.text


async def test_an_error_has_its_page_although_the_session_cannot_be_read(ana: PageClient, redis_client: Any) -> None:
    await redis_client.delete(LOGIN_TOKENS())
    await redis_client.set(LOGIN_TOKENS(), "another type")
    unknown = await ana.get("/app/no/such/page")
    assert (unknown.status_code, unknown.headers["content-type"]) == (404, "text/html; charset=utf-8")


async def test_an_unavailable_valkey_gives_an_error_page(tmp_path: Path) -> None:
    with running_server() as valkey:
        async with running(Settings(data_dir=tmp_path, valkey_url=valkey.url)) as plaza, serving(plaza.app) as url:
            assert valkey.process is not None
            valkey.process.kill()
            valkey.process.wait()
            async with PageClient(url) as client:
                response = await client.get("/app")
    assert response.status_code == 503
    assert "retry-after" in response.headers
    assert "<h1>Plaza is briefly unavailable</h1>" in response.text
    assert "Valkey" not in response.text


async def test_vote_buttons_are_disabled_after_voting_has_ended(ana: PageClient, plaza: Plaza) -> None:
    link = NewArticle("A link", "https://example.org/", ["sky"])
    await plaza.get(Articles).post(Actor("ana", "user"), link, f"{1:032x}")
    pages = ("/app/articles?order=time", "/app/groups/sky?order=time", "/app/articles/1")
    for days, disabled in ((6.9, 0), (7.1, 2)):
        posted = plaza.core.clock.now_s() - days * 86_400
        await plaza.core.valkey.call("HSET", "article:1", "time", str(posted))
        for path in pages:
            assert (await ana.get(path)).text.count("data-swap disabled>") == disabled, (path, days)
        voted = await ana.submit("/app/articles/1/vote", direction="down")
        assert voted.status_code == (409 if disabled else 303)


async def test_guests_can_read_hashtag_pages(ana: PageClient, guest: PageClient) -> None:
    await ana.submit("/app/posts", content="hello #sky")
    for path in ("/app/tags/sky", "/app/tags/sky/ranked"):
        response = await guest.get(path)
        assert response.status_code == 200
        assert "hello" in response.text


async def test_counters_of_zero_are_not_shown(ana: PageClient) -> None:
    post = (await ana.submit("/app/posts", next="", content="hello")).headers["location"]
    page = (await ana.get(post)).text
    assert [label for label in re.findall(r'aria-label="(Like|Comments|Bookmark)([^"]*)"', page) if label[1]] == []
    assert re.findall(r"</svg><span>\d", page) == []
    assert '<h2 id="comments">Comments</h2>' in page
    await ana.submit(f"{post}/like", page=post, on="1")
    assert re.findall(r"</svg><span>(\d+)", (await ana.get(post)).text) == ["1"]


async def test_a_search_that_only_excludes_says_why_it_finds_nothing(guest: PageClient) -> None:
    for query in ("-red", "-%23sky%20-from:ana"):
        assert "There is no word to search for" in (await guest.get(f"/app/search?q={query}")).text
    assert "There is no word" not in (await guest.get("/app/search?q=lamp%20-red")).text


async def test_event_pages_show_one_viewer_count(guest: PageClient, plaza: Plaza) -> None:
    live = plaza.get(LiveService)
    now, day_ms = plaza.core.clock.now_ms(), 86_400_000
    await live.declare("fair", EventDeclaration(title="The fair", starts_at=now - 2 * day_ms))
    await live.declare("over", EventDeclaration(title="The concert", starts_at=now - 2 * day_ms))
    await live.declare("begun", EventDeclaration(title="The talk", starts_at=now - day_ms // 2))
    await live.beat(Viewer("ana", "10.0.0.1", "ZZ"), "fair", Heartbeat(location="web"))
    sidebar = (await guest.get("/app")).text
    assert "1 watching" in sidebar
    assert "The talk" in sidebar
    assert "The concert" not in sidebar, "it is over"
    for path in ("/app/events", "/app/events/fair"):
        assert "1 watching" not in (await guest.get(path)).text, "the sidebar may be ten seconds older"


async def test_avatars_and_pictures_of_the_api_are_shown(ana: PageClient, plaza: Plaza) -> None:
    actor, face, picture = Actor("ana", "user"), "https://img.example/ana", "https://img.example/a.jpg?w=1&h=2"
    await plaza.get(Users).update_profile(actor, "ana", Profile(avatar=face))
    post = (await plaza.get(Posts).create(actor, NewPost("hello", picture))).id
    # Above: the user's own in the header. Below a post: the one beside the form for comments.
    on_pages = {"/app/people/ana": [face, face, face, picture], f"/app/posts/{post}": [face, face, picture, face]}
    for path, expected in on_pages.items():
        response = await ana.get(path)
        images = [attributes for tag, attributes in ParsedPage(response.text).elements if tag == "img"]
        assert [image["src"] for image in images] == expected
        assert all(image["referrerpolicy"] == "no-referrer" for image in images)
        assert "img-src 'self' data: blob: https:;" in response.headers["content-security-policy"]


@pytest.mark.parametrize("url", ["http://a.example/a.jpg", "https://a.example/" + "a" * 300 + ".jpg", "data:a.jpg"])
def test_only_short_https_addresses_are_shown_as_pictures(url: str) -> None:
    assert not is_image_url(url)
    assert "<img" not in avatar("ana", url)
    assert is_image_url("https://a.example/a.JPG?x")
    assert not is_image_url("https://a.example/film.mp4")


async def test_a_product_comes_from_the_page_cache_and_changes_at_once(guest: PageClient, plaza: Plaza) -> None:
    item = await plaza.get(Items).create(NewItem("Lamp", "Bright.", "9.00", 3), "one")
    path = f"/app/shop/items/{item.id}"
    states = [(await guest.get(path)).headers["cache-status"] for _ in range(3)]
    assert states[-1].startswith("plaza; hit"), states
    await plaza.get(Items).change(item.id, ItemChange(price="8.50"))
    assert "8.50" in (await guest.get(path)).text


async def test_only_declared_events_are_shown(guest: PageClient, plaza: Plaza) -> None:
    live = plaza.get(LiveService)
    await live.declare("fair", EventDeclaration(title="The <fair>"))
    await live.beat(Viewer("ana", "10.0.0.1", "ZZ"), "undeclared", Heartbeat(location="web"))
    page = (await guest.get("/app/events")).text
    assert "The &lt;fair&gt;" in page
    assert "undeclared" not in page
    assert (await guest.get("/app/events/undeclared")).status_code == 404
    assert (await guest.get("/app/events/undeclared/watching")).status_code == 404


async def test_an_event_says_what_to_expect_before_it_starts(guest: PageClient, plaza: Plaza) -> None:
    live, starts_at = plaza.get(LiveService), plaza.core.clock.now_ms() + 86_400_000
    await live.declare("fair", EventDeclaration("The fair", ["fair-main_stage"], [], starts_at, "Bring #socks."))
    await live.declare("fair", EventDeclaration())  # keeps what it does not name
    await live.declare("past", EventDeclaration("A fair before", starts_at=1_700_000_000_000))
    text = (await guest.get("/app/events")).text
    assert text.index("Coming up") < text.index("The fair") < text.index("Now and before") < text.index("A fair before")
    assert "started <time" in text
    page = (await guest.get("/app/events/fair")).text
    assert "It has not started yet." in page
    assert 'Bring <a href="/app/tags/socks">#socks</a>.' in page
    assert "<bdi>Main stage</bdi>" in page
    assert "<span>waiting now</span>" in page
    assert re.search(r"starts <time [^>]+ data-event-time>", (await guest.get("/app")).text.split("<aside")[1])
    assert "It has not started yet." not in (await guest.get("/app/events/past")).text
    assert f'data-starts-at="{starts_at}"' in page
    for event, expected in (("fair", starts_at), ("past", 1_700_000_000_000)):
        async with guest.stream("GET", f"/app/events/{event}/watching") as response:
            data = await anext(line async for line in response.aiter_lines() if line.startswith("data:"))
        assert msgspec.json.decode(data.removeprefix("data:"))["starts_at"] == expected


async def test_admins_see_undeclared_events_that_have_viewers(ana: PageClient, plaza: Plaza) -> None:
    await plaza.get(LiveService).beat(Viewer("ben", "10.0.0.1", "ZZ"), "who knows", Heartbeat(location="web"))
    assert "who knows" not in (await ana.get("/app/events")).text
    await plaza.get(Users).set_role(Actor("root", "admin"), "ana", "admin")
    assert "/app/operator/live?event=who%20knows" in (await ana.get("/app/events")).text


async def test_an_event_id_may_contain_any_characters(guest: PageClient, plaza: Plaza) -> None:
    names = ["a/b", "x?y", "50%", "<b>", "\u202elive", "..", "~."]
    for name in names:
        await plaza.get(LiveService).declare(name, EventDeclaration(title=f"About {name}"))
    paths = re.findall(r'class="row" href="([^"]*)"', (await guest.get("/app/events")).text)
    assert len(paths) == len(names)
    for path in paths:
        page = await guest.get(path)
        assert page.status_code == 200, path
        assert f'data-from="{path}/watching"' in page.text


async def test_a_failed_order_leads_back_to_the_cart(guest: PageClient, plaza: Plaza) -> None:
    item = await plaza.get(Items).create(NewItem("Bell", "", "9.00", 1), "one")
    await guest.submit(f"/app/shop/cart/{item.id}", page=f"/app/shop/items/{item.id}", qty="1")
    await plaza.get(Items).change(item.id, ItemChange(qty=0))
    response = await guest.submit("/app/shop/checkout", page="/app/shop/cart")
    assert response.status_code == 409
    assert "/app/sign-in?next=/app/shop/cart" in response.text
    assert "/app/shop/checkout" not in re.findall(r'name="next" value="([^"]*)"', response.text)


async def test_a_trailing_slash_leads_to_explore(guest: PageClient) -> None:
    assert (await guest.get("/app/", follow_redirects=True)).url.path == "/app"


async def test_an_avatar_never_changes_and_differs_between_users(guest: PageClient) -> None:
    first = await guest.get("/app/avatars/ana")
    assert first.headers["content-type"] == "image/svg+xml"
    assert "default-src 'none'" in first.headers["content-security-policy"]
    assert (await guest.get("/app/avatars/ana")).content == first.content
    assert (await guest.get("/app/avatars/bob")).content != first.content
    assert (await guest.get("/app/avatars/%3Cscript%3E")).status_code == 404


async def test_assets_are_cached_permanently_under_their_version(guest: PageClient) -> None:
    (style,) = re.findall(r'href="(/app/assets/[^"]+\.css)"', (await guest.get("/app")).text)
    assert "immutable" in (await guest.get(style)).headers["cache-control"]
    old = await guest.get(re.sub("assets/[^/]+", "assets/0ld", style))
    assert old.headers["cache-control"] == "no-cache"
    assert (await guest.get("/app/assets/x/..%2Fsite.py")).status_code == 404


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("see https://a.example/x.", 'see <a href="https://a.example/x" rel="nofollow noopener ugc">a.example/x</a>.'),
        ("(https://www.a.example)", '(<a href="https://www.a.example" rel="nofollow noopener ugc">a.example</a>)'),
        ("#Été and a#b", '<a href="/app/tags/%C3%A9t%C3%A9">#Été</a> and a#b'),
        ("hi @ana. ana@b.example", 'hi <a class="mention" href="/app/people/ana">@ana</a>. ana@b.example'),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("https://", "https://"),
        ("@me <b>&", "@me &lt;b&gt;&amp;"),
        ('https://a.example/"x', '<a href="https://a.example/" rel="nofollow noopener ugc">a.example/</a>&#34;x'),
        (
            "https://a.example/\u202egnp",
            '<a href="https://a.example/" rel="nofollow noopener ugc">a.example/</a>\u202egnp',
        ),
    ],
)
def test_only_web_addresses_tags_and_usernames_become_links(text: str, html: str) -> None:
    assert str(linkify(text)) == html


def test_times_money_and_excerpts_are_formatted() -> None:
    now = 1_800_000_000_000
    ages = [format_age(now - ms, now) for ms in (-5, 59_000, 60_000, 3_600_000, 2 * 86_400_000, 40 * 86_400_000)]
    assert ages == ["now", "now", "1 min", "1 h", "2 d", "6 Dec 2026"]
    assert format_age(10**18, now) == "now"
    assert [time_ago(now - ms, now) for ms in (0, 120_000, 40 * 86_400_000)] == [
        "just now",
        "2 min ago",
        "on 6 Dec 2026",
    ]
    assert str(time_element(now, "1 <min")) == (
        '<time datetime="2027-01-15T08:00:00Z" title="15 Jan 2027, 08:00 UTC">1 &lt;min</time>'
    )
    assert format_iso_date("2026-12-06") == "6 Dec 2026"
    prices = (("9.00", "EUR"), ("1250.50", "USD"), ("1200.00", "JPY"), ("9999999.9", "SEK"), ("", "EUR"))
    assert [format_money(price, currency) for price, currency in prices] == [
        "€9.00",
        "$1,250.50",
        "¥1,200",
        "SEK\u00a09,999,999.9",
        "",
    ]
    assert truncate_text("one two three", 20) == "one two three"
    assert truncate_text("one two three", 9) == "one two…"


@pytest.mark.parametrize(
    ("duration", "today"), [(1, 0), (60, 59), (61, 0), (365, 0), (365, 100), (365, 364), (365, 500)]
)
def test_the_day_grid_of_a_long_challenge_contains_today(duration: int, today: int) -> None:
    first = 20_000
    long = Challenge(1, "Walk", 1, True, duration, "ana", first * DAY_MS + 5, "2026-12-06", 1)
    days = days_shown(long, first + today)
    assert len(days) == min(duration, MAX_DAYS_SHOWN)
    assert days == list(range(days[0], days[-1] + 1))
    assert first <= days[0]
    assert days[-1] < first + duration
    assert first + today in days or today >= duration
