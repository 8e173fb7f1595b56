"""The audit finds what is wrong, names it, and finds nothing where nothing is."""

from __future__ import annotations

from typing import Any

from plaza.core.auth import API
from plaza.keyspace.audit import Audits
from plaza.social.keys import POST, POST_LIKES
from tests.keyspace.audit.loading import Town


async def test_a_town_where_everything_happened_is_clean(audits: Audits, town: Town) -> None:
    report = await audits.run()
    assert report.clean, report.groups
    assert report.keys > 150


async def test_what_nobody_declared_is_a_finding(audits: Audits, town: Town, stranger: Any) -> None:
    await stranger.set("somebody:elses", "1")
    report = await audits.run()
    (group,) = report.groups
    assert (group.rule, group.examples[0].key) == ("unknown", "somebody:elses")
    assert not report.clean


async def test_a_wrong_type_a_wrong_count_and_a_lifetime_are_told_apart(
    audits: Audits, town: Town, stranger: Any
) -> None:
    first, second, third, _ = town.posts
    await stranger.hset(POST(first), "likesCount", 99)
    await stranger.delete(POST_LIKES(second))
    await stranger.set(POST_LIKES(second), "text")
    await stranger.expire(POST(third), 100)
    found = {(group.family, group.rule) for group in (await audits.run()).groups}
    assert {
        ("post:<post>", "count"),
        ("post:<post>:likes", "type"),
        ("post:<post>", "lifetime"),
    } <= found


async def test_the_last_report_is_kept_for_operators(audits: Audits, town: Town) -> None:
    await audits.run()
    state = await audits.state(API)
    assert state.running is None
    assert state.last is not None
    assert (state.last.state, state.last.clean) == ("done", True)
