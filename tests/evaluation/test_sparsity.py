"""The diagnostic of the variable sparsity problem, on predictors whose drift is known."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

from halfseen import GaussianRegressor
from halfseen.evaluation import vsp_curve
from halfseen.ratings import AutoRec
from halfseen.report.figures import plot_vsp, to_svg


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 10))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def total(rows):
    return np.nan_to_num(rows).sum(axis=1)


def average(rows):
    return np.nanmean(rows, axis=1)


def test_a_sum_of_inputs_has_the_slope_of_its_mean(X):
    """The mean of k of c known values, times k, is linear in k / c with slope c times the mean."""
    complete = np.nan_to_num(X)
    curve = vsp_curve(total, complete, n_draws=200, n_levels=5)
    exact = complete.sum(axis=1).mean()
    assert curve.slope == pytest.approx(exact, rel=0.02)
    assert curve.slope_interval[0] < exact < curve.slope_interval[1]
    assert curve.correlation == pytest.approx(1)
    assert curve.drifts
    assert "rises when more values of the same rows become known" in curve.sentence


def test_a_mean_of_inputs_does_not_drift_and_is_steadier_with_more_inputs(X):
    curve = vsp_curve(average, X, n_draws=100, n_levels=5)
    assert not curve.drifts
    assert curve.sentence.startswith(
        "The mean prediction does not clearly depend on the number of known values"
    )
    assert (np.diff(curve.spreads) < 0).all()
    assert curve.spreads[-1] == pytest.approx(0, abs=1e-12)


def test_a_constant_does_not_drift_at_all(X):
    curve = vsp_curve(lambda rows: np.full(len(rows), 2.0), X)
    assert curve.slope == 0
    assert curve.correlation == 0
    assert not curve.drifts


def test_the_last_point_is_the_mean_of_the_predictions(X):
    curve = vsp_curve(total, X, n_rows=60)
    assert curve.n_rows == 60
    assert curve.means[-1] == pytest.approx(total(X).mean())


def test_targets_scale_the_index(X):
    y = 10 * np.arange(60.0)
    ours, theirs = vsp_curve(total, X, y), vsp_curve(total, X)
    assert ours.slope == theirs.slope
    assert ours.index == pytest.approx(theirs.index * np.std(total(X)) / np.std(y))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_and_our_predictors(X, library):
    frame = library({f"x{j}": X[:, j] for j in range(10)})
    model = GaussianRegressor(random_state=0).fit(frame, total(X))
    curve = vsp_curve(model, frame, n_rows=10, n_draws=3, n_levels=3)
    assert np.isfinite(curve.means).all()


def test_classifiers_are_followed_by_the_probability_of_a_class(X):
    y = np.where(total(X) > np.median(total(X)), "high", "low")
    model = make_pipeline(SimpleImputer(fill_value=0.0, strategy="constant"), LogisticRegression()).fit(X, y)
    low, high = vsp_curve(model, X), vsp_curve(model, X, output="high")
    assert low.slope == pytest.approx(-high.slope)
    assert high.slope > 0.3
    assert "falls" in low.sentence
    with pytest.raises(ValueError, match="output must be one of the classes"):
        vsp_curve(model, X, output="middle")


def test_more_than_two_classes_or_targets_need_a_choice(X):
    filled = np.nan_to_num(X)
    three = LogisticRegression().fit(filled, np.arange(60) % 3)
    with pytest.raises(ValueError, match="The model has 3 classes: give one of"):
        vsp_curve(three, X)
    two = LinearRegression().fit(filled, filled[:, :2])
    with pytest.raises(ValueError, match="The model has 2 targets: give the position of one as output"):
        vsp_curve(lambda rows: two.predict(np.nan_to_num(rows)), X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_levels": 1}, "n_levels must be at least 2, got 1"),
        ({"n_draws": 0}, "n_draws must be at least 1, got 0"),
        ({"level": 1.0}, "level must be between 0 and 1, got 1.0"),
    ],
)
def test_parameters_out_of_range_are_refused(X, options, message):
    with pytest.raises(ValueError, match=message):
        vsp_curve(total, X, **options)


def test_rows_with_nothing_to_remove_and_things_that_do_not_predict_are_refused(X):
    with pytest.raises(ValueError, match="No row of X has two known values"):
        vsp_curve(total, np.where(np.eye(3) > 0, 1.0, np.nan))
    with pytest.raises(ValueError, match="model must have predict or be a function, got str"):
        vsp_curve("model", X)


def test_the_result_is_repeatable_and_json(X):
    one, other = vsp_curve(total, X, random_state=3), vsp_curve(total, X, random_state=3)
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())
    assert one.to_dict()["drifts"] is True


def test_a_figure_shows_one_or_two_curves(X):
    curve = vsp_curve(total, X, n_draws=2)
    assert "mean prediction" in to_svg(plot_vsp(curve))
    assert "without" in to_svg(plot_vsp({"with": vsp_curve(average, X, n_draws=2), "without": curve}))


def test_a_recommender_is_followed_by_its_mean_prediction_for_a_new_user():
    rng = np.random.default_rng(0)
    table = np.where(rng.random((30, 12)) < 0.5, rng.integers(1, 6, size=(30, 12)), np.nan)
    table[0] = 3.0
    user, item = np.nonzero(~np.isnan(table))
    ratings = pd.DataFrame({"user": user, "item": item, "rating": table[user, item]})
    model = AutoRec("user", n_hidden=5, max_epochs=2, random_state=0).fit(ratings)
    curve = vsp_curve(model, table, n_draws=2, n_levels=4)
    complete = np.mean([model.predict_new(*_given(row)).mean() for row in table])
    assert curve.means[-1] == pytest.approx(complete)
    assert curve.means[0] != curve.means[-1]
    with pytest.raises(ValueError, match="a column for each of the 12 items"):
        vsp_curve(model, table[:, :5])


def _given(row):
    items = np.flatnonzero(~np.isnan(row))
    return items, row[items]
