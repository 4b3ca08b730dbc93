"""What is to become of every column of the files in `formats`, written down before the code.

The files are small exports as people have them. An `Expected` says which type a column has for models, how
many of its cells are missing, what its first cell is read as, how a value is written into a missing cell, and
what the command line says of the column.
"""

import datetime
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Expected:
    """The outcome of one column.

    Parameters
    ----------
    dtype : str
        The Arrow type that models see.
    missing : int
        Cells to be filled: empty ones, and those with a text that means missing.
    first : object
        The value of the first cell.
    writes : dict
        From a value to the text by which a missing cell is filled with it.
    says : tuple of str
        Regular expressions; each is found in a note that names the column.
    kept : int
        Cells whose text stays although models do not see it.
    settings : dict
        Schema settings that were found while reading.
    """

    dtype: str
    missing: int
    first: Any = None
    writes: dict[Any, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    kept: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


NO_BREAK, NARROW = "\u00a0", "\u202f"
DAY, SECOND = "date32[day]", "timestamp[us]"
day, moment = datetime.date, datetime.datetime
LEFT = {"kind": "text", "fill": False}

EXPECTED: dict[str, dict[str, Expected]] = {
    "german_bank.csv": {  # semicolon, byte-order mark, CRLF
        "Buchungstag": Expected(DAY, 1, day(2021, 5, 28), {day(2021, 6, 3): "03.06.2021"}, ("day first",)),
        "Verwendungszweck": Expected("string", 0, "Miete"),
        "Betrag": Expected("double", 2, -1577.37, {-1234.5: "-1.234,50", 12.0: "12,00"}, ("decimal commas",)),
        "Saldo": Expected("double", 1, 3422.63, {1234567.891: "1.234.567,89"}, ("decimal commas",)),
        "Gebühr": Expected("double", 2, 0.5, {0.25: "0,25 €"}, ("amounts in €",)),
    },
    "german_survey.csv": {  # semicolon, Windows-1252, CRLF; 2.500 is decided by the other columns
        "Nr": Expected("int64", 0, 1),
        "Größe": Expected("double", 2, 1.82, {1.7: "1,70"}, ("decimal commas",)),
        "Gewicht": Expected("double", 2, 72.9, {80.0: "80,0 kg"}, ("unit kg",)),
        "Anteil": Expected("double", 2, 29.8, {30.04: "30,0 %"}, ("percentages",)),
        "Einkommen": Expected(
            "int64", 2, 2500, {2750: "2.750", 950: "950"}, ("could also be", "other columns")
        ),
        "Note": Expected("double", 3, 2.3, {2.0: "2,0"}, ("2 cells .*'k.A.'.* missing",)),
    },
    "french_sales.csv": {  # semicolon, blanks that do not break
        "date": Expected(DAY, 2, day(2021, 5, 28), {day(2021, 9, 4): "04/09/2021"}, ("day first",)),
        "ville": Expected("string", 1, "Nîmes"),
        "montant": Expected("double", 2, 1577.37, {1234.5: f"1{NARROW}234,50{NO_BREAK}€"}, ("amounts in €",)),
        "remise": Expected("double", 2, 5.0, {3.33: f"3,3{NO_BREAK}%"}, ("percentages",)),
        "quantité": Expected("int64", 1, 12, {1234: "1 234", 12: "12"}, ("thousands",)),
    },
    "swiss_invoices.csv": {  # comma, apostrophes
        "Datum": Expected(DAY, 1, day(2022, 1, 31), {day(2022, 3, 5): "05.03.2022"}, ("day first",)),
        "Betrag": Expected("double", 2, 250.0, {1234.5: "CHF 1'234.50"}, ("amounts in CHF",)),
        "Total": Expected("double", 2, 269.25, {1234.5: "1'234.50"}, ("thousands",)),
        "Menge": Expected("int64", 1, 3, {1234: "1'234"}, ("thousands",)),
    },
    "us_export.csv": {  # comma, quoted cells
        "Date": Expected(DAY, 1, day(2021, 5, 28), {day(2021, 9, 4): "09/04/2021"}, ("month first",)),
        "Opened": Expected(
            SECOND,
            1,
            moment(2021, 5, 28, 15, 45),
            {
                moment(2021, 9, 4, 0, 7): "09/04/2021 12:07 AM",
                moment(2021, 9, 4, 13, 7): "09/04/2021 1:07 PM",
            },
            ("month first",),
        ),
        "Customer": Expected("string", 1, "Smith, J."),
        "Revenue": Expected("double", 2, 1577.37, {1234.5: "$1,234.50"}, (r"amounts in \$",)),
        "Margin": Expected("double", 2, 29.8, {30.04: "30.0%"}, ("percentages",)),
        "Net": Expected("int64", 2, 470, {-1234: "($1,234)", 5: "$5"}, (r"amounts in \$",)),
        "Units": Expected("int64", 2, 1577, {1234: "1,234"}, ("thousands",)),
    },
    "us_signs.csv": {
        "amount": Expected("double", 1, -5.0, {-1234.5: "-$1,234.50", 5.0: "$5.00"}, (r"amounts in \$",)),
        "change": Expected("double", 1, 2.5, {1.25: "+1.2%", -1.0: "-1.0%"}, ("percentages",)),
        "fee": Expected("int64", 1, 5, {12: "USD 12", -3: "USD -3"}, ("amounts in USD",)),
    },
    "lab_results.tsv": {  # tabs
        "sample": Expected("string", 0, "S-001"),
        "crp": Expected(
            "double",
            2,
            0.31,
            {0.03: "<0.05", 0.07: "0.07"},
            ("4 cells .*below",),
            settings={"censored_below": 0.05},
        ),
        "glucose": Expected("double", 3, 5.4, {5.0: "5.0 mmol/l"}, ("unit mmol/l", "1 cell .*'n.a.'")),
        "tsh": Expected(
            "double", 2, 1.85, {0.001: "< 0.01"}, ("3 cells .*below",), settings={"censored_below": 0.01}
        ),
        "ferritin": Expected(
            "int64",
            2,
            88,
            {2100: ">1000", 900: "900"},
            ("2 cells .*above",),
            settings={"censored_above": 1000.0},
        ),
        "lead": Expected(
            "double",
            1,
            1.4,
            {0.2: "<0.5"},
            ("4 cells .*below", "2 cells .*other limits"),
            2,
            {"censored_below": 0.5},
        ),
    },
    "survey_codes.csv": {  # numbers that can hardly be values are named and kept, and models do not see them
        "age": Expected("int64", 1, 34, {40: "40"}, ("3 cells contain 999.*19 to 80.*--null",), 3),
        "likert": Expected("int64", 1, 3, {4: "4"}, ("3 cells contain 9,.*--null likert=9",), 3),
        "income": Expected("int64", 2, 2500, {2222: "2222"}, ("4 cells contain -99.*--null income=-99",), 4),
        "children": Expected("int64", 4, 2, {1: "1"}, ("'-'.*'--'.*missing",)),
        "weight": Expected("double", 6, 72.5, {70.0: "70.0"}, (r"'\.'.*missing",)),
        "job": Expected("string", 2, "clerk", {}, ("3 cells contain 'unknown'.*--null job=unknown",)),
        "region": Expected("string", 2, "N"),
    },
    "dates_written.csv": {
        "shipped": Expected(DAY, 1, day(2021, 5, 28), {day(2021, 3, 4): "04-Mar-2021"}, ("dates like",)),
        "born": Expected(DAY, 1, day(1971, 5, 28), {day(1972, 3, 4): "March 4, 1972"}, ("dates like",)),
        "signed": Expected(DAY, 1, day(2021, 5, 28), {day(2021, 3, 4): "2021/03/04"}, ("year first",)),
        "logged": Expected(
            SECOND,
            1,
            moment(2021, 5, 28, 8, 15),
            {moment(2021, 3, 4, 5, 6, 7): "2021/03/04 05:06:07"},
            ("year first",),
        ),
        "gemeldet": Expected(DAY, 1, day(2021, 5, 28), {day(2021, 3, 4): "4. März 2021"}, ("dates like",)),
    },
    "dates_ambiguous.csv": {  # days and months cannot be distinguished: the column stays text
        "when": Expected("string", 1, "03/04/2021", {}, ("--date-order when=",), settings=LEFT),
        "x": Expected("double", 2, 1.5, {1.25: "1.2"}),
    },
    "dates_decided.csv": {  # the second column decides for the first
        "start": Expected(
            DAY, 1, day(2021, 4, 3), {day(2021, 3, 4): "04/03/2021"}, ("day first.*other columns",)
        ),
        "end": Expected(DAY, 1, day(2021, 4, 13), {day(2021, 3, 4): "04/03/2021"}, ("day first",)),
        "x": Expected("double", 2, 1.5, {1.25: "1.2"}),
    },
    "junk.csv": {
        "price": Expected("string", 2, "1.50", {}, ("'abt 4' in line 5.*--number-format",), settings=LEFT),
        "height": Expected("string", 2, "5'11\""),
        "phone": Expected("string", 0, "030 100 410"),
        "version": Expected("string", 2, "1.2.3"),
        "code": Expected("string", 2, "007", {}, ("begin with 0",)),
        "parcel": Expected("string", 2, "5 kg"),
        "address": Expected("string", 0, "3 Elm St"),
        "dependents": Expected("string", 1, "0"),
        "measure": Expected("string", 2, "12.1", {}, ("'12,4' in line 3",), settings=LEFT),
    },
    "thousands_unknown.csv": {  # semicolon; nothing says whether the point is a decimal one
        "sold": Expected("double", 2, 1.577, {2.5: "2.500"}, ("could also be.*--number-format",)),
        "stock": Expected("int64", 2, 12, {20: "20"}),
    },
    "excel_errors.csv": {
        "ratio": Expected("double", 4, 0.51, {0.5: "0.50"}, ("2 cells .*'#DIV/0!'.*'#VALUE!'.*missing",)),
        "growth": Expected("int64", 3, 12, {-2: "-2%"}, ("percentages", "1 cell .*'#REF!'")),
        "note": Expected("string", 1, "ok", {}, ("1 cell contains 'none'.*--null note=none",)),
    },
    "counts_blank.csv": {  # tabs; two-digit years; 1,577 is decided by the other columns
        "when": Expected(DAY, 1, day(2021, 5, 28), {day(2021, 6, 3): "03.06.21"}, ("day first",)),
        "population": Expected("int64", 1, 1204500, {1234567: "1 234 567"}, ("thousands",)),
        "area_km²": Expected("double", 2, 310.5, {50.0: "50,0"}, ("decimal commas",)),
        "ratio": Expected("double", 1, 1.577, {2.5: "2,500"}, ("decimal commas",)),
    },
    "mixed_thousands.csv": {  # comma; numbers with and without separators in one column
        "visitors": Expected(
            "int64",
            2,
            7954,
            {1234: "1,234", 15000: "15,000"},
            ("commas between thousands", "27 cells like '7,954' .*as 7954.*be 7.954.*1 cell .*'15770'"),
        ),
        "members": Expected("int64", 1, 1234567, {15000: "15,000"}, ("commas between thousands",)),
        "stock": Expected(
            "int64", 2, 412, {1234: "1,234", 12: "12"}, ("thousands", "could also be.*--number")
        ),
        "budget": Expected(
            "int64", 1, 48210, {1234: "1234", 52000: "52000"}, ("1 cell like '1,037' .*as 1037",)
        ),
        "area": Expected("double", 2, 1204.5, {1234.5: "1,234.5", 12000.0: "12,000.0"}, ("thousands",)),
    },
    "mixed_currency.csv": {
        "price": Expected(
            "int64",
            2,
            1234,
            {1234: "$1,234", 20000: "$20,000"},
            (r"amounts in \$", r"27 cells like '\$1,234' are read as 1234.*1 cell .*'\$15770'"),
        ),
        "total": Expected("double", 1, 12450.0, {1234.5: "$1,234.50"}, (r"amounts in \$",)),
        "euro": Expected(
            "int64",
            2,
            1450,
            {2500: "2.500 €", 20000: "20.000 €"},
            ("amounts in €", "27 cells like '1.450 €' .*1 cell"),
        ),
        "net": Expected(
            "int64",
            1,
            2750,
            {-1234: "($1,234)", 20000: "$20,000"},
            (r"amounts in \$", "could also be.*2 cells"),
        ),
    },
    "mixed_decimal_commas.csv": {  # semicolon, CRLF
        "Betrag": Expected("double", 2, 1577.37, {1234.5: "1.234,50"}, ("decimal commas and points",)),
        "Umsatz": Expected(
            "int64", 1, 1037, {2500: "2.500", 20000: "20.000"}, ("points", "27 cells like '1.037' .*2 cells")
        ),
        "Menge": Expected(
            "int64", 1, 1204500, {1234: "1234", 12345: "12.345"}, ("points between thousands",)
        ),
        "Quote": Expected(
            "double", 2, 1.577, {2.5: "2,500"}, ("decimal commas", "28 cells like '1,577' .*other columns")
        ),
    },
    "mixed_groups.tsv": {  # tabs; apostrophes, blanks and the Indian grouping
        "betrag": Expected("double", 2, 1250.5, {1234.5: "1'234.50"}, ("apostrophes between thousands",)),
        "rupees": Expected(
            "int64", 1, 123456, {1234567: "12,34,567", 123456: "1,23,456", 1234: "1,234"}, ("Indian",)
        ),
        "people": Expected("int64", 2, 1204500, {12345: "12 345"}, ("blanks between thousands",)),
        "steps": Expected("int64", 1, 8400, {12345: "12'345"}, ("apostrophes between thousands",)),
    },
    "mixed_dates.csv": {  # two layouts in each column; "due" is ambiguous, as slashes occur in both orders
        "bought": Expected(
            DAY,
            2,
            day(2019, 10, 22),
            {day(2021, 3, 4): "04.03.2021"},
            ("day first", "23 cells .*'22.10.2019'.*5 cells like '2020-02-29'"),
        ),
        "shipped": Expected(
            DAY,
            1,
            day(2021, 5, 28),
            {day(2021, 3, 4): "2021-03-04"},
            ("year first", "15 cells .*'2021-05-28'.*14 cells like '24-Apr-2021'"),
        ),
        "due": Expected("string", 1, "03/04/2020", {}, ("--date-order due=",), settings=LEFT),
        "born": Expected(
            DAY,
            1,
            day(1961, 7, 14),
            {day(1960, 3, 4): "04.03.1960"},
            ("day first", "cells like '04.02.68'.*1957 to 1968"),
        ),
        "logged": Expected(
            SECOND,
            1,
            moment(2021, 5, 28, 8, 15),
            {moment(2021, 3, 4, 5, 6): "04.03.2021 05:06"},
            ("day first", "4 cells like '2021-03-13 19:29:00'"),
        ),
        "mailed": Expected(
            DAY,
            1,
            day(2021, 5, 28),
            {day(2021, 3, 4): "04.03.2021"},
            ("day first", "10 cells like '05/28/2021' .*month first"),
        ),
    },
    "mixed_case_codes.csv": {
        "note": Expected(
            "double",
            7,
            4.7,
            {2.0: "2.0"},
            (r"6 cells contain 'k\.A\.' \(4\), 'k\.a\.' \(1\) or 'K\.A\.' \(1\), read as missing",),
        ),
        "job": Expected(
            "string",
            1,
            "Koch",
            {},
            (
                r"7 cells contain 'k\.A\.' \(6\) or 'k\.a\.' \(1\), 2 contain 'unbekannt'.*"
                r"--null job=k\.A\. --null job=unbekannt",
            ),
        ),
        "seit": Expected(
            DAY, 5, day(2019, 3, 14), {day(2021, 3, 4): "04.03.2021"}, ("day first", "4 cells .*'unknown'")
        ),
        "risk": Expected(
            "string",
            2,
            "low",
            {},
            (r"3 cells contain 'none' \(2\) or 'NONE' \(1\);.*--null risk=none \(1 cell .*'None'",),
        ),
        "ratio": Expected("double", 3, 0.51, {0.5: "0.50"}, ("2 cells contain .*'#Div/0!'.*missing",)),
    },
    "ambiguous_commas.csv": {  # comma: a comma is no decimal mark where commas separate the cells
        "size": Expected(
            "int64",
            2,
            1234,
            {2500: "2,500"},
            ("thousands", "18 cells like '1,234' .*commas separate.*be 1.234.*--number-format size=1234,567"),
        ),
        "group": Expected("string", 0, "x"),
    },
    "ambiguous_commas.tsv": {  # tabs: nothing decides
        "size": Expected(
            "double",
            2,
            1.234,
            {2.5: "2,500"},
            ("decimal commas", "18 cells like '1,234' .*ambiguous.*be 1234.*--number-format size=1,234"),
        ),
        "group": Expected("string", 0, "x"),
    },
    "ambiguous_marks.csv": {  # semicolon; the third column has numbers a thousand times apart in any reading
        "size": Expected("double", 1, 1.234, {2.5: "2,500"}, ("decimal commas", "19 cells like '1,234'")),
        "amount": Expected(
            "int64", 1, 2500, {3000: "3.000"}, ("points", "18 cells like '2.500' .*1 cell .*'18300'")
        ),
        "both": Expected(
            "string", 1, "3.120", {}, ("'3.120' and '5,097'.*--number-format both=",), settings=LEFT
        ),
    },
}

PENDING: frozenset[str] = frozenset()
"""Files whose outcome is written down and not yet reached."""
