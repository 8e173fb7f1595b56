"""What benches share: many callers at once, what they cost this process, and a table of contenders side by side.

Contenders take turns, round by round, on the same server and the same loop, and the best round of each counts: what
else the machine does can only add. CPU is that of this whole process with all its threads, so a client that works in a
thread of its own is charged for it.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

CALLERS = 64
ROUNDS = 5

Operation = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operation took: CPU of this process in µs, and how many were done in a second."""

    cpu_us: float
    per_second: float


async def measure(operation: Operation, count: int, callers: int = CALLERS) -> Cost:
    """Do an operation `count` times, from many callers at once."""
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await operation()

    gc.collect()
    used, began = _cpu(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return Cost((_cpu() - used) / count * 1e6, count / (time.perf_counter() - began))


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def compare(
    contenders: Mapping[str, tuple[Operation, int]], rounds: int = ROUNDS, callers: int = CALLERS
) -> dict[str, Cost]:
    """The best round of each contender; each says how often to do its operation, so that slow ones end too."""
    best: dict[str, Cost] = {}
    for round in range(rounds + 1):
        for name, (operation, count) in contenders.items():
            cost = await measure(operation, count, callers)
            if round == 0:  # warms up connections and caches, and counts for nothing
                continue
            known = best.get(name, cost)
            best[name] = Cost(min(known.cpu_us, cost.cpu_us), max(known.per_second, cost.per_second))
    return best


def show(title: str, costs: Mapping[str, Cost], ours: str) -> None:
    """A table whose last columns say how many times better ours is."""
    mine = costs[ours]
    print(title)
    print(f"  {'':28}{'CPU µs/op':>12}{'ops/s':>12}{'our CPU':>10}{'our ops/s':>12}")
    for name, cost in costs.items():
        ratios = "" if name == ours else f"{cost.cpu_us / mine.cpu_us:9.1f}×{mine.per_second / cost.per_second:11.1f}×"
        print(f"  {name:28}{cost.cpu_us:12.1f}{cost.per_second:12,.0f}{ratios}")
    print()
