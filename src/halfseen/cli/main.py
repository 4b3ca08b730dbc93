"""The command ``halfseen``: parse, call, print."""

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import halfseen
from halfseen.cli import options
from halfseen.cli.ampute import ampute_command
from halfseen.cli.compare import compare_command
from halfseen.cli.datasets import datasets_command
from halfseen.cli.describe import describe_command
from halfseen.cli.errors import TableError
from halfseen.cli.impute import Request, impute
from halfseen.cli.methods import Method
from halfseen.cli.progress import Reporter, print_error
from halfseen.cli.reproduce import reproduce_command
from halfseen.errors import SchemaError, TrainingError

# Typer carries its own copy of click in some versions and uses the package in others.
UsageError: Any = typer.BadParameter.__bases__[0]

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
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Machine learning on data with holes in it."""


@app.command("impute")
def impute_command(
    context: typer.Context,
    source: options.Source,
    output: options.Output,
    method: Annotated[
        Method, typer.Option(help="How to fill the holes; probit and not-miwae if values hide themselves.")
    ] = Method.gaussian,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="M", help="Write M completed tables, one below the other, for multiple imputation."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed: the same seed gives the same values.")] = 0,
    schema: Annotated[
        str | None,
        typer.Option(metavar="S.json", help='Column kinds and bounds: {"columns": {"sex": "categorical"}}.'),
    ] = None,
    report: options.Report = None,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate", help="Add to the report how well it fills known cells, beside simple methods."
        ),
    ] = False,
    level: Annotated[
        float, typer.Option(callback=_check_level, help="Level of the intervals in the report.")
    ] = 0.9,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    null: options.Nulls = None,
    no_default_nulls: options.NoDefaultNulls = False,
    source_format: options.SourceFormat = None,
    output_format: options.OutputFormat = None,
    save_model: Annotated[str | None, typer.Option(metavar="PATH", help="Keep the fitted model.")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Fill the holes of a table; observed cells come back exactly as they were.

    A csv keeps the text of every observed cell, its delimiter, its encoding and its line ends.
    """
    request = Request(
        source=source,
        output=output,
        method=method.value,
        draws=draws,
        seed=seed,
        schema=schema,
        report=report,
        evaluate=evaluate,
        level=level,
        delimiter=delimiter,
        encoding=encoding,
        nulls=tuple(null or ()),
        default_nulls=not no_default_nulls,
        source_format=source_format,
        output_format=output_format,
        model=save_model,
        command=context.obj or "",
    )
    impute(request, Reporter(quiet=quiet))


app.command("describe")(describe_command)


app.command("compare")(compare_command)


app.command("ampute")(ampute_command)


app.command("datasets")(datasets_command)


app.command("reproduce")(reproduce_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.

    Returns
    -------
    int
        The exit code: 0 when all went well, 2 when the user can mend it and one line says what is wrong.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        code = app(
            args=arguments,
            prog_name="halfseen",
            standalone_mode=False,
            obj=shlex.join(["halfseen", *arguments]),
        )
    except UsageError as error:
        print_error(f"{error.format_message()} (see halfseen --help)")
    except OSError as error:
        print_error(f"{error.filename}: {(error.strerror or '').lower()}" if error.filename else str(error))
    except (TableError, SchemaError, TrainingError) as error:
        print_error(str(error))
    except (typer.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return 130
    else:
        return int(code or 0)
    return 2


def run() -> None:
    """Run the command line and leave the process with its exit code."""
    sys.exit(main())
