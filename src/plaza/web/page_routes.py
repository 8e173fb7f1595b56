"""Routes of pages. What all pages have in common is here, so that no page can forget it: errors are HTML pages,
forms are checked before their handler runs, and the text of a refused form is not lost.

    page = PageRoutes()

    @page.get("/articles", access=PUBLIC)
    async def articles(request: Request, site: PageResponses, lists: ArticleLists) -> Response[str]:
        '''List articles by score.'''
        visitor = await site.visitors.from_request(request)
        found = await lists.list_articles(visitor.actor, query)
        return site.page(request, visitor, "articles.html", section="Articles", articles=found)

    @page.post("/articles/{id}/vote", access=USER)
    async def vote(request: Request, body: bytes, site: PageResponses, id: ArticleId, ...) -> Response[str]: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from plaza.core.auth import Actor
from plaza.core.errors import Unauthenticated
from plaza.core.http.request import Request
from plaza.core.http.routes import Handler, Method, Options, Routes
from plaza.web.page_responses import PageResponses
from plaza.web.problem_pages import problem_page
from plaza.web.rendering import HTML
from plaza.web.security import HOME, StaleForm
from plaza.web.sign_in import refused_form_response


class PageRoutes(Routes):
    """Pages and their forms, under `/app`."""

    def __init__(self) -> None:
        super().__init__("pages", prefix=HOME, about="HTML pages.")

    def _adder(self, method: Method, path: str, options: Options) -> Callable[[Handler], Handler]:
        options.setdefault("media_type", HTML)
        options["in_openapi"] = False
        options["ignores_unknown_query"] = True  # links in e-mails often have additional parameters
        options["on_error"] = problem_page
        options["by_cookie"] = True
        assert method in ("GET", "POST"), "HTML forms have no other methods"
        return super()._adder(method, path, options)


class SitePageAccess:
    """Identifies users of pages by their session cookie, and checks forms, for the HTTP layer (`PageAccess`)."""

    def __init__(self, site: PageResponses) -> None:
        self._site = site

    async def signed_in(self, request: Request) -> Actor | None:
        """Return the signed-in user; None for a guest. No round trip if the session is cached."""
        return (await self._site.visitors.from_request(request)).actor

    async def run_form(self, request: Request, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a form's handler if one of our pages created the form for this session."""
        try:
            self._site.require_own_form(request, request.body)
            return await run()
        except (StaleForm, Unauthenticated) as error:
            return await refused_form_response(request, self._site, error)
