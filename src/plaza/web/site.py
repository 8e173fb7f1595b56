"""What every page is made with: who looks at it, its frame, and what happens after a form.

A form is sent by the browser itself, which is then sent on to a page (303), or by our script, which asks for the piece
of the page that has changed. Both are the same request to the same address; only the answer differs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from markupsafe import Markup

from plaza.core.clock import Clock
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.sessions.cookies import token_of
from plaza.web import rendering
from plaza.web.demo import DemoAccounts
from plaza.web.forms import CSRF, NEXT, ONCE, fields_of
from plaza.web.problem_pages import address
from plaza.web.rendering import page, render
from plaza.web.security import Forms, local
from plaza.web.visitors import Visitor, Visitors

# Where rows go, in a page that is being made: nobody can write it, for nobody knows it.
_MARK: Final = secrets.token_hex(16).encode()
_ROWS: Final = Markup(_MARK.decode())  # noqa: S704


class Site:
    """The frame of all pages."""

    def __init__(
        self, secret: str, visitors: Visitors, notices: Callable[[], Markup], clock: Clock, demo: DemoAccounts
    ) -> None:
        self.visitors = visitors
        self.clock = clock
        self._notices = notices
        self.demo = demo
        self._forms = Forms(secret)

    def require_own_form(self, request: Request, body: bytes) -> None:
        """Refuse a form that none of our pages made for this session. `PageRoutes` asks this of every POST."""
        self._forms.require(request.headers, token_of(request), fields_of(body).get(CSRF, ""))

    def mark(self, who: Visitor) -> str:
        """What every form of a visitor carries, and no other site knows."""
        return "" if who.session is None else self._forms.token(who.session)

    def operation(self, request: Request, body: bytes) -> str:
        """What a form does, named: filled in once and sent twice, it is done once. Changed meanwhile, it is another."""
        once = fields_of(body).get(ONCE, request.operation)
        return self._forms.operation(token_of(request) or "", f"{once}\n{body.decode('latin-1')}")

    def page(
        self,
        request: Request,
        who: Visitor,
        name: str,
        *,
        section: str = "",
        status: int = 200,
        rows: bytes = b"",
        here: str = "",
        **context: Any,
    ) -> Response[str]:
        """A whole page, for one visitor. `rows` is HTML that is put where the template says `{{ rows }}`.

        `here` is where its visitor is to come back to, if that is not the address that was asked for.
        """
        frame = self._frame(who, here or address(request), section)
        made = render(name, **frame, rows=_ROWS if rows else "", **context).encode()
        body = made.replace(_MARK, rows, 1) if rows else made
        return page(body, *who.cookie, status=status, personal=who.actor is not None)

    def _frame(self, who: Visitor, here: str, section: str = "") -> dict[str, Any]:
        """What the frame of a page, and every piece of one, may use."""
        return {
            "me": who,
            "here": here,
            "chrome": rendering.chrome(section, who.name, who.is_admin, "" if who.actor else here),
            "csrf": self.mark(who),
            "now": self.clock.now_ms(),
            "notices": self._notices(),
        }

    def done(
        self, request: Request, who: Visitor, body: bytes, to: str, name: str = "", *, said: str = "", **context: Any
    ) -> Response[str]:
        """After a form: the changed piece for our script, else on to the page that the form was on, or `to`.

        `name` is the piece's template; without one, the script loads the page that it is sent to. `said` is read out.
        """
        if "x-fragment" in request.headers:
            headers = list(who.cookie)
            if not name:
                return page("", *headers, ("x-next", to))
            frame = self._frame(who, self.next(body, to))
            return page(render(name, **frame, **context), *headers, ("x-said", quote(said)), personal=True)
        return Response(status=303, headers=[*who.cookie, ("location", self.next(body, to))])

    def next(self, body: bytes, otherwise: str) -> str:
        """The page that a form was on, if it is one of ours; else another."""
        given = fields_of(body).get(NEXT)
        if not given:
            return otherwise
        found = local(given, otherwise)
        mark = urlsplit(otherwise).fragment
        return f"{found}#{mark}" if mark and "#" not in found else found
