"""Routes of pages. What all pages have in common is said here once, so that no page can forget it: errors are pages,
a form is checked before its handler runs, and what was written in one that is refused is not lost.

    page = PageRoutes()

    @page.get("/articles")
    async def articles(request: Request, site: Site, lists: ArticleLists) -> Response[str]:
        '''Articles by score.'''
        who = await site.visitors.of(request)
        found = await lists.list_articles(who.actor, query)
        return site.page(request, who, "articles.html", section="Articles", articles=found)

    @page.post("/articles/{id}/vote", access=USER)
    async def vote(request: Request, body: bytes, site: Site, id: ArticleId, articles: Articles) -> Response[str]: ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from plaza.core.auth import Actor
from plaza.core.errors import Unauthenticated
from plaza.core.http.request import Request
from plaza.core.http.routes import Handler, Method, Options, Routes
from plaza.web.problem_pages import problem_page
from plaza.web.rendering import HTML
from plaza.web.security import HOME, StaleForm
from plaza.web.sign_in import turned_away
from plaza.web.site import Site


class PageRoutes(Routes):
    """Pages and their forms, under `/app`."""

    def __init__(self) -> None:
        super().__init__("pages", prefix=HOME, about="Pages for people.")

    def _adder(self, method: Method, path: str, options: Options) -> Callable[[Handler], Handler]:
        options.setdefault("media_type", HTML)
        options["listed"] = False
        options["any_query"] = True  # people link to pages with whatever their mailer adds
        options["on_error"] = problem_page
        options["by_cookie"] = True
        assert method in ("GET", "POST"), "a form knows no other"
        return super()._adder(method, path, options)


class SitePageAccess:
    """Recognises users of pages by their session cookie, and guards forms. The HTTP layer calls it (`PageAccess`)."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def signed_in(self, request: Request) -> Actor | None:
        """The signed-in user; None for a guest. No round trip if the session is cached."""
        return (await self._site.visitors.of(request)).actor

    async def run_form(self, request: Request, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a form's handler if one of our own pages made the form for this session."""
        try:
            self._site.require_own_form(request, request.body)
            return await run()
        except (StaleForm, Unauthenticated) as error:
            return await turned_away(request, self._site, error)
