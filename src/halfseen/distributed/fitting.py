"""Fitting estimators to a table that need not fit into memory: to a random part of its rows, or to all."""

from typing import Any

from halfseen.base.parameters import check_whole
from halfseen.base.table import fit_to_rows
from halfseen.data.incomplete import SAMPLE_ROWS
from halfseen.data.scan import Scan, scan
from halfseen.distributed.engines import Engine, PassesByEngine, Progress, find_engine


def fit(
    estimator: Any,
    source: Any,
    *,
    target: str | None = None,
    n_rows: int = SAMPLE_ROWS,
    random_state: int = 0,
    engine: str | Engine = "local",
    address: str | None = None,
    n_workers: int | None = 1,
    progress: Progress | None = None,
) -> Any:
    r"""Fits an estimator to about a million random rows of a table, or to all if there are no more.

    Whether a row is chosen depends on its number and the seed only, so that the fitted estimator does not
    depend on the files of the table. What the columns are (their kinds, levels, ranges and limits) is found
    in all rows, in one more pass, and is the same as for the whole table in memory. There are two exceptions:
    columns that group rows and columns that do not apply to all rows are found in the chosen rows, and a
    column of which these have at most one value is taken for empty or constant.

    Three imputers then take parameters from all rows, in further passes over the files; margins and groups of
    rare levels remain those of the chosen rows:

    - `GaussianImputer`, if it assumes values to be missing at random and draws no parameters: the mean and
      the covariance, in one pass. A table with very many different patterns of missing values is an
      exception, of which a warning is issued.
    - `MeanImputer`: means, standard deviations and shares of levels, in one pass.
    - `CircuitImputer` with ``algorithm="em"``: the weights of sums, in one pass for each step of EM.

    An engine goes over the rows with several workers. The fitted estimator is the same, bit by bit: sums over
    rows are those of fixed blocks, added in a fixed order.

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
    engine : {"local", "ray", "dask"} or Engine, default="local"
        What goes over the rows; see `impute`.
    address : str, optional
        The address of the cluster of Ray or Dask.
    n_workers : int or None, default=1
        The number of workers, as many as processors if None. What is computed from the chosen rows is
        computed in this process.
    progress : callable, optional
        Called with the number of rows that the present pass has finished, and of all rows.

    Returns
    -------
    estimator
        The estimator. Its attribute ``rows_used_``, which is saved with it, has the numbers of rows from
        which ``"kinds"`` of columns and ``"parameters"`` were found, and those of the ``"sample"`` and of
        the ``"table"``.

    Examples
    --------
    >>> from pathlib import Path
    >>> import halfseen
    >>> _ = Path("rows.csv").write_text("a,b\n" + "".join(f"{n},{n % 7}\n" for n in range(1000)))
    >>> imputer = halfseen.distributed.fit(halfseen.TreeImputer(random_state=0), "rows.csv", n_rows=300)
    >>> imputer.rows_used_
    {'kinds': 1000, 'sample': 315, 'parameters': 315, 'table': 1000}
    """
    if n_workers is not None:
        check_whole("n_workers", n_workers, 1)
    table = source if isinstance(source, Scan) else scan(source)
    passes = PassesByEngine(find_engine(engine, address), n_workers, progress)
    return fit_to_rows(estimator, table, target, n_rows, random_state, passes)
