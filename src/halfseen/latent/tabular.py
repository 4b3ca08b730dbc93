"""Models of tables and images that are based on a latent-variable model and a sampler."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import Keys
from halfseen.base.completion import PixelModel
from halfseen.base.density import FeatureAdapter
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.model import RowEncoding


class LatentSampler(Protocol):
    """The interface of samplers of missing features."""

    def mean(self, batch: Incomplete) -> Tensor:
        """Returns rows (N, D) with expected features."""
        ...

    def quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, n_numeric)."""
        ...

    def mean_and_quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both, from latents that are decoded once."""
        ...

    def draws(self, batch: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns rows (S, N, D) with missing features drawn."""
        ...

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns a log density (N) of the observed features, or a bound."""
        ...


@dataclass(frozen=True)
class TabularLatent(FeatureAdapter):
    """A latent-variable model over the codes of a table; log densities are lower bounds.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    preimputer : Gaussian
        A Gaussian of the features; its conditional means replace missing values in the input of the encoder.
    sampler : LatentSampler
        The sampler of missing features.
    """

    preimputer: Gaussian
    sampler: LatentSampler

    def _rows(self, codes: Incomplete) -> Incomplete:
        return RowEncoding(self.features, self.preimputer).rows(codes)

    def _mean(self, rows: Incomplete) -> Tensor:
        return self.sampler.mean(rows)

    def _mean_and_quantiles(self, rows: Incomplete, levels: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both; quantiles are those of numbers, which come first, with zeros after them."""
        mean, found = self.sampler.mean_and_quantiles(rows, levels)
        return mean, functional.pad(found, (0, self.features.n_features - found.shape[-1]))

    def _drawn(self, rows: Incomplete, keys: Keys, n_draws: int) -> Iterator[Tensor]:
        yield from self.sampler.draws(rows, keys, n_draws)

    def _log_prob(self, rows: Incomplete) -> Tensor:
        return torch.where(rows.observed.any(dim=1), self.sampler.log_prob(rows), 0.0)


@dataclass(frozen=True)
class ImageLatent(PixelModel):
    """A latent-variable model over the codes of pixels; results are computed by importance sampling.

    Networks compute in single precision, in which convolutions are fast.

    Parameters
    ----------
    columns : sequence of Column
        The D pixels, all of one kind, in the order (C, H, W).
    features : FeatureMap
        From codes (N, D) to features (N, D), as `pixel_features` makes it.
    sampler : LatentSampler
        Answers for rows of features.
    is_density : bool
        Whether pixels are real numbers, which have densities; shades and binary pixels have probabilities.
    """

    sampler: LatentSampler
    is_density: bool

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, D) drawn jointly."""
        return self._completed(codes, self.sampler.draws(self._rows(codes), keys, n_draws))

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns a lower bound (N) of the log probability of the observed pixels; of numbers, density."""
        total = self.sampler.log_prob(self._rows(codes)).double()
        if self.is_density:
            total = total + self.features.log_jacobian(codes)
        return torch.where(codes.observed.any(dim=1), total, 0.0)

    def _mean(self, codes: Incomplete) -> Tensor:
        return self.sampler.mean(self._rows(codes))

    def _feature_quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        return self.sampler.quantiles(self._rows(codes), probabilities)

    def _rows(self, codes: Incomplete) -> Incomplete:
        return RowEncoding(self.features).rows(codes)
