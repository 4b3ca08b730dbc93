"""The column of ``halfseen impute --weights``: sampling weights of a survey, checked and described."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.words import names_words, plural


def read_weights(table: pa.Table, name: str, source: str) -> npt.NDArray[np.float64]:
    """Return the weights (N) of the rows of a table; raise an error unless all are positive and finite.

    Parameters
    ----------
    table : pyarrow.Table
        The table.
    name : str
        The column of weights.
    source : str
        The name of the file, for errors.

    Examples
    --------
    >>> read_weights(pa.table({"w": [0.5, 2.0]}), "w", "a.csv")
    array([0.5, 2. ])
    """
    if name not in table.column_names:
        columns = names_words([repr(one) for one in table.column_names], 8)
        raise TableError(f"{source} has no column {name!r} for --weights; it has {columns}")
    column = table[name]
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        first = pc.drop_null(column)[0].as_py() if column.null_count < len(column) else None
        raise TableError(
            f"{source}: column {name!r} of --weights contains values such as {first!r}, which are not numbers"
        )
    weights = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(wrong):
        found = "no weight" if np.isnan(weights[wrong[0]]) else f"the weight {weights[wrong[0]]:g}"
        others = plural(len(wrong) - 1, "other row")
        more = f", and {others} cannot be used either" if len(wrong) > 1 else ""
        raise TableError(
            f"{source}: column {name!r} of --weights has {found} in row {wrong[0] + 1:,} of the table{more}; "
            "weights must be positive and finite. Leave out rows without a weight"
        )
    return weights


def describe_weights(name: str, weights: npt.NDArray[np.float64]) -> str:
    """Return the range of weights, and how many rows of equal weight would estimate a mean as precisely.

    The number is that of Kish, which holds for values that do not depend on the weights.

    Examples
    --------
    >>> describe_weights("w", np.array([1.0, 1.0, 4.0]))
    "column 'w', from 1 to 4: means are about as precise as those of 2 rows of equal weight"
    """
    scaled = weights / weights.max()
    effective = scaled.sum() ** 2 / (scaled**2).sum()
    return (
        f"column {name!r}, from {weights.min():g} to {weights.max():g}: means are about as precise as those "
        f"of {effective:,.0f} rows of equal weight"
    )


def with_weights(overrides: dict[str, Any], name: str | None) -> dict[str, Any]:
    """Return the settings of columns, where the weights are numbers that predict the other columns."""
    if name is None:
        return overrides
    own = overrides.get(name, {})
    return {
        **overrides,
        name: {"kind": "continuous"} | ({"kind": own} if isinstance(own, str) else dict(own)),
    }
