r"""Logistic regression on expected features; what was not seen makes its probabilities less sure."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

MAX_ITERATIONS = 200
GRADIENT_TOLERANCE = 1e-6  # of the mean loss of a row
PROBIT_SCALE = pi / 8  # a logistic curve is a normal one of this squared slope, as nearly as can be
SHYEST = 0.05  # the least share of the first logits in a blend
BLEND_ROWS = 4.0  # how strongly a blend of few rows is drawn to one of each


@dataclass(frozen=True)
class Logistic:
    r"""Logits of classes that are linear in features of which only moments are known.

    .. math:: \eta_k = \frac{b_k + w_k^\top \mathrm{E}[x]}{\sqrt{1 + \frac{\pi}{8} \mathrm{Var}[w_k^\top x]}}

    Two classes have one score, the log-odds of the second; more have one each. For two classes this is
    MacKay's approximation of the expected probability under a Gaussian score, off by less than 0.02; for more
    it treats each score as if it were alone.

    Shapes
    ------
    weights : :math:`(D, T)`; bias : :math:`(T)`

    References
    ----------
    MacKay (1992), The evidence framework applied to classification networks.

    Examples
    --------
    >>> line = Logistic(torch.tensor([[1.0]]), torch.tensor([0.0]))
    >>> line(torch.tensor([[2.0], [2.0]]), torch.tensor([[0.0], [8.0]])).softmax(dim=1)[:, 1]
    tensor([0.8808, 0.7277])
    """

    weights: Tensor
    bias: Tensor

    def __call__(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Returns logits (N, K) from means and variances (N, T) of the scores without bias."""
        scores = (mean + self.bias) / (1 + PROBIT_SCALE * variance).sqrt()
        return functional.pad(scores, (1, 0)) if scores.shape[1] == 1 else scores


def fit_logistic(
    mean: Tensor,
    variance: Tensor,
    target: Tensor,
    n_classes: int,
    *,
    weights: Tensor,
    ridge: float = 1.0,
    start: Logistic | None = None,
) -> Logistic:
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
    start : Logistic, optional
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
        logits = Logistic(w, b)(mean @ w, variance)
        fit = (weights * functional.cross_entropy(logits, target, reduction="none")).sum()
        penalised: Tensor = fit + 0.5 * ridge * w.square().sum()
        return penalised / total

    found = _minimise(loss, first.flatten()).view(first.shape)
    return Logistic(found[:-1], found[-1])


def fit_blend(
    base: Tensor, correction: Tensor | None, target: Tensor, *, weights: Tensor, full: bool = False
) -> tuple[float, float]:
    r"""Returns how much of some logits, and of a correction to them, predicts the classes of rows best.

    .. math:: \min_{a \geq 0.05, \, c \geq 0} \; -\sum_n \omega_n \log \mathrm{softmax}(a t_n + c f_n)_{y_n}
              + 2 \left((a - 1)^2 + (c - 1)^2\right)

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
        Whether the correction counts by 1 whatever rows say.

    Returns
    -------
    tuple of float
        The shares a and c; without a correction c is 0.
    """
    extra = torch.zeros_like(base) if correction is None else correction

    def loss(shares: Tensor) -> Tensor:
        logits = shares[0] * base + shares[1] * extra
        fit = (weights * functional.cross_entropy(logits, target, reduction="none")).sum()
        return (fit + 0.5 * BLEND_ROWS * (shares - 1).square().sum()) / weights.sum()

    bounds: list[tuple[float, float | None]] = [(SHYEST, None), (1.0, 1.0) if full else (0.0, None)]
    bold, share = _minimise(loss, base.new_ones(2), bounds).tolist()
    return bold, 0.0 if correction is None else share


def _minimise(
    loss: Callable[[Tensor], Tensor], first: Tensor, bounds: list[tuple[float, float | None]] | None = None
) -> Tensor:
    """Returns the point (P) of least loss, in double precision.

    scipy's, as an optimiser of torch loads its compiler first, which takes seconds.
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
