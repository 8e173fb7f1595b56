"""The HTTP routes of challenges."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.comments import ChallengeComments
from plaza.challenges.daily_job.runner import DailyJob, DailyJobResult
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.leaderboard import Leaderboards
from plaza.challenges.model import (
    AlreadyJoined,
    AlreadyTracked,
    Challenge,
    ChallengeComment,
    ChallengeCommentEdit,
    ChallengeCommentId,
    ChallengeCommentsPage,
    ChallengeEdit,
    ChallengeEnded,
    ChallengeId,
    ChallengeInvitation,
    ChallengeInvitationsPage,
    ChallengeMembership,
    ChallengePost,
    ChallengePostEdit,
    ChallengePostsPage,
    ChallengeProgress,
    ChallengesPage,
    DateText,
    DeletedChallenge,
    DeletedChallengeComment,
    DeletedChallengePost,
    InvitedName,
    Leaderboard,
    LeaderboardQuery,
    NewChallenge,
    NewChallengeComment,
    NewChallengePost,
    NewReminder,
    NewTracking,
    NotInvited,
    NotJoined,
    NotMember,
    NotTracked,
    PostId,
    PrivateChallenge,
    Reaction,
    ReactionToBreak,
    TooManyInvitations,
    TrackedDay,
    TrackedDaysPage,
    UnitInUse,
)
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.recommendation.recommender import Recommendations, Recommender
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.service import Challenges
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.http.access import ADMIN, AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.leases import LeaseHeld
from plaza.core.paging import Page

Limit = Annotated[int, Meta(ge=1, le=100, description="The maximum number of posts.")]

route = Routes("challenges", about="Challenges in five categories, and posts of their members.")


@route.post(
    "/challenges",
    access=USER,
    status=201,
    idempotent=True,
    raises=[NotFound],
    example={"title": "Thirty runs", "category": 1, "is_public": True, "duration": 30, "unit": "km"},
)
async def create_challenge(actor: Actor, body: NewChallenge, request: Request, challenges: Challenges) -> Challenge:
    """Create a challenge. Creating does not join it."""
    return await challenges.create(actor, body, request.row_operation)


@route.get("/challenges", access=PUBLIC)
async def list_challenges(actor: Actor | None, page: Page, challenges: Challenges) -> ChallengesPage:
    """List challenges, newest first: public ones and the caller's own."""
    return await challenges.page(actor, page)


@route.get("/challenges/recommendations", access=USER, limit_first=True)
async def list_recommendations(actor: Actor, recommender: Recommender, limit: Limit = 20) -> Recommendations:
    """List recommended posts, each with a reason."""
    return await recommender.recommend(actor, limit)


@route.get("/challenges/invitations", access=USER)
async def list_invitations(actor: Actor, page: Page, invitations: ChallengeInvitations) -> ChallengeInvitationsPage:
    """List your invitations to challenges, latest first. Joining the challenge accepts one."""
    return await invitations.page(actor, page)


@route.get("/challenges/{id}/invitations", access=AUTHENTICATED, raises=[PrivateChallenge])
async def list_challenge_invitations(
    actor: Actor, id: ChallengeId, page: Page, invitations: ChallengeInvitations
) -> ChallengeInvitationsPage:
    """List the open invitations to a challenge (its creator or an admin), latest first."""
    return await invitations.page_of_challenge(actor, id, page)


@route.put(
    "/challenges/{id}/invitations/{username}",
    access=USER,
    logged=True,
    raises=[PrivateChallenge, AlreadyJoined, ChallengeEnded, TooManyInvitations],
)
async def add_invitation(
    actor: Actor, id: ChallengeId, username: InvitedName, invitations: ChallengeInvitations
) -> ChallengeInvitation:
    """Add an invitation of a user to a challenge (its creator or an admin). Repeating it changes nothing."""
    return await invitations.invite(actor, id, username)


@route.delete("/challenges/{id}/invitations/{username}", access=AUTHENTICATED, raises=[PrivateChallenge, NotInvited])
async def remove_invitation(
    actor: Actor, id: ChallengeId, username: InvitedName, invitations: ChallengeInvitations
) -> ChallengeInvitation:
    """Remove an invitation: decline it (the invited user) or withdraw it (the creator or an admin)."""
    return await invitations.end(actor, id, username)


@route.get("/challenges/{id}", access=PUBLIC, raises=[PrivateChallenge])
async def get_challenge(actor: Actor | None, id: ChallengeId, challenges: Challenges) -> Challenge:
    """Read a challenge (a private one: its creator, its members or an admin)."""
    return await challenges.read(actor, id)


@route.patch(
    "/challenges/{id}",
    access=USER,
    raises=[PrivateChallenge, ChallengeEnded, UnitInUse],
    example={"title": "Thirty-one runs", "duration": 31},
)
async def edit_challenge(actor: Actor, id: ChallengeId, body: ChallengeEdit, challenges: Challenges) -> Challenge:
    """Edit the title, the duration or the unit of a challenge (its creator)."""
    return await challenges.edit(actor, id, body)


@route.delete("/challenges/{id}", access=AUTHENTICATED, raises=[PrivateChallenge])
async def delete_challenge(actor: Actor, id: ChallengeId, deletion: ChallengeDeletion) -> DeletedChallenge:
    """Delete a challenge with its posts (its creator or an admin). Tracked days stay."""
    return await deletion.delete(actor, id)


@route.post(
    "/challenges/{id}/join",
    access=USER,
    status=201,
    idempotent=True,
    logged=True,
    raises=[PrivateChallenge, AlreadyJoined, ChallengeEnded],
)
async def join_challenge(actor: Actor, id: ChallengeId, challenges: Challenges) -> ChallengeMembership:
    """Join a challenge (a private one: its creator, an admin or an invited user). Joining twice is 409."""
    return await challenges.join(actor, id)


@route.delete("/challenges/{id}/join", access=USER, raises=[NotJoined])
async def leave_challenge(actor: Actor, id: ChallengeId, challenges: Challenges) -> ChallengeMembership:
    """Leave a challenge. Tracked days stay."""
    return await challenges.leave(actor, id)


@route.post(
    "/challenges/{id}/track",
    access=USER,
    status=201,
    idempotent=True,
    raises=[NotMember, AlreadyTracked, ChallengeEnded],
    example={"amount": 5.25},
)
async def track_day(actor: Actor, id: ChallengeId, body: NewTracking, tracking: ChallengeTracking) -> TrackedDay:
    """Track a day of progress, today by default. Tracking a day twice is 409."""
    return await tracking.track(actor, id, body)


@route.delete("/challenges/{id}/track", access=USER, raises=[PrivateChallenge, NotTracked])
async def remove_tracked_day(
    actor: Actor, id: ChallengeId, tracking: ChallengeTracking, date: DateText | None = None
) -> ChallengeProgress:
    """Remove a tracked day, today by default."""
    return await tracking.untrack(actor, id, date)


@route.get("/challenges/{id}/track", access=USER, raises=[PrivateChallenge])
async def list_tracked_days(actor: Actor, id: ChallengeId, page: Page, tracking: ChallengeTracking) -> TrackedDaysPage:
    """List the days that you have tracked in a challenge, last tracked first."""
    return await tracking.page(actor, id, page)


@route.get("/challenges/{id}/progress", access=USER, raises=[PrivateChallenge])
async def get_challenge_progress(actor: Actor, id: ChallengeId, tracking: ChallengeTracking) -> ChallengeProgress:
    """Read what you have tracked in a challenge (days, amount, streaks), and your reminder."""
    return await tracking.progress(actor, id)


@route.put(
    "/challenges/{id}/reminder",
    access=USER,
    raises=[NotMember, ChallengeEnded],
    example={"hour": 18, "time_zone": "Europe/Berlin"},
)
async def set_challenge_reminder(
    actor: Actor, id: ChallengeId, body: NewReminder, reminders: ChallengeReminders
) -> ChallengeProgress:
    """Set the hour at which you are reminded of a day that you have not tracked (members)."""
    return await reminders.save(actor, id, body)


@route.delete("/challenges/{id}/reminder", access=USER, raises=[NotMember])
async def remove_challenge_reminder(actor: Actor, id: ChallengeId, reminders: ChallengeReminders) -> ChallengeProgress:
    """Remove your reminder. Without one, nothing changes."""
    return await reminders.remove(actor, id)


@route.get("/challenges/{id}/leaderboard", access=PUBLIC, raises=[PrivateChallenge])
async def get_leaderboard(
    actor: Actor | None, id: ChallengeId, query: LeaderboardQuery, leaderboards: Leaderboards
) -> Leaderboard:
    """List a challenge's members by what they have tracked: days, amount or current streak."""
    return await leaderboards.page(actor, id, query)


@route.post(
    "/challenges/{id}/posts",
    access=USER,
    status=201,
    idempotent=True,
    raises=[NotMember, ChallengeEnded],
    example={"text": "Five kilometres before breakfast."},
)
async def create_challenge_post(
    actor: Actor, id: ChallengeId, body: NewChallengePost, request: Request, posts: ChallengePosts
) -> ChallengePost:
    """Create a post in a challenge (its members)."""
    return await posts.post(actor, id, body, request.row_operation)


@route.get("/challenges/{id}/posts", access=PUBLIC, raises=[PrivateChallenge])
async def list_challenge_posts(
    actor: Actor | None, id: ChallengeId, page: Page, posts: ChallengePosts
) -> ChallengePostsPage:
    """List a challenge's posts, newest first."""
    return await posts.page(actor, id, page)


@route.patch(
    "/challenges/posts/{id}", access=USER, raises=[PrivateChallenge], example={"text": "Six kilometres, in fact."}
)
async def edit_challenge_post(
    actor: Actor, id: PostId, body: ChallengePostEdit, posts: ChallengePosts
) -> ChallengePost:
    """Edit the text of a post (its author). The old text is kept."""
    return await posts.edit(actor, id, body)


@route.delete("/challenges/posts/{id}", access=AUTHENTICATED, raises=[PrivateChallenge])
async def delete_challenge_post(actor: Actor, id: PostId, posts: ChallengePosts) -> DeletedChallengePost:
    """Delete a post with its reactions and comments (its author or an admin)."""
    return await posts.delete(actor, id)


@route.post(
    "/challenges/posts/{id}/comments",
    access=USER,
    status=201,
    idempotent=True,
    raises=[PrivateChallenge, NotMember, ChallengeEnded],
    example={"content": "Well done!"},
)
async def create_challenge_comment(
    actor: Actor, id: PostId, body: NewChallengeComment, request: Request, comments: ChallengeComments
) -> ChallengeComment:
    """Create a comment on a challenge's post (in a private challenge: its members, its creator or an admin)."""
    return await comments.create(actor, id, body, request.row_operation)


@route.get("/challenges/posts/{id}/comments", access=PUBLIC, raises=[PrivateChallenge])
async def list_challenge_comments(
    actor: Actor | None, id: PostId, page: Page, comments: ChallengeComments
) -> ChallengeCommentsPage:
    """List the comments on a challenge's post, oldest first."""
    return await comments.page(actor, id, page)


@route.patch(
    "/challenge-comments/{id}", access=USER, raises=[PrivateChallenge], example={"content": "Well done, all of you!"}
)
async def edit_challenge_comment(
    actor: Actor, id: ChallengeCommentId, body: ChallengeCommentEdit, comments: ChallengeComments
) -> ChallengeComment:
    """Edit the text of a comment on a challenge's post (its author). The old text is kept."""
    return await comments.edit(actor, id, body)


@route.delete("/challenge-comments/{id}", access=AUTHENTICATED, raises=[PrivateChallenge])
async def delete_challenge_comment(
    actor: Actor, id: ChallengeCommentId, comments: ChallengeComments
) -> DeletedChallengeComment:
    """Delete a comment on a challenge's post (its author, the post's author or an admin)."""
    return await comments.delete(actor, id)


@route.put(
    "/challenges/posts/{id}/reaction",
    access=USER,
    raises=[PrivateChallenge, NotMember, ReactionToBreak, ChallengeEnded],
)
async def react_to_challenge_post(actor: Actor, id: PostId, posts: ChallengePosts) -> Reaction:
    """React to a post. Repeating it changes nothing; a break is 409."""
    return await posts.react(actor, id)


@route.delete("/challenges/posts/{id}/reaction", access=USER)
async def remove_challenge_reaction(actor: Actor, id: PostId, posts: ChallengePosts) -> Reaction:
    """Remove the caller's reaction to a post."""
    return await posts.remove_reaction(actor, id)


@route.post("/challenges/roll", access=ADMIN, raises=[LeaseHeld])
async def run_daily_job(daily_job: DailyJob) -> DailyJobResult:
    """Run the daily job now and respond when it is done."""
    return await daily_job.run()
