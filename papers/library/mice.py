"""What the R package mice finds on tables of the experiment on pooled intervals, stored to stand beside ours.

It takes three steps, of which the second needs R with mice, and can be stopped and started again:

    python -m papers.library.mice write DIR
    Rscript papers/library/mice.R DIR
    python -m papers.library.mice store DIR

The last one writes ``results/inference-mice.json`` with the versions of R and mice.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halfseen._files import write_atomically
from papers.claims import Setting
from papers.library.inference import (
    MICE_FILE,
    N_DRAWS,
    SECONDS,
    SIZES,
    make_task,
    summarise,
)

N_TABLES = 50  # of each setting: its first ones
LEFT_OUT = (
    ("nine normal columns, MCAR", 30),
    ("nine normal columns, MCAR", 60),
    ("two levels", 4_000),
    ("Cox model, analysis given", 300),
)
SKIPPED_ROWS = 1_000  # like the settings that are left out, to save time; smaller and larger tables are there


def settings() -> Iterator[tuple[str, Setting]]:
    """Yields the name of the files of each setting, and the setting."""
    for place, (table, sizes) in enumerate(SIZES.items()):
        for rows in sizes:
            if rows != SKIPPED_ROWS and (table, rows) not in LEFT_OUT:
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
    content = {"versions": versions, "draws": N_DRAWS, "script": "papers/library/mice.R", "cells": cells}
    with write_atomically(output) as file:
        file.write(json.dumps(content, indent=1, allow_nan=False).encode())


def _summary(setting: Setting, found: pd.DataFrame) -> dict[str, Any]:
    """Returns the scores of the repetitions of a setting."""
    task = make_task(setting, 0)
    names = [name_in_r(name) for name in task.design.truth]
    wide = found.pivot(index="repetition", columns="term", values=["estimate", "low", "high"])
    ends = np.stack([wide[end][names].to_numpy() for end in ("low", "high")], axis=1)
    seconds = float(found.groupby("repetition")["seconds"].first().mean())
    return {
        "table": setting["table"],
        "rows": setting["rows"],
        "repetitions": len(task.tables),
        "scores": summarise(task, wide["estimate"][names].to_numpy(), ends) | {SECONDS: seconds},
    }


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
