"""JSON lines: one object per line, the columns of a table by their keys."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from halfseen.cli.csv_tables import splice
from halfseen.cli.errors import TableError
from halfseen.cli.table_file import TableFile

_BARE = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


class _Literal(str):
    """A number as it is written."""


def parse_json_lines(data: bytes, source: str) -> pa.Table:
    """Return the cells of a file of JSON lines as texts; empty where a value is null or a key is absent."""
    columns: dict[str, list[str]] = {}
    n_rows = 0
    for number, record in _records(data, source):
        for key, value in record.items():
            cells = columns.setdefault(key, [""] * n_rows)
            if len(cells) > n_rows:
                raise TableError(f"{source}: line {number} has the key {key!r} twice")
            cells.append(_as_text(value))
        n_rows += 1
        for cells in columns.values():
            cells.extend([""] * (n_rows - len(cells)))
    if not columns:
        raise TableError(f"{source}: no line has a key, so there are no columns")
    return pa.table({key: pa.array(cells, pa.large_string()) for key, cells in columns.items()})


def _records(data: bytes, source: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise TableError(f"{source}: not UTF-8, which JSON lines must be") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_float=_Literal, parse_int=_Literal)
        except (ValueError, RecursionError):
            raise TableError(f"{source}: line {number} is not JSON: {line[:40]!r}") from None
        if not isinstance(record, dict):
            raise TableError(f"{source}: line {number} is not an object with keys: {line[:40]!r}")
        yield number, record


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def write_json_lines(tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, draw: str | None) -> None:
    """Write completed tables as JSON lines, one below the other; `draw` names a first key that counts them.

    Plain numbers and booleans are written as such; other observed cells keep their text.
    """
    for number, table in enumerate(tables, start=1):
        columns = [_values(table[name], like, name) for name in table.column_names]
        for cells in zip(*columns, strict=True):
            record = {draw: number} if draw is not None else {}
            record |= dict(zip(table.column_names, cells, strict=True))
            file.write(json.dumps(record, ensure_ascii=False, default=str).encode() + b"\n")


def _values(column: pa.ChunkedArray, like: TableFile, name: str) -> list[Any]:
    """Return the values of a column: plain numbers and booleans as such, all else as it was written."""
    bare = any(is_kind(column.type) for is_kind in _BARE)
    style = like.styles.get(name)
    if like.text is None or style is None:
        return (column.cast(pa.large_string()) if pa.types.is_temporal(column.type) else column).to_pylist()
    if bare and style.number is None and not style.limits and not like.keeps_texts(name):
        return column.to_pylist()
    texts = splice(like.text[name], like.table[name], column, style, like.kept.get(name))
    return [text or None for text in texts.to_pylist()]
