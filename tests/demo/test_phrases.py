"""The texts and the generated data of the demo, without a server."""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from xml.etree import ElementTree

import msgspec
import pytest

from plaza.challenges.model import CATEGORY_NAMES
from plaza.core.tokens import is_username
from plaza.demo import drawings
from plaza.demo.generator import LARGE_COMMUNITY, SMALL_COMMUNITY, CommunityPlan
from plaza.demo.loader import COMMUNITY_POSTS
from plaza.demo.phrases import TOPICS, fill_slots, read_texts, topic
from plaza.demo.users import CommunityUsers, GeneratedUsers
from plaza.shop.model import NewItem
from plaza.social.hashtags import all_tags
from plaza.social.inbound_sync import CommentRecord, FollowRecord, MarkRecord, PostRecord, UserRecord

ANCHOR = 1_790_000_000_000


@pytest.mark.parametrize("name", TOPICS)
def test_every_sentence_can_be_filled(name: str) -> None:
    about, rng = topic(name), Random(1)
    for sentence in about.posts:
        text = fill_slots(sentence, about.slots, rng)
        assert "{" not in text
        assert text[0].isupper() or not text[0].isalpha()
    used = {tag for _ in range(300) for tag in all_tags(about.post(rng.choice(about.posts), rng), [])}
    assert used == {about.tag, *about.tag_words}, "every tag is used"


def test_every_challenge_has_posts_of_its_category() -> None:
    words = read_texts("challenges")
    for _, category, _, _, _, about, creator, *_ in words["challenges"]:
        assert about in TOPICS
        assert creator in {user.username for user in CommunityUsers().users}
        for sentence in words["posts"][CATEGORY_NAMES[category - 1]]:
            assert "{" not in fill_slots(sentence, words["slots"], Random(1))


def test_every_item_is_valid() -> None:
    for name, price, qty, _, description in read_texts("shop")["items"]:
        msgspec.convert({"name": name, "description": description, "price": price, "qty": qty}, NewItem)


def test_every_user_has_a_unique_username() -> None:
    crowd = GeneratedUsers(7, 30_000)
    names = {crowd.name(n) for n in range(crowd.size)} | {
        GeneratedUsers(8, 1).name(0),
        *(p.username for p in CommunityUsers().users),
    }
    assert len(names) == crowd.size + 1 + CommunityUsers().size
    assert all(map(is_username, names))
    assert is_username(GeneratedUsers(999_999, 50_000_000).name(49_999_999))


def test_the_sign_in_page_offers_one_admin_and_other_roles() -> None:
    roles = [user.role for user in CommunityUsers().users if user.offered_at_sign_in]
    assert roles.count("admin") == 1
    assert {"user", "model"} <= set(roles)


def test_the_same_seed_gives_the_same_community() -> None:
    first, second = (CommunityPlan("7", GeneratedUsers(7, 500), 1000, ANCHOR, LARGE_COMMUNITY) for _ in range(2))
    assert first.generate_posts(3, 100) == second.generate_posts(3, 100)
    assert first.generate_follows(40, 20) == second.generate_follows(40, 20)
    assert first.generate_users(0, 9) == second.generate_users(0, 9)
    other = CommunityPlan("8", GeneratedUsers(8, 500), 1000, ANCHOR, LARGE_COMMUNITY)
    assert not {s.post.id for s in other.generate_posts(3, 100)} & {s.post.id for s in first.generate_posts(3, 100)}


def test_generated_records_are_valid_imports_and_lie_in_the_past() -> None:
    plan = CommunityPlan("community", CommunityUsers(), COMMUNITY_POSTS, ANCHOR, SMALL_COMMUNITY)
    users, items, follows = (
        plan.generate_users(0, 99),
        plan.generate_posts(0, COMMUNITY_POSTS),
        plan.generate_follows(0, 99),
    )
    likes = [like for item in items for like in item.likes]
    bookmarks = [mark for item in items for mark in item.bookmarks]
    comments = [comment for item in items for comment in item.comments]
    for records, kind in (
        (users, UserRecord), ([s.post for s in items], PostRecord), (likes, MarkRecord), (bookmarks, MarkRecord),
        (comments, CommentRecord), (follows, FollowRecord),
    ):  # fmt: skip
        assert records
        for record in records:
            assert msgspec.convert(msgspec.to_builtins(record), kind) == record
            assert record.created_at is not None
            assert record.created_at < ANCHOR
    created = {item.post.id: item.post.created_at or 0 for item in items}
    assert all(created[mark.post_id] <= (mark.created_at or 0) for mark in likes + bookmarks)
    assert not any(follow.follower == follow.following for follow in follows)


def test_no_sentence_of_posts_comments_and_challenges_belongs_to_two_users() -> None:
    users = CommunityUsers()
    plan = CommunityPlan("community", users, COMMUNITY_POSTS, ANCHOR, SMALL_COMMUNITY)
    items = [item for batch in range(6) for item in plan.generate_posts(batch, 25)]  # as they are loaded
    assert len(items) == COMMUNITY_POSTS
    assert len(users.sentences) == COMMUNITY_POSTS, "each is said once"
    texts = [(item.post.username, item.post.content.partition(" #")[0]) for item in items]
    comments = [(comment.username, comment.content) for item in items for comment in item.comments]
    assert len(comments) > 100
    challenges = read_texts("challenges")
    sentences = [sentence for each in challenges["posts"].values() for sentence in each]
    texts += comments + [(users.name(users.speaker(sentence)), sentence) for sentence in sentences]
    said = [(sentence, name) for name, text in texts for sentence in re.split(r"(?<=[.!?])'? ", text)]
    repeated = [sentence for sentence, times in Counter(sentence for sentence, _ in said).items() if times > 1]
    assert repeated == []
    assert all(users.name(users.speaker(text)) == name for name, text in comments), (
        "the simulation gives it to no other user"
    )


def test_a_few_users_have_many_followers() -> None:
    plan = CommunityPlan("7", GeneratedUsers(7, 2000), 0, ANCHOR, LARGE_COMMUNITY)
    followers: dict[str, int] = {}
    for follow in plan.generate_follows(0, 2000):
        followers[follow.following] = followers.get(follow.following, 0) + 1
    counts = sorted(followers.values(), reverse=True)
    assert sum(counts[:100]) > 0.15 * sum(counts)  # 5 % of the users have far more than 5 % of the followers
    assert counts[0] > 8 * counts[len(counts) // 2]


@pytest.mark.parametrize("topic", [*TOPICS, "unknown"])
def test_the_same_seed_draws_the_same_picture_and_another_one_another(topic: str) -> None:
    one, same, other = (drawings.scene(topic, Random(seed)) for seed in ("a", "a", "b"))
    assert one == same != other
    for drawing in (one, drawings.item("Enamel mug", Random("a")), drawings.portrait(Random("a"))):
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
