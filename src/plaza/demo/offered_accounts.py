"""The demo's accounts: usable without a password, or for its admin with a password in the data directory.

A proxy on this machine that adds no headers looks like a local client. So what a client can get without a secret must
not be more than any visitor can get by registering: the admin needs a password.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path

from plaza.core.auth import Auth
from plaza.core.number_parsing import parse_int
from plaza.core.passwords import is_password
from plaza.core.valkey import Valkey
from plaza.demo.admin_password import admin_password
from plaza.demo.users import CommunityUsers, DemoUser
from plaza.sessions.service import Sessions
from plaza.social.keys import AUTH_USER, USER
from plaza.social.password_changes import PasswordChanges
from plaza.web.demo_accounts import DemoAccount


@dataclass(frozen=True, slots=True)
class _StoredAccount:
    user: DemoUser
    display_name: str
    role: str
    password_hash: str | None


class OfferedAccounts:
    """Opens and closes the accounts that the sign-in page offers."""

    def __init__(
        self, valkey: Valkey, auth: Auth, passwords: PasswordChanges, sessions: Sessions, data_dir: Path
    ) -> None:
        self._valkey = valkey
        self._auth = auth
        self._passwords = passwords
        self._sessions = sessions
        self._data_dir = data_dir

    async def without_password(self, since_ms: int) -> list[DemoAccount]:
        """Return the accounts that need no password, in display order. None of them is an admin's. One round trip."""
        return [
            DemoAccount(found.user.username, found.display_name or found.user.username, found.role)
            for found in await self._read(since_ms)
            if found.password_hash is None and found.role != "admin"
        ]

    async def open(self, since_ms: int) -> None:
        """Give the admin the password in the data directory."""
        password = admin_password(self._data_dir)
        for found in await self._read(since_ms):
            if found.user.role == "admin" and not await asyncio.to_thread(is_password, found.password_hash, password):
                await self._passwords.set(found.user.username, password)

    async def close(self, since_ms: int) -> None:
        """End every session and token of these accounts, and give the admin a password that is stored nowhere."""
        for found in await self._read(since_ms):
            name = found.user.username
            if found.user.role == "admin":
                await self._passwords.set(name, secrets.token_urlsafe(32))
            elif found.password_hash is None:
                await self._sessions.sign_out(name)
            else:
                continue  # its user has set a password since
            await self._auth.revoke_tokens(name)

    async def _read(self, since_ms: int) -> list[_StoredAccount]:
        """Return the demo's accounts. A user who took the name of a deleted one is newer than the demo."""
        users = [user for user in CommunityUsers().users if user.offered_at_sign_in]
        profiles = await self._valkey.batch(
            [("HMGET", USER(user.username), "display_name", "role", "created_at") for user in users]
        )
        hashes = await self._valkey.batch([("HGET", AUTH_USER(user.username), "password_hash") for user in users])
        return [
            _StoredAccount(user, shown or "", role, password_hash)
            for user, (shown, role, created), password_hash in zip(users, profiles, hashes, strict=True)
            if role is not None and parse_int(created) < since_ms
        ]
