r"""Logistic regression on expected features, whose probabilities are less extreme if features are missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

PROBIT_SCALE = pi / 8  # the squared slope of the normal distribution function closest to the logistic one


@dataclass(frozen=True)
class LogisticLink:
    r"""Logits of classes that are linear in features of which only moments are known.

    .. math:: \eta_k = \frac{b_k + w_k^\top \mathrm{E}[x]}{\sqrt{1 + \frac{\pi}{8} \mathrm{Var}[w_k^\top x]}}

    Two classes have one score, the log-odds of the second; more classes have one score each. For two classes
    this is MacKay's approximation of the expected probability under a Gaussian score, with an error below
    0.02; for more classes each score is treated separately.

    Shapes
    ------
    weights : :math:`(D, T)`; bias : :math:`(T)`

    References
    ----------
    MacKay (1992), The evidence framework applied to classification networks.

    Examples
    --------
    >>> import torch
    >>> link = LogisticLink(torch.tensor([[1.0]]), torch.tensor([0.0]))
    >>> link(torch.tensor([[2.0], [2.0]]), torch.tensor([[0.0], [8.0]])).softmax(dim=1)[:, 1]
    tensor([0.8808, 0.7277])
    """

    weights: Tensor
    bias: Tensor

    def __call__(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Returns logits (N, K) from means and variances (N, T) of the scores without bias."""
        scores = (mean + self.bias) / (1 + PROBIT_SCALE * variance).sqrt()
        return functional.pad(scores, (1, 0)) if scores.shape[1] == 1 else scores


MAX_ITERATIONS = 200
GRADIENT_TOLERANCE = 1e-6  # tolerance for the gradient of the mean loss per row
SHYEST = 0.05  # minimum factor of the first logits in a blend
BLEND_ROWS = 4.0  # strength of the penalty that pulls the factors of a blend to one


def fit_logistic(
    mean: Tensor,
    variance: Tensor,
    target: Tensor,
    n_classes: int,
    *,
    weights: Tensor,
    ridge: float = 1.0,
    start: LogisticLink | None = None,
) -> LogisticLink:
    r"""Minimises the log-loss, with a ridge on the weights, by L-BFGS.

    .. math:: \min_{W, b} \; -\sum_n \omega_n \log \mathrm{softmax}(\eta_n)_{y_n}
              + \tfrac{\lambda}{2} \lVert W \rVert^2

    Parameters
    ----------
    mean : Tensor
        (N, D), expected features.
    variance : Tensor
        (N, T), the variance of each score, taken as given.
    target : Tensor
        (N), the classes 0, 1, ...
    n_classes : int
        The number of classes.
    weights : Tensor
        (N), how much each row counts.
    ridge : float
        The :math:`\lambda`; biases are free.
    start : LogisticLink, optional
        Where to start.

    Examples
    --------
    >>> x = torch.tensor([[-1.0], [0.0], [1.0], [2.0]], dtype=torch.float64)
    >>> y = torch.tensor([0, 1, 0, 1])
    >>> found = fit_logistic(x, torch.zeros_like(x), y, 2, weights=torch.ones(4, dtype=torch.float64))
    >>> found.weights.shape, bool(found.weights > 0)
    (torch.Size([1, 1]), True)
    """
    n_scores = 1 if n_classes == 2 else n_classes
    first = mean.new_zeros(mean.shape[1] + 1, n_scores)  # the bias is the last row
    if start is not None:
        first = torch.cat([start.weights, start.bias[None]])
    total = weights.sum()

    def loss(point: Tensor) -> Tensor:
        w, b = point.view(first.shape).split([len(first) - 1, 1])
        logits = LogisticLink(w, b)(mean @ w, variance)
        fit = (weights * functional.cross_entropy(logits, target, reduction="none")).sum()
        penalised: Tensor = fit + 0.5 * ridge * w.square().sum()
        return penalised / total

    found = minimise(loss, first.flatten()).view(first.shape)
    return LogisticLink(found[:-1], found[-1])


def fit_blend(
    base: Tensor,
    correction: Tensor | None,
    target: Tensor,
    *,
    weights: Tensor,
    full: bool = False,
    offset: Tensor | None = None,
) -> tuple[float, float]:
    r"""Returns the factors of some logits, and of a correction to them, that predict the classes best.

    .. math:: \min_{a \geq 0.05, \, c \geq 0} \; -\sum_n \omega_n
              \log \mathrm{softmax}(b + a t_n + c f_n)_{y_n} + 2 \left((a - 1)^2 + (c - 1)^2\right)

    Parameters
    ----------
    base : Tensor
        (N, K), the first logits t.
    correction : Tensor or None
        (N, K), what may be added to them.
    target : Tensor
        (N), the classes 0, 1, ...
    weights : Tensor
        (N), how much each row counts.
    full : bool
        Whether the weight of the correction is fixed to 1.
    offset : Tensor, optional
        (K), the logits b of rows without observed values; zero by default.

    Returns
    -------
    tuple of float
        The factors a and c; without a correction, c is 0.
    """
    extra = torch.zeros_like(base) if correction is None else correction
    fixed = base.new_zeros(base.shape[1]) if offset is None else offset

    def loss(shares: Tensor) -> Tensor:
        logits = fixed + shares[0] * base + shares[1] * extra
        fit = (weights * functional.cross_entropy(logits, target, reduction="none")).sum()
        return (fit + 0.5 * BLEND_ROWS * (shares - 1).square().sum()) / weights.sum()

    bounds: list[tuple[float, float | None]] = [(SHYEST, None), (1.0, 1.0) if full else (0.0, None)]
    bold, share = minimise(loss, base.new_ones(2), bounds).tolist()
    return bold, 0.0 if correction is None else share


def fit_scaling(logits: Tensor, target: Tensor, *, weights: Tensor) -> tuple[float, Tensor]:
    r"""Returns the factor and the offsets of logits that predict the classes of rows best.

    .. math:: \min_{a \geq 0.05, \, b} \; -\sum_n \omega_n \log \mathrm{softmax}(a t_n + b)_{y_n}
              + 2 \left((a - 1)^2 + \lVert b \rVert^2\right)

    The offsets compensate for the weights that classes had in training.

    Parameters
    ----------
    logits : Tensor
        (N, K), the logits t.
    target : Tensor
        (N), the classes 0, 1, ...
    weights : Tensor
        (N), how much each row counts.
    """
    neutral = torch.cat([logits.new_ones(1), logits.new_zeros(logits.shape[1])])

    def loss(point: Tensor) -> Tensor:
        scaled = point[0] * logits + point[1:]
        fit = (weights * functional.cross_entropy(scaled, target, reduction="none")).sum()
        return (fit + 0.5 * BLEND_ROWS * (point - neutral).square().sum()) / weights.sum()

    bounds: list[tuple[float | None, float | None]] = [(SHYEST, None), *[(None, None)] * logits.shape[1]]
    found = minimise(loss, neutral, bounds)
    return float(found[0]), found[1:]


def minimise(
    loss: Callable[[Tensor], Tensor],
    first: Tensor,
    bounds: Sequence[tuple[float | None, float | None]] | None = None,
) -> Tensor:
    """Returns the point (P) of least loss, in double precision.

    The optimiser is scipy's, because those of torch load its compiler first, which takes seconds.
    """

    def value_and_gradient(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        with torch.enable_grad():
            point = torch.tensor(flat, dtype=first.dtype, requires_grad=True)
            value = loss(point)
            [gradient] = torch.autograd.grad(value, point)
        return value.item(), gradient.double().numpy()

    options: Any = {"maxiter": MAX_ITERATIONS, "gtol": GRADIENT_TOLERANCE, "ftol": 1e-12, "maxcor": 20}
    start = first.detach().double().numpy()
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return torch.from_numpy(np.asarray(found.x)).to(first.dtype)
