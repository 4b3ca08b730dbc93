"""Numbers that are nearly copies of each other, and their imputation by a linear relation.

A weight in two units, a price with and without tax, or a total with one large part differ from another column
by a residual that is far smaller than their spread. Models whose components or likelihoods have a smallest
width draw such a column much too widely given the other, and so do models that transform each column by
itself. After a fit, observed values of such columns are therefore hidden, and the intervals of the model for
them are compared with those of a linear relation to the other column. Where the intervals of the model are
far worse, the relation takes its place.

The relation is a regression line with the empirical distribution of its residuals, for several ranges of the
other column. The dependence of these residuals on further columns is neglected: a model that knows it has
narrower intervals, and keeps the column.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfseen._random import Keys, row_keys, row_uniforms
from halfseen.base.completion import TabularCompletion, central, enclosing
from halfseen.data.columns import Column
from halfseen.data.incomplete import Incomplete, Standardizer

LOGGER = logging.getLogger(__name__)

NARROWEST = 0.1  # residual, in standard deviations, of a near-copy: a correlation of 0.995
MIN_COMMON = 20  # rows that have both values: with fewer, a high correlation may be chance
MOST_ROWS = 10_000  # rows from which correlations are computed, chosen by a hash of their cells; a guess
MOST_PRODUCTS = 2e10  # rows times squared columns of correlations, a few seconds: wide tables use fewer rows
AT_ONCE = 2**22  # correlations in memory at a time
MOST_SOURCES = 5  # columns from which a column may be imputed, those with the smallest residuals; a guess
CHECKED_CELLS = 1_000  # observed values that are hidden to compare intervals, over all columns
MOST_CHECKED, LEAST_CHECKED = 100, 20  # most and fewest of them in one column
LEVEL = 0.9  # probability of the intervals that are compared
TOO_WIDE = 1.5  # ratio of interval scores; chosen so that the error of a fit to few rows does not count
EXACT = 1e-6  # interval score, in standard deviations, below which differences do not matter
N_ATOMS = 40  # quantiles that represent the distribution of residuals
RANGE_ROWS = 50  # rows in each range of the source that has residuals of its own
MOST_RANGES = 10
STREAM = 1 << 26  # noise of residuals, apart from that of models


@dataclass(frozen=True)
class NearCopy:
    r"""A linear relation by which a column, the target, is imputed from another, the source.

    .. math:: z_t = b \, z_s + \varepsilon, \qquad \varepsilon \sim \hat F_{r(z_s)}

    Here :math:`z` are standardised values, and :math:`r` is the range to which the source belongs.

    Parameters
    ----------
    target, source : int
        The positions of the columns.
    residual : float
        The standard deviation of the residual, in standard deviations of the target.
    slope : float
        The factor b.
    units : tuple of 4 floats
        Location and scale of the target, then those of the source.
    edges : Tensor
        The R - 1 ascending limits of the ranges.
    atoms : Tensor
        Ascending quantiles (R, A) of the residuals in each range.
    """

    target: int
    source: int
    residual: float
    slope: float
    units: tuple[float, float, float, float]
    edges: Tensor
    atoms: Tensor

    @classmethod
    def fit(cls, scaled: Tensor, scaler: Standardizer, target: int, source: int) -> "NearCopy":
        """Fits the relation to standardised values (N, C) of rows in which both columns are observed."""
        z_target, z_source = scaled[:, target].contiguous(), scaled[:, source].contiguous()
        centred = z_source - z_source.mean()
        slope = float(centred @ z_target / (centred @ centred))
        residual = z_target - slope * z_source
        n_ranges = min(MOST_RANGES, max(1, len(scaled) // RANGE_ROWS))
        places = torch.arange(1, n_ranges, dtype=torch.float64) / n_ranges
        edges = z_source.quantile(places).unique() if n_ranges > 1 else places
        owner = torch.searchsorted(edges, z_source)
        if len(edges) and int(owner.bincount(minlength=len(edges) + 1).min()) < MIN_COMMON:
            edges, owner = edges[:0], torch.zeros_like(owner)
        levels = (torch.arange(N_ATOMS, dtype=torch.float64) + 0.5) / N_ATOMS
        atoms = torch.stack([residual[owner == r].quantile(levels) for r in range(len(edges) + 1)])
        units = tuple(float(part[c]) for c in (target, source) for part in (scaler.loc, scaler.scale))
        size = float(residual.std() / z_target.std().clamp(min=1e-12))
        return cls(target, source, size, slope, units, edges, atoms)  # type: ignore[arg-type]

    def mean(self, source: Tensor) -> Tensor:
        """Returns the expected values (N) of the target, given those of the source."""
        z = self._scaled(source)
        return self._values(z, self.atoms[self._ranges(z)].mean(dim=1))

    def quantiles(self, source: Tensor, levels: Tensor) -> Tensor:
        """Returns quantiles (N) of the target at a level for each value of the source."""
        z = self._scaled(source)
        n_atoms = self.atoms.shape[1]
        place = (levels * n_atoms - 0.5).clamp(0.0, n_atoms - 1.0)
        below = place.floor().long().clamp(max=max(0, n_atoms - 2))
        ranges = self._ranges(z)
        low, high = self.atoms[ranges, below], self.atoms[ranges, (below + 1).clamp(max=n_atoms - 1)]
        return self._values(z, low + (place - below) * (high - low))

    def _scaled(self, source: Tensor) -> Tensor:
        return (source - self.units[2]) / self.units[3]

    def _ranges(self, z: Tensor) -> Tensor:
        return torch.searchsorted(self.edges, z.contiguous())

    def _values(self, z: Tensor, residual: Tensor) -> Tensor:
        return self.units[0] + self.units[1] * (self.slope * z + residual)

    def to_dict(self) -> dict[str, Any]:
        """Returns the relation as values that JSON can hold."""
        numbers = [self.residual, self.slope, *self.units]
        parts = {"numbers": numbers, "edges": self.edges.tolist(), "atoms": self.atoms.tolist()}
        return {"target": self.target, "source": self.source} | parts

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], columns: Sequence[Column]) -> "NearCopy":
        """Rebuilds the relation from what `to_dict` returned; raises an error if it does not fit columns."""
        places = saved["target"], saved["source"]
        if not all(type(c) is int and 0 <= c < len(columns) and columns[c].levels is None for c in places):
            raise ValueError(f"the columns {places!r:.60} are not near-copies")
        numbers, edges, atoms = (
            torch.tensor(saved[name], dtype=torch.float64) for name in ("numbers", "edges", "atoms")
        )
        shapes = numbers.shape == (6,) and edges.ndim == 1 and atoms.ndim == 2 and atoms.shape[1] > 0
        if not shapes or len(atoms) != len(edges) + 1 or places[0] == places[1]:
            raise ValueError(f"the relation of the columns {places!r:.60} has the wrong shape")
        finite = all(bool(one.isfinite().all()) for one in (numbers, edges, atoms))
        ordered = bool((edges.diff() > 0).all()) and bool((atoms.diff(dim=1) >= 0).all())
        residual, slope, *units = numbers.tolist()
        plausible = residual >= 0 and abs(slope) < 1 / NARROWEST and min(units[1], units[3]) > 0
        if not (finite and ordered and plausible and float(atoms.abs().max()) < 1 / NARROWEST**2):
            raise ValueError(f"the relation of the columns {places!r:.60} has impossible numbers")
        return cls(*places, residual, slope, tuple(units), edges, atoms)


@dataclass(frozen=True)
class WithNearCopies:
    """A model of codes (N, C) some of whose columns are imputed by linear relations to others.

    Where no source of a column is observed, its distribution is that of the model. In joint draws the columns
    of such a row then follow from each other: the first from the model, the others from the relations.
    """

    model: TabularCompletion  # completes all other cells
    copies: Sequence[NearCopy]  # the relations, those with the smallest residuals first

    def point(self, codes: Incomplete) -> Tensor:
        """Returns the best single completion (N, C)."""
        result = self.model.point(codes).clone()
        for copy, rows in self._given(codes):
            result[rows, copy.target] = copy.mean(codes.x[rows, copy.source])
        return result

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each cell separately; most probable levels without an order."""
        return self._by_relation(codes, self.model.quantiles(codes, probabilities), probabilities)

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of an interval of each cell separately that has a probability."""
        found = self._by_relation(codes, self.model.interval(codes, level), central(level))
        for copy, rows in self._given(codes):
            mean = copy.mean(codes.x[rows, copy.source])
            found[:, rows, copy.target] = enclosing(found[:, rows, copy.target], mean, level)
        return found

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns joint draws (S, N, C) whose noise is determined by the keys of the rows."""
        result = self.model.draws(codes, keys, n_draws).clone()
        for copy, rows in self._chain(codes.observed):
            own = keys[rows.numpy()]
            for s in range(n_draws):
                levels = torch.from_numpy(row_uniforms(own, s, 1, STREAM + copy.target)[:, 0])
                result[s, rows, copy.target] = copy.quantiles(result[s, rows, copy.source], levels)
        return result

    def level_probabilities(self, codes: Incomplete) -> dict[int, Any]:
        """Returns the probability of each level, for every column with levels."""
        return self.model.level_probabilities(codes)

    def _by_relation(self, codes: Incomplete, found: Tensor, probabilities: Sequence[float]) -> Tensor:
        found = found.clone()
        for copy, rows in self._given(codes):
            source = codes.x[rows, copy.source]
            for q, probability in enumerate(probabilities):
                levels = torch.full_like(source, probability)
                found[q, rows, copy.target] = copy.quantiles(source, levels)
        return found

    def _given(self, codes: Incomplete) -> Iterator[tuple[NearCopy, Tensor]]:
        """Yields relations with the rows whose missing targets follow from observed sources."""
        known = codes.observed.clone()
        for copy in self.copies:
            rows = (~known[:, copy.target] & codes.observed[:, copy.source]).nonzero().squeeze(1)
            if len(rows):
                known[rows, copy.target] = True
                yield copy, rows

    def _chain(self, observed: Tensor) -> Iterator[tuple[NearCopy, Tensor]]:
        """Yields relations with the rows to which they apply, in the order in which values are drawn.

        Of all relations that apply to a row, the one with the smallest residual comes first. If none applies
        and values are missing, one of them is taken from the model.
        """
        known = torch.ones_like(observed)
        targets = sorted({copy.target for copy in self.copies})
        known[:, targets] = observed[:, targets]
        while not bool(known.all()):
            for copy in self.copies:
                rows = (~known[:, copy.target] & known[:, copy.source]).nonzero().squeeze(1)
                if len(rows):
                    known[rows, copy.target] = True
                    yield copy, rows
                    break
            else:
                rows = (~known).any(dim=1).nonzero().squeeze(1)
                known[rows, (~known[rows]).to(torch.int8).argmax(dim=1)] = True


def relate_near_copies(
    columns: Sequence[Column], model: TabularCompletion, codes: Incomplete
) -> list[NearCopy]:
    """Returns the relations that impute near-copies among the columns far better than the model does."""
    copies = sorted(find_near_copies(columns, codes), key=lambda copy: copy.residual)
    found = _better_than(model, codes, copies) if copies else []
    for copy in found:
        names = columns[copy.target].name, columns[copy.source].name
        LOGGER.info("Column %r is a near-copy of %r and imputed from it by a linear relation.", *names)
    return found


def find_near_copies(columns: Sequence[Column], codes: Incomplete) -> list[NearCopy]:
    """Returns linear relations between columns of numbers that are nearly copies of each other.

    A column that has only few values is none, because draws of it are moved to its values; nor is one with
    values that are only known to lie beyond a limit.
    """
    numbers = [c for c, column in enumerate(columns) if _is_plain_number(column)]
    if len(numbers) < 2:
        return []
    n_rows = min(MOST_ROWS, max(MIN_COMMON, int(MOST_PRODUCTS / len(numbers) ** 2)))
    rows = codes[codes.chosen_rows(n_rows)]
    scaler = Standardizer.fit(rows)
    z = torch.where(rows.observed, (rows.x - scaler.loc) / scaler.scale, 0.0)
    seen = rows.observed.double()
    if not _correlated(z[:, numbers], seen[:, numbers]):
        return []  # before values are sorted, which takes longer
    fine = [c for c in numbers if _step(z[rows.observed[:, c], c]) < 2 * NARROWEST]
    found = []
    for target, sources in _correlated(z[:, fine], seen[:, fine]).items():
        for source in sources:
            both = rows.observed[:, fine[target]] & rows.observed[:, fine[source]]
            copy = NearCopy.fit(z[both], scaler, fine[target], fine[source])
            if math.isfinite(copy.residual) and copy.residual < NARROWEST:
                found.append(copy)
    return found


def _is_plain_number(column: Column) -> bool:
    limited = column.censored_below is not None or column.censored_above is not None
    return column.levels is None and column.derived is None and not limited


def _correlated(x: Tensor, seen: Tensor) -> dict[int, list[int]]:
    """Returns, for each feature (N, D) with a near-copy, those with the highest correlations."""
    found: dict[int, list[int]] = {}
    size = max(1, AT_ONCE // max(1, x.shape[1]))
    for start in range(0, x.shape[1], size):
        r, common = _correlations(x, seen, slice(start, start + size))
        residual = (1 - r.square()).clamp(min=0.0).sqrt()
        near = (common >= MIN_COMMON) & (residual < NARROWEST)
        own = torch.arange(len(near))
        near[own, start + own] = False
        for i in near.any(dim=1).nonzero().squeeze(1).tolist():
            order = residual[i].masked_fill(~near[i], math.inf).argsort(stable=True)
            found[start + i] = order[: min(MOST_SOURCES, int(near[i].sum()))].tolist()
    return found


def _better_than(model: TabularCompletion, codes: Incomplete, copies: Sequence[NearCopy]) -> list[NearCopy]:
    """Returns the relations whose intervals are far better than those of the model.

    A relation is used if all sources with smaller residuals are missing, so these are hidden with the target.
    Intervals are compared by their scores: the width, plus 2 / (1 - level) times the distance of the value
    from the interval (Gneiting & Raftery, 2007). The model is far worse if the median or the mean score is.
    """
    hidden: dict[int, list[int]] = {}
    share = min(MOST_CHECKED, max(LEAST_CHECKED, CHECKED_CELLS // len(copies)))
    some, parts, shown = codes[codes.chosen_rows(MOST_ROWS)], [], []
    order = torch.from_numpy(np.argsort(row_keys(some.to_array(), seed=0), kind="stable"))
    for copy in copies:
        both = some.observed[:, copy.target] & some.observed[:, copy.source]
        rows = order[both[order]][:share] if both.sum() > share else both.nonzero().squeeze(1)
        parts.append(some[rows])
        shown.append(parts[-1].observed.clone())
        nearer = hidden.setdefault(copy.target, [copy.target])
        shown[-1][:, nearer] = False
        nearer.append(copy.source)
    x = torch.cat([part.x for part in parts])
    ends = model.interval(Incomplete(x, torch.cat(shown)), LEVEL).split([len(part) for part in parts], dim=1)
    found = []
    for copy, part, of_model in zip(copies, parts, ends, strict=True):
        source, truth, unit = part.x[:, copy.source], part.x[:, copy.target], copy.units[1]
        levels = [torch.full_like(source, level) for level in central(LEVEL)]
        of_relation = [copy.quantiles(source, level) for level in levels]
        one, other = (
            _interval_scores(low / unit, high / unit, truth / unit) + EXACT
            for low, high in (of_model[..., copy.target], of_relation)
        )
        if bool((one.median() > TOO_WIDE * other.median()) | (one.mean() > TOO_WIDE * other.mean())):
            found.append(copy)
    return found


def _interval_scores(low: Tensor, high: Tensor, truth: Tensor) -> Tensor:
    beyond = (low - truth).clamp(min=0.0) + (truth - high).clamp(min=0.0)
    return high - low + 2 / (1 - LEVEL) * beyond


def _step(values: Tensor) -> float:
    """Returns the smallest difference between values; of fewer than two, infinity."""
    steps = values.unique().diff()
    return float(steps.min()) if len(steps) else torch.inf


def _correlations(x: Tensor, seen: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Returns the correlations (P, D) of part of the features with all, and numbers of common rows (P, D)."""
    own, own_seen = x[:, part].mT, seen[:, part].mT
    common = own_seen @ seen
    count = common.clamp(min=1)
    mean, mean_other = own @ seen / count, own_seen @ x / count
    variance = own.square() @ seen / count - mean.square()
    variance_other = own_seen @ x.square() / count - mean_other.square()
    covariance = own @ x / count - mean * mean_other
    return covariance / (variance * variance_other).clamp(min=1e-24).sqrt(), common
