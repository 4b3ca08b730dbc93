"""The options of ``halfseen compare``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from halfseen.cli.errors import TableError
from halfseen.cli.methods import COMPARED, QUICK
from halfseen.cli.options import COMPARED_PREDICTORS, Report, TaskName, TaskOption


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
