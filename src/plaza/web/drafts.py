"""Keeps the text of a form that was refused, so that the user need not write it again.

A session may end while a user writes, or a server may be unavailable when the form is sent. If a script sends the form,
the text is still on the page. If the browser sends it, the text would be lost, because pages of a user are not stored.
Nothing is stored on the server: the response contains the text again, in a form that can be sent again.

This is only done for forms that, according to the browser, our own pages have sent. Otherwise another site could show a
user a prepared text with a button to post it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from plaza.core.errors import BadRequest, Invalid
from plaza.core.http.request import Request
from plaza.core.http.same_origin import is_same_origin
from plaza.web.forms import CSRF, LABELS, parse_form
from plaza.web.security import local_path

# Fields with user text, of one line and of several.
LINE_FIELDS: Final = frozenset({"title", "link", "groups", "display_name"})
TEXT_FIELDS: Final = frozenset({"content", "text", "bio", "links"})
# A form with one of these is never shown again.
SECRET_FIELDS: Final = frozenset({"password", "old", "new", "code"})
# How the sign-in form carries a draft in hidden fields.
_PATH, _FIELD_PREFIX = "draft_path", "draft."


class FormField(NamedTuple):
    """A field of a form. A hidden field has no label."""

    name: str
    value: str
    label: str = ""

    @property
    def is_long(self) -> bool:
        return self.name in TEXT_FIELDS


class Draft(NamedTuple):
    """A form that was sent: its path and all its fields."""

    path: str
    fields: Mapping[str, str]

    def form_fields(self, csrf: str = "") -> list[FormField]:
        """The fields of a form that sends the draft again, with another CSRF token if one is given.

        Sent again unchanged in the same session, it is the same request and takes effect once.
        """
        fields = {**self.fields, CSRF: csrf} if csrf else self.fields
        return [
            FormField(name, value, LABELS[name] if name in LINE_FIELDS | TEXT_FIELDS else "")
            for name, value in fields.items()
        ]

    def hidden_fields(self) -> list[FormField]:
        """The hidden fields by which the sign-in form carries the draft."""
        fields = [FormField(f"{_FIELD_PREFIX}{name}", value) for name, value in self.fields.items()]
        return [FormField(_PATH, self.path), *fields]


def draft_from_request(request: Request) -> Draft | None:
    """The draft in a form of our own pages, or the one it carries in hidden fields; None if there is no text."""
    if request.method != "POST" or not is_same_origin(request.headers):
        return None
    try:
        fields = parse_form(request.body)
    except (BadRequest, Invalid):
        return None
    return _draft(request.path, fields) or carried_draft(fields)


def carried_draft(fields: Mapping[str, str]) -> Draft | None:
    """The draft that a form carries in hidden fields, if there is one."""
    carried = {
        name.removeprefix(_FIELD_PREFIX): value for name, value in fields.items() if name.startswith(_FIELD_PREFIX)
    }
    return _draft(local_path(fields.get(_PATH), ""), carried)


def _draft(path: str, fields: Mapping[str, str]) -> Draft | None:
    has_text = any(fields.get(name, "").strip() for name in LINE_FIELDS | TEXT_FIELDS)
    if not path or SECRET_FIELDS & fields.keys() or not has_text:
        return None
    return Draft(path, fields)
