"""Deletion of non-zero features, such as words of a text or pixels of a figure."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.missingness.base import Mechanism
from halfseen.missingness.parameters import check_count
from halfseen.missingness.reading import Columns


@dataclass(eq=False)
class FeatureDeletion(Mechanism):
    r"""Removes `n` non-zero features of each row, chosen uniformly at random (MNAR).

    .. math:: p(m \mid x) = \binom{k}{\min(n, k)}^{-1}, \qquad k = \#\{j : x_j \ne 0\}

    if :math:`m` marks that many non-zero features. In a row with fewer, all of them are removed. If deleted
    features should be zero instead of missing, use ``np.where(observed, X, 0)``.

    Parameters
    ----------
    n : int, default=1
        The number of features that are removed in each row.
    columns : names or positions, optional
        The features that may be removed; all by default.

    References
    ----------
    Dekel & Shamir (2008), Learning to classify with missing and corrupted features.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 3.0, 0.0, 5.0]])
    >>> FeatureDeletion(n=2).fit(X).sample(X, random_state=0)
    array([[ True, False,  True, False]])
    """

    n: int = 1
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_count("n", self.n, 0)

    def _prepare(self, x: Tensor, present: Tensor) -> Tensor:
        return torch.where(present, x, 0.0)  # missing values cannot be deleted

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        pass  # the number is a parameter

    def _deletable(self, x: Tensor) -> Tensor:
        affected = torch.from_numpy(self._affected()).to(x.device)
        return (x != 0.0) & affected

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        noise = torch.where(self._deletable(x), noise, 2.0)
        n = min(self.n, x.shape[1])
        hidden = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        chosen = noise.topk(n, dim=1, largest=False).indices
        return hidden.scatter(1, chosen, True) & self._deletable(x)

    def _marginal(self, x: Tensor, present: Tensor) -> Tensor:
        deletable = self._deletable(x)
        share = (self.n / deletable.sum(dim=1, keepdim=True).clamp(min=1).to(x.dtype)).clamp(max=1.0)
        return torch.where(deletable, share, 0.0)

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        deletable, hidden = self._deletable(x), ~observed & present
        k = deletable.sum(dim=1)
        n = k.clamp(max=self.n)
        possible = (hidden.sum(dim=1) == n) & ~(hidden & ~deletable).any(dim=1)
        log_ways = _log_factorial(k, x) - _log_factorial(n, x) - _log_factorial(k - n, x)
        return torch.where(possible, -log_ways, -torch.inf)


def _log_factorial(k: Tensor, x: Tensor) -> Tensor:
    return torch.lgamma(k.to(x.dtype) + 1.0)
