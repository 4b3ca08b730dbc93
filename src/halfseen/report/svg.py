"""Small figures as inline SVG, without scripts; colours are CSS classes, so that themes apply."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from halfseen.words import share_words

WIDTH, HEIGHT = 340.0, 168.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 4.0, 4.0, 8.0, 34.0
SMALLEST_STEP = 1e-300  # between ticks; below it floats have few digits
LETTER = 6.5  # the width of one, about
SECONDS_PER_YEAR = 31_556_952.0
_CELL, _CELL_WIDTH = 16.0, 22.0
_RUG = 5.0


YEARS = (1500.0, 2200.0)
"""Whole numbers between these are written without a mark for thousands: they may be years."""


def number(value: float, digits: int = 3, *, apart: bool = True) -> str:
    """Return a number as a person would write it: few digits, thousands apart, no trailing zeros."""
    if not math.isfinite(value):
        return "n/a"
    if value != 0 and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.{digits - 1}e}"
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0) if value else 0
    text = f"{value:,.{decimals}f}" if apart else f"{value:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text.replace("-", "\N{MINUS SIGN}")


def number_to(value: float, unit: float, *, apart: bool = True) -> str:
    """Return a number with as many decimals as a unit has with three digits, so that numbers can be compared.

    Examples
    --------
    >>> [number_to(value, 14.06) for value in (201.0, 14.06, 201.13)]
    ['201.0', '14.1', '201.1']
    """
    if not (math.isfinite(value) and 1e-4 <= unit < 1e15 and abs(value) < 1e15):
        return number(value, 4, apart=apart)
    decimals = max(2 - math.floor(math.log10(unit)), 0)
    text = f"{value:,.{decimals}f}" if apart else f"{value:.{decimals}f}"
    return text.replace("-", "\N{MINUS SIGN}") if float(text.replace(",", "")) else text.removeprefix("-")


def may_be_years(fill: dict[str, Any]) -> bool:
    """Whether the values of a column may be years: whole numbers in the range of recent centuries."""
    edges = fill["edges"]
    return fill.get("kind") == "count" and edges[0] >= YEARS[0] and edges[-1] <= YEARS[1]


def percent(share: float) -> str:
    """Return a share as a percentage that is never 0 % or 100 % unless it is exactly that."""
    return share_words(share, rounded=True)


def moment(seconds: float, span: float) -> str:
    """Return a time, given in seconds since 1970, with as much detail as the range of an axis requires."""
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:  # before the year 1 or after 9999
        return f"{1970 + seconds / SECONDS_PER_YEAR:.0f}"
    day = 86_400.0
    if span > 3 * 365 * day:
        return when.strftime("%Y")
    if span > 90 * day:
        return when.strftime("%b %Y")
    return when.strftime("%d %b %Y") if span > 2 * day else when.strftime("%d %b %H:%M")


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers within an axis."""
    raw = high / about - low / about
    if not SMALLEST_STEP <= raw < math.inf:
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _step_path(xs: Sequence[float], ys: Sequence[float], start: str = "M") -> str:
    points = [f"{x:.1f} {y:.1f}" for x, nxt, y in zip(xs, xs[1:], ys, strict=False) for x in (x, nxt)]
    return start + "L".join(points)


def histogram(fill: dict[str, Any]) -> str:
    """Draw observed shares as bars, and imputed values above them.

    Imputed values are a stepped line with a band over the draws or, if there are few, single values with
    their intervals.
    """
    edges, n_bins = fill["edges"], len(fill["observed"])
    cells = fill["cells"]
    top = max(*fill["observed"], *([] if cells else [*fill["high"], *fill["imputed"]]), 1e-9) * 1.04
    floor = HEIGHT - _BOTTOM
    xs = [_LEFT + (WIDTH - _LEFT - _RIGHT) * place / n_bins for place in range(n_bins + 1)]

    def height(shares: Sequence[float]) -> list[float]:
        return [floor - (floor - _TOP) * share / top for share in shares]

    parts = [
        f'<rect class="observed" x="{x + 0.4:.1f}" y="{y:.1f}" width="{xs[1] - xs[0] - 0.8:.1f}" '
        f'height="{floor - y:.1f}"/>'
        for x, y in zip(xs, height(fill["observed"]), strict=False)
    ]
    if not cells:
        low, high, middle = height(fill["low"]), height(fill["high"]), height(fill["imputed"])
        back = _step_path(xs[::-1], low[::-1], "L")
        parts.append(f'<path class="band" d="{_step_path(xs, high)}{back}Z"/>')
        parts.append(f'<path class="imputed-line" d="{_step_path(xs, middle)}"/>')
    parts.append(f'<line class="axis" x1="{_LEFT}" y1="{floor}" x2="{WIDTH - _RIGHT}" y2="{floor}"/>')
    parts += [] if cells else _rug(xs, fill["single"], floor + 2)
    parts += _ticks(edges, floor + _RUG + 3, fill.get("time"), apart=not may_be_years(fill))
    parts += _tooltips(fill, xs, floor)
    parts += _intervals(fill, floor) if cells else []
    return _svg(parts, f"Observed and imputed values of {fill['name']}")


def _intervals(fill: dict[str, Any], floor: float) -> list[str]:
    """Draw each missing value as its best value and its interval, the lowest value at the bottom."""
    low, high = fill["edges"][0], fill["edges"][-1]
    label = _labeller(fill["edges"], fill.get("time"), apart=not may_be_years(fill))
    gap = min(18.0, (floor - _TOP - 16) / len(fill["cells"]))
    parts = []
    for place, cell in enumerate(fill["cells"]):
        y = floor - 14 - gap * place
        value, start, end = (
            _LEFT + (WIDTH - _LEFT - _RIGHT) * _place(min(max(one, low), high), low, high) for one in cell
        )
        title = f"imputed {label(cell[0])}, interval {label(cell[1])} to {label(cell[2])}"
        parts.append(
            f'<g><title>{escape(title)}</title><path class="interval" d="M{start:.1f} {y:.1f}H{end:.1f}'
            f'm0 -3.5v7M{start:.1f} {y - 3.5:.1f}v7"/>'
            f'<circle class="dot" cx="{value:.1f}" cy="{y:.1f}" r="3.8"/></g>'
        )
    return parts


def _rug(xs: Sequence[float], shares: Sequence[float], y: float) -> list[str]:
    most = max(*shares, 1e-9)
    return [
        f'<rect class="single" x="{x + 0.4:.1f}" y="{y:.1f}" width="{xs[1] - xs[0] - 0.8:.1f}" '
        f'height="{_RUG}" opacity="{0.15 + 0.85 * share / most:.2f}"/>'
        for x, share in zip(xs, shares, strict=False)
        if share > 0
    ]


def _labeller(edges: Sequence[float], time: str | None, *, apart: bool = True) -> Callable[[float], str]:
    span = edges[-1] - edges[0]
    if time:
        return lambda value: moment(value, span)
    biggest = max(abs(edges[0]), abs(edges[-1]))
    digits = max(3, math.ceil(math.log10(biggest / span)) + 3) if 0 < span < math.inf else 3
    return lambda value: number(value, digits, apart=apart)


def _place(value: float, low: float, high: float) -> float:
    """Return where a value is between two others, as a share; they may be further apart than any float."""
    if math.isinf(high - low):
        value, low, high = value / 2, low / 2, high / 2
    return (value - low) / (high - low)


def _ticks(edges: Sequence[float], y: float, time: str | None, *, apart: bool = True) -> list[str]:
    low, high = edges[0], edges[-1]
    label = _labeller(edges, time, apart=apart)
    if time:
        values = [low * (1 - part) + high * part for part in (0.12, 0.5, 0.88)]
    elif len(edges) == 2:
        values = [low / 2 + high / 2]
    else:
        values = nice_ticks(low, high)
    longest = max((len(label(value)) for value in values), default=1)
    room = max(1, int(WIDTH / (LETTER * longest)))  # labels that stand beside each other
    values = values[:: math.ceil(len(values) / room) or 1]
    parts = []
    for value in values:
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * _place(value, low, high)
        x = min(max(x, 14.0), WIDTH - 14.0)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{y + 4:.1f}"/>')
        parts.append(_text("tick", x, y + 17, label(value), anchor="middle"))
    return parts


def _tooltips(fill: dict[str, Any], xs: Sequence[float], floor: float) -> list[str]:
    label = _labeller(fill["edges"], fill.get("time"), apart=not may_be_years(fill))
    parts = []
    for place in range(len(fill["observed"])):
        low, high = fill["edges"][place], fill["edges"][place + 1]
        centre = not fill.get("time") and high - low == 1 and low % 1 == 0.5  # a bin of one whole number
        where = label((low + high) / 2) if centre else f"{label(low)} to {label(high)}"
        title = f"{where}: observed {percent(fill['observed'][place])}, {_imputed_words(fill, place)}"
        parts.append(
            f'<rect class="hover" x="{xs[place]:.1f}" y="{_TOP}" width="{xs[1] - xs[0]:.1f}" '
            f'height="{floor - _TOP + _RUG + 3:.1f}"><title>{escape(title)}</title></rect>'
        )
    return parts


def _imputed_words(fill: dict[str, Any], place: int) -> str:
    low, high = fill["low"][place], fill["high"][place]
    band = f" ({percent(low)} to {percent(high)} over the draws)" if low != high else ""
    return f"imputed {percent(fill['imputed'][place])}{band}"


def level_bars(fill: dict[str, Any]) -> str:
    """Draw one pair of bars per level: observed above, imputed below with its whisker over the draws."""
    top = max(*fill["observed"], *fill["high"], 1e-9)
    name_width, row = 112.0, 30.0
    scale = (WIDTH - name_width - 52) / top
    parts = []
    for place, level in enumerate(fill["levels"]):
        y = 4 + row * place
        observed, imputed = fill["observed"][place], fill["imputed"][place]
        low, high = fill["low"][place], fill["high"][place]
        start, end = name_width + low * scale, name_width + high * scale
        title = f"{level}: observed {percent(observed)}, {_imputed_words(fill, place)}"
        parts += [
            f"<g><title>{escape(title)}</title>",
            _text("level", name_width - 8, y + 16, shorten(level, 16), anchor="end"),
            _bar("observed", name_width, y + 2, observed * scale, 9),
            _bar("imputed", name_width, y + 13, imputed * scale, 9),
            f'<path class="whisker" d="M{start:.1f} {y + 17.5}H{end:.1f}m0 -3v6M{start:.1f} {y + 14.5}v6"/>',
            _text("tick", name_width + max(observed, imputed, high) * scale + 6, y + 16, percent(imputed)),
            "</g>",
        ]
    return _svg(parts, f"Observed and imputed levels of {fill['name']}", height=8 + row * len(fill["levels"]))


def shorten(text: str, at_most: int) -> str:
    """Return a text cut to a length, with an ellipsis where it was cut."""
    text = " ".join(text.split())
    return text if len(text) <= at_most else text[: at_most - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def strip(shares: Sequence[float], edges: Sequence[int], name: str) -> str:
    """Draw where in the table a column is missing: one cell per block of rows, the darker the more."""
    parts = []
    for place, share in enumerate(shares):
        first, last = edges[place] + 1, edges[place + 1]
        rows = f"row {first}" if first == last else f"rows {number(first, 12)} to {number(last, 12)}"
        opacity = f' opacity="{0.18 + 0.82 * share:.2f}"' if share else ""
        shade = "missing" if share else "seen"
        parts.append(
            f'<rect class="{shade}" x="{place}" y="0" width="1.02" height="1"{opacity}>'
            f"<title>{escape(f'{name}, {rows}: {percent(share)} missing')}</title></rect>"
        )
    return (
        f'<svg class="strip" viewBox="0 0 {len(shares)} 1" preserveAspectRatio="none" role="img" '
        f'aria-label="Where {escape(name)} is missing">{"".join(parts)}</svg>'
    )


def pattern_grid(patterns: dict[str, Any]) -> str:
    """Draw the most frequent missingness patterns: a row per pattern, a column per incomplete column."""
    columns, rows = patterns["columns"], patterns["rows"]
    longest = max(len(shorten(name, 22)) for name in columns)
    slant = 6.8 * longest * 0.72
    top, left, bar = 16 + slant, 4.0, 150.0
    right = left + _CELL_WIDTH * len(columns)
    most = rows[0]["count"]
    words_width = 6.4 * (len(_rows(most)) + 8)  # words stand on the bars, so that both fit on a phone
    parts = [
        f'<text class="level" transform="translate({left + _CELL_WIDTH * (place + 0.6):.1f} {top - 7:.1f}) '
        f'rotate(-45)">'
        f"{escape(shorten(name, 22))}</text>"
        for place, name in enumerate(columns)
    ]
    for line, row in enumerate(rows):
        y = top + (_CELL + 3) * line
        lost = [name for name, gone in zip(columns, row["missing"], strict=True) if gone]
        words = f"{', '.join(lost)} missing" if lost else "nothing missing"
        share = f"{_rows(row['count'])} ({percent(row['share'])})"
        parts.append(f"<g><title>{escape(f'{words}: {share}')}</title>")
        parts += [
            f'<rect class="{"missing" if gone else "seen"}" x="{left + _CELL_WIDTH * place + 1:.1f}" '
            f'y="{y:.1f}" width="{_CELL_WIDTH - 2}" height="{_CELL}" rx="2"/>'
            for place, gone in enumerate(row["missing"])
        ]
        length = bar * row["count"] / most
        parts.append(_bar("amount pale", right + 8, y, max(length, 1), _CELL))
        parts.append(_text("level", right + 12, y + 12, share) + "</g>")
    width = right + max(words_width + 16, bar + 12, slant + 10)
    return _svg(parts, "Missingness patterns", width, top + (_CELL + 3) * len(rows) + 4, fixed=True)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{number(count, 12)} rows"


def _bar(shade: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{shade}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="1"/>'


def _text(shade: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{shade}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(
    parts: Sequence[str], title: str, width: float = WIDTH, height: float = HEIGHT, *, fixed: bool = False
) -> str:
    size = f' width="{width:.0f}" height="{height:.0f}"' if fixed else ""
    return (
        f'<svg class="picture" viewBox="0 0 {width:.0f} {height:.0f}"{size} role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def distribution(shares: Sequence[float], edges: Sequence[float], title: str) -> str:
    """Draw the shares of numbers in bins as bars.

    Parameters
    ----------
    shares : sequence of float
        The share of each bin.
    edges : sequence of float
        The edges of the bins, one more.
    title : str
        The text for screen readers.
    """
    floor, top = HEIGHT - _BOTTOM, max(*shares, 1e-9) * 1.04
    width = (WIDTH - _LEFT - _RIGHT) / len(shares)
    label = _labeller(edges, None)
    parts = []
    for place, share in enumerate(shares):
        height = (floor - _TOP) * share / top
        words = f"{label(edges[place])} to {label(edges[place + 1])}: {percent(share)}"
        bar = _bar("observed", _LEFT + width * place + 0.4, floor - height, width - 0.8, round(height, 1))
        parts.append(f"<g><title>{escape(words)}</title>{bar}</g>")
    parts.append(f'<line class="axis" x1="{_LEFT}" y1="{floor}" x2="{WIDTH - _RIGHT}" y2="{floor}"/>')
    return _svg([*parts, *_ticks(edges, floor + 1, None)], title)


def shares_of_levels(levels: Sequence[str], shares: Sequence[float], title: str) -> str:
    """Draw the share of each level as a bar beside its name."""
    name_width, row = 112.0, 24.0
    scale = (WIDTH - name_width - 52) / max(*shares, 1e-9)
    parts = []
    for place, (level, share) in enumerate(zip(levels, shares, strict=True)):
        y = 4 + row * place
        parts += [
            f"<g><title>{escape(f'{level}: {percent(share)}')}</title>",
            _text("level", name_width - 8, y + 14, shorten(level, 16), anchor="end"),
            _bar("observed", name_width, y + 3, share * scale, 14),
            _text("tick", name_width + share * scale + 6, y + 14, percent(share)) + "</g>",
        ]
    return _svg(parts, title, height=8 + row * len(levels))
