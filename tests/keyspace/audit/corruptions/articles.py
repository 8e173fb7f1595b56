"""Corrupted articles, votes and groups."""

from __future__ import annotations

from typing import Any

from plaza.articles import keys as a
from tests.keyspace.audit.corruptions.corruption import CorruptionList
from tests.keyspace.audit.sample_community import SampleCommunity

corruptions = CorruptionList()


@corruptions.found_as("article:<article>", "votes")
async def votes_are_wrong(client: Any, community: SampleCommunity) -> None:
    await client.hset(a.ARTICLE(community.articles[0]), "votes", 77)


@corruptions.found_as("upvoted:<article>", "votes")
async def a_user_voted_both_ways(client: Any, community: SampleCommunity) -> None:
    await client.sadd(a.ARTICLE_DOWN(community.articles[0]), "user:ben")


@corruptions.found_as("article:<article>", "ranking")
async def an_articles_score_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.zincrby(a.ARTICLES_BY_SCORE(), 432, f"article:{community.articles[0]}")


@corruptions.found_as("article:<article>", "ranking")
async def an_article_is_missing_in_the_time_ranking(client: Any, community: SampleCommunity) -> None:
    await client.zrem(a.ARTICLES_BY_TIME(), f"article:{community.articles[1]}")


@corruptions.found_as("score:", "reference")
async def a_ranking_has_a_missing_article(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.ARTICLES_BY_SCORE(), {"article:9999": 5})


@corruptions.found_as("time:", "member", kept=True)
async def a_ranking_has_an_invalid_member(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.ARTICLES_BY_TIME(), {"99": 5})


@corruptions.found_as("group:<group>", "mirror")
async def an_articles_index_lacks_a_group(client: Any, community: SampleCommunity) -> None:
    await client.srem(a.ARTICLE_GROUPS(community.articles[0]), "news")


@corruptions.found_as("article:<article>:groups", "mirror")
async def an_articles_index_has_a_group_too_many(client: Any, community: SampleCommunity) -> None:
    await client.sadd(a.ARTICLE_GROUPS(community.articles[1]), "group0")


@corruptions.found_as("group:<group>", "size")
async def a_groups_size_is_wrong(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.GROUPS(), {"news": 40})


@corruptions.found_as("groups:", "reference")
async def a_group_without_articles_is_listed(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.GROUPS(), {"empty": 3})


@corruptions.found_as("articles:<username>:voted", "votes")
async def a_users_votes_have_an_extra_article(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.USER_VOTES("dora"), {f"article:{community.articles[0]}": 1})


@corruptions.found_as("articles:<username>:posted", "author")
async def a_user_has_an_article_of_another_author(client: Any, community: SampleCommunity) -> None:
    await client.zadd(a.USER_ARTICLES("dora"), {f"article:{community.articles[0]}": 5})


@corruptions.found_as("article:<article>", "ranking")
async def the_last_id_decreased(client: Any, community: SampleCommunity) -> None:
    await client.set(a.ARTICLES_LAST(), 1)


@corruptions.found_as("upvoted:<article>", "orphan")
async def votes_without_an_article(client: Any, community: SampleCommunity) -> None:
    await client.sadd(a.ARTICLE_UP(9999), "user:ana")
