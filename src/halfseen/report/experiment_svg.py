"""The results of an experiment as one picture: a dot and an interval for each model, beside the paper's."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from halfseen.experiments import Results, Row
from halfseen.experiments.claims import Setting
from halfseen.report.svg import nice_ticks, number

_LINE, _HEAD, _FOOT, _GAP, _MARGIN, _TITLE = 19.0, 44.0, 26.0, 22.0, 16.0, 70.0
_WIDTH, _WIDE, _LETTER = 236.0, 480.0, 6.6
_LINEAR = 3e-4  # a symmetric-log axis is linear up to about here
_FARTHEST = 1.0  # and is cut here

_STYLE = """
svg { font: 12px system-ui, sans-serif; background: #fff; }
text { fill: #1d2733; } .quiet, .tick { fill: #66717d; }
.tick { font-size: 10.5px; } .failed { fill: #b42318; }
.title { font-size: 15px; font-weight: 600; } .head { font-weight: 600; } .grid { stroke: #e3e8ee; }
.zero { stroke: #8a95a1; } .frame { fill: none; stroke: #d3dae2; } .band { fill: #f5f7f9; }
.ours { fill: #1f6fb2; } .span { stroke: #1f6fb2; stroke-width: 2.4; stroke-linecap: round; }
.theirs { fill: #fff; stroke: #c2571a; stroke-width: 1.6; } .their-span { stroke: #c2571a; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
svg { background: #14191f; } text { fill: #e8edf2; } .quiet, .tick { fill: #9aa6b2; }
.grid { stroke: #27303a; }
.zero { stroke: #7d8894; } .frame { stroke: #39444f; } .band { fill: #1a2129; } .failed { fill: #ff8a7a; }
.ours { fill: #69b1ee; } .span { stroke: #69b1ee; } .theirs { fill: #14191f; stroke: #f0955a; }
.their-span { stroke: #f0955a; }
}
"""


@dataclass(frozen=True)
class _Axis:
    """Where a number lies between 0 and 1, and which numbers are written below."""

    low: float
    high: float
    bend: Callable[[float], float]
    ticks: Sequence[float]

    def place(self, value: float) -> float:
        """Returns the position of a number, which is moved to the nearer end if it lies beyond."""
        low, high = self.bend(self.low), self.bend(self.high)
        return min(max((self.bend(value) - low) / (high - low), 0.0), 1.0)


def draw_experiment(results: Results, metric: str | None = None) -> str:
    """Returns the table of results as an SVG file.

    A row of panels has a panel for each value of the first thing in which settings differ (say, mechanisms),
    and a line for each model: the mean over seeds with one standard deviation to each side, and hollow
    what the paper has. An axis with zero or small negative numbers is logarithmic to both sides of zero.

    Parameters
    ----------
    results : Results
        What ``halfseen.experiments.run`` returns.
    metric : str, optional
        Which metric to draw; the first of the experiment, if not given.
    """
    chosen = next(iter(results.experiment.metrics)) if metric is None else metric
    rows = [row for row in results.rows() if row.metric == chosen]
    layout = _arrange(rows)
    axis = _axis(rows)
    left = _left(rows)
    panel_width = _WIDE if len(layout.columns) == 1 else _WIDTH
    parts, y = _header(results, [chosen], layout.constants), _TITLE
    for shared, group in layout.lines:
        models = list(dict.fromkeys(row.model for row in group))
        for line, model in enumerate(models):
            parts.append(_text("", left - 10, y + _HEAD + _LINE * (line + 0.5) + 4, model, "end"))
        for place, value in enumerate(layout.columns):
            panel = {row.model: row for row in group if row.setting.get(layout.key) == value}
            if panel:
                box = (left + place * (panel_width + _GAP), y, panel_width)
                heading = (_shown(value) if len(layout.columns) > 1 else "", shared)
                parts += _panel(axis, panel, models, box, heading)
        y += _HEAD + _LINE * len(models) + _FOOT
    width = max(left + len(layout.columns) * (panel_width + _GAP), 700.0)
    return _file(parts, width, y + _MARGIN, f"Results of {results.experiment.name}")


def draw_metrics(results: Results, metrics: Sequence[str]) -> str:
    """Returns several metrics side by side as an SVG file, each on its own axis.

    Parameters
    ----------
    results : Results
        Of an experiment whose runs have one setting.
    metrics : sequence of str
        Which to draw; more of each must be better, or less of each.
    """
    rows = [row for row in results.rows() if row.metric in metrics]
    layout = _arrange(rows)
    if len(layout.columns) > 1:
        raise ValueError(f"Metrics are drawn side by side for one setting, got {list(layout.columns)}.")
    models = list(dict.fromkeys(row.model for row in rows))
    left = _left(rows)
    parts = _header(results, metrics, layout.constants)
    for line, model in enumerate(models):
        parts.append(_text("", left - 10, _TITLE + _HEAD + _LINE * (line + 0.5) + 4, model, "end"))
    for place, metric in enumerate(metrics):
        panel = {row.model: row for row in rows if row.metric == metric}
        box = (left + place * (_WIDTH + _GAP), _TITLE, _WIDTH)
        parts += _panel(_axis(panel.values()), panel, models, box, (metric, ""))
    width = max(left + len(metrics) * (_WIDTH + _GAP), 700.0)
    height = _TITLE + _HEAD + _LINE * len(models) + _FOOT + _MARGIN
    return _file(parts, width, height, f"Results of {results.experiment.name}")


def _left(rows: Iterable[Row]) -> float:
    """Returns where panels begin: after the longest name."""
    return _MARGIN + _LETTER * max((len(row.model) for row in rows), default=0) + 10


def _header(results: Results, metrics: Sequence[str], constants: str) -> list[str]:
    better = "right" if results.sign(metrics[0]) > 0 else "left"
    counts = [row.n_runs for row in results.rows()]
    low, high = min(counts, default=0), max(counts, default=0)
    seeds = str(high) if low == high else f"{low} to {high}"
    ours = f"mean of {seeds} seeds ± standard deviation" if high > 1 else "one seed"
    where = f" ({constants})" if constants else ""
    has_theirs = any(row.published is not None for row in results.rows())
    x, y = _MARGIN, 46.0
    return [
        _text("title", x, 24, f"{results.experiment.name}, {results.scale}: {' and '.join(metrics)}{where}"),
        f'<circle class="ours" cx="{x + 5}" cy="{y - 4}" r="4.4"/>',
        _text("quiet", x + 16, y, f"ours, {ours}; better is to the {better}"),
        *([f'<circle class="theirs" cx="{x + 5}" cy="{y + 14}" r="3.8"/>'] if has_theirs else []),
        _text("quiet", x + (16 if has_theirs else 0), y + 18, results.experiment.paper),
    ]


@dataclass(frozen=True)
class _Layout:
    """The setting that differs between columns and its values, what differs between lines, and what never."""

    key: str
    columns: Sequence[object]
    lines: Sequence[tuple[str, list[Row]]]
    constants: str


def _arrange(rows: Sequence[Row]) -> _Layout:
    keys = list(rows[0].setting) if rows else []
    values = {key: list(dict.fromkeys(row.setting.get(key) for row in rows)) for key in keys}
    varying = [key for key in keys if len(values[key]) > 1]
    column_key = varying[0] if varying else (keys[0] if keys else "")
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(_told(row.setting, varying[1:]), []).append(row)
    constants = _told(rows[0].setting, [key for key in keys if key not in varying]) if rows else ""
    return _Layout(column_key, values.get(column_key, []), list(lines.items()), constants)


def _told(setting: Setting, keys: Sequence[str]) -> str:
    """Returns some of a setting in words; a name says itself what it is."""
    cells = [(key, setting.get(key)) for key in keys]
    return ", ".join(_shown(v) if isinstance(v, str) else f"{key} = {_shown(v)}" for key, v in cells)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value).replace("_", " ")


def _axis(rows: Iterable[Row]) -> _Axis:
    ends = [end for row in rows for end in _ends(row)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low > 0 or high < -_FARTHEST:
        pad = 0.05 * (high - low) or 0.5 * abs(high)
        return _Axis(low - pad, high + pad, float, nice_ticks(low - pad, high + pad, about=3))

    def bend(value: float) -> float:
        return math.copysign(math.log1p(abs(value) / _LINEAR), value)

    low, high = max(low, -_FARTHEST), min(max(high, 0.3 * _LINEAR), _FARTHEST)
    ticks = [sign * 10.0**power for sign in (-1, 1) for power in (-3, -2, -1, 0)]
    return _Axis(1.2 * low, 1.2 * high, bend, [tick for tick in sorted([*ticks, 0.0]) if low <= tick <= high])


def _ends(row: Row) -> list[float]:
    """Returns the ends of what is drawn of a row."""
    ends = [] if math.isnan(row.mean) else [row.mean + side * _deviation(row.sd) for side in (-1, 1)]
    if row.published is not None:
        ends += [row.published.mean + side * _deviation(row.published.sd) for side in (-1, 1)]
    return ends


def _deviation(sd: float | None) -> float:
    return 0.0 if sd is None or math.isnan(sd) else sd


def _panel(
    axis: _Axis,
    panel: dict[str, Row],
    models: Sequence[str],
    box: tuple[float, float, float],
    heading: tuple[str, str],
) -> list[str]:
    x, top, width = box[0], box[1] + _HEAD, box[2]
    height = _LINE * len(models)

    def at(value: float) -> float:
        return x + 8 + (width - 16) * axis.place(value)

    first, second = heading
    parts = [_text("head", x, top - (23 if second else 8), first), _text("quiet", x, top - 8, second)]
    parts += [
        f'<rect class="band" x="{x:.1f}" y="{top + _LINE * line:.1f}" width="{width}" height="{_LINE}"/>'
        for line in range(0, len(models), 2)
    ]
    for tick in axis.ticks:
        shade = "zero" if tick == 0 else "grid"
        parts.append(f'<path class="{shade}" d="M{at(tick):.1f} {top:.1f}v{height:.1f}"/>')
        parts.append(_text("tick", at(tick), top + height + 14, number(tick), "middle"))
    parts.append(f'<rect class="frame" x="{x}" y="{top}" width="{width}" height="{height}"/>')
    for line, model in enumerate(models):
        if model in panel:
            parts += _marks(panel[model], at, top + _LINE * (line + 0.5))
    return parts


def _marks(row: Row, at: Callable[[float], float], y: float) -> list[str]:
    """Draws what a model has in a panel: theirs below, ours above, and how many runs failed."""
    parts = [f"<g><title>{escape(_words(row))}</title>"]
    if row.published is not None:
        parts += _mark(row.published.mean, row.published.sd, at, y + 3, ("their-span", "theirs", 3.8))
    if not math.isnan(row.mean):
        parts += _mark(row.mean, row.sd, at, y - (3 if row.published else 0), ("span", "ours", 4.4))
    if row.n_failed:
        words = f"{row.n_failed} of {row.n_runs} failed"
        parts.append(_text("failed tick", at(math.inf), y + 4, words, "end"))
    return [*parts, "</g>"]


def _mark(
    mean: float, sd: float | None, at: Callable[[float], float], y: float, style: tuple[str, str, float]
) -> list[str]:
    spread = _deviation(sd)
    span, dot, radius = style
    return [
        f'<path class="{span}" d="M{at(mean - spread):.1f} {y:.1f}H{at(mean + spread):.1f}"/>',
        f'<circle class="{dot}" cx="{at(mean):.1f}" cy="{y:.1f}" r="{radius}"/>',
    ]


def _words(row: Row) -> str:
    """Says what a line shows, for whoever points at it."""
    ours = "failed" if math.isnan(row.mean) else f"{row.mean:.4f} ± {_deviation(row.sd):.4f}"
    theirs = ""
    if row.published is not None:
        theirs = f"; the paper's {row.published.label}: {row.published.mean:.4f}"
        theirs += "" if row.published.sd is None else f" ± {row.published.sd:.4f}"
    return f"{row.model}: {ours}, {row.n_runs} runs, {row.seconds:.1f} s each{theirs}"


def _text(shade: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{shade}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _file(parts: Sequence[str], width: float, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )
