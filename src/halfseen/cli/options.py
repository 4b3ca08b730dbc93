"""Arguments and options that several commands share, so that they are spelt and explained alike."""

from enum import StrEnum
from typing import Annotated

import typer

from halfseen.vocabulary import Missingness


class Format(StrEnum):
    """The formats of table files."""

    csv = "csv"
    parquet = "parquet"
    feather = "feather"


class Mechanism(StrEnum):
    """The mechanisms that the command line offers."""

    mcar = "mcar"
    rows = "rows"
    mar = Missingness.MAR.value
    logistic = Missingness.LOGISTIC.value
    probit = Missingness.PROBIT.value
    gaussian = Missingness.GAUSSIAN.value
    censor_upper = "censor-upper"
    censor_lower = "censor-lower"
    censor_both = "censor-both"
    dropout = "dropout"


class Scale(StrEnum):
    """How much of an experiment to run."""

    smoke = "smoke"
    small = "small"
    paper = "paper"


Source = Annotated[
    str,
    typer.Argument(metavar="IN", help="csv, tsv (also .gz), parquet or feather file; - is standard input."),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="OUT", help="Where to write; - is standard output.")
]
Report = Annotated[
    str | None, typer.Option(metavar="R.html", help="Write a report, one self-contained page.")
]
Delimiter = Annotated[
    str | None, typer.Option(help="Between the cells of a csv: one character or 'tab'. Found if not given.")
]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a csv. Found if not given.")]
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--null",
        metavar="[COLUMN=]TEXT",
        help="A cell text that means missing, in all columns or in one; repeat for more.",
    ),
]
NumberFormats = Annotated[
    list[str] | None,
    typer.Option(
        "--number-format",
        metavar="[COLUMN=]1.234,56",
        help="How 1234.56 is written, in columns that do not tell or in one; COLUMN=text keeps one as text. "
        "Found if not given.",
    ),
]
DateOrders = Annotated[
    list[str] | None,
    typer.Option(
        "--date-order",
        metavar="[COLUMN=]dmy",
        help="The order of day, month and year: dmy, mdy or ymd. Found if not given.",
    ),
]
NoDefaultNulls = Annotated[
    bool,
    typer.Option(
        "--no-default-nulls", help="Only empty cells and --null texts are missing, not NA, NaN, ? ..."
    ),
]
SourceFormat = Annotated[
    Format | None, typer.Option("--from", help="Format of IN, if its name does not say.")
]
OutputFormat = Annotated[Format | None, typer.Option("--to", help="Format of OUT, if its name does not say.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing unless it fails.")]
