"""Hashtags: what is one, and how it is stored. `#Été` and `#été` are one tag, in every script there is."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from plaza.core.errors import Invalid

MAX_TAGS: Final = 30
MAX_TAG_CHARACTERS: Final = 100


def normalize_tag(text: str) -> str:
    """A tag as it is stored: without the `#`, composed, lower case. `#Été` and `#été` are one tag."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.removeprefix("#")).lower())


def _in_tag(character: str) -> bool:
    # Letters, marks and digits of every script. No punctuation, so nothing that means something in a key's name.
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def is_tag(text: str) -> bool:
    return 0 < len(text) <= MAX_TAG_CHARACTERS and all(map(_in_tag, text))


def require_tag(text: str, field: str) -> str:
    """The tag in its stored form; one that cannot be a tag is refused by the name of its field."""
    tag = normalize_tag(text)
    if not is_tag(tag):
        raise Invalid("A tag has letters, digits and _, at most 100.", field=field)
    return tag


def tags_in(content: str) -> list[str]:
    """The tags in a text, in order, each once. One inside a word or an address is none."""
    found: dict[str, None] = {}
    at = content.find("#")
    while at >= 0:
        end = at + 1
        while end < len(content) and _in_tag(content[end]):
            end += 1
        before = content[at - 1] if at else " "
        tag = normalize_tag(content[at + 1 : end])
        if is_tag(tag) and not _in_tag(before) and before not in "/&#":
            found[tag] = None
        at = content.find("#", end)
    return list(found)


def all_tags(content: str, listed: Iterable[str] = ()) -> list[str]:
    """All tags of a post: those of the text, then those of the list."""
    given = (require_tag(text, f"hashtags[{i}]") for i, text in enumerate(listed))
    tags = list(dict.fromkeys([*tags_in(content), *given]))
    if len(tags) > MAX_TAGS:
        raise Invalid(f"At most {MAX_TAGS} tags; these are {len(tags)}.", field="hashtags")
    return tags
