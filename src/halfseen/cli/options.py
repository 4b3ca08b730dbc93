"""The options that several commands share, and the names of methods that they accept."""

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from halfseen.base.catalogue import CATALOGUE, Family, find_method, find_method_of
from halfseen.errors import TableError
from halfseen.words import Missingness, check_missingness, similar_words

OFFERED = {
    method.name: method
    for method in CATALOGUE
    if method.on_command_line and method.family == Family.TABLE_IMPUTER
}
Method = StrEnum("Method", {name.replace("-", "_"): name for name in OFFERED})  # type: ignore[misc]
"""The imputers that the command line offers, as it lists them."""

DEFAULT_METHOD = Method("auto")

RIVALS = ("median", "knn", "iterative")
"""Imputers of scikit-learn that take part in comparisons."""

COMPARED = (
    *OFFERED,
    *(f"{name}:{word}" for name, method in OFFERED.items() for word in method.missingness[1:]),
    *RIVALS,
)
QUICK = (*(name for name, method in OFFERED.items() if method.quick), *RIVALS)
"""What is compared if nothing is named: networks take minutes."""


def offered(name: str) -> tuple[Missingness, ...]:
    """Return the assumptions about missingness that a method offers, the default first."""
    return find_method(name).missingness


def missingness_help() -> str:
    """Return a sentence that lists the methods which offer more than their default assumption."""
    several = [method for method in OFFERED.values() if len(method.missingness) > 1]
    lists = [
        f"{method.name} offers {method.missingness[0]} (its default), {', '.join(method.missingness[1:])}"
        for method in several
    ]
    return f"The assumed reason for missing values: {'; '.join(lists)}; all other methods assume mar."


def build(method: str, missingness: str | None = None, **settings: Any) -> Any:
    """Return the imputer of a method.

    A method and the assumption that it makes about missingness may be given as one name, with a colon.

    Examples
    --------
    >>> build("miwae", random_state=1)
    MIWAEImputer(random_state=1)
    >>> build("gaussian:self-masking-probit")
    GaussianImputer(missingness='self-masking-probit')
    """
    name, _, named = method.partition(":")
    default = offered(name)[0]
    assumed = missingness or named or default.value
    check_missingness(assumed, offered(name), besides=f" with the method {name}")
    if assumed != default:
        settings["missingness"] = assumed
    return find_method(name).estimator(**settings)


def parse_methods(text: str | None) -> tuple[str, ...]:
    """Return the names in a list with commas, `QUICK` if it is None; raise an error if one is unknown."""
    if text is None:
        return QUICK
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in COMPARED]
    if unknown:
        similar = similar_words(COMPARED, unknown[0])
        raise TableError(f"unknown method {unknown[0]!r}; choose from {', '.join(COMPARED)}{similar}")
    if not names:
        raise TableError(f"--methods is empty; choose from {', '.join(COMPARED)}")
    return names


def method_of(model: Any) -> str:
    """Return the name of a fitted imputer, with its assumption about missingness if it is not the default.

    Examples
    --------
    >>> method_of(build("gaussian:self-masking-probit"))
    'gaussian:self-masking-probit'
    """
    entry = find_method_of(model)
    if entry is None:
        raise TableError(f"{type(model).__name__} is not a method of this library, so it has no report")
    assumed = entry.assumption(model)
    return entry.name if assumed == entry.missingness[0] else f"{entry.name}:{assumed}"


NOT_AN_OPTION = {"option": False}
"""The metadata of a field of a group that is not an option of the command line."""


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are dataclasses are replaced by the fields of these.

    Typer reads the options of a command from its signature. A parameter whose annotation is a dataclass
    appears there as one keyword parameter for each field; the command itself receives the dataclass. A field
    that is a dataclass is replaced in the same way; one with the metadata `NOT_AN_OPTION` is left out.

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
    parameters = [one.replace(annotation=_in_words(one.annotation)) for one in parameters]

    @wraps(command)
    def expanded_command(**values: Any) -> None:
        filled = {name: _fill(group, values) for name, group in groups.items()}
        command(**values, **filled)

    expanded_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded_command.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    expanded_command.__doc__ = _without_line_breaks(command.__doc__ or "")
    return expanded_command


def _without_line_breaks(text: str) -> str:
    """Return paragraphs as one line each, which Typer wraps at the width of the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


_FEW_CHOICES = 20  # the most letters of choices beside an option; a guess


_PLACEHOLDERS = {bool: "", int: "N", float: "X", str: "TEXT"}


def _in_words(annotation: Any) -> Any:
    """Return the annotation of an option for the help: long choices are in the text, a flag has no value.

    Typer shows types and choices beside the option, where a narrow terminal cuts them within words.
    """
    if not hasattr(annotation, "__metadata__"):
        return annotation
    kind, (option, *others) = annotation.__origin__, annotation.__metadata__
    kinds = [one for one in (kind, *getattr(kind, "__args__", ())) if isinstance(one, type)]
    if option.metavar is not None:
        return annotation
    option = copy(option)
    option.metavar = next((_PLACEHOLDERS[one] for one in kinds if one in _PLACEHOLDERS), None)
    for choices in (list(one) for one in kinds if issubclass(one, StrEnum)):
        if len("|".join(choices)) > _FEW_CHOICES:
            option.metavar = "NAME"
            if not all(choice in option.help for choice in choices):
                option.help = f"{option.help} One of {', '.join(choices[:-1])} or {choices[-1]}."
    return Annotated[(kind, option, *others)]


def _option_fields(group: Any) -> Iterator[tuple[Field[Any], Any]]:
    """Yield the fields of a group that are options, or groups of options, with their annotations."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if field.metadata != NOT_AN_OPTION:
            yield field, hints[field.name]


def _parameters_of(group: Any) -> Iterator[inspect.Parameter]:
    for field, hint in _option_fields(group):
        if is_dataclass(hint):
            yield from _parameters_of(hint)
        else:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )


def _fill(group: Any, values: dict[str, Any]) -> Any:
    """Return a group with its part of the values, which is removed from them."""
    filled = {}
    for field, hint in _option_fields(group):
        if is_dataclass(hint):
            filled[field.name] = _fill(hint, values)
        elif field.name in values:
            filled[field.name] = values.pop(field.name)
    return group(**filled)


def options_given(context: typer.Context) -> frozenset[str]:
    """Return the names of the options that are on the command line, rather than at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, found in sources.items() if found and found.name == "COMMANDLINE")


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


class FamilyName(StrEnum):
    """The model of the outcome of an analysis."""

    auto = "auto"
    linear = "linear"
    logistic = "logistic"
    poisson = "poisson"
    cox = "cox"


Source = Annotated[
    str,
    typer.Argument(
        metavar="IN",
        help="csv, tsv (also .gz), parquet, feather, jsonl or xlsx file; a folder, or a quoted pattern such "
        "as '*.csv', names several; - is standard input.",
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="OUT", help="The file to write; - is standard output.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace outputs that exist; an input is never replaced.")
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
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print all notes, not only those that matter most.")
]


@dataclass(frozen=True)
class RegressionOptions:
    """The options of chained equations, which the method chained alone has."""

    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that says which rows belong together, such as a person or a school; the method "
            "chained then has random effects of groups.",
        ),
    ] = None
    slopes: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="With --groups: a number whose slope varies between groups."),
    ] = None
    analysis: Annotated[
        str | None,
        typer.Option(
            metavar="FORMULA",
            help="The analysis of the completed tables, 'y ~ x * z + I(w ** 2)', with which values are to be "
            "compatible.",
        ),
    ] = None
    family: Annotated[
        FamilyName, typer.Option(help="The model of the outcome of --analysis; auto decides by its values.")
    ] = FamilyName.auto
    predictors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=NAMES",
            help="The columns that may predict a column: 'bmi = height, weight'; may be repeated.",
        ),
    ] = None
    column_method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=METHOD",
            help="The method of a column: 'income = pmm' (matching), trees or regression; may be repeated.",
        ),
    ] = None
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORDER",
            help="An order that imputed values obey: 'discharge >= admission', 'age >= 18'; may be repeated.",
        ),
    ] = None
    block: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Columns of numbers that are drawn together: 'systolic, diastolic'; may be repeated.",
        ),
    ] = None
    visit_order: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="The columns that each cycle visits first: 'height, weight'."),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return the parameters of a `ChainedImputer` that were asked for.

        Examples
        --------
        >>> RegressionOptions(predictors=["bmi = height, weight"], block=["a,b"]).settings()
        {'predictors': {'bmi': ['height', 'weight']}, 'blocks': [['a', 'b']]}
        """
        predictors = [
            parse_setting("--predictors", one, "'bmi = height, weight'") for one in self.predictors or ()
        ]
        methods = [
            parse_setting("--column-method", one, "'income = pmm'") for one in self.column_method or ()
        ]
        found = {
            "groups": self.groups,
            "slopes": self.slopes,
            "analysis": self.analysis,
            "family": None if self.family == FamilyName.auto else str(self.family),
            "predictors": {name: _names(text) for name, text in predictors},
            "methods": dict(methods),
            "constraints": self.constraint,
            "blocks": [_names(text) for text in self.block or ()],
            "visit_order": _names(self.visit_order or ""),
        }
        return {name: value for name, value in found.items() if value}


REGRESSION_OPTIONS = tuple(RegressionOptions.__dataclass_fields__)


def parse_setting(option: str, text: str, form: str) -> tuple[str, str]:
    """Return the column and the text of an option of the form COLUMN=TEXT; raise an error if it is not."""
    name, equals, rest = (part.strip() for part in text.partition("="))
    if not (name and equals and rest):
        raise TableError(f"{option} {text!r} is not of the form {form}")
    return name, rest


def _names(text: str) -> list[str]:
    """Return the names of columns in a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


class EngineName(StrEnum):
    """What runs the units of a table that is read in blocks."""

    local = "local"
    ray = "ray"
    dask = "dask"


class LayoutName(StrEnum):
    """The files of a folder of outputs."""

    parts = "parts"
    files = "files"


Address = Annotated[
    str | None,
    typer.Option(help="With --engine: the address of a cluster; auto is that of Ray on this machine."),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine: the number of workers; all processors by default."),
]


@dataclass(frozen=True)
class EngineOptions:
    """The options of a table that is read in blocks, and need not fit into memory."""

    engine: Annotated[
        EngineName | None,
        typer.Option(
            help="Read IN, one file or many, in blocks, and write Parquet files and a manifest to the folder "
            "OUT: by processes of this machine (local), by Ray or by Dask."
        ),
    ] = None
    address: Address = None
    workers: Workers = None
    layout: Annotated[
        LayoutName | None,
        typer.Option(
            help="With --engine: files of about a million rows (parts), or one for each file of IN."
        ),
    ] = None
    row_id: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="With --engine: the column that identifies rows, for --draws; by default their numbers.",
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run of --engine that was interrupted.")
    ] = False


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
            "null": tuple(self.null or ()),
            "default_nulls": not self.no_default_nulls,
            "number_format": tuple(self.number_format or ()),
            "date_order": tuple(self.date_order or ()),
            "sheet": self.sheet,
            "max_expansion": self.max_expansion,
        }


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
