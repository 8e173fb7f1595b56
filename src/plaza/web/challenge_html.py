"""Challenges and what their members tell as HTML, in pieces that are kept (`keeping.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from plaza.challenges.model import CATEGORY_NAMES, Challenge, Post
from plaza.challenges.recommendation.recommender import Recommended
from plaza.web.fragment_cache import kept
from plaza.web.rendering import render
from plaza.web.text_html import ago, cut

# How much of a post is shown among what is recommended, in characters.
EXCERPT: Final = 700


def rows(challenges: Iterable[Challenge], joined: Collection[int], today: str) -> bytes:
    """The challenges of a page."""
    return b"".join([_row[each, each.id in joined, each.finished_date <= today] for each in challenges])


def told(posts: Iterable[Post], reacted: Collection[int], now_ms: int, *, is_open: bool) -> bytes:
    """What is told in a challenge, whole. To what is told in one that has ended nobody reacts."""
    return b"".join(
        [_told[post, post.text, ago(post.created_at, now_ms), post.id in reacted, is_open, ""] for post in posts]
    )


def recommended(found: Iterable[Recommended], now_ms: int) -> bytes:
    """What is told elsewhere, and why the reader sees it."""
    made = []
    for each in found:
        post = each.post
        made.append(_told[post, cut(post.text, EXCERPT), ago(post.created_at, now_ms), False, True, each.reason])
    return b"".join(made)


@kept()
def _told(post: Post, text: str, when: str, reacted: bool, is_open: bool, reason: str) -> bytes:
    said = {"text": text, "when": when, "reason": reason}
    return render("told.html", post=post, reacted=reacted, open=is_open, **said).encode()


@kept()
def _row(challenge: Challenge, joined: bool, ended: bool) -> bytes:
    category = CATEGORY_NAMES[challenge.category - 1]
    return render("challenge-row.html", challenge=challenge, category=category, joined=joined, ended=ended).encode()
