"""Files with many columns: each further column costs as much as the one before."""

import json
import sys
from functools import partial

import numpy as np
import pytest

from halfseen.cli.main import main


def write(path, n_columns):
    rng = np.random.default_rng(0)
    rows = [
        {f"c{j}": round(value, 2) for j, value in enumerate(rng.normal(size=n_columns))} for _ in range(8)
    ]
    for j in range(n_columns):
        rows[j % 8][f"c{j}"] = None
    if path.suffix == ".jsonl":
        lines = [json.dumps(row) for row in rows]
    else:
        texts = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
        lines = [",".join(cells) for cells in (rows[0], *texts)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def count_calls(task):
    n_calls = 0

    def count(frame, event, function):
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    sys.setprofile(count)
    task()
    sys.setprofile(None)
    return n_calls


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_the_number_of_calls_grows_with_the_columns_and_not_faster(tmp_path, suffix):
    found, source = [], tmp_path / f"in{suffix}"
    for n_columns in (20, 40, 80, 160):
        write(source, n_columns)
        target = tmp_path / f"out{n_columns}{suffix}"
        run = partial(main, ["impute", str(source), "-o", str(target), "--method", "mean", "--quiet"])
        found.append(count_calls(run) if n_columns > 20 else run())  # the first loads libraries
        assert target.exists()
    _, narrow, middle, wide = found
    assert middle > narrow
    assert wide - middle < 2.1 * (middle - narrow)
