"""Links of mentions, and avatars: only existing users are linked, a renamed user by the new name.

Texts are rendered once and cached, with a link for everything that may be a username (`text_html.py`), and comments
with a place for the avatar of their author. What exists can change at any time, so it is looked up for each page, all
names of a page in one round trip.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any, Final

from plaza.core.http.responses import Response, as_bytes
from plaza.social.avatars import Avatars
from plaza.social.users import Users
from plaza.web.avatars import avatar
from plaza.web.text_html import user_path

# Names looked up for one page; further mentions are plain text.
MAX_NAMES: Final = 300

# As `text_html` writes it. A user's text cannot contain it: `<` is escaped there.
_LINK: Final = re.compile(rb'<a class="mention" href="[^"]*">@([A-Za-z0-9._-]+)</a>')
# As `avatars.later_avatar` writes it.
_AVATAR: Final = re.compile(rb'<i data-avatar="([^"]*)"></i>')


class MentionLinks:
    """Completes the links of mentions and the avatars in a page."""

    def __init__(self, users: Users, avatars: Avatars) -> None:
        self._users = users
        self._avatars = avatars

    async def complete(self, response: Response[Any]) -> Response[Any]:
        """Link existing users only, and show avatars. One round trip if the page mentions anyone, else none."""
        if response.body is not None:
            html = await self._with_avatars(as_bytes(response.body))
            names = list(dict.fromkeys(name.decode() for name in _LINK.findall(html)))[:MAX_NAMES]
            response.body = html if not names else await self._with_links(html, names)
        return response

    async def _with_avatars(self, html: bytes) -> bytes:
        names = {name.decode() for name in _AVATAR.findall(html)}
        if not names:
            return html
        addresses = await self._avatars.addresses(map(unescape, names))

        def show(match: re.Match[bytes]) -> bytes:
            name = unescape(match[1].decode())
            return avatar(name, addresses[name]).encode()

        return _AVATAR.sub(show, html)

    async def _with_links(self, html: bytes, names: list[str]) -> bytes:
        current = await self._users.current_names(names)

        def link(match: re.Match[bytes]) -> bytes:
            name = match[1].decode()
            if name not in current:
                return b"@" + match[1]
            return f'<a class="mention" href="{user_path(current[name])}">@{name}</a>'.encode()

        return _LINK.sub(link, html)
