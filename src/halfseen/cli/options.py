"""Arguments and options that several commands share: each is declared and documented once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from halfseen.vocabulary import Missingness


class Format(StrEnum):
    """The formats of table files."""

    csv = "csv"
    parquet = "parquet"
    feather = "feather"
    jsonl = "jsonl"
    xlsx = "xlsx"


class MechanismName(StrEnum):
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


class Predictor(StrEnum):
    """The predictors that ``halfseen fit`` offers."""

    auto = "auto"
    constant_linear = "constant+linear"
    boosting = "boosting"
    constant_boosting = "constant+boosting"
    gaussian_linear = "gaussian+linear"
    gaussian_boosting = "gaussian+boosting"
    multiple_linear = "multiple+linear"
    multiple_boosting = "multiple+boosting"
    sparsity_norm = "sparsity-norm"
    neumiss = "neumiss"
    circuit = "circuit"
    average = "average"


COMPARED_PREDICTORS = ("baseline", *(one.value for one in Predictor if one != Predictor.auto))
"""What ``halfseen compare --target`` compares."""


class TaskName(StrEnum):
    """What a target asks for."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


class RecommenderName(StrEnum):
    """The recommenders of ``halfseen fit``."""

    autorec = "autorec"
    cfnade = "cfnade"
    factorisation = "matrix-factorisation"
    ensemble = "ensemble"


class RatingRows(StrEnum):
    """What a row of a recommender is."""

    item = "item"
    user = "user"


Source = Annotated[
    str,
    typer.Argument(
        metavar="IN", help="csv, tsv (also .gz), parquet, feather, jsonl or xlsx file; - is standard input."
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="OUT", help="The file to write; - is standard output.")
]
Report = Annotated[str | None, typer.Option(metavar="R.html", help="Write a self-contained HTML report.")]
TaskOption = Annotated[
    TaskName, typer.Option(help="Whether the target is classes or numbers; auto decides by its values.")
]
SchemaFile = Annotated[
    str | None,
    typer.Option(metavar="S.json", help='Kinds and bounds of columns: {"columns": {"sex": "categorical"}}.'),
]
Delimiter = Annotated[
    str | None, typer.Option(help="The delimiter of a csv file: one character or 'tab'. Detected by default.")
]
Encoding = Annotated[str | None, typer.Option(help="The encoding of a csv file. Detected by default.")]
SourceFormat = Annotated[
    Format | None,
    typer.Option("--from", help="The format of IN, if it cannot be inferred from the file name."),
]
OutputFormat = Annotated[
    Format | None,
    typer.Option("--to", help="The format of OUT, if it cannot be inferred from the file name."),
]
SheetName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The sheet of an xlsx file. By default, the only one that holds a table."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing except errors.")]


@dataclass(frozen=True)
class ReadingOptions:
    """The options of how a table file is read."""

    delimiter: Delimiter = None
    encoding: Encoding = None
    null: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]TEXT",
            help="A text or number that means missing, in all columns or in one; may be repeated.",
        ),
    ] = None
    no_default_nulls: Annotated[
        bool,
        typer.Option(
            "--no-default-nulls",
            help="Only empty cells and --null texts are missing, not NA, NaN, ? and so on.",
        ),
    ] = False
    number_format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]1.234,56",
            help="How 1234.56 is written, in ambiguous columns or in one column; COLUMN=text keeps it as "
            "text. Detected by default.",
        ),
    ] = None
    date_order: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]dmy",
            help="The order of day, month and year: dmy, mdy or ymd. Detected by default.",
        ),
    ] = None
    source_format: SourceFormat = None
    sheet: SheetName = None
    max_expansion: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="The memory that the content of a compressed file may take, as in '8 GB'. An eighth of the "
            "memory of the machine by default.",
        ),
    ] = None

    def to_arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `read_table`."""
        return {
            "format": self.source_format,
            "delimiter": self.delimiter,
            "encoding": self.encoding,
            "nulls": tuple(self.null or ()),
            "default_nulls": not self.no_default_nulls,
            "number_formats": tuple(self.number_format or ()),
            "date_orders": tuple(self.date_order or ()),
            "sheet": self.sheet,
            "max_expansion": self.max_expansion,
        }
