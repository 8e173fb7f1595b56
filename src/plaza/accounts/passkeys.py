"""Passkeys: sign-in by a device that verifies its user, without a password or besides it (WebAuthn)."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from plaza.accounts.keys import ACCOUNT_MFA, PASSKEY_USER
from plaza.accounts.model import Passkey, PasskeyAdded, PasskeyKnown, PasskeyPage, TooManyPasskeys
from plaza.accounts.passkey_challenges import PasskeyChallenges
from plaza.accounts.recovery_codes import new_recovery_codes, recovery_digests
from plaza.accounts.relying_party import RelyingParty
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.domain import InvalidPasskey
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page, ids_in_memory, page_by_position
from plaza.core.passkey_credentials import NewPasskeyCredential, PasskeyCredential

MAX_PASSKEYS: Final = 20
# The standard's largest: it must not identify the user to others, so it is random.
USER_HANDLE_BYTES: Final = 64
_FIELD: Final = "passkey:"


class StoredPasskey(msgspec.Struct):
    """What is stored of a passkey. Its public key is no secret. Times are Unix milliseconds."""

    name: str
    credential_id: str  # base64url
    public_key: str  # base64url
    sign_count: int
    created_at: int
    last_used_at: int | None = None
    backed_up: bool = False


class PasskeySignIn(msgspec.Struct, frozen=True):
    """A user who proved to have a passkey."""

    username: str
    passkey: str


class Passkeys:
    """Registers, lists and removes passkeys, and checks sign-ins with them."""

    def __init__(
        self, functions: Functions, challenges: PasskeyChallenges, relying_party: RelyingParty, clock: Clock
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._challenges = challenges
        self.relying_party = relying_party
        self._clock = clock

    async def registration_options(self, actor: Actor) -> dict[str, Any]:
        """Return what a browser needs to make a passkey for the caller. Two round trips."""
        self._require_usable()
        new_handle = _to_base64(secrets.token_bytes(USER_HANDLE_BYTES))
        handle = await self._functions.run("accounts_user_handle", [ACCOUNT_MFA(actor.name)], new_handle)
        known = [_from_base64(stored.credential_id) for stored in (await self._read(actor.name)).values()]
        challenge = self._challenges.issue("register", actor.name)
        return self.relying_party.registration_options(actor.name, _from_base64(handle), challenge, known)

    async def register(self, actor: Actor, name: str, credential: NewPasskeyCredential) -> PasskeyAdded:
        """Store a new passkey of the caller. Three round trips. The first second factor also gets recovery codes."""
        client_data = credential.response.clientDataJSON
        challenge = self._challenges.require_issued(client_data, "register", actor.name)
        new = self.relying_party.verify_new(credential, challenge)
        await self._challenges.spend(challenge)
        id = passkey_id(new.credential_id)
        stored = StoredPasskey(
            name,
            _to_base64(new.credential_id),
            _to_base64(new.public_key),
            new.sign_count,
            self._clock.now_ms(),
            backed_up=new.backed_up,
        )
        codes = await self._store(actor.name, id, stored)
        return PasskeyAdded(id, name, stored.created_at, None, new.backed_up, codes)

    async def _store(self, username: str, id: str, stored: StoredPasskey) -> list[str] | None:
        """Store a passkey and its index. Returns recovery codes if there were none."""
        # The index first: an entry without its passkey is ignored, a passkey without its entry could not sign in.
        owner = await self._valkey.call("SET", PASSKEY_USER(id), username, "NX", "GET")
        if owner is not None:
            raise PasskeyKnown
        codes = new_recovery_codes()
        passkey, digests = msgspec.json.encode(stored), recovery_digests(codes)
        keys = [ACCOUNT_MFA(username)]
        reply = await self._functions.run("accounts_add_passkey", keys, id, passkey, MAX_PASSKEYS, *digests)
        if reply == "full":
            await self._valkey.call("DEL", PASSKEY_USER(id))
            raise TooManyPasskeys(f"An account has at most {MAX_PASSKEYS} passkeys. Remove one first.")
        return codes if reply == "recovery" else None

    async def list_all(self, username: str) -> list[Passkey]:
        """Return a user's passkeys, newest first. One round trip."""
        found = [_shown(id, stored) for id, stored in (await self._read(username)).items()]
        return sorted(found, key=lambda passkey: (-passkey.created_at, passkey.id))

    async def page(self, actor: Actor, page: Page) -> PasskeyPage:
        """Return a page of the caller's passkeys, newest first. One round trip."""
        own = {passkey.id: passkey for passkey in await self.list_all(actor.name)}

        async def load(ids: Sequence[str]) -> list[Passkey | None]:
            return [own[id] for id in ids]

        name, rows = f"passkeys of {actor.name}", [(passkey.id, passkey.created_at) for passkey in own.values()]
        paged = await page_by_position(name, page, ids_in_memory(name, rows), load)
        return PasskeyPage(paged.items, paged.pagination)

    async def rename(self, actor: Actor, id: str, name: str) -> Passkey:
        """Rename one of the caller's passkeys. One round trip."""
        reply = await self._functions.run("accounts_rename_passkey", [ACCOUNT_MFA(actor.name)], id, name)
        if not reply:
            raise _no_passkey(id)
        return _shown(id, msgspec.json.decode(reply, type=StoredPasskey))

    async def remove(self, actor: Actor, id: str) -> None:
        """Remove one of the caller's passkeys. Two round trips."""
        if not await self._functions.run("accounts_remove_passkey", [ACCOUNT_MFA(actor.name)], id):
            raise _no_passkey(id)
        await self._valkey.call("DEL", PASSKEY_USER(id))

    def sign_in_options(self) -> dict[str, Any]:
        """Return what a browser needs to sign in with a passkey. No I/O: it reveals nothing about accounts."""
        self._require_usable()
        return self.relying_party.sign_in_options(self._challenges.issue("sign_in"))

    async def verify(self, credential: PasskeyCredential, username: str | None = None) -> PasskeySignIn:
        """Return the user of a passkey that answered a challenge; `InvalidPasskey` if anything is wrong.

        With `username`, only a passkey of that user counts. Four round trips.
        """
        challenge = self._challenges.require_issued(credential.response.clientDataJSON, "sign_in")
        id = passkey_id(_from_base64(credential.rawId))
        owner = await self._valkey.call("GET", PASSKEY_USER(id))
        if owner is None or (username is not None and owner != username):
            raise InvalidPasskey
        stored, handle = await self._read_one(owner, id)
        # Some authenticators leave the handle out. If it is there, it must be the user's.
        given = credential.response.userHandle
        if stored is None or (given is not None and given.rstrip("=") != handle):
            raise InvalidPasskey
        count = self.relying_party.verify(credential, challenge, _from_base64(stored.public_key), stored.sign_count)
        await self._challenges.spend(challenge)
        args = (id, count, self._clock.now_ms())
        if not await self._functions.run("accounts_use_passkey", [ACCOUNT_MFA(owner)], *args):
            raise InvalidPasskey
        return PasskeySignIn(owner, stored.name)

    async def _read(self, username: str) -> dict[str, StoredPasskey]:
        """Return a user's passkeys by id."""
        fields = await self._valkey.call("HGETALL", ACCOUNT_MFA(username))
        found = {}
        for field, value in fields.items():
            if field.startswith(_FIELD):
                found[field.removeprefix(_FIELD)] = msgspec.json.decode(value, type=StoredPasskey)
        return found

    async def _read_one(self, username: str, id: str) -> tuple[StoredPasskey | None, str | None]:
        """Return a passkey and the id by which authenticators know its user. One round trip."""
        value, handle = await self._valkey.call("HMGET", ACCOUNT_MFA(username), _FIELD + id, "user_handle")
        return None if value is None else msgspec.json.decode(value, type=StoredPasskey), handle

    def _require_usable(self) -> None:
        if not self.relying_party.is_usable:
            raise NotFound("Passkeys need an https address with a domain name. Set PLAZA_PUBLIC_URL.")


def passkey_id(credential_id: bytes) -> str:
    """Return the id of a passkey: the SHA-256 of the authenticator's id, which may have a thousand bytes."""
    return hashlib.sha256(credential_id).hexdigest()


def _shown(id: str, stored: StoredPasskey) -> Passkey:
    return Passkey(id, stored.name, stored.created_at, stored.last_used_at, stored.backed_up)


def _no_passkey(id: str) -> NotFound:
    return NotFound("You have no passkey with this id.", id=id)


def _to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
