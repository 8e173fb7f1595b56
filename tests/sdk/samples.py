"""The samples of docs/sdk.md, as programs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "sdk.md"
SHOWN_URL = "http://localhost:8000"


def program(language: str, url: str) -> str:
    """All samples of a language as one program, for a Plaza at this address."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5, "sign in, refresh, retries, pages, events"
    return "\n".join(blocks).replace(SHOWN_URL, url)
