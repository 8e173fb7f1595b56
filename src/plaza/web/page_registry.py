"""All page routes and the services they need, for the composition root. A new routes file is added to `_ROUTES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from plaza.accounts.email_links import Emails
from plaza.accounts.passkeys import Passkeys
from plaza.accounts.second_factor import SecondFactors
from plaza.accounts.sign_in_proof import SignInProof
from plaza.articles.lists import ArticleLists
from plaza.articles.service import Articles
from plaza.caching.page_cache import PageCache
from plaza.core.admin_mfa import AdminMfa
from plaza.core.domain import Core
from plaza.core.health_history import HealthHistory
from plaza.core.http.routes import ErrorResponse, Routes
from plaza.core.security_log import AccountLog
from plaza.live.schedule import EventSchedule
from plaza.notifications.unread_counts import UnreadCounts
from plaza.reports.service import Reports
from plaza.search.service import Search
from plaza.sessions.service import Sessions
from plaza.sessions.session_cache import SessionCache
from plaza.shop.cart_counts import CartCounts
from plaza.social.avatars import Avatars
from plaza.social.credentials import Credentials
from plaza.social.suggestions import SocialSuggestions
from plaza.social.users import Users
from plaza.web import (
    routes_accounts,
    routes_articles,
    routes_challenge_comments,
    routes_challenge_edits,
    routes_challenges,
    routes_comments,
    routes_invitations,
    routes_live,
    routes_notifications,
    routes_operator_articles,
    routes_operator_audience,
    routes_operator_growth,
    routes_operator_health,
    routes_operator_items,
    routes_operator_keys,
    routes_operator_live,
    routes_operator_log,
    routes_operator_orders,
    routes_operator_users,
    routes_operator_webhooks,
    routes_own,
    routes_pictures,
    routes_post_feeds,
    routes_posts,
    routes_recovery,
    routes_reports,
    routes_search,
    routes_security,
    routes_settings,
    routes_shop,
    routes_tracking,
    routes_updates,
    routes_users,
)
from plaza.web.article_desk import ArticleDesk
from plaza.web.demo_accounts import DemoAccounts, NoDemo
from plaza.web.health_figures import HealthMonitor
from plaza.web.mention_links import MentionLinks
from plaza.web.page_responses import PageResponses, SignInMethods
from plaza.web.page_routes import SitePageAccess
from plaza.web.problem_pages import problem_page
from plaza.web.product_html import ProductPages
from plaza.web.rendering import show_domains
from plaza.web.routes_security import SecurityPage
from plaza.web.security import FormTokens
from plaza.web.sidebar import Sidebar
from plaza.web.system_state import SystemStateReader
from plaza.web.visitors import Visitors

# The routes by the domain that they show; those of `REQUIRED_DOMAINS` are under an empty name.
_ROUTES: Final[Mapping[str, Sequence[Routes]]] = {
    "": (
        routes_post_feeds.page,
        routes_comments.page,
        routes_posts.page,
        routes_pictures.page,
        routes_users.page,
        routes_own.page,
        routes_settings.page,
        routes_security.page,
        routes_recovery.page,
        routes_shop.page,
        routes_updates.page,
        routes_accounts.page,
        routes_operator_keys.page,
        routes_operator_health.page,
        routes_operator_log.page,
        routes_operator_items.page,
        routes_operator_orders.page,
    ),
    "articles": (routes_articles.page, routes_operator_articles.page, routes_own.articles_page),
    "challenges": (
        routes_challenges.page,
        routes_challenge_comments.page,
        routes_challenge_edits.page,
        routes_invitations.page,
        routes_tracking.page,
    ),
    "desk": (routes_operator_users.page, routes_operator_growth.page),
    "live": (routes_live.page, routes_operator_live.page, routes_operator_audience.page),
    "notifications": (routes_notifications.page,),
    "reports": (routes_reports.page,),
    "search": (routes_search.page,),
    "webhooks": (routes_operator_webhooks.page,),
}

# Unknown paths under `/app` get an HTML error page.
ERROR_FORMATS: Final[Mapping[str, ErrorResponse]] = {"/app": problem_page}


def routes(domains: Sequence[str]) -> list[Routes]:
    """The routes of the pages of these domains."""
    return [group for name, groups in _ROUTES.items() if name in ("", *domains) for group in groups]


def services(
    core: Core, known: Mapping[type, Any], demo: DemoAccounts | None, job_names: Sequence[str], domains: Sequence[str]
) -> list[object]:
    """The services of the pages, beside those of the domains."""
    show_domains(domains, core.settings.currency)
    form_tokens = FormTokens(core.settings.secret("jwt_secret"))
    visitors = Visitors(
        known[Sessions],
        known[SessionCache],
        known[Credentials],
        known[AdminMfa],
        known[Avatars],
        known.get(UnreadCounts),
        known[CartCounts],
        form_tokens,
    )
    sidebar = Sidebar(known.get(EventSchedule), known.get(ArticleLists), known[SocialSuggestions], core.clock)
    passkeys: Passkeys = known[Passkeys]
    party, issuer = passkeys.relying_party, core.settings.oidc_issuer
    methods = SignInMethods(party.origin if party.is_usable else "", urlsplit(issuer).hostname or "")
    own: list[object] = []
    if Articles in known:
        own.append(ArticleDesk(known[Articles], known[ArticleLists], known.get(Search), known.get(Reports)))
    return [
        *own,
        PageResponses(
            form_tokens,
            visitors,
            sidebar.html,
            core.clock,
            demo or NoDemo(),
            MentionLinks(known[Users], known[Avatars]),
            methods,
        ),
        SecurityPage(
            known[Emails], known[SecondFactors], passkeys, known[Credentials], known[SignInProof], known[AccountLog]
        ),
        sidebar,
        ProductPages(PageCache(core.functions), core.settings.currency),
        HealthMonitor(core.valkey, core.clock, known[HealthHistory], job_names),
        SystemStateReader(core.valkey, core.sql, core.settings.data_dir, domains),
    ]


def app_options(services: Mapping[type, Any]) -> dict[str, Any]:
    """What `make_app` must know of the pages: how callers are identified there, and how errors look."""
    return {"pages": SitePageAccess(services[PageResponses]), "error_formats": ERROR_FORMATS}
