"""Likelihoods of columns of counts and of levels.

Counts are Poisson, negative binomial where they vary more, or have many zeros. Levels, categorical and
ordinal, are given as blocks of 0/1 indicators.
"""

from collections.abc import Sequence

import torch
from scipy import special
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import TEMPERATURE, Leaf, NumericLeaf, by_scipy, open_uniforms

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
        As of `PoissonLeaf`.
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
        As of `PoissonLeaf`.
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


MIN_GAP = 1e-3  # between thresholds: every level has a probability


class LevelLeaf(Leaf):
    r"""The likelihood of J columns with levels, as blocks of indicators one after the other.

    A draw takes the greatest of :math:`\log p_l + g_l` with Gumbel noise :math:`g_l = -\log(-\log u_l)`, the
    relaxed draw the softmax of :math:`(\log p_l + g_l) / T` over the block, with the temperature :math:`T`.

    Parameters
    ----------
    widths : sequence of int
        The number of indicators of each column.
    n_parameters : int
        The number of network outputs for all columns together.

    References
    ----------
    Jang, Gu & Poole (2017), Categorical reparameterization with Gumbel-softmax.
    """

    is_density = False
    temperature = TEMPERATURE

    block_of: Tensor
    slots: Tensor

    def __init__(self, widths: Sequence[int], n_parameters: int) -> None:
        if any(width < 1 for width in widths):
            raise ValueError(f"Every column must have at least one indicator, got widths {list(widths)}.")
        super().__init__(len(widths), n_parameters, width=sum(widths), n_noise=sum(widths))
        self.widths = tuple(widths)
        sizes = torch.tensor(self.widths)
        positions = torch.arange(int(sizes.max()))
        slots = torch.where(
            positions < sizes[:, None], (sizes.cumsum(0) - sizes)[:, None] + positions, self.width
        )
        block_of = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.register_buffer("block_of", block_of, persistent=False)  # (W)
        self.register_buffer("slots", slots, persistent=False)  # (J, widest), padded by W

    def extra_repr(self) -> str:
        """Returns the widths."""
        return f"widths={list(self.widths)}"

    @property
    def columns_of_features(self) -> Tensor:
        """The column (W), among the leaf's own, that each indicator belongs to."""
        return self.block_of

    def log_probabilities(self, parameters: Tensor) -> Tensor:
        """Returns the log probability (*, W) of each indicator."""
        raise NotImplementedError

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log probability (*, J) of the levels that the indicators (*, W) show."""
        weighted = x * self.log_probabilities(parameters)
        return (weighted @ members(self.block_of, self.n_columns, weighted.dtype)).to(parameters.dtype)

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the probabilities (*, W)."""
        return self.log_probabilities(parameters).exp()

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, W) of each indicator."""
        probabilities = self.mean(parameters)
        return probabilities * (1 - probabilities)

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the most probable levels (*, W): a single 1 in each block."""
        return self._hard(self.log_probabilities(parameters)).to(parameters.dtype)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns relaxed draws (*, W) that sum to 1 over each block."""
        scores = self._scores(parameters, noise)
        return log_softmax_by_block(scores / self.temperature, self.block_of, self.n_columns).exp()

    @torch.no_grad()
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns exact draws (*, W): a single 1 in each block."""
        return self._hard(self._scores(parameters, noise))

    def _scores(self, parameters: Tensor, noise: Tensor) -> Tensor:
        log_probabilities = self.log_probabilities(parameters)
        return log_probabilities - torch.log(-open_uniforms(noise, log_probabilities.dtype).log())

    @torch.no_grad()
    def _hard(self, scores: Tensor) -> Tensor:
        padded = functional.pad(scores, (0, 1), value=-torch.inf)[..., self.slots]  # (*, J, widest)
        winners = padded.argmax(dim=-1) + self.slots[:, 0]  # (*, J)
        return torch.zeros_like(scores).scatter_(-1, winners, 1.0)


class CategoricalLeaf(LevelLeaf):
    r"""Creates categorical columns: a softmax over each block of network outputs.

    .. math:: \log p(x_j) = \sum_{l \in j} x_l \Big(a_l - \log \sum_{l' \in j} e^{a_{l'}}\Big)

    for network outputs :math:`a` and one-hot blocks :math:`x`. A binary column is a block of two.

    Parameters
    ----------
    widths : sequence of int
        The number of indicators of each column; there are as many parameters as indicators.
    frequencies : Tensor, optional
        Positive shares :math:`(W)` of the levels, for the neutral parameters; even if not given.

    Examples
    --------
    >>> leaf = CategoricalLeaf(widths=[2, 3])
    >>> leaf.log_prob(torch.zeros(5), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0])).exp()
    tensor([0.5000, 0.3333])
    """

    log_frequencies: Tensor

    def __init__(self, widths: Sequence[int], frequencies: Tensor | None = None) -> None:
        super().__init__(widths, sum(widths))
        if frequencies is None:
            frequencies = torch.ones(self.width)
        self.register_buffer("log_frequencies", frequencies.to(torch.float64).log())

    def log_probabilities(self, parameters: Tensor) -> Tensor:
        """Returns the log probability (*, W) of each indicator."""
        return log_softmax_by_block(parameters, self.block_of, self.n_columns)

    def neutral_parameters(self) -> Tensor:
        """Returns the log frequencies (W)."""
        return self.log_frequencies.double()


class OrdinalLeaf(LevelLeaf):
    r"""Creates ordinal columns: a logistic variable that falls between increasing thresholds.

    .. math:: P(y_j \leq l) = \mathrm{sigmoid}(t_{jl} - a_j / s_j), \qquad
              t_{j,l+1} = t_{jl} + 10^{-3} + \log(1 + e^{d_{jl}})

    for one network output :math:`a_j` a column; thresholds :math:`t` and scale :math:`s` belong to the leaf.
    An indicator may stand for several levels, in any order; it has the sum of their probabilities.

    Parameters
    ----------
    groups : sequence of Tensor
        For each column, the indicator :math:`(L_j)` of each of its levels, which are in order.
    frequencies : sequence of Tensor, optional
        For each column, positive shares :math:`(L_j)` of the levels, from which the thresholds start.

    References
    ----------
    McCullagh (1980), Regression models for ordinal data (proportional odds).

    Examples
    --------
    >>> leaf = OrdinalLeaf([torch.arange(4)])
    >>> leaf.mean(torch.zeros(1)).detach()
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    level_slots: Tensor
    is_last: Tensor
    group_of: Tensor

    def __init__(self, groups: Sequence[Tensor], frequencies: Sequence[Tensor] | None = None) -> None:
        if any(len(group) < 2 for group in groups):
            raise ValueError("An ordinal column must have at least two levels.")
        widths = [int(group.max()) + 1 for group in groups]
        super().__init__(widths, len(groups))
        if frequencies is None:
            frequencies = [torch.ones(len(group)) for group in groups]

        sizes = torch.tensor([len(group) for group in groups])[:, None]
        levels = torch.arange(int(sizes.max()))
        group_of = [group + start for group, start in zip(groups, self.slots[:, 0].tolist(), strict=True)]
        self.register_buffer("level_slots", (levels < sizes).flatten().nonzero()[:, 0], persistent=False)
        self.register_buffer("is_last", levels == sizes - 1, persistent=False)  # (J, most)
        self.register_buffer("group_of", torch.cat(group_of), persistent=False)  # (all levels)

        start = torch.stack([_thresholds(shares, len(levels) - 1) for shares in frequencies])  # (J, most - 1)
        gaps = (start.diff(dim=1) - MIN_GAP).clamp(min=MIN_GAP)
        self.first = nn.Parameter(start[:, :1].to(torch.get_default_dtype()))
        self.raw_gaps = nn.Parameter(inverse_softplus(gaps).to(torch.get_default_dtype()))
        self.log_scale = nn.Parameter(torch.zeros(self.n_columns))

    @property
    def thresholds(self) -> Tensor:
        """The increasing thresholds (J, most levels - 1); a column with fewer levels uses the first."""
        gaps = MIN_GAP + functional.softplus(self.raw_gaps)
        return torch.cat([self.first, self.first + gaps.cumsum(dim=1)], dim=1)

    def log_probabilities(self, parameters: Tensor) -> Tensor:
        """Returns the log probability (*, W) of each indicator."""
        shift = (parameters * (-self.log_scale).exp()).unsqueeze(-1)  # (*, J, 1)
        thresholds = self.thresholds
        below = functional.logsigmoid(thresholds - shift)  # (*, J, most - 1)
        above = functional.logsigmoid(shift - thresholds)
        # sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)), which never cancels.
        upper = functional.pad(below + _log_share(thresholds), (0, 1))
        upper = torch.where(self.is_last, 0.0, upper)
        by_level = upper + functional.pad(above, (1, 0))  # (*, J, most)
        by_level = by_level.flatten(-2).index_select(-1, self.level_slots)  # (*, all levels)
        return log_sum_by_block(by_level, self.group_of, self.width)

    def neutral_parameters(self) -> Tensor:
        """Returns the locations (J), zero."""
        return torch.zeros(self.n_columns, dtype=torch.float64)


def members(block_of: Tensor, n_blocks: int, dtype: torch.dtype) -> Tensor:
    """Returns the 0/1 matrix (W, J) of which feature is in which block."""
    return functional.one_hot(block_of, n_blocks).to(dtype)


def log_sum_by_block(values: Tensor, block_of: Tensor, n_blocks: int) -> Tensor:
    """Returns the log of the sum of exponentials (*, J) over each block of values (*, W)."""
    lowest = values.new_full((*values.shape[:-1], n_blocks), -torch.inf)
    shift = lowest.scatter_reduce(-1, block_of.expand_as(values), values.detach(), "amax")
    odds = (values - shift[..., block_of]).exp()
    # A product with indicators: neither sum nor gradient needs scattered additions.
    return (odds @ members(block_of, n_blocks, values.dtype)).log() + shift


def log_softmax_by_block(values: Tensor, block_of: Tensor, n_blocks: int) -> Tensor:
    """Returns the values (*, W) less the log of the sum of exponentials over their block."""
    log_sum = log_sum_by_block(values, block_of, n_blocks)
    return values - log_sum @ members(block_of, n_blocks, values.dtype).mT


def _log_share(thresholds: Tensor) -> Tensor:
    """Returns log(1 - exp(-gap)) (J, most - 1) to the threshold before; 0 for the first, which has none."""
    gaps = thresholds.diff(dim=1)
    return functional.pad(torch.log(-torch.expm1(-gaps)), (1, 0))


def _thresholds(shares: Tensor, count: int) -> Tensor:
    """Returns logits (count) of the cumulated shares, continued in steps of 1 where there are fewer."""
    shares = shares.to(torch.float64)
    cumulated = shares.cumsum(0)[:-1] / shares.sum()
    logits = torch.logit(cumulated)
    beyond = torch.arange(1, count - len(logits) + 1)
    return torch.cat([logits, logits[-1] + beyond])
