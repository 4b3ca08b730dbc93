r"""A Cox model whose coefficients and baseline hazard are drawn, for draws compatible with a survival model.

With the improper prior :math:`1 / \lambda_j` of each jump of the cumulative baseline hazard at the J distinct
event times, the posterior density of the coefficients is proportional to their prior and the partial
likelihood of Breslow, and given the coefficients the jumps are independent:

.. math::
    \lambda_j \mid \beta \sim \operatorname{Gamma}\Big(d_j, \sum_{i:\, t_i \ge \tau_j} e^{z_i^T \beta}\Big)

with :math:`d_j` events at :math:`\tau_j`. The coefficients are drawn from the normal approximation at their
mode.

References
----------
Breslow (1974), Covariance analysis of censored survival data; Kalbfleisch (1978), Non-parametric Bayesian
analysis of survival time data; Bartlett, Seaman, White & Carpenter (2015), who fix the jumps at estimates.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halfseen.chained.regressions import Noise

LEAST_LOG = -600.0  # of a hazard relative to the largest one, so that sums over rows are not zero


@dataclass(frozen=True)
class RiskSets:
    """Which rows are at risk at each event time.

    Shapes
    ------
    times : (J), the distinct event times, ascending.
    n_events : (J), the number of events at each.
    events : (N), 1 for rows with an event and 0 for censored ones.
    order : (N), the rows from the latest time to the earliest.
    n_at_risk : (J), the number of rows whose time is not earlier.
    n_passed : (N), the number of event times up to the time of a row.
    """

    times: Tensor
    n_events: Tensor
    events: Tensor
    order: Tensor
    n_at_risk: Tensor
    n_passed: Tensor

    @classmethod
    def of(cls, time: Tensor, event: Tensor) -> "RiskSets":
        """Returns the risk sets of times (N) and events (N)."""
        times, n_events = time[event > 0].unique(sorted=True, return_counts=True)
        ascending = time.sort().values
        n_at_risk = len(time) - torch.searchsorted(ascending, times)
        n_passed = torch.searchsorted(times, time.contiguous(), right=True)
        order = time.argsort(descending=True)
        return cls(times, n_events.to(torch.float64), event, order, n_at_risk, n_passed)

    def sums(self, values: Tensor) -> Tensor:
        """Returns the sums (S, J, *) of values (S, N, *) over the rows at risk."""
        return values[:, self.order].cumsum(dim=1)[:, self.n_at_risk - 1]

    def log_sums(self, logs: Tensor) -> Tensor:
        """Returns the logarithms (S, J) of the sums of exponentials of logs (S, N) over the rows at risk."""
        return logs[:, self.order].logcumsumexp(dim=1)[:, self.n_at_risk - 1]

    def cumulated(self, jumps: Tensor) -> Tensor:
        """Returns the sums (S, N) of jumps (S, J) up to the time of each row."""
        return torch.nn.functional.pad(jumps.cumsum(dim=1), (1, 0))[:, self.n_passed]


class CoxModel:
    """The partial likelihood of Breslow with a normal prior of the coefficients.

    Parameters
    ----------
    risk : RiskSets
        The times and events, which are the same in all chains.
    prior : Tensor
        (P), the precisions of the coefficients; there is no constant.
    before : Tensor, optional
        (S, P), where Newton's method starts; by default at zero.
    """

    def __init__(self, risk: RiskSets, prior: Tensor, before: Tensor | None = None) -> None:
        self.risk, self.prior, self.before = risk, prior, before

    def start(self) -> Tensor:
        """Returns the coefficients (S or 1, P) at which Newton's method starts."""
        return torch.zeros(1, len(self.prior), dtype=torch.float64) if self.before is None else self.before

    def _index(self, design: Tensor, coefficients: Tensor) -> Tensor:
        """Returns the linear predictor (S, N)."""
        return (design @ coefficients.unsqueeze(-1)).squeeze(-1)

    def log_density(self, design: Tensor, coefficients: Tensor) -> Tensor:
        """Returns the log posterior density (S), up to a constant."""
        index = self._index(design, coefficients)
        at_risk = self.risk.log_sums(index) @ self.risk.n_events
        return index @ self.risk.events - at_risk - 0.5 * coefficients.square() @ self.prior

    def gradient(self, design: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient (S, P) of the log posterior density, and relative hazards (S, N)."""
        index = self._index(design, coefficients)
        weights = (index - index.amax(dim=1, keepdim=True)).clamp(min=LEAST_LOG).exp()
        expected = weights * self.risk.cumulated(self.risk.n_events / self.risk.sums(weights))
        residual = (self.risk.events - expected).unsqueeze(1)
        return (residual @ design).squeeze(1) - self.prior * coefficients, weights

    def precision(self, design: Tensor, weights: Tensor) -> Tensor:
        """Returns the negative second derivatives (S, P, P)."""
        total = self.risk.sums(weights)
        expected = weights * self.risk.cumulated(self.risk.n_events / total)
        means = self.risk.sums(weights.unsqueeze(-1) * design) / total.unsqueeze(-1)  # (S, J, P)
        squares = (design * expected.unsqueeze(-1)).mT @ design
        between = (means * self.risk.n_events[:, None]).mT @ means
        return squares - between + torch.diag(self.prior)

    def draw_hazard(self, design: Tensor, coefficients: Tensor, noise: Noise) -> "CumulativeHazard":
        """Draws the cumulative baseline hazard given the coefficients (S, P)."""
        at_risk = self.risk.log_sums(self._index(design, coefficients))
        shapes = self.risk.n_events.numpy()
        gammas = np.stack([one.standard_gamma(shapes) for one in noise.generators])
        jumps = torch.from_numpy(gammas) * (-at_risk).exp()
        return CumulativeHazard(self.risk.times, jumps.cumsum(dim=1))


@dataclass(frozen=True)
class CumulativeHazard:
    """A step function in every chain.

    Shapes
    ------
    times : (J), ascending.
    values : (S, J), from each time on; zero before the first.
    """

    times: Tensor
    values: Tensor

    def at(self, time: Tensor) -> Tensor:
        """Returns the values (S, R) at times (S, R)."""
        place = torch.searchsorted(self.times, time.contiguous(), right=True)
        return torch.nn.functional.pad(self.values, (1, 0)).gather(1, place)

    def of(self, which: Tensor) -> "CumulativeHazard":
        """Returns the step functions of some chains."""
        return CumulativeHazard(self.times, self.values[which])

    def check(self, n_chains: int) -> None:
        """Raises a ValueError unless times increase and values do not decrease, one row for each chain."""
        tensors = (self.times, self.values)
        fits = self.times.ndim == 1 and self.values.shape == (n_chains, len(self.times)) and len(self.times)
        fits = fits and all(one.dtype == torch.float64 and bool(one.isfinite().all()) for one in tensors)
        if not fits or bool((self.times.diff() <= 0).any()):
            raise ValueError("The times of the baseline hazard do not increase, or do not fit its values.")
        if bool((self.values.diff(dim=1) < 0).any()) or bool((self.values < 0).any()):
            raise ValueError("The cumulative baseline hazard decreases.")
