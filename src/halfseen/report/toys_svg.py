"""The toys of the not-MIWAE experiment as one picture: what was seen, what is hidden, what imputers draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from halfseen.experiments import Results
from halfseen.experiments import notmiwae_toys as toys
from halfseen.report.svg import nice_ticks, number

Floats = npt.NDArray[np.float64]

PANELS = {
    toys.GAUSSIAN: (toys.LINEAR, toys.MAR, toys.NOT),
    toys.RING: (toys.MAR, toys.CHOSEN, toys.GIVEN),
}
"""Whose draws are shown of each toy, beside the truth."""

_SIDE, _GAP, _LEFT, _TOP, _HEAD, _FOOT = 224.0, 22.0, 40.0, 66.0, 26.0, 30.0
_PAD = 0.04  # of an axis, beyond the outermost point
_STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; } text { fill: #1d2733; }
.quiet, .tick { fill: #66717d; } .tick { font-size: 10.5px; }
.title { font-size: 15px; font-weight: 600; } .head { font-weight: 600; } .grid { stroke: #e3e8ee; }
.frame { fill: none; stroke: #d3dae2; }
.seen { fill: #9aa6b2; } .truth { fill: #1f6fb2; } .drawn { fill: #c2571a; }
@media (prefers-color-scheme: dark) {
svg { background: #14191f; } text { fill: #e8edf2; } .quiet, .tick { fill: #9aa6b2; }
.grid { stroke: #27303a; } .frame { stroke: #39444f; }
.seen { fill: #5d6873; } .truth { fill: #69b1ee; } .drawn { fill: #f0955a; }
}
"""


@dataclass(frozen=True)
class Panel:
    """A heading, the points (M, 2) that are shown beside those seen, and whether they are the truth."""

    heading: str
    points: Floats
    is_truth: bool = False


@dataclass(frozen=True)
class Line:
    """A toy: the rows (N, 2) that were seen in full, and its panels."""

    name: str
    seen: Floats
    panels: Sequence[Panel]


def draw_toys(lines: Sequence[Line]) -> str:
    """Returns an SVG file with a line for each toy: hidden rows as they are, then as they are drawn.

    Panels of a line have the same axes, of one scale, which hold all that was seen and all that is true; a
    draw beyond them is not shown, and its panel says how many there are.

    Parameters
    ----------
    lines : sequence of Line
        The toys, each with as many panels.
    """
    width = _LEFT + max(len(line.panels) for line in lines) * (_SIDE + _GAP)
    parts = [
        _text("title", 16, 24, "Two toys: the first feature (across) is missing in some rows"),
        *_legend(16, 46),
    ]
    for place, line in enumerate(lines):
        top = _TOP + place * (_SIDE + _HEAD + _FOOT) + _HEAD
        low, span = _window(line)
        for column, panel in enumerate(line.panels):
            left = _LEFT + column * (_SIDE + _GAP)
            parts += [
                f'<g transform="translate({left:.1f} {top:.1f})">',
                *_grid(low, span, with_y=column == 0),
                *_panel(line, panel, low, span),
                "</g>",
            ]
    height = _TOP + len(lines) * (_SIDE + _HEAD + _FOOT)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="Draws of imputers on two toys">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _legend(x: float, y: float) -> list[str]:
    words = {"seen": "seen in full", "truth": "hidden, as it is", "drawn": "hidden, one draw for each row"}
    parts = []
    for place, (shade, text) in enumerate(words.items()):
        at = x + 130 * place
        parts.append(f'<circle class="{shade}" cx="{at + 4:.1f}" cy="{y - 4:.1f}" r="3.4"/>')
        parts.append(_text("quiet", at + 13, y, text))
    return parts


def _window(line: Line) -> tuple[Floats, float]:
    """Returns the lower left corner (2) and the side of the square that holds what was seen and is true."""
    points = np.concatenate([line.seen, *(panel.points for panel in line.panels if panel.is_truth)])
    low, high = points.min(axis=0), points.max(axis=0)
    span = float((high - low).max()) * (1 + 2 * _PAD)
    corner: Floats = (low + high - span) / 2
    return corner, span


def _panel(line: Line, panel: Panel, low: Floats, span: float) -> list[str]:
    inside = ((panel.points >= low) & (panel.points <= low + span)).all(axis=1)
    beyond = int((~inside).sum())
    heading = f"{line.name}: {panel.heading}" + (f" ({beyond} beyond)" if beyond else "")
    return [
        _text("head", 0, -8, heading),
        _dots(line.seen, low, span, "seen"),
        _dots(panel.points[inside], low, span, "truth" if panel.is_truth else "drawn"),
        f'<rect class="frame" width="{_SIDE:.0f}" height="{_SIDE:.0f}"/>',
    ]


def _dots(points: Floats, low: Floats, span: float, shade: str) -> str:
    places = _SIDE * (points - low) / span
    dots = "".join(f'<circle cx="{x:.1f}" cy="{_SIDE - y:.1f}" r="1.3"/>' for x, y in places)
    return f'<g class="{shade}" fill-opacity="0.75">{dots}</g>'


def _grid(low: Floats, span: float, *, with_y: bool) -> list[str]:
    parts = []
    for tick in nice_ticks(float(low[0]), float(low[0]) + span, 4):
        x = _SIDE * (tick - low[0]) / span
        parts.append(f'<path class="grid" d="M{x:.1f} 0v{_SIDE:.0f}"/>')
        parts.append(_text("tick", x, _SIDE + 15, number(tick), "middle"))
    for tick in nice_ticks(float(low[1]), float(low[1]) + span, 4):
        y = _SIDE - _SIDE * (tick - low[1]) / span
        parts.append(f'<path class="grid" d="M0 {y:.1f}h{_SIDE:.0f}"/>')
        parts += [_text("tick", -6, y + 4, number(tick), "end")] if with_y else []
    return parts


def _text(shade: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{shade}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def toy_figure(results: Results) -> str | None:
    """Draw what imputers have drawn for the hidden rows of the first seed, or nothing if no run is kept."""
    kept = {
        (cell.setting["toy"], cell.model): cell.arrays[toys.DRAWN]
        for cell in results.cells
        if toys.DRAWN in cell.arrays
    }
    lines = []
    for toy, models in PANELS.items():
        drawn = [Panel(name, kept[toy, name]) for name in models if (toy, name) in kept]
        if drawn:
            task = toys.make_toy(toy, toys.PICTURED_SEED)
            truth = Panel("truth", task.sample.X[task.hidden], is_truth=True)
            lines.append(Line(toy, task.sample.X[~task.hidden], [truth, *drawn]))
    return draw_toys(lines) if lines else None
