"""The time of `halfseen impute`: parts of it are kept for what comes after fitting."""

import math

import numpy as np
import pyarrow as pa
import pytest

from halfseen.cli.impute import seconds_for_fit
from halfseen.cli.impute_report import TRIED_ROWS, choose_shown
from halfseen.report import fills
from halfseen.training.progress import TimeBudget


class Clock:
    """A clock that moves only when the test moves it."""

    now = 0.0

    def __call__(self):
        return self.now


def test_time_for_writing_and_for_the_report_is_kept():
    clock = Clock()
    budget = TimeBudget(100.0, clock)
    clock.now = 10.0  # for reading, and as much is kept for writing
    assert budget.left == 90.0
    assert seconds_for_fit(budget, report=False) == 80.0
    assert seconds_for_fit(budget, report=True) == 60.0
    clock.now = 200.0
    assert (budget.left, seconds_for_fit(budget, report=True)) == (0.0, 20.0)
    assert seconds_for_fit(TimeBudget(), report=True) == math.inf


@pytest.mark.parametrize(
    ("seconds", "n_shown"), [(math.inf, 1_000), (40.0, 1_000), (10.0, 500), (0.1, TRIED_ROWS)]
)
def test_fewer_cells_are_shown_if_asking_for_all_would_take_too_long(seconds, n_shown):
    rare = pa.array([None if i % 100 == 0 else 1.0 for i in range(1_000)])  # a column that few rows lack
    table = pa.table({"x": pa.array([None] * 1_000, type=pa.float64()), "y": rare})
    clock = Clock()

    def ask(some):
        clock.now += 0.01 * some.num_rows  # 10 seconds for all rows

    budget = TimeBudget(seconds + 0.01 * TRIED_ROWS, clock)
    assert len(choose_shown(table, ask, budget).rows) == n_shown


@pytest.mark.slow
def test_the_report_of_a_choice_is_checked_on_the_values_that_were_hidden_for_it(call, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is to be fitted again")

    monkeypatch.setattr(fills, "check_known_values", refuse)
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = np.where(rng.random(200) < 0.2, None, np.round(x + 0.1 * rng.normal(size=200), 3))
    source, report = tmp_path / "in.csv", tmp_path / "report.html"
    source.write_text(
        "x,y\n" + "".join(f"{a:.3f},{'' if b is None else b}\n" for a, b in zip(x, y, strict=True))
    )
    code, _, err = call("impute", str(source), "-o", str(tmp_path / "out.csv"), "--report", str(report))
    assert code == 0, err
    page = report.read_text()
    assert "by the method, which was fitted without them" in page
    assert "filled well" in page
