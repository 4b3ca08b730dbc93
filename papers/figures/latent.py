"""Further figures of experiments: posteriors, imputed images, learned missingness and draws of toys."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from halfseen.report.figures import GRID, OURS, QUIET, THEIRS, new_figure
from papers import Cell, Results
from papers.figures.circuits import accuracy_curves, drawn_digits
from papers.figures.overview import plot_metrics
from papers.figures.sparsity import drift_curves
from papers.missvae import images as missvae_images
from papers.missvae import mixtures as missvae
from papers.missvae.latent_diagnostics import Divergences
from papers.missvae.methods import DECODER_SNR, ENCODER_SNR
from papers.notmiwae import tables as notmiwae
from papers.notmiwae import toys

Floats = npt.NDArray[np.float64]

CONTOURS = (0.5, 0.95)
"""The shares of the probability mass of a posterior that its contours enclose."""

TOY_PANELS = {
    toys.GAUSSIAN: (toys.LINEAR, toys.MAR, toys.NOT),
    toys.RING: (toys.MAR, toys.CHOSEN, toys.GIVEN),
}
"""The models whose draws are shown for each toy, beside the truth."""

_PALETTE = ListedColormap(["#ffffff", "#1d2733", "#c8d1db", "#e2eef9", "#1f6fb2"])
_DOTS = 50  # pixels of an image per inch
_GROUND, _INK, _MISSING, _FILLED_GROUND, _FILLED_INK = range(5)


def missvae_posteriors(results: Results) -> Figure | None:
    """Plot the posteriors that runs have stored, one row per model; None if no run has stored any.

    Each test row has three panels: the posterior given all cells, the posterior given the observed cells, and
    the encoder's distribution. Contours of the second are in the last two.
    """
    kept = {
        cell.model: cell.arrays[missvae.POSTERIORS].astype(np.float64)
        for cell in results.cells
        if missvae.POSTERIORS in cell.arrays
    }
    if not kept:
        return None
    n_rows = len(missvae.N_SEEN)
    figure = new_figure(1.4 * 3 * n_rows + 1, 1.5 * len(kept) + 0.9)
    axes = figure.subplots(len(kept), 3 * n_rows, squeeze=False)
    for line, (name, densities) in zip(axes, kept.items(), strict=True):
        line[0].set_ylabel(name)
        for place, three in enumerate(densities):
            _draw_posteriors(line[3 * place : 3 * place + 3], three)
    for place, n_seen in enumerate(missvae.N_SEEN):
        for panel, head in enumerate(("all cells", "observed cells", "encoder")):
            row = f"Test row {place + 1}, {n_seen} of 5 cells observed\n" if panel == 0 else ""
            axes[0, 3 * place + panel].set_title(f"{row}{head}", loc="left", fontsize=8)
    shares = " and ".join(f"{share:.0%}" for share in CONTOURS)
    words = f"Contours enclose {shares} of the posterior given the observed cells. "
    figure.supxlabel(f"{words}JS: Jensen-Shannon divergence of the encoder.", fontsize=8, color=QUIET)
    return figure


def _draw_posteriors(axes: Sequence[Axes], three: Floats) -> None:
    partly, encoder = three[1], three[2]
    extent = (*missvae.PICTURE_BOUNDS, *missvae.PICTURE_BOUNDS)
    levels = sorted({enclosing_level(partly, share) for share in CONTOURS})
    for panel, (axis, density) in enumerate(zip(axes, three, strict=True)):
        shades = "Oranges" if panel == 2 else "Blues"
        # A square root makes the tails visible.
        axis.imshow(np.sqrt(density.T), origin="lower", extent=extent, cmap=shades, interpolation="none")
        if panel > 0 and levels[0] < partly.max():
            axis.contour(partly.T, levels=levels, extent=extent, colors=OURS, linewidths=0.8)
        axis.set_xticks([])
        axis.set_yticks([])
    found = Divergences.between(*(torch.from_numpy(one).flatten().log() for one in (encoder, partly)))
    axes[2].set_xlabel(f"JS {found.jsd:.2g}", fontsize=8)


def enclosing_level(mass: Floats, share: float) -> float:
    """Return the level such that the cells at or above it hold at least a share of the mass."""
    ranked = np.sort(mass, axis=None)[::-1]
    return float(ranked[min(int(np.searchsorted(ranked.cumsum(), share * ranked.sum())), ranked.size - 1)])


def missvae_snr(results: Results) -> Figure:
    """Plot the signal-to-noise ratio of the gradients of both networks."""
    return plot_metrics(results, [ENCODER_SNR, DECODER_SNR])


def imputed_images(results: Results) -> Figure | None:
    """Plot some test images of the first seed, what is observed of them, and draws of each model."""
    runs: dict[str, list[Cell]] = {}
    for cell in results.cells:
        if cell.seed == 0 and "draws" in cell.arrays:
            runs.setdefault(cell.setting["data"], []).append(cell)
    if not runs:
        return None
    sheets = [(name, _sheets(cells)) for name, cells in runs.items()]
    width = max(sum(sheet.shape[1] for sheet in columns.values()) for _, columns in sheets)
    heights = [columns["image"].shape[0] / _DOTS + 0.5 for _, columns in sheets]
    figure = new_figure(width / _DOTS + 1.2, sum(heights) + 0.6)
    title = f"{results.experiment.name}, {results.scale}: test images with two quarters missing\n"
    figure.suptitle(title + "Black was observed, grey is missing, blue was drawn by the models.", fontsize=9)
    parts = figure.subfigures(len(sheets), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (name, columns) in zip(parts, sheets, strict=True):
        widths = [sheet.shape[1] for sheet in columns.values()]
        axes = part.subplots(1, len(columns), width_ratios=widths, squeeze=False)[0]
        axes[0].set_ylabel(name)
        for axis, (heading, sheet) in zip(axes, columns.items(), strict=True):
            axis.imshow(sheet, cmap=_PALETTE, vmin=0, vmax=4, interpolation="nearest")
            axis.set_title(heading, loc="left", fontsize=7)
            axis.set_xticks([])
            axis.set_yticks([])
    return figure


def _sheets(cells: Sequence[Cell]) -> dict[str, npt.NDArray[np.int64]]:
    """Return by heading a sheet of images: one line per image, one column per draw, of palette entries."""
    shown = {key: array.reshape(-1, *missvae_images.SHAPE) for key, array in cells[0].arrays.items()}
    truth, observed = shown["truth"], shown["observed"]
    plain = np.where(truth, _INK, _GROUND)
    columns = {"image": plain[None], "observed": np.where(observed, plain, _MISSING)[None]}
    for cell in cells:
        draws = cell.arrays["draws"].reshape(-1, *truth.shape)  # (S, N, H, W)
        columns[cell.model] = np.where(observed, plain, np.where(draws, _FILLED_INK, _FILLED_GROUND))
    return {name: sheet_of(images) for name, images in columns.items()}


def sheet_of(images: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return images (S, N, H, W) as one of S columns and N lines, with space between them."""
    spaced = np.pad(images, ((0, 0), (0, 0), (0, 2), (0, 2)))
    n_columns, n_rows, height, width = spaced.shape
    return spaced.transpose(1, 2, 0, 3).reshape(n_rows * height, n_columns * width)


def notmiwae_masks(results: Results) -> Figure | None:
    """Plot the learned probability of missingness by value for one table (first seed), beside the truth."""
    wanted = (notmiwae.PICTURED, notmiwae.KNOWN, 0)
    kept = [
        cell.arrays[notmiwae.CURVES]
        for cell in results.cells
        if (cell.setting["table"], cell.model, cell.seed) == wanted and notmiwae.CURVES in cell.arrays
    ]
    if not kept:
        return None
    names = notmiwae.PICTURED_COLUMNS
    figure = new_figure(2.4 * len(names), 2.4)
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axis, name, curve in zip(axes, names, kept[0].T, strict=True):
        ends = (notmiwae.VALUES[0], 0.0, 0.0, notmiwae.VALUES[-1])  # cells above the mean are missing
        axis.plot(ends, (0.0, 0.0, 1.0, 1.0), "--", color=QUIET, lw=1, label="truth")
        axis.plot(notmiwae.VALUES, curve, color=THEIRS, label="learned")
        axis.set_title(name, loc="left")
        axis.set_xlabel("value in standard deviations")
        axis.grid(color=GRID)
    axes[0].set_ylabel("probability of missingness")
    axes[0].legend(frameon=False)
    return figure


def toy_draws(results: Results) -> Figure | None:
    """Plot what imputers have drawn for the incomplete rows of the first seed, beside the truth."""
    kept = {
        (cell.setting["toy"], cell.model): cell.arrays[toys.DRAWN]
        for cell in results.cells
        if toys.DRAWN in cell.arrays
    }
    lines = {
        toy: [(name, kept[toy, name]) for name in models if (toy, name) in kept]
        for toy, models in TOY_PANELS.items()
    }
    lines = {toy: drawn for toy, drawn in lines.items() if drawn}
    if not lines:
        return None
    n_columns = 1 + max(map(len, lines.values()))
    figure = new_figure(2.8 * n_columns, 3.0 * len(lines) + 0.5)
    words = "The first feature (horizontal axis) is missing in some rows. Grey: complete rows."
    figure.suptitle(words, fontsize=9)
    axes = figure.subplots(len(lines), n_columns, squeeze=False)
    for line, (toy, drawn) in zip(axes, lines.items(), strict=True):
        task = toys.make_toy(toy, toys.PICTURED_SEED)
        panels = [("truth", task.sample.X[task.hidden]), *drawn]
        for axis, (name, points) in zip(line, panels, strict=False):
            _draw_points(axis, task.sample.X, task.hidden, points, f"{toy}: {name}")
        for axis in line[len(panels) :]:
            axis.set_visible(False)
    return figure


def _draw_points(axes: Axes, X: Floats, hidden: npt.NDArray[np.bool_], points: Floats, title: str) -> None:
    """Draw complete rows and others on axes that hold the truth; points outside are counted in the title."""
    low, high = X.min(axis=0), X.max(axis=0)
    middle, half = (low + high) / 2, 0.54 * (high - low).max()
    beyond = int((np.abs(points - middle) > half).any(axis=1).sum())
    is_truth = title.endswith("truth")
    complete = X[~hidden]
    axes.scatter(complete[:, 0], complete[:, 1], s=2, color="#9aa6b2", rasterized=True)
    axes.scatter(points[:, 0], points[:, 1], s=2, color=OURS if is_truth else THEIRS, rasterized=True)
    axes.set_xlim(middle[0] - half, middle[0] + half)
    axes.set_ylim(middle[1] - half, middle[1] + half)
    axes.set_aspect("equal")
    axes.set_title(title + (f" ({beyond} beyond)" if beyond else ""), loc="left", fontsize=8)


FIGURES: Mapping[str, Mapping[str, Callable[[Results], Figure | None]]] = MappingProxyType(
    {
        "convac-mnist": {"curves": accuracy_curves, "pictures": drawn_digits},
        "missvae": {"posteriors": missvae_posteriors, "snr": missvae_snr},
        "missvae-images": {"grid": imputed_images},
        "notmiwae": {"masks": notmiwae_masks},
        "notmiwae-toys": {"draws": toy_draws},
        "sparsity": {"drift": drift_curves},
        "sparsity-cells": {"drift": drift_curves},
        "sparsity-health": {"drift": drift_curves},
        "sparsity-series": {"drift": drift_curves},
    }
)
"""From the name of an experiment to its further figures, by the ending of their file's name."""
