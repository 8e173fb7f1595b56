"""How social plugs into Plaza."""

from __future__ import annotations

from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.domain import Core, Domain, Parts
from plaza.core.functions import Functions
from plaza.core.passwords import Passwords
from plaza.core.rate_limits import Limiter
from plaza.social import routes, routes_accounts, routes_sync
from plaza.social.accounts import Accounts
from plaza.social.deletion import Leaving
from plaza.social.export import Export
from plaza.social.feeds import Feeds
from plaza.social.home_fanout import Fanout
from plaza.social.home_feed import Home
from plaza.social.invariants import INVARIANTS
from plaza.social.jobs import Jobs
from plaza.social.library import LIBRARY
from plaza.social.post_reader import Reader
from plaza.social.posts import Posts
from plaza.social.renaming import Renaming
from plaza.social.sync import Sync
from plaza.social.users import People


def services(functions: Functions, auth: Auth, limiter: Limiter, passwords: Passwords, clock: Clock) -> list[object]:
    """Everything that social's routes ask for."""
    people, reader = People(functions, auth, clock), Reader(functions)
    posts = Posts(functions, reader, people, clock)
    fanout = Fanout(functions)
    leaving = Leaving(functions, posts, fanout, auth, clock)
    renaming = Renaming(functions, fanout, auth, clock)
    return [
        Accounts(functions, auth, limiter, passwords, clock),
        people,
        posts,
        Feeds(functions, reader, people, clock),
        Home(functions, reader, clock),
        leaving,
        Export(functions, leaving),
        renaming,
        Jobs(functions, posts, leaving, renaming, fanout, clock),
        Sync(functions, posts, clock),
    ]


def build(core: Core) -> Parts:
    """Social on an open core."""
    made = services(core.functions, core.auth, core.limiter, Passwords(), core.clock)
    jobs = next(service for service in made if isinstance(service, Jobs))
    return Parts(made, jobs.timers())


DOMAIN = Domain(LIBRARY, [routes_accounts.route, routes.route, routes_sync.route], build, INVARIANTS)
