"""The page of predictions: drift first, then how sure the predictions are."""

import re

import numpy as np
import pytest
from report.pages import assert_self_contained

from halfseen.diagnosis.drift import TrainingDrift, compare_rates
from halfseen.report.predictions import render_predictions, summarize_predictions, treatment_words
from halfseen.report.result import RunInfo


def drift_of(missing, training=50):
    counts = missing.sum(axis=0).tolist()
    names = [f"<b>{j}" for j in range(missing.shape[1])]
    changes = compare_rates(names, counts, len(missing), [0] * len(names), training)
    return TrainingDrift(len(missing), training, changes).to_dict()


def missing_inputs(n_rows=40):
    return np.random.default_rng(0).random((n_rows, 3)) < [0.0, 0.5, 0.9]


def test_classes_are_counted_and_unsure_rows_are_named():
    missing = missing_inputs()
    sure = np.where(np.arange(40) < 30, 0.9, 0.55)
    probabilities = np.stack([1 - sure, sure], axis=1)
    summary = summarize_predictions(
        ["b"] * 40, missing, drift=drift_of(missing), classes=["a", "b"], probabilities=probabilities,
        target="<script>", model="BoostingClassifier", run=RunInfo("new.csv", notes=["<note>"]),
    )  # fmt: skip
    assert summary["picture"] == {"levels": ["b", "a"], "shares": [1.0, 0.0]}
    assert summary["lines"][0].startswith("Missingness differs from training: <b>2")
    assert "The most frequent prediction is b, for 100% of the rows." in summary["lines"][2]
    assert "In 25% of the rows it is below 60%" in summary["lines"][2]
    groups = {one["name"]: one for one in summary["groups"]}
    assert [one["n_rows"] for one in groups.values()] == np.bincount(missing.sum(axis=1)).tolist()
    assert groups["1"]["sure"] == pytest.approx(sure[missing.sum(axis=1) == 1].mean())
    page = render_predictions(summary)
    assert_self_contained(page)
    assert "&lt;script&gt;" in page


def test_numbers_have_quartiles_and_widths():
    missing = missing_inputs()
    values = np.arange(40.0)
    summary = summarize_predictions(
        values.tolist(),
        missing,
        drift=drift_of(missing),
        ends=(values - 1, values + 2),
        level=0.8,
        target="y",
    )
    assert summary["lines"][2] == (
        "Half of the predictions are between 9.75 and 29.25, with median 19.5. The 80% interval of a single "
        "row is typically 3 wide."
    )
    assert sum(summary["picture"]["shares"]) == pytest.approx(1.0)
    assert_self_contained(render_predictions(summary))


def test_training_comes_first_only_if_something_changed_and_scores_warn_of_rows_used_in_fitting():
    few = np.zeros((40, 3), dtype=bool)
    score = "'y' is known in 40 rows: accuracy 100.0%."
    summary = summarize_predictions(["b"] * 40, few, drift=drift_of(few), classes=["b"], score=score,
                                    probabilities=np.ones((40, 1)))  # fmt: skip
    assert summary["lines"][0].startswith("40 rows were predicted from 3 inputs")
    assert summary["lines"][1] == "Missing rates do not differ from training by more than chance."
    assert (
        summary["lines"][-1] == f"{score} If the model was fitted to some of these rows, that is optimistic."
    )


def test_many_classes_are_gathered():
    missing = missing_inputs(20)
    summary = summarize_predictions(
        list(range(20)), missing, drift=drift_of(missing), classes=list(range(20)), probabilities=np.eye(20)
    )
    assert summary["picture"]["levels"][-1] == "8 others"
    assert summary["picture"]["shares"][-1] == pytest.approx(0.4)


@pytest.mark.parametrize("n_rows", [0, 1])
def test_pages_of_no_row_and_of_one_row_can_be_made(n_rows):
    missing = np.ones((n_rows, 2), dtype=bool)
    ends = (np.zeros(n_rows), np.ones(n_rows))
    drift = drift_of(missing) if n_rows else TrainingDrift(0, 50, ()).to_dict()
    summary = summarize_predictions([3.0] * n_rows, missing, drift=drift, ends=ends)
    page = render_predictions(summary)
    assert_self_contained(page)
    assert ("The table has no rows." if n_rows == 0 else "1 row is without any known input") in page


@pytest.mark.parametrize(
    ("imputing", "words"),
    [
        ({}, "predicted each row from its observed inputs; missing inputs were not imputed."),
        ({"AveragingRegressor": 1.0}, "imputed the missing inputs of each row, and predicted from the comp"),
        ({"gaussian+linear": 0.3}, "is an average, of which gaussian\\+linear \\(30%\\) imputes the missing"),
        (
            {"a+b": 0.5, "c+d": 0.5},
            "imputed the missing inputs .* by each of its parts, a.b .50%. and c",
        ),
    ],
)
def test_the_page_says_what_the_fitted_model_does_with_missing_inputs(imputing, words):
    assert re.search(words, treatment_words("AveragingRegressor", imputing))
    missing = missing_inputs()
    summary = summarize_predictions(
        np.arange(40.0), missing, drift=drift_of(missing), model="AveragingRegressor", imputing=imputing
    )
    page = render_predictions(summary)
    assert ("were not imputed" in page) == (not imputing)
