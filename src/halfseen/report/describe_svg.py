"""Pictures of a diagnosis as inline SVG: a heat map of associations, and effects with their intervals."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from halfseen.report.svg import percent

_CELL, _CELL_WIDTH, _NAME = 17.0, 22.0, 24
_MARK_WIDTH, _MARK_HEIGHT = 150.0, 18.0


def squeeze(text: str) -> str:
    """Return a name cut in its middle, because names of one family differ at their ends."""
    text = " ".join(text.split())
    if len(text) <= _NAME:
        return text
    tail = _NAME // 3
    return f"{text[: _NAME - tail - 1]}\N{HORIZONTAL ELLIPSIS}{text[-tail:]}"


def heat_map(grid: dict[str, Any], title: str) -> str:
    """Draw strengths from 0 to 1: a row per column with missing values, the darker the stronger.

    Parameters
    ----------
    grid : dict
        ``rows`` and ``columns`` are names; ``cells`` has a list per row of dicts with ``strength``, ``clear``
        and ``words``, or None where nothing was tested.
    title : str
        The text for screen readers.
    """
    rows, columns = grid["rows"], grid["columns"]
    longest = max(len(squeeze(name)) for name in columns)
    left = 6.9 * max(len(squeeze(name)) for name in rows) + 14
    slant = 6.8 * longest * 0.72
    top = 14 + slant
    parts = [
        f'<text class="level" transform="translate({left + _CELL_WIDTH * (place + 0.6):.1f} {top - 7:.1f}) '
        f'rotate(-45)">{escape(squeeze(name))}</text>'
        for place, name in enumerate(columns)
    ]
    for line, (name, cells) in enumerate(zip(rows, grid["cells"], strict=True)):
        y = top + (_CELL + 2) * line
        parts.append(
            f'<text class="level" x="{left - 8:.1f}" y="{y + 12.5:.1f}" text-anchor="end">'
            f"{escape(squeeze(name))}</text>"
        )
        parts += [_cell(cell, left + _CELL_WIDTH * place, y) for place, cell in enumerate(cells)]
    width, height = left + _CELL_WIDTH * len(columns) + slant + 10, top + (_CELL + 2) * len(rows) + 4
    return (
        f'<svg class="picture" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _cell(cell: dict[str, Any] | None, x: float, y: float) -> str:
    place = f'x="{x + 1:.1f}" y="{y:.1f}" width="{_CELL_WIDTH - 2}" height="{_CELL}" rx="2"'
    if cell is None:
        return f'<rect class="untested" {place}/>'
    shade = f'class="missing" opacity="{shade_of(cell["strength"]):.2f}"' if cell["clear"] else 'class="seen"'
    return f"<rect {shade} {place}><title>{escape(cell['words'])}</title></rect>"


def shade_of(strength: float) -> float:
    """Return the opacity of a strength: weak ones remain visible."""
    return 0.16 + 0.84 * math.sqrt(min(max(strength, 0.0), 1.0))


def mark(
    effect: float,
    low: float,
    high: float,
    *,
    ends: tuple[float, float],
    zero: float,
    words: str,
    clear: bool,
) -> str:
    """Draw an effect as a dot with its interval on an axis; `zero` is where nothing happens."""

    def place(value: float) -> float:
        inside = min(max(value, ends[0]), ends[1])
        return 5 + (_MARK_WIDTH - 10) * (inside - ends[0]) / (ends[1] - ends[0])

    y, at = _MARK_HEIGHT / 2, place(zero)
    shade = "far" if clear else "near"
    parts = [
        f"<title>{escape(words)}</title>",
        f'<line class="rail" x1="5" y1="{y}" x2="{_MARK_WIDTH - 5}" y2="{y}"/>',
        f'<line class="axis" x1="{at:.1f}" y1="2" x2="{at:.1f}" y2="{_MARK_HEIGHT - 2}"/>',
        f'<path class="whiskers {shade}" d="M{place(low):.1f} {y}H{place(high):.1f}"/>',
        f'<circle class="point {shade}" cx="{place(effect):.1f}" cy="{y}" r="4"/>',
    ]
    return (
        f'<svg class="mark-line" viewBox="0 0 {_MARK_WIDTH:.0f} {_MARK_HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
    )


def log_ratio(ratio: float) -> float:
    """Return where an odds ratio lies between 1/1000 (-1), 1 (0) and 1000 (1)."""
    return math.log10(max(ratio, 1e-300)) / 3


def rate_bars(change: dict[str, Any], most: float) -> str:
    """Draw the rate of missing values in a table and, below it, in the reference."""
    width = _MARK_WIDTH
    bars = "".join(
        f'<rect class="{shade}" x="0" y="{y}" width="{max(width * rate / most, 0.5):.1f}" height="6" rx="1"/>'
        for shade, y, rate in (("missing", 2, change["rate"]), ("amount", 10, change["reference_rate"]))
    )
    words = f"{percent(change['rate'])} here, {percent(change['reference_rate'])} in the reference"
    return (
        f'<svg class="mark-line" viewBox="0 0 {width:.0f} {_MARK_HEIGHT:.0f}" role="img" '
        f'aria-label="{escape(words)}"><title>{escape(words)}</title>{bars}</svg>'
    )


def key(strengths: Sequence[float]) -> str:
    """Draw the legend of a heat map."""
    return "".join(
        f'<span><i class="k-missing" style="opacity:{shade_of(one):.2f}"></i>{one:g}</span>'
        for one in strengths
    )
