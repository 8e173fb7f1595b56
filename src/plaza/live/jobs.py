"""What the worker does for audiences."""

from __future__ import annotations

from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.live.address_salts import AddressSalts
from plaza.live.recorder import AudienceRecorder

# The records themselves are made on time by the beats; this only carries them to SQL.
RECORD_SECONDS = 30
PURGE_SECONDS = 3600
DAY_SECONDS = 86_400
# Just after midnight, UTC, when another salt is over.
SALTS_AT_SECONDS = 600


def timers(recorder: AudienceRecorder, salts: AddressSalts | None) -> list[Timer]:
    """Salts are given where addresses are hashed."""

    async def record(_: Lease) -> str:
        return f"{await recorder.record()} events recorded"

    async def purge(_: Lease) -> str:
        return f"{await recorder.purge()} events purged"

    async def destroy(salts: AddressSalts) -> str:
        return f"{await salts.destroy()} files written anew, without old salts"

    found = [Timer("live.record", RECORD_SECONDS, record), Timer("live.purge", PURGE_SECONDS, purge)]
    if salts is not None:
        found.append(Timer("live.salts", DAY_SECONDS, lambda _: destroy(salts), at_seconds=SALTS_AT_SECONDS))
    return found
