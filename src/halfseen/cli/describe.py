"""The command ``halfseen describe``: what is missing from a table, and evidence on the reasons."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import halfseen
from halfseen.cli.applying import match_columns
from halfseen.cli.main import escape_json, one_line, printable
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import DescribeRequest
from halfseen.cli.sources import expand, read_all
from halfseen.diagnosis.summary import Diagnosis, describe
from halfseen.diagnosis.wording import difference_words, effect_words, headline, p_words, pair_words
from halfseen.evaluation.sparsity import VSPCurve, vsp_curve
from halfseen.files.tables import TableError, TableFile, read_table
from halfseen.files.writing import check_overwriting, check_report, write_page
from halfseen.words import names_words, plural, shape_words, share_words


@dataclass(frozen=True)
class ModelDrift:
    """What is known of a saved predictor: its class, what of its answers is followed, and the curve."""

    kind: str
    followed: str
    curve: VSPCurve

    def to_dict(self) -> dict[str, Any]:
        """Returns the curve and its names as values that JSON can hold."""
        return {"class": self.kind, "followed": self.followed, **self.curve.to_dict()}


def measure_model(path: str, file: TableFile, label: str | None, seed: int, reporter: Reporter) -> ModelDrift:
    """Return how the predictions of a saved model for the rows of a table drift with the known values.

    Parameters
    ----------
    path : str
        The model file.
    file : TableFile
        The table; columns that the model does not know, such as the target, are left out, and columns that
        the table lacks count as missing.
    label : str or None
        The class whose probability is followed, as text; not needed for two classes or for numbers.
    seed : int
        Seeds rows and subsets.
    reporter : Reporter
        Reports columns that the table lacks, or that have another name.
    """
    model = halfseen.load(path)
    can = model.capabilities
    if not (can.tables and can.predicts) or "feature_names_in_" not in vars(model):
        raise TableError(
            f"{path} holds a {type(model).__name__}; --model needs a regressor or classifier that was fitted "
            "to a table with column names"
        )
    table = match_columns(file, model, reporter).inputs
    output, followed = _output(model, label)
    curve = vsp_curve(model, table, output=output, random_state=seed)
    return ModelDrift(type(model).__name__, followed, curve)


def _output(model: Any, label: str | None) -> tuple[Any, str]:
    """Return the class to follow as the model knows it, and the name of what is followed."""
    if model.capabilities.predicts == "numbers":
        if label is not None:
            raise TableError("--class is for classifiers; the model predicts numbers")
        return None, "the prediction"
    classes = {str(one): one for one in model.classes_.tolist()}
    if label is None and len(classes) != 2:
        raise TableError(f"the model has {len(classes)} classes: choose one by --class, {', '.join(classes)}")
    if label is not None and label not in classes:
        raise TableError(f"the model has no class {label!r}; its classes are {', '.join(classes)}")
    chosen = list(classes)[1] if label is None else label
    return classes[chosen], f"the probability of {chosen}"


_TOP, _TOP_COLUMNS, _BAR = 8, 15, 24
SENSITIVITY_ROWS = 10_000
"""Longer tables are subsampled to this many rows for a sensitivity analysis."""


def run_describe(request: DescribeRequest, reporter: Reporter) -> None:
    """Describe a table file: read, describe, print, report."""
    _check_paths(request)
    overrides = None if request.schema is None else halfseen.Schema.read_overrides(request.schema)
    reading = request.reading.to_arguments() | {"schema": overrides}
    file = read_all(expand(request.source), partial(_read, reading=reading))
    reporter.show("read", f"{file.source}: {shape_words(*file.table.shape)}")
    for note in file.notes:
        reporter.note(note)
    reference: TableFile | None = None
    if request.against is not None:
        reference = _read(request.against, reading | {"format": None})
        reporter.show("against", f"{reference.source}: {reference.table.num_rows:,} rows")
    _note_placeholders(file, reference, reporter)
    with reporter.noting_warnings(), reporter.progress("testing", "associations with missingness"):
        diagnosis = describe(
            file.table, request.target, None if reference is None else reference.as_written().table,
            kept=file.kept, random_state=request.seed,
        )  # fmt: skip
    drift = _measure(request, file, reporter)
    what_if = _analyse_sensitivity(request, file, reporter)
    check = None if request.report is None else _check_fill(diagnosis, request, file, reporter)
    reference_name = "" if reference is None else Path(reference.source).name
    show_results(
        request, reporter, diagnosis, file.source,
        drift=drift, what_if=what_if, check=check, reference=reference_name,
    )  # fmt: skip
    reporter.done()


def show_results(
    request: DescribeRequest,
    reporter: Reporter,
    diagnosis: Diagnosis,
    source: str,
    *,
    drift: ModelDrift | None = None,
    what_if: Sequence[Any] = (),
    check: dict[str, Any] | None = None,
    reference: str = "",
) -> None:
    """Print a diagnosis, or write it as JSON, and write the report that was asked for.

    Parameters
    ----------
    request : DescribeRequest
        What was asked.
    reporter : Reporter
        The reporter of progress.
    diagnosis : Diagnosis
        The diagnosis.
    source : str
        The name of the table.
    drift : ModelDrift, optional
        What is known of a model.
    what_if : sequence of Sensitivity
        The sensitivity analyses.
    check : dict, optional
        How well hidden known values can be filled.
    reference : str
        The name of the reference table.
    """
    if request.report is not None:
        from halfseen.report.describe import render_diagnosis, summarize_diagnosis

        summary = summarize_diagnosis(
            diagnosis,
            reference=reference,
            model=None if drift is None else drift.to_dict(),
            sensitivities=[found.to_dict() for found in what_if],
            check=check,
            run=reporter.run_info(source),
        )
        write_page(request.report, render_diagnosis(summary))
        reporter.show("report", request.report)
    if request.as_json:
        content = diagnosis.to_dict() | ({} if drift is None else {"model": drift.to_dict()})
        content |= {"sensitivities": [found.to_dict() for found in what_if]} if what_if else {}
        print(escape_json(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)))
    elif not reporter.quiet:
        show_diagnosis(diagnosis, Console(file=sys.stdout))
        if drift is not None:
            print(f"\nThe model ({drift.kind}, {one_line(drift.followed)})\n  {drift.curve.sentence}")
        for found in what_if:
            print(f"\nWhat if missing values differ\n  {one_line(found.conclusion)}")
        if what_if:
            print(f"  {what_if[0].limit}")


def _read(source: str, reading: dict[str, Any]) -> TableFile:
    return read_table(source, **reading)


def _note_placeholders(file: TableFile, reference: TableFile | None, reporter: Reporter) -> None:
    """Report which cells of the table, and of that of ``--against``, are neither missing nor values."""
    found = [] if not file.placeholders else [_count_placeholders(file)]
    if reference is not None and reference.placeholders:
        found.append(f"{_count_placeholders(reference)} of the reference table")
    if found:
        reporter.note(
            f"{' and '.join(found)}: described neither as values nor as missing; --null makes them missing"
        )


def _count_placeholders(file: TableFile) -> str:
    n_cells = sum(len(cells) - cells.null_count for cells in file.placeholders.values())
    names = names_words([repr(name) for name in file.placeholders], 6)
    return f"{plural(n_cells, 'placeholder')} in {names}"


def _measure(request: DescribeRequest, file: TableFile, reporter: Reporter) -> ModelDrift | None:
    """Return how the predictions of the model drift, if there is one."""
    if request.model is None:
        return None
    with reporter.noting_warnings(), reporter.progress("predicting", "rows with parts of their values"):
        return measure_model(request.model, file, request.label, request.seed, reporter)


def _analyse_sensitivity(request: DescribeRequest, file: TableFile, reporter: Reporter) -> list[Any]:
    """Return how means and shares depend on the assumption of missing at random, as far as asked."""
    if not request.sensitivity:
        return []
    from halfseen.pooling.sensitivity import sensitivity

    table = file.table
    if table.num_rows > SENSITIVITY_ROWS:
        rows = np.random.default_rng(request.seed).permutation(table.num_rows)[:SENSITIVITY_ROWS]
        table = table.take(np.sort(rows))
        reporter.note(f"the sensitivity analysis uses {SENSITIVITY_ROWS:,} of {file.table.num_rows:,} rows")
    found = []
    for text in request.sensitivity or ():
        with reporter.noting_warnings(), reporter.progress("what if", one_line(text)):
            found.append(
                sensitivity(None, table, text, reference=request.reference, random_state=request.seed)
            )
    return found


def _check_fill(
    diagnosis: Diagnosis, request: DescribeRequest, file: TableFile, reporter: Reporter
) -> dict[str, Any] | None:
    """Return how well a quick model fills hidden known values of a sample of rows."""
    from halfseen.report.fills import check_known_values

    if file.n_missing in (0, file.table.num_rows * file.table.num_columns):
        return None

    def build(settings: dict[str, Any]) -> Any:
        return halfseen.GaussianImputer(schema=settings or None, random_state=request.seed)

    with reporter.progress("checking", "how well hidden known values can be filled"):
        check = check_known_values(
            file.table, diagnosis.columns, build, settings=file.settings, seed=request.seed, method="Gaussian"
        )
    return None if check is None else check.to_dict()


def _check_paths(request: DescribeRequest) -> None:
    if request.reference is not None and not request.sensitivity:
        raise TableError("--reference requires --sensitivity COLUMN")
    if request.reference is not None and len(request.sensitivity or ()) > 1:
        raise TableError("--reference belongs to one estimate; use --sensitivity once, or leave it out")
    if any("~" in text for text in request.sensitivity or ()):
        raise TableError("--sensitivity takes COLUMN or COLUMN=LEVEL; formulas are for halfseen.sensitivity")
    if request.label is not None and request.model is None:
        raise TableError("--class requires --model")
    if request.source == "-" and request.against == "-":
        raise TableError("only one of the two tables can be standard input")
    check_report(request.report)
    read = {
        "IN": expand(request.source), "--against": request.against, "--model": request.model,
        "--schema": request.schema,
    }  # fmt: skip
    check_overwriting(read, {"--report": request.report}, overwrite=request.overwrite)


# -------------------------------------------------------------------------------------------- terminal


def show_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis: with tables and bars in a terminal, as plain text elsewhere."""
    if not console.is_terminal:
        print(printable(str(diagnosis)), file=console.file)
        return
    parts: list[tuple[str, RenderableType | None]] = [
        (one_line(headline(diagnosis)), Text("")),
        ("Summary", _list(diagnosis.readings)),
        ("Columns with missing values", _columns(diagnosis)),
        ("Patterns", _patterns(diagnosis)),
        ("Associations with values of other columns", _pairs(diagnosis, "value")),
        ("Associations with missingness of other columns", _pairs(diagnosis, "missingness")),
        ("Predicting missingness from the rest of the row", _predictability(diagnosis)),
        ("Compared with the reference", _drift(diagnosis)),
        ("What cannot be known", _list(diagnosis.limits)),
    ]
    for title, body in parts:
        if body is not None:
            console.print(Group(Text(title, style="bold"), Padding(body, (0, 0, 1, 2))), highlight=False)


def _grid(*justify: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for side in justify:
        table.add_column(justify=side)  # type: ignore[arg-type]
    return table


def _list(lines: tuple[str, ...]) -> RenderableType:
    table = _grid("left", "left")
    for line in lines:
        table.add_row(Text("•", style="dark_orange3"), Text(one_line(line)))
    return table


def _columns(diagnosis: Diagnosis) -> RenderableType | None:
    incomplete = sorted((c for c in diagnosis.columns if c.n_missing), key=lambda c: -c.n_missing)
    if not incomplete:
        return None
    table = _grid("left", "right", "right", "left")
    for column in incomplete[:_TOP_COLUMNS]:
        bar = "█" * max(1, round(_BAR * column.share))
        cells = (one_line(column.name), f"{column.n_missing:,}", share_words(column.share))
        table.add_row(*(Text(cell) for cell in cells), Text(bar, style="dark_orange3"))
    if len(incomplete) > _TOP_COLUMNS:
        table.add_row(Text(f"and {len(incomplete) - _TOP_COLUMNS} more", style="dim"))
    return table


def _patterns(diagnosis: Diagnosis) -> RenderableType | None:
    if not diagnosis.patterns.columns:
        return None
    table = _grid("right", "right", "left")
    for row in diagnosis.patterns.rows[:_TOP]:
        missing = one_line(names_words(row.missing, 6) or "nothing")
        table.add_row(f"{row.count:,}", share_words(row.share), Text(f"{missing} missing"))
    if diagnosis.patterns.n_patterns > _TOP:
        n_rarer = plural(diagnosis.patterns.n_patterns - _TOP, "rarer one")
        table.add_row("", "", Text(f"and {n_rarer}", style="dim"))
    return table


def _pairs(diagnosis: Diagnosis, about: str) -> RenderableType | None:
    clear = diagnosis.distinct_pairs(about)
    if not clear:
        return None
    table = _grid("left", "left")
    for pair in clear[:_TOP]:
        numbers = f"{effect_words(pair)}, {p_words(pair.p_adjusted)}"
        table.add_row(Text(one_line(pair_words(pair))), Text(numbers, style="dim"))
    if len(clear) > _TOP:
        table.add_row(Text(f"and {plural(len(clear) - _TOP, 'weaker one')}", style="dim"))
    return table


def _predictability(diagnosis: Diagnosis) -> RenderableType | None:
    if not diagnosis.predictability:
        return None
    table = _grid("left", "left", "left")
    for one in diagnosis.predictability[:_TOP_COLUMNS]:
        numbers = f"AUC {one.auc:.2f} (95% {one.low:.2f} to {one.high:.2f}), {p_words(one.p_adjusted)}"
        table.add_row(
            Text(one_line(one.column)), Text(one.reason or numbers, style="dim" if one.reason else "")
        )
    return table


def _drift(diagnosis: Diagnosis) -> RenderableType | None:
    if diagnosis.drift is None:
        return None
    table = _grid("left", "right", "right", "left")
    shown = [one for one in diagnosis.drift.columns if one.rate or one.reference_rate]
    for one in shown[:_TOP_COLUMNS]:
        difference = f"{difference_words(one)}, {p_words(one.p_adjusted)}"
        rates = (share_words(one.reference_rate), f"to {share_words(one.rate)}")
        table.add_row(Text(one_line(one.column)), *rates, Text(difference, style="dim"))
    return table
