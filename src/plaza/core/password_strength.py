"""Refuses passwords that are easy to guess: common ones, names, dates, keyboard walks and repetitions (zxcvbn)."""

from __future__ import annotations

from typing import Final

from plaza.core.errors import Invalid

# Guesses that an attacker needs, as a power of ten. Ten tries in ten minutes and argon2 make a million take centuries.
MIN_GUESSES_LOG10: Final = 6
# The estimate takes time that grows with the length. What comes after only makes a password stronger.
MAX_CHARACTERS: Final = 64


class WeakPassword(Invalid):
    title, code = "The password is too easy to guess", "weak_password"


def require_strong(password: str, username: str, field: str) -> None:
    """Raise `WeakPassword` with a hint if a password is easy to guess, also for those who know the username."""
    from zxcvbn import zxcvbn  # its word lists take 50 ms to load, and most processes never need them

    estimate = zxcvbn(password[:MAX_CHARACTERS], user_inputs=[username, "plaza"])
    if estimate["guesses_log10"] >= MIN_GUESSES_LOG10:
        return
    warning = estimate["feedback"]["warning"] or "It is easy to guess"
    raise WeakPassword(f"{warning.rstrip('.')}. Use several uncommon words.", field=field)
