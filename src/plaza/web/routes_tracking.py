"""Tracked days of challenges: tracking with an amount, taking days back, reminders, and leaderboards."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from plaza.challenges.leaderboard import Leaderboards
from plaza.challenges.model import (
    AlreadyTracked,
    ChallengeId,
    LeaderboardQuery,
    NewReminder,
    NewTracking,
    NotTracked,
    iso_date,
    parse_date,
)
from plaza.challenges.participation_reader import Participations
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.service import Challenges
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.errors import Invalid
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Page
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.problem_pages import wants_page
from plaza.web.rendering import tabs
from plaza.web.routes_challenges import challenge_context, today
from plaza.web.text_html import next_page_link

page = PageRoutes()

# The orders of a leaderboard, and their names on the page.
ORDERS: Final = {"days": "Days", "amount": "Amount", "streak": "Streak"}


@page.post("/challenges/{id}/track", access=USER)
async def track(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    participations: Participations,
    tracking: ChallengeTracking,
    leaderboards: Leaderboards,
) -> Response[str]:
    """Track a day of progress, or take it back."""
    visitor = await site.visitors.from_request(request)
    fields = forms.parse_form(body)
    undo, date = fields.get("on") == "0", fields.get("date") or None
    with suppress(AlreadyTracked, NotTracked):  # done by an earlier click
        if undo:
            await tracking.untrack(visitor.require_user(), id, date)
        else:
            new = {name: fields[name] for name in ("date", "amount") if fields.get(name)}
            await tracking.track(visitor.require_user(), id, forms.convert_fields(new, NewTracking))
    if date is not None:
        return site.form_response(request, visitor, b"", f"/app/challenges/{id}/days")
    found = await service.read(visitor.actor, id)
    context = await challenge_context(site, visitor, found, participations, leaderboards)
    context["message"] = "Today is no longer tracked." if undo else "Today is tracked."
    return site.form_response(request, visitor, body, f"/app/challenges/{id}", "challenge-changed.html", **context)


@page.post("/challenges/{id}/reminder", access=USER)
async def remind(
    request: Request,
    body: bytes,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    participations: Participations,
    reminders: ChallengeReminders,
    leaderboards: Leaderboards,
) -> Response[str]:
    """Set or remove your reminder."""
    visitor, fields = await site.visitors.from_request(request), forms.parse_form(body)
    if fields.get("on") == "0":
        await reminders.remove(visitor.require_user(), id)
        message = "You will not be reminded."
    else:
        try:
            await reminders.save(visitor.require_user(), id, forms.read_form(body, NewReminder))
        except Invalid as error:
            if not wants_page(request):
                raise
            context = await challenge_context(site, visitor, await service.read(visitor.actor, id), participations)
            context["reminder"] = {"hour": parse_int(fields.get("hour")), "time_zone": fields.get("time_zone", "")}
            context |= {"reminder_problem": error.detail, "return_path": f"/app/challenges/{id}"}
            return site.page(
                request, visitor, "challenge-reminder.html", section="Challenges", status=error.status, **context
            )
        message = "Reminder saved."
    found = await service.read(visitor.actor, id)
    context = await challenge_context(site, visitor, found, participations, leaderboards)
    context["message"] = message
    return site.form_response(request, visitor, body, f"/app/challenges/{id}", "challenge-changed.html", **context)


@page.get("/challenges/{id}/days", access=USER)
async def tracked_days(
    request: Request,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    tracking: ChallengeTracking,
    participations: Participations,
    cursor: str | None = None,
) -> Response[str]:
    """List the days that you have tracked, with a form for another one."""
    visitor = await site.visitors.from_request(request)
    found = await tracking.page(visitor.require_user(), id, Page(cursor=cursor))
    challenge = await service.read(visitor.actor, id)
    context = await challenge_context(site, visitor, challenge, participations)
    last_day = parse_date(challenge.finished_date) - 1
    more = next_page_link(f"/app/challenges/{id}/days", found.pagination)
    context |= {"tracked": found.days, "more": more, "earliest": iso_date(context["participation"].joined_day)}
    context["latest"] = min(today(site), iso_date(last_day))
    return site.page(request, visitor, "challenge-days.html", section="Challenges", **context)


@page.get("/challenges/{id}/leaderboard", access=PUBLIC)
async def leaderboard(
    request: Request,
    site: PageResponses,
    id: ChallengeId,
    service: Challenges,
    leaderboards: Leaderboards,
    query: LeaderboardQuery,
) -> Response[str]:
    """List a challenge's members by what they have tracked."""
    visitor = await site.visitors.from_request(request)
    challenge = await service.read(visitor.actor, id)
    board = await leaderboards.page(visitor.actor, id, query)
    path = f"/app/challenges/{id}/leaderboard"
    orders = tuple((name, f"{path}?by={key}") for key, name in ORDERS.items() if key != "amount" or board.unit)
    context: dict[str, Any] = {"challenge": challenge, "board": board, "by": query.by}
    context["tabs"] = tabs("Order", orders, ORDERS[query.by])
    context["more"] = next_page_link(f"{path}?by={query.by}", board.pagination, "More")
    return site.page(request, visitor, "challenge-leaderboard.html", section="Challenges", **context)
