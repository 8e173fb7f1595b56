"""Links of mentions: only existing users are linked, and a renamed user by the new name.

Texts are rendered once and cached, with a link for everything that may be a username (`text_html.py`). What exists can
change at any time, so it is looked up for each page, all names of a page in one round trip.
"""

from __future__ import annotations

import re
from typing import Any, Final

from plaza.core.http.responses import Response, as_bytes
from plaza.social.users import Users
from plaza.web.text_html import user_path

# Names looked up for one page; further mentions are plain text.
MAX_NAMES: Final = 300

# As `text_html` writes it. A user's text cannot contain it: `<` is escaped there.
_LINK: Final = re.compile(rb'<a class="mention" href="[^"]*">@([A-Za-z0-9._-]+)</a>')


class MentionLinks:
    """Completes the links of mentions in a page."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def complete(self, response: Response[Any]) -> Response[Any]:
        """Link existing users only. One round trip if the page mentions anyone, else none."""
        html = as_bytes(response.body)
        names = list(dict.fromkeys(name.decode() for name in _LINK.findall(html)))[:MAX_NAMES]
        if not names:
            return response
        current = await self._users.current_names(names)

        def link(match: re.Match[bytes]) -> bytes:
            name = match[1].decode()
            if name not in current:
                return b"@" + match[1]
            return f'<a class="mention" href="{user_path(current[name])}">@{name}</a>'.encode()

        response.body = _LINK.sub(link, html)
        return response
