"""What somebody wrote in a form that was not taken, so that they need not write it again.

A session may end while one writes, and a server may be away when one has written. Where a script sends a form, the text
is still on the page; where the browser does, it would be gone, for a page that shows a person is not kept. Nothing is
stored for this: the text is in the request, and the answer brings it back in a form that sends it again.

Only what a browser says one of our own pages has sent is shown so. Else a page of another site could put words before
somebody, and below them a button that says them in their name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from plaza.core.errors import BadRequest, Invalid
from plaza.core.http.request import Request
from plaza.web.forms import CSRF, LABELS, fields_of
from plaza.web.security import is_own_page, local

# What people write, in one line or in many.
LINES: Final = frozenset({"title", "link", "groups", "display_name"})
TEXTS: Final = frozenset({"content", "text", "bio", "links"})
# A form that holds one is never shown again.
SECRETS: Final = frozenset({"password", "old", "new"})
# How the sign-in page's own form carries a draft along.
_PATH, _FIELD = "draft_path", "draft."


class Field(NamedTuple):
    """A field of a form. One that nobody wrote in is not seen, and has no label."""

    name: str
    value: str
    label: str = ""

    @property
    def is_long(self) -> bool:
        return self.name in TEXTS


class Draft(NamedTuple):
    """A form that was sent: where to, and all that it held."""

    path: str
    fields: Mapping[str, str]

    def shown(self, csrf: str = "") -> list[Field]:
        """Its fields in their order, for a form of the session that `csrf` belongs to, or of the same one.

        Sent again unchanged in the same session it is the same request, and does its work once.
        """
        fields = {**self.fields, CSRF: csrf} if csrf else self.fields
        return [Field(name, value, LABELS[name] if name in LINES | TEXTS else "") for name, value in fields.items()]

    def carried(self) -> list[Field]:
        """What a form holds that carries it along."""
        return [Field(_PATH, self.path), *(Field(f"{_FIELD}{name}", value) for name, value in self.fields.items())]


def draft_of(request: Request) -> Draft | None:
    """What was written in a form that one of our own pages has sent, or that it carried along; None if nothing was."""
    if request.method != "POST" or not is_own_page(request.headers):
        return None
    try:
        fields = fields_of(request.body)
    except (BadRequest, Invalid):
        return None
    return _draft(request.path, fields) or carried_by(fields)


def carried_by(fields: Mapping[str, str]) -> Draft | None:
    """The draft that a form carried along, if there is one."""
    own = {name.removeprefix(_FIELD): value for name, value in fields.items() if name.startswith(_FIELD)}
    return _draft(local(fields.get(_PATH), ""), own)


def _draft(path: str, fields: Mapping[str, str]) -> Draft | None:
    if not path or SECRETS & fields.keys() or not any(fields.get(name, "").strip() for name in LINES | TEXTS):
        return None
    return Draft(path, fields)
