"""Limits open client connections, so that one address cannot use up the file descriptors of a process."""

from __future__ import annotations

import resource
from collections import Counter
from typing import Final

from plaza.core.http.trusted_proxies import TrustedProxies
from plaza.core.rate_limits import address_subject

# For Valkey, SQL, log files and the listening socket.
RESERVED_DESCRIPTORS: Final = 128


class ConnectionLimits:
    """Counts the open connections of a process, in total and by address.

    One address gets at most `per_address` connections, and never more than half of all. An IPv6 address counts as its
    /64 network. Trusted proxies and unix sockets are limited only in total, because they carry many clients.
    """

    def __init__(self, per_address: int, proxies: TrustedProxies, *, total: int | None = None) -> None:
        self._total = _available_descriptors() if total is None else total
        self._per_address = min(per_address, max(1, self._total // 2))
        self._proxies = proxies
        self._open = 0
        self._by_address: Counter[str] = Counter()

    def accept(self, address: str | None) -> bool:
        """Count a new connection; False if it is one too many."""
        if self._open >= self._total:
            return False
        if self._is_limited(address):
            subject = address_subject(address or "")
            if self._by_address[subject] >= self._per_address:
                return False
            self._by_address[subject] += 1
        self._open += 1
        return True

    def release(self, address: str | None) -> None:
        """Uncount an accepted connection that has ended."""
        self._open -= 1
        if self._is_limited(address):
            subject = address_subject(address or "")
            self._by_address[subject] -= 1
            if not self._by_address[subject]:
                del self._by_address[subject]

    def _is_limited(self, address: str | None) -> bool:
        return bool(address) and not (self._proxies.networks and self._proxies.trusts(address))


def _available_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, soft - RESERVED_DESCRIPTORS)
