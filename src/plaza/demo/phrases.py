"""What people here say, written by hand in `topics/*.toml`: sentences with gaps, and what may stand in the gaps.

A sentence is chosen and filled in by dice that the caller holds, so that the same dice say the same thing. Ten subjects
with a dozen sentences each and six words for every gap are enough that a hundred posts never sound alike, and a million
seldom.
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

_GAP = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Topic:
    """What people who care about one thing talk about."""

    name: str
    tag: str
    bios: tuple[str, ...]
    posts: tuple[str, ...]
    comments: tuple[str, ...]
    articles: tuple[str, ...]
    slots: Mapping[str, Sequence[str]]
    apt: Mapping[str, Sequence[str]]  # further tags, and the words by which a post earns them

    def post(self, dice: Random) -> tuple[str, str]:
        """A sentence, and the post that became of it: with the topic's tag, one that its words earn, or both."""
        sentence = dice.choice(self.posts)
        text = fill(sentence, self.slots, dice)
        said = text.lower()
        tags = [tag for tag, words in self.apt.items() if any(word in said for word in words)][:2]
        if not tags or dice.random() < 0.6:
            tags.insert(0, self.tag)
        return sentence, f"{text} {' '.join(f'#{tag}' for tag in tags)}"

    def comment(self, dice: Random) -> str:
        general = dice.random() < 0.5
        said: str = dice.choice(bank("general")["comments"] if general else self.comments)
        return said


def fill(sentence: str, slots: Mapping[str, Sequence[str]], dice: Random) -> str:
    """A sentence with its gaps filled in. Where one stands first, its word begins with a capital."""

    def word(gap: re.Match[str]) -> str:
        found = dice.choice(slots[gap[1]])
        first = gap.start() == 0 or sentence[: gap.start()].endswith((". ", "? ", "! "))
        return found[:1].upper() + found[1:] if first else found

    return _GAP.sub(word, sentence)


@cache
def bank(name: str) -> dict[str, Any]:
    """One of the files of words."""
    return tomllib.loads(files("plaza.demo").joinpath("topics", f"{name}.toml").read_text())


@cache
def topic(name: str) -> Topic:
    words = bank(name)
    parts = {part: tuple(words[part]) for part in ("bios", "posts", "comments", "articles")}
    return Topic(name=name, tag=words["tag"], slots=words["slots"], apt=words["apt"], **parts)


@cache
def topics() -> tuple[Topic, ...]:
    return tuple(map(topic, TOPICS))
