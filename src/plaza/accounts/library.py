"""The Lua library of accounts."""

from __future__ import annotations

from plaza.accounts.keys import CATALOGUE
from plaza.accounts.model import TOTP_STEPS_AROUND
from plaza.core.functions import Library

LIBRARY = Library.read(
    "accounts",
    CATALOGUE,
    "plaza.accounts.lua",
    "second_factor",
    constants={"TOTP_STEPS_AROUND": TOTP_STEPS_AROUND},
)
