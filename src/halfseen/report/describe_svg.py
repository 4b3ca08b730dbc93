"""Pictures of a diagnosis as inline SVG: a heat map of associations, and effects with their intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from halfseen.report.svg import nice_ticks, number, percent

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


WIDTH, HEIGHT = 520.0, 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 14.0, 10.0, 44.0


@dataclass(frozen=True)
class Plot:
    """A plane with axes; x and y are given by the ends of what they show."""

    x_ends: tuple[float, float]
    y_ends: tuple[float, float]

    @classmethod
    def around(cls, x_ends: tuple[float, float], values: Sequence[float]) -> "Plot":
        """Returns a plot with some room above and below the values."""
        low, high = min(values), max(values)
        margin = 0.08 * (high - low) or max(1e-9, 0.1 * abs(high))
        return cls(x_ends, (low - margin, high + margin))

    def x(self, value: float) -> float:
        """Returns the horizontal place of a value."""
        low, high = self.x_ends
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - low) / ((high - low) or 1.0)

    def y(self, value: float) -> float:
        """Returns the vertical place of a value."""
        low, high = self.y_ends
        return _TOP + (HEIGHT - _BOTTOM - _TOP) * (high - value) / (high - low)

    def points(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Returns places as SVG writes them."""
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(xs, ys, strict=True))

    def axes(self, ticks: Sequence[float], words: Callable[[float], str], title: str) -> list[str]:
        """Draws horizontal lines with their values, and the ticks and title of the other axis."""
        low, high = self.y_ends
        right = WIDTH - _RIGHT
        parts = [
            f'<line class="rail" x1="{_LEFT}" y1="{self.y(tick):.1f}" x2="{right}" y2="{self.y(tick):.1f}"/>'
            f'<text class="level" x="{_LEFT - 8}" y="{self.y(tick) + 4:.1f}" text-anchor="end">'
            f"{number(tick)}</text>"
            for tick in nice_ticks(low, high)
            if low <= tick <= high
        ]
        parts += [
            f'<text class="level" x="{self.x(tick):.1f}" y="{HEIGHT - _BOTTOM + 18:.0f}" '
            f'text-anchor="middle">{escape(words(tick))}</text>'
            for tick in ticks
        ]
        parts.append(
            f'<text class="level" x="{(_LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6:.0f}" text-anchor="middle">'
            f"{escape(title)}</text>"
        )
        return parts

    def band(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> str:
        """Draws the area between two curves."""
        around = self.points(xs, lows) + " " + self.points(list(xs)[::-1], list(highs)[::-1])
        return f'<polygon class="band" points="{around}"/>'

    def curve(self, xs: Sequence[float], ys: Sequence[float], words: Callable[[float, float], str]) -> str:
        """Draws a line with labelled points."""
        dots = [
            f'<circle class="point far" cx="{self.x(a):.1f}" cy="{self.y(b):.1f}" r="4">'
            f"<title>{escape(words(a, b))}</title></circle>"
            for a, b in zip(xs, ys, strict=True)
        ]
        return f'<polyline class="curve" points="{self.points(xs, ys)}"/>' + "".join(dots)

    def dashed(self, start: tuple[float, float], end: tuple[float, float], words: str) -> str:
        """Draws a labelled dashed line."""
        return (
            f'<line class="dashed" x1="{self.x(start[0]):.1f}" y1="{self.y(start[1]):.1f}" '
            f'x2="{self.x(end[0]):.1f}" y2="{self.y(end[1]):.1f}"><title>{escape(words)}</title></line>'
        )


def picture(parts: Sequence[str], label: str) -> str:
    """Joins the parts of a plot."""
    return (
        f'<svg class="picture" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" width="{WIDTH:.0f}" '
        f'height="{HEIGHT:.0f}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def drift_curve(curve: dict[str, Any]) -> str:
    """Draws the mean prediction by the share of known values that is shown, with its interval as a band."""
    plot = Plot.around((0.0, 1.0), [*curve["lows"], *curve["highs"]])
    shares = curve["shares"]
    parts = plot.axes(
        (0.0, 0.25, 0.5, 0.75, 1.0), lambda share: f"{share:.0%}", "known values that are shown"
    )
    parts.append(plot.band(shares, curve["lows"], curve["highs"]))
    parts.append(
        plot.curve(
            shares,
            curve["means"],
            lambda share, mean: f"{percent(share)} shown: mean prediction {number(mean)}",
        )
    )
    return picture(parts, "Mean prediction by the share of known values that is shown")


def sensitivity_curve(found: dict[str, Any]) -> str:
    """Draws an estimate with its interval by the departure from MAR, and where the conclusion changes."""
    delta, reference = found["delta"], found["reference"]
    shown = [m for m in found["mechanisms"] if m["delta"] is not None]
    shown = [m for m in shown if delta[0] <= m["delta"] <= delta[-1]]
    more = [end for m in shown for end in (m["low"], m["high"])]
    more += [] if reference is None else [reference]
    plot = Plot.around((delta[0], delta[-1]), [*found["low"], *found["high"], *more])
    low, high = plot.y_ends
    title = f"departure from missing at random, in {found['unit']}"
    parts = plot.axes(nice_ticks(delta[0], delta[-1]), number, title)
    parts.append(plot.band(delta, found["low"], found["high"]))
    if reference is not None:
        parts.append(
            plot.dashed((delta[0], reference), (delta[-1], reference), f"reference {number(reference)}")
        )
    for point in found["tipping_points"]:
        words = f"the conclusion changes at {number(point)} {found['unit']}"
        parts.append(plot.dashed((point, low), (point, high), words))
    parts.append(
        plot.curve(delta, found["estimate"], lambda a, b: f"{number(a)} {found['unit']}: {number(b)}")
    )
    for one in shown:
        x = plot.x(one["delta"])
        words = f"{one['missingness']}: {number(one['estimate'])}"
        parts.append(
            f'<line class="whiskers near" x1="{x:.1f}" y1="{plot.y(one["low"]):.1f}" x2="{x:.1f}" '
            f'y2="{plot.y(one["high"]):.1f}"/><rect class="point near" x="{x - 4.5:.1f}" '
            f'y="{plot.y(one["estimate"]) - 4.5:.1f}" width="9" height="9">'
            f"<title>{escape(words)}</title></rect>"
        )
    return picture(parts, f"{found['name']} by the departure from missing at random")
