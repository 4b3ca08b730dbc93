"""The command ``halfseen ampute``: read a table, hide some of its cells by a mechanism, write the rest."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen import missingness
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import AmputeRequest
from halfseen.files.table_file import CellTexts
from halfseen.files.tables import TableError, TableFile, read_table
from halfseen.files.writing import check_output, check_overwriting, write_tables
from halfseen.words import Missingness, shape_words

_SHOWN_COLUMNS = 12


MECHANISMS: dict[str, Callable[..., missingness.Mechanism]] = {
    "mcar": lambda seed, **common: missingness.MCAR(**common),
    "rows": lambda seed, **common: missingness.MCAR(unit="rows", **common),
    Missingness.MAR: lambda seed, **common: missingness.MARLogistic(random_state=seed, **common),
    Missingness.LOGISTIC: lambda seed, **common: missingness.LogisticSelfMasking(**common),
    Missingness.PROBIT: lambda seed, **common: missingness.ProbitSelfMasking(**common),
    Missingness.GAUSSIAN: lambda seed, **common: missingness.GaussianSelfMasking(**common),
    "censor-upper": lambda seed, **common: missingness.QuantileCensoring(tail="upper", **common),
    "censor-lower": lambda seed, **common: missingness.QuantileCensoring(tail="lower", **common),
    "censor-both": lambda seed, **common: missingness.QuantileCensoring(tail="both", **common),
    "dropout": lambda seed, **common: missingness.MonotoneDropout(**common),
}


def ampute(request: AmputeRequest, reporter: Reporter) -> None:
    """Hide cells of a table file."""
    check_output(request.output, request.output_format)
    check_overwriting({"IN": request.source}, {"--output": request.output}, overwrite=request.overwrite)
    file = read_table(request.source, **request.reading.to_arguments())
    reporter.show("read", f"{file.source} ({file.format}): {shape_words(*file.table.shape)}")
    for note in file.notes:
        reporter.note(note)
    columns = None if request.columns is None else [name.strip() for name in request.columns.split(",")]
    try:
        mechanism = MECHANISMS[request.mechanism](
            seed=request.seed, rate=request.rate, columns=_find_columns(columns, file)
        ).fit(file.table)
        amputed = mechanism.amputate(file.table, random_state=request.seed)
    except ValueError as error:
        raise TableError(str(error)) from None
    holed = _without_text(file, amputed)
    write_tables([holed.table], request.output, holed, format=request.output_format)
    _show_shares(file, holed, mechanism, reporter)
    reporter.show("wrote", "standard output" if request.output == "-" else request.output)
    reporter.done()


def _find_columns(columns: Sequence[str] | None, file: TableFile) -> list[str | int] | None:
    """Return the columns asked for; a number that is not a name is a position, counted from 1."""
    if columns is None:
        return None
    names = file.table.column_names
    found: list[str | int] = []
    for column in columns:
        if column in names:
            found.append(column)
        elif column.isdecimal() and 1 <= int(column) <= len(names):
            found.append(int(column) - 1)
        else:
            known = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
            raise TableError(f"{Path(file.source).name}: no column {column!r}; there are {known}")
    return found


def _without_text(file: TableFile, table: pa.Table) -> TableFile:
    """Return the file with a table that lost cells, and their text lost too; NA that was there stays NA."""
    lost = {
        name: pc.and_(file.table[name].is_valid(), table[name].is_null()).combine_chunks()
        for name in table.column_names
    }
    # Cells are removed, so the output is not a copy of a workbook in which some cells are filled.
    sheet = None if file.sheet is None else replace(file.sheet, workbook=None)
    text, literals = _blank(file.text, lost, ""), _blank(file.literals, lost, "null")
    return replace(file, table=table, text=text, literals=literals, sheet=sheet)


def _blank(texts: CellTexts | None, lost: dict[str, pa.Array], nothing: str) -> CellTexts | None:
    if texts is None:
        return None
    return texts.with_columns({n: pc.if_else(lost[n], nothing, texts[n]) for n in texts.column_names})


def _show_shares(file: TableFile, holed: TableFile, mechanism: Any, reporter: Reporter) -> None:
    reporter.show("removed", f"{holed.n_missing - file.n_missing:,} cells of {_count(file):,}")
    for j in np.sort(mechanism.columns_)[:_SHOWN_COLUMNS].tolist():
        before, after = file.table.column(j), holed.table.column(j)
        there = len(before) - before.null_count
        share = (after.null_count - before.null_count) / max(1, there)
        name = file.table.column_names[j]
        reporter.show("", f"{name}: {share:.1%} removed, {mechanism.expected_rate_[j]:.1%} expected")
    if len(mechanism.columns_) > _SHOWN_COLUMNS:
        reporter.show("", f"and {len(mechanism.columns_) - _SHOWN_COLUMNS} more columns")


def _count(file: TableFile) -> int:
    return file.table.num_rows * file.table.num_columns - file.n_missing
