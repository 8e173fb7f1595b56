"""Checks Valkey: the connection, its version, memory, persistence, clock, cluster and Plaza's libraries."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from plaza.core.embedded_valkey import is_owned, running_url, server_binary
from plaza.core.errors import SettingError, Unavailable
from plaza.core.functions import GENERATION, LIBRARY_NAME
from plaza.core.settings import Settings
from plaza.core.valkey import ReplyError, Valkey, connect
from plaza.core.valkey.address import Address, parse_url
from plaza.core.valkey.calls import ConnectionOptions
from plaza.core.valkey.connection import first_attempt
from plaza.core.valkey.slots import SLOTS
from plaza.core.valkey.standalone import StandaloneValkey
from plaza.core.valkey_memory import memory_warning, parse_info
from plaza.doctor.check import CheckResult, ok, warning, wrong

NAME: Final = "valkey"
# Valkey's libraries of functions came with version 7.
MIN_MAJOR_VERSION: Final = 7
# Tokens and leases compare times of both clocks.
MAX_CLOCK_DIFFERENCE_SECONDS: Final = 2.0
# Long, for a machine that is busy: this command is not in a hurry.
CONNECT_SECONDS: Final = 5.0

Nodes = Sequence[tuple[Valkey, dict[str, str]]]


async def check_valkey(settings: Settings, data_dir: Path) -> list[CheckResult]:
    """Check the configured Valkey, or the embedded one if it runs."""
    url = settings.valkey_url or await running_url(data_dir)
    if url is None:
        return [_not_running(data_dir)]
    try:
        addresses, clustered = parse_url(url)
        async with _connected(url, addresses) as valkey:
            return await _check_connected(valkey, clustered)
    except SettingError as error:
        return [wrong(NAME, str(error), "Correct PLAZA_VALKEY_URL.")]
    except Unavailable as error:
        return [wrong(NAME, str(error), _connection_fix(str(error)))]
    except ReplyError as error:
        return [wrong(NAME, f"It refused a command: {error.message}.", _PERMISSION_FIX)]


_PERMISSION_FIX: Final = "Give its user the rules that `plaza keys --acl` prints."


def _not_running(data_dir: Path) -> CheckResult:
    if is_owned(data_dir):
        fix = f"Wait while it loads its data; then see {data_dir / 'valkey' / 'valkey.log'}."
        return wrong(NAME, "The server runs, and its embedded Valkey does not respond.", fix)
    version = subprocess.run([server_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    return ok(NAME, f"Embedded, version {version.split('v=')[1].split()[0]}. `plaza serve` starts it.")


def _connection_fix(reason: str) -> str:
    if re.search(r"WRONGPASS|NOAUTH|NOPERM", reason):
        return "Correct user and password in PLAZA_VALKEY_URL."
    return "Start Valkey, or correct PLAZA_VALKEY_URL."


@asynccontextmanager
async def _connected(url: str, addresses: Sequence[Address]) -> AsyncIterator[Valkey]:
    """Connect. Raises the reason of the first address if none can be reached."""
    attempts = await asyncio.gather(*map(_try_to_connect, addresses), return_exceptions=True)
    if isinstance(attempts[0], BaseException) and all(attempts):
        raise attempts[0]
    async with await connect(url, queue_timeout=CONNECT_SECONDS) as valkey:
        yield valkey


async def _try_to_connect(address: Address) -> None:
    async with StandaloneValkey(address, ConnectionOptions(connect_timeout=CONNECT_SECONDS)) as server:
        await first_attempt(server.connection(raw=False))


async def _check_connected(valkey: Valkey, clustered: bool) -> list[CheckResult]:
    nodes = [(node, parse_info(str(await node.call("INFO")))) for node in valkey.primaries()]
    checks = [check_version(nodes), check_memory(nodes), check_persistence(nodes)]
    checks += [await _permitted("valkey clock", check_clock, nodes)]
    checks += [await _permitted("libraries", check_libraries, nodes)]
    if clustered:
        checks += [await _permitted("cluster", check_cluster, nodes)]
    return checks


async def _permitted(name: str, check: Callable[[Nodes], Awaitable[CheckResult]], nodes: Nodes) -> CheckResult:
    try:
        return await check(nodes)
    except ReplyError as error:
        return warning(name, f"Not checked: {error.message}.", _PERMISSION_FIX)


def check_version(nodes: Nodes) -> CheckResult:
    """Check that each node is new enough for functions."""
    names = []
    for node, info in nodes:
        version = info.get("valkey_version") or info.get("redis_version", "0")
        names.append(f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}")
        if int(version.split(".")[0]) < MIN_MAJOR_VERSION:
            fix = f"Upgrade to Valkey {MIN_MAJOR_VERSION} or later."
            return wrong(NAME, f"{_address(node)} is {names[-1]}, which has no functions.", fix)
    return ok(NAME, f"{', '.join(dict.fromkeys(names))} at {', '.join(_address(node) for node, _ in nodes)}.")


def check_memory(nodes: Nodes) -> CheckResult:
    """Check that each node has a limit, is not nearly full, and never evicts data."""
    for node, info in nodes:
        used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
        policy = info.get("maxmemory_policy", "")
        if limit and policy != "noeviction":
            fix = (
                f"In valkey-cli of {_address(node)}: CONFIG SET maxmemory-policy noeviction; also in its configuration."
            )
            return wrong("memory", f"{_address(node)} deletes data when it is full (policy {policy}).", fix)
        if doubt := memory_warning(used, limit):
            fix = "Set maxmemory (embedded: PLAZA_VALKEY_MAXMEMORY); `plaza keys --memory` shows what uses it."
            return warning("memory", f"{_address(node)}: {doubt}", fix)
    used, limit = (sum(int(info.get(field, 0)) for _, info in nodes) for field in ("used_memory", "maxmemory"))
    return ok("memory", f"{used / 1e6:,.0f} MB of {limit / 1e6:,.0f} MB used, and nothing is evicted.")


def check_persistence(nodes: Nodes) -> CheckResult:
    """Check that writes reach the disk."""
    for node, info in nodes:
        failed = [name for name in ("aof_last_write_status", "aof_last_bgrewrite_status") if info.get(name) == "err"]
        if failed:
            fix = "See its log: the disk may be full or read-only."
            return wrong("persistence", f"{_address(node)} cannot write its file ({failed[0]}).", fix)
        if info.get("aof_enabled") == "0":
            fix = "Set `appendonly yes` in its configuration."
            return warning("persistence", f"{_address(node)} has no append-only file: a restart loses writes.", fix)
    return ok("persistence", "Writes go to an append-only file.")


async def check_clock(nodes: Nodes) -> CheckResult:
    """Compare the clocks of the nodes with this machine's. One round trip per node."""
    for node, _ in nodes:
        before = time.time()
        seconds, microseconds = await node.call("TIME")
        at = int(seconds) + int(microseconds) / 1e6
        difference = max(before - at, at - time.time(), 0.0)  # the answer is from between these moments
        if difference > MAX_CLOCK_DIFFERENCE_SECONDS:
            fix = "Enable NTP on both machines."
            return wrong("valkey clock", f"The clock of {_address(node)} differs by {difference:,.1f} s.", fix)
    return ok("valkey clock", "Agrees with this machine's.")


async def check_libraries(nodes: Nodes) -> CheckResult:
    """Check that no newer Plaza has changed what the keys mean. One round trip per node."""
    count = 0
    for node, _ in nodes:
        libraries = await node.call("FUNCTION", "LIST", "LIBRARYNAME", "plaza_*")
        matches = [match for library in libraries if (match := LIBRARY_NAME.fullmatch(library["library_name"]))]
        if any(int(match[2]) > GENERATION for match in matches):
            return wrong("libraries", "A newer Plaza has changed what the keys mean.", "Upgrade this Plaza.")
        count += len(matches)
    return ok("libraries", f"{count} loaded." if count else "None is loaded yet. A server loads them at start.")


async def check_cluster(nodes: Nodes) -> CheckResult:
    """Check that every slot has a primary and every primary a replica. One round trip."""
    rows = await nodes[0][0].call("CLUSTER", "SLOTS")
    served = sum(last + 1 - first for first, last, *_ in rows)
    if served != SLOTS:
        fix = "Start the missing nodes, or assign their slots: valkey-cli --cluster fix."
        return wrong("cluster", f"Only {served} of {SLOTS} slots are served.", fix)
    lonely = {f"{row[2][0]}:{row[2][1]}" for row in rows if len(row) == 3}
    if lonely:
        text = f"Primaries without a replica: {', '.join(sorted(lonely))}."
        return warning("cluster", text, "Add one to each: the loss of such a primary stops writes.")
    return ok("cluster", f"{len(nodes)} primaries with replicas serve all slots.")


def _address(node: Valkey) -> str:
    return str(node.address) if isinstance(node, StandaloneValkey) else str(node)
