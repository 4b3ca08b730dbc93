"""Summary of an imputation as a plain dict of counts and shares, so that reports on many rows stay small."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from halfseen.report.fills import summarize_fill
from halfseen.report.run_info import UNKNOWN_RUN, RunInfo
from halfseen.report.shown_cells import KeptCells, ShownCells, missing_cells

MAX_COLUMNS = 60
MAX_PATTERNS = 20
MAX_PATTERN_COLUMNS = 40
MAX_BLOCKS = 80

Summary = dict[str, Any]


@dataclass(frozen=True)
class RowWeights:
    """The name of a column of weights, and the weights (N) of all rows of a table."""

    name: str
    values: np.ndarray


class ColumnLike(Protocol):
    """The attributes of a column that the report uses."""

    name: str
    kind: str
    dtype: str
    levels: tuple[Any, ...] | None
    reason: str


class SchemaLike(Protocol):
    """The attributes of a schema that the report uses."""

    @property
    def columns(self) -> Sequence[Any]:
        """The columns, in the order of the table."""


def summarize(
    table: pa.Table,
    filled: pa.Table,
    draws: Sequence[pa.Table],
    low: pa.Table | None,
    high: pa.Table | None,
    schema: SchemaLike,
    *,
    shown: ShownCells | None = None,
    probabilities: Mapping[str, np.ndarray] | None = None,
    left: Mapping[str, str] | None = None,
    kept: KeptCells | None = None,
    method: str = "",
    seed: int | None = None,
    level: float = 0.9,
    proper: bool = False,
    training_drift: Summary | None = None,
    structure: Summary | None = None,
    check: Mapping[str, Any] | None = None,
    reason: str = "",
    time_limit_met: bool = False,
    weights: RowWeights | None = None,
    run: RunInfo = UNKNOWN_RUN,
) -> Summary:
    """Count missing values, and compare imputed with observed values.

    Parameters
    ----------
    table : pyarrow.Table
        The incomplete table.
    filled : pyarrow.Table
        The same table with the best single value in each missing cell.
    draws : sequence of pyarrow.Table
        Completed tables drawn from the model; may be empty. Of the rows of `shown` only, if it is given.
    low, high : pyarrow.Table or None
        The ends of an interval per cell, equal to the cell where it was observed; of the same rows.
    schema : Schema
        Has ``columns``, each with ``name``, ``kind``, ``dtype``, ``levels`` and ``reason``.
    shown : ShownCells, optional
        The missing cells that pictures show; all of them if it is not given.
    probabilities : mapping of str to array, optional
        Per column of levels: the probability of the most probable level in each row, of the same rows.
    left : mapping of str to str, optional
        The reason, for each column with missing cells that were left empty.
    kept : mapping of str to pyarrow.Array, optional
        Per column: cells that are null in `table` but not missing, such as placeholders.
    method : str
        The name of the method.
    seed : int or None
        The seed of the draws.
    level : float
        The level of the intervals.
    proper : bool
        Whether the draws include the uncertainty of the parameters.
    training_drift : dict, optional
        The missing rates compared with those of the training table, if a saved model was applied.
    structure : dict, optional
        The structure of a circuit, made by `halfseen.report.circuit_tree.summarize_structure`.
    check : mapping, optional
        The outcome of a check on hidden known values: the dict of a `FillCheck`.
    reason : str
        Why the methods were chosen, if they were chosen on the table.
    time_limit_met : bool
        Whether a time limit ended the fit, so that values depend on the speed of the computer.
    weights : RowWeights, optional
        The weights of the rows in means and standard deviations.
    run : RunInfo
        How the report was made.

    Returns
    -------
    dict
        Numbers, strings, lists and dicts only: it survives ``json.dumps``.
    """
    known = {column.name: column for column in schema.columns}
    found = _summarize_missing(table, filled, known, left or {}, kept)
    return {
        **run.to_dict(),
        **found,
        "method": method,
        "reason": reason,
        "time_limit_met": bool(time_limit_met),
        "weights": None if weights is None else weights.name,
        "seed": seed,
        "level": float(level),
        "n_draws": len(draws),
        "proper": bool(proper),
        "training_drift": training_drift,
        "structure": structure,
        "check": None if check is None else dict(check),
        "fills": [
            _summarize_fill(
                known[name],
                table,
                filled,
                draws,
                low,
                high,
                (probabilities or {}).get(name),
                shown,
                kept,
                None if weights is None else weights.values,
            )
            for name in _emptiest(found["columns"])
            if name in known
        ],
    }


def _summarize_missing(
    table: pa.Table,
    filled: pa.Table,
    known: Mapping[str, ColumnLike],
    left: Mapping[str, str],
    kept: KeptCells | None,
) -> Summary:
    """Return what is missing from a table: counts, columns, patterns, and blocks of rows."""
    empty = np.column_stack([missing_cells(table, name, kept) for name in table.column_names])  # (N, D)
    n_left = np.array([missing_cells(filled, name, kept).sum() for name in table.column_names])
    columns = [
        _summarize_column(name, table[name], known.get(name), int(missing), int(still))
        for name, missing, still in zip(table.column_names, empty.sum(axis=0), n_left, strict=True)
    ]
    return {
        **_count(empty, n_left),
        "left": _summarize_left(columns, left),
        "columns": columns,
        "patterns": summarize_patterns(empty, table.column_names),
        "blocks": summarize_blocks(empty, table.column_names),
    }


def _count(empty: np.ndarray, n_left: np.ndarray) -> dict[str, int]:
    """Return counts of cells, rows and columns, from the missing cells (N, D) and those left empty (D)."""
    per_column = empty.sum(axis=0)
    return {
        "n_rows": len(empty),
        "n_columns": len(n_left),
        "n_cells": int(empty.size),
        "n_missing": int(per_column.sum()),
        "n_left": int(n_left.sum()),
        "n_left_columns": int((n_left > 0).sum()),
        "n_complete_rows": int((~empty.any(axis=1)).sum()),
        "n_complete_columns": int((per_column == 0).sum()),
        "n_incomplete_columns": int((per_column > 0).sum()),
        "n_filled_columns": int((per_column > n_left).sum()),
    }


def _summarize_fill(column: ColumnLike, *given: Any) -> Summary:
    """Return the result of `summarize_fill`; an error names the column."""
    try:
        return summarize_fill(column, *given)
    except Exception as error:  # raised again, with the name
        error.add_note(f"column {column.name!r}")
        raise


def _summarize_left(columns: Sequence[Summary], why: Mapping[str, str]) -> list[Summary]:
    """Return the columns with the most cells left empty, with the reason."""
    some = sorted((column for column in columns if column["n_left"]), key=lambda column: -column["n_left"])
    return [
        {key: column[key] for key in ("name", "n_left", "n_missing")} | {"why": why.get(column["name"], "")}
        for column in some[:MAX_COLUMNS]
    ]


def _emptiest(columns: Sequence[Summary]) -> list[str]:
    """Return the names of the columns with filled cells, those with the most missing cells first."""
    some = [column for column in columns if column["n_missing"] > column["n_left"]]
    return [column["name"] for column in sorted(some, key=lambda column: -column["n_missing"])[:MAX_COLUMNS]]


def _summarize_column(
    name: str, column: pa.ChunkedArray, known: ColumnLike | None, n_missing: int, n_left: int
) -> Summary:
    return {
        "name": name,
        "kind": known.kind if known is not None else "unknown",
        "dtype": str(known.dtype if known is not None else column.type),
        "reason": known.reason if known is not None else "",
        "n_observed": len(column) - n_missing,
        "n_missing": n_missing,
        "n_left": n_left,
        "share": n_missing / max(len(column), 1),
    }


def _most_missing(missing: np.ndarray, at_most: int) -> np.ndarray:
    """Return the positions of incomplete columns; those with most missing values if there are many."""
    counts = missing.sum(axis=0)
    chosen = np.argsort(-counts, kind="stable")[:at_most]
    return np.sort(chosen[counts[chosen] > 0])


def summarize_patterns(missing: np.ndarray, names: Sequence[str]) -> Summary:
    """Count the combinations of columns that are missing together, the most frequent first."""
    places = _most_missing(missing, MAX_PATTERN_COLUMNS)
    if len(places) == 0:
        return {
            "columns": [],
            "rows": [],
            "n_patterns": int(len(missing) > 0),
            "n_other": 0,
            "n_hidden_columns": 0,
        }
    part = missing[:, places]
    packed = np.zeros((len(part), 8 * -(-len(places) // 64)), dtype=np.uint8)
    bits = np.packbits(part, axis=1)
    packed[:, : bits.shape[1]] = bits
    keys = np.ascontiguousarray(packed).view(np.uint64)  # whole words sort much faster than rows of booleans
    unique = (keys[:, 0],) if keys.shape[1] == 1 else (keys,)
    _, first, counts = np.unique(
        *unique, return_index=True, return_counts=True, axis=None if keys.shape[1] == 1 else 0
    )
    order = np.lexsort((first, -counts))[:MAX_PATTERNS]
    rows = [
        {
            "missing": part[first[place]].tolist(),
            "count": int(counts[place]),
            "share": float(counts[place] / len(part)),
        }
        for place in order
    ]
    return {
        "columns": [names[place] for place in places],
        "rows": rows,
        "n_patterns": len(counts),
        "n_other": int(len(part) - sum(row["count"] for row in rows)),
        "n_hidden_columns": int((missing.any(axis=0)).sum() - len(places)),
    }


def summarize_blocks(missing: np.ndarray, names: Sequence[str]) -> Summary:
    """Return the share of missing cells per column and block of consecutive rows."""
    places = _most_missing(missing, MAX_COLUMNS)
    n_blocks = min(MAX_BLOCKS, len(missing))
    if len(places) == 0 or n_blocks == 0:
        return {"columns": [], "edges": [], "shares": []}
    edges = np.linspace(0, len(missing), n_blocks + 1).astype(int)
    counts = np.add.reduceat(missing[:, places].astype(np.int64), edges[:-1], axis=0)  # (blocks, columns)
    shares = counts / np.diff(edges)[:, None]
    return {
        "columns": [names[place] for place in places],
        "edges": edges.tolist(),
        "shares": shares.T.round(4).tolist(),
    }
