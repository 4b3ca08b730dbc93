r"""Weights of an average of several models, on the simplex: none is negative, and they sum to one.

They minimise the loss of the average on rows that the models were not fitted to. With predicted numbers
:math:`\hat y_{mi}` it is the squared error, with probabilities :math:`p_{mi}` of the true classes the
log-loss,

.. math::
    \frac1N \sum_i \Big(y_i - \sum_m w_m \hat y_{mi}\Big)^2, \qquad
    -\frac1N \sum_i \log \sum_m w_m p_{mi} .

Both are convex in the weights.

References
----------
Wolpert (1992), Stacked generalization; Breiman (1996), Stacked regressions, for weights on the simplex; Yao,
Vehtari, Simpson & Gelman (2018), Using stacking to average Bayesian predictive distributions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize

from halfseen._arrays import Floats

Loss = Callable[[Floats], tuple[float, Floats]]  # weights (M) to a loss and its gradient

SMALLEST = 0.02  # weights below are zero, so that an average has few members; a guess
SMALLEST_SQUARE = 1e-300  # a guard against a division by zero if a model makes no errors


def weigh_numbers(errors: Floats, shares: Floats | None = None) -> Floats:
    """Returns the weights (M) of the average with the smallest mean squared error, by the errors (M, N).

    Rows may have shares (N) of the mean, which add up to one.

    Examples
    --------
    >>> errors = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [9.0, 9.0, 9.0, 9.0]])
    >>> weigh_numbers(errors).round(3)
    array([0.5, 0.5, 0. ])
    """
    largest = np.abs(errors).max(initial=0.0) or 1.0
    relative = errors / largest  # squares of large numbers overflow
    products = relative @ relative.T / errors.shape[1] if shares is None else relative * shares @ relative.T
    quadratic = products / max(float(products.diagonal().min()), SMALLEST_SQUARE)

    def loss(w: Floats) -> tuple[float, Floats]:
        slope: Floats = quadratic @ w
        return 0.5 * float(w @ slope), slope

    return minimise_on_simplex(loss, len(errors), SMALLEST)


def weigh_classes(likelihood: Floats, shares: Floats | None = None) -> Floats:
    """Returns the weights (M) of the average with the smallest log-loss.

    `likelihood` (M, N) has the probabilities of the true classes; all are positive. Rows may have shares (N)
    of the mean, which add up to one.

    Examples
    --------
    >>> weigh_classes(np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.1]])).round(3)
    array([0.5, 0.5, 0. ])
    """
    return minimise_on_simplex(lambda w: mixture_loss(w, likelihood, shares), len(likelihood), SMALLEST)


def mixture_loss(w: Floats, likelihood: Floats, shares: Floats | None = None) -> tuple[float, Floats]:
    """Returns the log-loss of weights (M) of probabilities (M, N), and its gradient (M)."""
    mixed = w @ likelihood
    losses, slopes = -np.log(mixed), -(likelihood / mixed)
    if shares is None:
        return float(losses.mean()), slopes.mean(axis=1)
    return float(losses @ shares), slopes @ shares


def minimise_on_simplex(loss: Loss, n_models: int, smallest: float) -> Floats:
    """Returns the weights (M) on the simplex with the lowest loss; those below `smallest` are zero."""
    start = np.full(n_models, 1.0 / n_models)
    sums_to_one: Any = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like}
    found = scipy.optimize.minimize(
        loss,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * n_models,
        constraints=[sums_to_one],
    )
    weights = np.where(found.x < smallest, 0.0, found.x)
    normalised: Floats = weights / weights.sum()
    return normalised
