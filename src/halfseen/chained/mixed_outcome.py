r"""A logistic or Poisson analysis whose outcome has random effects of groups.

.. math:: g\bigl(\mathrm{E}[y_{ij}]\bigr) = z_{ij}^T \beta + w_{ij}^T b_j, \qquad
    b_j \sim \mathcal{N}(0, \Omega)

The posterior is not normal, so a sweep has Metropolis steps: for the effects of each group, and for the
coefficients, a proposal is drawn from the normal approximation after one step of Newton's method, and is
accepted with the probability of Metropolis and Hastings. The constant and the coefficients of inputs that are
constant within groups would move slowly, because effects follow them. They are therefore drawn once more,
together with effects, along the directions in which all linear predictors stay as they are: an exact Gibbs
step.

Shapes everywhere: ``S`` chains, ``N`` rows, ``P`` inputs including the constant, ``G`` groups, ``Q`` effects
of a group.

References
----------
Gamerman (1997), Sampling from the posterior distribution in generalized linear mixed models; Gelfand, Sahu &
Carlin (1995), Efficient parametrisations for normal linear mixed models, for the last step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.chained.effects import EffectDraw, GroupedRows, draw_covariance
from halfseen.chained.regressions import Noise

START_VARIANCE = 0.5  # of effects; a guess, which the first sweeps forget
LARGEST_INDEX = 50.0  # of a Poisson regression, beyond which means would overflow; proposals are rejected
CONSTANT = 1e-9  # differences within groups up to which an input is constant within them


@dataclass(frozen=True)
class _Normal:
    """Normal distributions (*): their means (*, P) and the Cholesky factors (*, P, P) of their precisions."""

    mean: Tensor
    factor: Tensor

    @classmethod
    def after_step(cls, place: Tensor, slope: Tensor, precision: Tensor) -> "_Normal":
        """Returns the approximation of a density by its derivatives (*, P), (*, P, P) at a place (*, P)."""
        factor = torch.linalg.cholesky(precision)
        return cls(place + torch.cholesky_solve(slope.unsqueeze(-1), factor).squeeze(-1), factor)

    def draw(self, normals: Tensor) -> Tensor:
        """Returns draws (*, P) by standard normals (*, P)."""
        step: Tensor = torch.linalg.solve_triangular(self.factor.mT, normals.unsqueeze(-1), upper=True)
        return self.mean + step.squeeze(-1)

    def log_density(self, place: Tensor) -> Tensor:
        """Returns the log densities (*) at places (*, P), up to a constant."""
        scaled = (self.factor.mT @ (place - self.mean).unsqueeze(-1)).squeeze(-1)
        size: Tensor = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        return size - 0.5 * scaled.square().sum(dim=-1)


class MixedOutcome:
    """A regression with effects of groups in every chain: its current parameters, and sweeps of steps.

    Parameters
    ----------
    grouping : GroupedRows
        Of all rows.
    family : {"logistic", "poisson"}
        The model of the outcome.
    prior : Tensor
        (P), precisions of the coefficients.
    coefficients : Tensor
        (S, P), where they start.
    """

    def __init__(self, grouping: GroupedRows, family: str, prior: Tensor, coefficients: Tensor) -> None:
        self.grouping, self.family, self.prior = grouping, family, prior
        n_chains, n_effects = len(coefficients), grouping.inputs.shape[1]
        self.coefficients = coefficients
        self.effects = torch.zeros(n_chains, grouping.n_groups, n_effects, dtype=torch.float64)
        self.covariance = START_VARIANCE * torch.eye(n_effects, dtype=torch.float64).repeat(n_chains, 1, 1)
        self.used = torch.bincount(grouping.group, minlength=grouping.n_groups)[None] > 0

    def drawn(self) -> EffectDraw:
        """Returns the effects of groups and their covariance."""
        return EffectDraw(self.effects.unsqueeze(1), self.covariance.unsqueeze(1))

    def sweep(self, design: Tensor, y: Tensor, noise: Noise) -> None:
        """Draws all parameters once, given the inputs (S, N, P) and outcomes (S, N) of all rows."""
        self._move_effects(design, y, noise)
        self._move_coefficients(design, y, noise)
        self._shift(design, noise)
        self.covariance = draw_covariance(self.effects, self.used, noise)

    def _index(self, design: Tensor, coefficients: Tensor) -> Tensor:
        return (design @ coefficients.unsqueeze(-1)).squeeze(-1)

    def _derivatives(self, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the log density of outcomes, its slope and its curvature (S, N) at linear predictors."""
        if self.family == "poisson":
            mean = index.clamp(max=LARGEST_INDEX).exp()
            return y * index - mean, y - mean, mean
        share = torch.sigmoid(index)
        density = torch.nn.functional.logsigmoid(torch.where(y > 0.5, index, -index))
        return density, y - share, share * (1 - share)

    def _near_effects(self, y: Tensor, fixed: Tensor, effects: Tensor) -> tuple[Tensor, _Normal]:
        """Returns the log densities (S, G) of effects, and normal approximations of their distributions."""
        grouping, inverse = self.grouping, torch.linalg.inv(self.covariance).unsqueeze(1)
        density, slope, weight = self._derivatives(y, fixed + grouping.offsets(effects))
        pull = (inverse @ effects.unsqueeze(-1)).squeeze(-1)  # (S, G, Q)
        own, pairs = grouping.inputs, grouping.inputs.unsqueeze(-1) * grouping.inputs.unsqueeze(-2)
        slopes = grouping.sums(slope.unsqueeze(-1) * own) - pull
        precision = grouping.sums(weight[..., None, None] * pairs) + inverse
        logs = grouping.sums(density) - 0.5 * (pull * effects).sum(dim=-1)
        return logs, _Normal.after_step(effects, slopes, precision)

    def _move_effects(self, design: Tensor, y: Tensor, noise: Noise) -> None:
        fixed, before = self._index(design, self.coefficients), self.effects
        old, forward = self._near_effects(y, fixed, before)
        tried = forward.draw(noise.normals(*before.shape[1:]))
        new, back = self._near_effects(y, fixed, tried)
        ratio = new - old + back.log_density(before) - forward.log_density(tried)
        accepted = noise.uniforms(before.shape[1]).log() < ratio
        self.effects = torch.where(accepted.unsqueeze(-1), tried, before)

    def _near_coefficients(
        self, design: Tensor, y: Tensor, offset: Tensor, coefficients: Tensor
    ) -> tuple[Tensor, _Normal]:
        """Returns the log density (S) of coefficients, and a normal approximation of their distribution."""
        density, slope, weight = self._derivatives(y, self._index(design, coefficients) + offset)
        slopes = (slope.unsqueeze(1) @ design).squeeze(1) - self.prior * coefficients
        precision = (design * weight.unsqueeze(-1)).mT @ design + torch.diag(self.prior)
        logs = density.sum(dim=1) - 0.5 * coefficients.square() @ self.prior
        return logs, _Normal.after_step(coefficients, slopes, precision)

    def _move_coefficients(self, design: Tensor, y: Tensor, noise: Noise) -> None:
        offset, before = self.grouping.offsets(self.effects), self.coefficients
        old, forward = self._near_coefficients(design, y, offset, before)
        tried = forward.draw(noise.normals(before.shape[1]))
        new, back = self._near_coefficients(design, y, offset, tried)
        ratio = new - old + back.log_density(before) - forward.log_density(tried)
        accepted = noise.uniforms().log() < ratio
        self.coefficients = torch.where(accepted.unsqueeze(-1), tried, before)

    def _shift(self, design: Tensor, noise: Noise) -> None:
        r"""Draws the coefficients of inputs u that are constant within groups, and first effects with them.

        The sums :math:`\theta_j = u_j^T \beta_u + b_{j1}` stay. Given them and the other effects of groups,
        with the conditional mean m and variance v of :math:`b_{j1}`, this is a linear regression:
        :math:`\theta_j - m_j \sim \mathcal{N}(u_j^T \beta_u, v)`.
        """
        means = self.grouping.means(design)
        apart = (design - means[:, self.grouping.group]).abs().amax(dim=(0, 1))
        places = (apart <= CONSTANT).nonzero().squeeze(1)
        inputs, before = means[..., places], self.coefficients[:, places]  # (S, G, K), (S, K)
        total = self._index(inputs, before) + self.effects[..., 0]
        to_others = torch.linalg.solve(self.covariance[:, 1:, 1:], self.covariance[:, 1:, :1])
        centre = (self.effects[..., 1:] @ to_others).squeeze(-1)
        variance = self.covariance[:, 0, :1] - (self.covariance[:, :1, 1:] @ to_others)[:, 0]  # (S, 1)
        precision = inputs.mT @ inputs / variance.unsqueeze(-1) + torch.diag(self.prior[places])
        slope = ((total - centre).unsqueeze(1) @ inputs).squeeze(1) / variance
        found = _Normal.after_step(torch.zeros_like(before), slope, precision)
        drawn = found.draw(noise.normals(len(places)))
        self.coefficients = self.coefficients.index_copy(1, places, drawn)
        first = total - self._index(inputs, drawn)
        self.effects = torch.cat([first.unsqueeze(-1), self.effects[..., 1:]], dim=-1)
