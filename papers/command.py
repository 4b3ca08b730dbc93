"""The steps of ``python -m papers``: run an experiment, print its numbers beside the paper's."""

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from halfseen._machine import write_atomically
from halfseen.cli.progress import Reporter, Step
from halfseen.errors import TableError
from halfseen.report.figures import to_svg
from papers import EXPERIMENTS, SCALES, Cell, Experiment, Results, Row, judge_stored, run
from papers.claims import Published
from papers.figures.latent import FIGURES
from papers.figures.overview import plot_experiment
from papers.runner import describe_run, stored_runs

_STYLES = {"met": "green", "not met": "red", "undecided": "yellow", "not testable": "dim"}
_WIDTH = 120  # of a table that goes into a file


def reproduce(
    name: str | None, scale: str, output: str, fresh: bool, only: Sequence[str], reporter: Reporter
) -> int:
    """Run an experiment and print its numbers, or list the experiments; return how many runs failed."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    if name is None:
        console.print(_listing())
        return 0
    results = _run(_experiment(name), scale, output, fresh, only, reporter)
    if results.cells:
        console.print(results_table(results))
    console.print(_verdicts(results))
    return sum(cell.failed for cell in results.cells)


def judge(name: str | None, scale: str, output: str) -> None:
    """Judge the stored runs of an experiment, or of all, by the present claims; print the verdicts."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    for experiment in EXPERIMENTS.values() if name is None else [_experiment(name)]:
        results = judge_stored(experiment, scale, output)
        if results is None and name is not None:
            raise TableError(f"{output} has no runs of {name} at scale {scale}")
        if results is not None:
            console.print(Text(f"{experiment.name} at scale {scale}", style="bold"))
            console.print(_verdicts(results))


def show_status(name: str | None, scale: str, output: str) -> None:
    """Print how many runs of an experiment, or of all, are stored for each setting, and of which commits."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    for experiment in EXPERIMENTS.values() if name is None else [_experiment(name)]:
        planned, stored = experiment.cells(scale), stored_runs(experiment, scale, output)
        done = sum(not cell.failed for cell in stored)
        console.print(
            Text(f"{experiment.name} at scale {scale}: {done} of {len(planned)} runs", style="bold")
        )
        if stored or name is not None:
            console.print(_status_table(planned, stored))


def _status_table(planned: Sequence[Cell], stored: Sequence[Cell]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("model and setting", "stored", "failed", "seconds", "commits"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "seconds" else "left")
    groups: dict[str, list[Cell]] = {describe_run(cell): [] for cell in planned}
    for cell in stored:
        groups.get(describe_run(cell), []).append(cell)
    counts = Counter(map(describe_run, planned))
    for told, cells in groups.items():
        failed = sum(cell.failed for cell in cells)
        seconds = f"{sum(cell.seconds for cell in cells):.0f}" if cells else ""
        commits = ", ".join(dict.fromkeys(cell.commit[:7] for cell in cells if cell.commit))
        table.add_row(
            *map(Text, (told, f"{len(cells)} of {counts[told]}", str(failed or ""), seconds, commits))
        )
    return table


def _experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise TableError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def _run(
    experiment: Experiment, scale: str, output: str, fresh: bool, only: Sequence[str], reporter: Reporter
) -> Results:
    """Runs what is not stored yet, saying how far it is."""
    reporter.show("question", experiment.question)

    def report(cell: Cell, number: int, total: int) -> None:
        move(Step(number, total))
        ending = f"failed: {cell.error}" if cell.failed else f"in {cell.seconds:.1f} s"
        where = f"{describe_run(cell)}, seed {cell.seed}"
        reporter.show(f"{number}/{total}", f"{where}, {ending}", "bold red" if cell.failed else "bold")

    with reporter.noting_warnings(), reporter.progress("running", experiment.name, "run") as move:
        try:
            results = run(experiment, scale, output, fresh=fresh, only=only, callback=report)
        except ValueError as error:
            raise TableError(str(error)) from error
    if results.n_reused:
        reporter.show("reused", f"{results.n_reused} of {len(results.cells)} runs")
    if results.n_of_other_code:
        reporter.note(
            f"{results.n_of_other_code} runs were made by another version of the code; --fresh repeats all "
            "runs"
        )
    reporter.show("wrote", str(results.path))
    pictures = {"": plot_experiment} | {
        f"-{end}": draw for end, draw in FIGURES.get(experiment.name, {}).items()
    }
    for end, draw in pictures.items():
        picture = results.path.with_name(f"{results.path.stem}{end}.svg")
        figure = draw(results)
        if figure is not None:
            with write_atomically(picture) as file:
                file.write(to_svg(figure).encode())
            reporter.show("drew", str(picture))
    return results


def results_table(results: Results) -> Table:
    """Returns our numbers beside the paper's, a line for each model and setting."""
    experiment = results.experiment
    title = f"{experiment.name} at scale {results.scale}. {experiment.paper}"
    table = Table(title=Text(title), title_justify="left", title_style="")
    for key in results.cells[0].setting:
        table.add_column(key)
    table.add_column("model")
    table.add_column("metric")
    for heading in ("ours", "paper", "runs", "seconds"):
        table.add_column(heading, justify="right")
    previous = None
    for row in results.rows():
        if previous is not None and row.setting != previous:
            table.add_section()
        previous = row.setting
        table.add_row(*map(Text, (*map(str, row.setting.values()), row.model, row.metric)), *_numbers(row))
    return table


def _numbers(row: Row) -> tuple[Text, Text, Text, Text]:
    paper = row.published
    theirs = "" if paper is None else f"{_spread(paper.mean, paper.sd)} {_remark(paper)}"
    runs = Text(str(row.n_runs))
    if row.n_failed:
        runs = Text(f"{row.n_runs}, {row.n_failed} failed", style="red")
    return Text(_spread(row.mean, row.sd)), Text(theirs.strip()), runs, Text(f"{row.seconds:.1f}")


def _remark(paper: Published) -> str:
    """Returns where a number of a paper stands, and in what its setting is another one."""
    parts = [paper.label, f"of another setting: {paper.other}" if paper.other else ""]
    return f"({'; '.join(filter(None, parts))})" if any(parts) else ""


def _spread(mean: float, sd: float | None) -> str:
    if math.isnan(mean):
        return "failed"
    return f"{mean:.4f}" if sd is None or math.isnan(sd) else f"{mean:.4f} ± {sd:.4f}"


def _verdicts(results: Results) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for verdict in results.verdicts():
        outcome = Text(verdict.outcome, style=_STYLES[verdict.outcome])
        table.add_row(outcome, Text(verdict.claim), Text(verdict.evidence, style="dim"))
    return table


def _listing() -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "question", f"runs ({', '.join(SCALES)})"):
        table.add_column(heading, overflow="fold")
    for name, experiment in EXPERIMENTS.items():
        runs = ", ".join(str(len(experiment.cells(scale))) for scale in SCALES)
        table.add_row(Text(name), Text(experiment.question), Text(runs))
    return table
