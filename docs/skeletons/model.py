r"""The smallest density over incomplete vectors. Copy it to src/halfseen/<family>/model.py."""

import math

import torch
from torch import Tensor, nn

from halfseen.base.parameters import check_level
from halfseen.data.incomplete import Incomplete


class DiagonalGaussian(nn.Module):
    r"""Creates independent Gaussian features, any of which may be missing.

    Missing features are marginalised exactly:

    .. math:: p(x_o) = \prod_{d \in o} \mathcal{N}(x_d \mid \mu_d, \sigma_d^2)

    where :math:`o` is the set of observed features. Since features are independent, observed features are not
    informative about missing ones. Valid under MCAR, and under MAR only if features really are independent.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.

    Notes
    -----
    Shapes: ``batch`` has :math:`(*, D)` and the output is :math:`(*)`; entries of ``batch.x`` where
    ``batch.observed`` is False are never read.

    References
    ----------
    <Authors (year), title, equation n. We write o where the paper writes ...>

    Examples
    --------
    >>> model = DiagonalGaussian(n_features=2)
    >>> batch = Incomplete(torch.zeros(2, 2), torch.tensor([[True, True], [True, False]]))
    >>> model(batch).detach()
    tensor([-1.8379, -0.9189])
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        if n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {n_features!r}.")
        self.n_features = n_features

        self.loc = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.log_scale = nn.Parameter(torch.zeros(n_features))  # (D,)

    def extra_repr(self) -> str:
        """Returns the arguments of the constructor."""
        return f"n_features={self.n_features}"

    @property
    def scale(self) -> Tensor:
        """The standard deviations, with shape :math:`(D)`, which are positive by construction."""
        return self.log_scale.exp()

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the log density of the observed cells; zero for a row without any."""
        # Fill before the density, mask after: 0 * nan is nan, in value and in gradient.
        standard = (batch.filled(0.0) - self.loc) / self.scale  # (*, D)
        log_probs = -0.5 * standard.square() - self.log_scale - 0.5 * math.log(2.0 * math.pi)

        return torch.where(batch.observed, log_probs, 0.0).sum(dim=-1)  # (*)

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns the mean of every cell given the observed ones, which are returned exactly."""
        return torch.where(batch.observed, batch.x, self.loc.to(batch.x.dtype))

    def conditional_quantile(self, batch: Incomplete, level: float) -> Tensor:
        """Returns the `level` quantile of every cell given the observed ones."""
        check_level(level)
        standard = torch.special.ndtri(torch.tensor(level, dtype=torch.float64))
        quantile = self.loc.double() + self.scale.double() * standard  # (D,)

        return torch.where(batch.observed, batch.x, quantile.to(batch.x.dtype))

    @property
    def n_noise(self) -> int:
        """The number of uniforms that a draw of a row takes."""
        return self.n_features

    def conditional_draw(self, batch: Incomplete, noise: Tensor) -> Tensor:
        """Returns the rows with a draw of their missing cells by the uniforms (*, D) of each row."""
        draw = self.loc + self.scale * torch.special.ndtri(noise.double()).to(self.loc.dtype)  # (*, D)

        return torch.where(batch.observed, batch.x, draw.to(batch.x.dtype))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Initialises all parameters: a standard Gaussian with a small random perturbation."""
        self.loc.normal_(0.0, 0.1, generator=generator)
        self.log_scale.zero_()
