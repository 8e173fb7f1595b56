"""User text, times and links as HTML. Everything is escaped; then web addresses, hashtags and usernames become links.

Only `http` and `https` addresses become links, so `javascript:` and the like stay text. Characters that change the
writing direction stay inside the element that holds them (`dir="auto"` and `bdi` in the templates).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final
from urllib.parse import quote, urlsplit

from markupsafe import Markup, escape

from plaza.core.http.router import encode_segment
from plaza.core.mentions import MENTION_PATTERN, mentioned_name
from plaza.core.paging import Pagination
from plaza.core.pictures import picture_in_address, picture_path
from plaza.social.hashtags import is_tag, normalize_tag

# Invisible characters and those that change the writing direction: an address must read as it leads.
_NOT_IN_URLS: Final = "\\s<>\"'`\\x00-\\x1f\\x7f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_INVISIBLE: Final = re.compile(f"[{_NOT_IN_URLS}]")
_LINKS: Final = re.compile(
    rf"(?P<url>https?://[^{_NOT_IN_URLS}]+)|(?<![\w/&#])(?P<tag>#\w+)|(?P<user>{MENTION_PATTERN})"
)
# Browsers read `//host` and `/\\host` as another host.
_WEB_ADDRESS: Final = re.compile(r"https?://|/(?![/\\])", re.IGNORECASE)
_TRAILING_PUNCTUATION: Final = ".,;:!?)]}»”’"
# As a link, a one-letter tag becomes ten times as long. Further links in the same text stay plain text.
MAX_LINKS: Final = 40

MAX_IMAGE_URL_CHARACTERS: Final = 300
_IMAGE_EXTENSIONS: Final = (".avif", ".gif", ".jpeg", ".jpg", ".png", ".webp")

# A page of complete texts stays below 100 kB: the bytes for its texts, for the markup around each text, and the most
# that one character can become.
MAX_TEXT_BYTES: Final = 80_000
_MARKUP_BYTES: Final = 1_000
_MAX_CHARACTER_BYTES: Final = 14

# The last millisecond of the year 9999, the largest time that `datetime` can show.
_MAX_TIME_MS: Final = 253_402_300_799_000


def linkify(text: str) -> Markup:
    """A text as HTML, with its web addresses, hashtags and usernames as links."""
    parts: list[Markup] = []
    end = 0
    for match in _LINKS.finditer(text):
        if len(parts) == 2 * MAX_LINKS:
            break
        found = _link_from_match(match)
        if found is not None:
            link, length = found
            parts += (escape(text[end : match.start()]), link)
            end = match.start() + length
    parts.append(escape(text[end:]))
    return Markup("").join(parts)


def fitting_count(texts: Sequence[str], max_bytes: int = MAX_TEXT_BYTES) -> int:
    """How many of the texts, from the first, fit on a page; at least one. Renders them only if it must."""
    if sum(map(len, texts)) * _MAX_CHARACTER_BYTES + len(texts) * _MARKUP_BYTES <= max_bytes:
        return len(texts)
    sizes = accumulate(len(linkify(text).encode()) + _MARKUP_BYTES for text in texts)
    return max(1, sum(size <= max_bytes for size in sizes))


def _link_from_match(match: re.Match[str]) -> tuple[Markup, int] | None:
    """A link and the length of the text that it replaces."""
    text = match[0]
    if match["url"]:
        text = text.rstrip(_TRAILING_PUNCTUATION)
        if len(text) <= len("https://"):
            return None
        label = re.sub(r"^https?://(?:www\.)?", "", text)
        short = label if len(label) <= 60 else f"{label[:59]}…"
        return Markup('<a href="{}" rel="nofollow noopener ugc">{}</a>').format(text, short), len(text)
    if match["tag"]:
        tag = normalize_tag(text)
        return (_link(tag_path(tag), text), len(text)) if is_tag(tag) else None
    name = mentioned_name(text)
    if name is None:
        return None
    # `mention_links.py` completes it: the user may not exist, or have another name by now.
    return Markup('<a class="mention" href="{}">@{}</a>').format(user_path(name), name), len(name) + 1


def visible_url(url: str) -> str:
    """An address for display: invisible characters and direction changes are percent-encoded."""
    return _INVISIBLE.sub(lambda found: quote(found[0], safe=""), url)


def web_address(url: str) -> str:
    """Return an address that a page may link to, else an empty string. Other services may store `javascript:` ones."""
    return url if _WEB_ADDRESS.match(url) else ""


def image_url(url: str) -> str:
    """Return the address of a picture if a page can show it, else an empty string.

    The content policy allows pictures from other hosts by `https` only. A long address would take too much of a page.
    """
    if url.startswith("/"):
        picture = picture_in_address(url)
        return picture_path(picture, url.rpartition("/")[2]) if picture else ""
    is_safe = url.startswith("https://") and len(url) <= MAX_IMAGE_URL_CHARACTERS and not _INVISIBLE.search(url)
    return url if is_safe else ""


def is_image_url(url: str) -> bool:
    """Whether a page can show the file at an address as a picture, judged by its extension."""
    return bool(image_url(url)) and urlsplit(url).path.lower().endswith(_IMAGE_EXTENSIONS)


def _link(path: str, label: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(path, label)


def tag_path(tag: str) -> str:
    return f"/app/tags/{encode_segment(tag)}"


def article_title(title: str, id: int) -> str:
    """The title of an article, or its number: another service may have stored it without a title."""
    return title if title.strip() else f"Article {id}"


def user_path(name: str) -> str:
    return f"/app/people/{encode_segment(name)}"


def event_path(event: str) -> str:
    return f"/app/events/{encode_segment(event)}"


def next_page_link(path: str, pagination: Pagination, label: str = "Older") -> Markup:
    """The link to the next page of a list; empty on the last page."""
    if not pagination.next_cursor:
        return Markup("")
    separator = "&" if "?" in path else "?"
    next_page = escape(f"{path}{separator}cursor={pagination.next_cursor}")
    return Markup(f'<p class="more"><a class="button" href="{next_page}" rel="next">{escape(label)}</a></p>')  # noqa: S704


def truncate_text(text: str, max_characters: int) -> str:
    """The start of a text, cut at the end of a word if one is near."""
    if len(text) <= max_characters:
        return text
    space = text.rfind(" ", max_characters - 40, max_characters)
    return text[: space if space > 0 else max_characters].rstrip() + "…"


def format_age(ms: float, now_ms: int) -> str:
    """The age of a time: `now`, `5 min`, `3 h`, `2 d`; a date from 30 days on."""
    seconds = (now_ms - int(ms)) // 1000
    if seconds < 60:
        return "now"
    if seconds < 3_600:
        return f"{seconds // 60} min"
    if seconds < 86_400:
        return f"{seconds // 3_600} h"
    return f"{seconds // 86_400} d" if seconds < 30 * 86_400 else format_date(ms)


def time_ago(ms: float, now_ms: int) -> str:
    """The age of a time for use in a sentence: `just now`, `3 h ago`, `on 6 Dec 2026`."""
    age = format_age(ms, now_ms)
    if age == "now":
        return "just now"
    return f"on {age}" if age == format_date(ms) else f"{age} ago"


def format_date(ms: float) -> str:
    """`6 Dec 2026`."""
    return f"{utc_time(ms):%-d %b %Y}"


def format_iso_date(date: str) -> str:
    """An ISO date as `6 Dec 2026`."""
    return f"{datetime.fromisoformat(date):%-d %b %Y}"


def format_date_time(ms: float) -> str:
    """`6 Dec 2026, 14:05 UTC`."""
    return f"{utc_time(ms):%-d %b %Y, %H:%M} UTC"


def time_element(ms: float, label: str) -> Markup:
    """A `time` element with a label. The exact time is its machine-readable value and is shown on hover."""
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}" title="{}">{}</time>').format(
        utc_time(ms), format_date_time(ms), label
    )


def event_time(ms: float) -> Markup:
    """The time of an event. Our script shows it in the reader's time zone."""
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}" data-event-time>{}</time>').format(
        utc_time(ms), format_date_time(ms)
    )


def utc_time(ms: float) -> datetime:
    """A time in UTC. Other services may write times that `datetime` cannot hold: the nearest one that it can."""
    return datetime.fromtimestamp(min(max(ms, 0), _MAX_TIME_MS) / 1000, UTC)


def hostname(link: str) -> str:
    """The host of a link, without `www.`."""
    return re.sub(r"^https?://(?:www\.)?([^/?#]*).*$", r"\1", link, flags=re.DOTALL)


def format_decimal(number: float) -> str:
    """A number with thousands separators and at most three decimals: `1,204.5`."""
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def compact_number(number: int) -> str:
    """`1,204`; from ten thousand on `12.3k`, `4.5m`."""
    if number < 10_000:
        return f"{number:,}"
    for factor, suffix in ((1_000_000, "m"), (1_000, "k")):
        if number >= factor:
            return f"{number / factor:.1f}".rstrip("0").rstrip(".") + suffix
    return str(number)
