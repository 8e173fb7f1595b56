"""A key is declared once; its names in Python, Lua, the documents and on a cluster agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaza.core.keyspace import Catalogue, CountField, Key, Layout, join_catalogues, use_layout
from tests.servers import Server

LIKES = Key(
    "post:<post>:likes",
    "set",
    "Who likes it.",
    contains="username",
    owner="post",
    invariants=(CountField("post:<post>", "n"),),
)
FEED = Key("explore:feed", "zset", "All posts.", contains="post", score="created at")
SCORE = Key("score:", "zset", "Articles by score.", contains="article", score="score")
SCORE_GROUP = Key("score:<group>", "zset", "A group's articles.", contains="article", score="score", owner="group")
VIEWING = Key("<event>#<session>#<location>#Start", "zset", "Starts.", contains="user", score="ms", owner="event")
VIEWING_BARE = Key("<event>#<location>#Start", "zset", "Starts.", contains="user", score="ms", owner="event")
LIKED = Key("<user>_liked_posts", "set", "Liked.", contains="post", owner="user")
SHAPES = {
    "post": "[0-9a-f-]{36}",
    "group": "[a-z]+",
    "event": "[^#]+",
    "session": "[^#]+",
    "location": "[^#]+",
    "user": r"[\w.-]{1,30}",
}
CATALOGUE = Catalogue.from_module("test", globals(), SHAPES)
POST = "550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture(params=list(Layout))
def layout(request: pytest.FixtureRequest) -> Iterator[Layout]:
    use_layout(request.param)
    yield request.param
    use_layout(Layout.PLAIN)


def test_a_plain_name_is_documented_and_a_cluster_name_has_braces() -> None:
    assert LIKES.name(Layout.PLAIN, POST) == f"post:{POST}:likes"
    assert LIKES.name(Layout.BRACES, POST) == f"post:{{{POST}}}:likes"
    assert VIEWING.name(Layout.BRACES, "e", "s", "home") == "{e}#s#home#Start"
    assert FEED.name(Layout.BRACES) == FEED.name(Layout.PLAIN) == "explore:feed"


def test_lua_and_python_build_the_same_names(layout: Layout, server: Server) -> None:
    redis_client = server.redis_client()
    for name, key in CATALOGUE:
        parts = [f"p{i}" for i in range(len(key.parts))]
        script = f"{CATALOGUE.lua(layout)}\nreturn key.{name}({', '.join(map(repr, parts))})"
        assert redis_client.eval(script, 0) == key(*parts)


def test_every_name_matches_its_family_and_parts(layout: Layout) -> None:
    for key, parts in [
        (LIKES, (POST,)),
        (FEED, ()),
        (SCORE, ()),
        (SCORE_GROUP, ("news",)),
        (VIEWING, ("e1", "s1", "home")),
        (VIEWING_BARE, ("e1", "home")),
        (LIKED, ("a_liked_posts",)),
    ]:
        match = CATALOGUE.match(key(*parts))
        assert match is not None
        assert (match.key, match.parts) == (key, parts)


@given(st.text(max_size=60))
def test_a_matched_name_can_be_built_again_and_others_are_unknown(name: str) -> None:
    match = CATALOGUE.match(name, Layout.PLAIN)
    assert match is None or match.key.name(Layout.PLAIN, *match.parts) == name


def test_joining_catalogues_fails_on_two_keys_of_one_name() -> None:
    other = Catalogue("other", {"likes": Key("x:<post>", "set", "Something else.")}, {"post": SHAPES["post"]})
    with pytest.raises(AssertionError, match="likes"):
        join_catalogues([CATALOGUE, other])
    with pytest.raises(AssertionError, match="post"):
        join_catalogues([CATALOGUE, Catalogue("other", {}, {"post": "[0-9]+"})])


def test_an_owner_must_be_a_part_of_the_pattern() -> None:
    with pytest.raises(AssertionError, match="no part user"):
        Key("post:<post>", "hash", "A post.", owner="user")
