"""The Valkey client: one server or a cluster behind one interface. Import its names from here.

`connection.py` is the pipelined connection, `standalone.py` and `cluster.py` implement the interface in `client.py`.
"""

from plaza.core.valkey.calls import (
    REQUEST_USAGE,
    Arg,
    CallTimeout,
    ConnectionLost,
    ConnectionOptions,
    NotReady,
    Overloaded,
    ReplyError,
    RequestUsage,
    damaged_keys_as_absent,
)
from plaza.core.valkey.client import Valkey
from plaza.core.valkey.dedicated import Subscription
from plaza.core.valkey.factory import connect
from plaza.core.valkey.scanning import scan_pages

__all__ = [
    "REQUEST_USAGE",
    "Arg",
    "CallTimeout",
    "ConnectionLost",
    "ConnectionOptions",
    "NotReady",
    "Overloaded",
    "ReplyError",
    "RequestUsage",
    "Subscription",
    "Valkey",
    "connect",
    "damaged_keys_as_absent",
    "scan_pages",
]
