r"""Imputation by self-normalised importance sampling, given a trained latent-variable model.

Latents are drawn from the posterior, :math:`z_a \sim q(z \mid x_o)`, or from a proposal adapted to the row if
the posterior fits badly, and have weights :math:`\alpha_a \propto w_a`. All rows share the same standardised
latents, which are scrambled Sobol points. Results are therefore a function of the row and the seed alone, and
equal rows have equal results. Draws of different rows differ by noise that is determined by the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import Keys, row_uniforms
from halfseen._threads import map_in_threads
from halfseen.config import memory_budget
from halfseen.data.incomplete import PIECE_BYTES, Incomplete
from halfseen.distributions.leaves import choose_by_cdf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.distributions.quantiles import mixture_quantiles, weighted_quantiles
from halfseen.latent.model import LatentModel
from halfseen.latent.proposals import (
    DRAW_BYTES,
    SHARE_OF_BUDGET,
    Effort,
    WeightedDraws,
    WeightedDrawSource,
)
from halfseen.latent.self_masking import N_NODES, SelfMaskModel, TiltedCells, modelled_columns
from halfseen.latent.weights import effective_sample_size, pareto_k
from halfseen.training.progress import report_share

# Inflation of predictive scales, learned from observed cells of held-out rows that are hidden for it.
#
# Networks that were fitted to few rows are too sure of themselves, and so are importance weights of few
# draws. The scales of missing numbers are then inflated by the smallest factor for which central intervals
# cover what was hidden of held-out rows. Weights, means and probabilities of levels stay as they are.

LEVEL = 0.9
MIN_INFLATION, MAX_INFLATION = 0.5, 4.0
MIN_CELLS = 100  # with fewer, no factor is estimated
BISECTIONS = 12


def hide_cells(rows: Incomplete, owners: Tensor, generator: torch.Generator) -> Tensor:
    """Returns which observed features (N, D) to hide: about the share that rows miss, at least a tenth.

    Parameters
    ----------
    rows : Incomplete
        Features.
    owners : Tensor
        The column (D) of each feature; features of a column are hidden together.
    generator : torch.Generator
        Of the choice.
    """
    share = max(0.1, float((~rows.observed).double().mean()))
    n_columns = int(owners.max()) + 1
    chosen = torch.rand(len(rows), n_columns, generator=generator) < share
    return chosen[:, owners] & rows.observed


def choose_inflation(
    observation: ObservationModel,
    parameters: Tensor,
    weights: Tensor,
    truth: Tensor,
    hidden: Tensor,
    half: Tensor,
) -> tuple[float, ...]:
    r"""Returns for each column the factor of scales at which 90% intervals cover 90% of the hidden numbers.

    With half a step :math:`h` of the column, 0 for numbers that are not whole, a cell is within an interval
    with rounded ends if :math:`\sum_a \alpha_a F_s(x + h \mid z_a) \ge 0.05` and that of :math:`x - h` is at
    most 0.95. There is one factor for whole numbers, which may be below 1, since rounding widens intervals,
    and one of at least 1 for others. Where fewer than 100 numbers were hidden it is 1.

    Shapes
    ------
    parameters : :math:`(A, N, P)`
    weights : :math:`(A, N)`, which sum to 1
    truth, hidden : :math:`(N, J)`, of the columns `observation.numeric`
    half : :math:`(J)`
    """
    size = max(1, PIECE_BYTES // (8 * parameters[:, :1].numel()))
    parts = torch.arange(len(truth)).split(size)

    def is_inside(rows: Tensor, inflation: float) -> Tensor:
        wider = observation.inflated(parameters[:, rows], [inflation] * len(half))
        above = torch.einsum("an,anj->nj", weights[:, rows], observation.cdf(wider, truth[rows] + half))
        below = torch.einsum("an,anj->nj", weights[:, rows], observation.cdf(wider, truth[rows] - half))
        return (above >= (1 - LEVEL) / 2) & (below <= (1 + LEVEL) / 2)

    def coverage(inflation: float, columns: Tensor) -> float:
        inside = torch.cat([is_inside(rows, inflation) for rows in parts])
        return float(inside[hidden & columns].double().mean())

    found = torch.ones(len(half))
    for columns, low in ((half == 0, 1.0), (half > 0, MIN_INFLATION)):
        if int((hidden & columns).sum()) < MIN_CELLS:
            continue
        high = low
        if coverage(low, columns) < LEVEL:
            high = MAX_INFLATION
            for _ in range(BISECTIONS):
                middle = (low * high) ** 0.5
                low, high = (low, middle) if coverage(middle, columns) >= LEVEL else (middle, high)
        found[columns] = high
    return tuple(found.tolist())


Form = Literal["auto", "decoder_mean", "sample", "integrated"]

INDEX_STREAM, CELL_STREAM = 1, 16  # separate streams of noise for different purposes
MAX_ROWS = 256  # size of a chunk; smaller numbers of rows are padded to it
# Parameters of a chunk: wide rows come in smaller chunks, or few of them would be padded to many.
MAX_BLOCK = 2**16
MAX_ATTEMPTS = 64  # maximum number of attempts to draw a missing cell


@dataclass(frozen=True)
class WeightDiagnostics:
    r"""Diagnostics of the importance weights of each row.

    Shapes
    ------
    ess : :math:`(N)`, how many draws of equal weight the draws are worth
    pareto_k : :math:`(N)`, the shape of the tail of the weights; above 0.7 they cannot be trusted
    """

    ess: Tensor
    pareto_k: Tensor


@dataclass(frozen=True)
class ImportanceSampler:
    r"""Computes expectations, quantiles and draws of missing cells from weighted latent draws.

    .. math:: \mathrm{E}[h(x_m) \mid x_o] \approx \sum_a \alpha_a \, \mathrm{E}[h(x_m) \mid z_a]

    Under a mask model, :math:`\alpha` depends on the missing cells, and the expectation given :math:`z_a`
    must be conditional on the mask as well. It is computed by quadrature for self-masking models
    (``"integrated"``), or replaced by the cells that were drawn with the latent and weighted with it
    (``"sample"``). The decoder's means, which ignore this (``"decoder_mean"``, equation 17 of the paper),
    are then inconsistent.

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
    effort : {"adaptive", "fixed"}
        Means and quantiles use as many draws of a row as it needs (``"adaptive"``), see
        `WeightedDrawSource`, or all, and every row tries a proposal of its own (``"fixed"``), which takes
        several times as long. Draws and bounds of densities use all latents in any case.
    interval_inflation : tuple of float
        Factor, per numeric column, by which predictive scales are inflated, see
        `halfseen.latent.importance`; it concerns quantiles and draws (these are never made narrower) of
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
    effort: Effort = "adaptive"
    interval_inflation: tuple[float, ...] = ()

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
    def mean_and_quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns what `mean` and `quantiles` do, from latents that are decoded once."""

        def both(rows: Incomplete, _: Tensor) -> Tensor:
            found, counts = self._source.all_of(rows, frugal=True)
            expected = self._expected(found.parameters, found.completed)
            mean = torch.einsum("an,and->nd", found.log_w.exp(), expected)
            mean = torch.where(rows.observed, rows.x, mean)
            quantiles = self._quantiles_from(found, counts, probabilities)
            return torch.cat([mean[None], functional.pad(quantiles, (0, rows.n_features - n_numbers))])

        n_numbers = len(self._number_features)
        found = self.by_rows(batch, both, dim=1)
        return found[0], found[1:, :, :n_numbers]

    @torch.no_grad()
    def draws(self, batch: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns rows (M, N, D) with missing cells drawn jointly, by resampling; noise is the rows'."""
        return self.by_rows(batch, lambda rows, index: self._draws(rows, keys[index.numpy()], n_draws), dim=1)

    @torch.no_grad()
    def log_prob(self, batch: Incomplete) -> Tensor:
        r"""Returns a lower bound (N) of :math:`\log p(x_o)`, the IWELBO of all draws, without the mask."""
        return self.by_rows(batch, lambda rows, _: self._log_prob(rows), keeps_draws=False)

    @torch.no_grad()
    def weight_diagnostics(self, batch: Incomplete) -> WeightDiagnostics:
        """Returns the effective number of draws and the shape of the weights' tail, of each row."""
        log_alpha = self.by_rows(batch, lambda rows, _: self._log_alpha(rows), dim=1, keeps_draws=False)
        return WeightDiagnostics(effective_sample_size(log_alpha), pareto_k(log_alpha))

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
        found, _ = self._source.all_of(batch, frugal=True)
        observation, weights = self.model.observation, found.log_w.exp()
        factors = choose_inflation(observation, found.parameters, weights, truth, hidden, half)
        return replace(self, interval_inflation=factors)

    # ------------------------------------------------------------------------------- some rows at a time

    def _mean(self, rows: Incomplete) -> Tensor:
        """A running average: weights are relative to the largest so far."""
        top = torch.full((len(rows),), -torch.inf, dtype=rows.x.dtype)
        total, sums = torch.zeros_like(top), torch.zeros_like(rows.x)
        for piece in self._source.pieces(rows, frugal=True):
            index, found = piece.rows, piece.found
            higher = torch.maximum(top[index], found.log_w.amax(dim=0))
            shrink, weights = (top[index] - higher).exp(), (found.log_w - higher).exp()  # (n), (A, n)
            added = torch.einsum("an,and->nd", weights, self._expected(found.parameters, found.completed))
            sums[index] = sums[index] * shrink[:, None] + added
            total[index] = total[index] * shrink + weights.sum(dim=0)
            top[index] = higher
        return torch.where(rows.observed, rows.x, sums / total[:, None])

    def _quantiles(self, rows: Incomplete, probabilities: Sequence[float]) -> Tensor:
        return self._quantiles_from(*self._source.all_of(rows, frugal=True), probabilities)

    def _quantiles_from(self, found: WeightedDraws, counts: Tensor, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, n_numeric); of each row, the first draws count."""
        shape = len(probabilities), len(counts), len(self._number_features)
        result = found.log_w.new_empty(shape)
        for n_draws in counts.unique().tolist():
            index = (counts == n_draws).nonzero().squeeze(1)
            result[:, index] = self._quantiles_of(found.of(n_draws, index), probabilities)
        return result

    def _quantiles_of(self, found: WeightedDraws, probabilities: Sequence[float]) -> Tensor:
        observation = self.model.observation
        if self._form == "sample":
            assert found.completed is not None
            atoms = found.completed[..., self._number_features]  # (A, N, J)
            return weighted_quantiles(atoms, found.log_w.exp()[..., None].expand_as(atoms), probabilities)
        if self._form == "integrated":
            cells = TiltedCells.of(observation, self._self_mask, found.parameters)
            weights = (cells.log_weights + found.log_w[..., None]).exp()  # (Q, A, N, J)
            return weighted_quantiles(cells.values.flatten(0, 1), weights.flatten(0, 1), probabilities)
        inflated = observation.inflated(found.parameters, self.interval_inflation)
        return mixture_quantiles(observation, inflated, found.log_w.exp(), probabilities)

    def _draws(self, rows: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        if self._form == "sample":
            return self._resampled_cells(rows, keys, n_draws)
        found, _ = self._source.all_of(rows, frugal=False)
        drawn = []
        for s in range(n_draws):
            chosen = _choose(found.log_w, keys, s)  # (N)
            parameters = found.parameters[chosen, torch.arange(len(rows))]  # (N, P)
            drawn.append(torch.where(rows.observed, rows.x, self._draw_cells(parameters, keys, s)))
        return torch.stack(drawn)

    def _resampled_cells(self, rows: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns cells that were drawn with their latents, by noise that belongs to the rows."""
        n_noise = self.model.observation.n_noise
        cells = np.stack(
            [row_uniforms(keys, a, n_noise, CELL_STREAM) for a in range(self._source.noise.n_draws)]
        )
        found, _ = self._source.all_of(rows, torch.from_numpy(cells).to(rows.x.dtype), frugal=False)
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
            parameters = observation.inflated(
                parameters, [max(1.0, factor) for factor in self.interval_inflation]
            )
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
        for piece in self._source.pieces(rows, mask_weight=0.0, unbiased=True):
            total = total.logaddexp(piece.found.log_w.logsumexp(dim=0))
        return total

    def _log_alpha(self, rows: Incomplete) -> Tensor:
        pieces = self._source.pieces(rows, unbiased=True)
        return torch.cat([piece.found.log_w for piece in pieces]).log_softmax(dim=0)

    def _expected(self, parameters: Tensor, completed: Tensor | None) -> Tensor:
        """Returns what each draw expects of features (A, N, D)."""
        if self._form == "sample":
            assert completed is not None
            return completed
        observation = self.model.observation
        if self._form != "integrated":
            return observation.mean(parameters)
        return TiltedCells.of(observation, self._self_mask, parameters).mean

    def by_rows(
        self,
        batch: Incomplete,
        function: Callable[[Incomplete, Tensor], Tensor],
        dim: int = 0,
        *,
        keeps_draws: bool = True,
    ) -> Tensor:
        """Returns the values of a function of rows, in chunks of one size: other shapes round differently.

        With `keeps_draws`, all decoded draws are needed together.
        """
        size = self._rows_at_once(keeps_draws=keeps_draws)
        starts = range(0, max(1, len(batch)), size)

        def part(start: int) -> Tensor:
            index = torch.arange(start, start + size if len(batch) else start).clamp(max=len(batch) - 1)
            return function(batch[index], index).narrow(dim, 0, min(size, len(batch) - start))

        result: Tensor | None = None
        at_most = max(1, memory_budget() // (SHARE_OF_BUDGET * DRAW_BYTES))
        for start, found in zip(starts, map_in_threads(part, starts, at_most=at_most), strict=True):
            if result is None:  # filled piece by piece, as a list of pieces would need twice the memory
                result = found.new_empty(*found.shape[:dim], len(batch), *found.shape[dim + 1 :])
            result.narrow(dim, start, found.shape[dim]).copy_(found)
            report_share((start + found.shape[dim]) / max(1, len(batch)))
        assert result is not None
        return result

    # ------------------------------------------------------------------------ what the settings determine

    @cached_property
    def _form(self) -> str:
        if self.model.mask_model.is_ignorable:
            return "decoder_mean"
        return self.model.mask_term if self.form == "auto" else self.form

    @cached_property
    def _source(self) -> WeightedDrawSource:
        model = self.model
        if not model.mask_model.is_ignorable:  # the published form weights draws by their cells
            model = model.with_mask_term("integrated" if self._form == "integrated" else "sample")
        return WeightedDrawSource(model, self.n_draws, self.seed, adapts=self.adapts, effort=self.effort)

    @cached_property
    def _number_features(self) -> list[int]:
        """The feature of each column of numbers."""
        owners = self.model.observation.columns_of_features.tolist()
        return [owners.index(column) for column in self.model.observation.numeric]

    @property
    def _self_mask(self) -> SelfMaskModel:
        return cast(SelfMaskModel, self.model.mask_model)

    def _rows_at_once(self, *, keeps_draws: bool) -> int:
        """Returns the number of rows whose stored draws fit into the memory that is planned for a thread."""
        observation = self.model.observation
        numbers = 2 * self.model.n_latent + 6
        if keeps_draws:
            numbers += observation.n_parameters + 4 * observation.n_features
        if keeps_draws and self._form == "integrated":
            numbers += 5 * N_NODES * observation.n_columns
        most = min(MAX_ROWS, max(1, MAX_BLOCK // observation.n_parameters))
        return min(most, max(1, DRAW_BYTES // (8 * numbers * self.n_draws)))


def _choose(log_alpha: Tensor, keys: Keys, draw: int) -> Tensor:
    """Returns the draw (N) at which the cumulated weights (A, N) pass the rows' uniforms."""
    uniforms = torch.from_numpy(row_uniforms(keys, draw, 1, INDEX_STREAM)).to(log_alpha.dtype)  # (N, 1)
    return choose_by_cdf(log_alpha.exp().T, uniforms).squeeze(1)
