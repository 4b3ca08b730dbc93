"""What the R package mice finds on tables of the experiment on pooled intervals, stored to stand beside ours.

It takes three steps, of which the second needs R with mice, and can be stopped and started again:

    python -m papers.library.mice write DIR
    Rscript papers/library/mice.R DIR
    python -m papers.library.mice store DIR

The last one writes ``results/inference-mice.json`` with the versions of R, mice and pan. Scores of settings
that are not in DIR stay as they are. Tables of groups are completed by 2l.pan of mice and analysed here.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from halfseen._machine import write_atomically
from papers.claims import Setting
from papers.library.inference import (
    MICE_FILE,
    N_DRAWS,
    SECONDS,
    SIZES,
    Task,
    analyse,
    make_task,
    summarise,
)
from papers.library.inference_tables import DESIGNS

Floats = npt.NDArray[np.float64]

N_TABLES = 50  # of each setting: its first ones
LEFT_OUT = (("two levels", 4_000), ("two levels", 1_000))  # to save time; smaller tables are there


def settings() -> Iterator[tuple[str, Setting]]:
    """Yields the name of the files of each setting, and the setting."""
    for place, (table, sizes) in enumerate(SIZES.items()):
        for rows in sizes:
            # A Cox model needs code of its own, and an analysis that is given is not for mice.
            if (table, rows) not in LEFT_OUT and "analysis" not in DESIGNS[table].options:
                yield f"{place:02d}-{rows}", {"table": table, "rows": rows, "repetitions": N_TABLES}


def formula_in_r(formula: str) -> str:
    """Returns a formula of statsmodels in the language of R, where columns of text are factors."""
    return formula.replace("C(x)", "x").replace(" ** ", "^")


def name_in_r(name: str) -> str:
    """Returns the name that R gives to a coefficient of statsmodels.

    Examples
    --------
    >>> name_in_r("C(x)[T.b]"), name_in_r("I(x ** 2)"), name_in_r("x:z")
    ('xb', 'I(x^2)', 'x:z')
    """
    return formula_in_r(name.replace("[T.", "").removesuffix("]"))


def write_tables(folder: Path) -> None:
    """Writes incomplete tables, and how they are analysed."""
    folder.mkdir(parents=True, exist_ok=True)
    designs = []
    for name, setting in settings():
        task = make_task(setting, 0)
        designs.append(
            {
                "name": name,
                "formula": formula_in_r(task.design.formula),
                "model": task.design.model,
                "repetitions": N_TABLES,
                "draws": N_DRAWS,
                "group": task.design.options.get("groups", ""),
            }
        )
        for repetition, table in enumerate(task.tables):
            # An empty text would be a level of its own, so missing cells are written as R writes them.
            table.shown.to_csv(folder / f"{name}-{repetition}.csv", index=False, na_rep="NA")
    pd.DataFrame(designs).to_csv(folder / "designs.csv", index=False)


def store(folder: Path, output: Path = MICE_FILE) -> None:
    """Summarises the results of R, and stores them."""
    versions = pd.read_csv(folder / "versions.csv", dtype=str).iloc[0].to_dict()
    cells = [
        _summary(setting, pd.read_csv(path))
        for name, setting in settings()
        if (path := folder / f"{name}-results.csv").exists()
    ]
    cells = _with_older(cells, output)
    content = {"versions": versions, "draws": N_DRAWS, "script": "papers/library/mice.R", "cells": cells}
    with write_atomically(output) as file:
        file.write(json.dumps(content, indent=1, allow_nan=False).encode())


def _with_older(cells: list[dict[str, Any]], output: Path) -> list[dict[str, Any]]:
    """Returns scores of settings, with those that are stored and were not computed again."""
    stored = json.loads(output.read_text(encoding="utf-8"))["cells"] if output.exists() else []
    known = {(one["table"], one["rows"]): one for one in (*stored, *cells)}
    order = [(table, rows) for table, sizes in SIZES.items() for rows in sizes]
    return [known[place] for place in order if place in known]


def _summary(setting: Setting, found: pd.DataFrame) -> dict[str, Any]:
    """Returns the scores of the repetitions of a setting."""
    task = make_task(setting, 0)
    estimates, ends = _of_completed(task, found) if "draw" in found else _of_analyses(task, found)
    seconds = float(found.groupby("repetition")["seconds"].first().mean())
    return {
        "table": setting["table"],
        "rows": setting["rows"],
        "repetitions": len(task.tables),
        "scores": summarise(task, estimates, ends) | {SECONDS: seconds},
    }


def _of_analyses(task: Task, found: pd.DataFrame) -> tuple[Floats, Floats]:
    """Returns estimates and ends of intervals that R has pooled."""
    names = [name_in_r(name) for name in task.design.truth]
    wide = found.pivot(index="repetition", columns="term", values=["estimate", "low", "high"])
    ends = np.stack([wide[end][names].to_numpy() for end in ("low", "high")], axis=1)
    return wide["estimate"][names].to_numpy(), ends


def _of_completed(task: Task, found: pd.DataFrame) -> tuple[Floats, Floats]:
    """Returns estimates and ends of intervals of tables that R has completed, analysed as ours are."""
    analysed = []
    for repetition, draws in found.groupby("repetition"):
        shown = task.tables[int(str(repetition))].shown
        completed = [
            shown.assign(y=shown["y"].fillna(one.set_index("row")["y"])) for _, one in draws.groupby("draw")
        ]
        analysed.append(analyse(task.design, completed))
    estimates, ends = zip(*analysed, strict=True)
    return np.stack(estimates), np.stack(ends)


def main(arguments: list[str]) -> int:
    """Runs a step; returns the exit code."""
    steps = {"write": write_tables, "store": store}
    if len(arguments) != 2 or arguments[0] not in steps:
        print("usage: python -m papers.library.mice {write,store} DIR", file=sys.stderr)
        return 2
    steps[arguments[0]](Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
