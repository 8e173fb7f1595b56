"""`connect` opens the server or cluster that a URL names."""

from __future__ import annotations

from typing import Any

from plaza.core.valkey.address import parse_url
from plaza.core.valkey.calls import ConnectionOptions
from plaza.core.valkey.client import Valkey
from plaza.core.valkey.cluster import ClusterValkey
from plaza.core.valkey.standalone import StandaloneValkey


async def connect(url: str, **options: Any) -> Valkey:
    """Connect to the server or cluster of a URL. Raises `ConnectionLost` if it cannot be reached."""
    addresses, clustered = parse_url(url)
    parsed = ConnectionOptions(**options)
    valkey: Valkey = ClusterValkey(addresses, parsed) if clustered else StandaloneValkey(addresses[0], parsed)
    try:
        await valkey.ready()
    except BaseException:
        await valkey.close()
        raise
    return valkey
