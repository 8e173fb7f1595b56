"""Forms as browsers send them, read into the same types that the JSON routes take. What is wrong with a field is said
in its page's words: whoever fills in a form knows of no `str` of a length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from plaza.core.errors import BadRequest, Invalid
from plaza.core.http.problem_details import invalid

T = TypeVar("T")

# Far more than any form of ours has.
MOST_FIELDS: Final = 50
# What every form has beside its own fields: the proof that it is ours, where to go on, and which filling-in it was.
CSRF, NEXT, ONCE = "csrf", "next", "once"

# What fields are called on their pages.
LABELS: Final = {
    "bio": "About you",
    "category": "Category",
    "content": "Your text",
    "display_name": "What you are called",
    "duration": "For how many days",
    "groups": "Groups",
    "link": "Link",
    "links": "Links",
    "new": "A new password",
    "password": "Password",
    "qty": "How many",
    "text": "Your text",
    "title": "Title",
    "username": "Name",
}
_RULES: Final = (
    (re.compile(r"Expected `str` of length >= (\d+)"), "{:,} characters at least"),
    (re.compile(r"Expected `str` of length <= (\d+)"), "{:,} characters at most"),
    (re.compile(r"Expected `int` >= (\d+)"), "{:,} at least"),
    (re.compile(r"Expected `int` <= (\d+)"), "{:,} at most"),
    (re.compile(r"Expected `int`"), "a whole number"),
    (re.compile(r"Missing field"), "this is needed"),
)


def fields_of(body: bytes) -> dict[str, str]:
    """Every field of a form. Line breaks are as browsers show them, not as they send them."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS, separator="&"
        )
    except ValueError as error:  # too many, or not UTF-8
        raise BadRequest("This is not a form of ours.") from error
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in fields:
            raise Invalid(f"Given twice: {name}.", field=name)
        fields[name] = value.replace("\r\n", "\n")
    return fields


def read(body: bytes, kind: type[T], **more: Any) -> T:
    """A form's own fields as a type. A field left empty is not given. `more` is what the form says in other words."""
    given = {name: value for name, value in fields_of(body).items() if value and name not in (CSRF, NEXT, ONCE)}
    return convert({**given, **more}, kind)


def convert(fields: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _in_words(invalid(error)) from error


def _in_words(error: Invalid) -> Invalid:
    """What is wrong, as it is said on a page. Rules that have words of their own are told by them."""
    label = LABELS.get(str(error.extra.get("field", "")).partition("[")[0])
    for rule, words in _RULES:
        found = rule.match(error.detail)
        if label and found:
            return Invalid(f"{label}: {words.format(*map(int, found.groups()))}.", **error.extra)
    return error


def is_on(body: bytes) -> bool:
    """Whether a button that switches something switches it on."""
    return fields_of(body).get("on") == "1"
