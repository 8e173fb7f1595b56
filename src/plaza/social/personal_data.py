"""What social stores about a user: export it, delete it, move it to a new username.

`AccountDeletion` and `AccountRenaming` call this after the account is closed for other writers, together with the
personal data of the other domains.
"""

from __future__ import annotations

from typing import Any, Final

from plaza.core.functions import Functions
from plaza.social import keys
from plaza.social.comments import Comments
from plaza.social.home_feed_updates import HomeFeedUpdates
from plaza.social.personal_data_deletion import SocialDataDeletion
from plaza.social.personal_data_export import SocialDataExport
from plaza.social.personal_data_renaming import SocialDataRenaming
from plaza.social.private_fields import PrivateFields

# All keys with a username in their name.
PERSONAL_KEYS: Final = (
    keys.USER,
    keys.USER_POSTS,
    keys.USER_FOLLOWERS,
    keys.USER_FOLLOWING,
    keys.USER_BOOKMARKED,
    keys.USER_FOLLOWERS_RECENT,
    keys.USER_FOLLOWING_RECENT,
    keys.USER_LIKED,
    keys.USER_COMMENTS,
    keys.USER_BLOCKED,
    keys.USER_BLOCKED_BY,
    keys.USER_MUTED,
    keys.USER_MUTED_BY,
    keys.USER_POINTS,
    keys.USER_VERSION,
    keys.USER_LEAVING,
    keys.USER_RENAMING,
    keys.AUTH_USER,
    keys.TMP_HOME,
    keys.TMP_HOME_STATE,
)


class SocialPersonalData:
    """Social's part of the export, deletion and renaming of an account."""

    def __init__(
        self, functions: Functions, comments: Comments, fanout: HomeFeedUpdates, private: PrivateFields
    ) -> None:
        self.posts = comments.posts
        self.fanout = fanout
        self._export = SocialDataExport(functions.valkey, private)
        self._deletion = SocialDataDeletion(functions, comments, fanout)
        self._renaming = SocialDataRenaming(functions, comments.clock)

    async def export(self, username: str) -> dict[str, Any]:
        """Return what social stores about a user."""
        return await self._export.export(username)

    async def delete(self, username: str) -> None:
        """Undo everything a user did, then free the username. The account must be marked as being deleted."""
        await self._deletion.delete(username)

    async def rename(self, old: str, new: str) -> None:
        """Move every entry that names the old username. Entries written meanwhile need another call."""
        await self.move_all(old, new)

    async def move_all(self, old: str, new: str) -> int:
        """Move every entry that names the old username; return how many there were."""
        return await self._renaming.move_all(old, new)
