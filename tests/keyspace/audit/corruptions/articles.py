"""Articles, votes and groups that another writer broke."""

from __future__ import annotations

from typing import Any

from plaza.articles import keys as a
from tests.keyspace.audit.corruptions.ways import Breaks
from tests.keyspace.audit.sample_community import Town

breaks = Breaks()


@breaks.found_as("article:<article>", "votes")
async def votes_are_wrong(r: Any, t: Town) -> None:
    await r.hset(a.ARTICLE(t.articles[0]), "votes", 77)


@breaks.found_as("upvoted:<article>", "votes")
async def someone_voted_both_ways(r: Any, t: Town) -> None:
    await r.sadd(a.ARTICLE_DOWN(t.articles[0]), "user:ben")


@breaks.found_as("article:<article>", "ranking")
async def an_articles_score_is_wrong(r: Any, t: Town) -> None:
    await r.zincrby(a.ARTICLES_BY_SCORE(), 432, f"article:{t.articles[0]}")


@breaks.found_as("article:<article>", "ranking")
async def an_article_is_in_no_list_by_time(r: Any, t: Town) -> None:
    await r.zrem(a.ARTICLES_BY_TIME(), f"article:{t.articles[1]}")


@breaks.found_as("score:", "reference")
async def a_ranking_has_an_article_that_is_not_there(r: Any, t: Town) -> None:
    await r.zadd(a.ARTICLES_BY_SCORE(), {"article:9999": 5})


@breaks.found_as("time:", "member")
async def a_ranking_has_something_else(r: Any, t: Town) -> None:
    await r.zadd(a.ARTICLES_BY_TIME(), {"99": 5})


@breaks.found_as("article:<article>:groups", "mirror")
async def a_group_lacks_an_article(r: Any, t: Town) -> None:
    await r.srem(a.GROUP("news"), f"article:{t.articles[0]}")


@breaks.found_as("group:<group>", "mirror")
async def a_group_has_an_article_too_many(r: Any, t: Town) -> None:
    await r.sadd(a.GROUP("group0"), f"article:{t.articles[1]}")


@breaks.found_as("group:<group>", "size")
async def a_groups_size_is_wrong(r: Any, t: Town) -> None:
    await r.zadd(a.GROUPS(), {"news": 40})


@breaks.found_as("groups:", "reference")
async def a_group_without_articles_is_listed(r: Any, t: Town) -> None:
    await r.zadd(a.GROUPS(), {"empty": 3})


@breaks.found_as("articles:<username>:voted", "votes")
async def a_voters_list_has_a_vote_more(r: Any, t: Town) -> None:
    await r.zadd(a.PERSON_VOTES("dora"), {f"article:{t.articles[0]}": 1})


@breaks.found_as("articles:<username>:posted", "author")
async def someone_posted_anothers_article(r: Any, t: Town) -> None:
    await r.zadd(a.PERSON_ARTICLES("dora"), {f"article:{t.articles[0]}": 5})


@breaks.found_as("article:<article>", "ranking")
async def the_last_id_fell(r: Any, t: Town) -> None:
    await r.set(a.ARTICLES_LAST(), 1)


@breaks.found_as("upvoted:<article>", "orphan")
async def votes_without_an_article(r: Any, t: Town) -> None:
    await r.sadd(a.ARTICLE_UP(9999), "user:ana")
