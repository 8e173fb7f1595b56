"""The ids of rows: any value with a text, which is percent-encoded in keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from plaza.caching.keys import ITEM
from plaza.caching.row_store import LoadRows, RowData

_TEXT: Final = re.compile(ITEM)
# Most ids need no encoding.
_PLAIN: Final = re.compile(ITEM.replace("%", ""))


class RowIds:
    """Turns ids into texts and back. `parse` makes an id of its text: `int`, `UUID`, or `str`, the default."""

    def __init__(self, parse: Callable[[str], Any] = str) -> None:
        self._parse = parse

    def text(self, id: Hashable) -> str:
        """Return the text of an id that keys contain."""
        text = str(id)
        if _PLAIN.fullmatch(text):
            return text
        text = quote(text, safe="")
        if not _TEXT.fullmatch(text):
            raise ValueError("Invalid row id. Use one with 1 to 200 characters, of which others than ASCII count more.")
        return text

    def is_text(self, text: str) -> bool:
        """Return whether a text is that of an id. Other services may write what is none."""
        if not _TEXT.fullmatch(text):
            return False
        try:
            self._parse(unquote(text))
        except (ValueError, TypeError):
            return False
        return True

    def loading_by_text(self, load: LoadRows) -> LoadRows:
        """Return a function that loads rows by the texts of their ids."""

        async def load_by_text(texts: Sequence[str]) -> Mapping[str, RowData]:
            rows = await load([self._parse(unquote(text)) for text in texts])
            return {self.text(id): row for id, row in rows.items()}

        return load_by_text
