"""Challenges: the list, joining, posts, reactions and recommendations."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup

from plaza.challenges.leaderboard import Leaderboards
from plaza.challenges.model import (
    CATEGORY_NAMES,
    DAY_MS,
    AlreadyJoined,
    Challenge,
    ChallengeId,
    NewChallenge,
    NewChallengePost,
    NotJoined,
    PostId,
    PrivateChallenge,
)
from plaza.challenges.participation_reader import Participation, Participations
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.service import Challenges
from plaza.core.errors import Invalid
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.web import challenge_html, forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.text_html import fitting_count, next_page_link, truncate_text
from plaza.web.visitors import Visitor

page = PageRoutes()

# Few, since each post is shown complete and may be long.
POSTS_PER_PAGE: Final = 10
# Five weeks, as many as fit on a small screen.
MAX_DAYS_SHOWN: Final = 35
LEADERS_SHOWN: Final = 5

TABS: Final = (
    ("All", "/app/challenges"),
    ("For you", "/app/challenges/for-you"),
    ("Invitations", "/app/challenges/invitations"),
)


def _tabs(current: str) -> dict[str, Any]:
    return {"tabs": tabs("Challenges", TABS, current)}


@page.get("/challenges", access=PUBLIC)
async def challenges(
    request: Request,
    site: PageResponses,
    service: Challenges,
    participations: Participations,
    cursor: str | None = None,
) -> Response[str]:
    """List public challenges and your own, newest first."""
    visitor = await site.visitors.from_request(request)
    found = await service.page(visitor.actor, Page(cursor=cursor))
    ids = [challenge.id for challenge in found.challenges]
    joined = set() if visitor.actor is None else await participations.get_joined(visitor.actor, ids)
    return site.page(
        request,
        visitor,
        "challenges.html",
        section="Challenges",
        rows=challenge_html.challenge_rows(found.challenges, joined, today(site)),
        more=next_page_link("/app/challenges", found.pagination),
        **_tabs("All"),
    )


@page.get("/challenges/for-you", access=USER, limit_first=True)
async def recommendations(request: Request, site: PageResponses, recommender: Recommender) -> Response[str]:
    """List recommended challenge posts, each with its reason."""
    visitor = await site.visitors.from_request(request)
    found = await recommender.recommend(visitor.require_user(), 20)
    texts = [truncate_text(each.post.text, challenge_html.EXCERPT_CHARACTERS) for each in found.posts]
    rows = challenge_html.recommended_posts(found.posts[: fitting_count(texts)], site.clock.now_ms())
    response = site.page(request, visitor, "recommendations.html", section="Challenges", rows=rows, **_tabs("For you"))
    return await site.mentions.complete(response)


@page.get("/challenges/new", access=USER)
async def new_challenge(request: Request, site: PageResponses) -> Response[str]:
    """Show the form to start a challenge."""
    visitor = await site.visitors.from_request(request)
    visitor.require_user()
    return _form_page(site, request, visitor)


def _form_page(
    site: PageResponses, request: Request, visitor: Visitor, *, status: int = 200, **context: Any
) -> Response[str]:
    values = {
        "title": "",
        "category": "1",
        "duration": "21",
        "unit": "",
        "is_public": True,
        "problem": "",
        "field": "",
        **context,
    }
    options: dict[str, Any] = {"section": "Challenges", "status": status, "categories": CATEGORY_NAMES}
    return site.page(request, visitor, "challenge-new.html", **options, **values)


@page.post("/challenges", access=USER)
async def create(request: Request, body: bytes, site: PageResponses, service: Challenges) -> Response[str]:
    """Start a challenge."""
    visitor = await site.visitors.from_request(request)
    fields = forms.parse_form(body)
    is_public = fields.get("is_public") == "1"
    try:
        new = forms.read_form(body, NewChallenge, is_public=is_public)
        created = await service.create(visitor.require_user(), new, site.idempotency_key(request, body))
    except Invalid as error:
        values = {name: fields.get(name, "") for name in ("title", "category", "duration", "unit")}
        values |= {"problem": error.detail, "field": error.extra.get("field", "")}
        return _form_page(site, request, visitor, status=error.status, is_public=is_public, **values)
    return site.form_response(request, visitor, b"", f"/app/challenges/{created.id}")


@page.get("/challenges/{id}", access=PUBLIC)
async def challenge(
    request: Request,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    posts: ChallengePosts,
    participations: Participations,
    leaderboards: Leaderboards,
    cursor: str | None = None,
) -> Response[str]:
    """Show a challenge, your participation and its posts."""
    visitor = await site.visitors.from_request(request)
    found = await service.read(visitor.actor, id)
    shown = await posts.page(visitor.actor, id, Page(limit=POSTS_PER_PAGE, cursor=cursor))
    fitting = fitting_count([post.text for post in shown.posts])
    if fitting < len(shown.posts):
        shown = await posts.page(visitor.actor, id, Page(limit=fitting, cursor=cursor))
    ids = [post.id for post in shown.posts]
    reacted = set() if visitor.actor is None else await participations.get_reacted(visitor.actor, ids)
    context = await challenge_context(site, visitor, found, participations, leaderboards)
    rows = challenge_html.challenge_posts(
        shown.posts, reacted, site.clock.now_ms(), is_open=context["open"], viewer=visitor.name
    )
    more = next_page_link(f"/app/challenges/{id}", shown.pagination)
    response = site.page(request, visitor, "challenge.html", section="Challenges", rows=rows, more=more, **context)
    return await site.mentions.complete(response)


async def challenge_context(
    site: PageResponses,
    visitor: Visitor,
    challenge: Challenge,
    participations: Participations,
    leaderboards: Leaderboards | None = None,
) -> dict[str, Any]:
    """The values for the parts of the page beside the posts."""
    actor = visitor.actor
    participation = Participation(False, [], 0) if actor is None else await participations.get(actor, challenge.id)
    return {
        "challenge": challenge,
        "participation": participation,
        "reminder": participation.reminder,  # as its form shows it
        "reminder_problem": "",
        "category": CATEGORY_NAMES[challenge.category - 1],
        "open": challenge.finished_date > today(site),
        "days": days_shown(challenge, participation.today),
        "leaders": await leaderboards.first(actor, challenge.id, LEADERS_SHOWN) if leaderboards else (),
    }


def days_shown(challenge: Challenge, today: int) -> list[int]:
    """The days of a challenge, counted from 1970. Of a long one, as many as fit, around today."""
    first = challenge.created_at // DAY_MS
    end = first + challenge.duration
    start = max(first, min(today - MAX_DAYS_SHOWN * 3 // 4, end - MAX_DAYS_SHOWN))
    return list(range(start, min(start + MAX_DAYS_SHOWN, end)))


def today(site: PageResponses) -> str:
    """Today's date in ISO format, UTC."""
    return f"{datetime.fromtimestamp(site.clock.now_s(), UTC):%Y-%m-%d}"


@page.post("/challenges/{id}/join", access=USER, logged=True)
async def join(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    participations: Participations,
    leaderboards: Leaderboards,
) -> Response[str]:
    """Join or leave a challenge."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    with suppress(AlreadyJoined, NotJoined):  # done by an earlier click
        await (service.join if on else service.leave)(visitor.require_user(), id)
    try:
        found = await service.read(visitor.actor, id)
    except PrivateChallenge:
        if on:
            raise
        return site.form_response(request, visitor, b"", "/app/challenges")  # it is private: not theirs any more
    context = await challenge_context(site, visitor, found, participations, leaderboards)
    context["message"] = "You joined the challenge." if on else "You left the challenge."
    return site.form_response(request, visitor, body, f"/app/challenges/{id}", "challenge-changed.html", **context)


@page.post("/challenges/{id}/posts", access=USER)
async def post(
    request: Request, body: bytes, site: PageResponses, id: ChallengeId, posts: ChallengePosts
) -> Response[str]:
    """Create a post in a challenge (its members)."""
    visitor = await site.visitors.from_request(request)
    is_break = forms.parse_form(body).get("is_break") == "1"
    new = forms.read_form(body, NewChallengePost, is_break=is_break)
    created = await posts.post(visitor.require_user(), id, new, site.idempotency_key(request, body))
    path = f"/app/challenges/{id}#challenge-post-{created.id}"
    row = challenge_html.challenge_posts([created], (), site.clock.now_ms(), is_open=True, viewer=visitor.name).decode()
    context: dict[str, Any] = {"message": "Posted.", "row": Markup(row), "challenge": {"id": id}}  # noqa: S704
    response = site.form_response(request, visitor, body, path, "challenge-post-created.html", **context)
    return await site.mentions.complete(response)


@page.post("/challenges/posts/{id}/reaction", access=USER)
async def react(request: Request, body: bytes, site: PageResponses, id: PostId, posts: ChallengePosts) -> Response[str]:
    """React to a challenge post, or remove the reaction."""
    visitor = await site.visitors.from_request(request)
    on = forms.is_on(body)
    await (posts.react if on else posts.remove_reaction)(visitor.require_user(), id)
    found = await posts.read(visitor.actor, id)
    path = f"/app/challenges/{found.challenge_id}#challenge-post-{id}"
    context: dict[str, Any] = {"post": found, "reacted": on, "open": True}
    return site.form_response(request, visitor, body, path, "reaction-button.html", **context)
