"""Where two documented keys contradict each other, one of them decides, and the audit says so.

`docs/other-services.md` lists which one it is.
"""

from __future__ import annotations

from typing import Any

import pytest

from plaza.keyspace.audit import DRY_RUN, REPAIR, Audits
from tests.other_services.every_route import RunningPlaza
from tests.other_services.running import assert_unchanged, content_of, is_documented

# What another service does to the key that follows, and the text of the finding.
Contradiction = tuple[tuple[Any, ...], str]


def contradictions(running: RunningPlaza) -> list[Contradiction]:
    post, article, other = running.community.posts[1], *running.community.articles[:2]
    return [
        (("HSET", f"post:{post}", "likesCount", 99), "likesCount is 99"),
        (("HSET", "user:ana", "followerCount", 99), "followerCount is 99"),
        (("SADD", "user:dora:followers", "eli"), "`user:eli:following` does not have the other side"),
        (("SADD", f"post:{post}:bookmarks", "dora"), "`user:dora:bookmarked` does not have the other side"),
        (("ZADD", "users:models", 5, "dora"), "has dora, whose role is user"),
        (("ZINCRBY", "models:top:engagement", 7, "ben"), "the leaderboard has"),
        (("ZADD", "explore:feed", 5, post), f"has {post} at 5, but was created at"),
        (("ZADD", "hashtag:tea:posts", 5, post), "which does not have the hashtag"),
        (("HSET", f"article:{article}", "votes", 99), "`votes` is 99"),
        (("SADD", f"downvoted:{article}", "user:ana"), "has user:ana, which is also in the other vote set"),
        (("ZADD", "time:", 5, f"article:{other}"), "its score in `time:` is 5"),
        (("SREM", "dora_liked_posts", running.community.challenge_posts[0]), "for dora, but the SQL tables give"),
        (("HSET", "user_contribution", "ana", "9,9,9,9,9"), "9,9,9,9,9 for ana, but the SQL tables give"),
    ]


async def documented_keys(client: Any) -> dict[str, Any]:
    names = sorted(name for name in await client.keys("*") if is_documented(name))
    return {name: await content_of(client, name) for name in names}


@pytest.mark.usefixtures("audit_at_full_speed")
@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_the_deciding_key_stays_and_the_report_names_the_contradiction(
    running: RunningPlaza, redis_client: Any
) -> None:
    client = redis_client
    before = await documented_keys(client)
    expected = contradictions(running)
    for command, _ in expected:
        await client.execute_command(*command)
    report = await running.plaza.get(Audits).run(DRY_RUN)
    findings = [finding for group in report.groups for finding in group.examples]
    said = "\n".join(f"{finding.key} {finding.member} {finding.says}" for finding in findings if finding.repair)
    assert [text for _, text in expected if text not in said] == [], said
    await running.plaza.get(Audits).run(REPAIR)
    assert_unchanged(await documented_keys(client), before)
