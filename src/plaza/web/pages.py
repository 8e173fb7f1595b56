"""All pages, for the composition root. A file with routes of its own is added to `ROUTES`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plaza.core.domain import Core
from plaza.core.routes import ErrorAnswer, Routes
from plaza.shop.sessions import Sessions
from plaza.social.accounts import Accounts
from plaza.web import routes_accounts, routes_social
from plaza.web.problems import problem_page
from plaza.web.site import Site

ROUTES: Final[tuple[Routes, ...]] = (routes_accounts.page, routes_social.page)

# Where there is no page, that is said on one.
STRAYS: Final[Mapping[str, ErrorAnswer]] = {"/app": problem_page}

__all__ = ["ROUTES", "STRAYS", "Site", "site"]


def site(core: Core, sessions: Sessions, accounts: Accounts) -> Site:
    """The frame of all pages, on an open core."""
    return Site(core.settings.secret("jwt_secret"), sessions, accounts, core.clock)
