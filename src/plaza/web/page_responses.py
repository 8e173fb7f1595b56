"""Builds page responses: the visitor, the frame around every page, and the response to a form.

A form is sent either by the browser, which is then redirected to a page (303), or by our script, which asks for the
changed fragment of the page. Both send the same request to the same path; only the response differs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from markupsafe import Markup
from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.sessions.cookies import token_from
from plaza.web.demo_accounts import DemoAccounts
from plaza.web.forms import CSRF, FORM_ID, NEXT, parse_form
from plaza.web.mention_links import MentionLinks
from plaza.web.problem_pages import path_and_query
from plaza.web.rendering import html_response, render, site_header
from plaza.web.security import FormTokens, local_path
from plaza.web.visitors import Visitor, Visitors

# Templates get this in place of `rows`, which are cached bytes: to decode and encode them again would cost more than
# the rest of the page. It is random, so no text of a user contains it.
_ROWS_MARKER: Final = secrets.token_hex(16).encode()
_ROWS: Final = Markup(_ROWS_MARKER.decode())  # noqa: S704


class SignInMethods(Struct, frozen=True):
    """How users can sign in besides the password. Empty where a method is not available."""

    passkey_origin: str = ""
    openid_provider: str = ""


class PageResponses:
    """Builds page responses."""

    def __init__(
        self,
        form_tokens: FormTokens,
        visitors: Visitors,
        sidebar: Callable[[], Markup],
        clock: Clock,
        demo: DemoAccounts,
        mentions: MentionLinks,
        sign_in_methods: SignInMethods,
    ) -> None:
        self.sign_in_methods = sign_in_methods
        self.visitors = visitors
        self.clock = clock
        self._sidebar = sidebar
        self.demo = demo
        self.mentions = mentions
        self._tokens = form_tokens

    def require_own_form(self, request: Request, body: bytes) -> None:
        """Refuse a form that none of our pages created for this session. `PageRoutes` checks every POST with it."""
        self._tokens.require(request.headers, token_from(request), parse_form(body).get(CSRF, ""))

    def csrf_token(self, visitor: Visitor) -> str:
        """The token that every form of a visitor carries."""
        return "" if visitor.session is None else self._tokens.token(visitor.session)

    def idempotency_key(self, request: Request, body: bytes) -> str:
        """A key for a form: the same form sent twice takes effect once. A changed form has another key."""
        form_id = parse_form(body).get(FORM_ID, request.operation)
        files = "" if request.form is None else request.form.digest.hex()
        return self._tokens.idempotency_key(token_from(request) or "", f"{form_id}\n{body.decode('latin-1')}{files}")

    def page(
        self,
        request: Request,
        visitor: Visitor,
        template: str,
        *,
        section: str = "",
        status: int = 200,
        rows: bytes = b"",
        return_path: str = "",
        search: str = "",
        **context: Any,
    ) -> Response[str]:
        """Return a complete page for one visitor. `rows` is HTML for `{{ rows }}` in the template.

        Forms and sign-in links lead back to `return_path`, by default the requested path. The search box has `search`.
        """
        common = self._common_context(visitor, return_path or path_and_query(request), section, search)
        html = render(template, **common, rows=_ROWS if rows else "", **context).encode()
        body = html.replace(_ROWS_MARKER, rows, 1) if rows else html
        return html_response(body, *visitor.cookie, status=status, is_personal=visitor.actor is not None)

    def _common_context(
        self, visitor: Visitor, return_path: str, section: str = "", search: str = ""
    ) -> dict[str, Any]:
        """The values that the base template and every fragment may use."""
        sign_in_path = "" if visitor.actor else return_path
        return {
            "me": visitor,
            "return_path": return_path,
            "site_header": site_header(
                section,
                visitor.name,
                visitor.has_admin_role,
                sign_in_path,
                visitor.avatar,
                visitor.unread,
                visitor.cart,
                search,
            ),
            "csrf": self.csrf_token(visitor),
            "now": self.clock.now_ms(),
            "sidebar": self._sidebar(),
        }

    def form_response(
        self,
        request: Request,
        visitor: Visitor,
        body: bytes,
        path: str,
        template: str = "",
        *,
        message: str = "",
        undo_path: str = "",
        **context: Any,
    ) -> Response[str]:
        """Respond to a form: with the changed fragment for our script, else with a redirect.

        The redirect leads to the page of the form, or to `path`. `template` renders the fragment; without one the
        script loads `path`. The script shows `message`, which screen readers announce, with a button that switches
        `undo_path` on again if there is one.
        """
        if "x-fragment" in request.headers:
            headers = list(visitor.cookie)
            if not template:
                return html_response("", *headers, ("x-next", path))
            common = self._common_context(visitor, self.next_path(body, path))
            html = render(template, **common, **context)
            undo = [("x-undo", undo_path)] if undo_path else []
            return html_response(html, *headers, ("x-message", quote(message)), *undo, is_personal=True)
        return Response(status=303, headers=[*visitor.cookie, ("location", self.next_path(body, path))])

    def next_path(self, body: bytes, default: str) -> str:
        """The page to continue at: the form's `next` if it is one of our pages, else `default`.

        The fragment of `default` is kept, so that the browser scrolls to the changed element.
        """
        given = parse_form(body).get(NEXT)
        if not given:
            return default
        path = local_path(given, default)
        anchor = urlsplit(default).fragment
        return f"{path}#{anchor}" if anchor and "#" not in path else path
