"""Arguments and options that several commands share: each is declared and documented once."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from halfseen.cli.methods import COMPARED, QUICK
from halfseen.errors import TableError
from halfseen.vocabulary import Missingness


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are dataclasses are replaced by the fields of these.

    Typer reads the options of a command from its signature. A parameter whose annotation is a dataclass
    appears there as one keyword parameter for each field; the command itself receives the dataclass.

    Parameters
    ----------
    command : callable
        The command. The names of its parameters and of all fields of its groups must differ.

    Returns
    -------
    callable
        The command, with keyword parameters only.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 2
    ...     height: int = 3
    >>> @expand_groups
    ... def show(name: str, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> show(name="area", height=5)
    area 10
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    signature = inspect.signature(command)
    parameters = [
        expanded
        for name, parameter in signature.parameters.items()
        for expanded in (
            _parameters_of(groups[name])
            if name in groups
            else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])]
        )
    ]

    @wraps(command)
    def expanded_command(**values: Any) -> None:
        for name, group in groups.items():
            given = [field.name for field in fields(group) if field.name in values]
            values[name] = group(**{field: values.pop(field) for field in given})
        command(**values)

    expanded_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded_command.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return expanded_command


def _parameters_of(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default_of(field),
            annotation=hints[field.name],
        )


def _default_of(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default


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


@dataclass(frozen=True)
class DescribeOptions:
    """The options of a description, except those of reading the table."""

    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Report how missingness is associated with this column first."),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER", help="A reference table, whose missingness is compared with that of IN."
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A saved predictor: report whether its predictions depend on the number of known values.",
        ),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="LABEL",
            help="With --model: the class whose predicted probability is examined.",
        ),
    ] = None
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[=LEVEL]",
            help="Report how the mean of a column, or the share of a level, depends on the assumption that "
            "values are missing at random; may be repeated.",
        ),
    ] = None
    reference: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="With --sensitivity: find the departure at which the interval reaches VALUE.",
        ),
    ] = None
    schema: SchemaFile = None
    report: Report = None
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Random seed for subsampling and cross-validation.")] = 0


@dataclass(frozen=True)
class CompareOptions:
    """The options of a comparison, except those of reading the table."""

    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Compare predictors of this column instead of imputers."),
    ] = None
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"The methods to compare, out of {', '.join(COMPARED)}; by default {','.join(QUICK)}. "
            f"With --target out of {', '.join(COMPARED_PREDICTORS)}; all by default.",
        ),
    ] = None
    task: TaskOption = TaskName.auto
    folds: Annotated[int, typer.Option(min=2, help="With --target: the number of folds.")] = 5
    rates: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="With --target: shares of known values that are removed before predicting.",
        ),
    ] = "0.1,0.3,0.5"
    budget: Annotated[float, typer.Option(help="With --target: the time limit in seconds.")] = 300.0
    rate: Annotated[float, typer.Option(help="The fraction of known values to remove, with mcar.")] = 0.2
    mechanism: Annotated[
        str,
        typer.Option(
            help="mcar: remove values completely at random; learned: imitate the table's own missing values."
        ),
    ] = "mcar"
    repeats: Annotated[
        int,
        typer.Option(
            min=1,
            help="The number of repetitions, each with new splits and removed values. With --target: the "
            "largest number, while methods are tied and --budget allows.",
        ),
    ] = 5
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal scores.")] = 0
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Store results and finished runs; a second run resumes. With --target: a JSON file.",
        ),
    ] = None
    report: Report = None
    level: Annotated[float, typer.Option(help="Probability of the intervals whose coverage is measured.")] = (
        0.9
    )
    draws: Annotated[int, typer.Option(min=1, help="The number of draws for CRPS and energy distance.")] = 20
    test_fraction: Annotated[float, typer.Option(help="The fraction of rows held out.")] = 0.3
    max_rows: Annotated[
        int | None,
        typer.Option(
            min=4,
            help="Longer tables are subsampled to this many rows: 10,000 by default, 5,000 with --target.",
        ),
    ] = None
    jobs: Annotated[
        int, typer.Option(help="The number of parallel runs; times are comparable only with 1.")
    ] = 1
    schema: Annotated[str | None, typer.Option(metavar="S.json", help="Kinds and bounds of columns.")] = None


def parse_rates(text: str) -> tuple[float, ...]:
    """Return the rates in a list with commas, sorted, and 0 before them.

    Examples
    --------
    >>> parse_rates("0.5, 0.1")
    (0.0, 0.1, 0.5)
    """
    try:
        rates = {float(part) for part in text.split(",") if part.strip()}
    except ValueError:
        raise TableError(f"--rates must be numbers with commas between them, got {text!r}") from None
    return tuple(sorted(rates | {0.0}))
