"""Adapters from models over features to models over the columns of a mixed table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from halfseen._random import Keys, row_uniforms
from halfseen.base.completion import (
    MEAN_LEVELS,
    LevelProbabilities,
    central,
    decode_mean,
    level_probabilities,
    mean_numbers,
)
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.mixture import GaussianMixture
from halfseen.distributions.observation_model import ObservationModel
from halfseen.nn.weights import module_state


@runtime_checkable
class DensityModel(Protocol):
    r"""Computes :math:`\log p(x_o)`, the log density of the observed cells, with shape :math:`(*)`."""

    def __call__(self, batch: Incomplete, /) -> Tensor:
        """Returns the log density of the observed cells of each row; zero for a row without any."""
        ...


@runtime_checkable
class ConditionalModel(DensityModel, Protocol):
    """Computes conditional moments and quantiles of missing cells; observed cells are returned exactly."""

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns the mean of every cell given the observed ones, with shape :math:`(*, D)`."""
        ...

    def conditional_quantile(self, batch: Incomplete, level: float) -> Tensor:
        """Returns the quantile of every cell given the observed ones, with shape :math:`(*, D)`."""
        ...


@runtime_checkable
class DrawableModel(ConditionalModel, Protocol):
    """Draws missing cells from given noise, so that a draw depends on its row and not on its batch."""

    @property
    def n_noise(self) -> int:
        """The number of uniforms that a draw of a row takes."""
        ...

    def conditional_draw(self, batch: Incomplete, noise: Tensor) -> Tensor:
        """Returns a draw of the missing cells given the observed ones, by uniforms of shape (*, n_noise)."""
        ...


class CompleteDataModel(Protocol):
    r"""A latent-variable model :math:`p(x \mid z) \, \mathcal{N}(z \mid 0, I_L)` with a Gaussian posterior.

    It is evaluated on completed rows only; given a complete row, the posterior must be a single component.
    """

    training: bool

    @property
    def n_latent(self) -> int:
        """The number of latents L."""
        ...

    @property
    def observation(self) -> ObservationModel:
        """The likelihood of cells."""
        ...

    @property
    def decoder(self) -> Callable[[Tensor], Tensor]:
        """From latents (*, L) to the parameters (*, P) of the likelihood."""
        ...

    def posterior(self, batch: Incomplete) -> GaussianMixture:
        """Returns the posterior of each row."""
        ...


RARE_STREAM = 3  # noise that chooses among rare levels, apart from the rest


@dataclass(frozen=True)
class FeatureAdapter:
    """A model over the codes of a table, given a model over their features.

    A subclass implements the methods `_mean`, `_quantiles`, `_drawn` and `_log_prob` for rows of features
    and, if rows contain more than the encoded codes, `_rows`.
    """

    columns: Sequence[Column]  # the C modelled columns
    features: FeatureMap  # from codes (N, C) to features (N, D), with all indicators

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        rows = self._rows(codes)
        if not self.features.transformed():
            return decode_mean(self.features, codes, self._mean(rows))
        mean, quantiles = self._mean_and_quantiles(rows, MEAN_LEVELS)
        return decode_mean(self.features, codes, mean, mean_numbers(self.features, mean, quantiles))

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly."""
        result = codes.x.expand(n_draws, -1, -1).clone()
        blocks = self.features.blocks
        for s, drawn in enumerate(self._drawn(self._rows(codes), keys, n_draws)):  # (N, D)
            result[s][:, list(self.features.numeric)] = self.features.numbers(drawn)
            rare = torch.from_numpy(row_uniforms(keys, s, len(blocks), RARE_STREAM))
            for number, block in enumerate(blocks):
                level = block.draw(drawn[:, block.start : block.stop], rare[:, number])
                result[s, :, block.column] = level.to(result.dtype)
        return torch.where(codes.observed, codes.x, result)

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns conditional quantiles (Q, N, C) of numbers; most probable levels otherwise."""
        mean, found = self._mean_and_quantiles(self._rows(codes), probabilities)
        result = decode_mean(self.features, codes, mean).expand(len(probabilities), -1, -1).clone()
        result[..., list(self.features.numeric)] = self.features.numbers(found)
        return torch.where(codes.observed, codes.x, result)

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of central intervals of numbers; most probable levels otherwise."""
        return self.quantiles(codes, central(level))

    @torch.no_grad()
    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        return level_probabilities(self.features, codes, self._mean(self._rows(codes)))

    @torch.no_grad()
    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells, or a bound, in the units of the table."""
        total = self._log_prob(self._rows(codes)) + self.features.log_jacobian(codes)
        for block in self.features.blocks:
            observed = codes.observed[:, block.column]
            levels = torch.where(observed, codes.x[:, block.column], 0.0).long()
            total = total + torch.where(observed, block.share[levels].log(), 0.0)
        return total

    def _rows(self, codes: Incomplete) -> Incomplete:
        """Returns rows of features (N, D)."""
        return self.features.encode(codes)

    def _mean(self, rows: Incomplete) -> Tensor:
        """Returns expected features (N, D)."""
        raise NotImplementedError

    def _quantiles(self, rows: Incomplete, levels: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, D) of the features."""
        raise NotImplementedError

    def _mean_and_quantiles(self, rows: Incomplete, levels: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both, which may be faster than computing one after the other."""
        return self._mean(rows), self._quantiles(rows, levels)

    def _drawn(self, rows: Incomplete, keys: Keys, n_draws: int) -> Iterator[Tensor]:
        """Yields features (N, D) with the missing ones drawn jointly, by noise of the rows' keys."""
        raise NotImplementedError

    def _log_prob(self, rows: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed features, or a bound; 0 where nothing is observed."""
        raise NotImplementedError


class DensityModule(DrawableModel, Protocol):
    """A density over features as a torch module, whose tensors can be saved."""

    def state_dict(self) -> dict[str, Any]:
        """Returns all tensors by name."""
        ...


ModuleT = TypeVar("ModuleT", bound=DensityModule)


@dataclass(frozen=True)
class TabularDensity(FeatureAdapter, Generic[ModuleT]):
    """A model over the codes of a table, given a density of features with exact marginals and conditionals.

    A subclass implements how the model is rebuilt (`from_state`).
    """

    module: ModuleT  # the fitted density: a `DrawableModel` over features

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        return self.features.state() | module_state(self.module)

    def _mean(self, rows: Incomplete) -> Tensor:
        return self.module.conditional_mean(rows)

    def _quantiles(self, rows: Incomplete, levels: Sequence[float]) -> Tensor:
        return torch.stack([self.module.conditional_quantile(rows, level) for level in levels])

    def _drawn(self, rows: Incomplete, keys: Keys, n_draws: int) -> Iterator[Tensor]:
        for s in range(n_draws):
            noise = torch.from_numpy(row_uniforms(keys, s, self.module.n_noise))
            yield self.module.conditional_draw(rows, noise)

    def _log_prob(self, rows: Incomplete) -> Tensor:
        return self.module(rows)


class NegativeLogLikelihood:
    r"""Scores a density by the observed cells of each row.

    .. math:: \ell(x, o) = -\log p(x_o)

    Ignoring the mechanism is valid under MAR, if its parameters are distinct from those of the model; under
    MNAR, the estimate is biased.

    Notes
    -----
    Shapes: the batch holds :math:`(N, D)`, the loss is :math:`(N)`. No noise is needed.

    References
    ----------
    Rubin (1976), Inference and missing data, theorem 7.1.

    Examples
    --------
    >>> from halfseen.mixtures.imputer import DiagonalMixture
    >>> batch = Incomplete(torch.zeros(2, 1), torch.tensor([[True], [False]]))
    >>> objective = NegativeLogLikelihood()
    >>> objective(DiagonalMixture(n_features=1, n_components=1), batch, noise=())
    tensor([0.9189, -0.0000], grad_fn=<NegBackward0>)
    """

    def draw_noise(self, batch: Incomplete, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the likelihood is exact."""
        return ()

    def __call__(self, module: DensityModel, batch: Incomplete, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the negative log density of the observed cells of each row."""
        return -module(batch)
