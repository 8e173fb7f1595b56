"""`connect` opens a Valkey by its URL: one server or a cluster."""

from __future__ import annotations

from typing import Any

from plaza.core.valkey.address import parse_url
from plaza.core.valkey.calls import ConnectionOptions
from plaza.core.valkey.client import Valkey
from plaza.core.valkey.cluster import ClusterValkey
from plaza.core.valkey.standalone import StandaloneValkey


async def connect(url: str, **options: Any) -> Valkey:
    """A connection to what the URL names. Raises `ConnectionLost` if it cannot be reached now."""
    addresses, clustered = parse_url(url)
    limits = ConnectionOptions(**options)
    valkey: Valkey = ClusterValkey(addresses, limits) if clustered else StandaloneValkey(addresses[0], limits)
    try:
        await valkey.ready()
    except BaseException:
        await valkey.close()
        raise
    return valkey
