"""Roles that an operator gave, which is how the first admin comes to be.

Nobody can make an admin over HTTP before there is one, so the first is made where only the operator is: on the machine,
with `plaza users role`. A role given here is what `plaza token` puts into a token of that name. A role counts by the
token it is in, so a change is felt when the next token is issued, at the latest when the last one expires.
"""

from __future__ import annotations

from typing import cast

from plaza.core.catalogue import ROLES_GIVEN
from plaza.core.errors import Invalid
from plaza.core.tokens import ROLES, Role, is_username
from plaza.core.wire import Valkey


class Roles:
    def __init__(self, valkey: Valkey) -> None:
        self.valkey = valkey

    async def give(self, username: str, role: str) -> Role:
        """From now on tokens for this name carry this role. Gives back the role it had. One round trip."""
        require_username(username)
        if role not in ROLES:
            raise Invalid(f"must be one of {', '.join(ROLES)}", field="role")
        before, _ = await self.valkey.multi(
            [("HGET", ROLES_GIVEN(), username), ("HSET", ROLES_GIVEN(), username, role)]
        )
        return cast(Role, before or "user")

    async def of(self, username: str) -> Role:
        """The role that was given to a name; `user` if none was. One round trip."""
        require_username(username)
        return cast(Role, await self.valkey.call("HGET", ROLES_GIVEN(), username) or "user")


def require_username(username: str) -> None:
    """Refuse a text that cannot be somebody's name."""
    if not is_username(username):
        raise Invalid("must be 1 to 30 of A-Z a-z 0-9 . _ - and not me or AUTH", field="username")
