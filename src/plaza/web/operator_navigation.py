"""What the operator pages share: their section, their tabs, and the page that asks before a destructive action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup

from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.web.page_responses import PageResponses
from plaza.web.problem_pages import path_and_query
from plaza.web.rendering import shown_domains, tabs
from plaza.web.text_html import truncate_text
from plaza.web.visitors import Visitor

SECTION: Final = "Operations"
MAX_QUOTED_CHARACTERS: Final = 300
# The pages, each with the domain that it shows; empty if it shows all.
_PAGES: Final = (
    ("Growth", "desk"),
    ("Users", "desk"),
    ("Articles", "articles"),
    ("Reports", "reports"),
    ("Live", "live"),
    ("Items", "shop"),
    ("Orders", "shop"),
    ("Keys", ""),
    ("Webhooks", "webhooks"),
    ("Health", ""),
    ("Log", "accounts"),
)

EFFECTS_OF_BAN: Final = (
    "The post is no longer shown: not in feeds, on hashtags, in search or by its address. Admins still see it.",
    "Nothing is deleted, and you can unban it at any time. The author is notified.",
)


def operator_views() -> tuple[tuple[str, str], ...]:
    """The names and paths of the operator pages of the domains that run."""
    domains = {"", *shown_domains()}
    return tuple((name, f"/app/operator/{name.lower()}") for name, domain in _PAGES if domain in domains)


def operator_tabs(current: str) -> Markup:
    """The tabs of the operator pages."""
    return tabs("Operator pages", operator_views(), current)


def filtered_path(path: str, **filters: str) -> str:
    """Return the path of a list with the filters that are used."""
    used = {name: text for name, text in filters.items() if text}
    return f"{path}?{urlencode(used)}" if used else path


def operator_page(
    request: Request, site: PageResponses, visitor: Visitor, template: str, tab: str, **context: Any
) -> Response[str]:
    """Return an operator page under one of the tabs."""
    return site.page(request, visitor, template, section=SECTION, tabs=operator_tabs(tab), **context)


async def confirmation(
    request: Request,
    site: PageResponses,
    tab: str,
    *,
    title: str,
    effects: Sequence[str],
    button: str,
    back: str,
    action: str = "",
    fields: Mapping[str, str] | None = None,
    has_note: bool = False,
) -> Response[str]:
    """Ask before an action, and say what it does. The form sends `fields`, and a note if asked, to the path `action`;
    by default to the requested one.
    """
    visitor = await site.visitors.from_request(request)
    context: dict[str, Any] = {"title": title, "effects": effects, "button": button, "back": back, "has_note": has_note}
    context |= {"action": action or path_and_query(request), "fields": fields or {}}
    return operator_page(request, site, visitor, "operator-confirm.html", tab, return_path=back, **context)


def quoted(text: str) -> list[str]:
    """Return the beginning of a text as the first line of a page that asks about it; nothing for no text."""
    return [f"“{truncate_text(text, MAX_QUOTED_CHARACTERS)}”"] if text else []


def _end_of_suspension(visitor: Visitor, username: str) -> str:
    if username == visitor.name:
        return "This is your own account: you are signed out at once, and only another admin can lift the suspension."
    return "You can lift the suspension at any time."


async def ask_for_suspension(
    request: Request, site: PageResponses, username: str, *, action: str, back: str, report: Sequence[str] = ()
) -> Response[str]:
    """Ask before a suspension, if it is because of a `report` also for a note."""
    visitor = await site.visitors.from_request(request)
    return await confirmation(
        request,
        site,
        "Reports" if report else "Users",
        title=f"Suspend {username}?",
        effects=[
            "All sessions end, and the user cannot sign in.",
            "Posts, comments and orders stay. The user is notified.",
            _end_of_suspension(visitor, username),
            *report,
        ],
        action=action,
        fields={"action": "suspend"} if report else {"on": "1"},
        button="Suspend the user",
        back=back,
        has_note=bool(report),
    )
