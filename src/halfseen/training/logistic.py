r"""Logistic regression on expected features, with the uncertainty of what was not seen in the probabilities."""

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor
from torch.nn import functional

MAX_ITERATIONS = 60
PROBIT_SCALE = pi / 8  # a logistic curve is a normal one of this squared slope, as nearly as can be


@dataclass(frozen=True)
class Logistic:
    r"""Logits of classes that are linear in features of which only moments are known.

    .. math:: \eta_k = \frac{b_k + w_k^\top \mathrm{E}[x]}{\sqrt{1 + \frac{\pi}{8} \mathrm{Var}[w_k^\top x]}}

    Two classes have one score, the log-odds of the second; more have one each.

    Shapes
    ------
    weights : :math:`(D, T)`; bias : :math:`(T)`

    References
    ----------
    MacKay (1992), The evidence framework applied to classification networks, equation 11.
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
    """Minimises the log-loss, with a ridge on the weights, by L-BFGS.

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
        The penalty is half of this times the sum of squared weights.
    start : Logistic, optional
        Where to start.
    """
    n_scores = 1 if n_classes == 2 else n_classes
    w = torch.zeros(mean.shape[1], n_scores, dtype=mean.dtype) if start is None else start.weights.clone()
    b = torch.zeros(n_scores, dtype=mean.dtype) if start is None else start.bias.clone()
    parameters = [w.requires_grad_(), b.requires_grad_()]
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=MAX_ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )
    total = weights.sum()

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = Logistic(w, b)(mean @ w, variance)
        fit = (weights * functional.cross_entropy(logits, target, reduction="none")).sum()
        value: Tensor = (fit + 0.5 * ridge * w.square().sum()) / total
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return Logistic(w.detach(), b.detach())
