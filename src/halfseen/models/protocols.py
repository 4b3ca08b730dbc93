"""Protocols of models over incomplete data, on which objectives depend instead of concrete classes."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.mixture import GaussianMixture
from halfseen.distributions.observation_model import ObservationModel


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
