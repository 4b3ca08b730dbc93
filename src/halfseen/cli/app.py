"""The commands of ``halfseen`` and their options; each imports its work when it is called.

So ``halfseen --help`` loads neither torch nor pyarrow.
"""

from typing import Annotated

import typer

import halfseen
from halfseen.cli import impute_options, options
from halfseen.cli.errors import TableError, print_error
from halfseen.cli.methods import COMPARED, DEFAULT_METHOD, QUICK, parse_methods
from halfseen.cli.progress import Reporter

app = typer.Typer(
    name="halfseen", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"halfseen {halfseen.__version__}")
        raise typer.Exit


def _check_level(level: float) -> float:
    if not 0 < level < 1:
        raise typer.BadParameter(f"{level} is not between 0 and 1.")
    return level


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Machine learning on data with missing values."""


@app.command("impute")
def impute_command(
    context: typer.Context,
    source: options.Source,
    output: impute_options.Output = None,
    method: impute_options.ImputationMethod = DEFAULT_METHOD,
    max_seconds: impute_options.MaxSeconds = 120.0,
    missingness: impute_options.Assumption = None,
    draws: impute_options.Draws = None,
    seed: impute_options.Seed = 0,
    schema: impute_options.SchemaFile = None,
    report: options.Report = None,
    evaluate: impute_options.Evaluate = False,
    level: Annotated[
        float, typer.Option(callback=_check_level, help="Probability of the intervals in the report.")
    ] = 0.9,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    number_format: options.NumberFormats = None,
    date_order: options.DateOrders = None,
    source_format: options.SourceFormat = None,
    output_format: options.OutputFormat = None,
    save_model: impute_options.SaveModel = None,
    model: impute_options.Model = None,
    checkpoint: impute_options.Checkpoint = None,
    in_place: impute_options.InPlace = False,
    derived: impute_options.Derived = None,
    fill_all: impute_options.FillAll = False,
    no_skip_rules: impute_options.NoSkipRules = False,
    quiet: options.Quiet = False,
) -> None:
    """Impute the missing values of a table; observed values are returned unchanged.

    Cells that cannot be imputed sensibly stay empty and are listed. A csv file keeps the text of every
    observed cell, its delimiter, its encoding and its line ends.
    """
    from halfseen.cli.impute import Request, impute

    if model is not None:
        impute_options.check_for_model(context)
    impute_options.check_target(source, output, in_place)
    request = Request(
        source=source, output=source if output is None else output,
        method=impute_options.method_for(context, method).value, max_seconds=max_seconds,
        missingness=missingness, draws=draws, seed=seed, schema=schema, report=report, evaluate=evaluate,
        level=level, delimiter=delimiter, encoding=encoding, nulls=tuple(null or ()),
        default_nulls=not no_default_nulls, number_formats=tuple(number_format or ()),
        date_orders=tuple(date_order or ()), source_format=source_format, output_format=output_format,
        model=save_model, checkpoint=checkpoint, in_place=in_place, fill_all=fill_all,
        derived=tuple(derived or ()),
        skip_rules=not no_skip_rules, command=context.obj or "", saved=model,
        new_seed=impute_options.is_given(context, "seed"),
    )  # fmt: skip
    impute(request, Reporter(quiet=quiet))


@app.command("fit")
def fit_command(
    context: typer.Context,
    source: options.Source,
    save_model: Annotated[str, typer.Option(metavar="PATH", help="Save the fitted predictor to this file.")],
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to predict; not with --recommender.")
    ] = None,
    method: Annotated[
        options.Predictor,
        typer.Option(help="The predictor; auto chooses one by cross-validation."),
    ] = options.Predictor.auto,
    task: options.TaskOption = options.TaskName.auto,
    recommender: Annotated[
        options.RecommenderName | None,
        typer.Option(help="Fit a recommender: the table has the columns user, item and rating."),
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds that auto may take to choose.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal predictors.")] = 0,
    schema: options.SchemaFile = None,
    report: options.Report = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    number_format: options.NumberFormats = None,
    date_order: options.DateOrders = None,
    source_format: options.SourceFormat = None,
    quiet: options.Quiet = False,
) -> None:
    """Fit a predictor of one column to a table with missing values, and save it; nothing is imputed first.

    Rows without a target are left out. `halfseen predict` applies the saved predictor to new files.
    """
    from halfseen.cli.fit import Request, fit
    from halfseen.cli.ratings import save_recommender

    if (target is None) == (recommender is None):
        raise typer.BadParameter(
            "give the column to predict by --target, or --recommender for a table of ratings",
            param_hint="--target",
        )
    reading = {
        "format": source_format, "delimiter": delimiter, "encoding": encoding, "nulls": tuple(null or ()),
        "default_nulls": not no_default_nulls, "number_formats": tuple(number_format or ()),
        "date_orders": tuple(date_order or ()),
    }  # fmt: skip
    if target is None:
        save_recommender(source, str(recommender), save_model, seed, Reporter(quiet=quiet), reading)
        return
    request = Request(
        source, target, save_model, method.value, task.value, budget, report, seed, schema, context.obj or "",
        reading,
    )  # fmt: skip
    fit(request, Reporter(quiet=quiet))


@app.command("predict")
def predict_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A predictor saved by halfseen fit.")],
    source: options.Source,
    output: options.Output,
    level: Annotated[
        float, typer.Option(callback=_check_level, help="Probability of the intervals of numbers.")
    ] = 0.9,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    number_format: options.NumberFormats = None,
    date_order: options.DateOrders = None,
    source_format: options.SourceFormat = None,
    output_format: options.OutputFormat = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict the rows of a table by a saved predictor: all columns, and after them the predictions.

    A column of the training table that is not there counts as missing; other columns are passed through.
    """
    from halfseen.cli.predict import Request, predict

    request = Request(
        model, source, output, level, output_format,
        {
            "format": source_format, "delimiter": delimiter, "encoding": encoding, "nulls": tuple(null or ()),
            "default_nulls": not no_default_nulls, "number_formats": tuple(number_format or ()),
            "date_orders": tuple(date_order or ()),
        },
    )  # fmt: skip
    predict(request, Reporter(quiet=quiet))


@app.command("describe")
def describe_command(
    context: typer.Context,
    source: options.Source,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Report how missingness is associated with this column first."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="OTHER", help="Compare the missingness with this table, the reference."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A saved predictor: report whether predictions drift with the number of known values.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--class", metavar="LABEL", help="With --model: the class whose probability is followed."
        ),
    ] = None,
    sensitivity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN[=LEVEL]",
            help="Report how the mean of a column, or the share of a level, depends on the assumption that "
            "values are missing at random; may be repeated.",
        ),
    ] = None,
    reference: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="With --sensitivity: find the departure at which the interval reaches VALUE.",
        ),
    ] = None,
    report: options.Report = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for subsampling and cross-validation.")] = 0,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    number_format: options.NumberFormats = None,
    date_order: options.DateOrders = None,
    source_format: options.SourceFormat = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing except the JSON.")] = False,
) -> None:
    """Describe the missing values of a table: patterns, associations, and evidence against MCAR.

    Whether missingness depends on the missing values themselves cannot be tested from the data.
    """
    from halfseen.cli.describe import Request, run_describe

    reading = {
        "delimiter": delimiter,
        "encoding": encoding,
        "nulls": tuple(null or ()),
        "default_nulls": not no_default_nulls,
        "number_formats": tuple(number_format or ()),
        "date_orders": tuple(date_order or ()),
    }
    request = Request(
        source,
        target,
        against,
        report,
        as_json,
        seed,
        reading,
        context.obj or "",
        model,
        label,
        tuple(sensitivity or ()),
        reference,
    )
    run_describe(request, Reporter(quiet=quiet), source_format)


@app.command("compare")
def compare_command(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="csv, tsv (also .gz), parquet or feather file; - is standard input."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Compare predictors of this column instead: is it worth while to impute?"
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"The methods to compare, out of {', '.join(COMPARED)}; by default {','.join(QUICK)}. "
            f"With --target out of {', '.join(options.COMPARED_PREDICTORS)}; all by default.",
        ),
    ] = None,
    task: options.TaskOption = options.TaskName.auto,
    folds: Annotated[int, typer.Option(min=2, help="With --target: the number of folds.")] = 5,
    rates: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="With --target: shares of known values that are removed before predicting.",
        ),
    ] = "0.1,0.3,0.5",
    budget: Annotated[float, typer.Option(help="With --target: seconds for everything.")] = 300.0,
    rate: Annotated[float, typer.Option(help="The fraction of known values to remove, with mcar.")] = 0.2,
    mechanism: Annotated[
        str, typer.Option(help="mcar: completely at random; learned: like the table's own missing values.")
    ] = "mcar",
    repeats: Annotated[
        int, typer.Option(min=1, help="The number of repetitions, each with new splits and removed values.")
    ] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal scores.")] = 0,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Store results and finished runs; a second run resumes. With --target: a JSON file.",
        ),
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="R.html", help="Write a self-contained HTML report.")
    ] = None,
    level: Annotated[
        float, typer.Option(help="Probability of the intervals whose coverage is measured.")
    ] = 0.9,
    draws: Annotated[int, typer.Option(min=1, help="The number of draws for CRPS and energy distance.")] = 20,
    test_fraction: Annotated[float, typer.Option(help="The fraction of rows held out.")] = 0.3,
    max_rows: Annotated[
        int | None,
        typer.Option(
            min=4,
            help="Longer tables are subsampled to this many rows: 10,000 by default, 5,000 with --target.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Parallel runs; times are comparable with 1 only.")] = 1,
    schema: Annotated[str | None, typer.Option(metavar="S.json", help="Kinds and bounds of columns.")] = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    number_format: options.NumberFormats = None,
    date_order: options.DateOrders = None,
    source_format: options.SourceFormat = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing except errors.")] = False,
) -> None:
    """Compare imputers on known values that are removed from the table; failed runs are counted.

    With --target, predictors of this column are compared by cross-validation: on the incomplete table, with
    constants and missingness indicators, and after imputation.
    """
    reading = {
        "format": source_format, "delimiter": delimiter, "encoding": encoding, "nulls": tuple(null or ()),
        "default_nulls": not no_default_nulls, "number_formats": tuple(number_format or ()),
        "date_orders": tuple(date_order or ()),
    }  # fmt: skip
    if target is not None:
        from halfseen.cli import compare_target
        from halfseen.cli.predictors import parse_predictors

        names = options.COMPARED_PREDICTORS if methods is None else parse_predictors(methods)
        compare_target.run_compare_target(
            compare_target.Request(
                source, target, names, task.value, folds, options.parse_rates(rates), budget,
                max_rows or 5_000, seed, output, report, schema, context.obj or "", reading,
            ),
            Reporter(quiet=quiet),
        )  # fmt: skip
        return
    from halfseen.cli.compare import Request, run_compare

    for name, value in (("--level", level), ("--test-fraction", test_fraction)):
        if not 0 < value < 1:
            raise TableError(f"{name} must be between 0 and 1, got {value:g}")
    if jobs == 0:
        raise TableError("--jobs must not be 0; -1 means one per processor")
    request = Request(
        source, QUICK if methods is None else parse_methods(methods), rate, mechanism, repeats, seed, output,
        report, level, draws, test_fraction, max_rows or 10_000, jobs, schema, context.obj or "", reading,
    )  # fmt: skip
    run_compare(request, Reporter(quiet=quiet))


@app.command("ampute")
def ampute_command(
    source: options.Source,
    output: options.Output,
    mechanism: Annotated[
        options.Mechanism, typer.Option(help="The missingness mechanism.")
    ] = options.Mechanism.mcar,
    rate: Annotated[
        float,
        typer.Option(help="The fraction of values to remove in each column; in the last one for dropout."),
    ] = 0.3,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns to remove values from; all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds remove the same values.")] = 0,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    number_format: options.NumberFormats = None,
    date_order: options.DateOrders = None,
    source_format: options.SourceFormat = None,
    output_format: options.OutputFormat = None,
    quiet: options.Quiet = False,
) -> None:
    """Remove values from a table by a chosen mechanism; all other values are returned unchanged.

    The rate holds in every column: intercepts and thresholds are solved on the table itself. Values that are
    missing already stay missing and do not count. A removed value of a csv file becomes an empty cell.
    """
    from halfseen.cli.ampute import Request, ampute

    request = Request(
        source=source,
        output=output,
        mechanism=mechanism.value,
        rate=rate,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        seed=seed,
        delimiter=delimiter,
        encoding=encoding,
        nulls=tuple(null or ()),
        default_nulls=not no_default_nulls,
        number_formats=tuple(number_format or ()),
        date_orders=tuple(date_order or ()),
        source_format=source_format,
        output_format=output_format,
    )
    ampute(request, Reporter(quiet=quiet))


@app.command("recommend")
def recommend_command(
    user: Annotated[str, typer.Option(metavar="USER", help="The user to recommend items to.")],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[RATINGS]",
            help="A table with the columns user, item and rating; not needed with --model.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="The number of items.")] = 10,
    rows: Annotated[
        options.RatingRows,
        typer.Option(help="Whether the autoencoder reads the ratings of items or of users."),
    ] = options.RatingRows.item,
    model: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A saved recommender of any kind, to use instead of fitting one."),
    ] = None,
    save_model: Annotated[
        str | None, typer.Option(metavar="PATH", help="Save the fitted recommender to this file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal results.")] = 0,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    source_format: options.SourceFormat = None,
    quiet: options.Quiet = False,
) -> None:
    """Recommend items to a user, by the ratings of all users; print them with their predicted ratings."""
    from halfseen.cli.recommend import Request, recommend

    reading = {"delimiter": delimiter, "encoding": encoding, "format": source_format}
    request = Request(source, user, k, rows.value, seed, model, save_model, reading)
    recommend(request, Reporter(quiet=quiet))


@app.command("datasets")
def datasets_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The data set to show; lists all by default."),
    ] = None,
    data_home: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The folder of the files; HALFSEEN_DATA by default."),
    ] = None,
) -> None:
    """List the public data sets that halfseen knows, or show one."""
    from halfseen.cli.datasets import show_datasets

    show_datasets(name, data_home)


@app.command("reproduce")
def reproduce_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The experiment; lists all by default.")
    ] = None,
    scale: Annotated[
        options.ExperimentScale,
        typer.Option(help="smoke: a quick check; small: an answer on a laptop; paper: the paper's protocol."),
    ] = options.ExperimentScale.smoke,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="DIR", help="The folder for the result file and the figure."),
    ] = "results",
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Run everything again, instead of only what failed or is not stored."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the results.")] = False,
) -> None:
    """Reproduce a paper's experiment and print its numbers beside ours."""
    from halfseen.cli.reproduce import reproduce

    n_failed = reproduce(name, scale.value, output, fresh, Reporter(quiet=quiet))
    if n_failed:
        print_error(f"{n_failed} runs failed; the same command runs them, and only them, again")
        raise typer.Exit(1)
