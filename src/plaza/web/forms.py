"""Forms as browsers send them, read into the same types that the JSON routes take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from plaza.core.errors import BadRequest, Invalid
from plaza.core.serving.problems import invalid

T = TypeVar("T")

# Far more than any form of ours has.
MOST_FIELDS: Final = 50
# What every form has beside its own fields: the proof that it is ours, where to go on, and which filling-in it was.
CSRF, NEXT, ONCE = "csrf", "next", "once"


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
        raise invalid(error) from error


def is_on(body: bytes) -> bool:
    """Whether a button that switches something switches it on."""
    return fields_of(body).get("on") == "1"
