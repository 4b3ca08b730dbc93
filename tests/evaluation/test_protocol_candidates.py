"""What fitted see of a mixed table, how their answers are read, and where a result came from."""

import re
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from halfseen import GaussianImputer, MixtureImputer
from halfseen.evaluation.candidates import Answer, CodedTable, NotApplicableError, OnNumbers, enter, take_rows
from halfseen.evaluation.energy import energy_distance, row_features
from halfseen.evaluation.protocol import commit, compare, describe_parameters, provenance
from halfseen.evaluation.scores import Scale
from halfseen.evaluation.trial import CellScorer
from halfseen.missingness import MCAR

pytestmark = pytest.mark.filterwarnings("ignore:.*Early stopping criterion not reached")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    kind = rng.choice(3, 200, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame({"x": rng.normal(size=200) + 3 * kind, "n": rng.poisson(4, 200)})
    table["s"] = np.array(["a", "b", "c"])[kind]
    table["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 200), unit="D")
    table["grade"] = pd.Categorical(
        rng.choice(["low", "mid", "high"], 200), ["low", "mid", "high"], ordered=True
    )
    return table


@pytest.fixture
def holey(frame):
    table = CodedTable.read(frame)
    shown = np.where(np.random.default_rng(1).random(table.codes.shape) < 0.25, np.nan, table.codes)
    return table, shown


@pytest.mark.parametrize("imputer", [GaussianImputer(), MixtureImputer(max_epochs=5)])
def test_an_imputer_of_tables_keeps_kinds_levels_and_bounds(holey, imputer):
    table, shown = holey
    candidate = enter(imputer, table, seed=3)
    candidate.fit(shown)
    assert candidate.imputer is not imputer
    assert candidate.imputer.random_state == 3
    kinds = [column.kind for column in candidate.imputer.schema_]
    assert kinds == ["continuous", "count", "categorical", "continuous", "ordinal"]
    point = candidate.fill(shown)
    answer = candidate.answer(shown, point, 4, 0.9)
    assert answer.draws.shape == (4, *shown.shape)
    assert {j: one.shape[1] for j, one in answer.probabilities.items()} == {2: 3, 4: 3}
    assert (point[:, 1] == np.round(point[:, 1])).all()
    assert (answer.low <= answer.high).all()


@pytest.mark.parametrize("imputer", [SimpleImputer(), KNNImputer(), IterativeImputer(max_iter=2)])
def test_a_transformer_keeps_observed_cells_and_fills_valid_ones(holey, imputer):
    table, shown = holey
    candidate = enter(imputer, table, seed=0)
    candidate.fit(shown)
    point = candidate.fill(shown)
    seen = ~np.isnan(shown)
    np.testing.assert_array_equal(point[seen], shown[seen])
    assert (point[:, 1] == np.round(point[:, 1])).all()
    assert set(np.unique(point[:, 2])) <= {0, 1, 2}
    assert candidate.answer(shown, point, 4, 0.9).probabilities is None


def test_the_median_of_indicators_fills_the_most_frequent_level(holey):
    """No level has half of the cells, so every indicator's median is 0: the tie goes to the most frequent."""
    table, shown = holey
    levels = shown[:, 2]
    shown[np.flatnonzero(levels == 0)[:40], 2] = np.nan
    counts = np.bincount(shown[~np.isnan(shown[:, 2]), 2].astype(int))
    assert counts.max() < counts.sum() / 2
    candidate = enter(SimpleImputer(strategy="median"), table, seed=0)
    candidate.fit(shown)
    filled = candidate.fill(shown)[np.isnan(shown[:, 2]), 2]
    assert set(filled) == {counts.argmax()}


def test_a_chain_of_regressions_learns_levels_because_one_indicator_is_left_out(holey):
    """With all indicators each is exactly one minus the others: it would predict the levels' frequencies."""
    table, shown = holey
    hidden = np.isnan(shown[:, 2])

    def right(imputer):
        candidate = enter(imputer, table, seed=0)
        candidate.fit(shown)
        return (candidate.fill(shown)[hidden, 2] == table.codes[hidden, 2]).mean()

    chosen = right(IterativeImputer())
    assert chosen == right(OnNumbers(IterativeImputer(), full_rank=True))
    assert chosen > right(OnNumbers(IterativeImputer(), full_rank=False)) + 0.1


def test_a_transformer_that_draws_is_drawn_from(holey):
    table, shown = holey
    candidate = enter(IterativeImputer(sample_posterior=True, max_iter=1), table, seed=0)
    candidate.fit(shown)
    answer = candidate.answer(shown, shown, 3, 0.9)
    missing = np.isnan(shown[:, 0])
    assert answer.draws.shape == (3, *shown.shape)
    spread = np.ptp(answer.draws[:, :, 0], axis=0)
    assert (spread[missing] > 0).all()
    assert (spread[~missing] == 0).all()


def test_nested_transformers_are_seeded(holey):
    table, _ = holey
    candidate = enter(make_pipeline(StandardScaler(), IterativeImputer()), table, seed=9)
    assert candidate.method.last.random_state == 9
    assert hasattr(candidate.method.last, "imputation_order")


def test_a_method_that_does_not_apply_gives_a_reason_and_has_not_failed(frame):
    methods = {"wide": OnNumbers(SimpleImputer(), max_features=3), "mean": SimpleImputer()}
    comparison = compare(frame, methods, mechanism=MCAR(rate=0.2), n_repeats=2)
    assert (comparison.count("wide", "not applicable"), comparison.count("wide", "failed")) == (2, 0)
    assert list(comparison.errors("wide")) == ["9 features, counting one per level; it is feasible up to 3"]
    assert comparison.count("mean", "ok") == 2


def test_a_method_that_does_not_apply_is_an_error_outside_of_a_comparison(holey):
    with pytest.raises(NotApplicableError, match="feasible up to 1"):
        enter(OnNumbers(SimpleImputer(), max_features=1), holey[0], 0).fit(holey[1])


def test_warnings_of_a_method_are_kept_with_its_run(frame):
    comparison = compare(
        frame, {"iterative": IterativeImputer(max_iter=1)}, mechanism=MCAR(rate=0.2), n_repeats=1
    )
    assert comparison.records[0].warnings[0].startswith("ConvergenceWarning: ")


def test_row_distances_use_rows_of_which_every_cell_is_known(frame):
    frame.loc[:99, "x"] = np.nan
    table = CodedTable.read(frame)
    hidden = np.zeros(table.codes.shape, dtype=bool)
    hidden[::2, 2] = True
    scale = Scale.fit(table.codes)
    point = np.where(hidden, 0.0, np.nan_to_num(table.codes))
    found = CellScorer(table, table.codes, hidden, scale, 0.9)._row_scores(Answer(point))
    rows = np.arange(100, 200, 2)
    pair = [row_features(one[rows], table.n_levels, scale) for one in (table.codes, point)]
    assert found["energy"] == pytest.approx(energy_distance(*pair))


def test_numbers_and_levels_are_scored_apart(frame):
    table = CodedTable.read(frame[["x", "s"]])
    hidden = np.zeros(table.codes.shape, dtype=bool)
    hidden[:3] = True
    scale = Scale(np.array([1.0, 7.0]), np.array([2.0, 7.0]))
    point = table.codes.copy()
    point[:3] += [[2.0, 1.0], [-2.0, 0.0], [4.0, 0.0]]
    chances = np.tile([0.5, 0.25, 0.25], (len(point), 1))
    scorer = CellScorer(table, table.codes, hidden, scale, 0.9)
    found = scorer.scores(Answer(point, low=point - 1, high=point + 5, probabilities={1: chances}))
    assert found["rmse"] == pytest.approx(np.sqrt((1 + 1 + 4) / 3))
    assert found["mae"] == found["crps"] == pytest.approx(4 / 3)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["log_loss"] == pytest.approx(-np.log(chances[0][table.codes[:3, 1].astype(int)]).mean())
    assert found["coverage"] == pytest.approx(1 / 3)
    assert found["width"] == pytest.approx(3.0)
    assert scorer.by_column(Answer(point))["x"]["mae"] == pytest.approx(4 / 3)


def test_tables_without_complete_rows_have_no_row_distance(frame):
    frame.loc[::2, "x"] = frame.loc[1::2, "n"] = np.nan
    comparison = compare(frame, {"mean": SimpleImputer()}, mechanism=MCAR(rate=0.2), n_repeats=1)
    assert "energy" not in comparison.scores()
    assert "rmse" in comparison.scores()


def test_rows_are_taken_in_the_library_of_the_table(frame):
    assert take_rows(frame, np.array([3, 1])).index.tolist() == [3, 1]
    assert take_rows(np.eye(3), np.array([2])).tolist() == [[0, 0, 1]]


def test_equal_settings_are_described_alike_and_others_are_not():
    assert describe_parameters(KNNImputer()) == describe_parameters(KNNImputer())
    assert describe_parameters(KNNImputer()) != describe_parameters(KNNImputer(n_neighbors=2))
    assert describe_parameters(OnNumbers(KNNImputer())) != describe_parameters(
        OnNumbers(KNNImputer(), full_rank=True)
    )
    assert describe_parameters(make_pipeline(KNNImputer())) != describe_parameters(
        make_pipeline(SimpleImputer())
    )
    assert describe_parameters(np.arange(3)) != describe_parameters(np.arange(4))
    assert "0x" not in describe_parameters(object())
    assert describe_parameters(len) == "builtins.len"
    assert describe_parameters({"a": (1, np.float64(2))}) == {"a": [1, 2.0]}


def test_provenance_names_versions_and_a_commit_if_there_is_one():
    about = provenance()
    assert {"halfseen", "numpy", "torch"} <= set(about["versions"])
    assert re.fullmatch(r"[0-9a-f]{64}", about["code"])
    assert about["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", about["commit"])


def test_without_git_there_is_no_commit(monkeypatch):
    def missing(*args, **kwargs):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert commit() is None
