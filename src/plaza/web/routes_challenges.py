"""Challenges: taking part, keeping at it, telling of it, and what to read next."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from plaza.challenges.model import (
    CATEGORY_NAMES,
    DAY_MS,
    AlreadyJoined,
    AlreadyTracked,
    Challenge,
    ChallengeId,
    NewChallenge,
    NewPost,
    NewTracking,
    NotJoined,
    PostId,
)
from plaza.challenges.participation import Standing, Standings
from plaza.challenges.posts import Posts
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.service import Challenges
from plaza.core.errors import Invalid
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web import challenge_html, forms
from plaza.web.rendering import tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text_html import cut, fitting, older
from plaza.web.visitors import Visitor

page = PageRoutes()

# Each is shown whole, and may be long.
TALES: Final = 10

# Of a calendar that is seen at a glance.
MOST_DAYS: Final = 60

TABS: Final = (("All", "/app/challenges"), ("For you", "/app/challenges/for-you"))


def _tabs(on: str) -> dict[str, Any]:
    return {"tabs": tabs("Challenges", TABS, on)}


@page.get("/challenges", access=PUBLIC)
async def challenges(
    request: Request, site: Site, service: Challenges, standings: Standings, cursor: str | None = None
) -> Response[str]:
    """Challenges, the newest first: public ones and one's own."""
    who = await site.visitors.of(request)
    found = await service.page(who.actor, Page(cursor=cursor))
    ids = [challenge.id for challenge in found.challenges]
    joined = set() if who.actor is None else await standings.joined(who.actor, ids)
    return site.page(
        request,
        who,
        "challenges.html",
        section="Challenges",
        rows=challenge_html.rows(found.challenges, joined, today(site)),
        more=older("/app/challenges", found.pagination),
        **_tabs("All"),
    )


@page.get("/challenges/for-you", access=USER)
async def recommendations(request: Request, site: Site, recommender: Recommender) -> Response[str]:
    """Recent posts for the reader, each with the reason why."""
    who = await site.visitors.of(request)
    found = await recommender.recommend(who.person(), 20)
    fit = fitting([cut(each.post.text, challenge_html.EXCERPT) for each in found.posts])
    rows = challenge_html.recommended(found.posts[:fit], site.clock.now_ms())
    return site.page(request, who, "for-you.html", section="Challenges", rows=rows, **_tabs("For you"))


@page.get("/challenges/new", access=USER)
async def new_challenge(request: Request, site: Site) -> Response[str]:
    """Where one starts a challenge."""
    who = await site.visitors.of(request)
    who.person()
    return _form(site, request, who)


def _form(site: Site, request: Request, who: Visitor, *, status: int = 200, **said: Any) -> Response[str]:
    given = {"title": "", "category": "1", "duration": "21", "is_public": True, "problem": "", "field": "", **said}
    shown: dict[str, Any] = {"status": status, "categories": CATEGORY_NAMES, **given}
    return site.page(request, who, "challenge-new.html", section="Challenges", **shown)


@page.post("/challenges", access=USER)
async def create(request: Request, body: bytes, site: Site, service: Challenges) -> Response[str]:
    """Start a challenge."""
    who = await site.visitors.of(request)
    fields = forms.fields_of(body)
    public = fields.get("is_public") == "1"
    try:
        new = forms.read(body, NewChallenge, is_public=public)
        made = await service.create(who.person(), new, site.operation(request, body))
    except Invalid as error:
        given = {name: fields.get(name, "") for name in ("title", "category", "duration")}
        about = {"problem": error.detail, "field": error.extra.get("field", "")}
        return _form(site, request, who, status=error.status, is_public=public, **about, **given)
    return site.done(request, who, b"", f"/app/challenges/{made.id}")


@page.get("/challenges/{id}", access=PUBLIC)
async def challenge(
    request: Request,
    site: Site,
    id: ChallengeId,
    service: Challenges,
    posts: Posts,
    standings: Standings,
    cursor: str | None = None,
) -> Response[str]:
    """A challenge, how one stands to it, and what its members tell."""
    who = await site.visitors.of(request)
    found = await service.read(who.actor, id)
    told = await posts.page(who.actor, id, Page(limit=TALES, cursor=cursor))
    fit = fitting([post.text for post in told.posts])
    if fit < len(told.posts):
        told = await posts.page(who.actor, id, Page(limit=fit, cursor=cursor))
    ids = [post.id for post in told.posts]
    reacted = set() if who.actor is None else await standings.reacted(who.actor, ids)
    head = await _standing(site, who, found, standings)
    rows = challenge_html.told(told.posts, reacted, site.clock.now_ms(), is_open=head["open"])
    more = older(f"/app/challenges/{id}", told.pagination)
    return site.page(request, who, "challenge.html", section="Challenges", rows=rows, more=more, **head)


async def _standing(site: Site, who: Visitor, found: Challenge, standings: Standings) -> dict[str, Any]:
    """What stands above a challenge's posts."""
    standing = Standing(False, [], 0) if who.actor is None else await standings.of(who.actor, found.id)
    category = CATEGORY_NAMES[found.category - 1]
    is_open = found.finished_date > today(site)
    days = days_shown(found, standing.today)
    return {"challenge": found, "standing": standing, "category": category, "open": is_open, "days": days}


def days_shown(challenge: Challenge, today: int) -> list[int]:
    """The days of a challenge, counted from 1970: of a long one as many as a small calendar can show, with today."""
    first = challenge.created_at // DAY_MS
    after = first + challenge.duration
    begin = max(first, min(today - MOST_DAYS * 3 // 4, after - MOST_DAYS))
    return list(range(begin, min(begin + MOST_DAYS, after)))


def today(site: Site) -> str:
    return f"{datetime.fromtimestamp(site.clock.now_s(), UTC):%Y-%m-%d}"


@page.post("/challenges/{id}/join", access=USER)
async def join(
    request: Request, body: bytes, site: Site, id: ChallengeId, service: Challenges, standings: Standings
) -> Response[str]:
    """Take part, or no longer."""
    who = await site.visitors.of(request)
    on = forms.is_on(body)
    with suppress(AlreadyJoined, NotJoined):  # by a second click: then it is so
        await (service.join if on else service.leave)(who.person(), id)
    head = await _standing(site, who, await service.read(who.actor, id), standings)
    said = "You take part." if on else "You take part no longer."
    return site.done(request, who, body, f"/app/challenges/{id}", "challenge-changed.html", said=said, **head)


@page.post("/challenges/{id}/track", access=USER)
async def track(
    request: Request, body: bytes, site: Site, id: ChallengeId, service: Challenges, standings: Standings
) -> Response[str]:
    """Note today as a day of progress."""
    who = await site.visitors.of(request)
    with suppress(AlreadyTracked):
        await service.track(who.person(), id, NewTracking())
    head = await _standing(site, who, await service.read(who.actor, id), standings)
    to = f"/app/challenges/{id}"
    return site.done(request, who, body, to, "challenge-changed.html", said="Today counts.", **head)


@page.post("/challenges/{id}/posts", access=USER)
async def post(request: Request, body: bytes, site: Site, id: ChallengeId, posts: Posts) -> Response[str]:
    """Tell something in a challenge that one is a member of."""
    who = await site.visitors.of(request)
    is_break = forms.fields_of(body).get("is_break") == "1"
    new = forms.read(body, NewPost, is_break=is_break)
    made = await posts.post(who.person(), id, new, site.operation(request, body))
    to = f"/app/challenges/{id}#told-{made.id}"
    told = Markup(challenge_html.told([made], (), site.clock.now_ms(), is_open=True).decode())  # noqa: S704
    return site.done(request, who, body, to, "told-new.html", said="Posted.", told=told, challenge={"id": id})


@page.post("/challenges/posts/{id}/reaction", access=USER)
async def react(request: Request, body: bytes, site: Site, id: PostId, posts: Posts) -> Response[str]:
    """React to a post, or take the reaction back."""
    who = await site.visitors.of(request)
    on = forms.is_on(body)
    await (posts.react if on else posts.take_back)(who.person(), id)
    found = await posts.read(who.actor, id)
    to = f"/app/challenges/{found.challenge_id}#told-{id}"
    return site.done(request, who, body, to, "reaction.html", post=found, reacted=on, open=True)
