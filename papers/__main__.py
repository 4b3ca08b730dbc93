"""The program ``python -m papers``: runs the experiments of the papers, from the root of the repository."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from halfseen.cli.main import main, print_error
from halfseen.cli.progress import Reporter

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Scale(StrEnum):
    """How much of an experiment to run."""

    smoke = "smoke"
    small = "small"
    paper = "paper"


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The experiment; lists all by default.")
    ] = None,
    scale: Annotated[
        Scale,
        typer.Option(
            help="smoke: a quick check; small: can run on a laptop; paper: the protocol of the paper."
        ),
    ] = Scale.smoke,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="DIR", help="The folder for the result file and the figure."),
    ] = "results",
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Run everything again, instead of only what failed or is not stored."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="TEXT",
            help="Run only models and settings that contain this text, as in 'default on rows = 300'; may be "
            "repeated.",
        ),
    ] = None,
    status: Annotated[
        bool,
        typer.Option("--status", help="Run nothing: list which runs are stored, and of which commits."),
    ] = False,
    judge: Annotated[
        bool,
        typer.Option(
            "--judge",
            help="Run nothing: judge the stored runs, by default of all experiments, by the present claims.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the results.")] = False,
) -> None:
    """Reproduce the experiment of a paper, and print the published numbers next to the new ones."""
    from papers import command

    if judge:
        command.judge(name, scale.value, output)
        return
    if status:
        command.show_status(name, scale.value, output)
        return
    n_failed = command.reproduce(name, scale.value, output, fresh, tuple(only or ()), Reporter(quiet=quiet))
    if n_failed:
        print_error(f"{n_failed} runs failed; the same command repeats only these runs")
        raise typer.Exit(1)


def run(arguments: list[str]) -> int:
    """Run the program; return its exit code, which is 1 if runs failed."""
    return main(arguments or ["--scale", Scale.smoke.value], lambda: app, "python -m papers")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
