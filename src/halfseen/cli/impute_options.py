"""The options of ``halfseen impute`` that no other command has, and which of them exclude each other."""

from typing import Annotated

import typer

from halfseen.cli.methods import Method, missingness_help
from halfseen.vocabulary import Missingness

Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="OUT", help="The file to write; - is standard output.")
]
ImputationMethod = Annotated[
    Method,
    typer.Option(
        help="The imputation method; auto chooses among several (gaussian, if --missingness is given)."
    ),
]
MaxSeconds = Annotated[
    float, typer.Option(min=1.0, help="Approximate time limit of the method auto, in seconds.")
]
Assumption = Annotated[Missingness | None, typer.Option(help=missingness_help())]
Draws = Annotated[
    int | None,
    typer.Option(min=1, metavar="M", help="Write M completed tables, stacked, for multiple imputation."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; equal seeds give equal values.")]
SchemaFile = Annotated[
    str | None,
    typer.Option(metavar="S.json", help='Kinds and bounds of columns: {"columns": {"sex": "categorical"}}.'),
]
Evaluate = Annotated[
    bool,
    typer.Option(
        "--evaluate",
        help="Evaluate the method in the report: remove known values, and compare with simple methods.",
    ),
]
SaveModel = Annotated[str | None, typer.Option(metavar="PATH", help="Save the fitted model to this file.")]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", help="Apply an imputer that was saved by --save-model, without fitting it again."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Store the state of training here, so that the same command can resume after an interruption.",
    ),
]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="Replace the input file, which keeps its owner and permissions; without this option it is never "
        "overwritten. Files with hard links are refused.",
    ),
]
Derived = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=FORMULA",
        help="A column that follows from others: 'bmi = weight / height ** 2'; may be repeated.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Sampling weights of a survey: checked, used as a predictor, and for the means of the report.",
    ),
]
FillAll = Annotated[
    bool,
    typer.Option(
        "--fill-all",
        help="Also impute identifiers, free text, columns with one observed value or none, and yes/no "
        "columns that cannot be predicted.",
    ),
]
NoSkipRules = Annotated[
    bool,
    typer.Option(
        "--no-skip-rules", help="Do not detect columns that do not apply to some rows; impute them there too."
    ),
]

LeaveUnreliable = Annotated[
    bool,
    typer.Option(
        "--leave-unreliable",
        help="Leave columns empty that are not filled clearly better than by the mean or the most frequent "
        "level.",
    ),
]

OF_FITTING = (
    "method", "max_seconds", "missingness", "schema", "save_model", "checkpoint", "fill_all", "derived",
    "no_skip_rules", "evaluate", "leave_unreliable",
)  # fmt: skip
"""Parameters that only a fit has; a saved model has been fitted already."""


def method_for(context: typer.Context, method: Method) -> Method:
    """Return the method; without any, an assumption about missingness asks for the Gaussian."""
    asked = is_given(context, "missingness") and not is_given(context, "method")
    return Method("gaussian") if asked else method


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line, rather than at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_for_model(context: typer.Context) -> None:
    """Raise an error if an option is given that cannot be combined with ``--model``."""
    for name in OF_FITTING:
        if is_given(context, name):
            raise typer.BadParameter(
                "--model applies an imputer that is fitted already: leave this option out",
                param_hint=f"--{name.replace('_', '-')}",
            )


def check_leaving(*, fill_all: bool, leave_unreliable: bool) -> None:
    """Raise an error if all columns are to be filled, and some are not."""
    if fill_all and leave_unreliable:
        raise typer.BadParameter(
            "contradicts --fill-all: use one of the two", param_hint="--leave-unreliable"
        )


def check_target(source: str, output: str | None, in_place: bool) -> None:
    """Raise an error unless it is clear where to write."""
    if output is None and not in_place:
        raise typer.BadParameter(
            "state where to write with --output, or use --in-place", param_hint="--output"
        )
    if in_place and source == "-":
        raise typer.BadParameter("--in-place cannot be used with standard input", param_hint="--in-place")
