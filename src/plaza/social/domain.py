"""How social plugs into Plaza."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.core.passwords import Passwords
from plaza.social import routes, routes_accounts, routes_sync
from plaza.social.accounts import Accounts
from plaza.social.credentials import Credentials
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


def build(core: Core) -> Parts:
    """Build social on an open core. What needs the other domains is built last."""
    functions, clock = core.functions, core.clock
    passwords = Passwords()
    people, reader = People(functions, core.auth, clock), Reader(functions)
    posts = Posts(functions, reader, people, clock)
    credentials = Credentials(functions, core.limiter, passwords)
    services = [
        credentials,
        people,
        posts,
        Feeds(functions, reader, people, clock),
        Home(functions, reader, clock),
        Sync(functions, posts, clock),
    ]
    return Parts(
        services,
        Provided(passwords=credentials, blocks=people),
        build_last=lambda provided: _build_last(core, passwords, posts, provided),
        on_close=[passwords.close],
    )


def _build_last(core: Core, passwords: Passwords, posts: Posts, provided: Provided) -> Parts:
    functions, auth, clock, personal_data = core.functions, core.auth, core.clock, provided.personal_data
    fanout = Fanout(functions)
    leaving = Leaving(functions, posts, fanout, auth, clock, personal_data)
    renaming = Renaming(functions, fanout, auth, clock, personal_data)
    jobs = Jobs(functions, posts, leaving, renaming, fanout, clock)
    accounts = Accounts(functions, auth, core.limiter, passwords, clock, provided.sessions)
    return Parts([accounts, leaving, renaming, Export(functions, personal_data), jobs], timers=jobs.timers())


DOMAIN = Domain(LIBRARY, [routes_accounts.route, routes.route, routes_sync.route], build, INVARIANTS)
