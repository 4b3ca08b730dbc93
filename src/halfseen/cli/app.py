"""The commands of ``halfseen`` and their options; each imports its work when it is called.

So ``halfseen --help`` loads neither torch nor pyarrow.
"""

from typing import Annotated

import typer

import halfseen
from halfseen.cli import impute_options, options
from halfseen.cli.methods import DEFAULT_METHOD, QUICK, parse_methods
from halfseen.cli.options import CompareOptions, DescribeOptions, expand_groups, parse_rates
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
@expand_groups
def impute_command(
    context: typer.Context,
    source: options.Source,
    *,
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
    reading: options.ReadingOptions,
    output_format: options.OutputFormat = None,
    save_model: impute_options.SaveModel = None,
    model: impute_options.Model = None,
    checkpoint: impute_options.Checkpoint = None,
    in_place: impute_options.InPlace = False,
    derived: impute_options.Derived = None,
    weights: impute_options.Weights = None,
    fill_all: impute_options.FillAll = False,
    no_skip_rules: impute_options.NoSkipRules = False,
    leave_unreliable: impute_options.LeaveUnreliable = False,
    quiet: options.Quiet = False,
) -> None:
    """Impute the missing values of a table; observed values are returned unchanged.

    Cells that cannot be imputed sensibly stay empty and are listed. A csv file keeps the text of every
    observed cell, its delimiter, its encoding and its line ends.
    """
    from halfseen.cli.impute import impute
    from halfseen.cli.impute_request import ImputeRequest

    if model is not None:
        impute_options.check_for_model(context)
    impute_options.check_target(source, output, in_place)
    impute_options.check_leaving(fill_all=fill_all, leave_unreliable=leave_unreliable)
    request = ImputeRequest(
        source=source, output=source if output is None else output,
        method=impute_options.method_for(context, method).value, max_seconds=max_seconds,
        missingness=missingness, draws=draws, seed=seed, schema=schema, report=report, evaluate=evaluate,
        level=level, reading=reading.to_arguments(), output_format=output_format,
        model=save_model, checkpoint=checkpoint, in_place=in_place, fill_all=fill_all,
        weights=weights, derived=tuple(derived or ()), skip_rules=not no_skip_rules,
        leave_unreliable=leave_unreliable,
        command=context.obj or "", saved=model, new_seed=impute_options.is_given(context, "seed"),
    )  # fmt: skip
    impute(request, Reporter(quiet=quiet))


@app.command("fit")
@expand_groups
def fit_command(
    context: typer.Context,
    source: options.Source,
    *,
    save_model: Annotated[str, typer.Option(metavar="PATH", help="Save the fitted predictor to this file.")],
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column to predict; not with --recommender.")
    ] = None,
    method: Annotated[
        options.Predictor,
        typer.Option(
            help="The predictor; auto chooses one, or their average, by cross-validation. Names with + are "
            "an imputation and what predicts from the completed rows."
        ),
    ] = options.Predictor.auto,
    task: options.TaskOption = options.TaskName.auto,
    recommender: Annotated[
        options.RecommenderName | None,
        typer.Option(help="Fit a recommender: the table has the columns user, item and rating."),
    ] = None,
    budget: Annotated[float, typer.Option(help="The time limit of auto for its choice, in seconds.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal predictors.")] = 0,
    schema: options.SchemaFile = None,
    report: options.Report = None,
    reading: options.ReadingOptions,
    quiet: options.Quiet = False,
) -> None:
    """Fit a predictor of one column to a table with missing values, and save it.

    Rows without a target are left out. `halfseen predict` applies the saved predictor to new files.
    """
    from halfseen.cli.fit import FitRequest, fit
    from halfseen.cli.ratings import save_recommender

    if (target is None) == (recommender is None):
        raise typer.BadParameter(
            "give the column to predict by --target, or --recommender for a table of ratings",
            param_hint="--target",
        )
    if target is None:
        save_recommender(
            source, str(recommender), save_model, seed, Reporter(quiet=quiet), reading.to_arguments()
        )
        return
    request = FitRequest(
        source, target, save_model, method.value, task.value, budget, report, seed, schema, context.obj or "",
        reading.to_arguments(),
    )  # fmt: skip
    fit(request, Reporter(quiet=quiet))


@app.command("predict")
@expand_groups
def predict_command(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A predictor saved by halfseen fit.")],
    source: options.Source,
    *,
    output: options.Output,
    level: Annotated[
        float, typer.Option(callback=_check_level, help="Probability of the intervals of numbers.")
    ] = 0.9,
    next_measurement: Annotated[
        bool,
        typer.Option(
            "--next-measurement",
            help="For a circuit classifier: also write which missing column of each row is most informative "
            "about the class, and its information gain (mutual information in nats).",
        ),
    ] = False,
    report: options.Report = None,
    reading: options.ReadingOptions,
    output_format: options.OutputFormat = None,
    quiet: options.Quiet = False,
) -> None:
    """Apply a saved predictor to a table, and write all its columns followed by the predictions.

    A column that is absent from the table but was used in training is treated as missing in every row.
    Columns that were not used in training are copied unchanged.
    """
    from halfseen.cli.predict import PredictRequest, predict

    request = PredictRequest(
        model,
        source,
        output,
        level,
        output_format,
        report,
        context.obj or "",
        reading.to_arguments(),
        next_measurement,
    )
    predict(request, Reporter(quiet=quiet))


@app.command("describe")
@expand_groups
def describe_command(
    context: typer.Context,
    source: options.Source,
    *,
    given: DescribeOptions,
    reading: options.ReadingOptions,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing except the JSON.")] = False,
) -> None:
    """Describe the missing values of a table: patterns, associations, and evidence against MCAR.

    Whether missingness depends on the missing values themselves cannot be tested from the data.
    """
    from halfseen.cli.describe import DescribeRequest, run_describe

    request = DescribeRequest(
        source, given.target, given.against, given.report, given.as_json, given.seed, reading.to_arguments(),
        context.obj or "", given.model, given.label, tuple(given.sensitivity or ()), given.reference,
        given.schema,
    )  # fmt: skip
    run_describe(request, Reporter(quiet=quiet))


@app.command("compare")
@expand_groups
def compare_command(
    context: typer.Context,
    source: options.Source,
    *,
    given: CompareOptions,
    reading: options.ReadingOptions,
    quiet: options.Quiet = False,
) -> None:
    """Compare imputers on known values that are removed from the table; failed runs are counted.

    With --target, predictors of this column are compared by cross-validation: predictors that accept missing
    values, predictors that are fitted after imputing constants or the values of a model, and a weighted
    average of all of them.
    """
    command, reporter = context.obj or "", Reporter(quiet=quiet)
    if given.target is None:
        from halfseen.cli.compare import CompareRequest, run_compare

        request = CompareRequest(
            source, QUICK if given.methods is None else parse_methods(given.methods), given.rate,
            given.mechanism, given.repeats, given.seed, given.output, given.report, given.level, given.draws,
            given.test_fraction, given.max_rows or 10_000, given.jobs, given.schema, command,
            reading.to_arguments(),
        )  # fmt: skip
        run_compare(request, reporter)
        return
    from halfseen.cli import compare_target
    from halfseen.cli.predictors import parse_predictors

    names = options.COMPARED_PREDICTORS if given.methods is None else parse_predictors(given.methods)
    compare_target.run_compare_target(
        compare_target.CompareTargetRequest(
            source, given.target, names, given.task.value, given.folds, given.repeats,
            parse_rates(given.rates), given.budget, given.max_rows or 5_000, given.seed, given.output,
            given.report, given.schema, command, reading.to_arguments(),
        ),
        reporter,
    )  # fmt: skip


@app.command("ampute")
@expand_groups
def ampute_command(
    source: options.Source,
    *,
    output: options.Output,
    mechanism: Annotated[
        options.MechanismName, typer.Option(help="The missingness mechanism.")
    ] = options.MechanismName.mcar,
    rate: Annotated[
        float,
        typer.Option(help="The fraction of values to remove in each column; in the last one for dropout."),
    ] = 0.3,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="The columns to remove values from; all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; equal seeds remove the same values.")] = 0,
    reading: options.ReadingOptions,
    output_format: options.OutputFormat = None,
    quiet: options.Quiet = False,
) -> None:
    """Remove values from a table by a chosen mechanism; all other values are returned unchanged.

    The rate applies to each column: intercepts and thresholds are chosen so that the table itself meets it.
    Values that are already missing stay missing and do not count. In a csv file, a removed value becomes an
    empty cell.
    """
    from halfseen.cli.ampute import AmputeRequest, ampute

    request = AmputeRequest(
        source=source,
        output=output,
        mechanism=mechanism.value,
        rate=rate,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        seed=seed,
        reading=reading.to_arguments(),
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
    sheet: options.SheetName = None,
    quiet: options.Quiet = False,
) -> None:
    """Recommend items to a user, based on the ratings of all users, and print their predicted ratings.

    AutoRec is fitted to the ratings; --model uses another recommender, saved by fit --recommender.
    """
    from halfseen.cli.ratings import RecommendRequest, recommend

    reading = {"delimiter": delimiter, "encoding": encoding, "format": source_format, "sheet": sheet}
    request = RecommendRequest(source, user, k, rows.value, seed, model, save_model, reading)
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
    """List the public data sets that halfseen can load, or describe one of them."""
    from halfseen.cli.datasets import show_datasets

    show_datasets(name, data_home)
