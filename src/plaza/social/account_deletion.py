"""Account deletion, in batches that another process can continue.

1. One command deletes the profile and the credentials and marks the username as being deleted. From then on no one can
   sign in or register with it, and its tokens are revoked.
2. Every domain deletes its personal data. Social runs the ordinary commands in reverse (unlike, unfollow, …), so
   counters and the other users' lists stay correct at every moment.
3. When nothing is left, the mark is removed and the username is free.
"""

from __future__ import annotations

from collections.abc import Mapping

from plaza.core.auth import Actor, Auth
from plaza.core.domain import PersonalData
from plaza.core.functions import Functions
from plaza.core.json_stream import has_content
from plaza.core.security_log import AccountLog
from plaza.social import keys as k
from plaza.social.model import NoProfile
from plaza.social.personal_data import SocialPersonalData

# With more posts than this, the request answers 202 and the worker deletes the rest.
MAX_POSTS_IN_REQUEST = 1_000


class AccountDeletion:
    def __init__(
        self,
        functions: Functions,
        auth: Auth,
        social: SocialPersonalData,
        other_domains: Mapping[str, PersonalData],
        log: AccountLog,
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.auth = auth
        self._social = social
        self._other_domains = other_domains
        self._log = log

    async def delete(self, actor: Actor, name: str, address: str | None = None) -> bool:
        """Delete an account. Return True when nothing is left of it, False if the worker continues."""
        actor.require_self_or_admin(name)
        try:
            posts = await self._begin(name)
        except NoProfile:
            # A user with a token of another issuer can like, vote and buy without a profile.
            if not await self._has_data(name):
                raise
            posts = await self._begin(name, without_profile=True)
        await self.auth.revoke_tokens(name)
        if actor.name == name:  # what an admin deletes is recorded as an admin's action
            await self._log.record(name, "account_deleted", address)
        if posts > MAX_POSTS_IN_REQUEST:
            return False
        await self.finish(name)
        return True

    async def finish(self, name: str) -> None:
        """Delete the data of a marked account in every domain. Social is last: it frees the username."""
        for personal_data in (*self._other_domains.values(), self._social):
            await personal_data.delete(name)

    async def _begin(self, name: str, *, without_profile: bool = False) -> int:
        """Delete profile and credentials and mark the account; return the number of posts to delete."""
        keys = [k.USER(name), k.USER_LEAVING(name), k.USER_POSTS(name), k.USER_RENAMING(name)]
        args = (name, self.auth.revocation_time_ms(name), int(without_profile))
        posts: int = await self.functions.run("social_begin_deletion", keys, *args)
        return posts

    async def _has_data(self, name: str) -> bool:
        """Return whether any domain stores something about a user without a profile."""
        lists = [k.USER_LIKED, k.USER_BOOKMARKED, k.USER_BLOCKED, k.USER_MUTED]
        if any(await self.valkey.batch([("EXISTS", key(name)) for key in lists])):
            return True
        for personal_data in self._other_domains.values():
            if await has_content(await personal_data.export(name)):
                return True
        return False
