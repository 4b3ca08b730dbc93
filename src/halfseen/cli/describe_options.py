"""The options of ``halfseen describe``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from halfseen.cli.options import Report, SchemaFile


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
