r"""Drift of missingness between two tables: rates by column, and patterns."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, fisher_exact

from halfseen._arrays import Booleans
from halfseen.data.schema import Schema, open_table
from halfseen.diagnosis.association import (
    MIN_EXPECTED,
    chi_squared,
    cramers_v,
    cramers_v_interval,
    difference_interval,
    holm,
)
from halfseen.diagnosis.cells import Pattern, group_patterns, missing_names, read_observed
from halfseen.diagnosis.wording import ALPHA
from halfseen.errors import SchemaError
from halfseen.words import share_words

TOP_NEW = 10


@dataclass(frozen=True)
class RateChange:
    """The missing rates of one column in two tables."""

    column: str  # the name of the column, which is in both tables
    # The missing rate in the table and in the reference.
    rate: float
    reference_rate: float
    # The rate in the table minus the rate in the reference, with a 95% interval.
    difference: float
    low: float
    high: float
    # The p-value of the hypothesis of equal rates, and the one adjusted by Holm's method over the columns;
    # NaN if both rates are 0 or both are 1.
    p_value: float
    p_adjusted: float


@dataclass(frozen=True)
class Drift:
    """The differences in missingness between a table and a reference.

    Attributes
    ----------
    n_rows, n_reference_rows : int
        The rows of the table and of the reference.
    columns : tuple of RateChange
        The columns of both tables, the largest difference first.
    only_here, only_in_reference : tuple of str
        Columns that the other table does not have.
    distance : float
        Half the sum of absolute differences of pattern frequencies: 0 for equal, 1 for disjoint patterns.
    effect, low, high : float
        Cramér's V of table by pattern, with a 95% interval; NaN if there is one pattern only.
    p_value : float
        The p-value of the hypothesis of equal pattern frequencies, by the chi-squared test; rare patterns are
        merged.
    new_patterns : tuple of Pattern
        The most frequent patterns that do not occur in the reference.
    n_new_patterns, n_new_rows, n_gone_patterns : int
        The numbers of new patterns, of their rows, and of patterns that occur only in the reference.
    """

    n_rows: int
    n_reference_rows: int
    columns: tuple[RateChange, ...]
    only_here: tuple[str, ...]
    only_in_reference: tuple[str, ...]
    distance: float
    effect: float
    low: float
    high: float
    p_value: float
    new_patterns: tuple[Pattern, ...]
    n_new_patterns: int
    n_new_rows: int
    n_gone_patterns: int


def compare_missingness(X: Any, reference: Any) -> Drift:
    r"""Compares the missingness of a table with that of a reference, such as training data.

    .. math:: \hat{p}_k - \hat{q}_k, \qquad \tfrac12 \sum_g |\hat{p}_g - \hat{q}_g|

    are the difference of rates for each column k, and the distance over all patterns g. Values are not
    compared.

    Parameters
    ----------
    X, reference : pandas, polars or pyarrow tables, or arrays
        Columns are matched by name.

    Returns
    -------
    Drift

    Examples
    --------
    >>> here = np.array([[1.0, np.nan]] * 30 + [[1.0, 2.0]] * 10)
    >>> there = np.array([[1.0, np.nan]] * 10 + [[1.0, 2.0]] * 30)
    >>> drift = compare_missingness(here, there)
    >>> drift.columns[0].column, drift.columns[0].difference, drift.distance
    ('x1', 0.5, 0.5)
    """
    table = open_table(X)
    return run_drift(table.names, read_observed(table), reference)


def run_drift(names: tuple[str, ...], observed: Booleans, reference: Any) -> Drift:
    """Compares a mask with a reference table."""
    other = open_table(reference)
    common = [name for name in names if name in other.names]
    if not common:
        raise SchemaError(
            f"The two tables have no column in common: one has {', '.join(names[:3])}, the other "
            f"{', '.join(other.names[:3])}. Rename columns so that they match."
        )
    mask = observed[:, [names.index(name) for name in common]]
    other_mask = read_observed(other)[:, [other.names.index(name) for name in common]]
    return Drift(
        n_rows=len(mask),
        n_reference_rows=len(other_mask),
        columns=compare_rates(
            common, (~mask).sum(axis=0), len(mask), (~other_mask).sum(axis=0), len(other_mask)
        ),
        only_here=tuple(name for name in names if name not in other.names),
        only_in_reference=tuple(name for name in other.names if name not in names),
        **_compare_patterns(common, mask, other_mask),
    )


def compare_rates(
    names: Sequence[str],
    missing: npt.ArrayLike,
    n_rows: npt.ArrayLike,
    reference_missing: npt.ArrayLike,
    n_reference_rows: npt.ArrayLike,
) -> tuple[RateChange, ...]:
    """Compares the missing rates of columns, given as counts, with those of a reference.

    Parameters
    ----------
    names : sequence of str
        The columns.
    missing, reference_missing : array-like of shape (n_columns,)
        The number of missing values of each column here and in the reference.
    n_rows, n_reference_rows : int or array-like of shape (n_columns,)
        The number of rows here and in the reference.

    Returns
    -------
    tuple of RateChange
        The largest difference first.

    Examples
    --------
    >>> (change,) = compare_rates(["x"], [30], 40, [10], 40)
    >>> change.rate, change.reference_rate, change.p_adjusted < 0.001
    (0.75, 0.25, True)
    """
    counts = (np.asarray(one) for one in (missing, n_rows, reference_missing, n_reference_rows))
    here, n_here, there, n_there = (np.broadcast_to(one, (len(names),)) for one in counts)
    low, high = difference_interval(here, n_here, there, n_there)
    rate, other_rate = here / n_here, there / n_there
    p_values = np.array([
        _equal_rates(*map(int, four)) for four in zip(here, n_here, there, n_there, strict=True)
    ])  # fmt: skip
    adjusted = holm(p_values)
    changes = [
        RateChange(name, *(float(v) for v in values))
        for name, *values in zip(
            names, rate, other_rate, rate - other_rate, low, high, p_values, adjusted, strict=True
        )
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference)))


def _equal_rates(missing: int, n_rows: int, other_holes: int, n_other: int) -> float:
    """Returns the p-value of equal rates: chi-squared, or Fisher's where few rows are expected in a cell."""
    table = np.array([[missing, n_rows - missing], [other_holes, n_other - other_holes]])
    columns, total = table.sum(axis=0), n_rows + n_other
    if columns.min() == 0:
        return float("nan")
    if columns.min() * min(n_rows, n_other) / total < MIN_EXPECTED:
        return min(float(fisher_exact(table)[1]), 1.0)
    expected = np.outer([n_rows, n_other], columns) / total
    return float(chi2.sf(((table - expected) ** 2 / expected).sum(), 1))


def _compare_patterns(names: list[str], mask: Booleans, other: Booleans) -> dict[str, Any]:
    patterns = group_patterns(np.concatenate([mask, other]))
    n_patterns = len(patterns.counts)
    here = np.bincount(patterns.of_row[: len(mask)], minlength=n_patterns)
    there = patterns.counts - here
    tested = chi_squared(np.stack([here, there]), max_columns=n_patterns)
    statistic, df, n_rows = tested if tested is not None else (np.nan, 1, 2)
    low, high = cramers_v_interval(statistic, df, n_rows) if tested is not None else (np.nan, np.nan)
    new = np.flatnonzero(there == 0)
    shown = new[np.argsort(-here[new], kind="stable")][:TOP_NEW]
    return {
        "distance": float(np.abs(here / len(mask) - there / len(other)).sum() / 2),
        "effect": float(cramers_v(statistic, df, n_rows)) if tested is not None else np.nan,
        "low": float(low),
        "high": float(high),
        "p_value": float(chi2.sf(statistic, df)),
        "new_patterns": tuple(
            Pattern(missing_names(patterns.observed[g], names), int(here[g]), int(here[g]) / len(mask))
            for g in shown
        ),
        "n_new_patterns": len(new),
        "n_new_rows": int(here[new].sum()),
        "n_gone_patterns": int((here == 0).sum()),
    }


SHOWN = 5


@dataclass(frozen=True)
class TrainingDrift:
    """The missing rates of new rows compared with those of the training rows of a model."""

    # The number of new rows, and of training rows.
    n_rows: int
    n_training_rows: int
    # The columns of the model, the largest difference first; the reference is the training table.
    columns: tuple[RateChange, ...]

    @property
    def changed(self) -> tuple[RateChange, ...]:
        """The columns whose rates differ by more than chance: an adjusted p-value below 0.05."""
        return tuple(change for change in self.columns if change.p_adjusted < ALPHA)

    @property
    def sentence(self) -> str:
        """The notes for a user.

        Examples
        --------
        >>> changes = compare_rates(["x", "y"], [30, 0], 40, [10, 0], 40)
        >>> TrainingDrift(40, 40, changes).sentence
        'missingness differs from training: x 75.0% missing (25.0% in training)'
        """
        if not self.changed:
            return "missing rates do not differ from training by more than chance"
        shown = [
            f"{one.column} {share_words(one.rate)} missing ({share_words(one.reference_rate)} in training)"
            for one in self.changed[:SHOWN]
        ]
        more = len(self.changed) - len(shown)
        return f"missingness differs from training: {', '.join(shown)}{f' and {more} more' if more else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the drift as values that JSON can hold, and the sentence."""
        return {**asdict(self), "sentence": self.sentence, "n_changed": len(self.changed)}


def compare_with_training(schema: Schema, missing: Mapping[str, int], n_rows: int) -> TrainingDrift:
    """Compares missing rates with those of the training table, which the schema of a model keeps.

    Parameters
    ----------
    schema : Schema
        The schema of a fitted model.
    missing : mapping of str to int
        The number of missing values of each column of the model in the new table.
    n_rows : int
        The number of new rows.
    """
    columns = [column for column in schema if column.n_observed + column.n_missing > 0]
    training = [column.n_observed + column.n_missing for column in columns]
    changes = compare_rates(
        [column.name for column in columns],
        [missing[column.name] for column in columns],
        n_rows,
        [column.n_missing for column in columns],
        training,
    )
    return TrainingDrift(n_rows, max(training, default=0), changes)
