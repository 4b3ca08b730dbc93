r"""Proposals of latents for importance sampling: the posterior of a row, or a proposal adapted to the row.

The encoder's posterior is diagonal, and one network is used for every pattern of missing cells. If it fits a
row badly, a few draws have all the weight. Such a row gets its own proposal: a mixture of a multivariate
Student t around the nearest mode, with the width of the curvature there, and of the encoder's posterior,
which covers regions that the t might miss. Far outliers can have two modes, one that the encoder predicts
and one where the outlier is explained as noise. Weights of draws near one mode carry no information about
the other, so other starting points are compared, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from scipy import special
from torch import Tensor

from halfseen.distributions.mixture import GaussianMixture
from halfseen.latent.weights import effective_sample_size

LogJoint = Callable[[Tensor], Tensor]
"""From latents (A, N, L) to the log density (A, N) of the observed part of each row and the latents."""

LogJointOfRows = Callable[[Tensor], LogJoint]
"""From the positions (N) of some rows to their log density."""

POOR = 0.25  # relative effective sample size below which a row gets its own proposal
KEPT = 0.1  # share of draws from the encoder's posterior
DF = 12.0  # of the Student t; with many latents, heavier tails would waste draws
N_STEPS = 4  # number of steps of Newton's method
STEP_SIZES = (1.0, 0.5, 0.2, 0.05, 0.0)  # the best of these step sizes is used
MOST_LATENTS = 32  # a Hessian needs one backward pass for each latent variable
SHARES = (1.0, 0.5, 0.25, 0.0)  # multiples of the encoder's mean; Newton's method starts from the best
ASTRAY = 3.0  # difference in nats that indicates another mode


@dataclass(frozen=True)
class Proposals:
    r"""Latents of rows, and the densities that are needed to compute their weights.

    Shapes
    ------
    z : :math:`(A, N, L)`
    log_density : :math:`(A, N)`, of everything that they were drawn from together
    log_share : :math:`(A, N)`, the log of how much each draw counts before it is weighed; the shares of a row
        sum to 1
    own : :math:`(N)`, whether the row has a proposal of its own
    worth : :math:`(N)`, the effective sample size of the pilot under the posterior; 0 without a pilot
    """

    z: Tensor
    log_density: Tensor
    log_share: Tensor
    own: Tensor
    worth: Tensor

    def __getitem__(self, part: slice) -> "Proposals":
        return Proposals(self.z[part], self.log_density[part], self.log_share[part], self.own, self.worth)

    def of_rows(self, rows: Tensor) -> "Proposals":
        """Returns the draws of some rows."""
        z, log_density, log_share = (
            part.index_select(1, rows) for part in (self.z, self.log_density, self.log_share)
        )
        return Proposals(z, log_density, log_share, self.own[rows], self.worth[rows])

    def log_weights(self, log_joint: Tensor) -> Tensor:
        """Returns log weights (A, N), whose exponentials sum to an estimate of the density of the row."""
        return log_joint - self.log_density + self.log_share


@dataclass(frozen=True)
class StudentT:
    r"""A multivariate Student t for each row, :math:`z = \mu + C \varepsilon / \sqrt{g / \nu}`.

    Shapes
    ------
    loc : :math:`(N, L)`
    root : :math:`(N, L, L)`, lower triangular
    """

    loc: Tensor
    root: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """Returns draws (A, N, L) from noise (A, L + 1), normals and one uniform, that all rows share."""
        gamma = torch.from_numpy(special.chdtri(DF, 1.0 - noise[:, -1].double().numpy())).to(noise.dtype)
        scaled = noise[:, :-1] / (gamma / DF).sqrt()[:, None]
        return self.loc + torch.einsum("nij,aj->ani", self.root, scaled)

    def log_prob(self, z: Tensor) -> Tensor:
        """Returns the log density of draws (A, N, L)."""
        size = z.shape[-1]
        centred = (z - self.loc).permute(1, 2, 0)  # (N, L, A)
        white = torch.linalg.solve_triangular(self.root, centred, upper=False)
        distance = white.square().sum(dim=1).T  # (A, N)
        constant = math.lgamma((DF + size) / 2) - math.lgamma(DF / 2) - 0.5 * size * math.log(DF * math.pi)
        log_volume = self.root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        return constant - log_volume - 0.5 * (DF + size) * torch.log1p(distance / DF)


@dataclass(frozen=True)
class LatentPoints:
    r"""Standardised latents that all rows share: scrambled Sobol points.

    Shapes
    ------
    strata : :math:`(S, K, L)`, normals for each component of the posterior
    extra : :math:`(E, L + 1)`, normals and a uniform for the Student t
    """

    strata: Tensor
    extra: Tensor

    @classmethod
    def draw(cls, n_draws: int, n_components: int, n_latent: int, seed: int, dtype: torch.dtype) -> Self:
        """Creates noise for about this many draws, all of them the posterior's."""
        size = math.ceil(n_draws / n_components)
        points = torch.quasirandom.SobolEngine(n_latent + 1, scramble=True, seed=seed)
        uniforms = points.draw(size * n_components, dtype=torch.float64)
        # All rows share the points: by chance one may be so far out that it would outweigh many in each.
        farthest = 0.25 / len(uniforms)
        uniforms = uniforms.clamp(farthest, 1.0 - farthest)
        normals = torch.special.ndtri(uniforms[:, :-1])
        strata = normals.view(n_components, size, n_latent).transpose(0, 1)
        return cls(strata.to(dtype), torch.cat([normals, uniforms[:, -1:]], dim=1).to(dtype))

    @property
    def n_draws(self) -> int:
        """The number of draws."""
        return len(self.extra)

    def first(self, n_draws: int) -> "LatentPoints":
        """Returns the noise of about this many first draws, equally many of each component."""
        size = math.ceil(n_draws / self.strata.shape[1])
        return LatentPoints(self.strata[:size], self.extra[: size * self.strata.shape[1]])

    def of_posterior(self, posterior: GaussianMixture) -> Proposals:
        """Returns draws of the posterior, equally many of each component."""
        z = self._strata(posterior, len(self.strata))
        nothing = z.new_zeros(z.shape[1])
        shares = self._shares(posterior, len(self.strata))
        return Proposals(z, posterior.log_prob(z), shares, nothing.bool(), nothing)

    def of_both(self, posterior: GaussianMixture, student: StudentT) -> Proposals:
        """Returns draws of which a share is the posterior's, and the others the Student t's."""
        kept = max(1, round(KEPT * len(self.strata)))
        n_kept = kept * self.strata.shape[1]
        z = torch.cat([self._strata(posterior, kept), student.draw(self.extra[n_kept:])])
        part = n_kept / self.n_draws
        log_density = torch.logaddexp(
            math.log(part) + posterior.log_prob(z), math.log1p(-part) + student.log_prob(z)
        )
        own = self._shares(posterior, kept) + math.log(part)
        others = own.new_full((self.n_draws - n_kept, own.shape[1]), -math.log(self.n_draws))
        nothing = z.new_zeros(z.shape[1])
        return Proposals(z, log_density, torch.cat([own, others]), ~nothing.bool(), nothing)

    def _strata(self, posterior: GaussianMixture, size: int) -> Tensor:
        return posterior.stratified(self.strata[:size, None]).transpose(1, 2).flatten(0, 1)  # (A, N, L)

    @staticmethod
    def _shares(posterior: GaussianMixture, size: int) -> Tensor:
        return (posterior.log_weights.T - math.log(size)).repeat(size, 1)  # (A, N)


def propose(
    posterior: GaussianMixture,
    log_joint_of: LogJointOfRows,
    noise: LatentPoints,
    pilot: LatentPoints,
    poor_share: float = POOR,
) -> Proposals:
    """Returns draws from the posterior, or from an adapted proposal for rows that the posterior fits badly.

    These are rows whose effective sample size is below the fraction `poor_share` of the draws, as estimated
    by the pilot. If the pilot uses other noise, the returned draws are plain importance draws given the
    pilot, and the sums of their weights are unbiased. Only such rows have the cost of a proposal.
    """
    plain = noise.of_posterior(posterior)
    n_components, n_latent = posterior.loc.shape[-2:]
    if noise.n_draws <= n_components or n_latent > MOST_LATENTS:
        return plain
    log_joint = log_joint_of(torch.arange(len(posterior.loc)))
    tried = pilot.of_posterior(posterior)
    worth, evidence = _worth(tried.log_weights(log_joint(tried.z)))
    plain = replace(plain, worth=worth)
    start, astray = _best_start(posterior.mean(), log_joint)
    poor = ((worth < poor_share * pilot.n_draws) | astray).nonzero().squeeze(1)
    if len(poor) == 0:
        return plain
    log_joint = log_joint_of(poor)
    student = at_mode(start[poor], log_joint)
    tried = pilot.of_both(posterior[poor], student)
    own_worth, own_evidence = _worth(tried.log_weights(log_joint(tried.z)))
    gain = own_evidence - evidence[poor]  # draws that miss a mode explain less
    use = torch.where(gain.abs() < ASTRAY, own_worth > worth[poor], gain > 0)
    own = noise.of_both(posterior[poor[use]], StudentT(student.loc[use], student.root[use]))
    return Proposals(
        plain.z.index_copy(1, poor[use], own.z),
        plain.log_density.index_copy(1, poor[use], own.log_density),
        plain.log_share.index_copy(1, poor[use], own.log_share),
        plain.own.index_fill(0, poor[use], True),
        worth,
    )


def _worth(log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the effective sample size (N) of draws, and the log density (N) that they explain."""
    return effective_sample_size(log_weights), log_weights.logsumexp(dim=0)


def _best_start(mean: Tensor, log_joint: LogJoint) -> tuple[Tensor, Tensor]:
    """Returns the best share (N, L) of means, and whether (N) the whole is far worse."""
    tried = torch.tensor(SHARES, dtype=mean.dtype)[:, None, None] * mean
    values = _finite(log_joint(tried))
    best = values.argmax(dim=0)
    rows = torch.arange(len(mean))
    return tried[best, rows], values[best, rows] - values[0] > ASTRAY


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=-torch.inf)


def at_mode(start: Tensor, log_joint: LogJoint) -> StudentT:
    r"""Returns the Student t at the mode that Newton's method reaches, with the width of the curvature there.

    The curvature of the standard normal prior is 1 in every direction. Since the total curvature should not
    be smaller, eigenvalues of :math:`-\nabla^2 \log p` below 1 are replaced by 1.

    Shapes
    ------
    start : :math:`(N, L)`
    """
    z = start
    sizes = torch.tensor(STEP_SIZES, dtype=z.dtype)[:, None, None]
    for _ in range(N_STEPS):
        slope, values, vectors = _curvature(z, log_joint)
        along = torch.einsum("nlk,nl->nk", vectors, slope) / values
        tried = z + sizes * torch.einsum("nlk,nk->nl", vectors, along)  # (T, N, L)
        best = _finite(log_joint(tried)).argmax(dim=0)
        z = tried[best, torch.arange(len(z))]
    _, values, vectors = _curvature(z, log_joint)
    covariance = torch.einsum("nlk,nk,nmk->nlm", vectors, 1.0 / values, vectors)
    return StudentT(z, torch.linalg.cholesky(covariance))


def _curvature(z: Tensor, log_joint: LogJoint) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradient (N, L), and eigenvalues (N, L) and vectors (N, L, L) of minus the Hessian."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(log_joint(z.unsqueeze(0)).sum(), z, create_graph=True)
        each = torch.eye(z.shape[-1], dtype=z.dtype)[:, None, :].expand(-1, *z.shape)  # (L, N, L)
        (hessian,) = torch.autograd.grad(slope, z, each, is_grads_batched=True)
    precision = -hessian.movedim(0, -1)
    # Of values beyond all bounds nothing is known: no slope, and the curvature of the prior.
    known = precision.isfinite().all(dim=-1).all(dim=-1) & slope.isfinite().all(dim=-1)
    prior = torch.eye(z.shape[-1], dtype=z.dtype)
    precision = torch.where(known[:, None, None], (precision + precision.mT) / 2, prior)
    values, vectors = torch.linalg.eigh(precision)
    return torch.where(known[:, None], slope.detach(), 0.0), values.clamp(min=1.0), vectors
