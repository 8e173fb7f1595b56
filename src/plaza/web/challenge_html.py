"""Challenges and their posts as HTML, from cached fragments (`fragment_cache.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from plaza.challenges.model import CATEGORY_NAMES, Challenge, ChallengeComment, ChallengePost
from plaza.challenges.recommendation.recommender import Recommended
from plaza.web.fragment_cache import cached_fragment
from plaza.web.rendering import render
from plaza.web.text_html import format_age, truncate_text
from plaza.web.visitors import Visitor

# How much of a recommended post is shown.
EXCERPT_CHARACTERS: Final = 700


def challenge_rows(challenges: Iterable[Challenge], joined: Collection[int], today: str) -> bytes:
    """The challenges of a list. `joined` has the ids of those that the visitor is a member of."""
    return b"".join(
        [_cached_row[challenge, challenge.id in joined, challenge.finished_date <= today] for challenge in challenges]
    )


def challenge_posts(
    posts: Iterable[ChallengePost], reacted: Collection[int], now_ms: int, *, is_open: bool, viewer: str = ""
) -> bytes:
    """The posts of a challenge, complete. In a challenge that has ended, they have no reaction button."""
    return b"".join(
        [
            _cached_post[
                post,
                post.text,
                format_age(post.created_at, now_ms),
                post.id in reacted,
                is_open,
                "",
                post.username == viewer,
            ]
            for post in posts
        ]
    )


def comment_rows(
    comments: Iterable[ChallengeComment], post: ChallengePost, visitor: Visitor, now_ms: int, *, is_open: bool
) -> bytes:
    """The comments on a post. Users who may delete a comment get a button for it."""
    is_user = visitor.actor is not None
    return b"".join(
        [
            _cached_comment[
                comment,
                format_age(comment.created_at, now_ms),
                is_user and is_open,
                is_user and comment.username != visitor.name,
                is_user and comment.username == visitor.name,
                is_user and visitor.name in (comment.username, post.username),
                visitor.is_admin and visitor.name not in (comment.username, post.username),
            ]
            for comment in comments
        ]
    )


def recommended_posts(recommendations: Iterable[Recommended], now_ms: int) -> bytes:
    """Recommended posts as excerpts, each with its reason."""
    rows = []
    for recommended in recommendations:
        post = recommended.post
        text = truncate_text(post.text, EXCERPT_CHARACTERS)
        rows.append(
            _cached_post[post, text, format_age(post.created_at, now_ms), False, True, recommended.reason, False]
        )
    return b"".join(rows)


@cached_fragment()
def _cached_post(
    post: ChallengePost, text: str, when: str, reacted: bool, is_open: bool, reason: str, mine: bool
) -> bytes:
    context = {"text": text, "when": when, "reason": reason, "mine": mine}
    return render("challenge-post.html", post=post, reacted=reacted, open=is_open, **context).encode()


@cached_fragment()
def _cached_comment(
    comment: ChallengeComment,
    when: str,
    can_reply: bool,
    can_report: bool,
    can_edit: bool,
    can_delete: bool,
    asks: bool,
) -> bytes:
    rights = {"can_reply": can_reply, "can_report": can_report, "can_edit": can_edit, "can_delete": can_delete}
    rights["asks"] = asks  # an admin is asked before the comment of another user is deleted
    return render("challenge-comment.html", comment=comment, when=when, **rights).encode()


@cached_fragment()
def _cached_row(challenge: Challenge, joined: bool, ended: bool) -> bytes:
    category = CATEGORY_NAMES[challenge.category - 1]
    return render("challenge-row.html", challenge=challenge, category=category, joined=joined, ended=ended).encode()
