"""Checks that the settings of a column fit its values; an error names the first value that does not."""

from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data._cells import plain
from halfseen.data.columns import Kind, show_moment
from halfseen.data.frames import Floats, RawColumn
from halfseen.errors import SchemaError


def check_kind(raw: RawColumn, kind: Kind, overrides: dict[str, Any]) -> None:
    """Raises if an observed value contradicts the kind that the user declared."""
    values = raw.values
    if kind == "constant":
        first = values[~np.isnan(values)][0]
        others = ~np.isnan(values) & (values != first)
        _reject(raw, others, "be constant", besides=f"besides {_shown(first, raw)} ")
    elif kind == "positive":
        _reject(raw, values <= 0, "be positive")
    elif kind == "count":
        _reject(raw, values < 0, "be a count")
        if overrides.get("integer") is not False:
            _reject(raw, _fractional(values), "be a count")


def _reject(raw: RawColumn, broken: npt.NDArray[np.bool_], what: str, besides: str = "") -> None:
    rows = np.flatnonzero(broken)
    if len(rows):
        value, n_seen = _shown(raw.values[rows[0]], raw), (~np.isnan(raw.values)).sum()
        raise SchemaError(
            f"Column {raw.name!r} cannot {what}, as the schema requires: {besides}it contains {value} in row "
            f"{rows[0]} ({len(rows)} of {n_seen} values do not fit). Change the schema or the values."
        )


def _fractional(values: Floats) -> npt.NDArray[np.bool_]:
    return values % 1 > 0  # false of NaN


def _shown(code: float, raw: RawColumn) -> str:
    if raw.labels:
        return repr(plain(raw.labels[int(code)]))
    if raw.storage in ("time", "duration"):
        return show_moment(code, raw.storage)
    return repr(float(code)).removesuffix(".0")
