"""The roles of users."""

from __future__ import annotations

from typing import Final, Literal, get_args

Role = Literal["user", "model", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
