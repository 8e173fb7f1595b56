"""Patterns of texts that users write."""

from __future__ import annotations

from typing import Final

from plaza.core.tokens import USERNAME
from plaza.core.validation_messages import described_pattern

# Line breaks and tabs are allowed in longer texts.
CONTROL: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
# Spaces and zero-width characters.
_INVISIBLE: Final = r"\s\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"

# A message belongs to a pattern, so all domains share this one.
USERNAME_PATTERN: Final = described_pattern("A username has 1 to 30 of A-Z a-z 0-9 . _ -", rf"^{USERNAME}$(?!\n)")

PLAIN_LINE: Final = described_pattern(
    "Must be one line without control characters", r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$(?!\n)"
)
PLAIN_TEXT: Final = described_pattern("Must contain no control characters", rf"^[^{CONTROL}]*$(?!\n)")
VISIBLE_LINE: Final = described_pattern(
    "Must be one line with visible characters and no control characters",
    rf"^(?=.*[^{_INVISIBLE}])[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$(?!\n)",
)
VISIBLE_TEXT: Final = described_pattern(
    "Must contain visible characters and no control characters",
    rf"^(?=[\s\S]*[^{_INVISIBLE}{CONTROL}])[^{CONTROL}]*$(?!\n)",
)
