"""Shows the evaluation as tables in a terminal and as an SVG chart: a panel per split, two bars per method.

The SVG is written without a library, because it has only two dozen rectangles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final
from xml.sax.saxutils import escape

from rich.table import Table

from plaza.challenges.recommendation.evaluation.experiment import Quality, Results
from plaza.challenges.recommendation.evaluation.served import Variety

LEFT, BAR, GAP, HEAD, PANEL_GAP, WIDTH = 200, 13, 12, 34, 26, 640
COLOURS: Final = {"recall": "#4c78a8", "ndcg": "#f58518"}
LABELS: Final = {"recall": "recall@10", "ndcg": "NDCG@10"}


def tables(results: Results) -> Iterator[Table]:
    """One table per split."""
    for title, panel in results.items():
        table = Table("", *LABELS.values(), title=title, title_justify="left")
        for name, quality in panel.items():
            table.add_row(name, f"{quality.recall:.3f}", f"{quality.ndcg:.3f}")
        yield table


def variety_table(varieties: Mapping[str, Sequence[Variety]]) -> Table:
    """How much of everything is served, by split: the mean over its parts."""
    head = ("posts served to anyone", "places with new posts", "responses with another category", "categories")
    table = Table("", *head, title="what is served, 20 posts each", title_justify="left")
    for title, found in varieties.items():
        shares = [fmean(getattr(one, name) for one in found) for name in ("coverage", "fresh", "unfamiliar")]
        table.add_row(
            title, *(f"{share:.0%}" for share in shares), f"{fmean(one.categories for one in found):.1f} of 5"
        )
    return table


def svg(results: Results) -> str:
    """All results as an SVG chart with one scale."""
    most = max(quality.ndcg for panel in results.values() for quality in panel.values()) or 1.0
    body: list[str] = []
    top = HEAD
    for title, panel in results.items():
        body += _panel(title, panel, top, (WIDTH - LEFT - 60) / most)
        top += HEAD + len(panel) * (2 * BAR + GAP) + PANEL_GAP
    legend = [
        f'<rect x="{LEFT + 110 * n}" y="10" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEFT + 110 * n + 18}" y="20">{LABELS[name]}</text>'
        for n, (name, colour) in enumerate(COLOURS.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
            'font-family="sans-serif" font-size="13" role="img" aria-label="Quality of recommendations">',
            f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>',
            *legend,
            *body,
            "</svg>\n",
        ]
    )


def _panel(title: str, panel: dict[str, Quality], top: int, scale: float) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="{top + 20}" font-weight="bold">{escape(title)}</text>'
    for place, (name, quality) in enumerate(panel.items()):
        y = top + HEAD + place * (2 * BAR + GAP)
        yield f'<text x="{LEFT - 8}" y="{y + BAR + 4}" text-anchor="end">{escape(name)}</text>'
        for row, (kind, value) in enumerate((("recall", quality.recall), ("ndcg", quality.ndcg))):
            at, width = y + row * BAR, value * scale
            yield f'<rect x="{LEFT}" y="{at}" width="{width:.1f}" height="{BAR - 1}" fill="{COLOURS[kind]}"/>'
            yield f'<text x="{LEFT + width + 5:.1f}" y="{at + BAR - 2}" font-size="11">{value:.3f}</text>'
