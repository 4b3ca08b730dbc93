r"""Class probabilities from linear scores of which only the mean and variance are known."""

from dataclasses import dataclass
from math import pi

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
