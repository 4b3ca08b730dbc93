r"""Self-masking models: the probability of being observed as a function of the column's own value.

The probability of a mask given latents alone: missing cells of self-masking columns integrated out.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import GaussianLeaf, NumericLeaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_counts import LevelLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.mask_models import START_SLOPE, LearnedMask, MaskLayout, MaskModel


class SelfMaskModel(LearnedMask):
    r"""The base class of self-masking models: one curve per numeric column, one logit per level.

    .. math:: \ell_c(x) = b_c - g_c(x_c), \qquad \ell_c(x) = b_c - g_c(0) + \sum_{j \in c} u_j x_j

    for a column of one feature, and for a block of indicators.
    """

    is_self_masking = True
    feature: Tensor
    is_number: Tensor
    of_blocks: Tensor
    member: Tensor

    def __init__(self, layout: int | MaskLayout) -> None:
        super().__init__(layout)
        column = torch.tensor(self.layout.column_of_feature, dtype=torch.long)  # (D,)
        is_number = column.bincount(minlength=self.n_columns) == 1  # (C,)
        feature = torch.zeros(self.n_columns, dtype=torch.long).scatter(0, column, torch.arange(len(column)))
        of_blocks = (~is_number[column]).nonzero().squeeze(-1)  # (E,)
        member = functional.one_hot(column[of_blocks], self.n_columns).to(self.bias)  # (E, C)
        self._is_plain = column.tolist() == list(range(self.n_columns))
        self.register_buffer("feature", feature, persistent=False)
        self.register_buffer("is_number", is_number, persistent=False)
        self.register_buffer("of_blocks", of_blocks, persistent=False)
        self.register_buffer("member", member, persistent=False)
        self.level_logits = nn.Parameter(torch.zeros(len(of_blocks)))  # (E,)

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed."""
        if self._is_plain:
            return self.column_logits(x)
        values = torch.where(self.is_number, x[..., self.feature], 0.0)  # (*, C)
        return self.column_logits(values) + (x[..., self.of_blocks] * self.level_logits) @ self.member

    @abstractmethod
    def column_logits(self, values: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed for one value of each column that is a number.

        Columns depend on their own value alone, so expectations over values are one-dimensional integrals.
        For a block, the level adds its entry of `level_logits` to the entry at value 0.
        """
        raise NotImplementedError

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator, observed_rate: Tensor) -> None:
        """Draws small slopes, and sets biases so that features of zero are observed at the rates (C,)."""
        self.level_logits.zero_()
        super().reset_parameters(generator, observed_rate)


class LinearSelfMask(SelfMaskModel):
    r"""Creates the self-masking model: the log odds of a column are linear in its own value.

    .. math:: \ell_c(x) = b_c - W_c x_c, \qquad W_c = s_c \operatorname{softplus}(w_c) \text{ or } w_c

    with a known sign, or without.

    Parameters
    ----------
    layout : int or MaskLayout
        The columns.
    signs : int or sequence of int, optional
        The direction :math:`s_c` of each column, or of all: +1 if larger values are more often missing, -1 if
        smaller ones are, 0 if unknown (the default). Blocks of indicators have no direction.

    Examples
    --------
    >>> model = LinearSelfMask(1, signs=+1)
    >>> small, large = model.logits(torch.tensor([[-2.0], [2.0]])).sigmoid()
    >>> bool(small > large)  # large values are less often observed
    True
    """

    signs: Tensor

    def __init__(self, layout: int | MaskLayout, signs: int | Sequence[int] | None = None) -> None:
        super().__init__(layout)
        read = _read_signs(0 if signs is None else signs, self.n_columns, (-1, 0, 1))
        self.register_buffer("signs", read, persistent=False)
        self.raw_slope = nn.Parameter(torch.empty(self.n_columns))  # (C,)
        self._start()

    @property
    def slope(self) -> Tensor:
        """The slopes W, with shape (C,)."""
        return torch.where(self.signs == 0, self.raw_slope, self.signs * functional.softplus(self.raw_slope))

    def column_logits(self, values: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed, column by column."""
        return torch.addcmul(self.bias, values, self.slope, value=-1.0)

    def _reset_slopes(self, generator: torch.Generator) -> None:
        self.raw_slope.normal_(0.0, START_SLOPE, generator=generator)
        signs = self.signs[: len(self.raw_slope)]
        self.raw_slope.copy_(torch.where(signs == 0, self.raw_slope, _before_softplus(START_SLOPE)))


class SharedSlopeMask(LinearSelfMask):
    r"""Creates the self-masking model with one slope for all columns, as for ratings of many items.

    .. math:: \ell_c(x) = b_c - s \operatorname{softplus}(w) \, x_c, \text{ or } b_c - w x_c \text{ if } s = 0

    Parameters
    ----------
    layout : int or MaskLayout
        The columns.
    sign : {-1, 0, 1}
        The direction :math:`s`, as in `LinearSelfMask`.
    """

    def __init__(self, layout: int | MaskLayout, sign: int = 0) -> None:
        super().__init__(layout, sign)
        self.raw_slope = nn.Parameter(torch.empty(1))
        self._start()


class MonotoneMask(SelfMaskModel):
    r"""Creates the self-masking model with a monotone curve for each column, in a known direction.

    .. math:: \ell_c(x) = b_c - s_c \Big(\alpha_c x_c
              + \sum_u \beta_{cu} \tanh(\gamma_{cu} (x_c - t_{cu}))\Big), \quad \alpha, \beta, \gamma \geq 0

    Parameters
    ----------
    layout : int or MaskLayout
        The columns.
    signs : int or sequence of int
        The direction of each column, or of all: +1 if larger values are more often missing, else -1.
    n_units : int
        The number of steps in each curve.
    """

    signs: Tensor

    def __init__(self, layout: int | MaskLayout, signs: int | Sequence[int], n_units: int = 4) -> None:
        super().__init__(layout)
        self.register_buffer("signs", _read_signs(signs, self.n_columns, (-1, 1)), persistent=False)
        self.raw_slope = nn.Parameter(torch.empty(self.n_columns))  # (C,)
        self.raw_height = nn.Parameter(torch.empty(n_units, self.n_columns))  # (U, C)
        self.raw_steepness = nn.Parameter(torch.empty(n_units, self.n_columns))
        self.threshold = nn.Parameter(torch.empty(n_units, self.n_columns))
        self._start()

    def column_logits(self, values: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed, column by column."""
        steepness = functional.softplus(self.raw_steepness)
        steps = torch.tanh(steepness * (values.unsqueeze(-2) - self.threshold))  # (*, U, C)
        curve = (functional.softplus(self.raw_height) * steps).sum(dim=-2)  # (*, C)
        curve = curve + functional.softplus(self.raw_slope) * values

        return self.bias - self.signs * curve

    def _reset_slopes(self, generator: torch.Generator) -> None:
        n_units = len(self.threshold)
        self.raw_slope.fill_(_before_softplus(START_SLOPE))
        self.raw_height.fill_(_before_softplus(START_SLOPE / n_units))
        self.raw_steepness.fill_(_before_softplus(1.0))
        self.threshold.copy_(_grid(n_units, 1.5).unsqueeze(-1))


class FlexibleSelfMask(SelfMaskModel):
    r"""Creates the self-masking model with a flexible curve for each column, which need not be monotone.

    .. math:: \ell_c(x) = b_c - W_c x_c - \sum_u v_{cu} \exp\!\big(-\tfrac12 (x_c - t_u)^2 / h^2\big)

    The centres of the bumps are evenly spaced at distance :math:`h` over the reach; the curve is linear in
    its parameters.

    Parameters
    ----------
    layout : int or MaskLayout
        The columns.
    n_units : int
        The number of bumps, at least 2.
    reach : float
        How far from 0 the outer bumps are, in standard deviations.
    """

    centre: Tensor

    def __init__(self, layout: int | MaskLayout, n_units: int = 7, reach: float = 3.0) -> None:
        super().__init__(layout)
        if n_units < 2:
            raise ValueError(f"n_units must be at least 2, got {n_units}.")
        self.register_buffer("centre", _grid(n_units, reach).unsqueeze(-1), persistent=False)  # (U, 1)
        self.distance = 2.0 * reach / (n_units - 1)
        self.slope = nn.Parameter(torch.empty(self.n_columns))  # (C,)
        self.height = nn.Parameter(torch.empty(n_units, self.n_columns))  # (U, C)
        self._start()

    def column_logits(self, values: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed, column by column."""
        bumps = (((values.unsqueeze(-2) - self.centre) / self.distance).square() * -0.5).exp()  # (*, U, C)
        return self.bias - self.slope * values - (self.height * bumps).sum(dim=-2)

    def _reset_slopes(self, generator: torch.Generator) -> None:
        self.slope.normal_(0.0, START_SLOPE, generator=generator)
        self.height.normal_(0.0, START_SLOPE, generator=generator)


def _read_signs(signs: int | Sequence[int], n_columns: int, allowed: tuple[int, ...]) -> Tensor:
    listed = [signs] * n_columns if isinstance(signs, int) else [int(sign) for sign in signs]
    if len(listed) != n_columns or not set(listed) <= set(allowed):
        raise ValueError(f"signs must be {n_columns} of {allowed}, or one for all, got {signs!r}.")
    return torch.tensor(listed, dtype=torch.get_default_dtype())  # (C,)


def _before_softplus(value: float) -> float:
    return inverse_softplus(torch.tensor(value, dtype=torch.float64)).item()


def _grid(n_points: int, reach: float) -> Tensor:
    return torch.linspace(-reach, reach, n_points)


N_NODES = 25
REACH = 3.0  # range of the nodes before stretching: sinh(3), ten standard deviations

SMOOTH = (GaussianLeaf, SharedGaussianLeaf, StudentTLeaf)


def nodes(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Returns where to evaluate standardised densities, and the log of the distances, both (Q).

    The trapezoidal rule in :math:`u` with :math:`t = \sinh u`, which converges fast for smooth densities
    with any tail.
    """
    u = torch.linspace(-REACH, REACH, N_NODES, dtype=dtype)
    return u.sinh(), (u.cosh() * (2 * REACH / (N_NODES - 1))).log()


def is_integrable(observation: ObservationModel, mask_model: MaskModel) -> bool:
    """Whether every column is self-masking and has a density that the nodes resolve, or levels."""
    kinds = all(isinstance(leaf, (*SMOOTH, LevelLeaf)) for leaf in observation.leaves)
    return isinstance(mask_model, SelfMaskModel) and kinds


@dataclass(frozen=True)
class CellGrid:
    r"""The distribution of every number given latents, :math:`p(x_c \mid z)`, on nodes.

    Shapes
    ------
    values : :math:`(Q, *, J)`, features of the columns `observation.numeric`
    log_weights : :math:`(Q, *, J)`, of which sums of exponentials over nodes are 1
    """

    values: Tensor
    log_weights: Tensor

    @classmethod
    def of(cls, observation: ObservationModel, parameters: Tensor) -> "CellGrid":
        """Places the nodes around the mean, in units of the standard deviation."""
        at, log_distance = nodes(parameters.dtype)
        shape = (-1, *[1] * parameters.dim())
        at, log_distance = (part.to(parameters.device).view(shape) for part in (at, log_distance))
        values, log_weights = [], []
        for leaf, part in zip(observation.leaves, observation.split(parameters), strict=True):
            if isinstance(leaf, NumericLeaf):
                values.append(leaf.mean(part) + at * leaf.variance(part).sqrt())
                log_weights.append(leaf.log_prob(part, values[-1]) + log_distance)
        if not values:
            empty = parameters.new_empty(N_NODES, *parameters.shape[:-1], 0)
            return cls(empty, empty)
        order = observation.order_of_numbers  # from the order of leaves
        pair = torch.cat(values, dim=-1), torch.cat(log_weights, dim=-1).log_softmax(dim=0)
        return cls(*pair) if order is None else cls(*(part.index_select(-1, order) for part in pair))


@dataclass(frozen=True)
class TiltedCells:
    r"""What a missing cell is, given latents and that it is missing, under a self-masking model.

    .. math:: p(x_c \mid z, o_c = 0) = \frac{p(x_c \mid z) \, p(o_c = 0 \mid x_c)}{\mathrm{E}[p(o_c = 0 \mid
              x_c) \mid z]}

    Shapes
    ------
    log_missing : :math:`(*, C)`, the log of the denominator
    values : :math:`(Q, *, J)`, nodes of the features of the columns `observation.numeric`
    log_weights : :math:`(Q, *, J)`, the log probabilities of the nodes, normalised
    mean : :math:`(*, D)`, expected features; of indicators, probabilities
    """

    log_missing: Tensor
    values: Tensor
    log_weights: Tensor
    mean: Tensor

    @classmethod
    def of(
        cls, observation: ObservationModel, mask_model: SelfMaskModel, parameters: Tensor
    ) -> "TiltedCells":
        """Tilts the distribution of every cell by its probability of being missing."""
        grid = CellGrid.of(observation, parameters)
        columns = torch.tensor(observation.numeric, dtype=torch.long).to(parameters.device)
        log_hidden = _log_hidden(mask_model, grid.values, columns)
        tilted = grid.log_weights + torch.where(modelled_columns(mask_model)[columns], log_hidden, 0.0)
        log_number = tilted.logsumexp(dim=0)
        log_weights = tilted - log_number
        mean, log_missing = _tilted_levels(mask_model, observation.mean(parameters))
        numbers = mask_model.feature[columns]
        expected = (log_weights.exp() * grid.values).sum(dim=0)
        return cls(
            log_missing.index_copy(-1, columns, log_number),
            grid.values,
            log_weights,
            mean.index_copy(-1, numbers, expected),
        )


def _log_hidden(mask_model: SelfMaskModel, values: Tensor, columns: Tensor) -> Tensor:
    """Returns the log probability (Q, *, J) that numbers of these columns are missing."""
    every = values.new_zeros(*values.shape[:-1], mask_model.n_columns)
    logits = mask_model.column_logits(every.index_copy(-1, columns, values))
    return functional.logsigmoid(-logits.index_select(-1, columns))


def log_missing(observation: ObservationModel, mask_model: SelfMaskModel, parameters: Tensor) -> Tensor:
    """Returns `TiltedCells.log_missing` of the columns whose mask is modelled; zeros of the others."""
    grid = CellGrid.of(observation, parameters)
    columns = torch.tensor(observation.numeric, dtype=torch.long).to(parameters.device)
    kept = modelled_columns(mask_model)[columns].nonzero().squeeze(1)
    values, log_weights = (part.index_select(-1, kept) for part in (grid.values, grid.log_weights))
    log_number = (log_weights + _log_hidden(mask_model, values, columns[kept])).logsumexp(dim=0)
    _, of_levels = _tilted_levels(mask_model, observation.mean(parameters))
    return of_levels.index_copy(-1, columns[kept], log_number)


def _tilted_levels(mask_model: SelfMaskModel, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Returns indicators (*, D) expected of missing cells, and the log probability (*, C) of missing."""
    if len(mask_model.of_blocks) == 0:
        return probabilities, probabilities.new_zeros(*probabilities.shape[:-1], mask_model.n_columns)
    member = mask_model.member.to(probabilities)  # (E, C)
    base = mask_model.column_logits(probabilities.new_zeros(mask_model.n_columns))  # (C)
    missing = torch.sigmoid(-(member @ base + mask_model.level_logits))  # (E)
    missing = torch.where(modelled_columns(mask_model)[member.argmax(dim=1)], missing, 1.0)
    joint = probabilities[..., mask_model.of_blocks] * missing
    total = joint @ member  # (*, C)
    share = joint / (total @ member.mT).clamp(min=torch.finfo(joint.dtype).tiny)
    levels = probabilities.index_copy(-1, mask_model.of_blocks, share)
    return levels, torch.where(mask_model.is_number, 1.0, total).clamp(min=math.exp(-80)).log()


def modelled_columns(mask_model: MaskModel) -> Tensor:
    """Returns of which columns (C) the mask is modelled; the others count as missing at random."""
    columns, device = mask_model.layout.columns, next(mask_model.parameters()).device
    if columns is None:
        return torch.ones(mask_model.n_columns, dtype=torch.bool).to(device)
    modelled = torch.zeros(mask_model.n_columns, dtype=torch.bool)
    return modelled.index_fill(0, torch.tensor(list(columns), dtype=torch.long), True).to(device)


def integrated_log_prob(
    observation: ObservationModel, mask_model: SelfMaskModel, parameters: Tensor, x: Tensor, observed: Tensor
) -> Tensor:
    r"""Returns the log probability (*) of masks given latents and observed cells.

    .. math:: \sum_{c \in o} \log p(o_c = 1 \mid x_c) + \sum_{c \in m} \log \mathrm{E}[p(o_c = 0 \mid x_c)
              \mid z]

    Shapes
    ------
    parameters : :math:`(*, P)`
    x : :math:`(*, D)`, features with anything finite for missing values
    observed : :math:`(*, C)`
    """
    log_observed = functional.logsigmoid(mask_model.logits(x))
    terms = torch.where(observed, log_observed, log_missing(observation, mask_model, parameters))
    return torch.where(modelled_columns(mask_model), terms, 0.0).sum(dim=-1)
