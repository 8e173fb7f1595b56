"""What people wrote, as HTML. Everything is escaped; then addresses, tags and names become links.

Only `http` and `https` addresses become links, so `javascript:` and its like stay text. Characters that turn the
direction of writing stay inside the element that holds them (`dir="auto"` and `bdi` in the templates).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final
from urllib.parse import quote

from markupsafe import Markup, escape

from plaza.core.http.router import encode_segment
from plaza.core.paging import Pagination
from plaza.core.tokens import is_username
from plaza.social.hashtags import is_tag, normalize_tag

# Nothing that turns the direction of writing or is not seen: an address must read as it leads.
_UNFIT: Final = "\\s<>\"'`\\x00-\\x1f\\x7f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
_UNSEEN: Final = re.compile(f"[{_UNFIT}]")
_PARTS: Final = re.compile(
    rf"(?P<url>https?://[^{_UNFIT}]+)|(?<![\w/&#])(?P<tag>#\w+)|(?<![\w/.@-])(?P<at>@[A-Za-z0-9._-]{{1,31}})"
)
_TRAILING: Final = ".,;:!?)]}»”’"
# Names and tags of a letter each would be ten times as long as links. In one text, those beyond these stay words.
MOST_LINKS: Final = 40

# What texts that are shown whole may take of a page, in bytes, for it to stay below 100 kB whatever people write; what
# stands around each of them; and the most that a character of one can come to.
ROOM: Final = 80_000
_AROUND: Final = 1_000
_A_CHARACTER: Final = 14


def rich(text: str) -> Markup:
    """A text with its addresses, tags and names as links."""
    pieces: list[Markup] = []
    at = 0
    for match in _PARTS.finditer(text):
        if len(pieces) == 2 * MOST_LINKS:
            break
        made = _linked(match)
        if made is not None:
            link, used = made
            pieces += (escape(text[at : match.start()]), link)
            at = match.start() + used
    pieces.append(escape(text[at:]))
    return Markup("").join(pieces)


def fitting(texts: Sequence[str], room: int = ROOM) -> int:
    """How many texts, from the first on, a page has room for: one at least. Only where there may be too many of them,
    which is rare, are they measured."""
    if sum(map(len, texts)) * _A_CHARACTER + len(texts) * _AROUND <= room:
        return len(texts)
    sizes = accumulate(len(rich(text).encode()) + _AROUND for text in texts)
    return max(1, sum(size <= room for size in sizes))


def _linked(match: re.Match[str]) -> tuple[Markup, int] | None:
    """A link, and how much of the text it stands for."""
    shown = match[0]
    if match["url"]:
        shown = shown.rstrip(_TRAILING)
        if len(shown) <= len("https://"):
            return None
        plain = re.sub(r"^https?://(?:www\.)?", "", shown)
        short = plain if len(plain) <= 60 else f"{plain[:59]}…"
        return Markup('<a href="{}" rel="nofollow noopener ugc">{}</a>').format(shown, short), len(shown)
    if match["tag"]:
        tag = normalize_tag(shown)
        return (_link(tag_path(tag), shown), len(shown)) if is_tag(tag) else None
    name = shown[1:].rstrip(".")
    return (_link(user_path(name), f"@{name}"), len(name) + 1) if is_username(name) else None


def address(url: str) -> str:
    """An address as it may be shown: what is not seen, or turns the direction of writing, in its encoded form."""
    return _UNSEEN.sub(lambda found: quote(found[0], safe=""), url)


def _link(path: str, shown: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(path, shown)


def tag_path(tag: str) -> str:
    return f"/app/tags/{encode_segment(tag)}"


def user_path(name: str) -> str:
    return f"/app/people/{encode_segment(name)}"


def event_path(event: str) -> str:
    return f"/app/events/{encode_segment(event)}"


def older(path: str, pagination: Pagination, word: str = "Older") -> Markup:
    """The way to the next page of a list, if there is one."""
    if not pagination.next_cursor:
        return Markup("")
    between = "&" if "?" in path else "?"
    next_page = escape(f"{path}{between}cursor={pagination.next_cursor}")
    return Markup(f'<p class="more"><a class="button" href="{next_page}" rel="next">{escape(word)}</a></p>')  # noqa: S704


def cut(text: str, most: int) -> str:
    """The beginning of a text, at the end of a word if there is one near."""
    if len(text) <= most:
        return text
    space = text.rfind(" ", most - 40, most)
    return text[: space if space > 0 else most].rstrip() + "…"


def ago(ms: float, now_ms: int) -> str:
    """How long ago, as one would say it."""
    seconds = (now_ms - int(ms)) // 1000
    if seconds < 60:
        return "now"
    if seconds < 3_600:
        return f"{seconds // 60} min"
    if seconds < 86_400:
        return f"{seconds // 3_600} h"
    return f"{seconds // 86_400} d" if seconds < 30 * 86_400 else moment(ms)


def since(ms: float, now_ms: int) -> str:
    """The same in a sentence: `just now`, `3 h ago`, `on 6 Dec 2026`."""
    said = ago(ms, now_ms)
    if said == "now":
        return "just now"
    return f"on {said}" if said == moment(ms) else f"{said} ago"


def moment(ms: float) -> str:
    """A day, such as `6 Dec 2026`."""
    return f"{_utc(ms):%-d %b %Y}"


def day(date: str) -> str:
    """An ISO date in the same words."""
    return f"{datetime.fromisoformat(date):%-d %b %Y}"


def exact(ms: float) -> str:
    """A moment to the minute, such as `6 Dec 2026, 14:05 UTC`."""
    return f"{_utc(ms):%-d %b %Y, %H:%M} UTC"


def time(ms: float, shown: str) -> Markup:
    """A moment as it is said, with the machine's form of it, and the exact one for whoever points at it."""
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}" title="{}">{}</time>').format(_utc(ms), exact(ms), shown)


def _utc(ms: float) -> datetime:
    # What other systems sent as a time may lie beyond what a calendar holds.
    return datetime.fromtimestamp(min(max(ms, 0), 253_402_300_799_000) / 1000, UTC)


def host(link: str) -> str:
    """Where a link leads, in short."""
    return re.sub(r"^https?://(?:www\.)?([^/?#]*).*$", r"\1", link, flags=re.DOTALL)


def money(amount: str) -> str:
    """`12,500.00`: a decimal as it is kept, with its thousands apart; nothing for what has no price."""
    whole, point, rest = amount.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole else ""


def count(number: int) -> str:
    """`1,204`; beyond ten thousand `12.3k`, `4.5m`."""
    if number < 10_000:
        return f"{number:,}"
    for size, word in ((1_000_000, "m"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}".rstrip("0").rstrip(".") + word
    return str(number)
