"""Tables as numeric codes, for comparisons of imputers."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.data.codes import code_settings, infer_codes, open_table
from halfseen.data.frames import is_frame
from halfseen.data.incomplete import unmask
from halfseen.data.schema import Column
from halfseen.errors import SchemaError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CodedTable:
    """The modelled columns of a table as numbers: values, positions among levels, or microseconds.

    Kinds and levels are inferred once from the whole table, so that they are the same for all methods; scales
    and everything else are learned from training values only.

    Shapes
    ------
    codes : (N, C), NaN for missing values.
    positions : C positions of the columns in the user's table.

    Examples
    --------
    >>> import pandas as pd
    >>> table = CodedTable.read(pd.DataFrame({"x": [1.5, None, 2.5], "s": ["b", "a", "b"], "one": [1, 1, 1]}))
    >>> [column.name for column in table.columns]
    ['x', 's']
    >>> table.codes
    array([[1.5, 1. ],
           [nan, 0. ],
           [2.5, 1. ]])
    """

    columns: tuple[Column, ...]
    codes: Floats
    positions: tuple[int, ...]

    @classmethod
    def read(cls, X: Any, schema: Any = None) -> "CodedTable":
        """Reads a pandas, polars or pyarrow table, or an array; `schema` as in the imputers."""
        table = open_table(X)
        inferred, codes = infer_codes(table, schema)
        positions = tuple(j for j, column in enumerate(inferred) if column.modelled)
        if not positions:
            raise SchemaError(
                "The table has no column on which imputers can be compared: all columns are constant or "
                "empty."
            )
        return cls(codes.columns, codes.with_nan, positions)

    @property
    def n_levels(self) -> tuple[int | None, ...]:
        """The number of levels per column, None for numbers."""
        return tuple(None if column.levels is None else len(column.levels) for column in self.columns)

    @property
    def numeric(self) -> npt.NDArray[np.bool_]:
        """Which columns (C) are numeric."""
        return np.array([column.levels is None for column in self.columns])

    def array_schema(self) -> dict[int, dict[str, Any]]:
        """Returns schema settings with which an imputer reads the codes as columns of the right kinds."""
        return code_settings(self.columns)

    def digest(self) -> str:
        """Returns a hash of the content: names, kinds, levels and all values."""
        described = json.dumps([asdict(column) for column in self.columns], default=str, sort_keys=True)
        content = hashlib.sha256(described.encode())
        content.update(np.ascontiguousarray(np.where(np.isnan(self.codes), np.nan, self.codes)).tobytes())
        return content.hexdigest()


def take_rows(X: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Returns some rows of a table, in its own library."""
    if is_frame(X):
        frame: Any = nw.from_native(X, eager_only=True)
        return frame[rows.tolist()].to_native()
    return np.asarray(unmask(X))[rows]
