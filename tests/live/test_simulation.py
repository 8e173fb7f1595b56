"""The simulated audience and the terminal dashboard."""

from __future__ import annotations

import asyncio
from collections import deque
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from plaza.cli import parser
from plaza.core.clock import ManualClock
from plaza.core.errors import Invalid, Unavailable
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import dashboard
from plaza.live.recorder import AudienceRecorder
from plaza.live.simulation import AudienceSimulation
from plaza.live.statistics import AudienceFigures
from plaza.live.viewing_sessions import ViewingSessions
from tests.databases import with_tables
from tests.processes import plaza
from tests.waiting import eventually

WINDOW_MS = 65_000


async def test_the_counts_of_a_simulated_audience_match_its_viewing_sessions(
    functions: Functions, settings: Settings, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock
) -> None:
    started = clock.now_ms() - 12 * 60_000
    simulation = AudienceSimulation(functions, settings, "E1", viewers=150, minutes=12)
    done = await simulation.run(clock)
    assert done.viewers == 150
    assert done.beats > 500
    assert done.left > 20
    assert done.vanished > 10
    viewings = [v async for v in ViewingSessions(functions, figures._history, settings, clock).iterate("E1")]
    ever = await figures.totals.get("E1")
    assert ever.attended == len({v.viewer for v in viewings}) <= 150
    assert ever.logins == len(viewings)
    # A viewer counts while watching, and up to a window longer if they did not leave.
    watching = max(len({v.viewer for v in viewings if v.started_at <= at <= v.ended_at}) for at in _edges(viewings))
    lingering = max(
        len({v.viewer for v in viewings if v.started_at <= at <= v.ended_at + WINDOW_MS}) for at in _edges(viewings)
    )
    assert watching <= ever.peak <= lingering
    now = await figures.breakdown.for_event("E1")
    assert sum(now.count_by_viewing_country.values()) == now.viewer_count == await figures.alive("E1")
    records = await figures.breakdown.records("E1")
    assert len(records) == 2
    assert all(started <= record.timestamp <= clock.now_ms() for record in records)
    await recorder.record()
    assert await figures.breakdown.records("E1") == records


def _edges(viewings: list[Any]) -> list[int]:
    return sorted({v.started_at for v in viewings})


async def test_the_same_seed_gives_the_same_audience(
    functions: Functions, settings: Settings, figures: AudienceFigures, clock: ManualClock
) -> None:
    first = await AudienceSimulation(functions, settings, "E1", viewers=20, minutes=3, seed=4).run(clock)
    other = await AudienceSimulation(functions, settings, "E1", viewers=20, minutes=3, seed=5).run(clock)
    assert first.viewers == other.viewers
    assert (first.beats, first.left) != (other.beats, other.left)


async def test_the_dashboard_shows_the_figures(
    functions: Functions, settings: Settings, figures: AudienceFigures, clock: ManualClock
) -> None:
    await AudienceSimulation(functions, settings, "E1", viewers=30, minutes=2).run(clock)
    out = StringIO()
    await dashboard.show(figures, "E1", Console(file=out, width=100), once=True)
    now = await figures.live("E1")
    for word in ("E1", "watching now", f"{now.viewer_count}", f"{now.max_concurrent}", "country", "E1-main"):
        assert word in out.getvalue()
    await dashboard.show(figures, "[/b]", Console(file=out, width=100), once=True)
    assert "[/b]" in out.getvalue(), "an event id is not interpreted as markup"


async def test_the_dashboard_keeps_its_figures_while_valkey_is_unavailable(
    figures: AudienceFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = StringIO()
    console = Console(file=out, width=100, force_terminal=True)
    showing = asyncio.create_task(dashboard.show(figures, "E1", console, once=False, every_seconds=0.01))
    await eventually(lambda: "watching now" in out.getvalue())

    async def away(event: str) -> None:
        raise Unavailable("Valkey is unavailable.")

    with monkeypatch.context() as broken:
        broken.setattr(figures, "live", away)
        await eventually(lambda: "Valkey is unavailable" in out.getvalue())
    out.truncate(0)
    await eventually(lambda: "watching now" in out.getvalue() and "Valkey is unavailable" not in out.getvalue())
    showing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await showing


def test_a_sparkline_scales_to_its_highest_value() -> None:
    assert dashboard.sparkline(deque([0, 4, 8])) == " ▄█"
    assert dashboard.sparkline(deque([0, 0])) == "  "


def test_the_commands_simulate_an_audience_and_show_it(tmp_path: Path) -> None:
    data = with_tables(tmp_path)
    played = plaza(data, "live", "simulate", "--event", "keynote", "--viewers", "40", "--minutes", "3", "--speed", "0")
    assert (played.returncode, played.stdout[:9]) == (0, "40 viewer"), played.stderr
    shown = plaza(data, "live", "keynote", "--once")
    assert "watching now" in shown.stdout
    assert "keynote-main" in shown.stdout


@pytest.mark.parametrize(
    "words", [["a#b"], ["simulate", "--event", "a#b"], ["simulate", "--viewers", "0"], ["simulate", "--minutes", "-1"]]
)
def test_invalid_arguments_are_refused_before_any_connection(words: list[str]) -> None:
    given = parser().parse_args(["live", *words])
    with pytest.raises(Invalid):
        given.run(given)
