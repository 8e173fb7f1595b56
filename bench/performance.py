"""The CPU of every path beside the peers: `python -m bench performance [--quick] [--store] [PATH …]`.

Plaza and each peer have a Valkey of their own with the same data. They take turns, round by round, on 32 connections.
CPU is that of the service and of its Valkey per request; the median of the rounds counts. docs/performance.md says what
the peers are. The figures, a plot and a comparison with the stored run go to bench/out; `--store` makes this run the
stored one, which docs/performance.md shows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import astuple
from statistics import median

from bench.community import BenchCommunity
from bench.contenders import Contender, PathCost, contenders
from bench.growth import COLD_GROUP, GROWTH, check_cold_group, check_growth
from bench.paths import BARE, FASTAPI, PLAZA, RequestPath, path_groups
from bench.report import PathReport, Row

REQUESTS, ROUNDS = 1_280, 3
QUICK_REQUESTS, QUICK_ROUNDS = 320, 1
CHECKS = (GROWTH, COLD_GROUP)


def measure_group(group: list[RequestPath], running: dict[str, Contender], rounds: int) -> list[Row]:
    """Measure the paths of a group in turns. The first round warms up."""
    costs: dict[tuple[str, str], list[PathCost]] = {}
    for round in range(rounds + 1):
        for name in (PLAZA, BARE, *group[0].peers):
            for path in group:
                if name == BARE:
                    running[BARE].imitate(running[PLAZA], path, round)
                cost = running[name].measure(path, round)
                if round:
                    costs.setdefault((path.name, name), []).append(cost)
    return [_row(path, {name: costs[path.name, name] for name in (PLAZA, BARE, *path.peers)}) for path in group]


def _row(path: RequestPath, costs: dict[str, list[PathCost]]) -> Row:
    medians = {
        name: PathCost(*(median(part) for part in zip(*map(astuple, each), strict=True)))
        for name, each in costs.items()
    }
    own = costs[PLAZA]
    ratios = {
        name: median(theirs.total / mine.total for theirs, mine in zip(each, own, strict=True))
        for name, each in costs.items()
        if name not in (PLAZA, BARE)
    }
    return Row(path.name, medians, ratios, dict(path.goals), path.writes)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench performance")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these paths (default: all)")
    parser.add_argument("--quick", action="store_true", help="few requests and one round, to see that it works")
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}")
    parser.add_argument("--requests", type=int, help=f"per path and round (default: {REQUESTS})")
    parser.add_argument("--store", action="store_true", help="show this run in docs/performance.md")
    options = parser.parse_args(arguments)
    if options.store and (options.quick or options.paths):
        parser.error("--store needs a whole run")
    requests = options.requests or (QUICK_REQUESTS if options.quick else REQUESTS)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    community = BenchCommunity()
    groups = path_groups(community, requests)
    known = [*(path.name for group in groups for path in group), *CHECKS]
    if unknown := set(options.paths) - set(known):
        raise SystemExit(f"Unknown path {', '.join(sorted(unknown))}. Choose from: {'; '.join(known)}.")
    wanted = [group for group in groups if not options.paths or any(path.name in options.paths for path in group)]
    checks = options.paths or (() if options.quick else CHECKS)
    peers = {peer for group in wanted for path in group for peer in path.peers}
    if COLD_GROUP in checks:
        peers.add(FASTAPI)
    report = PathReport(rounds, requests)
    with contenders(community, peers) as running:
        report.begin()
        for group in wanted:
            for row in measure_group(group, running, rounds):
                report.add(row)
        report.write(store=options.store)  # so that an error in what follows does not lose it
        if GROWTH in checks:
            report.add_check(check_growth(running[PLAZA], community, requests, rounds))
        if COLD_GROUP in checks:
            report.add_check(check_cold_group(running[PLAZA], running[FASTAPI].valkey))
    report.finish(store=options.store)


if __name__ == "__main__":
    main(sys.argv[1:])
