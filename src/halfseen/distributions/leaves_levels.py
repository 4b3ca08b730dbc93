"""Likelihoods of columns with levels, given as blocks of 0/1 indicators: categorical and ordinal."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaf import TEMPERATURE, Leaf, open_uniforms

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
