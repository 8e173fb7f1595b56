"""Measures operations with many concurrent callers, and prints a table that compares implementations.

The implementations take turns, round by round, on the same server and loop, and the best round of each counts, because
other work on the machine can only add. CPU is that of this process with all its threads, so a client that works in
threads is measured completely.
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
    """The cost of one operation: CPU of this process in µs, and operations per second."""

    cpu_us: float
    per_second: float


async def measure(operation: Operation, count: int, callers: int = CALLERS) -> Cost:
    """Run an operation `count` times, from many concurrent callers."""
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await operation()

    gc.collect()
    cpu_before, started = _cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return Cost((_cpu_seconds() - cpu_before) / count * 1e6, count / (time.perf_counter() - started))


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def compare(
    contenders: Mapping[str, tuple[Operation, int]], rounds: int = ROUNDS, callers: int = CALLERS
) -> dict[str, Cost]:
    """Return the best round of each contender, given its operation and how often to run it per round."""
    best: dict[str, Cost] = {}
    for round in range(rounds + 1):
        for name, (operation, count) in contenders.items():
            cost = await measure(operation, count, callers)
            if round == 0:  # warm-up of connections and caches
                continue
            so_far = best.get(name, cost)
            best[name] = Cost(min(so_far.cpu_us, cost.cpu_us), max(so_far.per_second, cost.per_second))
    return best


def show(title: str, costs: Mapping[str, Cost], ours: str) -> None:
    """Print a table whose last columns compare the others with `ours`."""
    own = costs[ours]
    print(title)
    print(f"  {'':28}{'CPU µs/op':>12}{'ops/s':>12}{'our CPU':>10}{'our ops/s':>12}")
    for name, cost in costs.items():
        ratios = "" if name == ours else f"{cost.cpu_us / own.cpu_us:9.1f}×{own.per_second / cost.per_second:11.1f}×"
        print(f"  {name:28}{cost.cpu_us:12.1f}{cost.per_second:12,.0f}{ratios}")
    print()
