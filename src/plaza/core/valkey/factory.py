"""`connect` opens a Valkey by its URL: one server or a cluster."""

from __future__ import annotations

from typing import Any

from plaza.core.valkey.address import parse
from plaza.core.valkey.calls import Options
from plaza.core.valkey.client import Valkey
from plaza.core.valkey.cluster import Cluster
from plaza.core.valkey.standalone import Server


async def connect(url: str, **options: Any) -> Valkey:
    """A connection to what the URL names. Raises `ConnectionLost` if it cannot be reached now."""
    addresses, clustered = parse(url)
    limits = Options(**options)
    valkey: Valkey = Cluster(addresses, limits) if clustered else Server(addresses[0], limits)
    try:
        await valkey.ready()
    except BaseException:
        await valkey.close()
        raise
    return valkey
