"""`PLAZA_REQUIRE_ADMIN_MFA`: admins use their rights only while their account has a second factor.

The account decides, not the token: a token from before the setting or before the second factor is treated as any other,
and one that is removed ends the rights at the next request. API keys need none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from plaza.core.auth import Actor

# Whether a user has a second factor.
HasSecondFactor = Callable[[str], Awaitable[bool]]


class AdminMfa:
    """Withholds the rights of admins without a second factor. Without a check it changes nothing."""

    def __init__(self, has_second_factor: HasSecondFactor | None = None) -> None:
        self._has_second_factor = has_second_factor

    async def restrict(self, actor: Actor | None) -> Actor | None:
        """Return the actor, marked if the rights are withheld. No round trip if it is cached, else one."""
        if self._has_second_factor is None or actor is None or not actor.is_admin or actor.via_key:
            return actor
        return actor if await self._has_second_factor(actor.name) else replace(actor, lacks_mfa=True)
