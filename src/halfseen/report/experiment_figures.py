"""What experiments draw besides their scores."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from halfseen.experiments import Cell, Results, missvae, missvae_images, notmiwae
from halfseen.experiments.missvae_methods import DECODER_SNR, ENCODER_SNR
from halfseen.nn.mask_models import KnownMask
from halfseen.report.experiment_svg import draw_metrics
from halfseen.report.image_grid import ImputedImages, draw_imputed_images
from halfseen.report.latent_svg import mask_curves_figure, posterior_table_figure
from halfseen.report.toys_svg import toy_figure


def missvae_posteriors(results: Results) -> str | None:
    """Draw the posteriors that runs have kept, or nothing if none has."""
    kept = {
        cell.model: cell.arrays[missvae.POSTERIORS]
        for cell in results.cells
        if missvae.POSTERIORS in cell.arrays
    }
    rows = [f"Test row {place + 1}, {n_seen} of 5 cells seen" for place, n_seen in enumerate(missvae.N_SEEN)]
    return posterior_table_figure(kept, missvae.PICTURE_BOUNDS, rows) if kept else None


def missvae_snr(results: Results) -> str:
    """Draw how much of a gradient is signal, for each network."""
    return draw_metrics(results, [ENCODER_SNR, DECODER_SNR])


def imputed_images(results: Results) -> str | None:
    """Draw some test images with their missing half drawn by each model, of the first seed."""
    runs: dict[str, list[Cell]] = {}
    for cell in results.cells:
        if cell.seed == 0 and "draws" in cell.arrays:
            runs.setdefault(cell.setting["data"], []).append(cell)
    sets = []
    for name, cells in runs.items():
        shown = {key: array.reshape(-1, *missvae_images.SHAPE) for key, array in cells[0].arrays.items()}
        drawn = {
            cell.model: cell.arrays["draws"].reshape(-1, *shown["truth"].shape) for cell in cells
        }  # (S, N, H, W)
        sets.append(ImputedImages(name, shown["truth"], shown["observed"], drawn))
    title = f"{results.experiment.name}, {results.scale}: test images with two quarters missing"
    return draw_imputed_images(sets, title) if sets else None


def notmiwae_masks(results: Results) -> str | None:
    """Draw what was learned of why cells of one table are missing, from the first seed, beside the truth."""
    curves = next(
        (
            cell.arrays[notmiwae.CURVES]
            for cell in results.cells
            if (cell.setting["table"], cell.model, cell.seed) == (notmiwae.PICTURED, notmiwae.KNOWN, 0)
            and notmiwae.CURVES in cell.arrays
        ),
        None,
    )
    if curves is None:
        return None

    def missing(x: Tensor) -> Tensor:
        read = [
            np.interp(values, notmiwae.VALUES, curve)
            for values, curve in zip(x.numpy().T, curves.T, strict=True)
        ]
        return torch.from_numpy(np.stack(read, axis=1)).to(x.dtype)

    n_columns = curves.shape[1]
    ends = (float(notmiwae.VALUES[0]), float(notmiwae.VALUES[-1]))
    return mask_curves_figure(
        KnownMask(missing, n_columns),
        notmiwae.PICTURED_COLUMNS,
        [ends] * n_columns,
        steps=[0.0] * n_columns,
    )


FIGURES: Mapping[str, Mapping[str, Callable[[Results], str | None]]] = MappingProxyType(
    {
        "missvae": {"posteriors": missvae_posteriors, "snr": missvae_snr},
        "missvae-images": {"grid": imputed_images},
        "notmiwae": {"masks": notmiwae_masks},
        "notmiwae-toys": {"draws": toy_figure},
    }
)
"""From the name of an experiment to its further pictures, by the end of their file's name."""
