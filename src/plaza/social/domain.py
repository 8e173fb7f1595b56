"""How social plugs into Plaza."""

from __future__ import annotations

from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.domain import Core, Domain, Parts
from plaza.core.functions import Functions
from plaza.core.limits import Limiter
from plaza.core.passwords import Passwords
from plaza.social import routes, routes_accounts
from plaza.social.accounts import Accounts
from plaza.social.feeds import Feeds
from plaza.social.library import LIBRARY
from plaza.social.posts import Posts
from plaza.social.reading import Reader
from plaza.social.users import People


def services(functions: Functions, auth: Auth, limiter: Limiter, passwords: Passwords, clock: Clock) -> list[object]:
    """Everything that social's routes ask for."""
    people, reader = People(functions, auth, clock), Reader(functions)
    return [
        Accounts(functions, auth, limiter, passwords, clock),
        people,
        Posts(functions, reader, people, clock),
        Feeds(functions, reader, people, clock),
    ]


def build(core: Core) -> Parts:
    """Social on an open core."""
    return Parts(services(core.functions, core.auth, core.limiter, Passwords(), core.clock))


DOMAIN = Domain(LIBRARY, [routes_accounts.route, routes.route], build)
