"""Measures the repair after a failover that lost writes: `python -m bench failover`.

A cluster has 100,000 keys. Its first primary loses the last tenth of its own, so that thousands of follows, likes and
rankings no longer agree with the other shards. The CPU time of the job and of the primaries counts; wall time depends
on what else the machine does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path

from bench.audit import fill, user_count
from plaza.app import Plaza, running
from plaza.core.errors import Unavailable
from plaza.core.settings import Settings
from plaza.keyspace.audit import Audits, FailoverWatch
from tests.failovers import lossy_failover
from tests.servers import running_cluster

KEYS = int(os.environ.get("BENCH_FAILOVER_KEYS", "100000"))
LOST = float(os.environ.get("BENCH_FAILOVER_LOST", "0.1"))  # of the keys of one primary


async def valkey_cpu_seconds(plaza: Plaza) -> float:
    total = 0.0
    for node in plaza.core.valkey.primaries():
        info = await node.call("INFO", "cpu")
        statistics = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        total += float(statistics["used_cpu_user"]) + float(statistics["used_cpu_sys"])
    return total


def own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measure() -> None:
    users, kept = user_count(KEYS), user_count(KEYS * (1 - LOST))
    with running_cluster(3, 1) as cluster, tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), valkey_url=cluster.url, rate_limits=False)
        async with running(settings) as plaza:
            await fill(plaza, range(kept))
            watch = FailoverWatch(plaza.get(Audits), Path(folder))
            await watch.check()
            async with lossy_failover(cluster):
                await fill(plaza, range(kept, users))
            while True:  # until the client knows the new primary
                try:
                    await plaza.core.valkey.call("PING")
                    own, valkey, started = own_cpu_seconds(), await valkey_cpu_seconds(plaza), time.monotonic()
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
            report = await watch.check()
            assert report is not None
            seconds = time.monotonic() - started
            own, valkey = own_cpu_seconds() - own, await valkey_cpu_seconds(plaza) - valkey
            print(
                f"{report.keys:,} keys in {report.passes} passes: {report.suspicions:,} suspicions, "
                f"{report.repaired:,} repaired, {sum(group.count for group in report.left):,} left"
            )
            print(f"  {seconds:.1f} s; CPU: {own:.1f} s here, {valkey:.1f} s in Valkey")
            again = await plaza.get(Audits).run()
            print(f"  an audit after it: {again.findings:,} findings, {again.seconds:.1f} s")
            for group in again.groups:
                print(f"    {group.family} {group.rule}: {group.examples[0].says}")


def main() -> None:
    asyncio.run(measure())


if __name__ == "__main__":
    main()
