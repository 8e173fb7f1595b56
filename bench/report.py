"""The table of `bench performance`: as text, JSON, SVG plot and Markdown, and compared with the stored run."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from bench.contenders import PathCost
from bench.page import LOAD_BEFORE, ROOT, Check, markdown_table, store_section
from bench.paths import BARE, BOOK, FASTAPI, NODE, NODE_FRESH, NODE_TUNED, PLAZA
from bench.ratio_plot import RatioPlot

PEERS = (NODE, NODE_FRESH, NODE_TUNED, FASTAPI, BOOK)
OUT, STORED = ROOT / "bench/out", ROOT / "docs/performance"


@dataclass(frozen=True)
class Row:
    """The median cost of one path for each contender, and how many times Plaza's a peer's is."""

    name: str
    costs: dict[str, PathCost]
    ratios: dict[str, float]
    goals: dict[str, float]
    writes: bool  # jobs follow

    def met(self) -> bool:
        return all(self.ratios[name] >= goal for name, goal in self.goals.items())


class PathReport:
    """Prints rows as they come, and writes the files at the end."""

    def __init__(self, rounds: int, requests: int) -> None:
        self._rows, self._checks = list[Row](), list[Check]()
        self._run: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d"), "rounds": rounds, "requests": requests, "load_before": LOAD_BEFORE
        }  # fmt: skip
        stored = STORED / "last.json"
        self._stored = json.loads(stored.read_text())["paths"] if stored.exists() else {}

    def begin(self) -> None:
        print("CPU per request of service + Valkey in µs; × is a peer's total divided by Plaza's")
        print("later: what Plaza's jobs spend afterwards; floor: a bare server that writes the same responses")
        print("since: Plaza's share of its peers' CPU ÷ that of the stored run")
        peers = "".join(f"{name:>17}" for name in PEERS)
        print(f"{'':27}{PLAZA:>10}{'later':>6}{BARE:>6}{peers}{'since':>7}  goal")

    def add(self, row: Row) -> None:
        self._rows.append(row)
        line = f"{row.name:27}{_sum(row.costs[PLAZA]):>10}{row.costs[PLAZA].later:6.0f}{row.costs[BARE].service:6.0f}"
        for name in PEERS:
            cell = f"{_sum(row.costs[name])}{row.ratios[name]:6.1f} ×" if name in row.costs else ""
            line += f"{cell:>17}"
        since = self._since(row)
        line += f"{since:7.2f}" if since else " " * 7
        goals = (f"  {goal:g} × {name}" for name, goal in row.goals.items())
        print(line + "".join(goals) + ("" if not row.goals else " met" if row.met() else " NOT MET"), flush=True)

    def add_check(self, check: Check) -> None:
        self._checks.append(check)
        print(f"{check.name:27}  {check.figures}  {check.goal} {check.verdict.upper()}", flush=True)

    def _since(self, row: Row) -> float | None:
        """Plaza's cost as a share of its peers', divided by the same of the stored run: below 1 is better."""
        stored = self._stored.get(row.name, {}).get("ratios", {})
        common = [stored[name] / ratio for name, ratio in row.ratios.items() if name in stored]
        return sorted(common)[len(common) // 2] if common else None

    def write(self, *, store: bool) -> None:
        """Write what was measured so far."""
        rows = {
            row.name: {
                "costs": {
                    name: {part: round(us, 1) for part, us in asdict(cost).items()} for name, cost in row.costs.items()
                },
                "ratios": {name: round(ratio, 2) for name, ratio in row.ratios.items()},
                "goals": row.goals,
                "met": row.met(),
            }
            for row in self._rows
        }
        document = {**self._run, "paths": rows, "checks": [asdict(check) for check in self._checks]}
        plot = RatioPlot(PEERS, [(row.name, row.ratios, row.goals) for row in self._rows]).svg()
        for folder in (OUT, STORED) if store else (OUT,):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "last.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
            (folder / "ratios.svg").write_text(plot)
        if store:
            store_section("performance", self._markdown())

    def finish(self, *, store: bool) -> None:
        self.write(store=store)
        missed = [row.name for row in self._rows if not row.met()] + [
            each.name for each in self._checks if not each.met
        ]
        print(f"\nGoals not met: {'; '.join(missed) or 'none'}")
        print(f"Written: {OUT.relative_to(ROOT)}/last.json, ratios.svg" + (" and docs/performance" if store else ""))

    def _markdown(self) -> str:
        table = markdown_table(
            ["path", f"{PLAZA}, µs", "later", BARE, *PEERS, "goal", ""],
            [self._markdown_row(row) for row in self._rows],
        )
        checks = [[each.name, each.figures, each.goal, each.verdict] for each in self._checks]
        size = f"{self._run['rounds']} rounds of {self._run['requests']:,} requests, median.\n\n"
        return size + table + "\n" + markdown_table(["", "measured", "goal", ""], checks)

    def _markdown_row(self, row: Row) -> list[str]:
        own, floor = row.costs[PLAZA], f"{row.costs[BARE].service:.0f}"
        later = f"{own.later:.0f}" if row.writes else ""
        peers = [f"{_sum(row.costs[n])}, **{row.ratios[n]:.1f} ×**" if n in row.costs else "" for n in PEERS]
        goals = ", ".join(f"{goal:g} × {name}" for name, goal in row.goals.items())
        verdict = "" if not goals else "met" if row.met() else "not met"
        return [row.name, _sum(own), later, floor, *peers, goals, verdict]


def _sum(cost: PathCost) -> str:
    return f"{cost.service:.0f}+{cost.valkey:.0f}"
