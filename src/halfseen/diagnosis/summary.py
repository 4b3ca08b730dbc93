r"""What is missing from a table, with what it goes, and what can be said of why."""

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from halfseen._random import seed_from
from halfseen.diagnosis import text as diagnosis_text
from halfseen.diagnosis import wording
from halfseen.diagnosis.association import Association, Associations, associate
from halfseen.diagnosis.cells import Cells
from halfseen.diagnosis.drift import Drift, run_drift
from halfseen.diagnosis.little import LittleTest, run_little
from halfseen.diagnosis.pattern_table import PatternTable, group_patterns, tabulate_patterns
from halfseen.diagnosis.predictability import Predictability, run_predictability
from halfseen.errors import SchemaError

MAX_STRETCHES = 80  # consecutive rows are counted together, so that a picture of many rows stays small
MAX_PAIRS = 1000  # of `to_dict`


@dataclass(frozen=True)
class ColumnHoles:
    """The holes of one column.

    Attributes
    ----------
    name, kind : str
        The column and what it is.
    n_missing : int
        Its holes.
    share : float
        Their share of the rows.
    positions : tuple of float
        The share of holes in up to 80 equal stretches of rows, from the first to the last; empty without any.
    """

    name: str
    kind: str
    n_missing: int
    share: float
    positions: tuple[float, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What `describe` found. Print it, or take the parts.

    Attributes
    ----------
    n_rows, n_missing : int
        Rows of the table, and its missing cells.
    columns : tuple of ColumnHoles
        All columns, in table order.
    patterns : PatternTable
        Which columns are missing together, and whether holes are nested.
    associations : Associations
        Each column's holes beside every other column's values and holes, the strongest first.
    little : LittleTest
        Little's test of MCAR, with effect sizes.
    predictability : tuple of Predictability
        How well each column's holes can be predicted from the rest of the row.
    target : str or None
        The column named as the target.
    drift : Drift or None
        How the holes differ from those of the reference table.
    """

    n_rows: int
    n_missing: int
    columns: tuple[ColumnHoles, ...]
    patterns: PatternTable
    associations: Associations
    little: LittleTest
    predictability: tuple[Predictability, ...]
    target: str | None
    drift: Drift | None

    @property
    def readings(self) -> tuple[str, ...]:
        """What the numbers say, in sentences that claim no more than they can."""
        return wording.read(self)

    @property
    def limits(self) -> tuple[str, ...]:
        """What no test on these data can say."""
        return wording.LIMITS

    def distinct_pairs(self, about: str) -> tuple[Association, ...]:
        """Returns the pairs that stand out, about "value" or "missingness", without repetitions.

        Columns that are always missing together say the same; the first of them speaks for all.
        """
        echoes = {name for group in self.patterns.together for name in group[1:]}
        clear = (pair for pair in self.associations.clear if pair.about == about)
        holes = (pair for pair in clear if pair.column not in echoes)
        return tuple(pair for pair in holes if about == "value" or pair.other not in echoes)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON; of very many pairs the first 1,000. None stands for no number."""
        pairs = self.associations.pairs
        short = replace(self, associations=replace(self.associations, pairs=pairs[:MAX_PAIRS]))
        content: dict[str, Any] = _plain(short)
        content["associations"]["n_pairs"] = len(pairs)
        return content | {"readings": list(self.readings), "limits": list(self.limits)}

    def __str__(self) -> str:
        return diagnosis_text.write(self)


def describe(
    table: Any, target: str | None = None, against: Any = None, *, random_state: Any = 0
) -> Diagnosis:
    r"""Describes the holes of a table: patterns, what they go with, and evidence against MCAR.

    MCAR says that the mask does not depend on the data, :math:`P(m \mid x) = P(m)`; MAR that it depends on
    what was seen, :math:`P(m \mid x) = P(m \mid x_o)`; MNAR is anything else. Data can speak against MCAR.
    They cannot tell MAR from MNAR, and no evidence against MCAR is no evidence for it.

    Parameters
    ----------
    table : pandas, polars or pyarrow table, or array of shape (n_rows, n_columns)
        With missing cells.
    target : str, optional
        The column that will be predicted: how holes go with it is said first. The columns of an array are
        x0, x1, ...
    against : table, optional
        A reference, for example the training data: what has changed since is said.
    random_state : int, numpy generator or None, default=0
        Chooses rows where a test uses a part of a large table, and folds.

    Returns
    -------
    Diagnosis

    See Also
    --------
    halfseen.diagnosis.little.little_test : Little's test alone.
    halfseen.diagnosis.predictability.predict_missingness : The classifier alone.
    halfseen.diagnosis.drift.compare_missingness : The comparison of two tables alone.

    References
    ----------
    Rubin (1976), Inference and missing data. Little (1988), A test of missing completely at random.

    Examples
    --------
    >>> from halfseen.datasets import load_penguins
    >>> diagnosis = describe(load_penguins("pandas"))
    >>> diagnosis.n_missing, diagnosis.patterns.n_patterns, diagnosis.patterns.monotonicity.monotone
    (19, 3, True)
    >>> print(diagnosis.readings[0])
    No evidence against MCAR was found. That is not evidence for it.
    """
    cells = Cells.read(table)
    if target is not None and target not in cells.names:
        known = ", ".join(cells.names[:8]) + (", ..." if len(cells.names) > 8 else "")
        raise SchemaError(f"The table has no column {target!r} for a target; it has {known}.")
    drift = None if against is None else run_drift(cells.names, cells.observed, against)
    seed = seed_from(random_state)
    patterns = group_patterns(cells.observed)
    columns = _count_holes(cells)
    return Diagnosis(
        n_rows=cells.n_rows,
        n_missing=sum(column.n_missing for column in columns),
        columns=columns,
        patterns=tabulate_patterns(patterns, cells.names),
        associations=associate(cells, target),
        little=run_little(cells, patterns, seed),
        predictability=run_predictability(cells, seed),
        target=target,
        drift=drift,
    )


def _count_holes(cells: Cells) -> tuple[ColumnHoles, ...]:
    edges = np.linspace(0, cells.n_rows, min(MAX_STRETCHES, cells.n_rows) + 1).astype(np.int64)
    columns = []
    for column, seen in zip(cells.columns, cells.observed.T, strict=True):
        n_missing = cells.n_rows - int(seen.sum())
        shares: list[float] = []
        if n_missing:
            counts = np.add.reduceat((~seen).astype(np.int64), edges[:-1])
            shares = (counts / np.diff(edges)).round(4).tolist()
        columns.append(
            ColumnHoles(column.name, column.kind, n_missing, n_missing / cells.n_rows, tuple(shares))
        )
    return tuple(columns)


def _plain(value: Any) -> Any:
    """Returns dataclasses as dicts, tuples as lists, and numbers that JSON has not as None."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
