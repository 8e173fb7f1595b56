"""Renders templates. One environment for all pages: it escapes everything, and an undefined name is an error."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any, Final

import jinja2
from markupsafe import Markup

from plaza.core.http.headers import USER_CONTENT_POLICY
from plaza.core.http.responses import Response
from plaza.core.pictures import picture_path
from plaza.core.root_path import without_root
from plaza.shop.money import format_money
from plaza.web import assets, formatting, picture_html, search_html, text_html
from plaza.web.avatars import avatar, later_avatar
from plaza.web.fragment_cache import cached_fragment, clear_fragments

HTML: Final = "text/html; charset=utf-8"

# `same-origin`: without any referrer, browsers would also hide the origin of our own forms.
HEADERS: Final = (
    ("content-security-policy", USER_CONTENT_POLICY),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
)

# A page may belong to one visitor, such as a guest's cart, so shared caches must not store it. A page of a signed-in
# user is not stored at all: after sign-out, the back button would show it to the next user of the computer.
REVALIDATE: Final = ("cache-control", "private, no-cache")
NO_STORE: Final = ("cache-control", "no-store")

# The navigation: label, path, icon and domain of each section.
SECTIONS: Final = (
    ("Explore", "/app", "compass", "social"),
    ("Following", "/app/following", "people", "social"),
    ("Articles", "/app/articles", "up", "articles"),
    ("Challenges", "/app/challenges", "flag", "challenges"),
    ("Events", "/app/events", "signal", "live"),
    ("Shop", "/app/shop", "bag", "shop"),
)

# For anonymous visitors the cached header contains the requested path, which clients choose freely.
_MAX_HEADER_BYTES: Final = 2_000_000

_FOLDER = files("plaza.web") / "templates"


def _load_template(name: str) -> str:
    return _FOLDER.joinpath(*name.split("/")).read_text()


def _money(shop_currency: str) -> Callable[..., str]:
    """The filter for amounts: in the shop's currency, or in that of an order."""
    return lambda amount, currency="": format_money(amount, currency or shop_currency)


ENVIRONMENT: Final = jinja2.Environment(
    loader=jinja2.FunctionLoader(_load_template),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
    cache_size=-1,
)
ENVIRONMENT.filters.update(
    linkify=text_html.linkify,
    without_root=without_root,
    highlight=search_html.highlight,
    visible_url=text_html.visible_url,
    web_address=text_html.web_address,
    truncate_text=text_html.truncate_text,
    article_title=text_html.article_title,
    date=text_html.format_date,
    iso_date=text_html.format_iso_date,
    date_time=text_html.format_date_time,
    time=text_html.time_element,
    event_time=text_html.event_time,
    hostname=text_html.hostname,
    compact_number=text_html.compact_number,
    decimal=text_html.format_decimal,
    money=_money("EUR"),
    number=formatting.format_number,
    bytes=formatting.format_bytes,
    duration=formatting.format_duration,
    code_spans=formatting.code_spans,
    utc=formatting.format_utc,
    day_of_month=formatting.day_of_month,
)

# Available in every template.
_COMMON: Final[dict[str, Any]] = {
    **ENVIRONMENT.globals,
    "assets": assets.PREFIX,
    "domains": frozenset[str](),
    "currency": "",
    "sections": SECTIONS,
    "avatar": avatar,
    "later_avatar": later_avatar,
    "is_image_url": text_html.is_image_url,
    "blurred": picture_html.blurred,
    "picture_path": picture_path,
    "tag_path": text_html.tag_path,
    "user_path": text_html.user_path,
    "event_path": text_html.event_path,
    "time_ago": text_html.time_ago,
    "invalid_field": Markup(' aria-invalid="true" aria-describedby="problem"'),  # attributes of the rejected field
    "form_id": lambda: secrets.token_hex(8),  # the same form sent twice has the same id
}


def show_domains(names: Iterable[str], currency: str) -> None:
    """Set the domains that this process runs and its currency, once, at start. Templates show links to these only."""
    ENVIRONMENT.filters["money"] = _money(currency)
    if (shown_domains(), _COMMON["currency"]) != ((shown := frozenset(names)), currency):
        _COMMON.update(domains=shown, currency=currency)
        clear_fragments()


def shown_domains() -> frozenset[str]:
    domains: frozenset[str] = _COMMON["domains"]
    return domains


def render(template: str, /, **context: Any) -> str:
    """Render a template as text.

    `Template.render` would spend half of the time for a small fragment on a chain of dictionaries. Here the context is
    one dictionary.
    """
    found = ENVIRONMENT.get_template(template)
    return "".join(found.root_render_func(found.new_context({**_COMMON, **context}, shared=True)))


def fragment(template: str, /, **context: Any) -> Markup:
    """Render a template for use in another template."""
    return Markup(render(template, **context))  # noqa: S704 rendered by a template that escapes


def site_header(
    section: str,
    username: str,
    is_admin: bool,
    return_path: str,
    avatar: str = "",
    unread: int = 0,
    cart: int = 0,
    search: str = "",
) -> Markup:
    """The header of a page: brand, search box, navigation, and the account or, without a user, links to sign in."""
    return _cached_header[section, username, is_admin, return_path, avatar, unread, cart, search]


def tabs(label: str, views: tuple[tuple[str, str], ...], current: str) -> Markup:
    """Links to related views, each with its name and path. `current` is the name of this view."""
    return _cached_tabs[label, views, current]


@cached_fragment(_MAX_HEADER_BYTES)
def _cached_header(
    section: str, username: str, is_admin: bool, return_path: str, picture: str, unread: int, cart: int, search: str
) -> Markup:
    account = {"username": username, "picture": picture, "is_admin": is_admin, "unread": unread, "cart_count": cart}
    return fragment("site-header.html", section=section, return_path=return_path, search=search, **account)


@cached_fragment(_MAX_HEADER_BYTES)
def _cached_tabs(label: str, views: tuple[tuple[str, str], ...], current: str) -> Markup:
    return fragment("tabs.html", label=label, views=views, current=current)


def html_response(
    body: str | bytes, *headers: tuple[str, str], status: int = 200, is_personal: bool = False
) -> Response[str]:
    """A response with HTML. `is_personal`: it shows a signed-in user, so browsers do not store it."""
    caching = NO_STORE if is_personal else REVALIDATE
    return Response(body, status=status, headers=[*HEADERS, caching, *headers], media_type=HTML)
