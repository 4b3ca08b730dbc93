r"""Proposals of latents for importance sampling: the posterior of a row, or a proposal adapted to the row.

The encoder's posterior is diagonal, and one network is used for every pattern of missing cells. If it fits a
row badly, a few draws have all the weight. Such a row gets its own proposal: a mixture of a multivariate
Student t around the nearest mode, with the width of the curvature there, and of the encoder's posterior,
which covers regions that the t might miss. Far outliers can have two modes, one that the encoder predicts
and one where the outlier is explained as noise. Weights of draws near one mode carry no information about
the other, so other starting points are compared, too.

Weighted latent draws of rows, in chunks, with as many draws as each row needs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, Self

import torch
from scipy import special
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.mixture import GaussianMixture
from halfseen.latent.model import LatentModel
from halfseen.latent.self_masking import N_NODES
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
OTHER_MODE = 3.0  # difference in nats that indicates another mode


@dataclass(frozen=True)
class Proposals:
    r"""Latents of rows, and the densities that are needed to compute their weights.

    Shapes
    ------
    z : :math:`(A, N, L)`
    log_density : :math:`(A, N)`, of everything that they were drawn from together
    log_share : :math:`(A, N)`, the log of how much each draw counts before it is weighted; the shares of a
        row sum to 1
    adapted : :math:`(N)`, whether the row has a proposal of its own
    pilot_ess : :math:`(N)`, the effective sample size of the pilot under the posterior; 0 without a pilot
    """

    z: Tensor
    log_density: Tensor
    log_share: Tensor
    adapted: Tensor
    pilot_ess: Tensor

    def __getitem__(self, part: slice) -> "Proposals":
        return Proposals(
            self.z[part], self.log_density[part], self.log_share[part], self.adapted, self.pilot_ess
        )

    def of_rows(self, rows: Tensor) -> "Proposals":
        """Returns the draws of some rows."""
        z, log_density, log_share = (
            part.index_select(1, rows) for part in (self.z, self.log_density, self.log_share)
        )
        return Proposals(z, log_density, log_share, self.adapted[rows], self.pilot_ess[rows])

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
    ess, evidence = _ess_and_evidence(tried.log_weights(log_joint(tried.z)))
    plain = replace(plain, pilot_ess=ess)
    start, other_mode = _best_start(posterior.mean(), log_joint)
    poor = ((ess < poor_share * pilot.n_draws) | other_mode).nonzero().squeeze(1)
    if len(poor) == 0:
        return plain
    log_joint = log_joint_of(poor)
    student = at_mode(start[poor], log_joint)
    tried = pilot.of_both(posterior[poor], student)
    adapted_ess, adapted_evidence = _ess_and_evidence(tried.log_weights(log_joint(tried.z)))
    gain = adapted_evidence - evidence[poor]  # draws that miss a mode explain less
    use = torch.where(gain.abs() < OTHER_MODE, adapted_ess > ess[poor], gain > 0)
    own = noise.of_both(posterior[poor[use]], StudentT(student.loc[use], student.root[use]))
    return Proposals(
        plain.z.index_copy(1, poor[use], own.z),
        plain.log_density.index_copy(1, poor[use], own.log_density),
        plain.log_share.index_copy(1, poor[use], own.log_share),
        plain.adapted.index_fill(0, poor[use], True),
        ess,
    )


def _ess_and_evidence(log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the effective sample size (N) of draws, and the log density (N) that they explain."""
    return effective_sample_size(log_weights), log_weights.logsumexp(dim=0)


def _best_start(mean: Tensor, log_joint: LogJoint) -> tuple[Tensor, Tensor]:
    """Returns the best multiple (N, L) of means, and whether (N) the means themselves are far worse."""
    tried = torch.tensor(SHARES, dtype=mean.dtype)[:, None, None] * mean
    values = _finite(log_joint(tried))
    best = values.argmax(dim=0)
    rows = torch.arange(len(mean))
    return tried[best, rows], values[best, rows] - values[0] > OTHER_MODE


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


Effort = Literal["adaptive", "fixed"]

# The numbers of draws and the shares are guesses: enough draws that the effective sample size is known
# roughly before more are made, and few enough that rows with a good posterior stop early.
STEP_BYTES = 8 * 2**20  # working memory while draws are decoded, small enough for the cache
DRAW_BYTES = 8 * 2**20  # the draws of all rows that a thread has in process
SHARE_OF_BUDGET = 16  # the draws of all threads may use this part of the memory budget
PILOT_DRAWS = 64  # maximum number of draws to assess the encoder's posterior as a proposal
ENOUGH = 0.2  # effective sample size, relative to `n_draws`, that suffices for means and quantiles
STAGE = 32  # number of draws after which rows may stop


@dataclass(frozen=True)
class WeightedDraws:
    r"""Latent draws of some rows, or some of them.

    Shapes
    ------
    log_w : :math:`(A, N)`, log weights, normalised if all draws are there
    parameters : :math:`(A, N, P)`
    completed : :math:`(A, N, D)`, or None
    """

    log_w: Tensor
    parameters: Tensor
    completed: Tensor | None

    def of(self, n_draws: int, rows: Tensor) -> "WeightedDraws":
        """Returns the first draws of some rows."""
        completed = None if self.completed is None else self.completed[:n_draws, rows]
        return WeightedDraws(self.log_w[:n_draws, rows], self.parameters[:n_draws, rows], completed)


class Piece(NamedTuple):
    """Some draws, from the position `first` on, of the rows at the positions `rows` (N)."""

    first: int
    rows: Tensor
    found: WeightedDraws


@dataclass(frozen=True)
class WeightedDrawSource:
    r"""Decodes and weighs latent draws.

    A pilot of a few draws estimates the effective sample size of a row. The Monte Carlo
    variance of an expected cell is about the variance of the cell, divided by that number. Expectations and
    quantiles (`frugal`) use as many draws of a row as are needed for an effective sample size of a fifth
    of `n_draws`; if all draws would not be enough, the row gets its own proposal. The number depends on the
    row alone.
    """

    model: LatentModel  # trained, with the mask term that the weights need
    n_draws: int  # the number of latents of a row, at most
    seed: int  # of the latents
    adapts: bool = True  # whether rows whose posterior fits badly get a proposal of their own
    # "fixed" decodes all draws of every row, and tries a proposal of its own for every row.
    effort: Effort = "adaptive"

    def all_of(
        self, rows: Incomplete, cells: Tensor | None = None, *, frugal: bool
    ) -> tuple[WeightedDraws, Tensor]:
        """Returns normalised draws of rows, and how many (N) each has; others have no weight."""
        shape = self.noise.n_draws, len(rows)
        log_w = rows.x.new_full(shape, -torch.inf)
        parameters = rows.x.new_zeros(*shape, self.model.observation.n_parameters)
        completed = rows.x.new_zeros(*shape, rows.n_features) if self._has_cells else None
        counts = torch.zeros(len(rows), dtype=torch.long)
        for piece in self.pieces(rows, cells=cells, frugal=frugal):
            place = slice(piece.first, piece.first + len(piece.found.log_w))
            log_w[place, piece.rows] = piece.found.log_w
            parameters[place, piece.rows] = piece.found.parameters
            if completed is not None and piece.found.completed is not None:
                completed[place, piece.rows] = piece.found.completed
            counts[piece.rows] = place.stop
        return WeightedDraws(log_w.log_softmax(dim=0), parameters, completed), counts

    def pieces(
        self,
        rows: Incomplete,
        mask_weight: float = 1.0,
        cells: Tensor | None = None,
        *,
        unbiased: bool = False,
        frugal: bool = False,
    ) -> Iterator[Piece]:
        """Yields some draws at a time, with log weights that are not normalised.

        The draws that judge the posterior count too, unless the sums of weights are to be unbiased or draws
        have cells of their own. With `frugal`, rows get no more draws than they need; a model of the mask,
        whose posteriors fit less well, always takes all draws, so that means and quantiles agree with draws.
        """
        frugal = frugal and self.model.mask_term == "none" and self.effort == "adaptive"
        tried: list[WeightedDraws] | None = [] if not unbiased and self.model.mask_term == "none" else None
        draws = self._propose(rows, mask_weight, tried, frugal=frugal)
        everyone = torch.arange(len(rows))
        done = 0
        if tried:
            joint = self._joined(rows, draws, tried, mask_weight)
            done = len(joint.log_w)
            yield Piece(0, everyone, replace(joint, log_w=draws[:done].log_weights(joint.log_w)))
        cells = self._cells if cells is None else cells
        needed = self._needed(draws) if frugal else torch.full_like(everyone, len(draws.z))
        while done < len(draws.z):
            stop = min(len(draws.z), (done // self._stage + 1) * self._stage) if frugal else len(draws.z)
            index = (needed > done).nonzero().squeeze(1)
            if len(index) == 0:
                break
            some, own = (rows, draws) if len(index) == len(rows) else (rows[index], draws.of_rows(index))
            for part in self._parts(stop, len(index), done):
                joint = self.joint(some, own.z[part], cells[part], mask_weight)
                yield Piece(part.start, index, replace(joint, log_w=own[part].log_weights(joint.log_w)))
            done = stop

    def joint(self, rows: Incomplete, z: Tensor, cells: Tensor, mask_weight: float) -> WeightedDraws:
        """Returns latents (A, N, L) with their joint log density with the row, in place of weights."""
        found = self.model.log_joint(
            rows, z.unsqueeze(-2), cells.unsqueeze(-2), mask_weight=mask_weight, exact=True
        )
        completed = None if found.completed is None else found.completed.squeeze(-2)
        return WeightedDraws(found.log_w.squeeze(-1), found.parameters.squeeze(-2), completed)

    def _joined(
        self, rows: Incomplete, draws: Proposals, tried: Sequence[WeightedDraws], mask_weight: float
    ) -> WeightedDraws:
        """Returns the first draws, which the pilot has decoded but for rows with a proposal of their own."""
        log_w, parameters = (
            torch.cat([getattr(one, name) for one in tried]) for name in ("log_w", "parameters")
        )
        own = draws.adapted.nonzero().squeeze(1)
        z = draws.z[: len(log_w), own]
        for part in self._parts(len(log_w) if len(own) else 0, len(own)):
            found = self.joint(rows[own], z[part], self._pilot_cells, mask_weight)
            log_w[part, own], parameters[part, own] = found.log_w, found.parameters
        return WeightedDraws(log_w, parameters, None)

    def _propose(
        self, rows: Incomplete, mask_weight: float, tried: list[WeightedDraws] | None, *, frugal: bool
    ) -> Proposals:
        """Returns draws; stores the results of the pilot in `tried`, if its draws are reused."""

        def log_joint_of(index: Tensor) -> LogJoint:
            some = rows if len(index) == len(rows) else rows[index]

            def log_joint(z: Tensor) -> Tensor:
                cells, parts = self._pilot_cells, self._parts(len(z), len(some))
                found = [self.joint(some, z[part], cells, mask_weight) for part in parts]
                if tried == [] and len(z) == pilot.n_draws:
                    tried.extend(found)
                return torch.cat([one.log_w for one in found])

            return log_joint

        posterior = self.model.posterior(rows)
        if not self.adapts:
            return self.noise.of_posterior(posterior)
        pilot = self._pilot if tried is None else self.noise.first(self._pilot.n_draws)
        poor = torch.inf if self.effort == "fixed" else ENOUGH if frugal else POOR
        return propose(posterior, log_joint_of, self.noise, pilot, poor)

    def _needed(self, draws: Proposals) -> Tensor:
        """Returns how many draws (N) rows need by the pilot; all, if they have a proposal of their own."""
        share = draws.pilot_ess / self._pilot.n_draws
        needed = self._stage * (ENOUGH * self.n_draws / share / self._stage).ceil()
        needed = needed.nan_to_num(nan=torch.inf).clamp(max=len(draws.z)).long()
        return torch.where(draws.adapted, len(draws.z), needed)

    def _parts(self, n_draws: int, n_rows: int, done: int = 0) -> list[slice]:
        size = max(1, self._pairs_at_once // max(1, n_rows))
        return [slice(start, min(n_draws, start + size)) for start in range(done, n_draws, size)]

    # ------------------------------------------------------------------------ what the settings determine

    @property
    def _stage(self) -> int:
        """The number of draws between which rows may stop: equally many of each component."""
        return math.lcm(STAGE, self.model.n_components)

    @property
    def _has_cells(self) -> bool:
        """Whether missing cells are drawn with each latent."""
        return self.model.mask_term == "sample"

    @cached_property
    def noise(self) -> LatentPoints:
        """The noise from which the latents of all rows are computed."""
        return self._make_noise(self.n_draws, self.seed)

    @cached_property
    def _pilot(self) -> LatentPoints:
        """Other noise, by which the posterior is judged."""
        return self._make_noise(min(self.n_draws, PILOT_DRAWS), self.seed + 1)

    def _make_noise(self, n_draws: int, seed: int) -> LatentPoints:
        dtype = next(self.model.parameters()).dtype
        return LatentPoints.draw(n_draws, self.model.n_components, self.model.n_latent, seed, dtype)

    @cached_property
    def _cells(self) -> Tensor:
        return self._make_cells(self.noise.n_draws, self.seed)

    @cached_property
    def _pilot_cells(self) -> Tensor:
        """Uniforms that are the same for all latents, so that a mode is that of a single function."""
        return self._make_cells(1, self.seed + 1)

    def _make_cells(self, n_draws: int, seed: int) -> Tensor:
        """Returns uniforms (A, 1, M) that fill the missing cells of every row."""
        shape, dtype = (n_draws, 1, self.model.n_cells), next(self.model.parameters()).dtype
        return torch.rand(shape, generator=torch_generator(seed), dtype=torch.float64).to(dtype)

    @property
    def _pairs_at_once(self) -> int:
        """How many draws of how many rows to handle at once."""
        observation = self.model.observation
        widths = [len(weight) for weight in self.model.decoder.parameters() if weight.dim() > 1]
        numbers = 3 * max([*widths, 1]) + 4 * observation.n_parameters + 4 * observation.n_features
        if self.model.mask_term == "integrated":
            numbers += 5 * N_NODES * observation.n_columns
        return max(1, STEP_BYTES // (8 * numbers))
