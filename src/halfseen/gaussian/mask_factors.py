r"""Mask factors: the information that being missing carries about a value, as a Gaussian pseudo-observation.

A feature is missing with a probability :math:`\pi(x)` that depends on its own value. Given that it is
missing, its density is multiplied by the factor :math:`\pi(x)`. Each factor is represented by a *site*, the
Gaussian
:math:`s \exp(-\tau x^2 / 2 + \nu x)`: exactly for a bump, and by matching moments for a probit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, pi, sqrt
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

# The tail of the normal distribution: its log probability and truncated moments, without cancellation.
#
# For :math:`z \to -\infty` Mills' ratio has the series :math:`\Phi(z) = \frac{\phi(z)}{|z|} (1 - t)`, with
# :math:`t = z^{-2} - 3 z^{-4} + 15 z^{-6} - 105 z^{-8} + \dots`, here to its seventh term.

FAR = -20.0  # from here outwards the series is as good as exact, and the ratio itself is not


def log_normal_cdf(z: Tensor) -> Tensor:
    r"""Returns :math:`\log \Phi(z)`, like `torch.special.log_ndtr` but faster.

    Examples
    --------
    >>> log_normal_cdf(torch.tensor([0.0, -100.0]))
    tensor([-6.9315e-01, -5.0055e+03])
    """
    near = torch.log(0.5 * torch.erfc(-z.clamp(min=FAR) * sqrt(0.5)))
    if not bool((z < FAR).any()):
        return near
    far = z.clamp(max=FAR)
    tail = -0.5 * far**2 - torch.log(-far) + torch.log1p(-_shortfall(far)) - 0.5 * log(2 * pi)
    return torch.where(z < FAR, tail, near)


def truncation(z: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the effect of truncation at zero on a normal with mean z and variance one.

    .. math:: r = \frac{\phi(z)}{\Phi(z)}, \qquad k = r (z + r)

    The mean increases by r, and the variance decreases by the fraction k, between 0 and 1.

    Examples
    --------
    >>> truncation(torch.tensor(0.0))
    (tensor(0.7979), tensor(0.6366))
    """
    near = z.clamp(min=FAR)
    rise = sqrt(2 / pi) * torch.exp(-0.5 * near**2) / torch.erfc(-near * sqrt(0.5))
    excess = near + rise
    if bool((z < FAR).any()):
        far = z.clamp(max=FAR)
        tail = -far * _shortfall(far) / (1 - _shortfall(far))
        rise, excess = torch.where(z < FAR, tail - far, rise), torch.where(z < FAR, tail, excess)
    return rise, (rise * excess).clamp(0.0, 1.0)


def _shortfall(z: Tensor) -> Tensor:
    square = z**-2
    series = torch.ones_like(z)
    for factor in (13, 11, 9, 7, 5, 3):
        series = 1 - factor * square * series
    return square * series


DAMPING = 1e-8  # relative to the mean curvature; allows directions without curvature
HALVINGS = 20
ENOUGH = 0.2  # minimum gain relative to that predicted by the slope; a full Newton step has 0.5


def newton_step(gradient: Tensor, curvature: Tensor) -> Tensor:
    """Returns the Newton steps (D, P) of concave functions, with very little damping.

    Examples
    --------
    >>> newton_step(torch.tensor([[2.0]]), torch.tensor([[[4.0]]]))
    tensor([[0.5000]])
    """
    size = curvature.diagonal(dim1=1, dim2=2).mean(dim=1).clamp(min=1e-12)
    damping = DAMPING * size[:, None, None] * torch.eye(gradient.shape[1], dtype=gradient.dtype)
    step: Tensor = torch.linalg.solve(curvature + damping, gradient)
    return step


@dataclass(frozen=True)
class SearchPath:
    """A path: from lengths (D, 1) to points (D, P), and how steeply the value (D) rises at its start."""

    point: Callable[[Tensor], Tensor]
    slope: Tensor


def straight_path(start: Tensor, gradient: Tensor, curvature: Tensor) -> SearchPath:
    """Returns the straight path to the Newton step from a point (D, P)."""
    step = newton_step(gradient, curvature)
    return SearchPath(lambda length: start + length * step, (gradient * step).sum(dim=1))


def line_search(value: Callable[[Tensor], Tensor], start: Tensor, path: SearchPath) -> Tensor:
    """Returns, for each feature, the first point on a path that improves enough; the start if none does.

    Step lengths start at one and are halved. Any improvement is not enough: a step to the other side of the
    maximum, to nearly the same height, could be repeated without end.
    """
    best = value(start)
    reached, length = start, torch.ones(len(start), 1, dtype=start.dtype)
    searching = torch.ones(len(start), dtype=torch.bool)
    for _ in range(HALVINGS):
        trial = torch.where(searching[:, None], path.point(length), reached)
        gained = searching & (value(trial) >= best + ENOUGH * length[:, 0] * path.slope.clamp(min=0.0))
        reached = torch.where(gained[:, None], trial, reached)
        searching = searching & ~gained
        if not bool(searching.any()):
            break
        length = length / 2
    return reached


# Range of the logit of a bump's height, which stays below one so that its complement has a logarithm.
LOWEST, HIGHEST = -30.0, 9.0
FLATTEST, NARROWEST = 1e-3, 1e3  # range of the precision of a bump, for features of unit variance
HIDDEN_BEND = 1.0  # maximum odds with which missing cells enter the curvature; bounds the steps
STEEPEST = 30.0  # the prior standard deviation of a probit slope, for features of unit variance


@dataclass(frozen=True)
class Sites:
    r"""Gaussian stand-ins :math:`\exp(-\tau x^2 / 2 + \nu x)`, up to scale, for the factors of hidden cells.

    Shapes
    ------
    precision, linear : :math:`(N, D)`, the :math:`\tau \geq 0` and :math:`\nu` of each cell.
    """

    precision: Tensor
    linear: Tensor

    def __getitem__(self, rows: Tensor | slice) -> "Sites":
        return Sites(self.precision[rows], self.linear[rows])

    def replace(self, rows: Tensor, others: "Sites") -> None:
        """Puts the sites of these rows in their place."""
        self.precision[rows] = others.precision
        self.linear[rows] = others.linear

    def damped(self, earlier: "Sites", share: float) -> "Sites":
        """Returns a mean of these sites and earlier ones."""
        return Sites(
            torch.lerp(earlier.precision, self.precision, share),
            torch.lerp(earlier.linear, self.linear, share),
        )


class MaskFactor(Protocol):
    r"""The probability :math:`\pi_d(x_d)` that feature d is missing, as a function of its own value.

    Attributes
    ----------
    active : Tensor
        (D), the self-masking features; the others are missing at random.
    coefficients : Tensor
        (D, P), the parameters of the factors.
    exact : bool
        Whether sites do not depend on the rest of the row, so that conditionals are exactly Gaussian.
    """

    @property
    def active(self) -> Tensor: ...  # noqa: D102

    @property
    def coefficients(self) -> Tensor: ...  # noqa: D102

    @property
    def exact(self) -> bool: ...  # noqa: D102

    def with_coefficients(self, coefficients: Tensor) -> Self:
        """Returns the mask with other coefficients, or the nearest that are allowed."""
        ...

    def of_features(self, some: slice) -> Self:
        """Returns the mask of some of the features."""
        ...

    def log_observed(self, x: Tensor) -> Tensor:
        """Returns the log probability (*, D) that a value is shown."""
        ...

    def sites(self, loc: Tensor, variance: Tensor) -> Sites:
        """Returns the sites (N, D) of missing cells that are Gaussian without their own factor."""
        ...

    def log_scale(self, loc: Tensor, variance: Tensor, sites: Sites) -> Tensor:
        """Returns the log scales (N, D) with which given sites have the mass of their factors."""
        ...

    def log_prior(self) -> Tensor:
        """Returns the log prior of the coefficients of active features, up to a constant."""
        ...

    def m_step(self, evidence: "MaskEvidence") -> Self:
        """Returns a mask that explains completed data at least as well; inactive features keep theirs."""
        ...


@dataclass(frozen=True)
class MaskEvidence:
    r"""The data to which a mask is fitted: observed values, and the distributions of missing ones.

    Shapes
    ------
    x, observed, mean, variance : :math:`(N, D)`; weights : :math:`(N, 1)`
    rest_mean, rest_variance : :math:`(N, D)`, of hidden cells without their own factor.
    """

    x: Tensor
    observed: Tensor
    mean: Tensor
    variance: Tensor
    rest_mean: Tensor
    rest_variance: Tensor
    weights: Tensor


@dataclass(frozen=True)
class GaussianMaskFactor:
    r"""Hides values near a centre: a Gaussian bump of any height up to one.

    .. math:: \pi(x) = K \exp\left(-\tfrac{q}{2} (x - c)^2\right)

    so that a hidden cell is a cell observed at c with noise of precision q.

    Shapes
    ------
    active : :math:`(D)`; coefficients : :math:`(D, 3)`, the c, log q and logit K of each feature.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, assumption 4; our c and 1 / q are their mu-tilde and
    sigma-tilde squared.
    """

    active: Tensor
    coefficients: Tensor
    exact = True

    @classmethod
    def start(cls, active: Tensor, sites: Sites, observed: Tensor) -> "GaussianMaskFactor":
        """Returns bumps like the mean site (N, D) of the hidden cells, with about their rate."""
        count = (~observed).sum(dim=0).clamp(min=1)
        b, q = (
            torch.where(observed, 0.0, part).sum(dim=0) / count for part in (sites.linear, sites.precision)
        )
        rate = (1 - observed.to(q.dtype).mean(dim=0)).clamp(0.01, 0.98)
        q = torch.maximum(q, b**2 / (6 - 2 * rate.log())).clamp(min=FLATTEST)  # limits the centre
        centre = b / q
        share = -0.5 * (1 + q).log() - 0.5 * centre**2 * q / (1 + q)  # log rate for height 1
        height = (rate.log() - share).exp().clamp(max=0.98)
        coefficients = torch.stack([centre, q.log(), height.logit()], dim=1)
        return cls(active, coefficients).with_coefficients(coefficients)

    @property
    def centre(self) -> Tensor:
        """The value (D) that is hidden most often."""
        return self.coefficients[:, 0]

    @property
    def precision(self) -> Tensor:
        """One over the squared width (D) of the bump."""
        return self.coefficients[:, 1].exp()

    @property
    def height(self) -> Tensor:
        """The greatest probability (D) of being hidden."""
        return self.coefficients[:, 2].sigmoid()

    def with_coefficients(self, coefficients: Tensor) -> "GaussianMaskFactor":
        """Returns bumps with other coefficients, within bounds."""
        return GaussianMaskFactor(self.active, coefficients.clamp(*self._bounds()))

    def of_features(self, some: slice) -> "GaussianMaskFactor":
        """Returns the bumps of some of the features."""
        return GaussianMaskFactor(self.active[some], self.coefficients[some])

    def log_observed(self, x: Tensor) -> Tensor:
        """Returns the log probability (*, D) that a value is shown."""
        return torch.where(self.active, torch.log(-torch.expm1(self._log_hidden(x))), 0.0)

    def sites(self, loc: Tensor, variance: Tensor) -> Sites:
        """Returns the factors themselves, the same for every row."""
        q = torch.where(self.active, self.precision, 0.0)
        return Sites(q.expand_as(loc), (q * self.centre).expand_as(loc))

    def log_scale(self, loc: Tensor, variance: Tensor, sites: Sites) -> Tensor:
        """Returns the log scales (N, D) of the sites, which are the factors."""
        scale = functional.logsigmoid(self.coefficients[:, 2]) - 0.5 * self.precision * self.centre**2
        return torch.where(self.active, scale, 0.0).expand_as(loc)

    def log_prior(self) -> Tensor:
        """Returns zero: within the bounds, the prior is flat."""
        return torch.zeros((), dtype=self.coefficients.dtype)

    def m_step(self, evidence: MaskEvidence) -> "GaussianMaskFactor":
        r"""Returns bumps after a Newton step with step halving on each feature.

        .. math:: \sum_{mis} \mathrm{E}[g(x)] + \sum_{obs} \log(1 - e^{g(x)}), \qquad
                  g(x) = \log K - \tfrac{q}{2} (x - c)^2 = a + b x - \tfrac{q}{2} x^2

        which is concave in (a, b, q), so that Newton steps are reliable there; but the bound on the height is
        simple only in (c, log q, logit K). A step is therefore computed in both, and the better one is used.
        """
        shown = torch.where(evidence.observed, evidence.weights, 0.0)
        x = torch.where(evidence.observed, evidence.x, 0.0)
        powers = torch.stack([torch.ones_like(x), evidence.mean, evidence.variance + evidence.mean**2])
        moments = torch.where(evidence.observed, 0.0, evidence.weights * powers).sum(dim=1)  # (3, D)

        def value(coefficients: Tensor) -> Tensor:
            mask = self.with_coefficients(coefficients)
            c, q = mask.centre, mask.precision
            quadratic = moments[2] - 2 * c * moments[1] + c**2 * moments[0]
            expected = functional.logsigmoid(mask.coefficients[:, 2]) * moments[0] - 0.5 * q * quadratic
            return expected + (shown * torch.log(-torch.expm1(mask._log_hidden(x)))).sum(dim=0)

        gradient, curvature = self._slopes(moments, evidence)
        ways = (self._natural_path(gradient, curvature), self._bounded_path(gradient, curvature))
        first, second = (line_search(value, self.coefficients, path) for path in ways)
        reached = torch.where((value(first) >= value(second))[:, None], first, second)
        return self.with_coefficients(torch.where(self.active[:, None], reached, self.coefficients))

    def _slopes(self, moments: Tensor, evidence: MaskEvidence) -> tuple[Tensor, Tensor]:
        """Returns gradient (D, 3) and curvature (D, 3, 3) in (a, b, q)."""
        x, weights = evidence.mean, evidence.weights
        odds = 1 / torch.expm1(-self._log_hidden(x))
        basis = torch.stack([torch.ones_like(x), x, -0.5 * x**2])  # (3, N, D)
        linear = torch.stack([moments[0], moments[1], -0.5 * moments[2]], dim=1)
        gradient = linear - (torch.where(evidence.observed, weights * odds, 0.0) * basis).sum(dim=1).T
        bend = torch.where(
            evidence.observed, weights * odds * (1 + odds), weights * odds.clamp(max=HIDDEN_BEND)
        )
        return gradient, torch.einsum("nd,ind,jnd->dij", bend, basis, basis)

    def _natural_path(self, gradient: Tensor, curvature: Tensor) -> SearchPath:
        """Returns the Newton path in (a, b, q), to the nearest bumps within bounds."""
        c, q = self.centre, self.precision
        start = torch.stack(
            [functional.logsigmoid(self.coefficients[:, 2]) - 0.5 * q * c**2, q * c, q], dim=1
        )
        step = newton_step(gradient, curvature)

        def point(length: Tensor) -> Tensor:
            a, b, q = (start + length * step).T
            q = q.clamp(FLATTEST, NARROWEST)
            log_height = (a + 0.5 * b**2 / q).clamp(max=-exp(-HIGHEST))
            return torch.stack([b / q, q.log(), log_height - torch.log(-torch.expm1(log_height))], dim=1)

        return SearchPath(point, (gradient * step).sum(dim=1))

    def _bounded_path(self, gradient: Tensor, curvature: Tensor) -> SearchPath:
        """Returns the Gauss-Newton path in (c, log q, logit K), of which those at their bounds stay there."""
        c, q, unhidden = self.centre, self.precision, 1 - self.height
        zero = torch.zeros_like(c)
        jacobian = torch.stack(  # (D, 3, 3): rows a, b, q by columns c, log q, logit K
            [-q * c, -0.5 * q * c**2, unhidden, q, q * c, zero, zero, q, zero], dim=1
        ).view(-1, 3, 3)
        gradient = (jacobian.mT @ gradient[:, :, None]).squeeze(2)
        low, high = self._bounds()
        free = ~((self.coefficients <= low) & (gradient < 0) | (self.coefficients >= high) & (gradient > 0))
        curvature = jacobian.mT @ curvature @ jacobian
        curvature = torch.where(free[:, :, None] & free[:, None, :], curvature, 0.0)
        curvature = curvature + torch.diag_embed((~free).to(curvature.dtype))
        return straight_path(self.coefficients, torch.where(free, gradient, 0.0), curvature)

    def _log_hidden(self, x: Tensor) -> Tensor:
        log_height = functional.logsigmoid(self.coefficients[:, 2])
        return log_height - 0.5 * self.precision * (x - self.centre) ** 2

    def _bounds(self) -> tuple[Tensor, Tensor]:
        low, high = [-torch.inf, log(FLATTEST), LOWEST], [torch.inf, log(NARROWEST), HIGHEST]
        return self.coefficients.new_tensor(low), self.coefficients.new_tensor(high)


@dataclass(frozen=True)
class ProbitMaskFactor:
    r"""Probit self-masking: the probability rises or falls with the value, by the sign of the slope.

    .. math:: \pi(x) = \Phi(\lambda x - c)

    The distribution of missing values is a truncated normal of the latent :math:`\lambda x - c + \eta > 0`;
    its sites match the mean and variance of each cell (expectation propagation).

    Shapes
    ------
    active : :math:`(D)`; coefficients : :math:`(D, 2)`, the slope and the intercept -c of each feature.

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference.
    """

    active: Tensor
    coefficients: Tensor
    exact = False

    @classmethod
    def start(cls, active: Tensor, missing_rate: Tensor, slope: Tensor | float = 0.0) -> "ProbitMaskFactor":
        """Returns probabilities with the given rates (D), of standard normal features, and slopes (D)."""
        flat = torch.special.ndtri(missing_rate.clamp(1e-3, 1 - 1e-3))
        slopes = torch.zeros_like(flat) + slope
        return cls(active, torch.stack([slopes, flat * (1 + slopes**2).sqrt()], dim=1))

    def with_coefficients(self, coefficients: Tensor) -> "ProbitMaskFactor":
        """Returns the mask with other coefficients; all are allowed."""
        return ProbitMaskFactor(self.active, coefficients)

    def of_features(self, some: slice) -> "ProbitMaskFactor":
        """Returns the probits of some of the features."""
        return ProbitMaskFactor(self.active[some], self.coefficients[some])

    def log_observed(self, x: Tensor) -> Tensor:
        """Returns the log probability (*, D) that a value is shown."""
        slope, intercept = self.coefficients.T
        return torch.where(self.active, log_normal_cdf(-(slope * x + intercept)), 0.0)

    def sites(self, loc: Tensor, variance: Tensor) -> Sites:
        r"""Returns the sites that give each cell the moments of its Gaussian times the probit.

        .. math:: z = \frac{\lambda m - c}{\sqrt{1 + \lambda^2 v}}, \quad r = \frac{\phi(z)}{\Phi(z)}, \quad
            k = r (z + r), \quad \tau = \frac{\lambda^2 k}{1 + \lambda^2 v (1 - k)}
        """
        slope, intercept = self.coefficients.T
        spread = (1 + slope**2 * variance).sqrt()
        rise, fall = truncation((slope * loc + intercept) / spread)
        shift = slope * rise / spread  # the tilted mean is loc + variance * shift
        precision = slope**2 * fall / (1 + slope**2 * variance * (1 - fall))
        linear = precision * (loc + variance * shift) + shift
        return Sites(torch.where(self.active, precision, 0.0), torch.where(self.active, linear, 0.0))

    def log_scale(self, loc: Tensor, variance: Tensor, sites: Sites) -> Tensor:
        """Returns the log scales (N, D) with which given sites have the mass of the probit."""
        slope, intercept = self.coefficients.T
        mass = log_normal_cdf((slope * loc + intercept) / (1 + slope**2 * variance).sqrt())
        total = 1 + sites.precision * variance
        square = variance * sites.linear**2 + 2 * loc * sites.linear - sites.precision * loc**2
        return torch.where(self.active, mass - 0.5 * square / total + 0.5 * total.log(), 0.0)

    def log_prior(self) -> Tensor:
        """Returns the log density of the slopes, so that a step function has a finite one."""
        return torch.where(self.active, _log_prior(self.coefficients[:, 0]), 0.0).sum()

    def m_step(self, evidence: MaskEvidence) -> "ProbitMaskFactor":
        r"""Returns the mask after a step of Fisher scoring with step halving on each feature.

        .. math:: \sum_{mis} \log \Phi\left(\frac{\lambda m - c}{\sqrt{1 + \lambda^2 v}}\right)
            + \sum_{obs} \log \Phi(c - \lambda x) - \frac{\lambda^2}{2 s^2}

        with m and v of a hidden cell as the rest of its row has them: the likelihood of the mask itself.
        """
        loc = torch.where(evidence.observed, evidence.x, evidence.rest_mean)
        variance = torch.where(evidence.observed, 0.0, evidence.rest_variance)
        sign = 1 - 2 * evidence.observed.to(loc.dtype)

        def value(coefficients: Tensor) -> Tensor:
            slope, intercept = coefficients.T
            z = sign * (slope * loc + intercept) / (1 + slope**2 * variance).sqrt()
            return (evidence.weights * log_normal_cdf(z)).sum(dim=0) + _log_prior(slope)

        slope, intercept = self.coefficients.T
        spread = (1 + slope**2 * variance).sqrt()
        z = sign * (slope * loc + intercept) / spread
        rise, fall = (evidence.weights * part for part in truncation(z))
        by_slope = (sign * loc - slope * variance * z / spread) / spread
        moves = torch.stack([by_slope, sign / spread])  # (2, N, D), how z moves with each coefficient
        gradient = (rise * moves).sum(dim=1).T
        curvature = torch.einsum("nd,ind,jnd->dij", fall, moves, moves)
        gradient[:, 0] -= slope / STEEPEST**2
        curvature[:, 0, 0] += STEEPEST**-2
        path = straight_path(self.coefficients, gradient, curvature)
        reached = line_search(value, self.coefficients, path)
        return self.with_coefficients(torch.where(self.active[:, None], reached, self.coefficients))


def _log_prior(slope: Tensor) -> Tensor:
    return -0.5 * (slope / STEEPEST) ** 2
