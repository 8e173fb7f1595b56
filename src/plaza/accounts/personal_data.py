"""Exports, deletes and renames what accounts store about a user."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from plaza.accounts.keys import ACCOUNT_EMAIL, ACCOUNT_IDENTITIES, ACCOUNT_MFA, ADDRESS_USERS, IDENTITY, PASSKEY_USER
from plaza.accounts.model import digest
from plaza.accounts.passkeys import Passkeys
from plaza.accounts.second_factor import SecondFactors
from plaza.accounts.security_log import SqlSecurityLog
from plaza.core.valkey import Valkey

# All keys with a username in their name.
PERSONAL_KEYS: Final = (ACCOUNT_EMAIL, ACCOUNT_MFA, ACCOUNT_IDENTITIES)


class AccountsPersonalData:
    """A user's verified address, second factors and identities at the OpenID provider."""

    def __init__(self, valkey: Valkey, second_factors: SecondFactors, passkeys: Passkeys, log: SqlSecurityLog) -> None:
        self._valkey = valkey
        self._second_factors = second_factors
        self._passkeys = passkeys
        self._log = log

    async def export(self, username: str) -> dict[str, Any]:
        """Return the verified address, the second factors without secrets, and the entries of the security log."""
        fields = await self._valkey.call("HGETALL", ACCOUNT_EMAIL(username))
        status = await self._second_factors.status(username)
        return {
            "verified_email": fields.get("address"),
            "verified_at": fields.get("verified_at"),
            "second_factor": status.totp,
            "passkeys": [msgspec.to_builtins(passkey) for passkey in await self._passkeys.list_all(username)],
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
        for passkey in await self._passkeys.list_all(username):
            await self._valkey.call("DEL", PASSKEY_USER(passkey.id))
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
            for passkey in await self._passkeys.list_all(new):
                await self._valkey.call("SET", PASSKEY_USER(passkey.id), new)
            await self._valkey.call("DEL", ACCOUNT_MFA(old))

    async def _move_identities(self, old: str, new: str) -> None:
        for identity in await self._valkey.call("SMEMBERS", ACCOUNT_IDENTITIES(old)):
            await self._valkey.call("SADD", ACCOUNT_IDENTITIES(new), identity)
            await self._valkey.call("SET", IDENTITY(identity), new)
        await self._valkey.call("DEL", ACCOUNT_IDENTITIES(old))
