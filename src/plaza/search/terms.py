"""The terms of a document, as they are indexed.

A term is a folded word, or a name behind a mark: `TAG` or `AUTHOR`. In front of both is the mark of the document's
kind, so that a search for users does not meet the words of a million posts. The marks are characters for private use,
which no word contains. A name is one term, whatever characters it has.
"""

from __future__ import annotations

import re
from typing import Final

from plaza.core.search_source import SearchDocument
from plaza.core.text_folding import fold
from plaza.search.words import is_word_character, words_of

TAG: Final = "\ue001"
AUTHOR: Final = "\ue002"
# A term of no document, for a name that cannot be one.
NOTHING: Final = "\ue003"

# Posts are most of the index, so their terms have no mark.
KIND_MARKS: Final = {
    "posts": "",
    "users": "\ue020",
    "articles": "\ue021",
    "challenges": "\ue022",
    "items": "\ue023",
}
_ANY_KIND_MARK: Final = "".join(KIND_MARKS.values())
_NO_MARKS: Final = dict.fromkeys(map(ord, _ANY_KIND_MARK))
_FIRST_NAMES = re.compile(f"(?:[{_ANY_KIND_MARK}]?[{TAG}-{NOTHING}][^ ]* ?)*")

# Characters of a folded name that are compared. PostgreSQL allows 2,046 bytes per term.
MAX_NAME_TERM_CHARACTERS: Final = 128
# Tags of a document that are indexed, and the characters of each. Another service can write any number.
MAX_TAGS: Final = 100
MAX_TAG_CHARACTERS: Final = 100

# The punctuation of usernames and tags. Databases split words at punctuation.
_PUNCTUATION: Final = {ord("."): "\ue010", ord("_"): "\ue011", ord("-"): "\ue012"}


def is_name(text: str) -> bool:
    """Whether a folded text can be a tag or an author."""
    return text != "" and all(is_word_character(character) or ord(character) in _PUNCTUATION for character in text)


def name_term(kind: str, mark: str, name: str) -> str:
    """Return a tag or an author as one term."""
    folded = fold(name)
    if not is_name(folded):
        return NOTHING
    return KIND_MARKS[kind] + mark + folded.translate(_PUNCTUATION)[:MAX_NAME_TERM_CHARACTERS]


def word_term(kind: str, word: str) -> str:
    """Return a folded word as a term."""
    return KIND_MARKS[kind] + word


def terms_of(kind: str, document: SearchDocument) -> str:
    """Return the terms of a document as one text, separated by spaces."""
    names = [name_term(kind, AUTHOR, document.author)] if document.author else []
    names += [name_term(kind, TAG, tag) for tag in indexed_tags(document)]
    found = [name for name in names if name != NOTHING]
    return " ".join([*found, *(word_term(kind, word) for word in words_of("\n".join(document.texts)))])


def indexed_tags(document: SearchDocument) -> list[str]:
    """Return the tags by which a document is found."""
    short = [tag for tag in document.tags if len(tag) <= MAX_TAG_CHARACTERS]
    return [tag for tag in short if name_term("posts", TAG, tag) != NOTHING][:MAX_TAGS]


def words_in(terms: str) -> list[str]:
    """Return the words in the terms of a document, without marks and names, which come first."""
    words = _FIRST_NAMES.sub("", terms, count=1)
    return (words.translate(_NO_MARKS) if words[:1] in _ANY_KIND_MARK else words).split()
