"""The comparison of predictors: folds, intervals, ties, budgets and sentences."""

import math
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student_t
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier, DummyRegressor

from halfseen import GaussianImputer, ImputeThenRegressor, MeanImputer
from halfseen.auto.mixing_weights import weigh_numbers
from halfseen.errors import SchemaError
from halfseen.evaluation.candidates import CodedTable
from halfseen.evaluation.prediction import PredictionRecord, read_target, run_folds
from halfseen.evaluation.prediction_result import (
    PredictionComparison,
    Treatment,
    corrected_mean,
    say_average,
    say_best,
    say_missingness,
    say_repeats,
    say_whether_to_impute,
)
from halfseen.evaluation.repetitions import average_folds, choose_method, compare_predictors
from halfseen.training.progress import time_limit


def make_table(n_rows=200, missing=0.2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["y"] = X.sum(axis=1) + 0.1 * rng.normal(size=n_rows)
    frame["big"] = np.where(frame["y"] > 0, "yes", "no")
    inputs = frame[list("abc")].mask(rng.random((n_rows, 3)) < missing)
    return CodedTable.read(inputs), frame


def linear(**settings):
    return ImputeThenRegressor(**{"imputer": MeanImputer(), "predictor": "linear", **settings})


def make_comparison(losses, rates=(0.0,), **records):
    """A comparison whose log-losses by method and fold are given; NaN is a fold that ran out of time."""
    found = []
    for method, values in losses.items():
        for fold, value in enumerate(values):
            status = "out of budget" if math.isnan(value) else "ok"
            scores = tuple({"log_loss": value + rate} for rate in rates) if status == "ok" else ()
            found.append(PredictionRecord(method, fold, status, "", 1.0, 0.1, 2**20, scores))
    n_splits = len(next(iter(losses.values())))
    return PredictionComparison("classification", tuple(losses), tuple(found), rates, n_splits)


# ------------------------------------------------------------------------------------------- the target


def test_the_kind_of_the_target_decides_the_task():
    frame = pd.DataFrame(
        {"x": np.linspace(0, 1, 30), "s": list("ab") * 15, "n": range(0, 90, 3), "b": [True, False] * 15}
    )
    assert [read_target(frame, name).task for name in "xsnb"] == [
        "regression", "classification", "regression", "classification",
    ]  # fmt: skip
    assert read_target(frame, "b").values.dtype == bool
    assert read_target(frame, "n", "classification").classes == list(range(0, 90, 3))
    assert "set the task" in read_target(pd.DataFrame({"y": [1, 2, 3, 4, 5] * 6}), "y").reason


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("gone", "auto", "The table has no column 'gone' to predict; did you mean 'one'"),
        ("one", "auto", "Column 'one' has the same value in every row: there is nothing to predict"),
        ("none", "auto", "Column 'none' is empty: there is nothing to predict"),
        ("day", "auto", "Column 'day' is of kind datetime"),
        ("s", "regression", "Column 's' contains text: it cannot be predicted as numbers"),
        ("name", "auto", "Column 'name' has 30 distinct values, which are too many for classes"),
        ("s", "ranking", "task must be one of auto, classification, regression, got 'ranking'"),
    ],
)
def test_a_target_that_cannot_be_predicted_is_refused_by_name(name, task, message):
    frame = pd.DataFrame(
        {
            "s": list("ab") * 15,
            "one": 1,
            "none": [None] * 30,
            "day": pd.date_range("2020-01-01", periods=30),
            "name": [f"person {i}" for i in range(30)],
        }
    )
    with pytest.raises(SchemaError, match=message):
        read_target(frame, name, task)


# ------------------------------------------------------------------------------------------- folds


def test_every_method_sees_the_same_folds_and_is_scored_at_every_rate():
    table, frame = make_table()
    target = read_target(frame, "y")
    methods = {"mean": DummyRegressor(), "one": linear(), "two": linear()}
    records = run_folds(table, target, methods, n_splits=3, rates=(0.0, 0.5), random_state=1).records
    assert [(r.method, r.fold, r.status) for r in records[:3]] == [
        ("mean", 0, "ok"), ("one", 0, "ok"), ("two", 0, "ok"),
    ]  # fmt: skip
    comparison = PredictionComparison("regression", tuple(methods), records, (0.0, 0.5), 3)
    values = comparison.values("r2")
    np.testing.assert_array_equal(values["one"], values["two"])
    assert comparison.scores == ("r2", "rmse", "mae")
    assert (values["one"] > 0.5).all()
    assert (comparison.values("r2", 1)["one"] < values["one"]).all()


def test_failures_are_counted_and_classes_without_training_rows_are_scored():
    class Failing(BaseEstimator):
        def fit(self, X, y):
            raise RuntimeError("no such luck")

    table, frame = make_table()
    labels = np.where(np.arange(200) == 0, "rare", frame["big"])
    target = read_target(pd.DataFrame({"y": labels}), "y")
    methods = {"prior": DummyClassifier(strategy="prior"), "failing": Failing()}
    records = run_folds(table, target, methods, n_splits=4).records
    comparison = PredictionComparison("classification", tuple(methods), records, (0.0,), 4)
    assert comparison.count("prior", "ok") == 4
    assert comparison.errors("failing") == {"RuntimeError: no such luck": 4}
    assert math.isnan(comparison.cost("failing")["fit_seconds"])
    assert [place.method for place in comparison.places()] == ["prior"]


def test_a_budget_stops_trainings_and_later_folds():
    class Slow(BaseEstimator):
        def __init__(self, callback=None):
            self.callback = callback

        def fit(self, X, y):
            for _ in range(100):
                time.sleep(0.02)
                self.callback(None)

    table, frame = make_table()
    started = time.perf_counter()
    methods = {"mean": DummyRegressor(), "slow": Slow()}
    records = run_folds(table, read_target(frame, "y"), methods, n_splits=2, budget=0.2).records
    assert time.perf_counter() - started < 1.5  # all trainings to their ends take 4 seconds
    assert [r.status for r in records if r.method == "slow"] == ["out of budget"] * 2
    assert records[0].status == "ok"


def test_a_method_that_cannot_finish_leaves_the_time_to_the_others():
    class Slow(DummyRegressor):
        def fit(self, X, y):
            time.sleep(0.4)
            return super().fit(X, y)

    table, frame = make_table()
    methods = {"slow": Slow(), "mean": DummyRegressor()}
    records = run_folds(table, read_target(frame, "y"), methods, n_splits=4, budget=1.5).records
    assert [r.status for r in records if r.method == "mean"] == ["ok"] * 4
    assert [r.status for r in records if r.method == "slow"] == ["ok"] + ["out of budget"] * 3


def test_too_few_rows_for_the_folds_are_refused():
    table, frame = make_table(8)
    with pytest.raises(SchemaError, match="8 rows are too few for 5 folds"):
        run_folds(table, read_target(frame, "y"), {"mean": DummyRegressor()}, n_splits=5)


# ------------------------------------------------------------------------------- average, repetitions


def test_the_average_of_a_fold_has_weights_by_the_other_folds():
    table, frame = make_table()
    target = read_target(frame, "y")
    methods = {"constant": linear(), "imputed": linear(imputer=GaussianImputer())}
    done = run_folds(table, target, methods, n_splits=3, rates=(0.0, 0.5))
    records = average_folds(done, list(methods), target)
    assert [(r.method, r.fold, r.status) for r in records] == [("average", k, "ok") for k in range(3)]
    for fold, record in zip(done.folds, records, strict=True):
        others = [one for one in done.folds if one is not fold]
        errors = [
            np.concatenate([done.predictions[m, o.number][0] - target.values[o.test] for o in others])
            for m in methods
        ]
        w = weigh_numbers(np.stack(errors))
        for rate in range(2):
            mixed = w @ [done.predictions[m, fold.number][rate] for m in methods]
            rmse = math.sqrt(((mixed - target.values[fold.test]) ** 2).mean())
            assert record.scores[rate]["rmse"] == pytest.approx(rmse, rel=1e-9)


def test_repetitions_have_other_folds_and_the_seed_decides_all_scores():
    table, frame = make_table()
    target = read_target(frame, "y")
    methods = {"mean": DummyRegressor(), "one": linear(), "two": linear(add_indicator=False)}
    runs = [
        compare_predictors(table, target, methods, n_splits=3, max_repeats=n, averaged=["one", "two"])
        for n in (1, 2, 2)
    ]
    assert [run.n_repeats for run in runs] == [1, 2, 2]
    assert runs[0].methods == ("mean", "one", "two", "average")
    values = [run.values("r2") for run in runs]
    for name in ("one", "two", "average"):
        np.testing.assert_array_equal(values[0][name], values[1][name][:3])
        np.testing.assert_array_equal(values[1][name], values[2][name])
    assert not np.isin(values[1]["one"][3:], values[1]["one"][:3]).any()
    assert np.isnan(values[1]["mean"][3:]).all()  # clearly worse, so it is not run again
    assert sum(runs[1].weights.values()) == pytest.approx(1)
    assert runs[1].weights.keys() <= {"one", "two"}
    assert say_repeats(runs[1]) == "Scores are means over 2 repetitions of 3-fold cross-validation."


def test_methods_without_weight_in_the_first_folds_are_left_out_and_change_no_other_run():
    table, frame = make_table()
    target = read_target(frame, "y")
    methods = {"one": linear(), "mean": DummyRegressor(), "baseline": DummyRegressor()}
    compare = partial(
        compare_predictors, table, target, methods, averaged=["one", "mean"], n_splits=4, max_repeats=1
    )
    whole, staged = compare().values("r2"), compare(staged=True).values("r2")
    assert np.isnan(staged["mean"]).tolist() == [False, False, True, True]  # after 100 test rows
    np.testing.assert_array_equal(staged["mean"][:2], whole["mean"][:2])
    np.testing.assert_array_equal(staged["one"], whole["one"])
    np.testing.assert_array_equal(staged["baseline"], whole["baseline"])  # it is no part of the average


def test_a_clear_choice_is_not_repeated_and_a_repetition_needs_time():
    table, frame = make_table()
    target = read_target(frame, "y")
    with time_limit(math.inf) as limit:
        clear = compare_predictors(table, target, {"mean": DummyRegressor(), "linear": linear()})
    assert clear.n_repeats == 1
    assert not limit.met

    class Slow(DummyRegressor):
        def fit(self, X, y, sample_weight=None):
            time.sleep(0.1)
            return super().fit(X, y)

    tied = {"one": Slow(), "two": Slow()}
    with time_limit(math.inf) as limit:
        hasty = compare_predictors(table, target, tied, n_splits=2, budget=0.75)
    assert hasty.n_repeats == 1  # one takes 0.4 seconds
    assert limit.met  # the clock decided
    assert [record.status for record in hasty.records] == ["ok"] * 4


def test_words_say_what_the_average_is_and_whether_it_is_worthwhile():
    singles = {"a": [0.5, 0.52, 0.51, 0.53], "b": [0.6, 0.62, 0.61, 0.6]}
    weights = {"a": 0.25, "b": 0.75}
    cases = {
        (0.4, 0.42, 0.41, 0.44): "It predicts clearly better than a, the best single method.",
        (0.48, 0.53, 0.49, 0.54): "a alone is statistically tied with it: use that one",
        (
            0.53,
            0.51,
            0.54,
            0.52,
        ): "It is statistically tied with a alone, and is preferred because it depends less",
        (0.9, 0.91, 0.92, 0.9): "It predicts clearly worse than a alone, so there is no need for it.",
    }
    for losses, words in cases.items():
        comparison = replace(make_comparison({**singles, "average": list(losses)}), weights=weights)
        assert say_average(comparison).startswith("The average consists of 75% b and 25% a. ")
        assert words in say_average(comparison)
        assert choose_method(comparison) == ("a" if "clearly worse" in words else "average")
    assert say_average(make_comparison(singles)) is None
    alone = replace(make_comparison({**singles, "average": [0.5, 0.52, 0.51, 0.53]}), weights={"a": 1.0})
    assert choose_method(alone) == "a"
    assert choose_method(make_comparison({"a": [math.nan]})) is None
    assert say_average(alone) == "The average gives all weight to a: no other method improves it."


# ------------------------------------------------------------------------------------------- results


def test_the_interval_of_a_mean_over_folds_allows_for_shared_training_rows():
    values = np.array([0.1, 0.4, 0.2, 0.3, 0.5])
    found = corrected_mean([*values, np.nan], test_ratio=0.25)
    half = student_t.ppf(0.975, 4) * values.std(ddof=1) * math.sqrt(1 / 5 + 1 / 4)
    assert (found.mean, found.n) == (pytest.approx(0.3), 5)
    assert found.high - found.mean == pytest.approx(half)
    assert math.isnan(corrected_mean([1.0], 0.25).low)


def test_the_best_method_and_those_tied_with_it_come_first():
    comparison = make_comparison(
        {"far": [0.9, 0.92, 0.91, 0.9], "best": [0.3, 0.5, 0.4, 0.6], "near": [0.35, 0.46, 0.43, 0.6]}
    )
    places = comparison.places()
    assert [(p.method, p.best, p.tied) for p in places] == [
        ("best", True, False), ("near", False, True), ("far", False, False),
    ]  # fmt: skip
    assert say_best(comparison).startswith("best predicts best: log-loss 0.450 (95% interval ")
    assert "Statistically tied with it is near: their differences may be due to chance" in say_best(
        comparison
    )
    assert say_best(make_comparison({"a": [0.1, 0.12, 0.11], "b": [0.5, 0.52, 0.51]})).endswith(
        ". b is clearly worse."
    )
    three = {"a": [0.1, 0.12, 0.11], "b": [0.5, 0.52, 0.51], "c": [0.6, 0.62, 0.61]}
    assert say_best(make_comparison(three)).endswith(". All other methods are clearly worse.")
    assert say_best(make_comparison({"a": [math.nan] * 3})) == "No method finished a fold."


def test_a_method_that_ran_out_of_time_is_compared_where_it_ran():
    losses = {"whole": [0.2, 0.4, 0.6, 0.8], "quick": [0.1, 0.3, math.nan, math.nan]}
    places = make_comparison(losses).places()
    assert places[0].method == "quick"  # though its mean over all folds is not known
    assert places[1].gap.mean == pytest.approx(0.1)
    losses["quick"] = [0.1, 0.45, math.nan, math.nan]
    assert make_comparison(losses).places()[0].method == "whole"  # 0.025 better in two folds may be chance
    once = make_comparison({"whole": [0.2, 0.4], "once": [0.1, math.nan]})
    assert [place.method for place in once.places()] == ["whole"]


def test_the_expected_score_is_that_of_the_choice_in_other_folds():
    losses = {"a": [0.0, 1.0, 1.0], "b": [0.9, 0.8, 0.1]}
    # Without fold 0 b is best, without fold 1 a and b have 1.0 each, without fold 2 a has 1.0 and b 1.7.
    assert make_comparison(losses).after_choice().mean == pytest.approx((0.9 + 1.0 + 1.0) / 3)
    assert make_comparison({"a": [0.1, 0.2]}).after_choice().n == 0
    twice = {name: [*values, *values] for name, values in losses.items()}
    repeated = replace(make_comparison(twice), n_splits=3, n_repeats=2)  # folds of the other do not count
    assert repeated.after_choice().mean == pytest.approx((0.9 + 1.0 + 1.0) / 3)
    assert repeated.after_choice().n == 6


@pytest.mark.parametrize(
    ("imputing", "n_missing", "start"),
    [
        ([0.5, 0.6, 0.55, 0.5], 9, "Impute first: imputes predicts better than plain"),
        ([1.5, 1.6, 1.55, 1.5], 9, "Do not impute for this prediction: plain predicts better than imputes"),
        ([1.05, 0.95, 1.0, 1.02], 9, "There is no need to impute for this prediction: plain and the best"),
        ([1.05, 0.95, 1.0, 1.02], 0, "Nothing is missing in this table"),
    ],
)
def test_the_summary_states_whether_to_impute(imputing, n_missing, start):
    comparison = make_comparison({"plain": [1.0, 1.0, 1.01, 0.99], "imputes": imputing})
    treatments = {"plain": Treatment.NONE, "imputes": Treatment.IMPUTED}
    assert say_whether_to_impute(comparison, treatments, n_missing).startswith(start)


def test_imputing_for_rows_with_more_missing_values_is_advised_where_it_helps():
    records = []
    for fold, noise in enumerate([0.0, 0.01, -0.01, 0.02]):
        for method, later in (("plain", 2.0), ("imputes", 1.2 - noise)):
            scores = ({"log_loss": 1.0 + noise * (method == "plain")}, {"log_loss": later})
            records.append(PredictionRecord(method, fold, "ok", scores=scores))
    comparison = PredictionComparison("classification", ("plain", "imputes"), tuple(records), (0.0, 0.5), 4)
    treatments = {"plain": Treatment.NONE, "imputes": Treatment.IMPUTED}
    words = say_whether_to_impute(comparison, treatments, 9)
    assert words.startswith("There is no need to impute for this prediction")
    assert words.endswith(
        "But if new rows lack 50% more of their values, impute: then imputes predicts clearly "
        "better than plain."
    )


def test_the_summary_describes_the_effect_of_more_missing_values_at_prediction_time():
    losses = {"a": [0.1, 0.11, 0.12], "b": [0.5, 0.51, 0.52]}
    words = say_missingness(make_comparison(losses, rates=(0.0, 0.5)))
    assert words.startswith("With 50% of the known values of new rows removed, a has log-loss 0.610")
    assert words.endswith("and stays the best.")
    assert say_missingness(make_comparison(losses)) is None
