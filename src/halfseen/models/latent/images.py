"""A latent-variable model over images: tables whose columns are pixels of one kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfseen._random import Keys
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.models.latent.model import LatentModel
from halfseen.models.latent.rows import RowEncoding
from halfseen.models.latent.tabular import LatentSampler
from halfseen.models.tabular import LevelProbabilities
from halfseen.nn.residual import ResidualMLP

FIRST_SCALE = 0.1  # of posteriors, where that of the prior is 1


@dataclass(frozen=True)
class ImageLatent:
    """Codes of pixels under a latent-variable model; answers are by importance sampling.

    Networks compute in single precision, in which convolutions are fast.

    Parameters
    ----------
    columns : sequence of Column
        The D pixels, all of one kind, in the order (C, H, W).
    encoding : RowEncoding
        From codes (N, D) to features (N, D), as `pixel_features` makes them.
    sampler : LatentSampler
        Answers for rows of features.
    is_density : bool
        Whether pixels are real numbers, which have densities; shades and binary pixels have probabilities.
    """

    columns: Sequence[Column]
    encoding: RowEncoding
    sampler: LatentSampler
    is_density: bool

    @property
    def features(self) -> FeatureMap:
        """From codes to features."""
        return self.encoding.features

    def rows(self, codes: Incomplete) -> Incomplete:
        """Returns the rows of features that the model reads."""
        return self.encoding.rows(codes)

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, D) completed by expectations; of binary pixels, probabilities to be rounded."""
        return self._completed(codes, self.sampler.mean(self.rows(codes)))

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, D) drawn jointly."""
        return self._completed(codes, self.sampler.draws(self.rows(codes), keys, n_draws))

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of shades and numbers; the more probable value of binary pixels."""
        if self._is_binary:
            return self.point(codes).expand(len(probabilities), -1, -1)
        return self._completed(codes, self.sampler.quantiles(self.rows(codes), probabilities))

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of both values of binary pixels."""
        if not self._is_binary:
            return {}
        high = self.point(codes)
        pairs = torch.stack([1.0 - high, high], dim=-1)  # (N, D, 2)
        return {c: LevelProbabilities.of_levels(pairs[:, c], codes, c) for c in range(len(self.columns))}

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns a lower bound (N) of the log probability of the observed pixels; of numbers, density."""
        total = self.sampler.log_prob(self.rows(codes)).double()
        if self.is_density:
            total = total + self.features.log_jacobian(codes)
        return torch.where(codes.observed.any(dim=1), total, 0.0)

    @property
    def _is_binary(self) -> bool:
        return self.columns[0].levels is not None

    def _completed(self, codes: Incomplete, features: Tensor) -> Tensor:
        return torch.where(codes.observed, codes.x, self.features.numbers(features.double()))


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
    networks[0].output.bias[size : 2 * size] = math.log(math.expm1(FIRST_SCALE))  # means are before scales
    model.mask_model.reset_parameters(generator, rows.observed.double().mean(dim=0))
    mean = rows.filled().sum(dim=0) / (rows.observed.sum(dim=0) + 2.0)  # (D), with a pixel of each sign
    start = model.observation.neutral_parameters()  # (P), locations first
    start[: len(mean)] = mean if model.observation.numeric else 2.0 * torch.atanh(mean)  # or log odds
    decoder: Any = model.decoder.output if isinstance(model.decoder, ResidualMLP) else model.decoder
    decoder.bias.copy_(start)
