r"""What missing cells are, given a trained latent-variable model: self-normalised importance sampling.

Latents are drawn from the posterior, :math:`z_a \sim q(z \mid x_o)`, or where it fits badly from a proposal
adapted to the row, and count by :math:`\alpha_a \propto w_a`. All rows share the same standardised latents,
scrambled Sobol points: an answer is a function of the row and the seed alone, and equal rows agree. What
makes draws of rows differ is noise that belongs to the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import Keys, row_uniforms, torch_generator
from halfseen._threads import map_in_threads, n_workers
from halfseen.config import memory_budget
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.quantiles import mixture_quantiles, weighted_quantiles
from halfseen.models.latent.mask_term import N_NODES, HiddenCells, modelled_columns
from halfseen.models.latent.model import LatentModel
from halfseen.nn.self_masking import SelfMaskModel
from halfseen.objectives.weights import effective_sample_size, pareto_k
from halfseen.samplers.calibration import choose_stretch
from halfseen.samplers.proposals import Draws, LogJoint, Noise, propose

Form = Literal["auto", "decoder_mean", "sample", "integrated"]

STEP_BYTES = 8 * 2**20  # of what arises while draws are decoded: small enough to stay near the processor
SHARE_OF_BUDGET = 16  # the draws of all rows at work may take this part of the memory budget
INDEX_STREAM, CELL_STREAM = 1, 16  # noise of different purposes is kept apart
MAX_ROWS = 256  # at once: rows that are few are done as if they were so many
MAX_ATTEMPTS = 64  # to draw a cell that is missing
PILOT_DRAWS = 64  # at most, that tell whether a posterior will do


@dataclass(frozen=True)
class Trust:
    r"""How far the importance weights of each row can be trusted.

    Shapes
    ------
    ess : :math:`(N)`, how many draws of equal weight the draws are worth
    pareto_k : :math:`(N)`, the shape of the tail of the weights; above 0.7 they cannot be trusted
    """

    ess: Tensor
    pareto_k: Tensor


@dataclass(frozen=True)
class Candidates:
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


@dataclass(frozen=True)
class ImportanceSampler:
    r"""Answers questions about missing cells by weighted latent draws.

    .. math:: \mathrm{E}[h(x_m) \mid x_o] \approx \sum_a \alpha_a \, \mathrm{E}[h(x_m) \mid z_a]

    Under a mask model :math:`\alpha` depends on the missing cells, and the expectation given :math:`z_a` must
    be one given the mask too. It is taken by quadrature for self-masking models (``"integrated"``), or
    replaced by the cells that were drawn with the latent and weighted with it (``"sample"``). The decoder's
    means, which ignore this (``"decoder_mean"``, equation 17 of the paper), are not consistent then.

    Parameters
    ----------
    model : LatentModel
        Trained, in double precision if answers are to be the same in every batch.
    n_draws : int
        The number of latents, of all components together.
    seed : int
        Of the latents.
    form : {"auto", "decoder_mean", "sample", "integrated"}
        As above; by default what the model's own mask term is, and decoder means without a mask model.
    adapts : bool
        Whether rows whose posterior fits badly get a proposal of their own.
    stretch : tuple of float
        How many times wider missing numbers are than the model says, by column of numbers, see
        `halfseen.samplers.calibration`; it concerns quantiles and draws (these are never made narrower) of
        models without a mask model.

    References
    ----------
    Ipsen, Mattei & Frellsen (2021), not-MIWAE, section 3.4. Rubin (1987), The calculation of posterior
    distributions by data augmentation: comment (sampling importance resampling).
    """

    model: LatentModel
    n_draws: int = 1000
    seed: int = 0
    form: Form = "auto"
    adapts: bool = True
    stretch: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, got {self.n_draws!r}.")
        if self.form not in ("auto", "decoder_mean", "sample", "integrated"):
            raise ValueError(f"There is no form {self.form!r} of importance sampling.")

    @torch.no_grad()
    def mean(self, batch: Incomplete) -> Tensor:
        """Returns rows (N, D) with the expectation of missing features; of indicators, probabilities."""
        return self.by_rows(batch, lambda rows, _: self._mean(rows), keeps_draws=False)

    @torch.no_grad()
    def quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, n_numeric) of the columns of numbers, each by itself."""
        return self.by_rows(batch, lambda rows, _: self._quantiles(rows, probabilities), dim=1)

    @torch.no_grad()
    def draws(self, batch: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns rows (M, N, D) with missing cells drawn jointly, by resampling; noise is the rows'."""
        return self.by_rows(batch, lambda rows, index: self._draws(rows, keys[index.numpy()], n_draws), dim=1)

    @torch.no_grad()
    def log_prob(self, batch: Incomplete) -> Tensor:
        r"""Returns a lower bound (N) of :math:`\log p(x_o)`, the IWELBO of all draws, without the mask."""
        return self.by_rows(batch, lambda rows, _: self._log_prob(rows), keeps_draws=False)

    @torch.no_grad()
    def trust(self, batch: Incomplete) -> Trust:
        """Returns the effective number of draws and the shape of the weights' tail, of each row."""
        log_alpha = self.by_rows(batch, lambda rows, _: self._log_alpha(rows), dim=1)
        return Trust(effective_sample_size(log_alpha), pareto_k(log_alpha))

    @torch.no_grad()
    def calibrated(
        self, batch: Incomplete, truth: Tensor, hidden: Tensor, half: Tensor
    ) -> "ImportanceSampler":
        """Returns a sampler whose intervals cover known numbers that were hidden from `batch`.

        Shapes
        ------
        truth, hidden : :math:`(N, J)`, of the columns of numbers
        half : :math:`(J)`, half of a column's step, 0 for numbers that are not whole
        """
        if self._form != "decoder_mean":
            return self
        found = self._candidates(batch)
        observation, weights = self.model.observation, found.log_w.exp()
        factors = choose_stretch(observation, found.parameters, weights, truth, hidden, half)
        return replace(self, stretch=factors)

    # ------------------------------------------------------------------------------- some rows at a time

    def _mean(self, rows: Incomplete) -> Tensor:
        """A running average: weights are relative to the largest so far."""
        top = torch.full((len(rows),), -torch.inf, dtype=rows.x.dtype)
        total, sums = torch.zeros_like(top), torch.zeros_like(rows.x)
        for piece in self._pieces(rows):
            higher = torch.maximum(top, piece.log_w.amax(dim=0))
            shrink, weights = (top - higher).exp(), (piece.log_w - higher).exp()  # (N), (A, N)
            expected = self._expected(piece.parameters, piece.completed)
            sums = sums * shrink[:, None] + torch.einsum("an,and->nd", weights, expected)
            total, top = total * shrink + weights.sum(dim=0), higher
        return torch.where(rows.observed, rows.x, sums / total[:, None])

    def _quantiles(self, rows: Incomplete, probabilities: Sequence[float]) -> Tensor:
        found = self._candidates(rows)
        observation = self.model.observation
        if self._form == "sample":
            assert found.completed is not None
            atoms = found.completed[..., self._number_features]  # (A, N, J)
            return weighted_quantiles(atoms, found.log_w.exp()[..., None].expand_as(atoms), probabilities)
        if self._form == "integrated":
            cells = HiddenCells.of(observation, self._self_mask, found.parameters)
            weights = (cells.log_weights + found.log_w[..., None]).exp()  # (Q, A, N, J)
            return weighted_quantiles(cells.values.flatten(0, 1), weights.flatten(0, 1), probabilities)
        stretched = observation.stretched(found.parameters, self.stretch)
        return mixture_quantiles(observation, stretched, found.log_w.exp(), probabilities)

    def _draws(self, rows: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        if self._form == "sample":
            return self._resampled_cells(rows, keys, n_draws)
        found = self._candidates(rows)
        drawn = []
        for s in range(n_draws):
            chosen = _choose(found.log_w, keys, s)  # (N)
            parameters = found.parameters[chosen, torch.arange(len(rows))]  # (N, P)
            drawn.append(torch.where(rows.observed, rows.x, self._draw_cells(parameters, keys, s)))
        return torch.stack(drawn)

    def _resampled_cells(self, rows: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns cells that were drawn with their latents, by noise that belongs to the rows."""
        n_noise = self.model.observation.n_noise
        cells = np.stack([row_uniforms(keys, a, n_noise, CELL_STREAM) for a in range(self._noise.n_draws)])
        found = self._candidates(rows, torch.from_numpy(cells).to(rows.x.dtype))
        assert found.completed is not None
        positions = torch.arange(len(rows))
        chosen = [_choose(found.log_w, keys, s) for s in range(n_draws)]
        return torch.stack([found.completed[index, positions] for index in chosen])

    def _draw_cells(self, parameters: Tensor, keys: Keys, draw: int) -> Tensor:
        """Returns features (N, D) given latents; given too that cells are missing, by rejection."""
        observation = self.model.observation

        def propose(attempt: int) -> Tensor:
            noise = row_uniforms(keys, draw, observation.n_noise, CELL_STREAM + 2 * attempt)
            return observation.sample(parameters, torch.from_numpy(noise).to(parameters.dtype))

        if self._form != "integrated":
            parameters = observation.stretched(parameters, [max(1.0, factor) for factor in self.stretch])
            return propose(0)
        modelled = modelled_columns(self._self_mask)
        result = parameters.new_zeros(len(parameters), observation.n_features)
        best = parameters.new_full((len(parameters), observation.n_columns), -torch.inf)
        for attempt in range(MAX_ATTEMPTS):
            x = propose(attempt)
            log_missing = functional.logsigmoid(-self._self_mask.logits(x))  # (N, C)
            uniforms = row_uniforms(keys, draw, observation.n_columns, CELL_STREAM + 2 * attempt + 1)
            u = torch.from_numpy(uniforms).to(parameters.dtype)
            accepted = (u.log() < log_missing) | ~modelled
            # Should all attempts fail, the best by the Gumbel trick is a draw among them by their weights.
            score = torch.where(accepted, torch.inf, log_missing - (-u.log()).log())
            taken = (score > best) & ~best.isposinf()
            best = torch.where(taken, score, best)
            result = torch.where(taken[:, observation.columns_of_features], x, result)
            if bool(best.isposinf().all()):
                break
        return result

    def _log_prob(self, rows: Incomplete) -> Tensor:
        total = torch.full((len(rows),), -torch.inf, dtype=rows.x.dtype)
        for piece in self._pieces(rows, mask_weight=0.0, unbiased=True):
            total = total.logaddexp(piece.log_w.logsumexp(dim=0))
        return total

    def _log_alpha(self, rows: Incomplete) -> Tensor:
        return torch.cat([piece.log_w for piece in self._pieces(rows, unbiased=True)]).log_softmax(dim=0)

    def _candidates(self, rows: Incomplete, cells: Tensor | None = None) -> Candidates:
        pieces = list(self._pieces(rows, cells=cells))
        log_w = torch.cat([piece.log_w for piece in pieces]).log_softmax(dim=0)
        completed = [piece.completed for piece in pieces if piece.completed is not None]
        parameters = torch.cat([piece.parameters for piece in pieces])
        return Candidates(log_w, parameters, torch.cat(completed) if completed else None)

    def _pieces(
        self,
        rows: Incomplete,
        mask_weight: float = 1.0,
        cells: Tensor | None = None,
        *,
        unbiased: bool = False,
    ) -> Iterator[Candidates]:
        """Yields some draws at a time, with log weights that are not normalised.

        The draws that judge the posterior count too, unless the sums of weights are to be unbiased or draws
        have cells of their own.
        """
        tried: list[Candidates] | None = [] if not unbiased and self._form == "decoder_mean" else None
        draws = self._propose(rows, mask_weight, tried)
        cells = self._cells if cells is None else cells
        done = 0
        if tried:
            joint = self._joined(rows, draws, tried, mask_weight)
            done = len(joint.log_w)
            yield replace(joint, log_w=draws[:done].log_weights(joint.log_w))
        for part in self._parts(len(draws.z), len(rows), done):
            joint = self._joint(rows, draws.z[part], cells[part], mask_weight)
            yield replace(joint, log_w=draws[part].log_weights(joint.log_w))

    def _joined(
        self, rows: Incomplete, draws: Draws, tried: Sequence[Candidates], mask_weight: float
    ) -> Candidates:
        """Returns the first draws, which the pilot has decoded but for rows with a proposal of their own."""
        log_w, parameters = (
            torch.cat([getattr(one, name) for one in tried]) for name in ("log_w", "parameters")
        )
        own = draws.own.nonzero().squeeze(1)
        z = draws.z[: len(log_w), own]
        for part in self._parts(len(log_w) if len(own) else 0, len(own)):
            found = self._joint(rows[own], z[part], self._pilot_cells, mask_weight)
            log_w[part, own], parameters[part, own] = found.log_w, found.parameters
        return Candidates(log_w, parameters, None)

    def _propose(self, rows: Incomplete, mask_weight: float, tried: list[Candidates] | None) -> Draws:
        """Returns draws; puts what the pilot finds in `tried`, if its draws are to be the first of them."""

        def log_joint_of(index: Tensor) -> LogJoint:
            some = rows if len(index) == len(rows) else rows[index]

            def log_joint(z: Tensor) -> Tensor:
                cells, parts = self._pilot_cells, self._parts(len(z), len(some))
                found = [self._joint(some, z[part], cells, mask_weight) for part in parts]
                if tried == [] and len(z) == pilot.n_draws:
                    tried.extend(found)
                return torch.cat([one.log_w for one in found])

            return log_joint

        posterior = self.model.posterior(rows)
        if not self.adapts:
            return self._noise.of_posterior(posterior)
        pilot = self._pilot if tried is None else self._noise.first(self._pilot.n_draws)
        return propose(posterior, log_joint_of, self._noise, pilot)

    def _joint(self, rows: Incomplete, z: Tensor, cells: Tensor, mask_weight: float) -> Candidates:
        """Returns latents (A, N, L) with, for now, the log density of them and the row."""
        found = self._model.log_joint(
            rows, z.unsqueeze(-2), cells.unsqueeze(-2), mask_weight=mask_weight, exact=True
        )
        completed = None if found.completed is None else found.completed.squeeze(-2)
        return Candidates(found.log_w.squeeze(-1), found.parameters.squeeze(-2), completed)

    def _parts(self, n_draws: int, n_rows: int, done: int = 0) -> list[slice]:
        size = max(1, self._pairs_at_once // max(1, n_rows))
        return [slice(start, start + size) for start in range(done, n_draws, size)]

    def _expected(self, parameters: Tensor, completed: Tensor | None) -> Tensor:
        """Returns what each draw expects of features (A, N, D)."""
        if self._form == "sample":
            assert completed is not None
            return completed
        observation = self.model.observation
        if self._form != "integrated":
            return observation.mean(parameters)
        return HiddenCells.of(observation, self._self_mask, parameters).mean

    def by_rows(
        self,
        batch: Incomplete,
        answer: Callable[[Incomplete, Tensor], Tensor],
        dim: int = 0,
        *,
        keeps_draws: bool = True,
    ) -> Tensor:
        """Answers for some rows at a time, always as many: products of other shapes round differently.

        `keeps_draws` says whether the answer needs what is decoded of all draws together.
        """
        size = self._rows_at_once(keeps_draws=keeps_draws)
        starts = range(0, max(1, len(batch)), size)

        def part(start: int) -> Tensor:
            index = torch.arange(start, start + size if len(batch) else start).clamp(max=len(batch) - 1)
            return answer(batch[index], index).narrow(dim, 0, min(size, len(batch) - start))

        result: Tensor | None = None
        for start, found in zip(starts, map_in_threads(part, starts), strict=True):
            if (
                result is None
            ):  # pieces are put in place at once: a list of them would take their memory twice
                result = found.new_empty(*found.shape[:dim], len(batch), *found.shape[dim + 1 :])
            result.narrow(dim, start, found.shape[dim]).copy_(found)
        assert result is not None
        return result

    # ------------------------------------------------------------------------------- what stays the same

    @cached_property
    def _form(self) -> str:
        if self.model.mask_model.is_ignorable:
            return "decoder_mean"
        return self.model.mask_term if self.form == "auto" else self.form

    @cached_property
    def _model(self) -> LatentModel:
        """The model whose weights the form needs: the paper's form has those of drawn cells."""
        if self.model.mask_model.is_ignorable:
            return self.model
        return self.model.with_mask_term("integrated" if self._form == "integrated" else "sample")

    @cached_property
    def _noise(self) -> Noise:
        return self._make_noise(self.n_draws, self.seed)

    @cached_property
    def _pilot(self) -> Noise:
        """Other noise, by which the posterior is judged."""
        return self._make_noise(min(self.n_draws, PILOT_DRAWS), self.seed + 1)

    def _make_noise(self, n_draws: int, seed: int) -> Noise:
        dtype = next(self.model.parameters()).dtype
        return Noise.draw(n_draws, self.model.n_components, self.model.n_latent, seed, dtype)

    @cached_property
    def _cells(self) -> Tensor:
        return self._make_cells(self._noise.n_draws, self.seed)

    @cached_property
    def _pilot_cells(self) -> Tensor:
        """The same for all latents: a mode is to be that of one function."""
        return self._make_cells(1, self.seed + 1)

    def _make_cells(self, n_draws: int, seed: int) -> Tensor:
        """Returns uniforms (A, 1, M) that fill the missing cells of every row."""
        shape, dtype = (n_draws, 1, self._model.n_cells), next(self.model.parameters()).dtype
        return torch.rand(shape, generator=torch_generator(seed), dtype=torch.float64).to(dtype)

    @cached_property
    def _number_features(self) -> list[int]:
        """The feature of each column of numbers."""
        owners = self.model.observation.columns_of_features.tolist()
        return [owners.index(column) for column in self.model.observation.numeric]

    @property
    def _self_mask(self) -> SelfMaskModel:
        return cast(SelfMaskModel, self.model.mask_model)

    @property
    def _pairs_at_once(self) -> int:
        """How many draws of how many rows to handle at once."""
        observation = self.model.observation
        widths = [len(weight) for weight in self.model.decoder.parameters() if weight.dim() > 1]
        numbers = 3 * max([*widths, 1]) + 4 * observation.n_parameters + 4 * observation.n_features
        if self._form == "integrated":
            numbers += 5 * N_NODES * observation.n_columns
        return max(1, min(STEP_BYTES, memory_budget() // (4 * SHARE_OF_BUDGET)) // (8 * numbers))

    def _rows_at_once(self, *, keeps_draws: bool) -> int:
        """So many that what is kept of every draw fits, in each of the threads."""
        observation = self.model.observation
        numbers = 2 * self.model.n_latent + 6
        if keeps_draws:
            numbers += observation.n_parameters + 4 * observation.n_features
        if keeps_draws and self._form == "integrated":
            numbers += 5 * N_NODES * observation.n_columns
        n_bytes = memory_budget() // (SHARE_OF_BUDGET * max(2, n_workers()))
        return min(MAX_ROWS, max(1, n_bytes // (8 * numbers * self.n_draws)))


def _choose(log_alpha: Tensor, keys: Keys, draw: int) -> Tensor:
    """Returns the draw (N) at which the cumulated weights (A, N) pass the rows' uniforms."""
    uniforms = torch.from_numpy(row_uniforms(keys, draw, 1, INDEX_STREAM)).to(log_alpha.dtype)  # (N, 1)
    cumulated = log_alpha.exp().cumsum(dim=0).T.contiguous()  # (N, A)
    index = torch.searchsorted(cumulated, uniforms * cumulated[:, -1:], right=True).squeeze(1)
    return index.clamp(max=len(log_alpha) - 1)
