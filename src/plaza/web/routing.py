"""Routes of pages. What all pages have in common is said here once, so that no page can forget it: errors are pages,
a form is checked before its handler runs, and what was written in one that is refused is not lost.

    page = PageRoutes()

    @page.get("/articles")
    async def articles(request: Request, site: Site, lists: ArticleLists) -> Response[str]:
        '''Articles by score.'''
        who = await site.visitors.of(request)
        found = await lists.list_articles(who.actor, query)
        return site.page(request, who, "articles.html", section="Articles", articles=found)

    @page.post("/articles/{id}/vote")
    async def vote(request: Request, body: bytes, site: Site, id: ArticleId, articles: Articles) -> Response[str]: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from plaza.core.errors import Unauthenticated
from plaza.core.http.routes import Handler, Method, Options, Routes
from plaza.web.problem_pages import problem_page
from plaza.web.rendering import HTML
from plaza.web.security import HOME, StaleForm
from plaza.web.sign_in import turned_away


class PageRoutes(Routes):
    """Pages and their forms, under `/app`."""

    def __init__(self) -> None:
        super().__init__("pages", prefix=HOME, about="Pages for people.")

    def _adder(self, method: Method, path: str, options: Options) -> Callable[[Handler], Handler]:
        options.setdefault("media_type", HTML)
        options["listed"] = False
        options["any_query"] = True  # people link to pages with whatever their mailer adds
        options["on_error"] = problem_page
        options["visited"] = method == "POST"
        add = super()._adder(method, path, options)
        assert method in ("GET", "POST"), "a form knows no other"
        return add if method == "GET" else lambda handler: _added(add, handler)


def _added(add: Callable[[Any], Any], handler: Handler) -> Handler:
    add(_checked(handler))
    return handler


def _checked(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that runs only for forms of our own."""
    names = list(inspect.signature(handler).parameters)
    request_at, body_at, site_at = (names.index(name) for name in ("request", "body", "site"))

    @functools.wraps(handler)
    async def checked(*arguments: Any) -> Any:
        request, site = arguments[request_at], arguments[site_at]
        try:
            site.require_own_form(request, arguments[body_at])
            return await handler(*arguments)
        except (StaleForm, Unauthenticated) as error:
            return await turned_away(request, site, error)

    return checked
