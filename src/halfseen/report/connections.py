"""Figures of an incomplete table before it is imputed: missingness patterns, and influx against outflux."""

from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.data.codes import open_table
from halfseen.diagnosis.cells import group_patterns, tabulate_patterns
from halfseen.diagnosis.connections import flux
from halfseen.report.figures import GRID, OURS, QUIET, THEIRS, new_figure

if TYPE_CHECKING:  # matplotlib is loaded when a figure is drawn
    from matplotlib.figure import Figure

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
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table.

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
