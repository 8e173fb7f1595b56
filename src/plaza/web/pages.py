"""All pages, for the composition root. A file with routes of its own is added to `ROUTES`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plaza.articles.lists import Lists
from plaza.core.domain import Core
from plaza.core.http.routes import ErrorAnswer, Routes
from plaza.live.programme import Programme
from plaza.shop.pages import Pages
from plaza.shop.present import Present
from plaza.shop.sessions import Sessions
from plaza.social.accounts import Accounts
from plaza.web import (
    routes_accounts,
    routes_articles,
    routes_challenges,
    routes_health,
    routes_keys,
    routes_live,
    routes_operator,
    routes_own,
    routes_people,
    routes_posts,
    routes_shop,
    routes_social,
)
from plaza.web.noticeboard import Noticeboard
from plaza.web.problems import problem_page
from plaza.web.products import Products
from plaza.web.site import Site
from plaza.web.visitors import Visitors
from plaza.web.vitals import Vitals

ROUTES: Final[tuple[Routes, ...]] = (
    routes_social.page,
    routes_posts.page,
    routes_people.page,
    routes_own.page,
    routes_articles.page,
    routes_challenges.page,
    routes_live.page,
    routes_shop.page,
    routes_accounts.page,
    routes_operator.page,
    routes_keys.page,
    routes_health.page,
)

# Where there is no page, that is said on one.
STRAYS: Final[Mapping[str, ErrorAnswer]] = {"/app": problem_page}


def services(core: Core, known: Mapping[type, Any]) -> list[object]:
    """What the pages need beside the domains' services, on an open core."""
    secret = core.settings.secret("jwt_secret")
    visitors = Visitors(known[Sessions], known[Present], known[Accounts])
    notices = Noticeboard(known[Programme], known[Lists], core.clock)
    return [
        Site(secret, visitors, notices.latest, core.clock),
        notices,
        Products(Pages(core.functions)),
        Vitals(core.valkey, core.clock),
    ]
