"""Hashtags: how they are found in text, checked and normalized. `#Été` and `#été` are one tag."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from plaza.core.errors import Invalid

MAX_TAGS: Final = 30
MAX_TAG_CHARACTERS: Final = 100


def normalize_tag(text: str) -> str:
    """Return a tag as it is stored: without `#`, NFC, lower case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.removeprefix("#")).lower())


def _is_tag_character(character: str) -> bool:
    # Letters, marks and digits of every script. No punctuation, which has a meaning in key names.
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def is_tag(text: str) -> bool:
    return 0 < len(text) <= MAX_TAG_CHARACTERS and all(map(_is_tag_character, text))


def require_tag(text: str, field: str) -> str:
    """Return the normalized tag; raise `Invalid` with the field's name if it is not a tag."""
    tag = normalize_tag(text)
    if not is_tag(tag):
        raise Invalid("A hashtag has 1 to 100 letters, digits and _.", field=field)
    return tag


def tags_in(content: str) -> list[str]:
    """Return the tags in a text, in order, each once. A `#` inside a word or a URL starts no tag."""
    found: dict[str, None] = {}
    at = content.find("#")
    while at >= 0:
        end = at + 1
        while end < len(content) and _is_tag_character(content[end]):
            end += 1
        before = content[at - 1] if at else " "
        tag = normalize_tag(content[at + 1 : end])
        if is_tag(tag) and not _is_tag_character(before) and before not in "/&#":
            found[tag] = None
        at = content.find("#", end)
    return list(found)


def all_tags(content: str, listed: Iterable[str] = ()) -> list[str]:
    """Return the tags of the text, then those of the list, each once."""
    given = (require_tag(text, f"hashtags[{i}]") for i, text in enumerate(listed))
    tags = list(dict.fromkeys([*tags_in(content), *given]))
    if len(tags) > MAX_TAGS:
        raise Invalid(f"A post has at most {MAX_TAGS} hashtags, not {len(tags)}. Remove some.", field="hashtags")
    return tags
