r"""The ridge penalty of Gaussian fits, which is relative to the residual of features that are near-copies."""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian

MOST_OF_RESIDUAL = 10.0  # pseudo-rows have at most this multiple of the residual variance; chosen, not fitted
ROWS_FOR_RESIDUAL = 2.0  # rows per feature up to which a fit leaves no residual that could be judged
SMALLEST_RESIDUAL = 1e-10  # residual variance of exact copies: keeps condition numbers far below 1e16


@dataclass(frozen=True)
class Ridge:
    r"""The penalty of pseudo-rows of uncorrelated data, added to a table of features of unit variance.

    .. math::
        P(\Sigma) = \frac{\lambda}{2} \left(\log |\Sigma| + \sum_j f_j(\Lambda_{jj})\right), \qquad
        f_j'(t) = \max\left(\min\left(1, \frac{c_j}{t}\right), \varphi\right), \qquad \Lambda = \Sigma^{-1}

    :math:`1 / \Lambda_{jj}` is the residual variance of feature j given all others. Where it is at least
    :math:`1 / c_j`, the penalty is the usual one, :math:`\Lambda_{jj}`. A feature that is nearly a linear
    function of others has a smaller residual, and pseudo-rows of unit variance would inflate it. Its penalty
    is logarithmic instead, which is equivalent to pseudo-rows with :math:`c_j` times its residual variance.
    The function :math:`f_j` is concave, so that a step of EM with the pseudo-rows of the step before still
    never decreases the penalised likelihood.

    Parameters
    ----------
    strength : float
        The number :math:`\lambda` of pseudo-rows.
    reach : Tensor, optional
        (D), the precision :math:`c_j` up to which the penalty is linear; without it, it always is.
    least : float
        The smallest variance :math:`\varphi` of pseudo-rows, for exact copies.
    """

    strength: float
    reach: Tensor | None = None
    least: float = 0.0

    @classmethod
    def of(cls, batch: Incomplete, strength: float, weights: Tensor | None = None) -> "Ridge":
        """Returns the penalty of a table (N, D), the rows of which may have weights (N).

        With few rows per feature, a small residual is no evidence, and the penalty is linear. In between,
        residuals are corrected for the number of coefficients behind them.
        """
        observed = batch.observed.to(batch.x.dtype)
        counts = observed.sum(dim=0) if weights is None else weights.to(batch.x.dtype) @ observed
        total = len(batch) if weights is None else float(weights.sum())
        free = 1 - ROWS_FOR_RESIDUAL * batch.n_features / counts.clamp(min=1)
        reach = torch.where(free > 0, MOST_OF_RESIDUAL / free.clamp(min=1e-12), torch.inf)
        least = min(1.0, SMALLEST_RESIDUAL * total / strength) if strength > 0 else 0.0
        return cls(strength, reach, least)

    def variances(self, gaussian: Gaussian) -> Tensor:
        """Returns the variances (D) of the pseudo-rows of the next step."""
        precision = gaussian.precision.diagonal()
        if self.reach is None:
            return torch.ones_like(precision)
        return (self.reach / precision).clamp(self.least, 1.0)

    def penalty(self, gaussian: Gaussian) -> Tensor:
        """Returns the penalty."""
        precision = gaussian.precision.diagonal()
        return 0.5 * self.strength * (gaussian.log_det + self._growth(precision).sum())

    def _growth(self, precision: Tensor) -> Tensor:
        """Returns f (D)."""
        if self.reach is None:
            return precision
        end = self.reach / max(self.least, 1e-300)
        beyond = (precision / self.reach).clamp(min=1.0).minimum(end / self.reach)
        logarithmic = torch.where(beyond > 1, self.reach * beyond.log(), 0.0)
        return precision.minimum(self.reach) + logarithmic + self.least * (precision - end).clamp(min=0.0)
