"""Exports, deletes and renames what accounts store about a user."""

from __future__ import annotations

from typing import Any

import msgspec

from plaza.accounts.keys import ACCOUNT_EMAIL, ACCOUNT_IDENTITIES, ACCOUNT_MFA, ADDRESS_USERS, IDENTITY
from plaza.accounts.model import digest
from plaza.accounts.security_log import SqlSecurityLog
from plaza.core.valkey import Valkey


class AccountsPersonalData:
    """A user's verified address, second factor and identities at the OpenID provider."""

    def __init__(self, valkey: Valkey, log: SqlSecurityLog) -> None:
        self._valkey = valkey
        self._log = log

    async def export(self, username: str) -> dict[str, Any]:
        """Return the verified address, whether there is a second factor, and the user's entries of the security log."""
        fields = await self._valkey.call("HGETALL", ACCOUNT_EMAIL(username))
        second_factor = bool(await self._valkey.call("HEXISTS", ACCOUNT_MFA(username), "totp_secret"))
        return {
            "verified_email": fields.get("address"),
            "verified_at": fields.get("verified_at"),
            "second_factor": second_factor,
            "security_log": [msgspec.to_builtins(entry) for entry in await self._log.export(username)],
        }

    async def delete(self, username: str) -> None:
        """Delete all of it, and the name in the security log.

        The index goes first: a second run after a crash still finds it by the hash.
        """
        address = await self._valkey.call("HGET", ACCOUNT_EMAIL(username), "address")
        if address is not None:
            await self._valkey.call("SREM", ADDRESS_USERS(digest(address)), username)
        await self._valkey.call("DEL", ACCOUNT_EMAIL(username))
        await self._valkey.call("DEL", ACCOUNT_MFA(username))
        for identity in await self._valkey.call("SMEMBERS", ACCOUNT_IDENTITIES(username)):
            await self._valkey.call("DEL", IDENTITY(identity))
        await self._valkey.call("DEL", ACCOUNT_IDENTITIES(username))
        await self._log.anonymize(username)

    async def rename(self, old: str, new: str) -> None:
        """Move all of it to a new username. Repeatable."""
        await self._log.rename(old, new)
        await self._move_second_factor(old, new)
        await self._move_identities(old, new)
        fields = await self._valkey.call("HGETALL", ACCOUNT_EMAIL(old))
        if not fields:
            return
        index = ADDRESS_USERS(digest(fields["address"]))
        await self._valkey.call("SADD", index, new)
        await self._valkey.call("HSET", ACCOUNT_EMAIL(new), *(part for pair in fields.items() for part in pair))
        await self._valkey.call("SREM", index, old)
        await self._valkey.call("DEL", ACCOUNT_EMAIL(old))

    async def _move_second_factor(self, old: str, new: str) -> None:
        fields = await self._valkey.call("HGETALL", ACCOUNT_MFA(old))
        if fields:
            await self._valkey.call("HSET", ACCOUNT_MFA(new), *(part for pair in fields.items() for part in pair))
            await self._valkey.call("DEL", ACCOUNT_MFA(old))

    async def _move_identities(self, old: str, new: str) -> None:
        for identity in await self._valkey.call("SMEMBERS", ACCOUNT_IDENTITIES(old)):
            await self._valkey.call("SADD", ACCOUNT_IDENTITIES(new), identity)
            await self._valkey.call("SET", IDENTITY(identity), new)
        await self._valkey.call("DEL", ACCOUNT_IDENTITIES(old))
