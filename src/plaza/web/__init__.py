"""HTML pages under `/app`, for users and operators. JavaScript is optional; only pictures come from other hosts.

The package is above the domains. It calls their services with the `Actor` of a session, as API routes do.
"""

from typing import Final

# The domains whose services every page uses: users, their sessions, second factors and pictures.
REQUIRED_DOMAINS: Final = frozenset({"accounts", "media", "social", "shop"})
