"""The texts of the demo, from `topics/*.toml`: sentences with slots, and the words for the slots.

The caller's random generator chooses sentences and words, so the same seed gives the same texts. In the small community
each sentence belongs to one user, whatever words are in its slots.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, Final

TOPICS: Final = ("running", "kitchen", "garden", "code", "photo", "books", "music", "cycling", "making", "sky")

TOPIC_COMMENTS_SHARE: Final = 0.25

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its texts."""

    name: str
    tag: str
    bios: tuple[str, ...]
    posts: tuple[str, ...]
    comments: tuple[str, ...]
    articles: tuple[str, ...]
    slots: Mapping[str, Sequence[str]]
    tag_words: Mapping[str, Sequence[str]]  # more tags, and the words that add them to a post

    def post(self, sentence: str, rng: Random) -> str:
        """Return the post made of a sentence, with the topic's tag, tags for its words, or both."""
        text = fill_slots(sentence, self.slots, rng)
        lower = text.lower()
        tags = [tag for tag, words in self.tag_words.items() if any(word in lower for word in words)][:2]
        if not tags or rng.random() < 0.6:
            tags.insert(0, self.tag)
        return f"{text} {' '.join(f'#{tag}' for tag in tags)}"

    def comment(self, rng: Random) -> str:
        """Return a comment on the topic, or more often one on any post: there are many of those."""
        if rng.random() < TOPIC_COMMENTS_SHARE:
            return rng.choice(self.comments)
        general = read_texts("general")
        return f"{rng.choice(general['openings'])}, {rng.choice(general['endings'])}."


def fill_slots(sentence: str, slots: Mapping[str, Sequence[str]], rng: Random) -> str:
    """Return a sentence with words in its slots. A word at the start of a sentence gets a capital letter."""

    def word(slot: re.Match[str]) -> str:
        found = rng.choice(slots[slot[1]])
        first = slot.start() == 0 or sentence[: slot.start()].endswith((". ", "? ", "! "))
        return found[:1].upper() + found[1:] if first else found

    return _SLOT.sub(word, sentence)


@cache
def read_texts(name: str) -> dict[str, Any]:
    """Return the content of a file in `topics/`."""
    return tomllib.loads(files("plaza.demo").joinpath("topics", f"{name}.toml").read_text())


@cache
def topic(name: str) -> Topic:
    words = read_texts(name)
    parts = {part: tuple(words[part]) for part in ("bios", "posts", "comments", "articles")}
    return Topic(name=name, tag=words["tag"], slots=words["slots"], tag_words=words["apt"], **parts)


@cache
def topics() -> tuple[Topic, ...]:
    return tuple(map(topic, TOPICS))
