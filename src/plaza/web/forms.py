"""Parses HTML forms into the same types that the JSON routes take. Errors use the labels of the form's page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from plaza.core.errors import BadRequest, Invalid
from plaza.core.http.problem_details import invalid_from_msgspec

T = TypeVar("T")

# Far more than any form has.
MAX_FIELDS: Final = 50
# Hidden fields of every form: the CSRF token, the path to continue at, and an id that is new for every form.
CSRF, NEXT, FORM_ID = "csrf", "next", "once"
# A form of operators also has each text as it was shown, so that only what was edited is changed, and nothing that
# another operator has changed meanwhile.
SEEN: Final = "seen_"

# The labels of the fields on their pages.
LABELS: Final = {
    "amount": "Amount",
    "bio": "Bio",
    "category": "Category",
    "code": "Code",
    "content": "Text",
    "delta": "Change",
    "description": "Description",
    "display_name": "Display name",
    "duration": "Duration in days",
    "groups": "Groups",
    "hour": "Hour",
    "link": "Link",
    "links": "Links",
    "name": "Name",
    "note": "Note",
    "new": "New password",
    "password": "Password",
    "qty": "Quantity",
    "text": "Text",
    "time_zone": "Time zone",
    "title": "Title",
    "types": "Event types",
    "unit": "Unit",
    "url": "URL",
    "username": "Username",
}
# msgspec's messages, and what a page says instead after the field's label.
_MESSAGES: Final = (
    (re.compile(r"Expected `str` of length >= (\d+)"), "must have at least {:,} characters"),
    (re.compile(r"Expected `str` of length <= (\d+)"), "must have at most {:,} characters"),
    (re.compile(r"Expected `int` >= (\d+)"), "must be at least {:,}"),
    (re.compile(r"Expected `int` <= (\d+)"), "must be at most {:,}"),
    (re.compile(r"Expected `int`"), "must be a whole number"),
    (re.compile(r"Expected `float` > (\d+)"), "must be greater than {:,}"),
    (re.compile(r"Expected `float` <= (\d+)"), "must be at most {:,}"),
    (re.compile(r"Expected `float`"), "must be a number"),
    (re.compile(r"Missing field"), "is required"),
)


def parse_form(body: bytes) -> dict[str, str]:
    """Return every field of a form. Browsers send line breaks as `\\r\\n`; here they are `\\n`."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS, separator="&"
        )
    except ValueError as error:  # too many fields, or not UTF-8
        raise BadRequest("Invalid form data. Reload the page and try again.") from error
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in fields:
            raise Invalid(f"The field {name} was sent twice.", field=name)
        fields[name] = value.replace("\r\n", "\n")
    return fields


def read_form(body: bytes, kind: type[T], **values: Any) -> T:
    """Convert a form to a type. Empty fields are left out; `values` replace or add fields."""
    hidden = (CSRF, NEXT, FORM_ID)
    fields = {name: value for name, value in parse_form(body).items() if value and name not in hidden}
    return convert_fields({**fields, **values}, kind)


def given_fields(body: bytes, *names: str) -> dict[str, str]:
    """Return the fields of a form that may be emptied, for `read_form`."""
    return {name: value for name, value in parse_form(body).items() if name in names}


def edited_fields(given: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return the fields of a form that are not as the form showed them."""
    return {name: given[name] for name in names if name in given and given[name] != given.get(SEEN + name, "")}


def json_field(fields: Mapping[str, str], name: str, kind: type[T]) -> T:
    """Convert a field in which a script put JSON; `Invalid` says that it is wrong."""
    try:
        return msgspec.json.decode(fields.get(name, ""), type=kind)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise Invalid("The browser sent nothing that can be used. Try again.", field=name) from error


def convert_fields(fields: Mapping[str, Any], kind: type[T]) -> T:
    """Convert fields to a type; `Invalid` says which field is wrong."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _with_label(invalid_from_msgspec(error)) from error


def _with_label(error: Invalid) -> Invalid:
    """The same error with the field's label and a plain message; other messages stay as they are."""
    label = LABELS.get(str(error.extra.get("field", "")).partition("[")[0])
    for pattern, message in _MESSAGES:
        found = pattern.match(error.detail)
        if label and found:
            return Invalid(f"{label} {message.format(*map(int, found.groups()))}.", **error.extra)
    return error


def is_on(body: bytes) -> bool:
    """Whether a toggle button switches something on."""
    return parse_form(body).get("on") == "1"
