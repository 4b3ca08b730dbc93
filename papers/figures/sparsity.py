"""Figures of experiments on Sparsity Normalization: how predictions drift with what is shown of a row."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from halfseen.report.figures import GRID, OURS, new_figure
from papers import Results
from papers.sparsity.series import CURVE


def drift_curves(results: Results) -> Figure | None:
    """Plot the mean prediction against the share of known values that is shown; None without stored curves.

    There is a panel for each model and setting, with a line for each seed and, where it is stored, the
    bootstrap interval of the first one.
    """
    panels: dict[str, list[np.ndarray]] = {}
    for cell in results.cells:
        if CURVE in cell.arrays:
            setting = " · ".join(str(value) for value in cell.setting.values())
            name = f"{cell.model}\n{setting}"
            panels.setdefault(name, []).append(_lines(cell.arrays[CURVE]))
    if not panels:
        return None
    n_columns = min(3, len(panels))
    n_lines = -(-len(panels) // n_columns)
    figure = new_figure(2.6 * n_columns, 2.3 * n_lines + 0.5)
    axes = figure.subplots(n_lines, n_columns, sharex=True, sharey=True, squeeze=False)
    for axis, (name, curves) in zip(axes.flat, panels.items(), strict=False):
        shares, _, lows, highs = curves[0]
        axis.fill_between(shares, lows, highs, color=OURS, alpha=0.2, linewidth=0)
        for curve in curves:
            axis.plot(curve[0], curve[1], color=OURS, lw=1, alpha=0.8)
        axis.set_title(name, loc="left", fontsize=8)
        axis.grid(color=GRID)
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.supxlabel("known values that are shown", fontsize=8)
    figure.supylabel("mean prediction", fontsize=8)
    return figure


def _lines(curve: np.ndarray) -> np.ndarray:
    """Return shares, means and the ends of their interval (4, L); means alone (L) are at equal shares."""
    if curve.ndim == 2:
        return curve
    shares = np.arange(1, len(curve) + 1) / len(curve)
    return np.stack([shares, curve, curve, curve])
