"""The results of an experiment as one figure: a dot and an interval for each model, beside the paper's."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from halfseen.report.figures import GRID, OURS, STYLE, THEIRS, new_figure
from papers import Results, Row
from papers.claims import Setting

_LINE, _PANEL = 0.24, (2.5, 0.75)  # inches: the height of a line; the width and extra height of a panel
_LINEAR, _LARGEST_SHOWN = 3e-4, 1.0  # a symmetric-log axis is linear up to the first and cut at the second


def plot_experiment(results: Results, metric: str | None = None) -> Figure:
    """Plot the table of results.

    Panels form a grid: one column for each value of the first key in which settings differ (for instance
    the mechanism), one row for each combination of the others. Each panel has a line per model with the mean
    over seeds and one standard deviation to each side, and a hollow mark for the published number. An axis
    that contains zero is logarithmic to both sides of zero.

    Parameters
    ----------
    results : Results
        What ``papers.run`` returns.
    metric : str, optional
        The metric to plot; by default the first of the experiment.
    """
    chosen = next(iter(results.experiment.metrics)) if metric is None else metric
    rows = [row for row in results.rows() if row.metric == chosen]
    layout = _arrange(rows)
    panels = [
        [
            (
                {row.model: row for row in group if row.setting.get(layout.key) == value},
                " · ".join(filter(None, (_shown(value) if len(layout.columns) > 1 else "", shared))),
            )
            for value in layout.columns
        ]
        for shared, group in layout.lines
    ]
    return _plot(results, [chosen], layout.constants, panels, share_axis=True)


def plot_metrics(results: Results, metrics: Sequence[str]) -> Figure:
    """Plot several metrics side by side, each on its own axis.

    Parameters
    ----------
    results : Results
        Of an experiment whose runs have one setting.
    metrics : sequence of str
        The metrics to plot; larger values of all of them are better, or smaller values of all of them.
    """
    rows = [row for row in results.rows() if row.metric in metrics]
    layout = _arrange(rows)
    if len(layout.columns) > 1:
        raise ValueError(f"Metrics are drawn side by side for one setting, got {list(layout.columns)}.")
    panels = [[({row.model: row for row in rows if row.metric == one}, one) for one in metrics]]
    return _plot(results, metrics, layout.constants, panels, share_axis=False)


def _plot(
    results: Results,
    metrics: Sequence[str],
    constants: str,
    panels: list[list[tuple[dict[str, Row], str]]],
    share_axis: bool,
) -> Figure:
    """Plot panels, each with its rows by model and its title, below a heading."""
    models = [list(dict.fromkeys(model for panel, _ in line for model in panel)) for line in panels]
    n_columns = max(map(len, panels), default=0)
    heights = [_LINE * len(names) + _PANEL[1] for names in models]
    figure = new_figure(max(2.2 + _PANEL[0] * n_columns, 7.0), sum(heights) + 0.9)
    figure.suptitle(_heading(results, metrics, constants), x=0.01, ha="left", fontsize=9)
    if not panels:
        return figure
    with mpl.rc_context(STYLE):
        axes = figure.subplots(len(panels), n_columns, squeeze=False, height_ratios=heights)
    everything = [row for line in panels for panel, _ in line for row in panel.values()]
    for line, names in enumerate(models):
        for place, (panel, title) in enumerate(panels[line]):
            _draw_panel(axes[line, place], panel, names, first=place == 0)
            axes[line, place].set_title(title, loc="left")
            _set_axis(axes[line, place], everything if share_axis else panel.values())
    return figure


def _heading(results: Results, metrics: Sequence[str], constants: str) -> str:
    counts = [row.n_runs for row in results.rows()]
    low, high = min(counts, default=0), max(counts, default=0)
    seeds = str(high) if low == high else f"{low} to {high}"
    ours = f"mean of {seeds} seeds ± standard deviation" if high > 1 else "one seed"
    better = "right" if results.sign(metrics[0]) > 0 else "left"
    where = f" ({constants})" if constants else ""
    has_theirs = any(row.published is not None for row in results.rows())
    paper = ("hollow: " if has_theirs else "") + results.experiment.paper
    return (
        f"{results.experiment.name}, {results.scale}: {' and '.join(metrics)}{where}\n"
        f"filled: ours, {ours}; better is to the {better}\n{paper}"
    )


def _draw_panel(axes: Axes, panel: dict[str, Row], models: Sequence[str], *, first: bool) -> None:
    axes.set_yticks(range(len(models)), models if first else [""] * len(models))
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
    for line, model in enumerate(models):
        if model not in panel:
            continue
        row = panel[model]
        if row.published is not None:
            place, spread = row.published.mean, _deviation(row.published.sd)
            axes.errorbar(place, line + 0.14, xerr=spread, fmt="o", color=THEIRS, mfc="white", ms=4.5, lw=1)
        if not math.isnan(row.mean):
            above = 0.14 if row.published is not None else 0.0
            axes.errorbar(row.mean, line - above, xerr=_deviation(row.sd), fmt="o", color=OURS, ms=5, lw=2)
        if row.n_failed:
            words = f"{row.n_failed} of {row.n_runs} failed"
            across = axes.get_yaxis_transform()
            axes.text(0.99, line, words, transform=across, ha="right", va="center", color="#b42318")


def _set_axis(axes: Axes, rows: Iterable[Row]) -> None:
    """Scale the axis: linear on one side of zero, logarithmic to both sides where it includes zero."""
    ends = [end for row in rows for end in _ends(row)]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    if low > 0 or high < -_LARGEST_SHOWN:
        pad = 0.05 * (high - low) or 0.5 * abs(high)
        axes.set_xlim(low - pad, high + pad)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        return
    low, high = max(low, -_LARGEST_SHOWN), min(max(high, 0.3 * _LINEAR), _LARGEST_SHOWN)
    axes.set_xscale("symlog", linthresh=_LINEAR, linscale=0.5)
    axes.set_xlim(1.2 * low if low < 0 else -_LINEAR, 1.2 * high)
    axes.axvline(0.0, color="#8a95a1", lw=1, zorder=1)
    powers = [sign * 10.0**power for sign in (-1, 1) for power in (-3, -2, -1, 0)]
    ticks = [tick for tick in sorted([*powers, 0.0]) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def _ends(row: Row) -> list[float]:
    """Return the ends of the intervals that are drawn for a row."""
    ends = [] if math.isnan(row.mean) else [row.mean + side * _deviation(row.sd) for side in (-1, 1)]
    if row.published is not None:
        ends += [row.published.mean + side * _deviation(row.published.sd) for side in (-1, 1)]
    return ends


def _deviation(sd: float | None) -> float:
    return 0.0 if sd is None or math.isnan(sd) else sd


@dataclass(frozen=True)
class _Layout:
    """The key that differs between columns with its values, the rows of panels, and the constant keys."""

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
        lines.setdefault(_described(row.setting, varying[1:]), []).append(row)
    constants = _described(rows[0].setting, [key for key in keys if key not in varying]) if rows else ""
    return _Layout(column_key, values.get(column_key, []), list(lines.items()), constants)


def _described(setting: Setting, keys: Sequence[str]) -> str:
    """Return part of a setting in words; names stand alone, numbers with their key."""
    cells = [(key, setting.get(key)) for key in keys]
    return ", ".join(_shown(v) if isinstance(v, str) else f"{key} = {_shown(v)}" for key, v in cells)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value).replace("_", " ")
