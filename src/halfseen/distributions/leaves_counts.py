"""Likelihoods of columns of counts: Poisson, negative binomial where counts vary more, and many zeros."""

import torch
from scipy import special
from torch import Tensor
from torch.nn import functional

from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaf import NumericLeaf, by_scipy, open_uniforms

RATE_FLOOR = 1e-6  # minimum rate relative to the typical rate, so that its logarithm is finite
MAX_CORRECTIONS = 50  # maximum steps of a quantile; about 12 suffice unless rates are huge
TIE = 1e-3  # tolerance of a count for rounding errors


class CountLeaf(NumericLeaf):
    r"""The likelihood of J columns of counts :math:`k_j = l_j + c_j x_j`, rounded, for features :math:`x`.

    The log probability is that of the count, not a density of the feature. Negative numbers are read as 0.
    A draw is exact and carries the implicit derivative by the mean :math:`\mu`,

    .. math:: \partial_\mu k = -\frac{\partial_\mu F(k)}{p(k)}, \qquad
              \partial_\mu \mathrm{E} f(k) = \mathrm{E}[(f(k + 1) - f(k)) \, \partial_\mu k]

    so that its gradient is exact for linear :math:`f`. Other parameters receive no gradient from draws.
    """

    is_density = False

    loc: Tensor
    scale: Tensor
    typical: Tensor

    def __init__(self, loc: Tensor, scale: Tensor, typical: Tensor, *, per_column: int) -> None:
        n_columns = len(loc)
        super().__init__(n_columns, n_parameters=per_column * n_columns, n_noise=per_column * n_columns)
        for name, value in {"loc": loc, "scale": scale, "typical": typical}.items():
            self.register_buffer(name, value.to(torch.float64))

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected features (*, J)."""
        return self._features(self._mean_count(parameters)).to(parameters.dtype)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns exact draws (*, J) with a gradient by the mean count."""
        mean = self._mean_count(parameters)
        with torch.no_grad():
            count = self._draw(parameters, noise)
            slope = self._slope(parameters, count)
        return self._features(count + slope * (mean - mean.detach())).to(parameters.dtype)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (P) at which every quantity has its typical size."""
        return inverse_softplus(torch.ones(self.n_parameters, dtype=torch.float64) - RATE_FLOOR)

    def filler(self) -> Tensor:
        """Returns the features (J) of typical counts."""
        return self._features(self.typical.round()).double()

    def _mean_count(self, parameters: Tensor) -> Tensor:
        return self.typical * (functional.softplus(parameters[..., : self.n_columns]) + RATE_FLOOR)

    def _counts(self, x: Tensor) -> Tensor:
        return (self.loc + self.scale * x).round().clamp(min=0)

    def _features(self, counts: Tensor) -> Tensor:
        return (counts - self.loc) / self.scale

    def _floor(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the greatest count (*, J) not above the features, and whether there is one."""
        count = (self.loc + self.scale * x + TIE).floor()
        return count.clamp(min=0), count >= 0

    def _draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns exact counts (*, J)."""
        raise NotImplementedError

    def _slope(self, parameters: Tensor, count: Tensor) -> Tensor:
        """Returns the implicit derivative (*, J) of a drawn count by the mean."""
        raise NotImplementedError


class PoissonLeaf(CountLeaf):
    r"""Creates Poisson columns of counts :math:`k_j`.

    .. math:: p(k_j) = \frac{\lambda_j^{k_j} e^{-\lambda_j}}{k_j!}, \qquad
              \lambda_j = \tau_j \, (10^{-6} + \log(1 + e^{a_j}))

    for network outputs :math:`a`.

    Parameters
    ----------
    loc, scale : Tensor
        The map :math:`(J)` from features to counts, :math:`l` and :math:`c`.
    typical : Tensor
        A positive typical count :math:`\tau` of each column, such as its mean.

    References
    ----------
    Nazabal et al. (2020), Handling incomplete heterogeneous data using VAEs.

    Examples
    --------
    >>> leaf = PoissonLeaf(loc=torch.tensor([4.0]), scale=torch.tensor([2.0]), typical=torch.tensor([4.0]))
    >>> x = torch.tensor([-2.0])  # the count 0
    >>> leaf.log_prob(leaf.neutral_parameters(), x)
    tensor([-4.], dtype=torch.float64)
    """

    def __init__(self, loc: Tensor, scale: Tensor, typical: Tensor) -> None:
        super().__init__(loc, scale, typical, per_column=1)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log probability (*, J) of the counts."""
        rate, count = self._mean_count(parameters), self._counts(x)
        return (count * rate.log() - rate - torch.lgamma(count + 1)).to(parameters.dtype)

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, J) of the most probable counts."""
        return self._features(self._mean_count(parameters).floor()).to(parameters.dtype)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J) of the features."""
        return (self._mean_count(parameters) / self.scale.square()).to(parameters.dtype)

    @torch.no_grad()
    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability (*, J) of a count not above that of `x`, without a gradient."""
        count, any_below = self._floor(x)
        below = by_scipy(special.gammaincc, *torch.broadcast_tensors(count + 1, self._mean_count(parameters)))
        return torch.where(any_below, below, 0.0).to(parameters.dtype)

    def _draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return poisson_quantile(self._mean_count(parameters), open_uniforms(noise, torch.float64))

    def _slope(self, parameters: Tensor, count: Tensor) -> Tensor:
        return torch.ones_like(count)


class NegativeBinomialLeaf(CountLeaf):
    r"""Creates negative binomial columns of counts :math:`k_j`: Poisson with a gamma-distributed rate.

    .. math:: p(k_j) = \binom{k_j + r_j - 1}{k_j} \left(\frac{r_j}{r_j + \mu_j}\right)^{r_j}
              \left(\frac{\mu_j}{r_j + \mu_j}\right)^{k_j}, \qquad
              \mu_j = \tau_j \, (10^{-6} + \log(1 + e^{a_j})), \quad
              r_j = \rho_j \, (10^{-6} + \log(1 + e^{b_j}))

    for network outputs :math:`(a, b)`; the mean is :math:`\mu`, the variance :math:`\mu + \mu^2 / r`. Draws
    carry a gradient by :math:`\mu`, :math:`\partial_\mu k = (k + r) / (\mu + r)`, and none by :math:`r`.

    Parameters
    ----------
    loc, scale : Tensor
        The map :math:`(J)` from features to counts, :math:`l` and :math:`c`.
    typical : Tensor
        A positive typical count :math:`\tau` of each column, such as its mean.
    shape : Tensor
        A typical shape :math:`\rho` of the gamma distribution of each column's rate.

    Examples
    --------
    >>> one = torch.ones(1)
    >>> leaf = NegativeBinomialLeaf(loc=0 * one, scale=one, typical=3 * one, shape=one)
    >>> leaf.log_prob(leaf.neutral_parameters(), torch.tensor([0.0])).exp()  # geometric
    tensor([0.2500], dtype=torch.float64)
    """

    shape: Tensor

    def __init__(self, loc: Tensor, scale: Tensor, typical: Tensor, shape: Tensor) -> None:
        super().__init__(loc, scale, typical, per_column=2)
        self.register_buffer("shape", shape.to(torch.float64))

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log probability (*, J) of the counts."""
        mean, shape, count = self._mean_count(parameters), self._shape(parameters), self._counts(x)
        ways = torch.lgamma(count + shape) - torch.lgamma(shape) - torch.lgamma(count + 1)
        # log1p keeps what is left of r / (r + mean) when the shape is large.
        log_prob = ways - shape * torch.log1p(mean / shape) - count * torch.log1p(shape / mean)
        return log_prob.to(parameters.dtype)

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, J) of the most probable counts."""
        shape = self._shape(parameters)
        peak = self._mean_count(parameters) * (1.0 - shape.reciprocal())
        return self._features(peak.clamp(min=0.0).floor()).to(parameters.dtype)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J) of the features."""
        mean = self._mean_count(parameters)
        return ((mean + mean.square() / self._shape(parameters)) / self.scale.square()).to(parameters.dtype)

    @torch.no_grad()
    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability (*, J) of a count not above that of `x`, without a gradient."""
        count, any_below = self._floor(x)
        mean, shape = self._mean_count(parameters), self._shape(parameters)
        below = by_scipy(special.betainc, *torch.broadcast_tensors(shape, count + 1, shape / (shape + mean)))
        return torch.where(any_below, below, 0.0).to(parameters.dtype)

    def _shape(self, parameters: Tensor) -> Tensor:
        return self.shape * (functional.softplus(parameters[..., self.n_columns :]) + RATE_FLOOR)

    def _draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        of_rate, of_count = open_uniforms(noise, torch.float64).chunk(2, dim=-1)
        mean, shape = self._mean_count(parameters), self._shape(parameters)
        gamma = by_scipy(special.gammaincinv, *torch.broadcast_tensors(shape, of_rate))
        return poisson_quantile(mean * gamma / shape, of_count)

    def _slope(self, parameters: Tensor, count: Tensor) -> Tensor:
        shape = self._shape(parameters)
        return (count + shape) / (self._mean_count(parameters) + shape)


class ZeroInflatedPoissonLeaf(CountLeaf):
    r"""Creates columns of counts :math:`k_j` with more zeros than a Poisson distribution has.

    .. math:: p(k_j) = \pi_j \, [k_j = 0] + (1 - \pi_j) \frac{\lambda_j^{k_j} e^{-\lambda_j}}{k_j!}, \qquad
              \lambda_j = \tau_j \, (10^{-6} + \log(1 + e^{a_j})), \quad
              \pi_j = \sigma(\rho_j + b_j)

    for network outputs :math:`(a, b)`, with the logistic function :math:`\sigma`. Draws carry a gradient by
    the mean :math:`(1 - \pi) \lambda`, :math:`\partial_\mu k = e^{-\lambda} / p(0)` at zero and
    :math:`1 / (1 - \pi)` elsewhere.

    Parameters
    ----------
    loc, scale : Tensor
        The map :math:`(J)` from features to counts, :math:`l` and :math:`c`.
    typical : Tensor
        A positive typical rate :math:`\tau` of each column, such as the mean of the counts above zero.
    zeros : Tensor
        A typical probability (J), above 0 and below 1, that a count is zero without being drawn;
        :math:`\rho` is its logit.

    Examples
    --------
    >>> one = torch.ones(1)
    >>> leaf = ZeroInflatedPoissonLeaf(loc=0 * one, scale=one, typical=3 * one, zeros=0.5 * one)
    >>> leaf.log_prob(leaf.neutral_parameters(), torch.tensor([0.0])).exp()
    tensor([0.5249], dtype=torch.float64)
    """

    zeros: Tensor

    def __init__(self, loc: Tensor, scale: Tensor, typical: Tensor, zeros: Tensor) -> None:
        super().__init__(loc, scale, typical, per_column=2)
        self.register_buffer("zeros", zeros.to(torch.float64))

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log probability (*, J) of the counts."""
        rate, gate, count = self._rate(parameters), self._gate(parameters), self._counts(x)
        drawn = functional.logsigmoid(-gate) + count * rate.log() - rate - torch.lgamma(count + 1)
        both = torch.logaddexp(functional.logsigmoid(gate), functional.logsigmoid(-gate) - rate)
        return torch.where(count == 0, both, drawn).to(parameters.dtype)

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, J) of the most probable counts."""
        peak = self._features(self._rate(parameters).floor()).to(parameters.dtype)
        zero = self._features(torch.zeros_like(peak, dtype=torch.float64)).to(parameters.dtype)
        return torch.where(self.log_prob(parameters, peak) > self.log_prob(parameters, zero), peak, zero)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J) of the features."""
        rate, inflated = self._rate(parameters), self._gate(parameters).sigmoid()
        variance = (1.0 - inflated) * rate * (1.0 + inflated * rate)
        return (variance / self.scale.square()).to(parameters.dtype)

    @torch.no_grad()
    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability (*, J) of a count not above that of `x`, without a gradient."""
        count, any_below = self._floor(x)
        inflated = self._gate(parameters).sigmoid()
        below = inflated + (1.0 - inflated) * _poisson_cdf(
            *torch.broadcast_tensors(count, self._rate(parameters))
        )
        return torch.where(any_below, below, 0.0).to(parameters.dtype)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (2J) at which rates and probabilities have their typical size."""
        rates = super().neutral_parameters()[: self.n_columns]
        return torch.cat([rates, torch.zeros_like(rates)])

    def _rate(self, parameters: Tensor) -> Tensor:
        return super()._mean_count(parameters)

    def _gate(self, parameters: Tensor) -> Tensor:
        """Returns the logit (*, J) of the probability of a zero that is not drawn."""
        return self.zeros.logit() + parameters[..., self.n_columns :]

    def _mean_count(self, parameters: Tensor) -> Tensor:
        return self._rate(parameters) * (-self._gate(parameters)).sigmoid()

    def _draw(self, parameters: Tensor, noise: Tensor) -> Tensor:
        of_gate, of_count = open_uniforms(noise, torch.float64).chunk(2, dim=-1)
        count = poisson_quantile(self._rate(parameters), of_count)
        return torch.where(of_gate < self._gate(parameters).sigmoid(), 0.0, count)

    def _slope(self, parameters: Tensor, count: Tensor) -> Tensor:
        drawn = (-self._gate(parameters)).sigmoid()
        at_zero = torch.exp(-self._rate(parameters))
        return torch.where(count == 0, at_zero / (1.0 - drawn + drawn * at_zero), drawn.reciprocal())


@torch.no_grad()
def poisson_quantile(rate: Tensor, probability: Tensor) -> Tensor:
    """Returns the least count whose distribution function reaches the probability, both (*).

    The Cornish-Fisher expansion comes within a few counts; exact comparisons do the rest.

    Examples
    --------
    >>> poisson_quantile(torch.tensor([0.5, 1e6]).double(), torch.tensor([0.6, 0.5]).double())
    tensor([      0., 1000000.], dtype=torch.float64)
    """
    rate, probability = torch.broadcast_tensors(rate, open_uniforms(probability, rate.dtype))
    normal: Tensor = torch.special.ndtri(probability)
    count: Tensor = (rate + normal * rate.sqrt() + (normal.square() - 1) / 6).round().clamp(min=0)
    for _ in range(MAX_CORRECTIONS):
        too_high = (count > 0) & (_poisson_cdf(count - 1, rate) >= probability)
        too_low = _poisson_cdf(count, rate) < probability
        if not (too_high | too_low).any():
            break
        count = count - too_high.to(count.dtype) + too_low.to(count.dtype)
    return count


def _poisson_cdf(count: Tensor, rate: Tensor) -> Tensor:
    return by_scipy(special.gammaincc, count.clamp(min=0) + 1, rate)
