"""What a comparison says: intervals, paired differences, ties, and files that can be read again."""

import json
import math

import numpy as np
import pyarrow.parquet
import pytest
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.evaluation.comparison import Comparison, estimate_mean
from halfseen.evaluation.trial import Record


def comparison(n_repeats=4, level=0.9, **methods):
    """Returns a comparison with the given RMSE per repeat on new rows; None is a failure."""
    records = [
        Record(name, i, 100 + i, "failed", "OSError: lost")
        if value is None
        else Record(name, i, 100 + i, "ok", seconds=0.5, scores={"out": _scores(value), "in": {}}, columns={})
        for name, values in methods.items()
        for i, value in enumerate(values)
    ]
    return Comparison(
        tuple(methods), tuple(records), {"n_repeats": n_repeats, "level": level}, {"commit": None}
    )


def _scores(value):
    return {"rmse": value, "accuracy": 1 - value, "coverage": value}


def test_the_interval_of_a_mean_is_students():
    x = np.random.default_rng(0).normal(size=8)
    found = estimate_mean(x, level=0.9)
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=EXACT)
    assert found.half == pytest.approx((expected.high - expected.low) / 2)
    assert estimate_mean([*x, math.nan], level=0.9) == found


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    inside = sum(
        one.low <= 1 <= one.high
        for one in (estimate_mean(1 + rng.normal(size=5), level=0.9) for _ in range(2000))
    )
    assert stats.binomtest(inside, 2000, 0.9).pvalue > FAILURE_RATE


def test_the_bootstrap_agrees_with_student_on_many_repeats():
    x = np.random.default_rng(0).normal(size=400)
    student, bootstrap = (estimate_mean(x, method=method) for method in ("t", "bootstrap"))
    assert bootstrap.mean == student.mean
    assert bootstrap.half == pytest.approx(student.half, rel=0.1)


def test_one_value_has_no_interval():
    found = estimate_mean([2.0])
    assert found.mean == 2
    assert math.isnan(found.low)
    assert math.isnan(estimate_mean([]).mean)


def test_pairing_finds_what_the_repeats_hide():
    """Repeats differ by much more than the methods do, but always in the same way."""
    hard = np.array([0.2, 0.9, 0.5, 0.7])
    found = comparison(a=hard, b=hard + np.array([0.010, 0.012, 0.009, 0.011]))
    gap = found.difference("b", "a", "rmse")
    assert gap.low > 0
    assert gap.mean == pytest.approx(0.0105)
    assert {one.method: (one.best, one.tied) for one in found.standings("rmse")} == {
        "a": (True, False), "b": (False, False),
    }  # fmt: skip


def test_a_difference_whose_interval_holds_zero_is_a_tie():
    found = comparison(a=[0.5, 0.6, 0.7, 0.8], b=[0.4, 0.8, 0.6, 0.9])
    assert {one.method: (one.best, one.tied) for one in found.standings("rmse")} == {
        "a": (True, False), "b": (False, True),
    }  # fmt: skip


def test_higher_accuracy_and_nearer_coverage_are_better():
    found = comparison(a=[0.95, 0.96, 0.95, 0.96], b=[0.89, 0.91, 0.90, 0.89], c=[0.5, 0.5, 0.5, 0.5])

    def best(score):
        return next(one.method for one in found.standings(score) if one.best)

    assert (best("rmse"), best("accuracy"), best("coverage")) == ("c", "c", "b")


def test_one_repeat_cannot_distinguish_methods():
    found = comparison(1, a=[0.5], b=[0.9])
    assert [one.tied for one in found.standings("rmse")] == [False, True]


def test_a_method_with_a_failure_is_not_the_best_but_keeps_its_mean():
    found = comparison(a=[0.1, None, 0.1, 0.1], b=[0.9, 0.8, 0.9, 0.9])
    first, second = found.standings("rmse")
    assert (first.best, second.best) == (False, True)
    assert first.estimate.mean == pytest.approx(0.1)
    assert first.estimate.n == 3
    assert found.errors("a") == {"OSError: lost": 1}


def test_if_all_fail_nobody_is_best():
    found = comparison(a=[None] * 4)
    assert [one.best for one in found.standings("rmse")] == [False]
    assert found.scores() == []


def test_results_are_written_and_read_again(tmp_path):
    found = comparison(a=[0.5, None, 0.7, math.nan], b=[0.4, 0.8, 0.6, 0.9])
    written = found.save(tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["results.json", "results.parquet"]
    again = Comparison.load(tmp_path / "new" / "folder")
    for score in ("rmse", "seconds"):
        for method in found.methods:
            np.testing.assert_array_equal(again.values(score)[method], found.values(score)[method])
    assert again.errors("a") == found.errors("a")
    json.loads(written[0].read_text(), parse_constant=pytest.fail)  # NaN is no JSON


def test_the_long_table_has_failures_and_provenance(tmp_path):
    comparison(a=[0.5, None, 0.7, 0.6]).save(tmp_path)
    table = pyarrow.parquet.read_table(tmp_path / "results.parquet")
    failed = [row for row in table.to_pylist() if row["status"] == "failed"]
    assert {row["score"] for row in failed} == {"seconds", "rmse"}
    assert all(math.isnan(row["value"]) and row["error"] == "OSError: lost" for row in failed)
    about = json.loads(table.schema.metadata[b"halfseen"])
    assert about["settings"]["n_repeats"] == 4


def test_wrong_names_are_refused():
    found = comparison(a=[0.5] * 4)
    with pytest.raises(ValueError, match="There is no method 'z' in this comparison; the methods are a"):
        found.difference("a", "z", "rmse")
    with pytest.raises(ValueError, match=r"part must be 'in' .* got 'test'"):
        found.values("rmse", "test")
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 2"):
        estimate_mean([1.0, 2.0], level=2)
    with pytest.raises(ValueError, match="method must be 't' or 'bootstrap', got 'z'"):
        estimate_mean([1.0, 2.0], method="z")
