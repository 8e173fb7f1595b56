"""Corrupted replies to comments."""

from __future__ import annotations

from typing import Any

from plaza.articles import keys as a
from plaza.social import keys as k
from tests.keyspace.audit.corruptions.corruption import MISSING_ID, CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("comment:<comment>", "comment")
async def a_reply_does_not_say_to_what(client: Any, community: SampleCommunity) -> None:
    await client.hdel(k.COMMENT(community.reply), "reply_to")


@corruptions.found_as("comment:<comment>:edits", "orphan")
async def old_texts_of_a_missing_comment(client: Any, community: SampleCommunity) -> None:
    await client.rpush(k.COMMENT_EDITS(MISSING_ID), "{}")


@corruptions.found_as("article:<article>:comment:<note>:edits", "orphan")
async def old_texts_of_a_missing_article_comment(client: Any, community: SampleCommunity) -> None:
    await client.rpush(a.ARTICLE_COMMENT_EDITS(community.articles[1], "0" * 32), "{}")


@corruptions.found_as("post:<post>:comments:parents", "thread")
async def a_reply_is_missing_in_the_replies(client: Any, community: SampleCommunity) -> None:
    await client.delete(k.POST_COMMENT_REPLIES(community.posts[1], community.comments[0]))


@corruptions.found_as("post:<post>:comments:parents", "thread")
async def a_missing_comment_is_a_reply(client: Any, community: SampleCommunity) -> None:
    await client.hset(k.POST_COMMENT_PARENTS(community.posts[1]), MISSING_ID, community.comments[1])


@corruptions.found_as("post:<post>:comments:replies:<comment>", "thread")
async def a_reply_is_below_two_comments(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.POST_COMMENT_REPLIES(community.posts[1], community.comments[1]), {community.reply: 5})


@corruptions.found_as("post:<post>:comments:stubs", "thread")
async def a_stub_without_replies(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.POST_COMMENT_STUBS(community.posts[1]), {MISSING_ID: 5})


@corruptions.found_as("post:<post>:comments:top", "thread")
async def a_reply_is_listed_as_a_comment_that_replies_to_none(client: Any, community: SampleCommunity) -> None:
    await client.zadd(k.POST_COMMENTS_TOP(community.posts[1]), {community.reply: 5})


@corruptions.found_as("post:<post>:comments:recent", "thread")
async def a_comment_is_on_no_level_of_the_thread(client: Any, community: SampleCommunity) -> None:
    await client.zrem(k.POST_COMMENTS_TOP(community.posts[1]), community.comments[1])


@corruptions.found_as("article:<article>:comments", "reference")
async def a_comment_on_an_article_without_its_text(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.ARTICLE_COMMENTS(community.articles[1]), {"0" * 32: 5})


@corruptions.found_as("article:<article>:comment:<note>", "comment")
async def a_text_without_its_comment_on_an_article(client: Any, community: SampleCommunity) -> None:
    await client.hset(a.ARTICLE_COMMENT(community.articles[1], "0" * 32), mapping={"username": "ana", "content": "?"})


@corruptions.found_as("article:<article>:comment:<note>", "comment")
async def a_comment_on_an_article_is_missing_at_its_author(client: Any, community: SampleCommunity) -> None:
    await client.zrem(a.USER_ARTICLE_COMMENTS("ben"), community.article_comments[0])


@corruptions.found_as("articles:<username>:comments", "comment")
async def a_user_has_a_comment_of_another(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.USER_ARTICLE_COMMENTS("dora"), {community.article_comments[0]: 5})


@corruptions.found_as("article:<article>:comments:parents", "thread")
async def a_reply_on_an_article_is_on_no_level(client: Any, community: SampleCommunity) -> None:
    root = community.article_comments[0].partition("-")[2]
    await client.delete(a.ARTICLE_COMMENT_REPLIES(community.articles[0], root))
