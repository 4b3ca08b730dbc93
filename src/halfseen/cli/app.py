"""The commands of ``halfseen``; each imports its work when it is called.

So ``halfseen --help`` loads neither torch nor pyarrow. The options of a command are the fields of its
request.
"""

from typing import Annotated

import typer

import halfseen
from halfseen.cli import requests
from halfseen.cli.options import Quiet, Verbose, expand_groups, options_given
from halfseen.cli.progress import Reporter

app = typer.Typer(
    name="halfseen", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"halfseen {halfseen.__version__}")
        raise typer.Exit


def _reporter(context: typer.Context, quiet: bool, verbose: bool) -> Reporter:
    """Return a reporter that prints its last notes when the command ends, also if it ends with an error."""
    reporter = Reporter(quiet=quiet, verbose=verbose, command=context.obj or "")
    context.call_on_close(reporter.show_notes)
    return reporter


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
    context: typer.Context, request: requests.ImputeRequest, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Impute the missing values of a table; observed values are returned unchanged.

    Cells that cannot be imputed sensibly stay empty and are listed. A csv file keeps the text of every
    observed cell, its delimiter, its encoding and its line ends.
    """
    request = request.checked(options_given(context))
    from halfseen.cli.sources import is_in_units, is_streamed

    reporter = _reporter(context, quiet, verbose)
    if is_in_units(request.units):
        from halfseen.cli.units import impute_in_units

        impute_in_units(request, reporter)
        return
    if is_streamed(request):
        from halfseen.cli.units import impute_stream

        impute_stream(request, reporter)
        return
    from halfseen.cli.impute import impute

    impute(request, reporter)


@app.command("fit")
@expand_groups
def fit_command(
    context: typer.Context, request: requests.FitRequest, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Fit a predictor of one column to a table with missing values, and save it.

    Rows without a target are left out. `halfseen predict` applies the saved predictor to new files. With
    --engine, the table need not fit into memory: the predictor is fitted to about a million of its rows.
    """
    if (request.target is None) == (request.recommender is None):
        raise typer.BadParameter(
            "give the column to predict by --target, or --recommender for a table of ratings",
            param_hint="--target",
        )
    if request.recommender is not None:
        if request.sampling.given():
            raise typer.BadParameter("a recommender needs the whole table in memory", param_hint="--engine")
        from halfseen.cli.ratings import save_recommender

        save_recommender(request, _reporter(context, quiet, verbose))
        return
    from halfseen.cli.fit import fit

    fit(request, _reporter(context, quiet, verbose))


@app.command("predict")
@expand_groups
def predict_command(
    context: typer.Context, request: requests.PredictRequest, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Apply a saved predictor to a table, and write all its columns followed by the predictions.

    A column that is absent from the table but was used in training is treated as missing in every row.
    Columns that were not used in training are copied unchanged.
    """
    from halfseen.cli.sources import is_in_units

    if is_in_units(request.units):
        from halfseen.cli.units import predict_in_units

        predict_in_units(request, _reporter(context, quiet, verbose))
        return
    from halfseen.cli.fit import predict

    predict(request, _reporter(context, quiet, verbose))


@app.command("describe")
@expand_groups
def describe_command(
    context: typer.Context,
    request: requests.DescribeRequest,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing except the JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Describe the missing values of a table: patterns, associations, and evidence against MCAR.

    Whether missingness depends on the missing values themselves cannot be tested from the data.
    """
    from halfseen.cli.sources import is_in_blocks

    reporter = _reporter(context, quiet, verbose)
    if is_in_blocks(request):
        from halfseen.cli.units import describe_in_blocks

        describe_in_blocks(request, reporter)
        return
    from halfseen.cli.describe import run_describe

    run_describe(request, reporter)


@app.command("compare")
@expand_groups
def compare_command(
    context: typer.Context, request: requests.CompareRequest, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Compare imputers on known values that are removed from the table; failed runs are counted.

    With --target, predictors of this column are compared by cross-validation: predictors that accept missing
    values, predictors that are fitted after imputing constants or the values of a model, and a weighted
    average of all of them.
    """
    if request.target is None:
        from halfseen.cli.compare import run_compare

        run_compare(request, _reporter(context, quiet, verbose))
    else:
        from halfseen.cli.compare_target import run_compare_target

        run_compare_target(request, _reporter(context, quiet, verbose))


@app.command("ampute")
@expand_groups
def ampute_command(
    context: typer.Context, request: requests.AmputeRequest, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Remove values from a table by a chosen mechanism; all other values are returned unchanged.

    The rate applies to each column: intercepts and thresholds are chosen so that the table itself meets it.
    Values that are already missing stay missing and do not count. In a csv file, a removed value becomes an
    empty cell.
    """
    from halfseen.cli.ampute import ampute

    ampute(request, _reporter(context, quiet, verbose))


@app.command("recommend")
@expand_groups
def recommend_command(
    context: typer.Context, request: requests.RecommendRequest, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Recommend items to a user, based on the ratings of all users, and print their predicted ratings.

    An ensemble of recommenders is fitted to the ratings; --recommender autorec takes less time, and --model
    uses a recommender that was saved. Items with few ratings come after all others.
    """
    from halfseen.cli.ratings import recommend

    recommend(request, _reporter(context, quiet, verbose))


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
