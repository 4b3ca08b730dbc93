"""Fitting estimators to a table that need not fit into memory: to a random part of its rows, or to all."""

from typing import Any

from halfseen.base.scanned import fit_to_rows
from halfseen.data.scan import SAMPLE_ROWS, Scan, scan


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
    return fit_to_rows(estimator, table, target, n_rows, random_state)
