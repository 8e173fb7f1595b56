"""Renaming an account: everything that names it gets the new username, in steps that another process can continue.

1. The old username is marked, the new one is reserved, and the old username's tokens are revoked.
2. The profile is copied to the new username.
3. Every other domain moves its personal data. Social moves its own entry by entry, until nothing is left.
4. The new username gets the password: its owner can sign in.
5. The old profile and the marks are deleted.

For a moment a relation exists under both usernames (counters are cardinalities, so they stay right), never under none.
So a run that dies at any point can be continued; the mark beside the old username tells which step is next. Writes that
were on their way to the old username when it was marked are accepted, and the next pass moves them. One renaming runs
at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from msgspec import Struct

from plaza.core.auth import Auth
from plaza.core.clock import Clock
from plaza.core.domain import PersonalData
from plaza.core.errors import Conflict, Invalid, NotFound
from plaza.core.functions import Functions
from plaza.core.leases import Leases
from plaza.core.sequences import pairs_to_dict
from plaza.core.tokens import is_username
from plaza.core.valkey import scan_pages
from plaza.social import keys as k
from plaza.social.former_names import record_former_name
from plaza.social.personal_data import SocialPersonalData
from plaza.social.personal_data_renaming import MOVED_LISTS
from plaza.social.private_fields import PrivateFields

# Keys read at once when searching for an admin's name in bans and suspensions.
SCAN_COUNT = 1_000
# Refresh tokens are not among them: they end.
KEPT_CREDENTIALS = ("password_hash", "synced_hash", "suspended_at", "suspended_by")
# How long a command waits for another renaming to end.
WAIT_SECONDS = 30


class Rename(Struct, frozen=True):
    old: str
    new: str


class RenameIncomplete(Conflict):
    title, code = "Some data could not be renamed", "still_there"


class AccountRenaming:
    def __init__(
        self,
        functions: Functions,
        auth: Auth,
        clock: Clock,
        private: PrivateFields,
        social: SocialPersonalData,
        other_domains: Mapping[str, PersonalData],
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.auth = auth
        self.clock = clock
        self.leases = Leases(functions)
        self._private = private
        self._social = social
        self._other_domains = other_domains

    async def rename(self, old: str, new: str) -> int:
        """Rename an account in every domain; return how many entries social moved.

        A call with the same names continues a renaming that was interrupted. So does a worker.
        """
        for name, field in ((old, "old"), (new, "new")):
            if not is_username(name):
                raise Invalid("must be 1 to 30 of A-Z a-z 0-9 . _ - and not me or AUTH", field=field)
        if old == new:
            raise Invalid("must differ from the old name", field="new")
        async with self.leases.hold("social.renaming", WAIT_SECONDS):
            return await self._run(Rename(old, new))

    async def resume(self) -> int:
        """Continue the renamings whose process died; return how many there were."""
        unfinished = await self.valkey.call("HGETALL", k.USERS_RENAMING())
        for old, new in unfinished.items():
            with contextlib.suppress(Conflict, NotFound):  # the new name was taken before it could be reserved
                await self.rename(old, new)
        return len(unfinished)

    async def _run(self, names: Rename) -> int:
        phase = await self._begin(names)
        if phase != "closing":
            await self._revoke(names)
            await self._copy_profile(names)
        await self._settle_writes(names.old)
        await self._rename_moderator(names)
        moved, idle_passes = 0, 0
        while idle_passes < 2:  # one pass may be idle because a late write to the old name came just after it
            count = await self._move_all(names)
            await self._open_new_account(names)
            await record_former_name(self.functions, names.old, names.new)
            if await self._end(names.old):
                return moved + count
            moved, idle_passes = moved + count, 0 if count else idle_passes + 1
        raise RenameIncomplete(
            f"Some data of {names.old} could not be moved. Run `plaza audit --repair`, then rename again."
        )

    async def _begin(self, names: Rename) -> str:
        """Mark the old username and reserve the new one; return the phase that the renaming is in."""
        old, new = names.old, names.new
        own = [k.USER(old), k.USER_LEAVING(old), k.USER_RENAMING(old)]
        phase: str = await self.functions.run("social_rename_begin", own, old, new, self.clock.now_ms())
        if phase == "begun":
            reserved = [k.USER(new), k.AUTH_USER(new), k.USER_LEAVING(new), k.USER_RENAMING(new)]
            try:
                await self.functions.run("social_rename_reserve", reserved, old)
            except Conflict:
                await self.functions.run("social_rename_cancel", [k.USER_RENAMING(old)], old)
                raise
        return phase

    async def _revoke(self, names: Rename) -> None:
        keys = [k.AUTH_USER(names.old), k.USER_RENAMING(names.old)]
        await self.functions.run("social_rename_revoke", keys, names.old, self.auth.revocation_time_ms(names.old))
        await self.auth.revoke_tokens(names.old)

    async def _copy_profile(self, names: Rename) -> None:
        profile = await self.valkey.call("HGETALL", k.USER(names.old))
        fields = _flatten(await self._moved_profile(names, profile))
        await self.functions.run("social_rename_copy_profile", _profile_keys(names.new), names.new, *fields)

    async def _moved_profile(self, names: Rename, stored: dict[str, str]) -> dict[str, str]:
        """Return a profile for the new username, with its version."""
        profile = self._private.moved(stored, names.old, names.new)
        version = await self.valkey.call("GET", k.USER_VERSION(names.old))
        return profile if version is None else {**profile, "version": version}

    async def _settle_writes(self, old: str) -> None:
        """Wait for what the old username's requests have begun, which would write the old name again."""
        await self.functions.outbox_recovery.wait_until_settled(old)
        await self._social.fanout.remove_deleted_posts()

    async def _open_new_account(self, names: Rename) -> None:
        """Copy the last state of the old profile and the password to the new username."""
        keys = [k.USER_RENAMING(names.old), k.USER(names.old), k.AUTH_USER(names.old)]
        profile, credentials = map(pairs_to_dict, await self.functions.run("social_rename_close", keys))
        kept = {name: credentials[name] for name in KEPT_CREDENTIALS if name in credentials}
        await self.functions.run(
            "social_rename_open_account",
            [*_profile_keys(names.new), k.AUTH_USER(names.new)],
            names.new, len(kept), *_flatten(kept), *_flatten(await self._moved_profile(names, profile)),
        )  # fmt: skip

    async def _end(self, old: str) -> bool:
        first = [k.USER(old), k.AUTH_USER(old), k.USER_RENAMING(old), k.TMP_HOME(old), k.TMP_HOME_STATE(old)]
        rest = [key(old) for key in (*MOVED_LISTS, k.USER_FOLLOWERS, k.USER_FOLLOWING, k.USER_POINTS)]
        return bool(await self.functions.run("social_rename_end", [*first, *rest], old))

    async def _move_all(self, names: Rename) -> int:
        for personal_data in self._other_domains.values():
            await personal_data.rename(names.old, names.new)
        return await self._social.move_all(names.old, names.new)

    async def _rename_moderator(self, names: Rename) -> None:
        """Rename the admin in bans and suspensions. No index leads there, so all posts and users are scanned."""
        for key, field in ((k.POST, "banned_by"), (k.AUTH_USER, "suspended_by")):
            async for hashes in self._scan(key("*")):
                signed = await self.valkey.batch([("HGET", name, field) for name in hashes])
                for name in (name for name, by in zip(hashes, signed, strict=True) if by == names.old):
                    await self.functions.run("social_rename_moderator", [name], field, names.old, names.new)

    async def _scan(self, pattern: str) -> AsyncIterator[list[str]]:
        for node in self.valkey.primaries():
            async for page in scan_pages(node, "SCAN", match=pattern, count=SCAN_COUNT, type="hash"):
                # The star also matches keys with more parts, which are other keys.
                if names := [name for name in page if name.count(":") == pattern.count(":")]:
                    yield names


def _profile_keys(name: str) -> list[str]:
    return [key(name) for key in (k.USER, k.USER_RENAMING, k.USER_POSTS, k.USER_FOLLOWERS, k.USER_FOLLOWING)]


def _flatten(fields: Mapping[str, str]) -> list[str]:
    return [part for field in fields.items() for part in field]
