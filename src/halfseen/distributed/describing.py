"""Describing the missing values of a table that need not fit into memory, by an engine."""

from typing import Any

from halfseen.base.parameters import check_whole
from halfseen.data.scan import Scan, scan
from halfseen.diagnosis.scanned import describe_scan
from halfseen.diagnosis.summary import Diagnosis
from halfseen.distributed.engines import Engine, PassesByEngine, Progress, find_engine


def describe(
    source: Any,
    target: str | None = None,
    *,
    engine: str | Engine = "local",
    address: str | None = None,
    n_workers: int | None = None,
    n_rows: int | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    r"""Describes the missing values of a table that need not fit into memory; see `halfseen.describe`.

    In one pass over the files, missing values and their patterns are counted in all rows, columns are
    summarised, and some rows are chosen at random by their numbers. From the counts follow the missing values
    of each column, the patterns, and the associations between the missingness of columns; from the summaries
    the kinds of columns, as in `fit`; from the chosen rows the associations with values, Little's test and
    the predictability of missingness. Up to 65,536 patterns are
    counted (fewer if there are more than 1,024 columns). If the table has more, they are described by the
    chosen rows. Duplicated rows are not counted.

    The result depends on the rows, the number of chosen rows, and the seed only: not on the files, the
    engine, the number of workers or the memory. If all rows are chosen, it is that of `halfseen.describe` of
    the table in memory.

    Parameters
    ----------
    source : Scan, or what `halfseen.scan` takes
        The table.
    target : str, optional
        The column that will be predicted; associations with it are listed first.
    engine, address, n_workers, progress
        As of `impute`.
    n_rows : int, optional
        The expected number of chosen rows; by default 200,000, fewer if there are more than 83 columns.
    random_state : int, default=0
        The seed of the choice of rows, and of the tests.

    Returns
    -------
    Diagnosis
        Its attribute ``sampled`` has the number of chosen rows.

    Examples
    --------
    >>> from pathlib import Path
    >>> import halfseen
    >>> lines = "".join(f"{n},{n % 7 or ''}\n" for n in range(1000))
    >>> _ = Path("rows.csv").write_text(f"a,b\n{lines}")
    >>> diagnosis = halfseen.distributed.describe("rows.csv", n_rows=300, n_workers=1)
    >>> diagnosis.n_rows, diagnosis.n_missing, diagnosis.patterns.n_patterns, diagnosis.sampled.n_rows
    (1000, 143, 2, 315)
    """
    if n_workers is not None:
        check_whole("n_workers", n_workers, 1)
    if n_rows is not None:
        check_whole("n_rows", n_rows, 1)
    table = source if isinstance(source, Scan) else scan(source)
    passes = PassesByEngine(find_engine(engine, address), n_workers, progress)
    return describe_scan(table, target, n_rows=n_rows, random_state=random_state, passes=passes)
