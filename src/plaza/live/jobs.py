"""Live's background jobs: copy records to SQL, find events of other services, purge old events, destroy old salts.

Heartbeats write to Valkey only. These jobs move what must last to SQL, and delete what must not.
"""

from __future__ import annotations

from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.live.address_salts import AddressSalts
from plaza.live.recorder import AudienceRecorder

# Heartbeats create the five-minute records on time; this timer only copies them to SQL.
RECORD_SECONDS = 30
DISCOVER_SECONDS = 600
PURGE_SECONDS = 3600
DAY_SECONDS = 86_400
# Just after midnight UTC, when another salt has expired.
SALTS_AT_SECONDS = 600


def timers(recorder: AudienceRecorder, salts: AddressSalts | None) -> list[Timer]:
    """Return the timers. `salts` is given only where addresses are hashed."""

    async def record(_: Lease) -> str:
        return f"{await recorder.record()} events recorded"

    async def discover(_: Lease) -> str:
        return f"{await recorder.discover()} events and places of other services found"

    async def purge(_: Lease) -> str:
        return f"{await recorder.purge()} events purged"

    async def destroy(salts: AddressSalts) -> str:
        return f"{await salts.destroy_old()} files rewritten without old salts"

    timers = [
        Timer("live.record", RECORD_SECONDS, record),
        Timer("live.discover", DISCOVER_SECONDS, discover),
        Timer("live.purge", PURGE_SECONDS, purge),
    ]
    if salts is not None:
        timers.append(Timer("live.salts", DAY_SECONDS, lambda _: destroy(salts), at_seconds=SALTS_AT_SECONDS))
    return timers
