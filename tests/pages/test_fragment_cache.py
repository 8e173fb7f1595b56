"""The fragment cache: entries are found by their content, and their total size is limited."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import convert

from plaza.challenges import model as challenges
from plaza.social.model import FeedItem, Post
from plaza.web import challenge_html, post_html
from plaza.web.fragment_cache import FragmentCache

MAX_POST_CHARACTERS = 10_000


@contextmanager
def allocating_at_most(max_bytes: int) -> Iterator[None]:
    """Fail if the block leaves more than `max_bytes` allocated."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated <= max_bytes


def test_a_used_entry_stays_cached_and_an_unused_one_is_dropped() -> None:
    built: list[int] = []

    def build(number: int) -> bytes:
        built.append(number)
        return b"%d" % number * 1_000

    cache = FragmentCache(build, 20_000)
    for number in range(100):
        assert cache[0,] == b"0" * 1_000, "read on every round"
        assert cache[number,] == b"%d" % number * 1_000
    assert built == list(range(100))
    assert cache[50,]
    assert built[100:] == [50]
    assert len(cache) < 20, "the young half"


def _encoded(text: str, pair: tuple[str, int]) -> bytes:
    return text.encode()


def test_the_size_limit_holds_for_fragments_of_any_length() -> None:
    with allocating_at_most(150_000):
        cache = FragmentCache(_encoded, 100_000)
        for number in range(200):
            text = f"{number:03}" + "\U0001f469" * (100 * number)
            assert cache[text, (text, number)] == text.encode()
        del text
    assert cache["again", ("again", 1)] == b"again"


def test_a_list_caches_only_the_excerpt_of_a_long_post() -> None:
    def item(number: int) -> FeedItem:
        strings = dict.fromkeys(("id", "user_id", "username", "display_name", "avatar", "user_role"), f"{number}")
        counts = dict.fromkeys(("created_at", "likesCount", "commentsCount", "bookmarksCount"), number)
        flags = dict.fromkeys(("isLiked", "isBookmarked"), False)
        content: dict[str, object] = {
            "content": f"{number} " + "\U0001f469" * (MAX_POST_CHARACTERS - 10),
            "media_url": None,
            "hashtags": [],
        }
        return FeedItem(convert({**strings, **counts, **flags, **content}, Post))

    post_html.post_cards([item(0)], 0)
    with allocating_at_most(1_000_000):  # the complete texts would take 4 MB
        for number in range(1, 101):
            assert b"Read more" in post_html.post_cards([item(number)], 0)


def test_readers_in_different_states_get_different_fragments() -> None:
    post = challenges.ChallengePost(1, 1, "ana", "", "Rain, went anyway.", False, 0, 3)
    first, second = (challenge_html.challenge_posts([post], (), 0, is_open=True) for _ in range(2))
    assert first == second
    assert b"Rain, went anyway." in first
    assert b'aria-pressed="true"' in challenge_html.challenge_posts([post], {1}, 0, is_open=True)
    assert b"<button" not in challenge_html.challenge_posts([post], (), 0, is_open=False)
