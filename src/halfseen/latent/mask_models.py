r"""Models of missingness: the probability of a mask given the complete row.

.. math:: p(o \mid x) = \prod_c \operatorname{sigmoid}(\ell_c(x))^{o_c}
          \operatorname{sigmoid}(-\ell_c(x))^{1 - o_c}

where :math:`o_c` is 1 if column :math:`c` is observed and 0 otherwise. The row :math:`x` is complete:
observed cells and draws of the missing ones, so gradients flow through it. Features are meant to be
standardised. Every learned model is initialised close to an ignorable one, because the data identify it only
partly.

References
----------
Ipsen, Mattei & Frellsen (2021), not-MIWAE: deep generative modelling with missing not at random data, section
3.2. They write self-masking as :math:`-W_j (x_j - b_j)`; here the bias is :math:`W_j b_j`, which exists for
a slope of zero too.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.nn.residual import empty_linear, reset_layers

START_SLOPE = 0.1
"""The initial scale of slopes: log odds per standard deviation."""

RATE_FLOOR = 1e-3
"""Initial probabilities of being observed are at least this far from 0 and 1."""


@dataclass(frozen=True)
class MaskLayout:
    """Which features belong to which column of a table, and which columns may have missing values.

    A column of several features is a block of indicators, observed or missing as a whole.

    Parameters
    ----------
    column_of_feature : sequence of int
        The column of each of the D features.
    columns : sequence of int, optional
        The columns whose mask is modelled; the others contribute nothing. All columns by default.
    n_columns : int, optional
        The number C of columns, for tables whose last ones have no feature.

    Examples
    --------
    >>> from halfseen.latent.self_masking import LinearSelfMask
    >>> layout = MaskLayout(column_of_feature=(0, 1, 1, 1, 2), columns=(0, 1))  # column 1 has three levels
    >>> LinearSelfMask(layout).log_prob(torch.zeros(5), torch.tensor([True, False, False])).exp()
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
    """The base class of mask models: log odds of being observed for each column, given complete features.

    Parameters
    ----------
    layout : int or MaskLayout
        The columns; an integer D stands for D numbers, each of which may be missing.

    Attributes
    ----------
    is_ignorable : bool
        Whether masks are independent of missing values, so that these need not be drawn.
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
            columns = torch.tensor(self.layout.columns, dtype=torch.long).to(log_probs.device)
            log_probs = log_probs.index_select(-1, columns)
        return log_probs.sum(dim=-1)


class Ignorable(MaskModel):
    r"""Creates the model of an ignorable mask: values are missing at random.

    .. math:: \log p(o \mid x) = 0 \text{ up to a constant}

    Examples
    --------
    >>> Ignorable(2).log_prob(torch.zeros(3, 2), torch.tensor([True, False]))
    tensor([0., 0., 0.])
    """

    is_ignorable = True

    def logits(self, x: Tensor) -> Tensor:
        """Raises a TypeError: the model has no probabilities of missing values."""
        raise TypeError("Ignorable has no probabilities of being observed: it does not model the mask.")

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns zeros (*)."""
        return x.new_zeros(torch.broadcast_shapes(x.shape[:-1], observed.shape[:-1]))


class LearnedMask(MaskModel):
    """The base class of learned models: one bias (C,) per column, initialised to match the observed rates."""

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
    r"""Creates the agnostic model: the mask of each column may depend on every feature.

    .. math:: \ell(x) = A x + b

    A column's own value is included, so values are missing not at random (MNAR). With a flexible density the
    model is not identified; use weight decay on :math:`A` in training.

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
    r"""Creates a model from a known function of the complete row, without parameters to learn.

    Parameters
    ----------
    function : callable
        From features (*, D) to the probabilities (*, C) that values are missing, in torch, so that gradients
        flow through it. A probability of 0 counts as the smallest number of its type, so that an impossible
        mask has a finite log probability.
    layout : int or MaskLayout
        The columns.

    Examples
    --------
    >>> model = KnownMask(lambda x: torch.sigmoid(x - 1.0), layout=2)
    >>> model.log_prob(torch.ones(2), torch.tensor([True, False])).exp()
    tensor(0.2500)
    """

    def __init__(self, function: Callable[[Tensor], Tensor], layout: int | MaskLayout) -> None:
        super().__init__(layout)
        self.function = function

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed."""
        return -self._evaluate(x).logit()

    def log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns the log probability (*) of masks (*, C)."""
        missing = self._evaluate(x)  # (*, C)
        probability = torch.where(observed, 1.0 - missing, missing)
        return self._over_columns(probability.clamp(min=torch.finfo(x.dtype).tiny).log())

    def _evaluate(self, x: Tensor) -> Tensor:
        """Returns the probabilities (*, C) of missing values; raises a ValueError if their shape is wrong."""
        value = self.function(x)
        expected = (*x.shape[:-1], self.n_columns)
        if not isinstance(value, Tensor) or value.shape != expected:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"The function must return a torch tensor of shape {expected}, got {got}.")
        return value
