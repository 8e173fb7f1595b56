"""Reports: the form for users, and the admins' queue with everything an admin does about a report."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Literal, get_args

import msgspec
from markupsafe import Markup

from plaza.core.auth import API
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.http.access import ADMIN, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.core.report_source import ReportedThing
from plaza.reports.model import NewReport, Report, ReportChange, ReportId, ReportsQuery, State, Subject
from plaza.reports.service import Reports, require_own_or_open
from plaza.social.feeds import Feeds
from plaza.social.model import Username
from plaza.social.users import Users
from plaza.web import forms
from plaza.web.operator_navigation import (
    EFFECTS_OF_BAN,
    ask_for_suspension,
    confirmation,
    filtered_path,
    operator_page,
    quoted,
)
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.rendering import tabs
from plaza.web.text_html import next_page_link, truncate_text

page = PageRoutes()

PATH: Final = "/app/operator/reports"
STATES: Final = (("Open", "open"), ("Resolved", "resolved"), ("Dismissed", "dismissed"))
BANNED: Final = ("Banned posts", f"{PATH}/banned-posts")
SUBJECTS: Final = tuple((f"{subject.replace('_', ' ').capitalize()}s", subject) for subject in get_args(Subject))
ROWS: Final = 20
MAX_TEXT_CHARACTERS: Final = 400

TAB: Final = "Reports"

DestructiveAction = Literal["remove", "suspend"]
Action = Literal["remove", "suspend", "dismiss", "resolve", "open"]
_STATES: Final[dict[Action, State]] = {"dismiss": "dismissed", "open": "open"}
_NOTES: Final = {"remove": "Removed.", "suspend": "Author suspended."}


class ReportAction(msgspec.Struct):
    """The button that an admin pressed."""

    action: Action


@page.get("/report", access=USER)
async def report_form(
    request: Request, site: PageResponses, reports: Reports, subject: str = "", id: str = ""
) -> Response[str]:
    """Show the form to report something."""
    return await _form(site, request, reports, subject, id)


async def _form(
    site: PageResponses, request: Request, reports: Reports, subject: str, id: str, reason: str = "", problem: str = ""
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    thing = None
    with suppress(Invalid):  # a wrong link, which the form refuses
        thing = await reports.find_thing(visitor.require_user(), subject, id)
    context: dict[str, Any] = {"subject": subject[:20], "id": id[:64], "reason": reason, "problem": problem}
    context["quotes"] = quoted(thing.text) if thing else []
    return site.page(request, visitor, "report.html", status=422 if problem else 200, **context)


@page.post("/report", access=USER, limit="report")
async def report(request: Request, body: bytes, site: PageResponses, reports: Reports) -> Response[str]:
    """Report something to the admins."""
    visitor = await site.visitors.from_request(request)
    try:
        await reports.create(visitor.require_user(), forms.read_form(body, NewReport))
    except (Invalid, Conflict) as error:
        given = forms.parse_form(body)
        subject, id, reason = (given.get(name, "") for name in ("subject", "id", "reason"))
        return await _form(site, request, reports, subject, id, reason, error.detail)
    return site.page(request, visitor, "reported.html")


@page.get("/operator/reports", access=ADMIN)
async def queue(
    request: Request,
    site: PageResponses,
    reports: Reports,
    state: str = "open",
    subject: str = "",
    author: str = "",
    id: str = "",
    cursor: str = "",
) -> Response[str]:
    """List reports with what was reported, its author and earlier reports: by state, of an author, or of one thing."""
    visitor = await site.visitors.from_request(request)
    shown = state if state in dict(STATES).values() else "open"
    kind = subject if subject in dict(SUBJECTS).values() else ""
    thing = id if kind else ""
    if author or thing:
        shown = ""
    given = {"state": shown or "all", "author": author, "subject": kind, "subject_id": thing, "cursor": cursor}
    query = forms.convert_fields({name: text for name, text in given.items() if text} | {"limit": ROWS}, ReportsQuery)
    found = await reports.page(query)
    path = filtered_path(PATH, state=shown, subject=kind, author=author, id=thing)
    context: dict[str, Any] = {
        "states": _state_tabs(next((label for label, value in STATES if value == shown), "")),
        "subjects": _subject_links(shown, kind) if shown else [],
        "author": author,
        "thing": thing,
        "kind": kind,
        "entries": [await _entry(reports, report) for report in found.items],
        "more": next_page_link(path, found.pagination),
    }
    return operator_page(request, site, visitor, "operator-reports.html", TAB, **context)


def _state_tabs(current: str) -> Markup:
    views = (*((label, f"{PATH}?state={value}") for label, value in STATES), BANNED)
    return tabs("Reports by state", views, current)


def _subject_links(state: str, current: str) -> list[tuple[str, str, bool]]:
    return [
        (label, filtered_path(PATH, state=state, subject=subject), subject == current)
        for label, subject in (("All", ""), *SUBJECTS)
    ]


@page.get("/operator/reports/banned-posts", access=ADMIN)
async def banned_posts(
    request: Request, site: PageResponses, feeds: Feeds, author: Username | None = None, cursor: str | None = None
) -> Response[str]:
    """List the banned posts of all users or of one, each with a button to unban it."""
    visitor = await site.visitors.from_request(request)
    found = await feeds.banned(Page(limit=ROWS, cursor=cursor), author)
    context: dict[str, Any] = {
        "states": _state_tabs("" if author else BANNED[0]),
        "author": author,
        "posts": [(post, truncate_text(post.content, MAX_TEXT_CHARACTERS)) for post in found.items],
        "more": next_page_link(filtered_path(BANNED[1], author=author or ""), found.pagination),
    }
    return operator_page(request, site, visitor, "operator-banned-posts.html", TAB, **context)


async def _entry(reports: Reports, report: Report) -> dict[str, Any]:
    thing = await _find_reported(reports, report)
    text = "" if thing is None else truncate_text(thing.text, MAX_TEXT_CHARACTERS)
    return {"report": report, "thing": thing, "text": text, "removal": reports.removal(report)}


async def _find_reported(reports: Reports, report: Report) -> ReportedThing | None:
    """Return what was reported, also if the admin who works on it blocks its author; None if it is gone."""
    return await reports.find_thing(API, report.subject, report.subject_id)


@page.get("/operator/reports/{id}/{action}", access=ADMIN)
async def confirm_action(
    request: Request, site: PageResponses, id: ReportId, action: DestructiveAction, reports: Reports
) -> Response[str]:
    """Show what a removal or a suspension does, before it is done."""
    found = await reports.get(id)
    thing = await _find_reported(reports, found)
    quote = quoted(thing.text if thing else "")
    closes = f"The report is resolved, with your note. Its reason: “{truncate_text(found.reason, MAX_TEXT_CHARACTERS)}”"
    if action == "suspend":
        path, shown = f"{PATH}/{id}", [*quote, closes]
        return await ask_for_suspension(request, site, found.author, action=path, back=PATH, report=shown)
    removal, subject = reports.removal(found), found.subject.replace("_", " ")
    if not removal:
        raise NotFound("What was reported cannot be removed.")
    gone = (f"The {subject} is deleted for all users. This cannot be undone.",)
    return await confirmation(
        request,
        site,
        TAB,
        title=f"{removal.capitalize()} the {subject} of {found.author}?",
        effects=[*quote, *(EFFECTS_OF_BAN if removal == "ban" else gone), closes],
        action=f"{PATH}/{id}",
        fields={"action": "remove"},
        button=f"{removal.capitalize()} the {subject}",
        back=PATH,
        has_note=True,
    )


@page.post("/operator/reports/{id}", access=ADMIN, logged_fields=("action",))
async def act(
    request: Request, body: bytes, site: PageResponses, id: ReportId, reports: Reports, users: Users
) -> Response[str]:
    """Update a report, and do what the button says."""
    visitor = await site.visitors.from_request(request)
    admin, given = visitor.require_user(), forms.parse_form(body)
    action = forms.convert_fields({"action": given.get("action", "")}, ReportAction).action
    found = await reports.get(id)
    is_closing = action != "open"
    if is_closing:
        require_own_or_open(found.state, found.admin, admin.name)
    if action == "remove":
        await reports.remove_thing(admin, found)
    elif action == "suspend":
        await users.suspend(admin, found.author, on=True)
    note = given.get("note", "")[:1_000] or _NOTES.get(action, "")
    await reports.change(admin, id, ReportChange(_STATES.get(action, "resolved"), note), own_or_open=is_closing)
    return site.form_response(request, visitor, body, f"{PATH}?state=open")
