"""What the demo's people say, without any server."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from plaza.challenges.model import CATEGORY_NAMES
from plaza.core.tokens import is_username
from plaza.demo.generator import LARGE_COMMUNITY, SMALL_COMMUNITY, CommunityPlan
from plaza.demo.phrases import TOPICS, bank, fill, topic
from plaza.demo.users import CommunityUsers, GeneratedUsers
from plaza.shop.model import NewItem
from plaza.social.hashtags import all_tags
from plaza.social.sync import CommentRecord, FollowRecord, MarkRecord, PostRecord, UserRecord

ANCHOR = 1_790_000_000_000


@pytest.mark.parametrize("name", TOPICS)
def test_every_sentence_can_be_said(name: str) -> None:
    about, dice = topic(name), Random(1)
    for sentence in about.posts:
        said = fill(sentence, about.slots, dice)
        assert "{" not in said
        assert said[0].isupper() or not said[0].isalpha()
    used = {tag for _ in range(300) for tag in all_tags(about.post(dice)[1], [])}
    assert used == {about.tag, *about.apt}, "every tag is earned by something"


def test_every_challenge_has_something_to_tell() -> None:
    words = bank("challenges")
    for _, category, _, _, _, about, creator in words["challenges"]:
        assert about in TOPICS
        assert creator in {person.username for person in CommunityUsers().people}
        for sentence in words["posts"][CATEGORY_NAMES[category - 1]]:
            assert "{" not in fill(sentence, words["slots"], Random(1))


def test_every_item_can_be_sold() -> None:
    for name, price, qty, _, description in bank("shop")["items"]:
        msgspec.convert({"name": name, "description": description, "price": price, "qty": qty}, NewItem)


def test_everybody_has_a_name_of_their_own() -> None:
    crowd = GeneratedUsers(7, 30_000)
    names = {crowd.name(n) for n in range(crowd.size)} | {
        GeneratedUsers(8, 1).name(0),
        *(p.username for p in CommunityUsers().people),
    }
    assert len(names) == crowd.size + 1 + CommunityUsers().size
    assert all(map(is_username, names))
    assert is_username(GeneratedUsers(999_999, 50_000_000).name(49_999_999))


def test_there_is_one_admin_and_somebody_to_switch_to() -> None:
    roles = [person.role for person in CommunityUsers().people if person.switchable]
    assert roles.count("admin") == 1
    assert {"user", "model"} <= set(roles)


def test_the_same_seed_is_the_same_community() -> None:
    first, second = (CommunityPlan("7", GeneratedUsers(7, 500), 1000, ANCHOR, LARGE_COMMUNITY) for _ in range(2))
    assert first.posts_of(3, 100) == second.posts_of(3, 100)
    assert first.follows_of(40, 20) == second.follows_of(40, 20)
    assert first.users_of(0, 9) == second.users_of(0, 9)
    other = CommunityPlan("8", GeneratedUsers(8, 500), 1000, ANCHOR, LARGE_COMMUNITY)
    assert not {s.post.id for s in other.posts_of(3, 100)} & {s.post.id for s in first.posts_of(3, 100)}


def test_what_is_planned_is_what_other_systems_may_send_and_lies_in_the_past() -> None:
    plan = CommunityPlan("community", CommunityUsers(), 190, ANCHOR, SMALL_COMMUNITY)
    users, stories, follows = plan.users_of(0, 99), plan.posts_of(0, 190), plan.follows_of(0, 99)
    likes = [like for story in stories for like in story.likes]
    bookmarks = [mark for story in stories for mark in story.bookmarks]
    comments = [comment for story in stories for comment in story.comments]
    for records, kind in (
        (users, UserRecord), ([s.post for s in stories], PostRecord), (likes, MarkRecord), (bookmarks, MarkRecord),
        (comments, CommentRecord), (follows, FollowRecord),
    ):  # fmt: skip
        assert records
        for record in records:
            assert msgspec.convert(msgspec.to_builtins(record), kind) == record
            assert record.created_at is not None
            assert record.created_at < ANCHOR
    written = {story.post.id: story.post.created_at or 0 for story in stories}
    assert all(written[mark.post_id] <= (mark.created_at or 0) for mark in likes + bookmarks)
    assert not any(follow.follower == follow.following for follow in follows)


def test_a_few_are_followed_by_many() -> None:
    plan = CommunityPlan("7", GeneratedUsers(7, 2000), 0, ANCHOR, LARGE_COMMUNITY)
    followers: dict[str, int] = {}
    for follow in plan.follows_of(0, 2000):
        followers[follow.following] = followers.get(follow.following, 0) + 1
    counts = sorted(followers.values(), reverse=True)
    assert sum(counts[:100]) > 0.15 * sum(counts)  # the first twentieth has far more than a twentieth
    assert counts[0] > 8 * counts[len(counts) // 2]
