"""Spreadsheets (xlsx): the first sheet as a table, by the optional package openpyxl."""

import datetime
import io
import zipfile
from collections.abc import Iterable
from typing import Any, BinaryIO

import pyarrow as pa

from halfseen.cli.errors import TableError
from halfseen.cli.table_file import TableFile


def parse_spreadsheet(data: bytes, source: str) -> tuple[pa.Table, list[str]]:
    """Return the cells of the first sheet as texts, and notices; its first row has the names."""
    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except (InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise TableError(f"{source}: not a readable xlsx file ({error})") from None
    sheet = book.worksheets[0]
    rows = [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
    if not rows:
        raise TableError(f"{source}: the first sheet is empty")
    header = [_as_text(name) or f"column_{place}" for place, name in enumerate(rows[0], start=1)]
    columns = [
        pa.array([_as_text(row[place]) if place < len(row) else "" for row in rows[1:]], pa.large_string())
        for place in range(len(header))
    ]
    others = [one.title for one in book.worksheets[1:]]
    notes = [f"the first sheet, {sheet.title!r}, is read; {len(others)} more are not"] if others else []
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise TableError(f"{source}: duplicate column names: {twice!r}; names must be unique")
    return pa.table(columns, names=header), notes


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ", timespec="seconds")
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def write_spreadsheet(tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, draw: str | None) -> None:
    """Write completed tables as one sheet of values, one below the other; `draw` names a first column."""
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("table")
    for number, table in enumerate(tables, start=1):
        if number == 1:
            sheet.append(([draw] if draw is not None else []) + table.column_names)
        kept = {name: cells.to_pylist() for name, cells in like.kept.items() if like.keeps_texts(name)}
        texts = {name: like.text[name].to_pylist() for name in kept} if like.text is not None else {}
        columns = [table[name].to_pylist() for name in table.column_names]
        for row, cells in enumerate(zip(*columns, strict=True)):
            values = [
                texts[name][row] if name in texts and kept[name][row] else _as_cell(cell)
                for name, cell in zip(table.column_names, cells, strict=True)
            ]
            sheet.append(([number] if draw is not None else []) + values)
    buffer = io.BytesIO()
    book.save(buffer)
    file.write(buffer.getvalue())


def _as_cell(value: Any) -> Any:
    """Return a value that a sheet can hold: times without a zone, and text for what it does not know."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    known = bool | int | float | str | datetime.date | datetime.timedelta | None
    return value if isinstance(value, known) else str(value)
