r"""Models of what hides cells: the probability of a mask given the complete row.

.. math:: p(o \mid x) = \prod_c \operatorname{sigmoid}(\ell_c(x))^{o_c}
          \operatorname{sigmoid}(-\ell_c(x))^{1 - o_c}

where :math:`o_c` says whether column :math:`c` is observed. The row :math:`x` is complete: observed cells and
draws of the missing ones, so gradients flow through it. Features are meant to be standardised. Every learned
model starts close to an ignorable one, as what is missing identifies it only in part.

References
----------
Ipsen, Mattei & Frellsen (2021), not-MIWAE: deep generative modelling with missing not at random data, section
3.2. They write self-masking as :math:`-W_j (x_j - b_j)`; here the bias is :math:`W_j b_j`, which exists for
a slope of zero too.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.nn.residual import empty_linear, reset_layers

START_SLOPE = 0.1
"""The scale of slopes at first: log odds per standard deviation."""

RATE_FLOOR = 1e-3
"""No column is taken to be observed, or missing, more surely than this at first."""


@dataclass(frozen=True)
class MaskLayout:
    """Which features belong to which column of a table, and which columns may miss cells.

    A column of several features is a block of indicators, seen or unseen as a whole.

    Parameters
    ----------
    column_of_feature : sequence of int
        The column of each of the D features.
    columns : sequence of int, optional
        The columns whose mask is modelled; the others contribute nothing. All if not given.
    n_columns : int, optional
        The number C of columns, for tables whose last ones have no feature.

    Examples
    --------
    >>> layout = MaskLayout(column_of_feature=(0, 1, 1, 1, 2), columns=(0, 1))  # column 1 has three levels
    >>> SelfMask(layout).log_prob(torch.zeros(5), torch.tensor([True, False, False])).exp()
    tensor(0.2500, grad_fn=<ExpBackward0>)
    """

    column_of_feature: Sequence[int]
    columns: Sequence[int] | None = None
    n_columns: int | None = None

    def __post_init__(self) -> None:
        if len(self.column_of_feature) == 0:
            raise ValueError("column_of_feature must name at least one feature's column, got none.")
        named = [*self.column_of_feature, *(self.columns or ())]
        if min(named) < 0 or max(named) >= self.size:
            raise ValueError(f"Columns must be from 0 to {self.size - 1}, got {self!r}.")

    @property
    def size(self) -> int:
        """The number C of columns."""
        return max(self.column_of_feature) + 1 if self.n_columns is None else self.n_columns


class MaskModel(nn.Module):
    """What every mask model is: log odds of being observed for each column, given complete features.

    Parameters
    ----------
    layout : int or MaskLayout
        The columns; an integer D stands for D numbers, each of which may be missing.

    Attributes
    ----------
    is_ignorable : bool
        Whether masks say nothing about missing values, so none need be drawn.
    is_self_masking : bool
        Whether the mask of a column depends on that column alone.
    """

    is_ignorable = False
    is_self_masking = False

    def __init__(self, layout: int | MaskLayout) -> None:
        super().__init__()
        self.layout = MaskLayout(range(layout)) if isinstance(layout, int) else layout
        self.n_features = len(self.layout.column_of_feature)
        self.n_columns = self.layout.size

    def extra_repr(self) -> str:
        """Returns the sizes."""
        return f"n_features={self.n_features}, n_columns={self.n_columns}"

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed, for complete features (*, D)."""
        raise NotImplementedError

    def column_logits(self, values: Tensor) -> Tensor:
        """Returns the log odds (*, C) for one value of each column; only self-masking models have them."""
        raise TypeError(
            f"{type(self).__name__} is not self-masking: a column's mask depends on other columns."
        )

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns the log probability (*) of masks (*, C), for features (*, D) that broadcast with them."""
        logits = self.logits(x)  # (*, C)
        return self._over_columns(functional.logsigmoid(torch.where(observed, logits, -logits)))

    def reset_parameters(self, generator: torch.Generator, observed_rate: Tensor) -> None:
        """Draws parameters close to those of cells missing at random at the observed rates (C,)."""

    def _over_columns(self, log_probs: Tensor) -> Tensor:
        if self.layout.columns is not None:
            log_probs = log_probs[..., list(self.layout.columns)]
        return log_probs.sum(dim=-1)


class Ignorable(MaskModel):
    r"""Creates the model of masks that need no model: missing at random, with parameters of their own.

    .. math:: \log p(o \mid x) = 0 \text{ up to a constant}

    Examples
    --------
    >>> Ignorable(2).log_prob(torch.zeros(3, 2), torch.tensor([True, False]))
    tensor([0., 0., 0.])
    """

    is_ignorable = True

    def logits(self, x: Tensor) -> Tensor:
        """Raises a TypeError: such a model does not say how often cells are missing."""
        raise TypeError("Ignorable has no probabilities of being observed: it leaves the mask out.")

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns zeros (*)."""
        return x.new_zeros(torch.broadcast_shapes(x.shape[:-1], observed.shape[:-1]))


class LearnedMask(MaskModel):
    """What every learned model shares: a bias (C,) for each column, set so that the start fits the rates."""

    def __init__(self, layout: int | MaskLayout) -> None:
        super().__init__(layout)
        self.bias = nn.Parameter(torch.zeros(self.n_columns))  # (C,)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator, observed_rate: Tensor) -> None:
        """Draws small slopes, and sets biases so that features of zero are observed at the rates (C,)."""
        self._reset_slopes(generator)
        rate = observed_rate.to(self.bias).clamp(RATE_FLOOR, 1.0 - RATE_FLOOR)
        at_zero = self.logits(self.bias.new_zeros(self.n_features))  # (C,)
        self.bias.add_(rate.logit() - at_zero)

    def _start(self) -> None:
        self.reset_parameters(torch_generator(0), torch.full((self.n_columns,), 0.5))

    @abstractmethod
    def _reset_slopes(self, generator: torch.Generator) -> None:
        raise NotImplementedError


class LinearMask(LearnedMask):
    r"""Creates the agnostic model: every feature may hide every column.

    .. math:: \ell(x) = A x + b

    It includes its own value, so it is not at random (MNAR). With a flexible density it is not identified;
    decay :math:`A` in training.

    Examples
    --------
    >>> LinearMask(3).log_prob(torch.zeros(5, 3), torch.tensor([True, False, True])).exp()
    tensor([0.1250, 0.1250, 0.1250, 0.1250, 0.1250], grad_fn=<ExpBackward0>)
    """

    def __init__(self, layout: int | MaskLayout) -> None:
        super().__init__(layout)
        self.weight = nn.Parameter(torch.empty(self.n_columns, self.n_features))  # (C, D)
        self._start()

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed."""
        return functional.linear(x, self.weight, self.bias)

    def _reset_slopes(self, generator: torch.Generator) -> None:
        self.weight.normal_(0.0, START_SLOPE * self.n_features**-0.5, generator=generator)


class NonlinearMask(LearnedMask):
    r"""Creates the agnostic model with one hidden layer.

    .. math:: \ell(x) = A \tanh(W x + c) + b

    Parameters
    ----------
    layout : int or MaskLayout
        The columns.
    hidden : int
        The number of hidden units.
    """

    def __init__(self, layout: int | MaskLayout, hidden: int = 128) -> None:
        super().__init__(layout)
        self.inner = empty_linear(self.n_features, hidden)
        self.weight = nn.Parameter(torch.empty(self.n_columns, hidden))  # (C, H)
        self._start()

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed."""
        return functional.linear(torch.tanh(self.inner(x)), self.weight, self.bias)

    def _reset_slopes(self, generator: torch.Generator) -> None:
        reset_layers(self.inner, generator)
        self.weight.normal_(0.0, START_SLOPE * self.weight.shape[1] ** -0.5, generator=generator)


class KnownMask(MaskModel):
    r"""Creates a model from a known function of the complete row, with nothing to learn.

    Parameters
    ----------
    function : callable
        From features (*, D) to (*, C), in torch, so that gradients flow through it.
    layout : int or MaskLayout
        The columns.
    gives : {"missing_probability", "observed_logits"}
        What the function returns. Log odds are exact where probabilities round to 0 or 1; a probability of 0
        counts as the smallest number of its type, so that an impossible mask has a finite log probability.

    Examples
    --------
    >>> model = KnownMask(lambda x: torch.sigmoid(x - 1.0), layout=2)
    >>> model.log_prob(torch.ones(2), torch.tensor([True, False])).exp()
    tensor(0.2500)
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        layout: int | MaskLayout,
        gives: Literal["missing_probability", "observed_logits"] = "missing_probability",
    ) -> None:
        super().__init__(layout)
        if gives not in ("missing_probability", "observed_logits"):
            raise ValueError(f"gives must be 'missing_probability' or 'observed_logits', got {gives!r}.")
        self.function = function
        self.gives = gives

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed."""
        answer = self._answer(x)
        return answer if self.gives == "observed_logits" else -answer.logit()

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns the log probability (*) of masks (*, C)."""
        if self.gives == "observed_logits":
            return super().log_prob(x, observed)
        missing = self._answer(x)  # (*, C)
        probability = torch.where(observed, 1.0 - missing, missing)
        return self._over_columns(probability.clamp(min=torch.finfo(x.dtype).tiny).log())

    def _answer(self, x: Tensor) -> Tensor:
        answer = self.function(x)
        expected = (*x.shape[:-1], self.n_columns)
        if not isinstance(answer, Tensor) or answer.shape != expected:
            got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise ValueError(f"function must return a torch tensor of shape {expected}, got {got}.")
        return answer


class SelfMaskModel(LearnedMask):
    r"""What every self-masking model shares: one curve for each number, one logit for each level.

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


class SelfMask(SelfMaskModel):
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
    >>> model = SelfMask(1, signs=+1)
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


class SharedSlopeMask(SelfMask):
    r"""Creates the self-masking model of which all columns share the slope, as for ratings of many items.

    .. math:: \ell_c(x) = b_c - s \operatorname{softplus}(w) \, x_c, \text{ or } b_c - w x_c \text{ if } s = 0

    Parameters
    ----------
    layout : int or MaskLayout
        The columns.
    sign : {-1, 0, 1}
        The direction :math:`s`, as in `SelfMask`.
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
    r"""Creates the self-masking model with a free curve for each column, as if the middle is removed.

    .. math:: \ell_c(x) = b_c - W_c x_c - \sum_u v_{cu} \exp\!\big(-\tfrac12 (x_c - t_u)^2 / h^2\big)

    The bumps stand at even distances :math:`h` over the reach; the curve is linear in its parameters.

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
    return math.log(math.expm1(value))


def _grid(n_points: int, reach: float) -> Tensor:
    return torch.linspace(-reach, reach, n_points)
