"""The requests of the commands: each field is an option or an argument, declared and documented once."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer

from halfseen.base.catalogue import find_method
from halfseen.cli import options
from halfseen.cli.options import (
    COMPARED,
    DEFAULT_METHOD,
    QUICK,
    EngineOptions,
    Method,
    ReadingOptions,
    RegressionOptions,
    build,
    missingness_help,
    offered,
)
from halfseen.errors import TableError
from halfseen.words import Missingness


@dataclass(frozen=True)
class CountingOptions:
    """The options of a table of which missing values are counted in blocks."""

    engine: Annotated[
        options.EngineName | None,
        typer.Option(
            help="Read IN, one file or many, in blocks, and compute the tests from some of the rows: by "
            "processes of this machine (local), by Ray or by Dask."
        ),
    ] = None
    address: options.Address = None
    workers: options.Workers = None


@dataclass(frozen=True)
class SamplingOptions:
    """The options of a table that is read in blocks to fit a predictor."""

    engine: Annotated[
        options.EngineName | None,
        typer.Option(
            help="Read IN, one file or many, in blocks, and fit to about a million random rows: by processes "
            "of this machine (local), by Ray or by Dask."
        ),
    ] = None
    address: options.Address = None
    workers: options.Workers = None

    def given(self) -> bool:
        """Return whether a user asked for an engine; raise an error if only for its workers."""
        if self.engine is None and (self.address or self.workers):
            raise TableError("--address and --workers need --engine")
        return self.engine is not None


READING = ReadingOptions()
"""A file that is read without options."""

REGRESSIONS = RegressionOptions()
"""Chained equations as they are by default."""

UNITS = EngineOptions()
"""A table that is read as a whole, unless it is too large."""

COUNTING = CountingOptions()
"""A table that is described in memory, unless it is too large."""

SAMPLING = SamplingOptions()
"""A table that is read as a whole to fit a predictor."""


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise typer.BadParameter(f"{level} is not between 0 and 1.")
    return level


@dataclass(frozen=True, kw_only=True)
class ImputeRequest:
    """What a user asked ``halfseen impute`` for."""

    source: options.Source
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT", help="The file to write; - is standard output."),
    ] = None
    method: Annotated[
        Method,
        typer.Option(
            help="The imputation method; auto chooses among several (gaussian, if --missingness is given)."
        ),
    ] = DEFAULT_METHOD
    max_seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Approximate time limit of the method auto, in seconds; none by default, unless the table "
            "has millions of cells. Values may differ between runs if it is reached.",
        ),
    ] = None
    missingness: Annotated[Missingness | None, typer.Option(help=missingness_help())] = None
    draws: Annotated[
        int | None,
        typer.Option(min=1, metavar="M", help="Write M completed tables, stacked, for multiple imputation."),
    ] = None
    regressions: RegressionOptions = REGRESSIONS
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal values.")] = 0
    schema: options.SchemaFile = None
    report: options.Report = None
    overwrite: options.Overwrite = False
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Evaluate the method in the report: remove known values, and compare with simple methods.",
        ),
    ] = False
    level: Annotated[
        float, typer.Option(callback=_check_level, help="Probability of the intervals in the report.")
    ] = 0.9
    reading: ReadingOptions = READING
    output_format: options.OutputFormat = None
    save_model: Annotated[
        str | None, typer.Option(metavar="PATH", help="Save the fitted model to this file.")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Apply an imputer that was saved by --save-model, without fitting it again."
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Store the state of training here, so that the same command can resume after an "
            "interruption.",
        ),
    ] = None
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Replace the input file, which keeps its owner and permissions; without this option it is "
            "never overwritten. Files with hard links are refused.",
        ),
    ] = False
    derived: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=FORMULA",
            help="A column that follows from others: 'bmi = weight / height ** 2'; may be repeated.",
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Sampling weights of a survey: checked, used as a predictor, and for the means of the "
            "report.",
        ),
    ] = None
    fill_all: Annotated[
        bool,
        typer.Option(
            "--fill-all",
            help="Also impute identifiers, free text, columns with one observed value or none, and yes/no "
            "columns that cannot be predicted.",
        ),
    ] = False
    no_skip_rules: Annotated[
        bool,
        typer.Option(
            "--no-skip-rules",
            help="Do not detect columns that do not apply to some rows; impute them there too.",
        ),
    ] = False
    leave_unreliable: Annotated[
        bool,
        typer.Option(
            "--leave-unreliable",
            help="Leave columns empty that are not filled clearly better than by the mean or the most "
            "frequent level.",
        ),
    ] = False
    units: EngineOptions = UNITS
    given: frozenset[str] = field(default=frozenset(), metadata=options.NOT_AN_OPTION)
    """The names of the options that are on the command line, rather than at their defaults."""

    @property
    def destination(self) -> str:
        """The file to write."""
        return self.source if self.output is None else self.output

    @property
    def named_method(self) -> str:
        """The method, with its assumption about missingness if that is not the method's default."""
        assumed = self.missingness or offered(self.method)[0]
        return str(self.method) if assumed == offered(self.method)[0] else f"{self.method}:{assumed}"

    @property
    def draws_parameter(self) -> str | None:
        """The parameter that makes draws proper for multiple imputation, if the method has one."""
        return find_method(self.method).draws_parameter if self.named_method == self.method else None

    def for_check(self, method: str) -> "ImputeRequest":
        """Return the request for the imputer that fills hidden values: a single table, by this method."""
        return replace(self, method=Method(method), draws=None, checkpoint=None)

    def build_imputer(self, overrides: dict[str, Any] | None, callback: Callable[[Any], None]) -> Any:
        """Return the imputer of the method, set up as asked."""
        common: dict[str, Any] = {"schema": overrides, "random_state": self.seed}
        if self.draws_parameter is not None and self.draws is not None:
            common[self.draws_parameter] = self.draws
        if self.method == Method("chained"):
            common |= self.regressions.settings()
        if find_method(self.method).steps is not None:
            common["callback"] = callback
        if self.method == DEFAULT_METHOD:
            common["max_seconds"] = self.max_seconds
        return build(self.named_method, **common)

    def checked(self, given: frozenset[str]) -> "ImputeRequest":
        """Return the request with the options that were given; raise an error if some exclude each other.

        Without a method, an assumption about missingness selects the Gaussian, which has several.
        """
        if self.model is not None:
            _refuse_with_model(given)
        if self.output is None and not self.in_place:
            raise typer.BadParameter(
                "state where to write with --output, or use --in-place", param_hint="--output"
            )
        if self.in_place and self.source == "-":
            raise typer.BadParameter("--in-place cannot be used with standard input", param_hint="--in-place")
        if self.fill_all and self.leave_unreliable:
            raise typer.BadParameter(
                "contradicts --fill-all: use one of the two", param_hint="--leave-unreliable"
            )
        if "family" in given and self.regressions.analysis is None:
            raise typer.BadParameter(
                "is the model of the outcome of an analysis: state --analysis", param_hint="--family"
            )
        asked = next((name for name in options.REGRESSION_OPTIONS if name in given), None)
        if asked is not None:
            return replace(self, given=given, method=self._chained(asked, given))
        is_gaussian = "missingness" in given and "method" not in given
        return replace(self, given=given, method=Method("gaussian") if is_gaussian else self.method)

    def _chained(self, asked: str, given: frozenset[str]) -> Method:
        """Return the method that has regressions; raise an error if another one was asked for."""
        chained = Method("chained")
        if "missingness" in given or ("method" in given and self.method != chained):
            raise typer.BadParameter(
                "belongs to the method chained alone: leave out --method and --missingness",
                param_hint=f"--{asked.replace('_', '-')}",
            )
        return chained


OF_FITTING = (
    "method", "max_seconds", "missingness", "schema", "save_model", "checkpoint", "fill_all", "derived",
    "no_skip_rules", "evaluate", "leave_unreliable", *options.REGRESSION_OPTIONS,
)  # fmt: skip
"""Options of ``halfseen impute`` that only a fit has; a saved model has been fitted already."""


def _refuse_with_model(given: frozenset[str]) -> None:
    for name in OF_FITTING:
        if name in given:
            raise typer.BadParameter(
                "--model applies an imputer that is fitted already: leave this option out",
                param_hint=f"--{name.replace('_', '-')}",
            )


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What a user asked ``halfseen fit`` for."""

    source: options.Source
    save_model: Annotated[str, typer.Option(metavar="PATH", help="Save the fitted predictor to this file.")]
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to predict; not with --recommender.")
    ] = None
    method: Annotated[
        options.Predictor,
        typer.Option(
            help="The predictor; auto chooses one, or their average, by cross-validation. Names with + are "
            "an imputation and what predicts from the completed rows."
        ),
    ] = options.Predictor.auto
    task: options.TaskOption = options.TaskName.auto
    recommender: Annotated[
        options.RecommenderName | None,
        typer.Option(help="Fit a recommender: the table has the columns user, item and rating."),
    ] = None
    budget: Annotated[
        float | None,
        typer.Option(
            help="A time limit of auto for its choice, in seconds; none by default. Choices may differ "
            "between runs if it is reached."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal predictors.")] = 0
    schema: options.SchemaFile = None
    report: options.Report = None
    overwrite: options.Overwrite = False
    reading: ReadingOptions = READING
    sampling: SamplingOptions = SAMPLING


@dataclass(frozen=True, kw_only=True)
class PredictRequest:
    """What a user asked ``halfseen predict`` for."""

    model: Annotated[str, typer.Argument(metavar="MODEL", help="A predictor saved by halfseen fit.")]
    source: options.Source
    output: options.Output
    level: Annotated[
        float, typer.Option(callback=_check_level, help="Probability of the intervals of numbers.")
    ] = 0.9
    next_measurement: Annotated[
        bool,
        typer.Option(
            "--next-measurement",
            help="For a circuit classifier: also write which missing column of each row is most informative "
            "about the class, and its information gain (mutual information in nats).",
        ),
    ] = False
    report: options.Report = None
    overwrite: options.Overwrite = False
    reading: ReadingOptions = READING
    output_format: options.OutputFormat = None
    units: EngineOptions = UNITS


@dataclass(frozen=True, kw_only=True)
class DescribeRequest:
    """What a user asked ``halfseen describe`` for."""

    source: options.Source
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
    schema: options.SchemaFile = None
    report: options.Report = None
    overwrite: options.Overwrite = False
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False
    seed: Annotated[int, typer.Option(min=0, help="Random seed for subsampling and cross-validation.")] = 0
    reading: ReadingOptions = READING
    counting: CountingOptions = COUNTING


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """What a user asked ``halfseen compare`` for."""

    source: options.Source
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Compare predictors of this column instead of imputers."),
    ] = None
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"The methods to compare, out of {', '.join(one for one in COMPARED if ':' not in one)}; by "
            f"default {', '.join(QUICK)}. A colon may follow, and what --missingness of `halfseen impute` "
            "offers for the method, as in gaussian:self-masking-probit. "
            f"With --target out of {', '.join(options.COMPARED_PREDICTORS)}; all by default.",
        ),
    ] = None
    task: options.TaskOption = options.TaskName.auto
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
    report: options.Report = None
    overwrite: options.Overwrite = False
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
    reading: ReadingOptions = READING


@dataclass(frozen=True, kw_only=True)
class AmputeRequest:
    """What a user asked ``halfseen ampute`` for."""

    source: options.Source
    output: options.Output
    mechanism: Annotated[options.MechanismName, typer.Option(help="The missingness mechanism.")] = (
        options.MechanismName.mcar
    )
    rate: Annotated[
        float,
        typer.Option(help="The fraction of values to remove in each column; in the last one for dropout."),
    ] = 0.3
    overwrite: options.Overwrite = False
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns to remove values from; all by default.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds remove the same values.")] = 0
    reading: ReadingOptions = READING
    output_format: options.OutputFormat = None


@dataclass(frozen=True, kw_only=True)
class RecommendRequest:
    """What a user asked ``halfseen recommend`` for."""

    user: Annotated[str, typer.Option(metavar="USER", help="The user to recommend items to.")]
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[RATINGS]",
            help="A table with the columns user, item and rating; not needed with --model.",
        ),
    ] = None
    k: Annotated[int, typer.Option("-k", min=1, help="The number of items.")] = 10
    min_ratings: Annotated[
        int,
        typer.Option(
            min=0, help="Items with fewer ratings come last: one or two ratings say little about an item."
        ),
    ] = 5
    recommender: Annotated[
        options.RecommenderName | None,
        typer.Option(help="The recommender to fit; ensemble by default."),
    ] = None
    rows: Annotated[
        options.RatingRows | None,
        typer.Option(help="What a row of autorec or cfnade is: the ratings of an item, or of a user."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A saved recommender of any kind, to use instead of fitting one."),
    ] = None
    save_model: Annotated[
        str | None, typer.Option(metavar="PATH", help="Save the fitted recommender to this file.")
    ] = None
    overwrite: options.Overwrite = False
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal results.")] = 0
    delimiter: options.Delimiter = None
    encoding: options.Encoding = None
    source_format: options.SourceFormat = None
    sheet: options.SheetName = None

    @property
    def reading(self) -> dict[str, Any]:
        """The options of `read_table`."""
        return {
            "delimiter": self.delimiter,
            "encoding": self.encoding,
            "format": self.source_format,
            "sheet": self.sheet,
        }
