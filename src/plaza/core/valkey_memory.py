"""Watches the memory of Valkey, and warns before it is full: then writes are refused with 503."""

from __future__ import annotations

from typing import Final

import structlog

from plaza.core import metrics
from plaza.core.valkey import Valkey

WARN_SHARE: Final = 0.8

log = structlog.get_logger("plaza.valkey")


async def watch(valkey: Valkey) -> str:
    """Set the memory metrics and log a warning for each node above 80% of its limit. One round trip per node."""
    used = limit = 0
    for node in valkey.primaries():
        fields = parse_info(str(await node.call("INFO", "memory")))
        node_used, node_limit = int(fields.get("used_memory", 0)), int(fields.get("maxmemory", 0))
        used += node_used
        limit += node_limit
        if is_high(node_used, node_limit):
            log.warning("valkey_memory_high", node=str(node), used_bytes=node_used, limit_bytes=node_limit)
    metrics.VALKEY_MEMORY.set(used)
    metrics.VALKEY_MEMORY_LIMIT.set(limit)
    return f"{used / 1e6:,.0f} MB of {limit / 1e6:,.0f} MB used" if limit else f"{used / 1e6:,.0f} MB used, no limit"


def is_high(used_bytes: int, limit_bytes: int) -> bool:
    """Whether a node uses so much of its memory that operators must act."""
    return bool(limit_bytes) and used_bytes > WARN_SHARE * limit_bytes


def memory_warning(used_bytes: int, limit_bytes: int) -> str:
    """Return what operators should know about a node's memory; empty if it is fine."""
    if not limit_bytes:
        return "It has no memory limit. Set maxmemory, and maxmemory-policy noeviction."
    if not is_high(used_bytes, limit_bytes):
        return ""
    return f"It uses {used_bytes / limit_bytes:.0%} of its memory. When it is full, writes are refused with 503."


def parse_info(text: str) -> dict[str, str]:
    """Return the fields of an INFO reply."""
    return dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
