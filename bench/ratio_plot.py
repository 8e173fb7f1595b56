"""A plot of ratios as SVG: one row per path, one mark per peer, on a logarithmic axis. Readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

LEFT, RIGHT, TOP, ROW = 200, 720, 78, 26
LOW, HIGH = 0.5, 24.0
TICKS = (0.5, 1, 2, 3, 4, 5, 8, 10, 20)
STYLE = """
svg{font:13px system-ui,sans-serif}.paper{fill:#fff}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d8dee4}
.one{stroke:#1f2328;stroke-width:1.5}.goal{stroke:#b35900;stroke-width:2}
.m0{fill:#8250df}.m1{fill:#0969da}.m2{fill:#1a7f37}.m3{fill:#cf222e}.m4{fill:#6e7781}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.text{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#30363d}
.one{stroke:#e6edf3}.goal{stroke:#f0883e}.m0{fill:#a371f7}.m1{fill:#58a6ff}.m2{fill:#3fb950}.m3{fill:#ff7b72}.m4{fill:#8b949e}}
"""
# One shape per peer, so that colours are not needed to tell them apart.
SHAPES = (
    "M{x} {y}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "M{x} {y}m-5 -5h10v10h-10z",
    "M{x} {y}m0 -6l6 6l-6 6l-6 -6z",
    "M{x} {y}m0 -6l6 10h-12z",
    "M{x} {y}m0 6l6 -10h-12z",
)


class RatioPlot:
    def __init__(
        self, peers: Sequence[str], rows: Sequence[tuple[str, Mapping[str, float], Mapping[str, float]]]
    ) -> None:
        self._peers, self._rows = peers, rows

    def svg(self) -> str:
        bottom = TOP + ROW * len(self._rows)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {RIGHT + 30} {bottom + 34}" role="img">',
            f"<title>CPU per request of the peers, as a multiple of Plaza's</title><style>{STYLE}</style>",
            f'<rect class="paper" width="{RIGHT + 30}" height="{bottom + 34}"/>',
            _text(12, 22, "CPU of service and Valkey per request: peer ÷ Plaza", "text"),
            *self._legend(),
        ]
        for tick in TICKS:
            x = _x(tick)
            parts.append(f'<path class="{"one" if tick == 1 else "grid"}" d="M{x:.1f} {TOP - 8}V{bottom}"/>')
            parts.append(_text(x, bottom + 18, f"{tick:g} ×", "faint", "middle"))
        for number, (name, ratios, goals) in enumerate(self._rows):
            y = TOP + ROW * number + ROW / 2
            parts.append(_text(LEFT - 14, y + 4, name, "text", "end"))
            parts += [f'<path class="goal" d="M{_x(goal):.1f} {y - 9:.0f}v18"/>' for goal in goals.values()]
            parts += [
                _mark(self._peers.index(peer), _x(ratio), y, f"{name}: {peer} {ratio:.1f} ×")
                for peer, ratio in ratios.items()
            ]
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _legend(self) -> list[str]:
        parts, x = list[str](), 18.0
        for number, peer in enumerate(self._peers):
            parts += [_mark(number, x, 46, peer), _text(x + 12, 50, peer, "text")]
            x += 40 + 7.2 * len(peer)
        return [*parts, f'<path class="goal" d="M{x:.0f} 37v18"/>', _text(x + 10, 50, "goal", "text")]


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return LEFT + (RIGHT - LEFT) * share


def _mark(number: int, x: float, y: float, title: str) -> str:
    shape = SHAPES[number].format(x=f"{x:.1f}", y=f"{y:.1f}")
    return f'<path class="m{number}" d="{shape}"><title>{escape(title)}</title></path>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
