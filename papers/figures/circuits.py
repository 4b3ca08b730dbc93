"""Figures of the experiment on digits with missing pixels: accuracy curves, and images that are drawn."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from halfseen.report.figures import GRID, OURS, QUIET, new_figure
from papers import Cell, Results
from papers.circuits import mnist as convac_mnist

CURVES = (
    convac_mnist.CIRCUIT,
    convac_mnist.MIXED,
    convac_mnist.NEIGHBOURS,
    convac_mnist.ZERO,
    convac_mnist.MEAN,
    convac_mnist.CONDITIONAL,
    convac_mnist.MIWAE,
)
"""The models whose accuracy is shown; those of figure 3 of the paper are in the table."""

_MARKS = "osv^<>D"
_COLORS = (OURS, "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#a6761d")

Shades = npt.NDArray[np.float32]


def accuracy_curves(results: Results) -> Figure | None:
    """Plot the accuracy of each model against the share of missing pixels, and for squares."""
    runs = {cell.model: cell for cell in results.cells if cell.seed == 0 and not cell.failed}
    shown = [name for name in CURVES if name in runs]
    if not shown:
        return None
    figure = new_figure(8.4, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    squares = [convac_mnist.of_squares(*square) for square in convac_mnist.SQUARES]
    for name in shown:
        mark, color = _MARKS[CURVES.index(name)], _COLORS[CURVES.index(name)]
        style = {"marker": mark, "ms": 3.5, "lw": 1.2, "color": color, "label": name}
        rates = [rate for rate in convac_mnist.RATES if convac_mnist.of_pixels(rate) in runs[name].scores]
        left.plot(rates, [runs[name].scores[convac_mnist.of_pixels(rate)] for rate in rates], **style)
        places = [place for place, square in enumerate(squares) if square in runs[name].scores]
        right.plot(places, [runs[name].scores[squares[place]] for place in places], **style)
    left.set_xlabel("missing pixels")
    left.set_ylabel("accuracy")
    left.xaxis.set_major_formatter(PercentFormatter(1.0))
    right.set_xticks(
        range(len(squares)), [f"{n} of {width}" for n, width in convac_mnist.SQUARES], fontsize=7
    )
    right.set_xlabel("missing squares, and their width in pixels")
    right.legend(frameon=False, fontsize=7)
    for axes in (left, right):
        axes.grid(color=GRID)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


def drawn_digits(results: Results) -> Figure | None:
    """Plot digits drawn by the circuit, one row per class, and prototypes of the channels of a level."""
    kept: list[Cell] = [cell for cell in results.cells if "drawn" in cell.arrays]
    if not kept:
        return None
    figure = new_figure(8.4, 4.6)
    drawn, channels = figure.subplots(1, 2, width_ratios=(8, 9))
    _show(drawn, kept[0].arrays["drawn"], "drawn, a line for each class")
    prototypes = kept[0].arrays["channels"]
    side = round(len(prototypes) ** 0.5)
    _show(channels, prototypes.reshape(side, side, *prototypes.shape[1:]), "prototypes of channels")
    return figure


def _show(axes: Axes, images: Shades, title: str) -> None:
    """Show images (lines, columns, H, W) side by side; their background is white, as on paper."""
    spaced = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=float(images.min()))
    lines, columns, height, width = spaced.shape
    sheet = spaced.transpose(0, 2, 1, 3).reshape(lines * height, columns * width)
    low, high = np.quantile(sheet, (0.5, 0.98))
    axes.imshow(sheet, cmap="Greys", vmin=low, vmax=high, interpolation="nearest")
    axes.set_title(title, loc="left", fontsize=8, color=QUIET)
    axes.set_axis_off()
