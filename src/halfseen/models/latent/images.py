"""Where the training of a latent-variable model of images starts."""

from typing import Any

import torch

from halfseen.data.incomplete import Incomplete
from halfseen.data.links import inverse_softplus
from halfseen.models.latent.model import LatentModel
from halfseen.nn.residual import ResidualMLP

FIRST_SCALE = 0.1  # of posteriors, where that of the prior is 1


@torch.no_grad()
def start_images(model: LatentModel, rows: Incomplete, generator: torch.Generator) -> None:
    """Draws new weights for a model of images; its decoder starts near what pixels are on average.

    Posteriors start narrow. Wider, their latents say so little at first that a bound without importance
    weights is soonest improved by giving them up, and what is left is the mean of the pixels.

    Parameters
    ----------
    model : LatentModel
        As `LatentArchitecture.build_for_images` returns it; changed in place.
    rows : Incomplete
        The training rows (N, D).
    generator : torch.Generator
        Makes the weights.
    """
    networks: Any = (model.encoder, model.decoder)
    for network in networks:
        network.reset_parameters(generator)
    size = model.n_components * model.n_latent
    raw_scale = inverse_softplus(torch.tensor(FIRST_SCALE, dtype=torch.float64))
    networks[0].output.bias[size : 2 * size] = raw_scale  # means are before scales
    model.mask_model.reset_parameters(generator, rows.observed.double().mean(dim=0))
    mean = rows.filled().sum(dim=0) / (rows.observed.sum(dim=0) + 2.0)  # (D), with a pixel of each sign
    start = model.observation.neutral_parameters()  # (P), locations first
    start[: len(mean)] = mean if model.observation.numeric else 2.0 * torch.atanh(mean)  # or log odds
    decoder: Any = model.decoder.output if isinstance(model.decoder, ResidualMLP) else model.decoder
    decoder.bias.copy_(start)
