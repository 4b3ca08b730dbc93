"""A curve with a band about it, as inline SVG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from halfseen.report.svg import nice_ticks, number, percent

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
