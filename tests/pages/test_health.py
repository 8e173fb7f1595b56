"""The computations of the health page, without a server."""

from __future__ import annotations

from plaza.web.chart_geometry import largest_shares, time_bars
from plaza.web.formatting import code_spans, format_bytes, format_duration, format_number
from plaza.web.health_charts import ChartLine
from plaza.web.health_figures import Counters, Latency, RouteFigures, _figures_between, percentiles
from plaza.web.rendering import render

INF = float("inf")


def test_percentiles_are_of_responses_between_the_samples() -> None:
    before = ((0.001, 10.0), (0.01, 1000.0), (INF, 1000.0))
    after = ((0.001, 60.0), (0.01, 1100.0), (INF, 1100.0))  # 50 more up to 1 ms, and 50 more up to 10 ms
    assert percentiles(before, after) == Latency(1.0, 9.1, 9.82)
    assert percentiles(after, after) == Latency(None, None, None)
    assert percentiles((), ()) == Latency(None, None, None)
    assert percentiles((), ((0.5, 0.0), (INF, 3.0))) == Latency(500.0, 500.0, 500.0), "longer than the last bucket"


def test_a_stream_has_no_mean() -> None:
    requests = {("/app", "2xx"): 18.0, ("/app", "5xx"): 2.0, ("/app/stream", "2xx"): 1.0}
    after = Counters(10.0, requests=requests, seconds={"/app": 0.2}, timed={"/app": 20.0})
    figures = _figures_between(Counters(), after, [])
    assert figures.routes == [RouteFigures("/app", 2.0, 10.0, 2), RouteFigures("/app/stream", 0.1, None, 0)]
    assert (figures.requests_per_second, figures.failed) == (2.1, 2)


def test_charts_fit_their_frame() -> None:
    bars = time_bars({2: (0, "none"), 3: (5, "five"), 9: (10, "ten")}, 10)
    assert [bar.x for bar in bars] == [126, 186, 546], "each at the position of its time"
    assert [(bar.height, bar.label) for bar in bars] == [(0, "none"), (56, "five"), (112, "ten")]
    assert all(bar.x >= 0 and bar.x + bar.width <= 600 and bar.y + bar.height == 120 for bar in bars)
    assert time_bars({}, 10) == []
    assert [(share.name, share.length) for share in largest_shares({"x": 1, "y": 4})] == [("y", 100.0), ("x", 25.0)]
    assert [share.length for share in largest_shares({"x": 0})] == [0.0]


def test_durations_numbers_and_sizes_are_formatted_with_units() -> None:
    assert [format_duration(ms) for ms in (0, 999, 3200, 45_000, 600_000, 7_200_000, 200_000_000)] == [
        "0 ms", "999 ms", "3.2 s", "45 s", "10 min", "2 h", "2 d",
    ]  # fmt: skip
    assert [format_number(n) for n in (None, 0, 3, 2.5, 12.34, 1204.0, 100)] == [
        "–",
        "0",
        "3",
        "2.5",
        "12.34",
        "1,204",
        "100",
    ]
    assert [format_bytes(n) for n in (12, 3400, 1.2e9)] == ["12 B", "3.4 kB", "1.2 GB"]
    assert str(code_spans("`a<b>` & c")) == "<code>a&lt;b&gt;</code> &amp; c"


def test_charts_without_requests_say_so_and_have_no_scale() -> None:
    charts = {
        "updated": 0,
        "missing": False,
        "start": "1 h ago",
        "requests": ChartLine("requests/s", "M0 116"),
        "requests_max": "0",
    }
    text = render("operator-health-charts.html", charts={**charts, "latencies": [], "latency_max": "0"})
    assert "No requests in this time." in text
    assert "data-max" not in text
