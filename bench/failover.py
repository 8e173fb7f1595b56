"""Measures the repair after a failover that lost writes: `python -m bench failover`.

A cluster has 100,000 keys. Its first primary loses the last tenth of its own, so that thousands of follows, likes and
rankings no longer agree with the other shards. The CPU time of the job and of the primaries counts; wall time depends
on what else the machine does.

`python -m bench failover --full` adds comments, notifications and the search index. A worker process handles events and
repairs, and users write 20 times a second meanwhile. What users wrote before the failover is lost on its primary.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from uuid import UUID

import psutil

from bench.audit import POSTS_EACH, fill, user_count
from plaza.app import Plaza, running
from plaza.core.auth import Actor
from plaza.core.errors import Unavailable
from plaza.core.event_progress import EventProgress, NoProgress
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.keyspace.audit import AuditReport, Audits, FailoverWatch
from plaza.keyspace.audit_keys import AUDIT_PRIMARIES
from plaza.notifications import jobs as notifications
from plaza.search import jobs as search
from plaza.search.rebuild import IndexRebuild
from plaza.social.comments import Comments
from plaza.social.engagements import Engagements
from plaza.social.model import NewComment, NewPost
from plaza.social.posts import Posts
from tests.failovers import lossy_failover
from tests.processes import ServerProcess
from tests.servers import running_cluster
from tests.waiting import eventually

KEYS = int(os.environ.get("BENCH_FAILOVER_KEYS", "100000"))
LOST = float(os.environ.get("BENCH_FAILOVER_LOST", "0.1"))  # of the keys of one primary
CONVERSATIONS = 16  # at the same time
WRITE_SECONDS = 0.05


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
            print_repair(report)
            print(f"  {seconds:.1f} s; CPU: {own:.1f} s here, {valkey:.1f} s in Valkey")
            await print_audit(plaza)


def print_repair(report: AuditReport) -> None:
    print(
        f"{report.keys:,} keys in {report.passes} passes: {report.suspicions:,} suspicions, "
        f"{report.repaired:,} repaired, {sum(group.count for group in report.left):,} left"
    )


async def print_audit(plaza: Plaza) -> None:
    again = await plaza.get(Audits).run()
    print(f"  an audit after it: {again.findings:,} findings, {again.seconds:.1f} s")
    for group in again.groups:
        print(f"    {group.family} {group.rule}: {group.examples[0].says}")


async def converse(plaza: Plaza, users: Sequence[int], step: int) -> None:
    """Let each user like and comment on a post of another one, and write a post."""
    get, total = plaza.get, len(users)

    async def act(user: int) -> None:
        actor, other = Actor(f"user{user}", "user"), users[(user + step) % total]
        post = str(UUID(int=other * POSTS_EACH + 1))
        await get(Engagements).like(actor, post)
        await get(Comments).create(actor, post, NewComment(f"Well said, @user{other}"))
        await get(Posts).create(actor, NewPost(f"Number {step} by {user} #plaza"))

    for some in chunks(users, CONVERSATIONS):
        await asyncio.gather(*map(act, some))


async def until_handled(plaza: Plaza) -> None:
    """Wait until the worker has handled all events of users."""
    for group in (notifications.GROUP, search.GROUP):
        progress = EventProgress(plaza.core.valkey, ["social"], group)
        while True:
            with contextlib.suppress(NoProgress, Unavailable):
                await progress.wait()
                break


async def keep_writing(plaza: Plaza, users: int) -> None:
    for number in count():
        actor, post = Actor(f"user{number % users}", "user"), str(UUID(int=number * 7 % users * POSTS_EACH + 2))
        with contextlib.suppress(Unavailable):
            await plaza.get(Engagements).like(actor, post)
        await asyncio.sleep(WRITE_SECONDS)


async def until_repaired(plaza: Plaza, before: dict[str, str]) -> AuditReport:
    """Wait until the worker has stored the new primaries, which it does after a complete repair."""
    while True:
        with contextlib.suppress(Unavailable):
            if await plaza.core.valkey.call("HGETALL", AUDIT_PRIMARIES()) not in ({}, before):
                report = (await plaza.get(Audits).state()).last
                assert report is not None
                return report
        await asyncio.sleep(0.1)


def process_cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure_full() -> None:
    users = user_count(KEYS)
    with running_cluster(3, 1) as cluster, tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder) / "var"
        data_dir.mkdir()
        async with running(Settings(data_dir=data_dir, valkey_url=cluster.url, rate_limits=False)) as plaza:
            await fill(plaza, range(users))
            await plaza.get(IndexRebuild).run()
            worker = ServerProcess(data_dir, "worker", PLAZA_VALKEY_URL=cluster.url)
            process = psutil.Process(worker.process.pid)
            try:
                before = await eventually(lambda: plaza.core.valkey.call("HGETALL", AUDIT_PRIMARIES()))
                await converse(plaza, range(users), 1)
                await until_handled(plaza)
                async with lossy_failover(cluster):
                    await converse(plaza, range(int(users * LOST)), 5)
                started, cpu = time.monotonic(), process_cpu_seconds(process)
                writing = asyncio.create_task(keep_writing(plaza, users))
                report = await until_repaired(plaza, before)
                seconds, cpu = time.monotonic() - started, process_cpu_seconds(process) - cpu
                writing.cancel()
                await asyncio.wait([writing])
                print_repair(report)
                print(f"  {seconds:.1f} s after the failover, of which the repair took {report.seconds:.1f} s")
                print(f"  CPU of the worker, with the events of other writes: {cpu:.1f} s")
                await until_handled(plaza)
                await print_audit(plaza)
            finally:
                worker.stop()


def main(arguments: list[str]) -> None:
    asyncio.run(measure_full() if arguments == ["--full"] else measure())


if __name__ == "__main__":
    main(sys.argv[1:])
