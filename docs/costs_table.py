"""The table of what large tables cost, from results/scale*.json; used by `docs/fill_tables.py`."""

from typing import Any

from works_table import commit_of

TASKS = {
    "imputing": ("one", "few"),
    "fitting": ("fit", "fit few"),
    "describing": ("describe", "describe few"),
}
"""The tasks of `benchmarks/scale.py` with all and with a tenth of the rows, by what they are called here."""

FEWEST_COMPARED = 200_000
"""Rows up to which a table is described in memory, and fits are mostly those to the chosen rows: of a tenth
with fewer rows, the difference does not tell what a further row costs."""

CELLS = 12_000_000_000  # of the tables to which costs are extrapolated, about


def costs_table(runs: list[dict[str, Any]]) -> str:
    """Return the time and memory of each task of some runs, hours for a larger table, and ratios."""
    heads = ["columns", "task", "rows", "processor seconds", "for a further million rows", "memory, GB"]
    lines = [[*heads, "rows of a large table", "processor hours for it"], ["---"] * (len(heads) + 2)]
    for run in runs:
        rows, few = run["rows"], max(1, run["rows"] // 10)
        large = large_rows(run["columns"])
        for name, (task, of_few) in TASKS.items():
            comparable = name == "imputing" or few > FEWEST_COMPARED
            if {task, of_few} <= run["tasks"].keys() and comparable:
                all_of, some = run["tasks"][task], run["tasks"][of_few]
                million = (all_of["cpu_seconds"] - some["cpu_seconds"]) / (rows - few) * 1e6
                measured = [f"{all_of['cpu_seconds']:.1f}", f"{million:.2f}", f"{all_of['largest_GB']:.2f}"]
                hours = f"{million * large / 1e6 / 3600:.1f}"
                lines.append([str(run["columns"]), name, f"{rows:,}", *measured, f"{large:,}", hours])
    commits = dict.fromkeys(commit_of({"provenance": {"commit": run["commit"]}}) for run in runs)
    said = (
        "Hours are those of one processor of this type. They assume that each further row costs as much as "
        "the measured ones, by the difference between all and a tenth of the rows, and that files are read "
        f"and written as fast as here. Measured by `python benchmarks/scale.py` at {', '.join(commits)}."
    )
    limits = {name: limit for run in runs for name, limit in run["limits"].items()}
    ratios = [["ratio", "rows", "found", "goal, at most"], ["---"] * 4]
    for run in runs:
        for name, found in run["judged"].items() if run["rows"] > 10 * FEWEST_COMPARED else ():
            ratios.append([name, f"{run['rows']:,}", f"{found:.2f}", f"{limits[name]:g}"])
    made = ("\n".join(f"| {' | '.join(line)} |" for line in table) for table in (lines, ratios))
    return "\n\n".join([*made, said])


def large_rows(n_columns: int) -> int:
    """Return the rows of the large table: a billion of 12 columns, a hundred million of 200.

    Examples
    --------
    >>> large_rows(12), large_rows(200)
    (1000000000, 100000000)
    """
    return 1_000_000_000 if n_columns * 1_000_000_000 <= CELLS else 100_000_000
