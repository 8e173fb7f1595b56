"""Parses what a user types: words, `"phrases"`, `-not`, `#tag`, `from:name`.

Every text is a valid query. A part that does not follow the syntax, such as a single quotation mark or `#a#b`, is read
as words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from plaza.core.text_folding import fold
from plaza.search.terms import is_name
from plaza.search.words import is_unspaced, words_of

MAX_QUERY_CHARACTERS: Final = 100
# Conditions of one query, so that a text of single characters stays cheap.
MAX_CONDITIONS: Final = 16
# How often a word is used in one query. The databases read the list of a word's documents once for each use of it.
MAX_USES: Final = 3
# A shorter word must match as it is: `a*` would match every tenth document.
MIN_PREFIX_CHARACTERS: Final = 2
# Letters of a beginning that few enough documents have. A syllable of Hangul has two or three: `한국` finds `한국은`.
MIN_RARE_PREFIX_LETTERS: Final = 3

_PARTS = re.compile(r'-?"[^"]*"|\S+')
# What keyboards write instead of `"` and `#`, each one character.
SIGNS: Final = str.maketrans(dict.fromkeys("“”„‟«»＂", '"') | {"＃": "#"})


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that follow each other. The last one may be the beginning of a longer word."""

    words: tuple[str, ...]
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions of a search. All must hold; the order of words does not matter."""

    phrases: tuple[Phrase, ...] = ()
    excluded: tuple[Phrase, ...] = ()
    tags: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    excluded_tags: tuple[str, ...] = ()
    excluded_authors: tuple[str, ...] = ()
    text: str = field(default="", compare=False)  # what was typed

    @property
    def is_empty(self) -> bool:
        """Whether nothing is searched for. A query of exclusions alone is empty."""
        return not (self.phrases or self.tags or self.authors)

    def exact(self) -> Query:
        """Return the query for whole words only."""
        return replace(self, phrases=tuple(replace(phrase, is_prefix=False) for phrase in self.phrases))

    def without_short_prefixes(self) -> Query:
        """Return the query in which short words must match as they are."""
        phrases = (replace(each, is_prefix=each.is_prefix and _is_rare(each.words[-1])) for each in self.phrases)
        return replace(self, phrases=tuple(phrases))

    def without_authors(self, names: Iterable[str]) -> Query:
        """Return the query for what others wrote. Usernames that differ in case only are taken for one."""
        return replace(self, excluded_authors=(*self.excluded_authors, *filter(is_name, map(fold, sorted(names)))))

    @property
    def name(self) -> str:
        """What was typed if it can be the beginning of a name: nothing but words, the last one not quoted."""
        only_words = self == Query(self.phrases) and self.phrases and self.phrases[-1].is_prefix
        return " ".join(self.text.removeprefix("@").split()) if only_words else ""

    @property
    def has_prefixes(self) -> bool:
        return any(phrase.is_prefix for phrase in self.phrases)

    @property
    def words(self) -> list[str]:
        """The words that a result contains, or their beginnings."""
        return [word for phrase in self.phrases for word in phrase.words]

    @property
    def unspaced_texts(self) -> list[str]:
        """What the phrases have of scripts without spaces, where each character is a word."""
        parts = (part for phrase in self.phrases for part in groupby(phrase.words, is_unspaced))
        return ["".join(words) for unspaced, words in parts if unspaced]

    @property
    def beginnings(self) -> tuple[str, ...]:
        """The words that may be the beginnings of longer ones."""
        return tuple(phrase.words[-1] for phrase in self.phrases if phrase.is_prefix)


def _is_rare(beginning: str) -> bool:
    return len(unicodedata.normalize("NFD", beginning)) >= MIN_RARE_PREFIX_LETTERS


def parse_query(text: str) -> Query:
    """Return the query of a text. Text beyond `MAX_QUERY_CHARACTERS` is ignored."""
    uses: Counter[str] = Counter()
    wanted, excluded = _Conditions(uses), _Conditions(uses)
    for part in _PARTS.findall(text.translate(SIGNS)[:MAX_QUERY_CHARACTERS])[:MAX_CONDITIONS]:
        if part.startswith("-") and len(part) > 1:
            excluded.add(part[1:], prefixes=False)
        else:
            wanted.add(part, prefixes=True)
    return Query(
        tuple(dict.fromkeys(wanted.phrases)),
        tuple(dict.fromkeys(excluded.phrases)),
        tuple(wanted.tags),
        tuple(wanted.authors),
        tuple(excluded.tags),
        tuple(excluded.authors),
        text,
    )


@dataclass(slots=True)
class _Conditions:
    uses: Counter[str]
    phrases: list[Phrase] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    authors: list[str] = field(default_factory=list)

    def add(self, part: str, *, prefixes: bool) -> None:
        """Read one part of a query."""
        if part.startswith("#") and is_name(tag := fold(part[1:])):
            self.tags.append(tag)
        elif part[:5].casefold() == "from:" and is_name(name := fold(part[5:].removeprefix("@"))):
            self.authors.append(name)
        else:
            self.phrases += _phrases(part, self.uses, prefixes=prefixes)


def _phrases(part: str, uses: Counter[str], *, prefixes: bool) -> list[Phrase]:
    """Return the phrase of one part: `"…"`, a word, or words that follow each other such as `well-known`."""
    words = tuple(_first_uses(words_of(part), uses))
    if not words:
        return []
    quoted = len(part) > 1 and part.startswith('"') and part.endswith('"')
    last = words[-1]
    is_prefix = prefixes and not quoted and len(last) >= MIN_PREFIX_CHARACTERS and not is_unspaced(last)
    return [Phrase(words, is_prefix)]


def _first_uses(words: Iterable[str], uses: Counter[str]) -> Iterator[str]:
    """Yield words up to one that the query has used `MAX_USES` times, and count them."""
    for word in words:
        if uses[word] >= MAX_USES:
            return
        uses[word] += 1
        yield word
