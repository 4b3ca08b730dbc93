"""Comparisons are fair: hidden values stay hidden, all methods see the same cells, and failures count."""

import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import KNNImputer, SimpleImputer

from halfseen import GaussianImputer, MeanImputer, MixtureImputer
from halfseen.errors import SchemaError
from halfseen.evaluation.candidates import CodedTable
from halfseen.evaluation.protocol import compare, plan_jobs, plan_trials
from halfseen.missingness import MCAR

SEEN = []


class Spy(TransformerMixin, BaseEstimator):
    """Fills zeros and remembers what it was shown; raises in a repeat of one's choice."""

    def __init__(self, fails_on=(), random_state=None):
        self.fails_on = fails_on
        self.random_state = random_state

    def fit(self, X, y=None):
        SEEN.append(("fit", self.random_state, np.array(X)))
        if len([one for one in SEEN if one[0] == "fit"]) in self.fails_on:
            raise RuntimeError("out of luck")
        return self

    def transform(self, X):
        SEEN.append(("transform", self.random_state, np.array(X)))
        return np.nan_to_num(X)


class Fixed:
    """Hides the same cells whatever the seed."""

    def __init__(self, hidden):
        self.hidden = hidden

    def fit(self, X):
        return self

    def sample(self, X, random_state=None):
        return ~self.hidden


@pytest.fixture(autouse=True)
def forgetful():
    SEEN.clear()


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 1)) + 0.5 * rng.normal(size=(120, 3)) + [0.0, 10.0, -5.0]
    X[rng.random(X.shape) < 0.05] = np.nan
    return X


@pytest.fixture
def mixed(numbers):
    frame = pd.DataFrame(numbers, columns=["a", "b", "c"])
    frame["s"] = np.where(np.nan_to_num(numbers[:, 0]) > 0, "high", "low")
    frame["t"] = np.random.default_rng(1).choice(["u", "v", "w"], len(frame), p=[0.5, 0.3, 0.2])
    return frame


def test_hidden_cells_and_new_rows_are_kept_from_the_imputer(numbers):
    comparison = compare(numbers, {"spy": Spy()}, mechanism=MCAR(rate=0.3), n_repeats=2, test_fraction=0.25)
    fits = [X for step, _, X in SEEN if step == "fit"]
    assert [X.shape for X in fits] == [(90, 3)] * 2
    assert comparison.settings["n_hidden"][0] > 80
    for X in fits:  # standardised by what it sees, so what it sees has mean 0 and deviation 1
        np.testing.assert_allclose(np.nanmean(X, axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(np.nanstd(X, axis=0), 1)
        assert 0.25 < np.isnan(X).mean() < 0.45


def test_errors_are_on_the_scale_of_observed_training_cells(numbers):
    """Zeros are training means to the spy, so its errors are the standardised truth itself."""
    hidden = np.random.default_rng(3).random(numbers.shape) < 0.3
    comparison = compare(numbers, {"spy": Spy()}, mechanism=Fixed(hidden), n_repeats=1, random_state=5)
    (trial,) = plan_trials(numbers, CodedTable.read(numbers), Fixed(hidden), 1, 0.3, seed=5)
    shown = np.where(hidden, np.nan, numbers)[~trial.test]
    z = (numbers - np.nanmean(shown, axis=0)) / np.nanstd(shown, axis=0)
    for part, rows in (("in", ~trial.test), ("out", trial.test)):
        cells = z[rows][hidden[rows] & ~np.isnan(numbers[rows])]
        assert comparison.values("rmse", part)["spy"][0] == pytest.approx(np.sqrt(np.mean(cells**2)))
        assert comparison.values("mae", part)["spy"][0] == pytest.approx(np.mean(np.abs(cells)))
        assert comparison.values("crps", part)["spy"][0] == pytest.approx(np.mean(np.abs(cells)))


def test_a_correct_model_wins_and_covers_at_its_level():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 4)) @ rng.normal(size=(4, 4))
    comparison = compare(
        X, {"gaussian": GaussianImputer(), "mean": MeanImputer()}, mechanism=MCAR(rate=0.3), n_repeats=4
    )
    for part in ("in", "out"):
        assert comparison.difference("gaussian", "mean", "rmse", part).high < 0
        assert comparison.difference("gaussian", "mean", "crps", part).high < 0
        assert comparison.difference("gaussian", "mean", "energy", part).high < 0
        assert comparison.values("coverage", part)["gaussian"].mean() == pytest.approx(0.9, abs=0.03)
        best = {one.method: one.best for one in comparison.standings("rmse", part)}
        assert best == {"gaussian": True, "mean": False}


def test_mixed_tables_have_every_score(mixed):
    methods = {"gaussian": GaussianImputer(), "knn": KNNImputer()}
    comparison = compare(mixed, methods, mechanism=MCAR(rate=0.25), n_repeats=2)
    assert [comparison.count(name, "ok") for name in methods] == [2, 2]
    assert {"rmse", "accuracy", "log_loss", "crps", "coverage", "energy"} <= set(comparison.scores())
    assert np.isfinite(comparison.values("log_loss")["gaussian"]).all()
    assert np.isnan(comparison.values("log_loss")["knn"]).all()
    assert set(comparison.by_column()["s"]["gaussian"]) == {"accuracy", "log_loss"}
    assert set(comparison.by_column()["a"]["knn"]) == {"rmse", "mae"}


def test_the_library_of_the_table_does_not_matter(mixed):
    methods = {"gaussian": GaussianImputer()}
    settings = {"mechanism": MCAR(rate=0.25), "n_repeats": 1}
    pandas = compare(mixed, methods, **settings)
    polars = compare(pl.from_pandas(mixed), methods, **settings)
    assert pandas.records[0].scores == polars.records[0].scores


def test_all_methods_see_the_same_missing_cells_and_seeds_are_stored(numbers):
    comparison = compare(
        numbers, {"a": Spy(), "b": Spy()}, mechanism=MCAR(rate=0.3), n_repeats=2, random_state=7
    )
    first, second = (X for step, _, X in SEEN[:6] if step == "fit")
    np.testing.assert_array_equal(first, second)
    assert [record.seed for record in comparison.records] == np.repeat(
        comparison.settings["seeds"], 2
    ).tolist()
    again = compare(numbers, {"a": Spy()}, mechanism=MCAR(rate=0.3), n_repeats=2, random_state=7)
    np.testing.assert_array_equal(again.values("rmse")["a"], comparison.values("rmse")["a"])
    other = compare(numbers, {"a": Spy()}, mechanism=MCAR(rate=0.3), n_repeats=2, random_state=8)
    assert not np.array_equal(other.values("rmse")["a"], comparison.values("rmse")["a"])


def test_each_repetition_removes_other_cells_and_holds_out_other_rows(numbers):
    first, second = plan_trials(numbers, CodedTable.read(numbers), MCAR(rate=0.3), 2, 0.3, seed=0)
    assert (first.hidden != second.hidden).mean() > 0.2
    assert (first.test != second.test).mean() > 0.2
    assert first.test.sum() == second.test.sum() == 36


def test_more_repeats_keep_the_first_ones(numbers):
    few, many = (
        compare(numbers, {"knn": KNNImputer()}, mechanism=MCAR(rate=0.3), n_repeats=n) for n in (2, 3)
    )
    np.testing.assert_array_equal(few.values("rmse")["knn"], many.values("rmse")["knn"][:2])


def test_failures_are_counted_with_type_and_message_and_cannot_win(numbers):
    comparison = compare(
        numbers, {"spy": Spy(fails_on=(2,)), "knn": KNNImputer()}, mechanism=MCAR(rate=0.3), n_repeats=3
    )
    assert comparison.count("spy", "failed") == 1
    assert comparison.count("knn", "failed") == 0
    assert comparison.errors("spy") == {"RuntimeError: out of luck": 1}
    assert np.isnan(comparison.values("rmse")["spy"]).tolist() == [False, True, False]
    assert len(comparison.records) == 6
    standings = {one.method: one for one in comparison.standings("seconds")}
    assert not standings["spy"].best
    assert standings["knn"].best
    assert comparison.difference("spy", "knn", "rmse").n == 2


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda X: X, "ValueError: The method left .* values missing or infinite"),
        (
            lambda X: np.nan_to_num(X)[:, :1],
            r"ValueError: The method returned an array of shape .* for a table of shape",
        ),
    ],
)
def test_an_imputer_that_leaves_missing_cells_or_loses_columns_fails(numbers, transform, message):
    broken = type("Broken", (), {"fit": lambda self, X: self, "transform": staticmethod(transform)})()
    comparison = compare(numbers, {"broken": broken}, mechanism=MCAR(rate=0.3), n_repeats=1)
    assert comparison.count("broken") == 1
    (error,) = comparison.errors("broken")
    assert re.match(message, error)


def test_an_interrupted_comparison_resumes_where_it_stopped(numbers, tmp_path):
    methods = {"spy": Spy(), "zero": SimpleImputer(strategy="constant", fill_value=0)}
    settings = {"mechanism": MCAR(rate=0.3), "n_repeats": 3, "folder": tmp_path}
    done = []

    def interrupt(record):
        done.append(record)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(numbers, methods, callback=interrupt, **settings)
    assert len(list((tmp_path / "runs").iterdir())) == 3
    before = len([one for one in SEEN if one[0] == "fit"])
    comparison = compare(numbers, methods, **settings)
    assert [record.resumed for record in comparison.records].count(True) == 3
    assert len([one for one in SEEN if one[0] == "fit"]) - before == 1
    whole = compare(numbers, methods, mechanism=MCAR(rate=0.3), n_repeats=3)
    for method in methods:
        np.testing.assert_array_equal(comparison.values("rmse")[method], whole.values("rmse")[method])


def test_a_run_that_is_cut_short_is_neither_kept_nor_counted(numbers, tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    methods = {"zero": SimpleImputer(strategy="constant", fill_value=0)}
    methods["mixture"] = MixtureImputer(2, max_epochs=2, callback=interrupt)
    settings = {"mechanism": MCAR(rate=0.3), "n_repeats": 1, "folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        compare(numbers, methods, **settings)
    [kept] = (tmp_path / "runs").iterdir()
    assert json.loads(kept.read_text())["method"] == "zero"


@pytest.mark.parametrize("change", ["data", "parameter", "rate", "seed", "level"])
def test_a_finished_run_is_not_used_for_another_question(numbers, tmp_path, change):
    def run(X, n_neighbors=3, rate=0.3, random_state=0, level=0.9):
        return compare(
            X, {"knn": KNNImputer(n_neighbors=n_neighbors)}, mechanism=MCAR(rate=rate), n_repeats=1,
            folder=tmp_path, random_state=random_state, level=level,
        ).records[0].resumed  # fmt: skip

    assert not run(numbers)
    assert run(numbers)
    other = numbers.copy()
    other[-1, -1] += 1e-9
    changed = {
        "data": lambda: run(other), "parameter": lambda: run(numbers, n_neighbors=4),
        "rate": lambda: run(numbers, rate=0.31), "seed": lambda: run(numbers, random_state=1),
        "level": lambda: run(numbers, level=0.8),
    }  # fmt: skip
    assert not changed[change]()


def test_damaged_and_failed_runs_are_run_again(numbers, tmp_path):
    settings = {"mechanism": MCAR(rate=0.3), "n_repeats": 1, "folder": tmp_path}
    assert compare(numbers, {"spy": Spy(fails_on=(1,))}, **settings).count("spy") == 1
    kept = next((tmp_path / "runs").iterdir())
    assert json.loads(kept.read_text())["error"] == "RuntimeError: out of luck"
    assert compare(numbers, {"spy": Spy(fails_on=(1,))}, **settings).count("spy", "ok") == 1
    kept.write_text("{")
    assert not compare(numbers, {"spy": Spy(fails_on=(1,))}, **settings).records[0].resumed


@pytest.mark.slow
def test_processes_give_the_same_scores(numbers, tmp_path):
    methods = {"gaussian": GaussianImputer(), "knn": KNNImputer()}
    settings = {"mechanism": MCAR(rate=0.3), "n_repeats": 2}
    serial = compare(numbers, methods, **settings)
    parallel = compare(numbers, methods, n_jobs=2, memory_budget=2**40, folder=tmp_path, **settings)
    assert [one.scores for one in serial.records] == [one.scores for one in parallel.records]
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_fewer_jobs_run_when_memory_is_short():
    assert plan_jobs(4, (1000, 10), 20, memory_budget=2**40) == 4
    assert plan_jobs(4, (1000, 10), 20, memory_budget=10**9) == 2
    assert plan_jobs(4, (1000, 10), 20, memory_budget=1) == 1
    assert plan_jobs(-1, (1000, 10), 20, memory_budget=2**40) >= 1
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        plan_jobs(0, (1, 1), 1)


def test_a_table_is_never_scored_on_cells_that_were_missing_before(numbers):
    own = np.isnan(numbers)
    comparison = compare(numbers, {"spy": Spy()}, mechanism=Fixed(np.ones_like(own)), n_repeats=1)
    assert comparison.settings["n_hidden"] == [int((~own).sum())]


def test_a_comparison_without_new_rows_has_only_fitted_ones(numbers):
    comparison = compare(
        numbers, {"knn": KNNImputer()}, mechanism=MCAR(rate=0.3), n_repeats=1, test_fraction=0
    )
    assert comparison.scores("out") == []
    assert "rmse" in comparison.scores("in")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"imputers": {}}, "no imputer to compare"),
        ({"n_repeats": 0}, "n_repeats must be at least 1, got 0"),
        ({"test_fraction": 1.0}, "test_fraction must be at least 0 and below 1, got 1.0"),
        ({"n_draws": 0}, "n_draws must be at least 1, got 0"),
        ({"level": 90}, "level must be between 0 and 1, got 90"),
        ({"mechanism": Fixed(np.zeros((120, 3), dtype=bool))}, "No value was removed"),
        ({"mechanism": Fixed(np.zeros((120, 3)).astype(int))}, "must return a boolean array with 120 rows"),
        ({"X": np.ones((9, 2))}, "no column on which imputers can be compared"),
        ({"X": np.array([[1.0], [2.0]]), "test_fraction": 0.5}, "2 rows is too short"),
    ],
)
def test_wrong_settings_are_refused(numbers, settings, message):
    given = {"X": numbers, "imputers": {"spy": Spy()}, "mechanism": MCAR(rate=0.3), **settings}
    with pytest.raises((ValueError, SchemaError), match=message):
        compare(given.pop("X"), given.pop("imputers"), **given)


def test_an_object_that_is_not_an_imputer_fails_with_a_message(numbers):
    comparison = compare(numbers, {"text": "mean"}, mechanism=MCAR(rate=0.3), n_repeats=1)
    assert comparison.errors("text") == {
        "ValueError: An imputer must have the methods fit and transform; str does not.": 1
    }
