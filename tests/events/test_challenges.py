"""Each operation of challenges emits its event; one that changes nothing emits none."""

from __future__ import annotations

import contextlib
from typing import Any

from sqlalchemy import update

from plaza.app import Plaza
from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.comments import ChallengeComments
from plaza.challenges.events import EVENTS
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.model import (
    AlreadyJoined,
    AlreadyTracked,
    ChallengeCommentEdit,
    ChallengeEdit,
    ChallengePostEdit,
    NewChallenge,
    NewChallengeComment,
    NewChallengePost,
    NewReminder,
    NewTracking,
    NotTracked,
)
from plaza.challenges.personal_data import ChallengesPersonalData
from plaza.challenges.post_deletion import PostDeletion
from plaza.challenges.posts import ChallengePosts
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.service import Challenges
from plaza.challenges.tables import MEMBER
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from tests.events.recorder import PRIVATE, EventRecorder

ANA, BEN = Actor("ana", "user"), Actor("ben", "user")


async def test_every_type_is_emitted(plaza: Plaza, redis_client: Any) -> None:
    challenges, posts = plaza.get(Challenges), plaza.get(ChallengePosts)
    tracking = plaza.get(ChallengeTracking)
    recorder = EventRecorder(plaza, redis_client)
    for _ in range(2):  # the same operation again
        id = (await challenges.create(ANA, NewChallenge(PRIVATE, 1, True, 21), "create")).id
    await recorder.expect(("challenge.created", {"challenge": id, "creator": "ana"}))
    member = {"challenge": id, "username": "ana"}
    for _ in range(2):
        with contextlib.suppress(AlreadyJoined):
            await challenges.join(ANA, id)
    await recorder.expect(("challenge.joined", member))
    for _ in range(2):
        with contextlib.suppress(AlreadyTracked):
            tracked = await tracking.track(ANA, id, NewTracking())
    await recorder.expect(("challenge.tracked", {**member, "date": tracked.date}))
    for _ in range(2):
        with contextlib.suppress(NotTracked):
            await tracking.untrack(ANA, id)
    await recorder.expect(("challenge.untracked", {**member, "date": tracked.date}))
    reminders = ChallengeReminders(challenges._projections, tracking)
    await reminders.save(ANA, id, NewReminder(18))
    async with plaza.core.sql.begin() as tx:
        await tx.execute(update(MEMBER).values(reminder_due_ms=plaza.core.clock.now_ms()))
    for _ in range(2):
        await reminders.send_due(1)
    await recorder.expect(("challenge.reminded", {**member, "date": tracked.date, "streak": 0}))
    for _ in range(2):
        post = (await posts.post(ANA, id, NewChallengePost(PRIVATE), "post")).id
    await recorder.expect(("challenge.posted", {**member, "post": post}))
    reaction = {"challenge": id, "post": post, "author": "ana", "username": "ben"}
    for _ in range(2):
        await posts.react(BEN, post)
    await recorder.expect(("challenge.reacted", {**reaction, "reacted": True}))
    for _ in range(2):
        await posts.remove_reaction(BEN, post)
    await recorder.expect(("challenge.reacted", {**reaction, "reacted": False}))
    comments = ChallengeComments(challenges._projections)
    for _ in range(2):
        comment = (await comments.create(BEN, post, NewChallengeComment(PRIVATE), "comment")).id
    commented = {**reaction, "comment": comment}
    await recorder.expect(("challenge.commented", commented))
    for _ in range(2):
        await comments.edit(BEN, comment, ChallengeCommentEdit("Another text"))
    await recorder.expect(("challenge.comment_edited", {**member, "username": "ben", "post": post, "comment": comment}))
    for _ in range(2):
        with contextlib.suppress(NotFound):
            await comments.delete(BEN, comment)
    await recorder.expect(("challenge.comment_deleted", commented))
    for _ in range(2):
        await posts.edit(ANA, post, ChallengePostEdit("Another text"))
    await recorder.expect(("challenge.post_edited", {**member, "post": post}))
    for _ in range(2):
        await challenges.edit(ANA, id, ChallengeEdit(title="Another title"))
    await recorder.expect(("challenge.edited", {"challenge": id, "creator": "ana"}))
    for _ in range(2):
        await PostDeletion(challenges._projections).delete([post])
    await recorder.expect(("challenge.post_deleted", {**member, "post": post}))
    invitations = ChallengeInvitations(challenges._projections)
    invited = {"challenge": id, "username": "cid", "inviter": "ana"}
    for _ in range(2):
        await invitations.invite(ANA, id, "cid")
    await recorder.expect(("challenge.invited", invited))
    await invitations.end(ANA, id, "cid")
    await recorder.expect(("challenge.invitation_ended", invited))
    await challenges.leave(ANA, id)
    await recorder.expect(("challenge.left", member))
    for _ in range(2):
        with contextlib.suppress(NotFound):
            await plaza.get(ChallengeDeletion).delete(ANA, id)
    await recorder.expect(("challenge.deleted", {**member, "creator": "ana"}))
    assert recorder.types == {event_type.type for event_type in EVENTS}


async def test_renaming_and_deletion_move_and_end_what_a_user_has(plaza: Plaza, redis_client: Any) -> None:
    challenges, posts = plaza.get(Challenges), plaza.get(ChallengePosts)
    recorder, personal_data = EventRecorder(plaza, redis_client), ChallengesPersonalData(challenges._projections)
    id = (await challenges.create(ANA, NewChallenge("Run", 1, True, 21), "create")).id
    for actor in (ANA, BEN):
        await challenges.join(actor, id)
    post = (await posts.post(ANA, id, NewChallengePost("Ran"), "post")).id
    await posts.react(BEN, post)
    await recorder.new_events()
    await personal_data.rename("ben", "zoe")
    reaction = {"challenge": id, "post": post, "author": "ana"}
    await recorder.expect(
        ("challenge.left", {"challenge": id, "username": "ben"}),
        ("challenge.joined", {"challenge": id, "username": "zoe"}),
        ("challenge.reacted", {**reaction, "username": "ben", "reacted": False}),
        ("challenge.reacted", {**reaction, "username": "zoe", "reacted": True}),
        origin="rename",
    )
    await personal_data.delete("zoe")
    await recorder.expect(
        ("challenge.left", {"challenge": id, "username": "zoe"}),
        ("challenge.reacted", {**reaction, "username": "zoe", "reacted": False}),
    )
