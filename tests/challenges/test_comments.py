"""Comments on posts in challenges."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.comments import ChallengeComments
from plaza.challenges.invitations import ChallengeInvitations
from plaza.challenges.model import (
    ChallengeComment,
    ChallengeCommentEdit,
    ChallengeEnded,
    NewChallengeComment,
    NewChallengePost,
    NotMember,
    PrivateChallenge,
)
from plaza.challenges.tables import COMMENT
from plaza.core.auth import Actor
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.paging import Page
from plaza.social.keys import USER_BLOCKED, USER_BLOCKED_BY
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, ChallengeServices, SocialBlocks


@pytest.fixture
def comments(services: ChallengeServices) -> ChallengeComments:
    return ChallengeComments(services.projections, SocialBlocks())


async def written(
    comments: ChallengeComments, actor: Actor, post: int, reply_to: int | None = None
) -> ChallengeComment:
    return await comments.create(actor, post, NewChallengeComment("Well done.", reply_to), None)


async def stored(services: ChallengeServices) -> int:
    (row,) = await services.sql.fetch_all(select(func.count().label("rows")).select_from(COMMENT))
    return int(row.rows)


async def test_comments_are_listed_oldest_first_page_by_page(
    services: ChallengeServices, comments: ChallengeComments
) -> None:
    challenge = await services.joined(BEN)
    post, other = [(await services.post(BEN, challenge)).id for _ in range(2)]
    first = await written(comments, CLEO, post)
    again = [await comments.create(ANA, post, NewChallengeComment(" Yes. "), "same") for _ in range(2)]
    assert again[0] == again[1], "a retry creates no second one"
    reply = await written(comments, BEN, post, first.id)
    ids = [first.id, again[0].id, reply.id]
    page = await comments.page(None, post, Page(limit=2))
    assert [each.id for each in page.comments] == ids[:2]
    assert [each.content for each in page.comments] == ["Well done.", "Yes."]
    rest = await comments.page(None, post, Page(limit=2, cursor=page.pagination.next_cursor))
    assert [(each.id, each.reply_to) for each in rest.comments] == [(reply.id, first.id)]
    assert rest.pagination.next_cursor is None
    with pytest.raises(Invalid):
        await comments.page(None, other, Page(cursor=page.pagination.next_cursor))
    assert [each.commentsCount for each in (await services.posts.page(None, challenge, Page())).posts] == [0, 3]
    with pytest.raises(Invalid):
        await written(comments, BEN, other, first.id)
    with pytest.raises(Invalid):
        await comments.create(BEN, post, NewChallengeComment(" \n"), None)
    with pytest.raises(NotFound):
        await written(comments, BEN, 999)
    services.clock.advance(days=21)
    with pytest.raises(ChallengeEnded):
        await written(comments, BEN, post)


async def test_members_comment_in_a_private_challenge(services: ChallengeServices, comments: ChallengeComments) -> None:
    challenge = (await services.challenge(ANA, public=False)).id
    await services.challenges.join(ANA, challenge)
    post = (await services.posts.post(ANA, challenge, NewChallengePost("Done."), None)).id
    for viewer in (BEN, None):
        with pytest.raises(PrivateChallenge):
            await comments.page(viewer, post, Page())
    with pytest.raises(PrivateChallenge):
        await written(comments, BEN, post)
    await ChallengeInvitations(services.projections).invite(ANA, challenge, "ben")
    with pytest.raises(NotMember):
        await written(comments, BEN, post)
    await services.challenges.join(BEN, challenge)
    made = [await written(comments, actor, post) for actor in (BEN, ANA, ROOT)]
    with pytest.raises(PrivateChallenge):
        await comments.delete(CLEO, made[0].id)
    assert [each.id for each in (await comments.page(BEN, post, Page())).comments] == [each.id for each in made]


async def test_a_block_hides_posts_and_comments_but_not_from_an_admin(
    services: ChallengeServices, comments: ChallengeComments, redis_client: Any
) -> None:
    challenge = await services.joined(ANA, BEN)
    post, other = [(await services.post(author, challenge)).id for author in (BEN, ANA)]
    mine = await written(comments, BEN, other)
    for name in ("cleo", "root"):
        await redis_client.zadd(USER_BLOCKED("ben"), {name: 1})
        await redis_client.zadd(USER_BLOCKED_BY(name), {"ben": 1})

    for viewer, shown in ((CLEO, [other]), (None, [other, post]), (ROOT, [other, post])):
        assert [each.id for each in (await services.posts.page(viewer, challenge, Page())).posts] == shown
    assert (await comments.page(CLEO, other, Page())).comments == []
    assert [each.id for each in (await comments.page(ROOT, other, Page())).comments] == [mine.id]
    for refused in (
        services.posts.read(CLEO, post),
        services.posts.react(CLEO, post),
        comments.page(CLEO, post, Page()),
        written(comments, CLEO, post),
        comments.get(CLEO, mine.id),
    ):
        with pytest.raises(NotFound):
            await refused
    with pytest.raises(Invalid):
        await written(comments, CLEO, other, mine.id)
    assert (await services.posts.read(None, post)).reactions == 0
    assert await stored(services) == 1


async def test_comments_are_deleted_by_both_authors_and_admins_and_with_the_post(
    services: ChallengeServices, comments: ChallengeComments
) -> None:
    challenge = await services.joined(BEN)
    posts = [(await services.post(BEN, challenge)).id for _ in range(2)]
    for actor in (CLEO, BEN, ROOT):
        made = await written(comments, CLEO, posts[0])
        with pytest.raises(Forbidden):
            await comments.delete(ANA, made.id)
        await comments.delete(actor, made.id)
        with pytest.raises(NotFound):
            await comments.delete(actor, made.id)
    for post in posts:
        await written(comments, CLEO, post)
    await services.posts.delete(BEN, posts[0])
    assert await stored(services) == 1
    await ChallengeDeletion(services.projections).delete(ANA, challenge)
    assert await stored(services) == 0


async def test_authors_edit_their_comments_and_old_texts_go_with_them(
    services: ChallengeServices, comments: ChallengeComments
) -> None:
    challenge = await services.joined(BEN)
    post = (await services.post(BEN, challenge)).id
    made = [await written(comments, CLEO, post) for _ in range(2)]
    services.clock.advance(seconds=5)
    for _ in range(2):  # the same text again changes nothing
        edited = await comments.edit(CLEO, made[0].id, ChallengeCommentEdit(" Very well done. "))
        services.clock.advance(seconds=5)
        assert (edited.content, edited.edited_at) == ("Very well done.", made[0].created_at + 5_000)
    await comments.edit(CLEO, made[1].id, ChallengeCommentEdit("Yes."))
    for actor in (BEN, ROOT):
        with pytest.raises(Forbidden):
            await comments.edit(actor, made[0].id, ChallengeCommentEdit("No."))
    with pytest.raises(Invalid):
        await comments.edit(CLEO, made[0].id, ChallengeCommentEdit("  "))

    async def old_texts() -> list[str]:
        return [each["text"] for each in (await services.personal_data.export("cleo"))["edits"]]

    assert await old_texts() == ["Well done."] * 2
    await comments.delete(CLEO, made[0].id)
    assert await old_texts() == ["Well done."]
    with pytest.raises(NotFound):
        await comments.edit(CLEO, made[0].id, ChallengeCommentEdit("Gone."))
    await services.posts.delete(BEN, post)
    assert await old_texts() == []


async def test_comments_follow_a_rename_and_go_with_the_account(
    services: ChallengeServices, comments: ChallengeComments
) -> None:
    challenge = await services.joined(BEN)
    post = (await services.post(BEN, challenge)).id
    mine = await written(comments, CLEO, post)
    await written(comments, BEN, post, mine.id)
    await services.daily_job.run()
    await services.personal_data.rename("cleo", "dora")
    exported = await services.personal_data.export("dora")
    assert [each["content"] for each in exported["comments"]] == ["Well done."]
    await services.personal_data.delete("dora")
    left = (await comments.page(None, post, Page())).comments
    assert [(each.username, each.reply_to) for each in left] == [("ben", mine.id)]
    assert (await services.daily_job.run()).rebuilt == []
