"""Figures of a table before and after it is imputed, and curves of the variable sparsity problem.

Before: missingness patterns, and influx against outflux. After: observed against imputed values, and traces
of parameters.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy.stats import gaussian_kde

from halfseen.data.frames import is_frame
from halfseen.data.schema import Column, Schema, open_table
from halfseen.evaluation.sparsity import VSPCurve

if TYPE_CHECKING:  # matplotlib is loaded when a figure is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from typing import TYPE_CHECKING

from halfseen._arrays import Floats
from halfseen.diagnosis.cells import group_patterns, tabulate_patterns
from halfseen.diagnosis.connections import flux

if TYPE_CHECKING:  # matplotlib is loaded when a figure is drawn
    from matplotlib.figure import Figure


OURS, THEIRS, QUIET, GRID = "#1f6fb2", "#c2571a", "#66717d", "#e3e8ee"
"""Colours of our numbers, of published ones, of secondary text and of grid lines."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#d3dae2",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "xtick.color": QUIET,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "halfseen",  # the same figure gives the same file
}
"""Settings of matplotlib for every figure."""


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained")


def to_svg(figure: "Figure") -> str:
    """Return a figure as the text of an SVG file, which is the same for the same figure."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def plot_vsp(curves: VSPCurve | dict[str, VSPCurve], title: str = "") -> "Figure":
    """Plot mean predictions against the share of known values that was shown, with intervals.

    Parameters
    ----------
    curves : VSPCurve or dict of str to VSPCurve
        A curve, or two by name, such as those of a network with and without Sparsity Normalization.
    title : str
        The title of the figure.
    """
    from matplotlib.ticker import PercentFormatter

    named = curves if isinstance(curves, dict) else {"": curves}
    figure = new_figure(4.2, 2.8)
    axes = figure.add_subplot()
    for (name, curve), colour in zip(named.items(), (OURS, THEIRS), strict=False):
        axes.fill_between(curve.shares, curve.lows, curve.highs, color=colour, alpha=0.2, linewidth=0)
        axes.plot(curve.shares, curve.means, color=colour, marker="o", markersize=3, label=name)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set(xlabel="known values that are shown", ylabel="mean prediction", title=title)
    if len(named) > 1:
        axes.legend(frameon=False)
    return figure


KINDS = ("density", "strip")
MOST_PANELS, PANELS_PER_ROW = 12, 3
MOST_POINTS = 300  # of a column and draw in a strip
MOST_DRAWS = 20


def plot_imputed(
    X: Any, draws: Sequence[Any], *, columns: Sequence[str] | None = None, kind: str = "density"
) -> "Figure":
    """Plots observed and imputed values of each column, one line or strip for each completed table.

    Imputed values need not be distributed like observed ones: under MAR they may differ if the other columns
    of incomplete rows differ. A difference that subject matter cannot explain is a reason to examine the
    model.

    Parameters
    ----------
    X : table or array-like of shape (n_samples, n_features)
        The incomplete table.
    draws : sequence of tables
        Completed tables, from `multiple_imputation` or `sample`; at most 20 are drawn.
    columns : sequence of str, optional
        The columns; by default the first twelve with missing values. Columns with levels are drawn as shares
        of the levels.
    kind : {"density", "strip"}, default="density"
        Smoothed densities, or every value as a point.

    Returns
    -------
    matplotlib Figure
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    table = open_table(X)
    schema, tables = Schema.infer(table), list(draws)[:MOST_DRAWS]
    if not tables:
        raise ValueError("There is no completed table to plot.")
    chosen = _choose(schema, columns)
    n_across = min(len(chosen), PANELS_PER_ROW)
    n_down = -(-len(chosen) // n_across)
    figure = new_figure(3.0 * n_across, 2.3 * n_down)
    for number, j in enumerate(chosen, start=1):
        axes = figure.add_subplot(n_down, n_across, number)
        column = schema.columns[j]
        missing = np.isnan(table.column(j).values)
        values = _cells(X, j)[~missing]
        imputed = [_cells(one, j)[missing] for one in tables]
        draw = _plot_density if kind == "density" else _plot_strip
        draw = draw if column.levels is None else _plot_levels
        draw(axes, column, values, imputed)
        axes.set_title(f"{column.name}: {missing.mean():.0%} missing", fontsize=8)
        axes.tick_params(labelsize=7)
        if number == 1:
            axes.legend(frameon=False, fontsize=7)
    return figure


def plot_trace(imputer: Any, *, columns: Sequence[str] | None = None) -> "Figure":
    """Plots the steps of a data augmentation or of chained equations, which should show no trend.

    Parameters
    ----------
    imputer : ChainedImputer, GaussianImputer or AutoImputer
        Fitted; the last two with ``n_posterior_draws``. The imputer of `multiple_imputation` is one of them.
    columns : sequence of str, optional
        The columns; by default the first twelve.

    Returns
    -------
    matplotlib Figure
        For each column its mean and standard deviation: of the scores of the column (`GaussianImputer`), or
        of the completed column with a line for each chain (`ChainedImputer`). Dots are the steps that are
        kept.
    """
    members: Sequence[Any] = getattr(imputer, "members_", ())
    trace = getattr(members[0] if len(members) == 1 else imputer, "trace_", None)
    if trace is None:
        raise ValueError(
            "The imputer has no trace: fit a ChainedImputer, or a GaussianImputer with n_posterior_draws."
        )
    names = list(trace.names) if columns is None else list(columns)
    unknown = [name for name in names if name not in trace.names]
    if unknown:
        raise ValueError(f"The trace has no column {unknown[0]!r}; there are {', '.join(trace.names)}.")
    names = names[:MOST_PANELS]
    figure = new_figure(6.4, 1.5 * len(names))
    for row, name in enumerate(names):
        j = trace.names.index(name)
        for side, (what, values) in enumerate({"mean": trace.mean, "std": trace.std}.items()):
            axes = figure.add_subplot(len(names), 2, 2 * row + side + 1)
            axes.plot(values[..., j], color=OURS, linewidth=0.8)
            axes.plot(trace.kept, values[trace.kept][..., j], ".", color=THEIRS, markersize=4)
            axes.set_title(f"{name}: {what} of {trace.of}", fontsize=8)
            axes.locator_params(axis="x", integer=True)  # steps are whole numbers
            axes.tick_params(labelsize=7)
    return figure


def _choose(schema: Schema, columns: Sequence[str] | None) -> list[int]:
    names = [column.name for column in schema]
    if columns is not None:
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise ValueError(f"There is no column {unknown[0]!r}; the table has {', '.join(names)}.")
        return [names.index(name) for name in columns]
    chosen = [
        j
        for j, column in enumerate(schema)
        if column.n_missing
        and (column.levels is not None or column.kind in ("continuous", "positive", "count"))
    ]
    if not chosen:
        raise ValueError("No column with numbers or levels has missing values: there is nothing to plot.")
    return chosen[:MOST_PANELS]


def _cells(table: Any, position: int) -> npt.NDArray[Any]:
    if not is_frame(table):
        return np.asarray(table)[:, position]
    return np.array(nw.from_native(table, eager_only=True)[:, position].to_list(), dtype=object)


def _numbers(values: npt.NDArray[Any]) -> Floats:
    numbers = np.array([np.nan if value is None else float(value) for value in values.tolist()])
    return numbers[~np.isnan(numbers)]


def _plot_density(
    axes: "Axes", column: Column, observed: npt.NDArray[Any], imputed: Sequence[npt.NDArray[Any]]
) -> None:
    everything = _numbers(np.concatenate([observed, *imputed]))
    grid = np.linspace(everything.min(), everything.max(), 200)
    for i, values in enumerate(imputed):
        label = "imputed" if i == 0 else None
        _line(axes, grid, _numbers(values), THEIRS, 0.8, label)
    _line(axes, grid, _numbers(observed), OURS, 2.0, "observed")
    axes.set_yticks([])


def _line(axes: "Axes", grid: Floats, values: Floats, colour: str, width: float, label: str | None) -> None:
    if len(values) > 2 and values.std() > 0:
        axes.plot(grid, gaussian_kde(values)(grid), color=colour, linewidth=width, label=label)
    else:
        axes.plot(values, np.zeros_like(values), "|", color=colour, label=label)


def _plot_strip(
    axes: "Axes", column: Column, observed: npt.NDArray[Any], imputed: Sequence[npt.NDArray[Any]]
) -> None:
    rng = np.random.default_rng(0)
    for place, values in enumerate([observed, *imputed]):
        numbers = _numbers(values)[:MOST_POINTS]
        where = place + rng.uniform(-0.25, 0.25, size=len(numbers))
        label = "observed" if place == 0 else "imputed" if place == 1 else None
        axes.plot(where, numbers, ".", color=THEIRS if place else OURS, markersize=2, label=label)
    axes.set_xlabel("completed table (0: observed)", fontsize=7)


def _plot_levels(
    axes: "Axes", column: Column, observed: npt.NDArray[Any], imputed: Sequence[npt.NDArray[Any]]
) -> None:
    levels = list(column.levels or ())
    for i, values in enumerate([*imputed, observed]):
        shares = [np.mean([value == level for value in values.tolist()]) for level in levels]
        is_observed = i == len(imputed)
        style = {"color": OURS, "markersize": 7} if is_observed else {"color": THEIRS, "markersize": 3}
        label = "observed" if is_observed else "imputed" if i == 0 else None
        axes.plot(range(len(levels)), shares, "o", label=label, **style)  # type: ignore[arg-type]
    axes.set_xticks(range(len(levels)), [str(level) for level in levels])
    axes.set_ylim(0, None)
    axes.set_ylabel("share", fontsize=7)


CELL = 0.28  # inches of a cell of the patterns: chosen so that names and counts can be read


def plot_patterns(X: Any) -> "Figure":
    """Plots the most frequent missingness patterns: a row for each pattern, a column for each column.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table.

    Returns
    -------
    matplotlib Figure
        Observed cells are blue, missing ones orange. The number of rows of a pattern is on the left, that of
        the missing columns of a pattern on the right, and the number of missing cells of a column below.
    """
    from matplotlib.colors import ListedColormap

    table = open_table(X)
    missing = table.missing()
    if not missing.any():
        raise ValueError("The table has no missing values, so there are no patterns to plot.")
    found = tabulate_patterns(group_patterns(~missing), table.names)
    cells = np.array([[name in row.missing for name in found.columns] for row in found.rows], dtype=float)
    figure = new_figure(2.0 + CELL * 2 * len(found.columns), 1.2 + CELL * len(found.rows))
    axes = figure.add_subplot()
    axes.pcolormesh(cells, cmap=ListedColormap([OURS, THEIRS]), vmin=0, vmax=1, edgecolor="w", linewidth=1)
    axes.invert_yaxis()
    across, down = np.arange(len(found.columns)) + 0.5, np.arange(len(found.rows)) + 0.5
    axes.set_yticks(down, [f"{row.count:,}" for row in found.rows])
    totals = [int(missing[:, table.names.index(name)].sum()) for name in found.columns]
    axes.set_xticks(across, [f"{total:,}" for total in totals])
    axes.set(xlabel="missing cells", ylabel="rows")
    above, beside = axes.secondary_xaxis("top"), axes.secondary_yaxis("right")
    above.set_xticks(across, found.columns, rotation=45, ha="left")
    beside.set_yticks(down, [str(len(row.missing)) for row in found.rows])
    for one in (axes, above, beside):
        one.tick_params(length=0, labelsize=7)
        for spine in one.spines.values():
            spine.set_visible(False)
    hidden = found.n_patterns - len(found.rows)
    axes.set_title(f"{hidden:,} rarer patterns are not shown" if hidden else "", fontsize=8, color=QUIET)
    return figure


def plot_flux(X: Any) -> "Figure":
    """Plots the outflux of each column against its influx; see `halfseen.diagnosis.flux`.

    Columns near the top left corner are observed and predict others well. Columns near the lower end of the
    line are missing where others are too: they neither help much nor can be imputed well.

    Parameters
    ----------
    X : table or array-like of shape (n_samples, n_features)
        The incomplete table, as of `plot_patterns`.

    Returns
    -------
    matplotlib Figure
    """
    found = flux(X)
    figure = new_figure(4.4, 4.0)
    axes = figure.add_subplot()
    axes.plot([0, 1], [1, 0], color=GRID, linewidth=1)
    axes.plot(found.influx, found.outflux, "o", color=OURS, markersize=4)
    for name, into, out in zip(found.names, found.influx, found.outflux, strict=True):
        axes.annotate(name, (into, out), xytext=(4, 2), textcoords="offset points", fontsize=7, color=QUIET)
    axes.set(xlabel="influx", ylabel="outflux", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return figure
