"""The schema of a table: kinds, levels and bounds of its columns, inferred or given by the user.

Conversion of a frame or an array to numbers ("codes") with a mask, by a schema.

The code of a cell is the number by which it is encoded: the number itself, the position of its level, or the
time since a reference. Texts and numbers such as 999 that mean missing in a file are a different matter; see
`halfseen.files.missing_codes`. Estimators, the evaluation of imputers and the diagnosis of missing values all
use this module.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from halfseen._arrays import Booleans, Floats
from halfseen.data._inference import describe_column, infer_column, wants_numbers
from halfseen.data.columns import KINDS, NUMERIC, Column, Kind, SkipRule
from halfseen.data.frames import RawColumn, Table, is_frame
from halfseen.data.incomplete import unmask
from halfseen.data.relations import check_derived, find_groupings, groups_unseen
from halfseen.data.skip_rules import check_rules
from halfseen.data.summaries import ColumnSummary
from halfseen.errors import SchemaError, warn_user
from halfseen.files.text_formats import looks_like_number

__all__ = ["KINDS", "Column", "Kind", "Schema", "SkipRule"]

OVERRIDES = (
    "kind", "minimum", "maximum", "firm", "integer", "levels", "fill", "skip",
    "censored_below", "censored_above", "derived", "predictor",
)  # fmt: skip
EVERY, FOR_EVERY = "*", ("fill", "skip")  # the entry for all columns, and its settings
DEEPEST = 10  # lists and objects within each other in a schema file; the settings need five
MOSTLY_NUMBERS = 0.9  # share of number-like cells of a text column from which the user is warned


@dataclass(frozen=True)
class Schema:
    """The description of the columns of a table, in order.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [31.0, None, 47.0], "s": ["f", "m", None]})
    >>> print(Schema.infer(Table(frame), {"age": {"maximum": 120}}))
    age: count [>= 0; <= 120; whole numbers], 1 missing. Whole numbers, none negative; maximum set by user.
    Imputed values may exceed the observed range: 15 to 120.
    s: binary [2 levels: f, m], 1 missing. Two distinct values.
    """

    columns: tuple[Column, ...]

    @classmethod
    def infer(cls, table: Table, overrides: Mapping[Any, Any] | None = None) -> "Schema":
        """Infers the kind of every column.

        Parameters
        ----------
        table : Table
            The table.
        overrides : mapping, optional
            From the name or position of a column to a kind, or to settings: kind, minimum, maximum, firm,
            integer, levels, censored_below, censored_above, fill, skip, derived, predictor. Bounds of dates
            may be ISO text. They apply to imputed values only: the distribution is restricted to them or,
            with ``firm`` False, values are clipped. Values below ``censored_below`` are known only to be
            below it. With ``fill`` True or False, missing values are imputed or left empty, whatever the kind
            of the column. ``skip`` is a rule ``{"column": name, "values": [...]}`` of the rows to which the
            column does not apply, or False if no rule is to be inferred. ``derived`` is a formula of other
            columns, such as ``"weight / height ** 2"``, from which missing values follow; models do not see
            such a column unless ``predictor`` is True. The name ``"*"`` stands for all columns that are not
            named; it accepts ``fill`` and ``skip`` only.

        Raises
        ------
        SchemaError
            If a setting is unknown or impossible, or if a value contradicts the given kind.

        Warns
        -----
        HalfseenWarning
            If distinct integers beyond 2**53 become equal as floating-point numbers, or if a text column that
            is not modelled looks like numbers.
        """
        return cls.of(column for _, column in infer_columns(table, overrides))

    @classmethod
    def of(cls, columns: Iterable[Column]) -> "Schema":
        """Creates a schema of inferred columns, whose skip rules are checked."""
        schema = cls(tuple(columns))
        check_rules(schema.columns)
        check_derived(schema.columns)
        return schema

    @staticmethod
    def read_overrides(path: str | Path) -> dict[str, Any]:
        """Reads settings per column from JSON: ``{"columns": {"age": {"kind": "count", "maximum": 9}}}``.

        The output of `to_dict` is accepted too.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"), parse_int=_read_integer)
        except FileNotFoundError:
            raise SchemaError(f"There is no schema file {str(path)!r}.") from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise SchemaError(f"The schema file {str(path)!r} cannot be read: {error}") from error
        except RecursionError:
            raise SchemaError(f"The schema file {str(path)!r} is nested too deeply.") from None
        if _depth(content) > DEEPEST:
            raise SchemaError(f"The schema file {str(path)!r} is nested too deeply.")
        columns = content.get("columns") if isinstance(content, dict) else None
        if isinstance(columns, list) and all(isinstance(c, dict) and "name" in c for c in columns):
            columns = {c["name"]: {k: v for k, v in c.items() if k in OVERRIDES} for c in columns}
        if not isinstance(columns, dict):
            raise SchemaError(
                f'The schema file {str(path)!r} must contain {{"columns": {{name: settings}}}}.'
            )
        return columns

    def to_dict(self) -> dict[str, Any]:
        """Returns the schema as data that can be written as JSON."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Schema":
        """Restores a schema from the output of `to_dict`."""
        known = {field.name for field in fields(Column)}
        columns = []
        for entry in content["columns"]:
            values = {key: value for key, value in entry.items() if key in known}
            for name in ("levels", "codes"):
                values[name] = None if values.get(name) is None else tuple(values[name])
            if isinstance(values.get("skip"), Mapping):
                values["skip"] = SkipRule(values["skip"]["column"], tuple(values["skip"]["values"]))
            columns.append(Column(**values))
        return cls(tuple(columns))

    def __str__(self) -> str:
        return "\n".join(column.one_line() for column in self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


def _read_integer(text: str) -> int | float:
    """Returns an integer of JSON; infinity if it is beyond the range of floating-point numbers."""
    number = float(text)
    return int(text) if isfinite(number) else number


def _depth(content: Any) -> int:
    """Returns how deeply lists and objects of JSON are nested."""
    depth, level = 0, [content]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [child for one in level for child in (one.values() if isinstance(one, dict) else one)]
    return depth


def _warn_of_merged(raw: RawColumn) -> None:
    if raw.n_merged:
        warn_user(
            f"Column {raw.name!r} contains integers beyond 2**53, which floating-point numbers cannot "
            f"represent exactly: {raw.n_merged} of its distinct values cannot be distinguished from others. "
            "Subtract a constant from the column, or convert it to text if its values are identifiers."
        )


def _warn_of_numbers(raw: RawColumn, column: Column) -> None:
    """Warns if the cells of a text column that is not modelled look like numbers with separators.

    Text of a data frame is never converted, unlike that of a file: the type of a column is a statement of the
    user, and imputed values must have it. What numbers look like is decided by the reader of files.
    """
    if raw.storage != "label" or column.kind not in ("identifier", "text"):
        return
    counts = np.bincount(raw.values[~np.isnan(raw.values)].astype(np.int64), minlength=len(raw.labels))
    alike = np.array([looks_like_number(str(label)) for label in raw.labels])
    only_digits = all(str(label).strip().isdecimal() for label in raw.labels)
    if counts[alike].sum() > MOSTLY_NUMBERS * counts.sum() and not only_digits:
        example = raw.labels[int(np.argmax(alike * counts))]
        warn_user(
            f"Column {raw.name!r} is text and is not used by the model, although most of its values look "
            f"like numbers, such as {example!r}. Convert it to numbers, or set its kind in the schema if "
            "its values are identifiers."
        )


def infer_columns(
    table: Table,
    overrides: Mapping[Any, Any] | None = None,
    positions: Iterable[int] | None = None,
    summaries: Sequence[ColumnSummary] | None = None,
) -> Iterator[tuple[RawColumn, Column]]:
    """Yields all or some columns of a table as they were read, and what they are; see `infer_codes`."""
    settings = _check_overrides({} if overrides is None else overrides, table.names)
    for j in range(len(table.names)) if positions is None else positions:
        name, raw = table.names[j], table.column(j)
        _warn_of_merged(raw)
        own = settings.get(name, {})
        if summaries is None:
            column = infer_column(raw, own, named=table.named, n_columns=len(table.names))
        else:
            column = _infer_of_all(raw, summaries[j], own, n_columns=len(table.names))
        if "kind" not in settings.get(name, {}):
            _warn_of_numbers(raw, column)
        yield raw, column


def _infer_of_all(raw: RawColumn, of_all: ColumnSummary, own: dict[str, Any], *, n_columns: int) -> Column:
    """Returns the description of a column of a table of which `raw` has some rows.

    A column of which these rows have at most one value is described by them: they are no data for a model.
    """
    lost = len(np.unique(raw.values[~np.isnan(raw.values)])) < min(2, of_all.n_distinct)
    if not lost:
        return describe_column(of_all, own, named=True)
    column = infer_column(raw, own, named=True, n_columns=n_columns)
    return replace(column, reason=f"{column.reason.rstrip('.')} in the rows that were chosen at random.")


def read_as_numbers(names: Sequence[str], overrides: Mapping[Any, Any] | None) -> frozenset[str]:
    """Returns which columns with these names are read as numbers by the settings of the user, if text."""
    settings = _check_overrides({} if overrides is None else overrides, names)
    return frozenset(name for name, own in settings.items() if wants_numbers(own))


def _check_overrides(overrides: Any, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    if not isinstance(overrides, Mapping):
        raise SchemaError(f"The schema must map column names to settings, got {overrides!r:.60}.")
    every = {} if EVERY in names else _for_every(overrides.get(EVERY, {}))
    checked: dict[str, dict[str, Any]] = {name: {} for name in names}  # in which names are found fast
    for key, value in overrides.items():
        name = str(key)
        if name == EVERY and name not in checked:
            continue
        if name not in checked and isinstance(key, Integral) and 0 <= int(key) < len(names):
            name = names[int(key)]
        if name not in checked:
            raise SchemaError(f"The schema refers to column {name!r}, which is not in the table.")
        checked[name] = _check_settings(name, value)
    return {name: every | settings for name, settings in checked.items()}


def _for_every(value: Any) -> dict[str, Any]:
    settings = _check_settings(EVERY, value)
    wrong = [key for key in settings if key not in FOR_EVERY or not isinstance(settings[key], bool)]
    if wrong:
        raise SchemaError(
            f"The schema entry {EVERY!r}, for every column, takes true or false for "
            f"{' and '.join(FOR_EVERY)}, not {wrong[0]}={settings[wrong[0]]!r}."
        )
    return settings


def _check_settings(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, str | Mapping):
        raise SchemaError(f"Column {name!r}: expected a kind or a mapping of settings, got {value!r}.")
    settings = (
        {"kind": value} if isinstance(value, str) else {k: v for k, v in value.items() if v is not None}
    )
    unknown = [setting for setting in settings if setting not in OVERRIDES]
    if unknown:
        raise SchemaError(
            f"Column {name!r}: unknown setting {unknown[0]!r}; known are {', '.join(OVERRIDES)}."
        )
    if "kind" in settings and settings["kind"] not in KINDS:
        raise SchemaError(
            f"Column {name!r}: unknown kind {settings['kind']!r}; known are {', '.join(KINDS)}."
        )
    for key in ("integer", "fill", "firm", "predictor"):
        if not isinstance(settings.get(key, False), bool):
            raise SchemaError(f"Column {name!r}: {key} must be true or false, got {settings[key]!r}.")
    if "skip" in settings:
        settings["skip"] = _as_rule(name, settings["skip"])
    levels = settings.get("levels", ())
    if not isinstance(levels, list | tuple) or ("levels" in settings and not levels):
        raise SchemaError(f"Column {name!r}: levels must be a list of values, got {levels!r}.")
    if len(set(map(str, levels))) < len(levels):
        raise SchemaError(f"Column {name!r}: levels must differ, got {levels!r}.")
    return settings


def _as_rule(name: str, value: Any) -> SkipRule | bool:
    if isinstance(value, SkipRule | bool):
        return value
    values = (
        value.get("values") if isinstance(value, Mapping) and set(value) == {"column", "values"} else None
    )
    if not isinstance(values, list | tuple) or not values:
        raise SchemaError(
            f'Column {name!r}: skip must be {{"column": name, "values": [...]}} or false, got {value!r}.'
        )
    return SkipRule(str(value["column"]), tuple(values))


@dataclass(frozen=True)
class Codes:
    """The cells of a table by a schema: values, positions among levels, microseconds.

    Shapes
    ------
    values : (N, C), of the modelled columns; 0 where not observed.
    observed : (N, C); a level that the schema does not know is not observed, though it is not missing.
    missing : (N, P), of all columns: the cells that the user left empty.
    """

    columns: tuple[Column, ...]
    values: Floats
    observed: Booleans
    missing: Booleans

    @property
    def with_nan(self) -> Floats:
        """The values (N, C) with NaN where they are not observed."""
        return np.where(self.observed, self.values, np.nan)


def open_table(X: Any) -> Table:
    """Opens a frame of any library or an array of numbers; raises if it has no rows or no columns."""
    if is_frame(X):
        table = Table(X)
    else:
        array = np.asarray(unmask(X), dtype=np.float64)
        if array.ndim != 2:
            raise SchemaError(f"Expected a table or a two-dimensional array, got shape {array.shape}.")
        table = Table(array)
    if table.n_rows == 0 or not table.names:
        raise SchemaError(f"The table has {table.n_rows} rows and {len(table.names)} columns.")
    return table


def read_codes(table: Table, schema: Schema, *, censored: bool = True) -> Codes:
    """Reads each column of a table once, by a schema.

    Parameters
    ----------
    table : Table
        The table, with the columns of the schema.
    schema : Schema
        What the columns are.
    censored : bool
        Whether cells that are known only to lie beyond a limit count as observed.

    Examples
    --------
    >>> import pandas as pd
    >>> table = Table(pd.DataFrame({"x": [1.5, None, 2.5], "s": ["b", "a", "b"], "one": [1, 1, 1]}))
    >>> read_codes(table, Schema.infer(table)).with_nan
    array([[1.5, 1. ],
           [nan, 0. ],
           [2.5, 1. ]])
    """
    cells = _Cells(table, sum(column.modelled for column in schema))
    for j, column in enumerate(schema):
        cells.add(table.column(j), column, censored=censored)
    return cells.codes()


def infer_codes(
    table: Table,
    overrides: Mapping[Any, Any] | None = None,
    *,
    censored: bool = True,
    summaries: Sequence[ColumnSummary] | None = None,
) -> tuple[Schema, Codes]:
    """Infers a schema and reads the codes by it, each column of the table once; see `Schema.infer`.

    In a data frame, columns of numbers that group rows are read again, as categories or identifiers.

    Parameters
    ----------
    table : Table
        The table.
    overrides : mapping, optional
        The column settings of the user.
    censored : bool
        Whether cells that are known only to lie beyond a limit count as observed.
    summaries : sequence of ColumnSummary, optional
        If the rows are some of a larger data frame, the columns of that one. Relations between columns are
        found in the rows.
    """
    cells = _Cells(table, len(table.names))
    columns = []
    for raw, column in infer_columns(table, overrides, summaries=summaries):
        cells.add(raw, column, censored=censored)
        columns.append(column)
    schema, codes = Schema.of(columns), cells.codes()
    if not table.named:
        return schema, codes
    grouped = _with_groups(table, schema, codes, summaries)
    if all(one.kind == other.kind for one, other in zip(grouped, schema, strict=True)):
        return grouped, codes
    return grouped, read_codes(table, grouped, censored=censored)


def _with_groups(
    table: Table, schema: Schema, codes: Codes, summaries: Sequence[ColumnSummary] | None
) -> Schema:
    """Returns the schema in which columns that group rows are described as such, and are not numbers."""
    columns = list(schema)
    modelled = [j for j, column in enumerate(columns) if column.modelled]
    if summaries is not None:
        for c, j in enumerate(modelled):
            _warn_of_unseen_groups(columns[j], codes.values[:, c], codes.observed[:, c], summaries[j])
    for found in find_groupings(codes.columns, codes.values, codes.observed):
        j = modelled[found.position]
        column = columns[j]
        if summaries is not None:
            found = replace(found, n_groups=summaries[j].n_distinct)
        if column.kind != found.kind:
            settings = {"kind": found.kind, "fill": column.fill, "skip": column.skip}
            ((_, column),) = infer_columns(table, {column.name: settings}, [j], summaries)
            column = replace(column, set_by_user=False)
        columns[j] = found.described(column)
    return Schema.of(columns)


def _warn_of_unseen_groups(column: Column, codes: Floats, observed: Booleans, of_all: ColumnSummary) -> None:
    """Warns of a column of which some rows of a table do not show whether it groups the rows."""
    if groups_unseen(column, codes, observed, of_all.n_observed, of_all.n_distinct):
        warn_user(
            f"Each value of column {column.name!r} is in {of_all.n_observed / of_all.n_distinct:.0f} rows on "
            "average, but in too few of the rows that were chosen at random to find out whether it groups "
            "rows, as the identifier of a person with several rows does. If it does, set its kind to "
            "identifier in the schema."
        )


class _Cells:
    """The codes of the columns of a table, of which at most `n_modelled` are modelled."""

    def __init__(self, table: Table, n_modelled: int) -> None:
        self.missing = np.empty((table.n_rows, len(table.names)), dtype=bool)
        self.values = np.empty((table.n_rows, n_modelled))
        self.columns: list[Column] = []
        self.n_read = 0

    def add(self, raw: RawColumn, column: Column, *, censored: bool) -> None:
        """Adds the next column."""
        self.missing[:, self.n_read] = np.isnan(raw.values)
        self.n_read += 1
        if not column.modelled:
            return
        code = column.encode(raw)
        if not censored:
            code = np.where(column.is_censored(code), np.nan, code)
        self.values[:, len(self.columns)] = code
        self.columns.append(column)

    def codes(self) -> Codes:
        """Returns the codes of all columns."""
        values = np.ascontiguousarray(self.values[:, : len(self.columns)])
        observed = ~np.isnan(values)
        values[~observed] = 0.0  # in place: a table can be large
        return Codes(tuple(self.columns), values, observed, self.missing)


def code_settings(columns: Sequence[Column]) -> dict[int, dict[str, Any]]:
    """Returns schema settings with which an estimator reads an array of codes as columns of their kinds."""
    return {j: _code_settings(column) for j, column in enumerate(columns)}


def _code_settings(column: Column) -> dict[str, Any]:
    if column.levels is not None:
        return {"kind": column.kind, "levels": list(range(len(column.levels)))}
    settings: dict[str, Any] = {"kind": column.kind if column.kind in NUMERIC else "continuous"}
    if column.kind in NUMERIC:
        names = ("minimum", "maximum", "firm", "integer")
        settings |= {name: getattr(column, name) for name in names}
    return {key: value for key, value in settings.items() if value is not None}
