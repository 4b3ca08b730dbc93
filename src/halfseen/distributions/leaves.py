r"""Likelihoods :math:`p(x_j \mid z)` of columns, given the outputs of a network; those of continuous columns.

A leaf handles all columns of one family at once. It works on *features*: standardised numbers, or blocks of
0/1 indicators. Every method broadcasts over leading axes; masks are handled by the caller. Here are the
Gaussian, with one scale or many, Student-t and log-normal; `leaves_counts` has those of counts and levels.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.margins import inverse_softplus


def choose_by_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Returns which of A candidates each of Q uniforms falls on; weights need not sum to one.

    Shapes
    ------
    weights : :math:`(*, A)`, not negative.
    uniforms, output : :math:`(*, Q)`

    Examples
    --------
    >>> choose_by_cdf(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.2, 0.9, 0.3]]))
    tensor([[0, 1, 1]])
    """
    cumulated = weights.cumsum(dim=-1).contiguous()
    reached = uniforms.to(weights.dtype) * cumulated[..., -1:]
    index = torch.searchsorted(cumulated, reached.contiguous(), right=True)
    return index.clamp(max=weights.shape[-1] - 1)  # a uniform may round to 1


TEMPERATURE = 0.5
"""Of relaxed draws: the lower, the closer to whole levels, and the noisier the gradient."""


class Leaf(nn.Module):
    r"""The likelihood of J columns of one family; J is `n_columns`.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`.
    n_parameters : int
        The number of network outputs :math:`P` for all columns together.
    width : int
        The number of features :math:`W`; :math:`J` for numbers.
    n_noise : int
        The number of uniforms :math:`M` that a draw of all columns takes.

    Notes
    -----
    Shapes: ``parameters`` :math:`(*, P)`, ``x`` :math:`(*, W)`, ``noise`` :math:`(*, M)`. The outputs
    have the floating type that ``parameters`` and ``x`` share; buffers that turn features into values stay in
    float64 unless the module is converted.
    """

    is_density = True
    """Whether `log_prob` is a density per unit of the feature, or a probability."""

    def __init__(self, n_columns: int, n_parameters: int, width: int, n_noise: int) -> None:
        super().__init__()
        if n_columns < 1:
            raise ValueError(f"n_columns must be at least 1, got {n_columns!r}.")
        self.n_columns = n_columns
        self.n_parameters = n_parameters
        self.width = width
        self.n_noise = n_noise

    def extra_repr(self) -> str:
        """Returns the sizes."""
        return f"n_columns={self.n_columns}, n_parameters={self.n_parameters}, width={self.width}"

    @property
    def columns_of_features(self) -> Tensor:
        """The column (W), among the leaf's own, that each feature belongs to."""
        return torch.arange(self.n_columns)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density or probability (*, J) of each column."""
        raise NotImplementedError

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected features (*, W)."""
        raise NotImplementedError

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, W) of each feature."""
        raise NotImplementedError

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, W) at which `log_prob` is greatest."""
        raise NotImplementedError

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns features (*, W) drawn, or relaxed, with a gradient; `noise` are uniforms."""
        raise NotImplementedError

    @torch.no_grad()
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns features (*, W) drawn exactly, without a gradient; `noise` are uniforms."""
        return self.rsample(parameters, noise)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (P), float64, of the marginal distribution of each column."""
        raise NotImplementedError

    def filler(self) -> Tensor:
        """Returns features (W), float64, at which `log_prob` and its gradient are finite."""
        return torch.zeros(self.width, dtype=torch.float64)


class NumericLeaf(Leaf):
    """The likelihood of J columns of numbers, one feature each."""

    def __init__(self, n_columns: int, n_parameters: int, n_noise: int) -> None:
        super().__init__(n_columns, n_parameters, width=n_columns, n_noise=n_noise)

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability (*, J) of a feature not above `x` (*, J)."""
        raise NotImplementedError

    def inflated(self, parameters: Tensor, factor: Tensor) -> Tensor:
        """Returns the parameters of columns `factor` (J) times as wide; the same, if there is no scale."""
        return parameters


def softplus(x: Tensor) -> Tensor:
    """Returns log(1 + exp(x)), by faster operations if no gradient is needed."""
    if torch.is_grad_enabled():
        return functional.softplus(x)
    return x.abs().neg_().exp_().log1p_().add_(x.clamp(min=0.0))


def inflate_softplus(raw: Tensor, factor: Tensor, floor: float) -> Tensor:
    """Returns outputs whose scales, floor + softplus(output), are `factor` times those of `raw`."""
    above = factor * functional.softplus(raw) + (factor - 1.0) * floor
    return inverse_softplus(above.clamp(min=torch.finfo(raw.dtype).eps))


def open_uniforms(noise: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns uniforms in a floating type, kept away from 0 and 1 by the precision of that type."""
    margin = torch.finfo(dtype).eps / 2
    return noise.to(dtype).clamp(min=margin, max=1 - margin)


@torch.no_grad()
def by_scipy(function: Callable[..., Any], *arguments: Tensor) -> Tensor:
    """Returns a function of `scipy.special` of tensors, in float64 and without a gradient."""
    arrays = [argument.double().cpu().numpy() for argument in arguments]
    return torch.from_numpy(np.asarray(function(*arrays))).to(arguments[0].device)


FAR = 5000.0  # in units of z: both tails are 0 to the last bit


def student_t_cdf(t: Tensor, df: Tensor) -> Tensor:
    r"""Returns the distribution function of Student's t for three degrees of freedom or more.

    With :math:`a = \nu - \tfrac12` and :math:`z = a \log(1 + t^2 / \nu)` a normal deviate of the same tail is

    .. math:: \sqrt{z} \left(1 + \frac{1}{b} \left(z + 3 - \frac{((0.4 z + 3.3) z + 24) z + 85.5}{0.8 z^2 +
              100 + b}\right)\right), \qquad b = 48 a^2

    whose error in probability is at most 1.1e-5 at :math:`\nu = 3`, 2e-7 at 5 and 1e-8 at 7. This is
    negligible compared with Monte Carlo errors, and the cost is a fraction of that of the exact function.

    References
    ----------
    Hill (1970), Algorithm 395: Student's t-distribution.

    Examples
    --------
    >>> student_t_cdf(torch.tensor([0.0, 2.353363]), torch.tensor(3.0))
    tensor([0.5000, 0.9500])
    """
    a = df - 0.5
    b = 48.0 * a.square()
    z = (a * torch.log1p(t.square() / df)).clamp(max=FAR)
    cubic = ((0.4 * z + 3.3) * z + 24.0) * z + 85.5
    deviate = z.sqrt() * (1.0 + (z + 3.0 - cubic / (0.8 * z.square() + 100.0 + b)) / b)
    below: Tensor = torch.special.ndtr(torch.copysign(deviate, t))
    return below


STD_FLOOR = 1e-3
"""No scale is smaller, in units of a standardised feature: ties cannot make a likelihood unbounded."""

MIN_DF = 3.0  # minimum degrees of freedom of a Student t, so that the variance exists
NEUTRAL_DF = 8.0  # degrees of freedom at the start of training
MAX_EXPONENT = 80.0  # exp stays finite in single precision
LOWEST_LOG = 20.0  # minimum logarithm, in standard deviations below the mean; also used for zero


class GaussianLeaf(NumericLeaf):
    r"""Creates Gaussian columns :math:`\mathcal{N}(x_j \mid \mu_j, \sigma_j^2)`.

    .. math:: \mu_j = a_j, \qquad \sigma_j = \sigma_{\min} + \log(1 + e^{b_j})

    for network outputs :math:`(a, b)`.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`; there are :math:`2J` parameters.
    std_floor : float
        The least standard deviation :math:`\sigma_{\min}`; without one the likelihood is unbounded.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE.

    Examples
    --------
    >>> leaf = GaussianLeaf(n_columns=1)
    >>> leaf.log_prob(leaf.neutral_parameters(), torch.zeros(1)).exp()
    tensor([0.3989], dtype=torch.float64)
    """

    def __init__(self, n_columns: int, std_floor: float = STD_FLOOR) -> None:
        super().__init__(n_columns, n_parameters=2 * n_columns, n_noise=n_columns)
        self.std_floor = std_floor

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density (*, J)."""
        loc, std = self._split(parameters)
        return normal_log_prob((x - loc) / std) - std.log()

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the location (*, J)."""
        return parameters.chunk(2, dim=-1)[0]

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the location (*, J)."""
        return self.mean(parameters)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the squared scale (*, J)."""
        return self._split(parameters)[1].square()

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns draws (*, J) by the inverse distribution function."""
        loc, std = self._split(parameters)
        return loc + std * normals(noise, loc.dtype)

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the distribution function (*, J)."""
        loc, std = self._split(parameters)
        return normal_cdf((x - loc) / std)

    def inflated(self, parameters: Tensor, factor: Tensor) -> Tensor:
        """Returns the parameters with wider scales."""
        loc, raw_std = parameters.chunk(2, dim=-1)
        return torch.cat([loc, inflate_softplus(raw_std, factor, self.std_floor)], dim=-1)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (2J) of location 0 and scale 1."""
        loc = torch.zeros(self.n_columns, dtype=torch.float64)
        return torch.cat([loc, inverse_softplus(torch.ones_like(loc) - self.std_floor)])

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        loc, raw_std = parameters.chunk(2, dim=-1)
        return loc, self.std_floor + softplus(raw_std)


class SharedGaussianLeaf(NumericLeaf):
    r"""Creates Gaussian columns :math:`\mathcal{N}(x_j \mid \mu_j, \sigma^2)` with one learned scale.

    The network gives the locations only. With a linear network this is probabilistic PCA.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`, and of parameters.
    std_floor : float
        The least standard deviation.

    References
    ----------
    Ipsen, Mattei & Frellsen (2021), not-MIWAE (as not-PPCA).

    Examples
    --------
    >>> leaf = SharedGaussianLeaf(n_columns=2)
    >>> leaf.variance(torch.zeros(2)).detach()
    tensor([1.0020, 1.0020])
    """

    def __init__(self, n_columns: int, std_floor: float = STD_FLOOR) -> None:
        super().__init__(n_columns, n_parameters=n_columns, n_noise=n_columns)
        self.std_floor = std_floor
        self.log_std = nn.Parameter(torch.zeros(()))

    @property
    def std(self) -> Tensor:
        """The standard deviation of every column, a scalar."""
        return self.std_floor + self.log_std.exp()

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density (*, J)."""
        return normal_log_prob((x - parameters) / self.std) - self.std.log()

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the location (*, J)."""
        return parameters

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the location (*, J)."""
        return self.mean(parameters)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the squared scale (*, J), everywhere the same."""
        return self.std.square().expand_as(parameters)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns draws (*, J) by the inverse distribution function."""
        return parameters + self.std * normals(noise, parameters.dtype)

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the distribution function (*, J)."""
        return normal_cdf((x - parameters) / self.std)

    def neutral_parameters(self) -> Tensor:
        """Returns the locations (J), zero."""
        return torch.zeros(self.n_columns, dtype=torch.float64)


class StudentTLeaf(NumericLeaf):
    r"""Creates Student-t columns with location, scale and degrees of freedom from the network.

    .. math:: p(x_j) = \frac{1}{s_j} \, t_{\nu_j}\!\left(\frac{x_j - \mu_j}{s_j}\right), \qquad
              s_j = s_{\min} + \log(1 + e^{b_j}), \quad \nu_j = 3 + \log(1 + e^{c_j})

    for network outputs :math:`(\mu, b, c)`. A draw takes two uniforms :math:`(u, v)` and is exact,

    .. math:: x_j = \mu_j + s_j \sqrt{\nu_j (u^{-2/\nu_j} - 1)} \cos(2 \pi v),

    so that it has a pathwise gradient in the degrees of freedom too.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`; there are :math:`3J` parameters.
    scale_floor : float
        The least scale :math:`s_{\min}`.

    References
    ----------
    Mattei & Frellsen (2019), MIWAE, on tables (the decoder); Bailey (1994), Polar generation of random
    variates with the t-distribution (the draw).

    Examples
    --------
    >>> leaf = StudentTLeaf(n_columns=1)
    >>> leaf.mean(torch.tensor([0.5, 0.0, 0.0]))
    tensor([0.5000])
    """

    def __init__(self, n_columns: int, scale_floor: float = STD_FLOOR) -> None:
        super().__init__(n_columns, n_parameters=3 * n_columns, n_noise=2 * n_columns)
        self.scale_floor = scale_floor

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density (*, J)."""
        loc, scale, df = self._split(parameters)
        normaliser = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - (df * math.pi).log() / 2
        tail = (df + 1) / 2 * torch.log1p(((x - loc) / scale).square() / df)
        return normaliser - scale.log() - tail

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the location (*, J)."""
        return parameters.chunk(3, dim=-1)[0]

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the location (*, J)."""
        return self.mean(parameters)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J), finite as there are more than two degrees of freedom."""
        _, scale, df = self._split(parameters)
        return scale.square() * df / (df - 2)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns draws (*, J) by the polar method; `noise` holds the radii, then the angles."""
        loc, scale, df = self._split(parameters)
        radius, angle = open_uniforms(noise, loc.dtype).chunk(2, dim=-1)
        length = (df * torch.expm1(-2 / df * radius.log())).sqrt()
        return loc + scale * length * (2 * math.pi * angle).cos()

    @torch.no_grad()
    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the distribution function (*, J) up to 1.1e-5, without a gradient."""
        loc, scale, df = self._split(parameters)
        return student_t_cdf((x - loc) / scale, df)

    def inflated(self, parameters: Tensor, factor: Tensor) -> Tensor:
        """Returns the parameters with wider scales and the same degrees of freedom."""
        loc, raw_scale, raw_df = parameters.chunk(3, dim=-1)
        return torch.cat([loc, inflate_softplus(raw_scale, factor, self.scale_floor), raw_df], dim=-1)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (3J) of location 0 and variance 1, with rather heavy tails."""
        one = torch.ones(self.n_columns, dtype=torch.float64)
        scale = math.sqrt((NEUTRAL_DF - 2) / NEUTRAL_DF) * one
        above = [scale - self.scale_floor, (NEUTRAL_DF - MIN_DF) * one]
        return torch.cat([0 * one, *map(inverse_softplus, above)])

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loc, raw_scale, raw_df = parameters.chunk(3, dim=-1)
        return loc, self.scale_floor + softplus(raw_scale), MIN_DF + softplus(raw_df)


class LogNormalLeaf(NumericLeaf):
    r"""Creates log-normal columns of positive values :math:`v_j = l_j + c_j x_j`, for features :math:`x`.

    .. math:: \frac{\log v_j - \alpha_j}{\beta_j} \sim \mathcal{N}(\mu_j, \sigma_j^2), \qquad
              p(x_j) = \frac{c_j}{\beta_j v_j} \, \mathcal{N}\!\left(\frac{\log v_j - \alpha_j}{\beta_j}
              \,\Big|\, \mu_j, \sigma_j^2\right)

    for network outputs :math:`(\mu, b)` and :math:`\sigma = \sigma_{\min} + \log(1 + e^b)`: outputs are of
    order one whatever the column. Values below :math:`e^{\alpha - 20 \beta}`, such as zeros, are read as that
    one. Means, variances and draws saturate at :math:`e^{80}` units of the feature.

    Parameters
    ----------
    loc, scale : Tensor
        The map :math:`(J)` from features to values, :math:`l` and :math:`c`.
    log_mean, log_std : Tensor
        Mean :math:`\alpha` and standard deviation :math:`\beta` of the logs of observed values, each
        :math:`(J)`.
    std_floor : float
        The least standard deviation :math:`\sigma_{\min}`.

    References
    ----------
    Nazabal et al. (2020), Handling incomplete heterogeneous data using VAEs.

    Examples
    --------
    >>> leaf = LogNormalLeaf(torch.tensor([3.0]), torch.tensor([2.0]), torch.zeros(1), torch.ones(1))
    >>> leaf.cdf(leaf.neutral_parameters(), torch.tensor([-1.0]))  # the value 1 is the median
    tensor([0.5000], dtype=torch.float64)
    """

    loc: Tensor
    scale: Tensor
    log_mean: Tensor
    log_std: Tensor

    def __init__(
        self, loc: Tensor, scale: Tensor, log_mean: Tensor, log_std: Tensor, std_floor: float = STD_FLOOR
    ) -> None:
        super().__init__(len(loc), n_parameters=2 * len(loc), n_noise=len(loc))
        self.std_floor = std_floor
        for name, value in {"loc": loc, "scale": scale, "log_mean": log_mean, "log_std": log_std}.items():
            self.register_buffer(name, value.to(torch.float64))  # near zero, values are small differences

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density (*, J) per unit of the feature."""
        loc, std = self._split(parameters)
        lowest = (self.log_mean - LOWEST_LOG * self.log_std).exp()
        log_value = torch.maximum(self.loc + self.scale * x, lowest).log()
        t = ((log_value - self.log_mean) / self.log_std - loc) / std
        log_jacobian = self.scale.log() - self.log_std.log() - log_value
        return (normal_log_prob(t) - std.log() + log_jacobian).to(parameters.dtype)

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected features (*, J)."""
        centre, spread = self._logs(parameters)
        return self._features(centre + spread.square() / 2).to(parameters.dtype)

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, J) of greatest density."""
        centre, spread = self._logs(parameters)
        return self._features(centre - spread.square()).to(parameters.dtype)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J) of the features."""
        centre, spread = self._logs(parameters)
        square = spread.square()
        log_variance = 2 * (centre + square - self.scale.log()) + torch.log(-torch.expm1(-square))
        return log_variance.clamp(max=MAX_EXPONENT).exp().to(parameters.dtype)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns draws (*, J) by the inverse distribution function."""
        centre, spread = self._logs(parameters)
        return self._features(centre + spread * normals(noise, parameters.dtype)).to(parameters.dtype)

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the distribution function (*, J)."""
        centre, spread = self._logs(parameters)
        value = self.loc + self.scale * x
        log_value = torch.where(value > 0, value, 1.0).log()
        below = normal_cdf((log_value - centre) / spread)
        return torch.where(value > 0, below, 0.0).to(parameters.dtype)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (2J) at which the logs have their observed mean and spread."""
        loc = torch.zeros(self.n_columns, dtype=torch.float64)
        return torch.cat([loc, inverse_softplus(torch.ones_like(loc) - self.std_floor)])

    def filler(self) -> Tensor:
        """Returns the features (J) of the geometric means."""
        return self._features(self.log_mean).double()

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        loc, raw_std = parameters.chunk(2, dim=-1)
        return loc, self.std_floor + softplus(raw_std)

    def _logs(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and standard deviation (*, J) of the log of the value."""
        loc, std = self._split(parameters)
        return self.log_mean + self.log_std * loc, self.log_std * std

    def _features(self, log_value: Tensor) -> Tensor:
        ratio = (log_value - self.scale.log()).clamp(max=MAX_EXPONENT).exp()
        return ratio - self.loc / self.scale


def normal_log_prob(t: Tensor) -> Tensor:
    """Returns the log density of the standard normal."""
    return -0.5 * (t.square() + math.log(2 * math.pi))


def normal_cdf(t: Tensor) -> Tensor:
    """Returns the distribution function of the standard normal."""
    below: Tensor = torch.special.ndtr(t)
    return below


def normals(noise: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns standard normals from uniforms, by the inverse distribution function."""
    drawn: Tensor = torch.special.ndtri(open_uniforms(noise, dtype))
    return drawn
