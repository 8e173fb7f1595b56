"""The terms of a document, as they are indexed.

A term is a folded word, or a name behind a mark: `KIND`, `TAG` or `AUTHOR`. The marks are characters for private use,
which no word contains, so a word never matches a tag. A name is one term, whatever characters it has.
"""

from __future__ import annotations

from typing import Final

from plaza.core.search_source import SearchDocument
from plaza.search.words import fold, is_word_character, words_of

KIND: Final = "\ue000"
TAG: Final = "\ue001"
AUTHOR: Final = "\ue002"
# A term of no document, for a name that cannot be one.
NOTHING: Final = "\ue003"

# The punctuation of usernames and tags. Databases split words at punctuation.
_PUNCTUATION: Final = {ord("."): "\ue010", ord("_"): "\ue011", ord("-"): "\ue012"}


def marked(mark: str, name: str) -> str:
    """Return a name as one term."""
    term = fold(name).translate(_PUNCTUATION)
    if not all(is_word_character(character) or character in _PUNCTUATION.values() for character in term):
        return NOTHING
    return mark + term


def terms_of(kind: str, document: SearchDocument) -> str:
    """Return the terms of a document as one text, separated by spaces."""
    terms = [marked(KIND, kind)]
    if document.author:
        terms.append(marked(AUTHOR, document.author))
    terms += [marked(TAG, tag) for tag in document.tags]
    return " ".join([*terms, *words_of("\n".join(document.texts))])


def words_in(terms: str) -> list[str]:
    """Return the words in the terms of a document, without names."""
    return [term for term in terms.split(" ") if not KIND <= term[:1] <= NOTHING]
