"""Pieces of pages are kept by what they say, in so many bytes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import convert

from plaza.challenges import model as challenges
from plaza.social.model import FeedItem, Post
from plaza.web import challenge_html, post_html
from plaza.web.fragment_cache import Kept

LONGEST = 10_000  # characters of a post


@contextmanager
def holding_at_most(room: int) -> Iterator[None]:
    """What is done inside leaves no more than this in memory."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held <= room


def test_what_is_found_again_is_not_made_again_and_what_nobody_asks_for_is_forgotten() -> None:
    made: list[int] = []

    def make(number: int) -> bytes:
        made.append(number)
        return b"%d" % number * 1_000

    kept = Kept(make, 20_000)
    for number in range(100):
        assert kept[0,] == b"0" * 1_000, "asked for again and again"
        assert kept[number,] == b"%d" % number * 1_000
    assert made == list(range(100))
    assert kept[50,]
    assert made[100:] == [50]
    assert len(kept) < 20, "and as many again, asked for before"


def _encoded(text: str, pair: tuple[str, int]) -> bytes:
    return text.encode()


def test_no_more_is_kept_than_there_is_room_for_however_long_a_piece_is() -> None:
    with holding_at_most(150_000):
        kept = Kept(_encoded, 100_000)
        for number in range(200):
            text = f"{number:03}" + "\U0001f469" * (100 * number)
            assert kept[text, (text, number)] == text.encode()
        del text
    assert kept["again", ("again", 1)] == b"again"


def test_of_a_long_post_in_a_list_only_the_excerpt_is_kept() -> None:
    def item(number: int) -> FeedItem:
        words = dict.fromkeys(("id", "user_id", "username", "display_name", "avatar", "user_role"), f"{number}")
        counts = dict.fromkeys(("created_at", "likesCount", "commentsCount", "bookmarksCount"), number)
        marks = dict.fromkeys(("isLiked", "isBookmarked"), False)
        said: dict[str, object] = {
            "content": f"{number} " + "\U0001f469" * (LONGEST - 10),
            "media_url": None,
            "hashtags": [],
        }
        return FeedItem(convert({**words, **counts, **marks, **said}, Post))

    post_html.cards([item(0)], 0)
    with holding_at_most(1_000_000):  # whole, they would be 4 MB
        for number in range(1, 101):
            assert b"Read on" in post_html.cards([item(number)], 0)


def test_a_piece_is_another_for_another_reader() -> None:
    post = challenges.Post(1, 1, "ana", "Rain, went anyway.", False, 0, 3)
    once, again = (challenge_html.told([post], (), 0, is_open=True) for _ in range(2))
    assert once == again
    assert b"Rain, went anyway." in once
    assert b'aria-pressed="true"' in challenge_html.told([post], {1}, 0, is_open=True)
    assert b"<button" not in challenge_html.told([post], (), 0, is_open=False)
