"""What each column of a table is: its kind, levels and bounds, inferred with a reason or said by the user."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from halfseen.data.frames import Floats, RawColumn, Storage, Table
from halfseen.errors import SchemaError

Kind = Literal[
    "continuous", "positive", "count", "binary", "categorical", "ordinal",
    "datetime", "duration", "constant", "all-missing", "identifier",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)
LEVELLED = ("binary", "categorical", "ordinal")
UNMODELLED = ("constant", "all-missing", "identifier")

IDENTIFIER_NAME = re.compile(r"(^|[_\W])(id|uuid|guid|index|rowname|rownames)$", re.IGNORECASE)
IDENTIFIER_ROWS = 20  # fewer rows than this and "all different" says nothing
IDENTIFIER_SHARE = 0.5  # of text values that occur in a column, the share that is distinct
BINARY_ROWS = 10  # two distinct numbers other than 0 and 1 in fewer cells are numbers, not codes
DAY = 86_400e6  # microseconds
OVERRIDES = ("kind", "minimum", "maximum", "integer", "levels")


@dataclass(frozen=True)
class Column:
    """One column: what it is, which values it may take, and why we think so.

    Cells are numbers ("codes"): the value itself, a position in `levels`, or microseconds.
    """

    name: str
    kind: Kind
    dtype: str
    storage: Storage
    levels: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    integer: bool = False
    step: float | None = None  # codes are whole multiples of this; a day, for dates without a time
    reason: str = ""
    n_observed: int = 0
    n_missing: int = 0
    fill: Any = None  # the code that fills a column which no model sees

    @property
    def modelled(self) -> bool:
        """Whether models see the column."""
        return self.kind not in UNMODELLED

    def encode(self, raw: RawColumn) -> Floats:
        """Returns codes, NaN where missing; a level never seen in training is NaN too."""
        if self.kind == "all-missing":
            return np.full(len(raw.values), np.nan)
        _refuse_infinite(raw)
        if self.levels is not None:
            return _encode_levels(raw, self.levels)
        if raw.storage == "label":
            example = raw.labels[int(raw.values[~np.isnan(raw.values)][0])]
            raise SchemaError(
                f"Column {self.name!r} held numbers when the model was fitted, now it holds {example!r}."
            )
        return raw.values

    def constrain(self, codes: Floats) -> Floats:
        """Returns the nearest values that the column may take: within bounds, whole, a valid level."""
        low, high = self._code_bounds()
        step = 1.0 if self.integer or self.levels is not None else self.step
        if step is not None:
            codes = np.round(codes / step) * step
            low, high = np.ceil(low / step) * step, np.floor(high / step) * step
        return np.clip(codes, low, max(low, high))

    def decode(self, codes: Floats) -> npt.NDArray[Any]:
        """Turns codes back into values of the column: numbers, labels, booleans or microseconds."""
        if self.levels is not None:
            table = np.empty(len(self.levels), dtype=object)
            table[:] = self.levels
            return table[codes.astype(np.int64)]
        if self.storage == "boolean":
            return codes.astype(bool)
        if self.storage in ("time", "span") or self.integer:
            return np.round(codes).astype(np.int64)
        return codes

    def _code_bounds(self) -> tuple[float, float]:
        if self.levels is not None:
            return 0.0, len(self.levels) - 1.0
        low = -np.inf if self.minimum is None else self.minimum
        high = np.inf if self.maximum is None else self.maximum
        width = re.fullmatch(r"(u?)int(8|16|32|64)", self.dtype.lower())
        if width:
            bits, signed = int(width[2]), not width[1]
            low = max(low, -(2.0 ** (bits - 1)) if signed else 0.0)
            high = min(high, 2.0 ** (bits - signed) * (1 - 2**-53) - (bits < 64))
        return low, high

    def describe(self) -> str:
        """Returns one line: name, kind, what is allowed, and why."""
        allowed = []
        if self.levels is not None:
            shown = ", ".join(str(level) for level in self.levels[:6])
            more = ", ..." if len(self.levels) > 6 else ""
            allowed.append(f"{len(self.levels)} levels: {shown}{more}")
        if self.minimum is not None:
            allowed.append(f">= {self.minimum:g}")
        if self.maximum is not None:
            allowed.append(f"<= {self.maximum:g}")
        if self.integer:
            allowed.append("whole numbers")
        bounds = f" [{'; '.join(allowed)}]" if allowed else ""
        return f"{self.name}: {self.kind}{bounds}, {self.n_missing} missing. {self.reason}"


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [31.0, None, 47.0], "s": ["f", "m", None]})
    >>> print(Schema.infer(Table(frame), {"age": {"maximum": 120}}))
    age: count [>= 0; <= 120; whole numbers], 1 missing. Whole numbers, none negative; maximum set by user.
    s: binary [2 levels: f, m], 1 missing. Two distinct values.
    """

    columns: tuple[Column, ...]

    @classmethod
    def infer(cls, table: Table, overrides: Mapping[Any, Any] | None = None) -> "Schema":
        """Infers the kind of every column; `overrides` maps a name to a kind or to settings of Column."""
        said = _check_overrides(overrides or {}, table)
        columns = [
            _infer_column(table.column(j), said.get(table.names[j], {}), named=table.named)
            for j in range(len(table.names))
        ]
        return cls(tuple(columns))

    @staticmethod
    def read_overrides(path: str | Path) -> dict[str, Any]:
        """Reads settings per column from JSON: ``{"columns": {"age": {"kind": "count", "maximum": 120}}}``."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise SchemaError(f"The schema file {str(path)!r} cannot be read: {error}") from error
        columns = content.get("columns") if isinstance(content, dict) else None
        if isinstance(columns, list):
            columns = {c["name"]: {k: v for k, v in c.items() if k in OVERRIDES} for c in columns}
        if not isinstance(columns, dict):
            raise SchemaError(f'The schema file {str(path)!r} must hold {{"columns": {{name: settings}}}}.')
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Schema":
        """Reads what `to_dict` wrote."""
        known = {field.name for field in fields(Column)}
        columns = []
        for entry in content["columns"]:
            values = {key: value for key, value in entry.items() if key in known}
            values["levels"] = None if values.get("levels") is None else tuple(values["levels"])
            columns.append(Column(**values))
        return cls(tuple(columns))

    def __str__(self) -> str:
        return "\n".join(column.describe() for column in self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


def _infer_column(raw: RawColumn, said: dict[str, Any], *, named: bool) -> Column:
    _refuse_infinite(raw)
    seen = raw.values[~np.isnan(raw.values)]
    kind, reason = _infer_kind(raw, seen, named=named)
    if "kind" in said and said["kind"] != kind:
        kind, reason = said["kind"], "Set by the user."
    column = Column(
        name=raw.name,
        kind=kind,
        dtype=raw.dtype,
        storage=raw.storage,
        reason=reason,
        n_observed=len(seen),
        n_missing=len(raw.values) - len(seen),
    )
    if kind == "all-missing" or not len(seen):
        fill = 0.0 if raw.storage == "number" else None
        return replace(column, kind="all-missing", fill=fill)
    if kind in LEVELLED:
        column = replace(column, levels=_levels(raw, seen, said))
    elif not column.modelled:  # of a column that no model sees, only what fills it is kept
        values, counts = np.unique(seen, return_counts=True)
        most_frequent = replace(raw, values=values[[counts.argmax()]], declared=False)
        column = replace(column, levels=_levels(most_frequent, most_frequent.values, {}), fill=0.0)
    return _bounded(column, raw, seen, said)


def _infer_kind(raw: RawColumn, seen: Floats, *, named: bool) -> tuple[Any, str]:
    distinct = np.unique(seen)
    if len(distinct) == 0:
        return "all-missing", "No value was seen."
    if raw.declared and len(raw.labels) > 1:
        kind = "ordinal" if raw.ordered and len(raw.labels) > 2 else "categorical"
        return ("binary" if len(raw.labels) == 2 else kind), "Declared by the column's dtype."
    if len(distinct) == 1:
        return "constant", "One distinct value."
    if raw.storage == "time":
        return "datetime", "Dates or times."
    if raw.storage == "span":
        return "duration", "Durations."
    if len(distinct) == 2 and (raw.storage != "number" or _is_code(distinct, len(seen))):
        return "binary", "Two distinct values."
    if raw.storage == "label":
        if len(seen) >= IDENTIFIER_ROWS and len(distinct) > IDENTIFIER_SHARE * len(seen):
            return "identifier", f"Text with {len(distinct)} distinct values in {len(seen)} cells."
        return "categorical", f"Text with {len(distinct)} distinct values."
    return _infer_number_kind(raw, seen, distinct, named=named)


def _is_code(distinct: Floats, n_seen: int) -> bool:
    """Tells two codes from two measurements in a short table."""
    return distinct.tolist() == [0.0, 1.0] or n_seen >= BINARY_ROWS


def _infer_number_kind(raw: RawColumn, seen: Floats, distinct: Floats, *, named: bool) -> tuple[Any, str]:
    whole = bool(np.all(distinct == np.round(distinct)))
    if named and whole and len(seen) >= IDENTIFIER_ROWS and len(distinct) == len(raw.values):
        if IDENTIFIER_NAME.search(raw.name):
            return "identifier", "Whole numbers, all different, with the name of an identifier."
        if distinct[0] in (0, 1) and np.all(np.diff(seen) == 1):
            return "identifier", "Whole numbers that count the rows."
    if whole and distinct[0] >= 0:
        return "count", "Whole numbers, none negative."
    if distinct[0] > 0:
        return "positive", "Numbers, all positive."
    return "continuous", "Whole numbers." if whole else "Numbers."


def _bounded(column: Column, raw: RawColumn, seen: Floats, said: dict[str, Any]) -> Column:
    """Adds what values are allowed: from the kind, then from the user."""
    changes: dict[str, Any] = {}
    numeric = column.levels is None and column.storage == "number"
    if numeric and column.kind == "positive":
        changes["minimum"] = float(seen.min()) / 2 if seen.min() > 0 else 0.0
    if numeric and column.kind == "count":
        changes["minimum"] = min(0.0, float(seen.min()))
    if numeric:
        changes["integer"] = column.kind == "count" or raw.whole or bool(np.all(seen == np.round(seen)))
    if column.kind == "datetime" and (raw.whole or np.all(seen % DAY == 0)):
        changes["step"] = DAY
    named = [key for key in ("minimum", "maximum", "integer") if key in said]
    changes |= {key: said[key] for key in named}
    low, high = changes.get("minimum"), changes.get("maximum")
    if low is not None and high is not None and low > high:
        raise SchemaError(f"Column {column.name!r}: minimum {low:g} is above maximum {high:g}.")
    reason = column.reason
    if named:
        reason = reason.rstrip(".") + f"; {', '.join(named)} set by user."
    return replace(column, reason=reason, **changes)


def _levels(raw: RawColumn, seen: Floats, said: dict[str, Any]) -> tuple[Any, ...]:
    if raw.storage == "label":
        present = raw.labels if raw.declared else [raw.labels[int(i)] for i in np.unique(seen)]
        found = tuple(_plain(label) for label in present)
    elif raw.storage == "boolean":
        found = tuple(bool(value) for value in np.unique(seen))
    else:
        found = tuple(_plain(value) for value in np.unique(seen))
    if "levels" not in said:
        return found
    levels = tuple(said["levels"])
    strange = [level for level in found if level not in levels]
    if strange and not raw.declared:
        raise SchemaError(
            f"Column {raw.name!r} holds {strange[0]!r}, which is not among the levels {levels!r}."
        )
    return levels


def _encode_levels(raw: RawColumn, levels: tuple[Any, ...]) -> Floats:
    position = {level: float(i) for i, level in enumerate(levels)}
    if raw.storage == "label":
        table = [position.get(_plain(label), np.nan) for label in raw.labels]
        index = np.where(np.isnan(raw.values), len(table), raw.values).astype(np.int64)
        return np.array([*table, np.nan])[index]
    distinct, inverse = np.unique(raw.values, return_inverse=True)
    table = [position.get(value, np.nan) for value in distinct.tolist()]
    return np.array(table, dtype=np.float64)[inverse]


def _plain(label: Any) -> Any:
    """Returns a label as JSON can hold it: text, whole number, number or boolean; anything else as text."""
    if isinstance(label, str | bool):
        return label
    if isinstance(label, int | float | np.number):
        return int(label) if float(label).is_integer() else float(label)
    return bool(label) if isinstance(label, np.bool_) else str(label)


def _refuse_infinite(raw: RawColumn) -> None:
    infinite = np.flatnonzero(np.isinf(raw.values))
    if len(infinite):
        raise SchemaError(
            f"Column {raw.name!r} contains infinity ({raw.values[infinite[0]]} in row {infinite[0]}, "
            f"{len(infinite)} in all). Replace infinite values by numbers or by missing values."
        )


def _check_overrides(overrides: Mapping[Any, Any], table: Table) -> dict[str, dict[str, Any]]:
    said: dict[str, dict[str, Any]] = {}
    for key, value in overrides.items():
        name = table.names[key] if isinstance(key, int) and 0 <= key < len(table.names) else str(key)
        if name not in table.names:
            raise SchemaError(f"The schema names column {name!r}, which the table has not.")
        settings = {"kind": value} if isinstance(value, str) else dict(value)
        unknown = [setting for setting in settings if setting not in OVERRIDES]
        if unknown:
            raise SchemaError(
                f"Column {name!r}: unknown setting {unknown[0]!r}; known are {', '.join(OVERRIDES)}."
            )
        if "kind" in settings and settings["kind"] not in KINDS:
            raise SchemaError(
                f"Column {name!r}: unknown kind {settings['kind']!r}; known are {', '.join(KINDS)}."
            )
        said[name] = settings
    return said
