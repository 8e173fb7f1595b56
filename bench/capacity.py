"""What measured costs of a request mean: capacity per core and node, and what large communities need.

The assumptions are named in docs/scaling.md; change them here and there together.
"""

from __future__ import annotations

from math import ceil

from bench.page import ROOT, markdown_table

# A tenth of the users come each day and send 50 requests each; the peak is three times the mean.
DAILY_SHARE, REQUESTS_A_DAY, PEAK = 0.1, 50, 3
CORE_USE, MEMORY_USE, NODE_BYTES = 0.5, 0.6, 64e9
NODE_CORES = 8
# What a user has, of the rows of docs/memory.md that begin so.
POSTS = 10
USER_HAS = {"user": 1, "post": POSTS, "follow": 50, "like": 100}


def user_bytes() -> int:
    """Return what a user with all that takes, documented and additional keys, by docs/memory.md."""
    rows = [line.split("|")[1:4] for line in (ROOT / "docs/memory.md").read_text().splitlines() if line.startswith("|")]
    bytes_of = {name.split()[0]: keys for name, *keys in rows}
    return sum(count * sum(int(cell.replace(",", "")) for cell in bytes_of[name]) for name, count in USER_HAS.items())


def capacity(installations: dict[str, tuple[float, float]]) -> str:
    """Return a table of requests per second, by installation with the µs of the service and of Valkey."""
    head = (
        "installation",
        "per API core",
        f"per API node of {NODE_CORES} cores, half used",
        "per core of Valkey",
        "API cores for one of Valkey",
    )
    rows = []
    for name, (service, valkey) in installations.items():
        per_core = 1e6 / service
        node = per_core * NODE_CORES * CORE_USE
        rows.append([name, f"{per_core:,.0f}", f"{node:,.0f}", f"{1e6 / valkey:,.0f}", f"{service / valkey:.1f}"])
    return markdown_table(head, rows)


def communities(service_us: float, valkey_us: float, feed_member_bytes: float) -> str:
    """Return what 10 and 100 million users need, at the cost of a request on a cluster."""
    columns = []
    for users in (10_000_000, 100_000_000):
        mean = users * DAILY_SHARE * REQUESTS_A_DAY / 86_400
        peak, memory = mean * PEAK, users * user_bytes()
        columns.append(
            [
                f"{mean:,.0f}, {peak:,.0f}",
                f"{ceil(peak * service_us / 1e6 / CORE_USE):,}",
                f"{ceil(peak * valkey_us / 1e6 / CORE_USE):,}",
                f"{memory / 1e9:,.0f} GB",
                f"{ceil(memory / NODE_BYTES / MEMORY_USE):,}",
                f"{users * POSTS / 1e6:,.0f} million: {users * POSTS * feed_member_bytes / 1e9:,.0f} GB",
            ]
        )
    names = (
        "requests per second, mean and peak",
        f"API and worker cores ({service_us / 1e3:.1f} ms, half used)",
        f"Valkey cores ({valkey_us / 1e3:.2f} ms, half used)",
        f"keys in memory ({user_bytes() / 1e3:.1f} KB a user), without replicas",
        f"primaries of {NODE_BYTES / 1e9:.0f} GB, {MEMORY_USE:.0%} used; as many replicas",
        f"posts in `explore:feed`, at {feed_member_bytes:.0f} B each",
    )
    rows = [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
    return markdown_table(("", "10 million users", "100 million users"), rows)
