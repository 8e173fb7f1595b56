"""Social's declaration as a domain."""

from __future__ import annotations

from functools import partial

from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.core.encryption import FieldEncryption
from plaza.core.passwords import Passwords
from plaza.core.pictures import AVATAR, POST
from plaza.core.sign_in_limits import SignInLimits
from plaza.social import routes_accounts, routes_feeds, routes_inbound_sync, routes_posts, routes_users
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_export import AccountExport
from plaza.social.account_renaming import AccountRenaming
from plaza.social.accounts import Accounts
from plaza.social.api_sessions import ApiSessions
from plaza.social.atom import PostAtomFeeds
from plaza.social.avatars import Avatars
from plaza.social.comments import Comments
from plaza.social.credentials import Credentials
from plaza.social.engagements import Engagements
from plaza.social.events import EVENTS
from plaza.social.feeds import Feeds
from plaza.social.hidden_users import HiddenUsers
from plaza.social.home_feed import HomeFeed
from plaza.social.home_feed_updates import HomeFeedUpdates
from plaza.social.inbound_sync import InboundSync
from plaza.social.invariants import INVARIANTS
from plaza.social.jobs import SocialJobs
from plaza.social.keys import USER
from plaza.social.library import LIBRARY
from plaza.social.notification_recipients import SocialRecipients
from plaza.social.notification_source import SocialNotifications
from plaza.social.password_changes import PasswordChanges
from plaza.social.personal_data import PERSONAL_KEYS, SocialPersonalData
from plaza.social.post_pictures import PostPictures
from plaza.social.post_reader import PostReader
from plaza.social.posts import Posts
from plaza.social.private_fields import PrivateFields
from plaza.social.relations import Relations
from plaza.social.report_sources import CommentReports, PostReports, UserReports
from plaza.social.search_source import PostSearch, UserSearch
from plaza.social.suggestions import SocialSuggestions
from plaza.social.topic_source import PostTopics
from plaza.social.user_states import SocialUserStates
from plaza.social.users import Users, announce_profile_changes


def build(core: Core) -> Parts:
    """Build social on an open core. What needs the other domains is built last."""
    functions, clock = core.functions, core.clock
    passwords = Passwords()
    private = PrivateFields(FieldEncryption(core.settings.data_keys()))
    reader = PostReader(functions)
    users = Users(reader, core.auth, clock, private, core.provided.pictures, core.provided.account_log)
    relations = Relations(functions, users, clock)
    post_pictures = PostPictures(functions, core.provided.pictures)
    posts = Posts(functions, reader, users, clock, post_pictures)
    avatars = Avatars(users, core.provided.pictures)
    comments = Comments(functions, posts, avatars)
    log = core.provided.account_log
    limits = SignInLimits(core.limiter, core.settings.secret("jwt_secret"), clock)
    credentials = Credentials(functions, core.auth, limits, passwords, core.provided.second_factor, log)
    api_sessions = ApiSessions(functions, core.auth, clock)
    personal_data = SocialPersonalData(functions, comments, HomeFeedUpdates(functions), private)
    feeds = Feeds(functions, reader, users, clock)
    home = HomeFeed(functions, reader, clock)
    services = [
        credentials,
        users,
        avatars,
        relations,
        posts,
        comments,
        Engagements(functions, posts),
        feeds,
        PostAtomFeeds(feeds, users, core.settings),
        SocialSuggestions(feeds, users),
        home,
        InboundSync(functions, posts, clock, private),
    ]
    found_users = UserSearch(users)
    return Parts(
        services,
        Provided(
            passwords=credentials,
            blocks=relations,
            recipients=SocialRecipients(users),
            user_states=SocialUserStates(core.valkey, found_users),
            hidden_authors=HiddenUsers(users),
            avatars=avatars,
            api_sessions=api_sessions,
            picture_hosts={POST: post_pictures, AVATAR: avatars},
        ),
        build_last=lambda provided: _build_last(
            core, passwords, credentials, api_sessions, private, personal_data, provided
        ),
        personal_data=personal_data,
        personal_keys=PERSONAL_KEYS,
        search_sources=[found_users, PostSearch(reader, found_users)],
        notification_sources=[SocialNotifications(core.valkey, users)],
        report_sources=[PostReports(posts), CommentReports(comments), UserReports(users, credentials)],
        topic_sources=[PostTopics(feeds, home, clock)],
        encrypted=[private.encrypted_fields()],
        on_proxy_write={USER.pattern: partial(announce_profile_changes, core.functions)},
        on_close=[passwords.close],
    )


def _build_last(
    core: Core,
    passwords: Passwords,
    credentials: Credentials,
    api_sessions: ApiSessions,
    private: PrivateFields,
    social: SocialPersonalData,
    provided: Provided,
) -> Parts:
    """Build the services that need the browser sessions or the personal data of the other domains."""
    functions, auth, clock = core.functions, core.auth, core.clock
    others = {name: data for name, data in provided.personal_data.items() if data is not social}
    deletion = AccountDeletion(functions, auth, social, others, credentials.log)
    renaming = AccountRenaming(functions, auth, clock, private, social, others)
    jobs = SocialJobs(functions, social.posts, deletion, renaming, social.fanout, clock)
    accounts = Accounts(
        functions,
        auth,
        core.limiter,
        passwords,
        credentials,
        api_sessions,
        clock,
        private,
        core.settings.account_address,
    )
    password_changes = PasswordChanges(
        functions,
        auth,
        passwords,
        credentials,
        clock,
        private,
        provided.sessions,
        core.settings.account_address,
    )
    export = AccountExport(provided.personal_data, provided.personal_files, credentials.log, clock)
    services = [accounts, password_changes, deletion, renaming, export, jobs]
    return Parts(services, timers=jobs.timers(), on_clock_set_back=[jobs.make_all_due])


ROUTES = [
    routes_accounts.route,
    routes_posts.route,
    routes_users.route,
    routes_feeds.route,
    routes_inbound_sync.route,
]

DOMAIN = Domain(LIBRARY, ROUTES, build, INVARIANTS, EVENTS)
