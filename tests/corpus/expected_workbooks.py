"""Small workbooks, and what becomes of every column of the table of each when it is imputed.

A new workbook is a function that makes it and an entry in `WORKBOOKS`; `tests/cli/test_corpus_workbooks.py`
does the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from corpus.workbooks import MAIN, formula, number, pack, sheet, text


@dataclass(frozen=True)
class CellOutcome:
    """What becomes of the missing cells of a column.

    filled, left : how many are filled, and how many are empty in the output.
    kind : what the filled cells are: n for numbers, s for texts, b for booleans, d for dates.
    written : a pattern that their values match, as text.
    """

    filled: int = 0
    left: int = 0
    kind: str = ""
    written: str = ""


@dataclass(frozen=True)
class BookOutcome:
    """A workbook, its sheet, the outcome of each column, and patterns of lines on standard error."""

    make: Callable[[], bytes]
    title: str
    columns: Mapping[str, CellOutcome]
    says: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


COMPLETE = CellOutcome()


def clinic() -> bytes:
    """A workbook of a spreadsheet program: remarks, a table with formulas, a chart and a hidden list."""
    rng = np.random.default_rng(0)
    rows = [['t="s"><v>0</v>', "age", "visit", "weight", "height", "bmi", "sex"]]
    for row in range(2, 42):
        weight, height = round(rng.normal(75, 9), 1), round(rng.normal(1.75, 0.08), 2)
        rows.append([
            f"P{row:03d}",
            None if row in (5, 9, 30) else int(rng.integers(20, 80)),
            number("", 1).replace("<v></v>", "") if row in (7, 8) else number(43831 + 3 * row, 1),
            None if row % 10 == 0 else weight,
            height,
            formula(f'IF(D{row}="","",D{row}/E{row}^2)', "", 't="str"') if row % 10 == 0
            else formula(f"D{row}/E{row}^2", repr(weight / height**2)),
            None if row in (11, 12) else f't="s"><v>{1 + row % 2}</v>',
        ])  # fmt: skip
    sheets = {
        "Read me": sheet([["Measured in 2020"], [None], ["Weights in kg"]]),
        "Patients": sheet(rows, before='<cols><col min="1" max="1" width="20"/></cols>'),
        "Chart": f'<chartsheet xmlns="{MAIN}"/>',
        "lists": sheet([["sex", "code"], ["female", 1], ["male", 2]]),
    }
    return pack(sheets, charts=["Chart"], hidden=["lists"], strings=["patient", "female", "male"])


def cards() -> bytes:
    """Numbers as texts: of cards, of places with leading zeros, and amounts with commas; and a blank row."""
    rng = np.random.default_rng(1)
    rows = [["card", "zip", "amount", "n", "since"]]
    for row in range(2, 52):
        rows.append([
            None if row == 6 else text(f"4556{rng.integers(10**11, 10**12)}"),
            None if row in (8, 9) else text(("01234", "04109", "10115")[row % 3]),
            None if row in (10, 20) else text(f"{rng.normal(900, 90):.2f}".replace(".", ",")),
            None if row == 12 else int(rng.poisson(9)),
            None if row == 14 else text(f"{1 + row % 28:02d}.0{1 + row % 9}.2020"),
        ])  # fmt: skip
    rows[29] = [None] * 5
    return pack({"Tabelle1": sheet(rows)})


def ledger() -> bytes:
    """Titles, large identifiers, errors of formulas, booleans, times, merged cells and a placeholder."""
    rng = np.random.default_rng(2)
    rows = [["Ledger 2020"], [None], ["entry", "region", "paid", "at", "minutes", "share"]]
    for row in range(4, 64):
        rows.append([
            number(str(90071992547409931 + 2 * row)),
            None if row in (5, 6, 20) else ("north", "south", "west")[row % 3],
            None if row in (22, 23) else bool(row % 2),
            None if row == 24 else number(0.25 + 0.125 * (row % 4), 3),
            None if row in (25, 26) else 999 if row in (27, 28, 29) else int(rng.integers(1, 50)),
            formula(f"1/E{row}", "#DIV/0!", 't="e"') if row in (30, 31)
            else formula(f"1/E{row}", repr(row / 64)),
        ])  # fmt: skip
    merged = '<mergeCells count="2"><mergeCell ref="B4:B6"/><mergeCell ref="A1:F1"/></mergeCells>'
    return pack({"2020": sheet(rows, after=merged), "2021": sheet(rows[2:])})


WORKBOOKS: dict[str, BookOutcome] = {
    "clinic": BookOutcome(
        clinic,
        "Patients",
        {
            "patient": COMPLETE,
            "age": CellOutcome(3, kind="n", written=r"\d+"),
            "visit": CellOutcome(2, kind="d", written=r"2020-\d\d-\d\d 00:00:00"),
            "weight": CellOutcome(4, kind="n", written=r"\d\d(\.\d+)?"),
            "height": COMPLETE,
            "bmi": CellOutcome(left=4),
            "sex": CellOutcome(2, kind="s", written="female|male"),
        },
        (
            "sheet 'Patients' is read; the 3 other sheets are not",
            r"4 cells without a value are the result of a formula or part of merged cells, such as F10",
        ),
    ),
    "cards": BookOutcome(
        cards,
        "Tabelle1",
        {
            "card": CellOutcome(left=2),
            "zip": CellOutcome(2, left=1, kind="s", written="01234|04109|10115"),
            "amount": CellOutcome(2, left=1, kind="s", written=r"\d{3,4},\d\d"),
            "n": CellOutcome(1, left=1, kind="n", written=r"\d+"),
            "since": CellOutcome(1, left=1, kind="s", written=r"\d\d\.\d\d\.2020"),
        },
        (
            "row 30 is blank: kept and not imputed",
            "column 'card': 48 whole numbers have 16 or more digits",
            "column 'amount' contains numbers with decimal commas",
        ),
    ),
    "ledger": BookOutcome(
        ledger,
        "2020",
        {
            "entry": COMPLETE,
            "region": CellOutcome(1, left=2, kind="s", written="north|south|west"),
            "paid": CellOutcome(2, kind="b", written="True|False"),
            "at": CellOutcome(1, kind="d", written=r"(06|09|12|15):00:00"),
            "minutes": CellOutcome(2, kind="n", written=r"\d+"),
            "share": CellOutcome(left=2),
        },
        ("the rows above row 3 of sheet '2020' are not part of the table", "3 cells contain 999"),
        ("--sheet", "2020"),
    ),
}
