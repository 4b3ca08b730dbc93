"""Fitting estimators to a table that need not fit into memory: to a random part of its rows, or to all."""

from typing import Any

from halfseen.base.completion import TabularCompletion
from halfseen.data.blocks import add_in_tree, rows_in_block
from halfseen.data.scan import SAMPLE_ROWS, Scan, scan
from halfseen.errors import TableError, warn_user
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import EMSettings, fit_from_moments
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.gaussian.moments import PatternMoments, moments_suffice
from halfseen.gaussian.tabular import TabularGaussian, with_room_for_noise
from halfseen.vocabulary import Missingness

MOST_MOMENTS = 1 << 25
"""Cross-products of all patterns that are kept, of 8 bytes each; a guess, and the same on every machine."""


def fit(
    estimator: Any,
    source: Any,
    *,
    target: str | None = None,
    n_rows: int = SAMPLE_ROWS,
    random_state: int = 0,
) -> Any:
    r"""Fits an estimator to about a million random rows of a table, or to all if there are no more.

    Whether a row is chosen depends on its number and the seed only, so that the fitted estimator does not
    depend on the files of the table. Levels that occur in none of the chosen rows are not known to it.

    A `GaussianImputer` that assumes values to be missing at random, and draws no parameters, then takes its
    mean and covariance from all rows, in one more pass over the files; only the kinds and the margins of its
    columns are those of the chosen rows. A table with very many different patterns of missing values is an
    exception, of which a warning is issued.

    Parameters
    ----------
    estimator : imputer or predictor
        The estimator, which is fitted in place.
    source : Scan, or what `halfseen.scan` takes
        The table.
    target : str, optional
        The column to predict, if the estimator is a predictor. Rows without a value in it are left out.
    n_rows : int, default=1_000_000
        The expected number of chosen rows.
    random_state : int, default=0
        The seed of the choice of rows.

    Returns
    -------
    estimator
        The estimator. Its attribute ``rows_used_``, which is saved with it, has the numbers of rows from
        which ``"kinds"`` of columns and ``"parameters"`` were found, and that of the ``"table"``.

    Examples
    --------
    >>> from pathlib import Path
    >>> import halfseen
    >>> _ = Path("rows.csv").write_text("a,b\n" + "".join(f"{n},{n % 7}\n" for n in range(1000)))
    >>> imputer = halfseen.distributed.fit(halfseen.TreeImputer(random_state=0), "rows.csv", n_rows=300)
    >>> imputer.rows_used_
    {'kinds': 315, 'parameters': 315, 'table': 1000}
    """
    table = source if isinstance(source, Scan) else scan(source)
    rows = table.sample(n_rows, random_state)
    if target is None:
        estimator.fit(rows)
    else:
        if target not in rows.column_names:
            raise TableError(f"{table.parts[0].path}: there is no column {target!r} to predict")
        rows = rows.filter(rows[target].is_valid())
        estimator.fit(rows.drop_columns([target]), rows[target].to_numpy(zero_copy_only=False))
    n_parameters = rows.num_rows
    if target is None and rows.num_rows < table.n_rows and _takes_moments(estimator):
        if refit_gaussian(estimator, table):
            n_parameters = table.n_rows
        else:
            warn_user(
                f"GaussianImputer is fitted to {n_parameters:,} of {table.n_rows:,} rows, because the table "
                "has too many patterns of missing values for a fit to all rows."
            )
    estimator.rows_used_ = {"kinds": rows.num_rows, "parameters": n_parameters, "table": table.n_rows}
    return estimator


def _takes_moments(estimator: Any) -> bool:
    """Returns whether the parameters of a fitted estimator follow from moments of all rows."""
    if type(estimator) is not GaussianImputer or estimator.n_posterior_draws:
        return False
    model: TabularCompletion | None = estimator.model_
    is_mar = estimator.missingness == Missingness.MAR
    return is_mar and isinstance(model, TabularGaussian) and isinstance(model.gaussian, Gaussian)


def refit_gaussian(imputer: GaussianImputer, table: Scan) -> bool:
    """Fits the mean and the covariance of a fitted imputer to all rows of a table, by moments of patterns.

    Parameters
    ----------
    imputer : GaussianImputer
        The imputer, fitted to some rows; its margins and its ridge are kept.
    table : Scan
        The table.

    Returns
    -------
    bool
        False, and nothing is changed, if there are too many patterns of missing values.
    """
    features = imputer.model_.features
    n_features = features.n_features
    named = table.select([str(name) for name in imputer.feature_names_in_])

    def add(one: PatternMoments, other: PatternMoments) -> PatternMoments:
        both = one.add(other)
        if not _are_few(table.n_rows, len(both.patterns), n_features):  # the sum can only have more
            raise _ManyPatterns
        return both

    parts = (
        PatternMoments.of(features.encode(imputer._read(block, reset=False).codes))
        for _, block in named.blocks(n_rows=rows_in_block(n_features))
    )
    try:
        moments = add_in_tree(parts, add)
    except _ManyPatterns:
        return False
    if moments is None or not _are_few(table.n_rows, len(moments.patterns), n_features):
        return False
    settings = EMSettings(imputer.max_iter, imputer.tol, imputer.ridge_)
    tell = None if imputer.callback is None else imputer._tell
    result = fit_from_moments(moments, settings, callback=tell)
    imputer.objective_ = list(result.objective)
    imputer.n_iter_ = len(imputer.objective_)
    joint = with_room_for_noise(result.gaussian, features)
    imputer.model_ = TabularGaussian(imputer.model_.columns, features, joint)
    return True


class _ManyPatterns(Exception):
    """Ends a pass over a table."""


def _are_few(n_rows: int, n_patterns: int, n_features: int) -> bool:
    return moments_suffice(n_rows, n_patterns, n_features) and n_patterns * n_features**2 <= MOST_MOMENTS
