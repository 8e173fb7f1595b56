"""Recovery codes, which sign in once each if a second factor is lost. Only their SHA-256 is stored."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from plaza.accounts.model import digest

RECOVERY_CODES: Final = 10
# Without letters and digits that look alike. 24 of 31 are 118 bits, so a fast hash without salt is enough.
_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"
_CHARACTERS: Final = 24


def new_recovery_codes() -> list[str]:
    return ["".join(secrets.choice(_ALPHABET) for _ in range(_CHARACTERS)) for _ in range(RECOVERY_CODES)]


def recovery_digests(codes: Sequence[str]) -> list[str]:
    return [digest(code) for code in codes]
