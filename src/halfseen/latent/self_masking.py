"""Self-masking models: the probability of being observed as a function of the column's own value."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.margins import inverse_softplus
from halfseen.latent.mask_models import START_SLOPE, LearnedMask, MaskLayout


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
