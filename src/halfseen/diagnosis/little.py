r"""Little's test of MCAR: whether rows with different patterns have the same means of observed values."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.stats import chi2

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._random import seed_from, torch_generator
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.diagnosis.cells import Cells, Patterns, group_patterns, missing_names, thin
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import EMSettings, fit_gaussian

MAX_ROWS = 20_000  # with more rows, the covariance is estimated from this many, drawn at random
MAX_FEATURES = 150
MAX_DF = 20_000  # beyond it, the error of a covariance that was estimated from some of the rows matters
RARE = 0.01  # a level with a smaller share of the rows has no indicator of its own
MIN_SHIFT_ROWS = 5  # rows of a pattern below which its shift is not reported
DEPENDENT = 1e-5  # a feature with a smaller share of variance of its own is left out
RARELY_SHARED = 0.3  # share of rows with a unique pattern from which a note on low power is added
CHUNK = 2_000_000  # numbers in memory at once
SMALL = 200_000  # rows times squared features up to which EM runs on until rounding stops it
_EXACT = EMSettings(ridge=0.0, max_iterations=300, tolerance=1e-13)
_ROUGH = EMSettings(ridge=0.0, max_iterations=100, tolerance=1e-6)
_PROBE = EMSettings(ridge=0.01 * DEPENDENT, max_iterations=50, tolerance=1e-3)  # ridge per row


@dataclass(frozen=True)
class Shift:
    """The largest difference between a pattern mean and the overall mean, in standard errors."""

    column: str  # the column; `level` is the level of a column with levels, None for a number
    level: str | None
    shift: float  # the distance in standard deviations of the column
    missing: tuple[str, ...]  # the columns that are missing in the pattern
    n_rows: int  # the number of rows of the pattern


@dataclass(frozen=True)
class LittleTest:
    r"""The outcome of Little's test.

    Attributes
    ----------
    statistic, df, p_value : float
        :math:`d^2`, its degrees of freedom and the p-value of the chi-squared distribution; NaN if `reason`.
    p_value_robust : float
        The p-value adjusted for data with heavier or lighter tails than a Gaussian, see `little_test`.
    effect : float
        :math:`\sqrt{\max(0, d^2 - df) / n}`: the distance, in standard deviations, between the mean of a
        row's pattern and the overall mean, as a root mean square over rows. It does not grow with their
        number.
    largest : Shift or None
        The pattern and column with the clearest shift.
    n_patterns, n_rows : int
        The number of patterns that are compared, and of their rows.
    n_features : int
        The number of numeric features and level indicators that are compared.
    n_single_rows : int
        The number of rows whose pattern no other row has.
    notes : tuple of str
        Restrictions of the test, such as patterns that were left out.
    reason : str or None
        Why there is no test.
    """

    statistic: float = np.nan
    df: int = 0
    p_value: float = np.nan
    p_value_robust: float = np.nan
    effect: float = np.nan
    largest: Shift | None = None
    n_patterns: int = 0
    n_rows: int = 0
    n_features: int = 0
    n_single_rows: int = 0
    notes: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def has_little_power(self) -> bool:
        """Whether so many rows share their pattern with no other that the test can hardly reject."""
        return self.n_single_rows > RARELY_SHARED * self.n_rows


def power_note(n_single: int, n_rows: int) -> str:
    """Returns the sentence on a test in which most rows share their pattern with no other."""
    return f"{n_single:,} of {n_rows:,} rows share their pattern with no other: the test has little power."


def little_test(X: Any, *, random_state: Any = 0) -> LittleTest:
    r"""Tests whether values are missing completely at random (MCAR), by comparing the means of patterns.

    .. math::
        d^2 = \frac{N - 1}{N} \sum_j n_j (\bar{y}_j - \hat{\mu}_{o_j})^\top \hat{\Sigma}_{o_j o_j}^{-1}
        (\bar{y}_j - \hat{\mu}_{o_j}), \qquad df = \sum_j |o_j| - D

    where pattern j has :math:`n_j` rows with observed features :math:`o_j` and mean :math:`\bar{y}_j`, and
    :math:`\hat{\mu}, \hat{\Sigma}` are maximum likelihood estimates under MAR. If values are missing
    completely at random, :math:`d^2` is approximately chi-squared distributed. A small p-value is evidence
    against MCAR; a large one is not evidence for it, in particular with few rows. Neither distinguishes MAR
    from MNAR.

    A level of a column is an indicator; levels of less than 1% of the rows are left to the one level that
    has none. Patterns are of all columns, those without usable values too. Features that others determine are
    left out. Because patterns of few rows make the distribution depend on the tails of the data, there is a
    second p-value, of :math:`d^2` scaled to the variance
    :math:`2\,df + (b - 1) \sum_j |o_j| (|o_j| + 2) / n_j`, with b the mean fourth power of Mahalanobis
    distances over its Gaussian value.

    For tables with more than 20,000 rows, the covariance is estimated on a random subsample of 20,000 rows,
    and the means on all rows. The most frequent patterns are compared, up to 20,000 degrees of freedom;
    because this choice depends on the mask only, the test remains valid.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array of shape (n_rows, n_columns)
        A table with missing values.
    random_state : int, numpy generator or None, default=0
        Seeds the subsample of a large table.

    Returns
    -------
    LittleTest

    References
    ----------
    Little (1988), A test of missing completely at random for multivariate data with missing values, JASA 83.
    Mardia (1970) for b; Satterthwaite (1946) for the scaling.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 3))
    >>> x[x[:, 0] > 0.5, 2] = np.nan
    >>> test = little_test(x)
    >>> test.df, test.p_value < 1e-6, f"{test.effect:.1f}"
    (2, True, '0.7')
    """
    cells = Cells.read(X)
    return run_little(cells, group_patterns(cells.observed), seed_from(random_state))


def run_little(cells: Cells, patterns: Patterns, seed: int) -> LittleTest:
    """Performs the test on a table that is already read and grouped."""
    if len(patterns.counts) < 2:
        return LittleTest(reason="All rows have the same observed columns: there are no patterns to compare.")
    columns, notes = _choose_columns(cells)
    if not columns:
        return LittleTest(reason="No column contains values that can be compared.")
    rows = thin(np.arange(cells.n_rows), MAX_ROWS, np.random.default_rng(seed))
    sample = Incomplete(*(torch.from_numpy(a[rows][:, columns]) for a in (cells.x, cells.observed)))
    features = FeatureMap.fit([cells.columns[c] for c in columns], sample, all_indicators=False)
    batch = features.encode(sample)
    usable = _usable(features, batch)
    model, more = _fit(batch, usable, torch_generator(seed), exact=len(rows) == cells.n_rows)
    if model is None:
        return LittleTest(notes=tuple(notes), reason=more[-1])
    if len(rows) < cells.n_rows:
        notes.append(f"The covariance is estimated from {len(rows):,} rows drawn at random.")
    return _compare(cells, patterns, _Features(features, columns, model.kept), model, (*notes, *more))


def _choose_columns(cells: Cells) -> tuple[list[int], list[str]]:
    """Returns the columns that make features, those with the fewest first, within what is computed."""
    width = {
        k: 1 if column.levels is None or column.kind == "ordinal" else min(len(column.levels) - 1, 30)
        for k, column in enumerate(cells.columns)
        if column.modelled and cells.observed[:, k].any()
    }
    total, chosen = 0, []
    for k in sorted(width, key=lambda k: (width[k], k)):
        total += width[k]
        if total <= MAX_FEATURES:
            chosen.append(k)
    left = len(width) - len(chosen)
    note = f"{left} of {len(width)} columns are left out: at most {MAX_FEATURES} features are compared."
    return sorted(chosen), [note] if left else []


# ---------------------------------------------------------------------------------- mean and covariance


@dataclass(frozen=True)
class _Model:
    """The Gaussian of the kept features, and how much to scale the statistic."""

    loc: Floats
    covariance: Floats
    kept: Integers
    factor: float
    kurtosis: float


def _usable(features: FeatureMap, batch: Incomplete) -> torch.Tensor:
    """Returns the features with spread, and of a column's levels those that are frequent, but for one.

    An indicator of a rare level, or indicators that leave out a rare level, would only measure its rarity.
    """
    usable = (batch.filled().abs().amax(dim=0) > 0) & (batch.observed.sum(dim=0) > 1)
    for block in features.blocks:
        share = features.scaler.loc[block.start : block.stop]
        frequent = share >= RARE
        if bool(frequent.any()) and 1 - float(share[frequent].sum()) < RARE:
            frequent[torch.where(frequent, share, torch.inf).argmin()] = False
        usable[block.start : block.stop] &= frequent
    return torch.nonzero(usable).squeeze(1)


def _fit(
    batch: Incomplete, kept: torch.Tensor, generator: torch.Generator, *, exact: bool
) -> tuple[_Model | None, list[str]]:
    """Fits by EM without shrinkage; features that others determine go first, shrinkage is the last resort."""
    n_rows = len(batch)
    notes: list[str] = []
    if len(kept) == 0:
        return None, ["No column contains values that can be compared."]
    if n_rows < len(kept) + 2:
        return None, [f"{n_rows} rows are too few to compare {len(kept)} features."]
    probe = _run_em(_part(batch, kept), replace(_PROBE, ridge=_PROBE.ridge * n_rows), generator)
    own = torch.from_numpy(_independent(probe)) if probe is not None else torch.arange(len(kept))
    if len(own) < len(kept):
        n_left = len(kept) - len(own)
        notes.append(f"{n_left} of {len(kept)} features are determined by others and are left out.")
        kept = kept[own]
    settings = _EXACT if n_rows * len(kept) ** 2 <= SMALL else _ROUGH
    fitted = _run_em(_part(batch, kept), settings, generator)
    if fitted is None:
        notes.append("The covariance is shrunk because there are few rows: the test is conservative.")
        fitted = _run_em(_part(batch, kept), EMSettings(ridge=1.0), generator)
    if fitted is None:
        return None, ["The covariance of the columns could not be estimated."]
    loss = 1 if exact else len(kept) + 2  # an inverse of other rows' covariance is too large by this
    n_seen = n_rows if exact else n_rows * float(batch.observed[:, kept].double().mean())
    kurtosis = _relative_kurtosis(fitted, _part(batch, kept))
    loc, covariance = fitted.loc.numpy(), fitted.covariance.numpy()
    return _Model(loc, covariance, kept.numpy(), 1 - loss / n_seen, kurtosis), notes


def _run_em(batch: Incomplete, settings: EMSettings, generator: torch.Generator) -> Gaussian | None:
    try:
        gaussian = fit_gaussian(batch, settings, generator=generator).gaussian
    except ValueError:  # singular
        return None
    return gaussian if bool(gaussian.covariance.isfinite().all()) else None


def _part(batch: Incomplete, kept: torch.Tensor) -> Incomplete:
    return Incomplete(batch.x[:, kept], batch.observed[:, kept])


def _independent(gaussian: Gaussian) -> Integers:
    """Returns the features that have variance of their own, by a pivoted Cholesky factorisation."""
    covariance = gaussian.covariance.numpy()
    scale = np.sqrt(np.diag(covariance))
    _, pivots, rank, _ = lapack.dpstrf(covariance / np.outer(scale, scale), tol=DEPENDENT)
    return np.sort(pivots[:rank] - 1).astype(np.int64)


def _relative_kurtosis(gaussian: Gaussian, batch: Incomplete) -> float:
    """Returns the mean squared Mahalanobis distance over its value for a Gaussian."""
    completed = gaussian.conditional_mean(batch) - gaussian.loc
    distance = ((completed @ gaussian.precision) * completed).sum(dim=1)
    n_seen = batch.observed.sum(dim=1).double()
    return float((distance**2).sum() / (n_seen * (n_seen + 2)).sum())


# ------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True)
class _Features:
    """The kept features of a table, one column at a time, so that a large table is never copied."""

    features: FeatureMap
    columns: list[int]
    kept: Integers

    @property
    def sources(self) -> list[tuple[int, int | None]]:
        """The column of the table, and the group of levels if there is one, of each kept feature."""
        all_of_them: list[tuple[int, int | None]] = [(self.columns[c], None) for c in self.features.numeric]
        for block in self.features.blocks:
            all_of_them += [(self.columns[block.column], g) for g in range(block.stop - block.start)]
        return [all_of_them[place] for place in self.kept]

    def sums(self, cells: Cells, label: Integers, n_labels: int) -> Floats:
        """Returns the sum (G, D) of each standardised feature over the rows of each pattern."""
        group_of = {self.columns[block.column]: block.group.numpy() for block in self.features.blocks}
        loc, scale = (t.numpy()[self.kept] for t in (self.features.scaler.loc, self.features.scaler.scale))
        sums = np.zeros((n_labels, len(self.kept)))
        for d, (column, group) in enumerate(self.sources):
            values, seen = cells.x[:, column], cells.observed[:, column]
            if group is not None:
                values = group_of[column][values.astype(np.int64)] == group
            values = np.where(seen, (values - loc[d]) / scale[d], 0.0)
            sums[:, d] = np.bincount(label, values, n_labels + 1)[:-1]
        return sums


def _compare(
    cells: Cells, patterns: Patterns, features: _Features, model: _Model, notes: tuple[str, ...]
) -> LittleTest:
    sources = features.sources
    shown = patterns.observed[:, [column for column, _ in sources]]  # (G, D)
    n_kept = len(patterns.counts)
    if cells.n_rows > MAX_ROWS:
        n_kept = max(2, int(np.searchsorted(np.cumsum(shown.sum(axis=1)), MAX_DF, side="right")))
    if n_kept < len(patterns.counts):
        share = patterns.counts[:n_kept].sum() / cells.n_rows
        notes = (*notes, f"The {n_kept:,} most frequent of {len(patterns.counts):,} patterns are compared, "
                         f"with {share:.1%} of the rows.")  # fmt: skip
    counts, shown = patterns.counts[:n_kept], shown[:n_kept]
    sums = features.sums(cells, np.minimum(patterns.of_row, n_kept), n_kept)
    means = sums / counts[:, None] - model.loc
    distance, loc, rank = _distance(means, shown, counts, model.covariance)
    n_shown = shown.sum(axis=1)
    n_rows, df = int(counts[n_shown > 0].sum()), int(n_shown.sum()) - rank
    if df < 1:
        return LittleTest(notes=notes, reason="No column is observed in two patterns: nothing to compare.")
    n_single = int(counts[counts == 1].sum())
    statistic = model.factor * distance
    shifts = (means - loc) / np.sqrt(np.diag(model.covariance))
    tails = float((n_shown * (n_shown + 2) / counts).sum())
    inflation = max(1 + (model.kurtosis - 1) * tails / (2 * df), 0.1)
    test = LittleTest(
        statistic=statistic,
        df=df,
        p_value=float(chi2.sf(statistic, df)),
        p_value_robust=float(chi2.sf(statistic / inflation, df / inflation)),
        effect=float(np.sqrt(max(statistic - df, 0.0) / n_rows)),
        largest=_largest(shifts, shown, cells, patterns, features),
        n_patterns=int((n_shown > 0).sum()),
        n_rows=n_rows,
        n_features=len(sources),
        n_single_rows=n_single,
        notes=notes,
    )
    return replace(test, notes=(*notes, power_note(n_single, n_rows))) if test.has_little_power else test


def _distance(
    means: Floats, shown: Booleans, counts: Integers, covariance: Floats
) -> tuple[float, Floats, int]:
    r"""Returns :math:`\min_\mu d^2(\mu)`, the minimising shift of :math:`\mu`, and how much of it is known.

    At the fit of maximum likelihood the shift is zero; after a fit to a part of the rows it leads to the mean
    of all rows.
    """
    n_features = shown.shape[1]
    weight, pull, total = np.zeros(n_features**2), np.zeros(n_features), 0.0
    for places, index in _alike(shown):
        inverse = np.linalg.inv(covariance[index[:, :, None], index[:, None, :]])  # (B, Q, Q)
        n, deviation = counts[places].astype(np.float64), means[places[:, None], index]
        solved = np.einsum("bij,bj->bi", inverse, deviation) * n[:, None]
        total += float((solved * deviation).sum())
        pull += np.bincount(index.ravel(), solved.ravel(), n_features)
        cells = index[:, :, None] * n_features + index[:, None, :]
        weight += np.bincount(cells.ravel(), (inverse * n[:, None, None]).ravel(), n_features**2)
    matrix = weight.reshape(n_features, n_features)
    shift: Floats = np.linalg.lstsq(matrix, pull, rcond=None)[0].astype(np.float64)
    return total - float(pull @ shift), shift, int((np.diag(matrix) > 0).sum())


def _alike(shown: Booleans) -> Iterator[tuple[Integers, Integers]]:
    """Yields patterns that show equally many features, and which these are."""
    sizes = shown.sum(axis=1)
    for size in np.unique(sizes[sizes > 0]):
        places = np.flatnonzero(sizes == size)
        for some in np.array_split(places, -(-len(places) * int(size) ** 2 // CHUNK)):
            yield some, np.nonzero(shown[some])[1].reshape(len(some), -1)


def _largest(
    shift: Floats, shown: Booleans, cells: Cells, patterns: Patterns, features: _Features
) -> Shift | None:
    counts = patterns.counts[: len(shown)]
    shift = np.where(shown & (counts >= MIN_SHIFT_ROWS)[:, None], shift, 0.0)
    place, d = np.unravel_index(np.argmax(np.abs(shift) * np.sqrt(counts)[:, None]), shift.shape)
    if shift[place, d] == 0:
        return None
    k, group = features.sources[d]
    level = None
    if group is not None:
        block = next(b for b in features.features.blocks if features.columns[b.column] == k)
        levels = cells.columns[k].levels or ()
        held = [str(level) for level, g in zip(levels, block.group, strict=True) if g == group]
        level = held[0] if len(held) == 1 else f"one of {len(held)} rare levels"
    missing = missing_names(patterns.observed[place], cells.names)
    return Shift(cells.names[k], level, float(shift[place, d]), missing, int(counts[place]))
