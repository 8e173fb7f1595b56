"""Templates to HTML. One environment for all pages: everything is escaped, and a name nobody gave is an error."""

from __future__ import annotations

import secrets
from importlib.resources import files
from typing import Any, Final

import jinja2
from markupsafe import Markup

from plaza.core.http.headers import PAGE_POLICY
from plaza.core.http.responses import Response
from plaza.web import assets, formatting, text_html
from plaza.web.avatars import avatar
from plaza.web.fragment_cache import kept

HTML: Final = "text/html; charset=utf-8"

# `same-origin`, since with no referrer at all browsers hide the origin of our own forms too.
HEADERS: Final = (
    ("content-security-policy", PAGE_POLICY),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
)

# A page may be somebody's own, as a guest's cart is. One that shows a person is not kept at all: a browser that goes
# back shows what it has kept without asking, also to whoever sits there after that person has signed out.
KEPT: Final = ("cache-control", "private, no-cache")
NOT_KEPT: Final = ("cache-control", "no-store")

# Where one can go, in the order of the navigation: the section's name, its address and its icon.
SECTIONS: Final = (
    ("Explore", "/app", "compass"),
    ("Following", "/app/following", "people"),
    ("Articles", "/app/articles", "up"),
    ("Challenges", "/app/challenges", "flag"),
    ("Events", "/app/events", "signal"),
    ("Shop", "/app/shop", "bag"),
)

_FOLDER = files("plaza.web") / "templates"


def _source(name: str) -> str:
    return _FOLDER.joinpath(*name.split("/")).read_text()


ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.FunctionLoader(_source),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
    cache_size=-1,
)
ENVIRONMENT.filters.update(
    rich=text_html.rich,
    address=text_html.address,
    cut=text_html.cut,
    moment=text_html.moment,
    day=text_html.day,
    exact=text_html.exact,
    time=text_html.time,
    host=text_html.host,
    count=text_html.count,
    money=text_html.money,
)
ENVIRONMENT.filters.update(
    figure=formatting.figure, size=formatting.size, span=formatting.span, ticks=formatting.ticks, utc=formatting.utc
)

# What every template may use, besides what it is given.
_COMMON: Final[dict[str, Any]] = {
    **ENVIRONMENT.globals,
    "assets": assets.PREFIX,
    "sections": SECTIONS,
    "avatar": avatar,
    "tag_path": text_html.tag_path,
    "user_path": text_html.user_path,
    "event_path": text_html.event_path,
    "since": text_html.since,
    "wrong": Markup(' aria-invalid="true" aria-describedby="problem"'),  # for the field that a form's problem is about
    "once": lambda: secrets.token_hex(8),
}


def render(template: str, /, **context: Any) -> str:
    """A template as text.

    `Template.render` would do, but for a small page half its time goes into a chain of dictionaries that ours, being
    one, does not need.
    """
    found = ENVIRONMENT.get_template(template)
    return "".join(found.root_render_func(found.new_context({**_COMMON, **context}, shared=True)))


def fragment(template: str, /, **context: Any) -> Markup:
    """A template for use in another."""
    return Markup(render(template, **context))  # noqa: S704 made by a template that escapes


def chrome(section: str, name: str, is_admin: bool, here: str) -> Markup:
    """What is around a page: the brand, the sections, and the account or, for nobody, the way to one."""
    return _chrome[section, name, is_admin, here]


def tabs(label: str, every: tuple[tuple[str, str], ...], on: str) -> Markup:
    """Other views of the same: the name and address of each, and the name of this one."""
    return _tabs[label, every, on]


# For nobody it holds the address that was asked for, which anybody may make up.
@kept(2_000_000)
def _chrome(section: str, name: str, is_admin: bool, here: str) -> Markup:
    return fragment("chrome.html", section=section, name=name, is_admin=is_admin, here=here)


@kept(2_000_000)
def _tabs(label: str, every: tuple[tuple[str, str], ...], on: str) -> Markup:
    return fragment("tabs.html", label=label, tabs=every, on=on)


def page(body: str | bytes, *headers: tuple[str, str], status: int = 200, personal: bool = False) -> Response[str]:
    """HTML as an answer."""
    caching = NOT_KEPT if personal else KEPT
    return Response(body, status=status, headers=[*HEADERS, caching, *headers], media_type=HTML)
