r"""Prediction of missingness: a classifier on the rest of each row."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from halfseen._arrays import Floats, Integers
from halfseen._random import seed_from
from halfseen._threads import map_in_threads, one_openmp_thread, task_threads
from halfseen.config import memory_budget
from halfseen.diagnosis.association import auc_interval, holm, midranks
from halfseen.diagnosis.cells import Cells, thin
from halfseen.trees.growth import BoostedClassifier

N_FOLDS = 3
MIN_GROUP = 20  # rows with a missing value, and without, that a test needs
MAX_ROWS = 20_000  # per column
ROWS_OF_ALL = 400_000  # over all columns; many columns get fewer rows each
MAX_COLUMNS = 60  # that are tested, the emptiest
COPIES = 4  # of the rows of a column while its trees are grown: selected, of a fold, as bins and as float32
OVERLAP = 1 + N_FOLDS / (N_FOLDS - 1)  # folds share training rows: their scores vary together


@dataclass(frozen=True)
class Predictability:
    """The accuracy with which the missingness of a column is predicted from the other columns.

    Attributes
    ----------
    column : str
        The column whose missingness is predicted.
    auc, low, high : float
        The cross-validated area under the ROC curve, with a 95% interval; 0.5 is chance level. NaN
        if there is a `reason`.
    p_value, p_adjusted : float
        The one-sided p-value of the hypothesis that the AUC is 0.5, and the p-value adjusted by Holm's method
        over the columns.
    n_rows, n_missing : int
        The number of rows used, and of those in which the column is missing.
    reason : str or None
        Why there is no test.
    """

    column: str
    auc: float = np.nan
    low: float = np.nan
    high: float = np.nan
    p_value: float = np.nan
    p_adjusted: float = np.nan
    n_rows: int = 0
    n_missing: int = 0
    reason: str | None = None


def predict_missingness(X: Any, *, random_state: Any = 0) -> tuple[Predictability, ...]:
    r"""Predicts the missingness of each column from all other columns by boosted trees.

    .. math:: A = \frac1F \sum_f \frac{U_f}{m_f n_f}, \qquad z = \frac{A - 1/2}{\sqrt{c\, v}},
        \qquad v = \frac{1}{F^2} \sum_f \frac{m_f + n_f + 1}{12\, m_f n_f}\, s_f

    with :math:`U_f` the Mann-Whitney statistic of the scores in fold f, :math:`s_f` its correction for ties,
    and :math:`c = 1 + F / (F - 1)`, because folds share training rows. The classifier uses the values of the
    other columns and their missingness. A high AUC means that the missingness is associated with values or
    with the missingness of other columns. This detects dependencies that pairwise comparisons do not, such as
    missing values at both ends of a scale; an AUC near 0.5 does not prove independence.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array of shape (n_rows, n_columns)
        A table with missing values. At most 20,000 rows per column are used, half of them with the column
        missing if there are enough.
    random_state : int, numpy generator or None, default=0
        Seeds the subsample and the folds.

    Returns
    -------
    tuple of Predictability
        The incomplete columns, the most predictable first.

    References
    ----------
    Nadeau & Bengio (2003), Inference for the generalization error, for c. Hanley & McNeil (1982).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(400, 2))
    >>> x[np.abs(x[:, 0]) > 1, 1] = np.nan  # at both ends: the mean does not move
    >>> [found] = predict_missingness(x)
    >>> found.auc > 0.95, found.p_adjusted < 1e-6
    (True, True)
    """
    return run_predictability(Cells.read(X), seed_from(random_state))


@task_threads()
def run_predictability(cells: Cells, seed: int) -> tuple[Predictability, ...]:
    """Runs the classifier on a table that is already read, several columns at a time."""
    n_missing = cells.n_rows - cells.observed.sum(axis=0)
    partial = np.flatnonzero((n_missing > 0) & (n_missing < cells.n_rows))
    emptiest = partial[np.argsort(-n_missing[partial], kind="stable")]
    n_rows = min(cells.n_rows, MAX_ROWS, ROWS_OF_ALL // max(min(len(emptiest), MAX_COLUMNS), 1))

    def test(place: int) -> Predictability:
        j = int(emptiest[place])
        if place >= MAX_COLUMNS:
            return Predictability(cells.names[j], reason=f"only {MAX_COLUMNS} columns are tested")
        if min(n_missing[j], cells.n_rows - n_missing[j]) < MIN_GROUP:
            few = "missing values" if n_missing[j] < MIN_GROUP else "observed values"
            return Predictability(cells.names[j], reason=f"fewer than {MIN_GROUP} {few}")
        if len(cells.columns) == 1:
            return Predictability(cells.names[j], reason="there is no other column")
        return _test_column(cells, j, n_rows, np.random.default_rng([seed, j]))

    at_most = memory_budget() // max(1, 8 * COPIES * n_rows * len(cells.columns))
    found = list(map_in_threads(test, range(len(emptiest)), at_most=at_most))
    adjusted = holm([one.p_value for one in found])
    found = [replace(one, p_adjusted=float(p)) for one, p in zip(found, adjusted, strict=True)]
    return tuple(sorted(found, key=lambda one: -np.nan_to_num(one.auc, nan=-1.0)))  # untested ones last


def _test_column(cells: Cells, j: int, n_rows: int, generator: np.random.Generator) -> Predictability:
    missing, seen = np.flatnonzero(~cells.observed[:, j]), np.flatnonzero(cells.observed[:, j])
    chosen = thin(missing, max(n_rows // 2, n_rows - len(seen)), generator)
    rest = thin(seen, n_rows - len(chosen), generator)
    rows = np.concatenate([chosen, rest])
    truth = np.arange(len(rows)) < len(chosen)
    x = _features(cells, rows, j)
    fold = np.concatenate([generator.permutation(len(part)) % N_FOLDS for part in (chosen, rest)])
    model = BoostedClassifier(
        max_iter=40, max_leaf_nodes=8, max_bins=63, min_samples_leaf=5, l2_regularization=1.0,
        early_stopping=False, random_state=0,
    )  # fmt: skip
    auc, variance = 0.0, 0.0
    for f in range(N_FOLDS):
        with one_openmp_thread():
            model.fit(x[fold != f], truth[fold != f])
            score = model.decision_function(x[fold == f])
        one, its_variance = _auc(score, truth[fold == f])
        auc, variance = auc + one / N_FOLDS, variance + its_variance / N_FOLDS**2
    m, n = len(chosen), len(rest)
    low, high = auc_interval(auc, m / OVERLAP, n / OVERLAP)
    z = (auc - 0.5) / np.sqrt(OVERLAP * variance) if variance > 0 else 0.0
    return Predictability(
        cells.names[j], auc, float(low), float(high), float(ndtr(-z)), np.nan, len(rows), m
    )  # fmt: skip


def _features(cells: Cells, rows: Integers, j: int) -> Floats:
    """Returns the other columns, NaN where unknown; of one with hardly any value only whether it has one."""
    others = [k for k in range(len(cells.columns)) if k != j]
    seen, x = cells.known[rows][:, others], cells.x[rows][:, others]
    return np.where(seen.sum(axis=0) < MIN_GROUP, seen, np.where(seen, x, np.nan))


def _auc(score: Floats, truth: Any) -> tuple[float, float]:
    """Returns the area under the curve and its variance under guessing."""
    ranks, spread = midranks(score)
    m, n = int(truth.sum()), int((~truth).sum())
    auc = (float(ranks[truth].sum()) - m * (m + 1) / 2) / (m * n)
    return auc, (m + n + 1) * spread / (12 * m * n)
