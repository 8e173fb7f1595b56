"""The declaration of the articles domain."""

from __future__ import annotations

from plaza.articles.atom import ArticleAtomFeeds
from plaza.articles.comments import ArticleComments
from plaza.articles.events import EVENTS
from plaza.articles.group_rankings import GroupRankings
from plaza.articles.invariants import INVARIANTS
from plaza.articles.jobs import timers
from plaza.articles.library import LIBRARY
from plaza.articles.lists import ArticleLists
from plaza.articles.notification_source import ArticleNotifications
from plaza.articles.personal_data import PERSONAL_KEYS, ArticlesPersonalData
from plaza.articles.report_sources import ArticleCommentReports, ArticleReports
from plaza.articles.routes import route
from plaza.articles.search_source import ArticleSearch
from plaza.articles.service import Articles
from plaza.articles.topic_source import ArticleTopics
from plaza.core.domain import Core, Domain, Parts
from plaza.core.paging import Snapshots


def build(core: Core) -> Parts:
    articles = Articles(core.functions, core.clock, core.settings.voting_days)
    lists = ArticleLists(articles, GroupRankings(core.functions), Snapshots(core.valkey, core.clock))
    comments = ArticleComments(articles, core.provided.blocks, core.provided.avatars)
    return Parts(
        [articles, lists, comments, ArticleAtomFeeds(lists, core.settings)],
        timers=timers(articles),
        personal_data=ArticlesPersonalData(articles, comments),
        personal_keys=PERSONAL_KEYS,
        search_sources=[ArticleSearch(articles)],
        notification_sources=[ArticleNotifications(core.valkey, core.provided.recipients)],
        report_sources=[ArticleReports(articles), ArticleCommentReports(comments)],
        topic_sources=[ArticleTopics(articles)],
    )


DOMAIN = Domain(LIBRARY, [route], build, INVARIANTS, EVENTS)
