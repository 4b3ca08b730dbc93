"""Fitting chained trees to hidden cells, with rows held out for the residuals.

Every observed cell of the training rows is hidden once, together with some of the other cells of its row.
The trees of a column learn to predict its hidden cells from rows in which these cells are missing, as in
`transform`. No input depends on the cell to be predicted, and columns that are complete in training can be
predicted from rows with missing values. The rows are divided into folds: trees are grown on all folds but
one, residuals are computed on the fold left out, and predictions for new rows are means over the folds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import torch

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._threads import map_in_threads
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.tabular import TabularGaussian
from halfseen.training.progress import is_over
from halfseen.trees.forest import Forest
from halfseen.trees.growth import Growth
from halfseen.trees.heads import (
    LARGEST_SPREAD,
    PROBABILITY_FLOOR,
    SMALLEST_SPREAD,
    Head,
    LevelHead,
    NumberHead,
    Windows,
    as_scores,
    predict_cell,
    relative_units,
)
from halfseen.trees.tabular import MAX_LEVELS, Basis, Round, TabularTrees

N_WINDOWS, N_ATOMS, WINDOW = 24, 60, 60
MATCHED_SHARE, MATCHED_VALUES = 0.1, 30
REPEATED_SHARE, MAX_VALUES = 0.5, 1_000  # with more values, the nearest one is near anyway
LEVELS = (np.arange(20) + 0.5) / 20  # of quantiles by which distributions are compared


@dataclass(frozen=True)
class HeldOut:
    """Held-out cells of a column, with predictions by trees that were not grown on them.

    Shapes
    ------
    location, spread : (N), in units of `scale`
    cells : (N), in the units of the table
    fold : (N)
    """

    location: Floats
    spread: Floats
    cells: Floats
    fold: Integers
    scale: float

    def of(self, kept: Booleans) -> "HeldOut":
        """Returns part of the cells."""
        return HeldOut(self.location[kept], self.spread[kept], self.cells[kept], self.fold[kept], self.scale)


def find_windows(held: HeldOut, matching: bool | None) -> Windows:
    """Returns the distribution; with None, the one that predicts the cells of each fold best.

    The candidates then include predictions that are moved to the nearest observed value, in columns with
    repeated values, and matching, in columns with a frequent value or with few distinct values.
    """
    if matching is not None:
        return _windows(held, matched=matching, moved=False)
    kinds = [(False, False)]
    kinds += [(False, True)] if _repeats(held.cells) else []
    kinds += [(True, False)] if _may_match(held.cells) else []
    losses = [_loss(held, *kind) for kind in kinds] if len(kinds) > 1 else [0.0]
    matched, moved = kinds[int(np.argmin(losses))]
    return _windows(held, matched=matched, moved=moved)


def _loss(held: HeldOut, matched: bool, moved: bool) -> float:
    """Returns the sum of quantile losses of the cells of each fold, under windows of the other folds."""
    total = 0.0
    for f in np.unique(held.fold):
        rest, own = held.of(held.fold != f), held.of(held.fold == f)
        if len(rest.cells):
            windows = _windows(rest, matched=matched, moved=moved)
            found = windows.quantiles(own.location, own.spread, LEVELS[:, None], own.scale)
            below = own.cells / own.scale - found / own.scale
            total += float(np.maximum(LEVELS[:, None] * below, (LEVELS[:, None] - 1) * below).sum())
    return total


def _windows(held: HeldOut, *, matched: bool, moved: bool) -> Windows:
    """Returns windows of cells with similar locations."""
    residual = (held.cells / held.scale - held.location) / held.spread
    order = np.argsort(held.location, kind="stable")
    n = len(order)
    width = min(n, max(WINDOW, n // 10))
    starts = np.unique(np.linspace(0, n - width, N_WINDOWS if n > width else 1).round().astype(np.int64))
    places = (np.arange(N_ATOMS) + 0.5) / N_ATOMS
    centres, atoms = [], []
    for start in starts:
        cells = order[start : start + width]
        centres.append(float(held.location[cells].mean()))
        if matched:
            atoms.append(np.quantile(held.cells[cells], places, method="inverted_cdf"))
        else:
            found = np.quantile(residual[cells], places)
            atoms.append(found - found.mean())
    values = np.unique(held.cells) if moved else np.zeros(0)
    return Windows(np.array(centres), np.stack(atoms), matched, values)


def _repeats(cells: Floats) -> bool:
    """Whether at least half of the cells have repeated values, and there are not too many such values."""
    counts = np.unique(cells, return_counts=True)[1]
    return bool(len(counts) <= MAX_VALUES and counts[counts > 1].sum() >= REPEATED_SHARE * len(cells))


def _may_match(cells: Floats) -> bool:
    """Whether draws may be observed values of similar rows: with a frequent value, or with few values."""
    counts = np.unique(cells, return_counts=True)[1]
    return bool(counts.max() >= MATCHED_SHARE * len(cells) or len(counts) <= MATCHED_VALUES)


N_PASSES = 4  # in each, part of the observed cells are hidden
SPARSE_PASSES = 2  # of some rows, all cells are hidden within the first passes, more of them at a time
N_FOLDS = 3
MAX_CELLS = 2_000_000  # of training rows
MIN_EXAMPLES = 40  # observed cells of a column; with fewer, it is left to the Gaussian
UNEQUAL = 3.0  # ratio of the Gaussian's standard deviations from which units of each row are tried; a guess
UNEQUAL_SHARE = 0.05  # of the cells, whose standard deviations may be larger or smaller than those compared
MIN_CLASS = 12  # observed cells of a level; with fewer, trees do not know it


@dataclass(frozen=True)
class TreeSettings:
    """The parameters of `TreeImputer` that concern fitting."""

    n_rounds: int
    max_predictors: int
    max_rows: int
    matching: bool | None
    growth: Growth
    limits: Mapping[int, Integers] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """Training rows with hidden cells, once for each pass.

    Shapes
    ------
    codes : (N, C)
    hidden_in : (N, C), the pass in which an observed cell is hidden, -1 where the cell is missing
    fold : (N), of each row
    bases : for each pass, rows as they are completed without the hidden cells
    """

    codes: Incomplete
    hidden_in: Integers
    fold: Integers
    bases: Sequence[Basis]


def fit_trees(
    columns: Sequence[Column],
    codes: Incomplete,
    gaussian: TabularGaussian,
    settings: TreeSettings,
    generator: torch.Generator,
) -> TabularTrees:
    """Returns the model of codes (N, C) that starts from a Gaussian."""
    model = TabularTrees.without_trees(columns, codes, gaussian, settings.limits)
    if len(columns) < 2 or len(codes) < MIN_EXAMPLES:
        return model
    training = _hide(model, codes, settings, generator)
    rounds: list[Round] = []
    for r in range(settings.n_rounds):
        is_last = r + 1 == settings.n_rounds
        fit = partial(_fit_column, model, training, settings=settings, is_last=is_last)
        found = [one for one in map_in_threads(fit, range(len(columns))) if one is not None]
        if not found or (rounds and is_over()):
            break
        rounds.append({one.head.column: one.head for one in found})
        if not is_last:
            training = _advance(training, found)
    return replace(model, rounds=tuple(rounds))


def _hide(
    model: TabularTrees, codes: Incomplete, settings: TreeSettings, generator: torch.Generator
) -> Training:
    """Returns training rows, a random subsample if there are too many, with their cells hidden in passes."""
    n_columns = codes.x.shape[1]
    n_rows = min(len(codes), settings.max_rows, MAX_CELLS // n_columns)
    if n_rows < len(codes):
        codes = codes[torch.randperm(len(codes), generator=generator)[:n_rows].sort().values]
    rank = torch.rand(codes.x.shape, generator=generator).argsort(dim=1).argsort(dim=1)
    few = torch.rand(n_rows, 1, generator=generator) < 0.5
    hidden_in = torch.where(codes.observed, rank % torch.where(few, SPARSE_PASSES, N_PASSES), -1)
    bases = []
    for k in range(N_PASSES):
        shown = Incomplete(codes.x, codes.observed & (hidden_in != k))
        bases.append(model.start(shown))
    fold = torch.randperm(n_rows, generator=generator) % N_FOLDS
    return Training(codes, hidden_in.numpy(), fold.numpy(), bases)


@dataclass(frozen=True)
class _Grown:
    """The trees of a column, and those of each fold, which predict the rows that they were not grown on."""

    head: Head
    of_folds: Sequence[Head]


@dataclass(frozen=True)
class _Examples:
    """The observed cells of a column, with the inputs of trees from the pass in which each is hidden.

    Shapes
    ------
    inputs : (N, D), of which `categorical` are groups of levels
    target : (N), numbers in units of the scale of their column, or groups of levels
    cells : (N), in the units of the table
    fold : (N), of the row of each cell
    """

    column: int
    scale: float
    predictors: Integers
    inputs: Floats
    target: npt.NDArray[Any]
    cells: Floats
    fold: Integers
    categorical: Sequence[int]

    @classmethod
    def of(cls, model: TabularTrees, training: Training, c: int, max_predictors: int) -> "_Examples":
        """Gathers the examples of a column."""
        rows = np.flatnonzero(training.hidden_in[:, c] >= 0)
        predictors = _choose_predictors(model, c, max_predictors)
        parts = np.stack([basis.inputs(c, predictors, rows) for basis in training.bases])
        inputs = parts[training.hidden_in[rows, c], np.arange(len(rows))]
        cells = training.codes.x[:, c].numpy()[rows]
        target: npt.NDArray[Any] = cells / model.scale[c]
        if c in model.blocks:
            target = model.blocks[c].group.numpy()[target.astype(np.int64)]
        unordered = {block.column for block in model.gaussian.features.blocks}
        categorical = [i for i, j in enumerate(predictors) if j in unordered]
        fold, scale = training.fold[rows], float(model.scale[c])
        return cls(c, scale, predictors, inputs, target, cells, fold, categorical)

    def folds(self) -> Iterator[tuple[Booleans, Booleans]]:
        """Yields which examples trees are grown on, and which are held out."""
        for f in range(N_FOLDS):
            yield self.fold != f, self.fold == f


def _fit_column(
    model: TabularTrees, training: Training, c: int, settings: TreeSettings, *, is_last: bool
) -> _Grown | None:
    """Returns the trees of a column, None if it has too few observed cells or too many levels."""
    if is_over():
        return None
    n_groups = model.blocks[c].n_groups if c in model.blocks else 0
    if (training.hidden_in[:, c] >= 0).sum() < MIN_EXAMPLES or n_groups > MAX_LEVELS:
        return None
    examples = _Examples.of(model, training, c, settings.max_predictors)
    if n_groups:
        return _fit_levels(examples, n_groups, settings.growth)
    return _fit_numbers(examples, settings, is_last=is_last)


def _choose_predictors(model: TabularTrees, c: int, most: int) -> Integers:
    """Returns the predictors of a column: those with the highest correlation under the Gaussian."""
    others = model.limits.get(c, np.delete(np.arange(len(model.columns)), c))
    if len(others) <= most:
        return others
    features, joint = model.gaussian.features, model.gaussian.gaussian
    assert isinstance(joint, Gaussian)  # values are assumed to be missing at random
    scale = joint.variance.clamp(min=1e-12).sqrt()
    owner = np.empty(features.n_features, dtype=np.int64)
    owner[: len(features.numeric)] = features.numeric
    for block in features.blocks:
        owner[block.start : block.stop] = block.column
    own = torch.from_numpy(np.flatnonzero(owner == c))
    strength = (joint.covariance_of(own) / scale[own, None] / scale).abs().amax(dim=0).numpy()
    best = np.zeros(len(model.columns))
    np.maximum.at(best, owner, strength)
    return np.sort(others[np.argsort(-best[others], kind="stable")[:most]])


def _fit_numbers(examples: _Examples, settings: TreeSettings, *, is_last: bool) -> _Grown:
    """Returns the trees of a column of numbers; only those of the last round also predict the scale.

    If the Gaussian knows some cells far better than others, corrections in units of its standard deviations
    are tried too, and those units are used that predict held-out cells better.
    """
    plain = _fit_corrections(examples, settings, relative=False, is_last=is_last)
    units = relative_units(examples.inputs)
    low, high = np.quantile(units, [UNEQUAL_SHARE, 1 - UNEQUAL_SHARE])
    best = plain
    if high > UNEQUAL * low:
        scaled = _fit_corrections(examples, settings, relative=True, is_last=is_last)
        best = min(plain, scaled, key=lambda one: one.loss)
    held = HeldOut(best.location, best.spread, examples.cells, examples.fold, examples.scale)
    windows = find_windows(held, settings.matching if is_last else False)
    column, predictors = examples.column, examples.predictors
    folds = [
        NumberHead(column, predictors, best.unit, best.relative, pair, one, other, windows)
        for pair, one, other in zip(best.constants, best.location_trees, best.spread_trees, strict=True)
    ]
    means, trees = best.constants.mean(axis=0), (_averaged(best.location_trees), _averaged(best.spread_trees))
    return _Grown(NumberHead(column, predictors, best.unit, best.relative, means, *trees, windows), folds)


@dataclass(frozen=True)
class _Corrections:
    """Corrections of the previous prediction of numbers, with the predictions of held-out cells.

    Shapes
    ------
    constants : (F, 2), of location and spread in each fold
    location, spread : (N), of held-out cells, in units of the scale of the column
    target : (N), the held-out cells
    """

    unit: float
    relative: bool
    constants: Floats
    location_trees: Sequence[Forest]
    spread_trees: Sequence[Forest]
    location: Floats
    spread: Floats
    target: Floats

    @property
    def loss(self) -> float:
        """The negative log-likelihood of the held-out cells if errors have a Laplace distribution.

        A sum of errors would hardly depend on cells that are known well, which this weighs like the others.
        """
        return float((np.log(self.spread) + np.abs(self.target - self.location) / self.spread).sum())


def _fit_corrections(
    examples: _Examples, settings: TreeSettings, *, relative: bool, is_last: bool
) -> _Corrections:
    inputs, target, growth = examples.inputs, examples.target, settings.growth
    unit = 1.0 if relative else float(target.std()) or 1.0
    units = unit * relative_units(inputs) if relative else np.full(len(target), unit)
    error = (target - inputs[:, -2]) / units
    change, forests, constants = _cross_fit(examples, error, growth)
    sizes = np.abs(error - change)
    typical, spreads = np.full(N_FOLDS, max(float(sizes.mean()), 1e-12)), [Forest.empty()] * N_FOLDS
    spread = np.full(len(sizes), typical[0])
    if is_last:
        few = -(-growth.max_iter // 2)
        calm = replace(growth, max_iter=few, min_samples_leaf=2 * growth.min_samples_leaf)
        spread, spreads, constant = _cross_fit(examples, sizes, calm)
        typical = np.maximum(constant, 1e-12)
    size = np.clip(spread, SMALLEST_SPREAD * typical.mean(), LARGEST_SPREAD * typical.mean())
    location = inputs[:, -2] + units * change
    pairs = np.stack([constants, typical], axis=1)
    return _Corrections(unit, relative, pairs, forests, spreads, location, units * size, target)


def _cross_fit(examples: _Examples, target: Floats, growth: Growth) -> tuple[Floats, list[Forest], Floats]:
    """Returns held-out predictions (N), and the trees and the constant of each fold."""
    predicted, forests, constants = np.empty(len(target)), [], []
    for grown, held in examples.folds():
        forest, constant = growth.regress(examples.inputs[grown], target[grown], examples.categorical)
        predicted[held] = forest.sums(examples.inputs[held])[:, 0] + constant
        forests.append(forest)
        constants.append(float(constant[0]))
    return predicted, forests, np.array(constants)


def _fit_levels(examples: _Examples, n_groups: int, growth: Growth) -> _Grown:
    inputs, groups, fold = examples.inputs, examples.target, examples.fold
    column, predictors = examples.column, examples.predictors
    counts = np.stack([np.bincount(groups[fold != f], minlength=n_groups) for f in range(N_FOLDS)])
    classes = np.flatnonzero((counts.sum(axis=0) >= 2 * MIN_CLASS) & (counts.min(axis=0) > 0))
    if len(classes) < 2:
        as_before = np.array([0.0, 1.0])
        plain = LevelHead(column, predictors, n_groups, classes[:0], np.zeros(0), Forest.empty(), as_before)
        return _Grown(plain, [plain] * N_FOLDS)
    known, place = np.isin(groups, classes), np.searchsorted(classes, groups)
    scores, forests, constants = np.zeros((len(groups), len(classes))), [], []
    for grown, held in examples.folds():
        rows = grown & known
        forest, constant = growth.classify(inputs[rows], place[rows], examples.categorical)
        scores[held] = as_scores(constant + forest.sums(inputs[held], len(constant)))
        forests.append(forest)
        constants.append(constant)
    before = np.log(np.maximum(inputs[known, -n_groups:][:, classes], PROBABILITY_FLOOR))
    weights = _calibrate(scores[known], before, place[known])
    folds = [
        LevelHead(column, predictors, n_groups, classes, constant, forest, weights)
        for constant, forest in zip(constants, forests, strict=True)
    ]
    mean = np.mean(constants, axis=0)
    head = LevelHead(column, predictors, n_groups, classes, mean, _averaged(forests), weights)
    return _Grown(head, folds)


def _calibrate(scores: Floats, before: Floats, place: Integers) -> Floats:
    """Returns the exponents of two distributions (N, K) whose product has the best held-out likelihood."""
    rows = np.arange(len(place))

    def loss(weights: Floats) -> tuple[float, Floats]:
        pooled = weights[0] * scores + weights[1] * before
        pooled = pooled - pooled.max(axis=1, keepdims=True)
        shares = np.exp(pooled)
        total = shares.sum(axis=1, keepdims=True)
        shares /= total
        value = (np.log(total[:, 0]) - pooled[rows, place]).mean()
        slopes = [((shares * part).sum(axis=1) - part[rows, place]).mean() for part in (scores, before)]
        away = weights - np.array([0.9, 0.1])
        return float(value + 5.0 / len(rows) * (away**2).sum()), np.array(slopes) + 10.0 / len(rows) * away

    found = scipy.optimize.minimize(loss, np.array([0.9, 0.1]), jac=True, bounds=[(0.0, 3.0)] * 2)
    weights: Floats = np.asarray(found.x, dtype=np.float64)
    return weights


def _averaged(forests: Sequence[Forest]) -> Forest:
    """Returns the trees of all folds, rescaled so that their sum is the mean over the folds."""
    return Forest.joined([replace(forest, value=forest.value / len(forests)) for forest in forests])


def _advance(training: Training, grown: Sequence[_Grown]) -> Training:
    """Returns training rows whose missing and hidden cells are predicted by trees that did not see them."""
    bases = []
    for k, basis in enumerate(training.bases):
        absent = (training.hidden_in < 0) | (training.hidden_in == k)
        refined = basis.copy()
        for one in grown:
            c = one.head.column
            for f, head in enumerate(one.of_folds):
                rows = np.flatnonzero(absent[:, c] & (training.fold == f))
                if len(rows):
                    inputs = basis.inputs(c, head.predictors, rows)
                    refined.update(c, rows, predict_cell(head, inputs))
        bases.append(refined)
    return replace(training, bases=bases)
