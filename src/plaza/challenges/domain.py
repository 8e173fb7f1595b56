"""The declaration of the challenges domain."""

from __future__ import annotations

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.comments import ChallengeComments
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.events import EVENTS
from plaza.challenges.invariants import ChallengesInspector
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.jobs import timers
from plaza.challenges.leaderboard import Leaderboards
from plaza.challenges.library import LIBRARY
from plaza.challenges.notification_source import ChallengeNotifications
from plaza.challenges.participation_reader import Participations
from plaza.challenges.personal_data import PERSONAL_KEYS, ChallengesPersonalData
from plaza.challenges.post_deletion import PostDeletion
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.recommendation.recommender import Recommender
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.report_sources import ChallengeCommentReports, ChallengePostReports
from plaza.challenges.routes import route
from plaza.challenges.search_source import ChallengeSearch
from plaza.challenges.service import Challenges
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.domain import Core, Domain, Parts
from plaza.core.leases import Leases


def build(core: Core) -> Parts:
    projections = ChallengeProjections(core.sql, core.functions, core.clock, core.settings.max_post_age)
    daily_job = DailyJob(projections, Leases(core.functions))
    challenges = Challenges(core.sql, projections, core.clock)
    posts = ChallengePosts(projections, core.provided.blocks, core.provided.avatars)
    deletion = ChallengeDeletion(projections)
    comments = ChallengeComments(projections, core.provided.blocks, core.provided.avatars)
    tracking = ChallengeTracking(core.sql, projections, core.clock)
    reminders = ChallengeReminders(projections, tracking, core.provided.user_states)
    services = [
        challenges,
        posts,
        comments,
        deletion,
        ChallengeInvitations(projections, core.provided.recipients, core.provided.blocks),
        tracking,
        reminders,
        Leaderboards(core.sql, core.valkey, core.clock, core.provided.blocks, core.provided.avatars),
        daily_job,
        Recommender(projections, core.provided.blocks, core.provided.avatars),
        Participations(core.sql, core.clock),
    ]
    return Parts(
        services,
        timers=timers(daily_job, deletion, reminders),
        personal_data=ChallengesPersonalData(projections),
        personal_keys=PERSONAL_KEYS,
        search_sources=[ChallengeSearch(core.sql, challenges)],
        notification_sources=[ChallengeNotifications(core.sql, core.provided.recipients)],
        report_sources=[ChallengePostReports(posts, PostDeletion(projections)), ChallengeCommentReports(comments)],
        inspectors=[ChallengesInspector(projections, daily_job)],
    )


DOMAIN = Domain(LIBRARY, [route], build, events=EVENTS)
