"""Weighted latent draws of rows, in chunks, with as many draws as each row needs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.latent.mask_term import N_NODES
from halfseen.latent.model import LatentModel
from halfseen.latent.proposals import POOR, LatentPoints, LogJoint, Proposals, propose

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


@dataclass(frozen=True)
class Piece:
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

    Parameters
    ----------
    model : LatentModel
        Trained, with the mask term that the weights need.
    n_draws : int
        The number of latents of a row, at most.
    seed : int
        Of the latents.
    adapts : bool
        Whether rows whose posterior fits badly get a proposal of their own.
    effort : {"adaptive", "fixed"}
        ``"fixed"`` decodes all draws of every row, and tries a proposal of its own for every row.
    """

    model: LatentModel
    n_draws: int
    seed: int
    adapts: bool = True
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
        own = draws.own.nonzero().squeeze(1)
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
        share = draws.worth / self._pilot.n_draws  # of draws that count
        needed = self._stage * (ENOUGH * self.n_draws / share / self._stage).ceil()
        needed = needed.nan_to_num(nan=torch.inf).clamp(max=len(draws.z)).long()
        return torch.where(draws.own, len(draws.z), needed)

    def _parts(self, n_draws: int, n_rows: int, done: int = 0) -> list[slice]:
        size = max(1, self._pairs_at_once // max(1, n_rows))
        return [slice(start, min(n_draws, start + size)) for start in range(done, n_draws, size)]

    # ------------------------------------------------------------------------------- what stays the same

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
