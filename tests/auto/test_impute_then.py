"""Prediction after imputation: the same as an imputer followed by a predictor of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from tolerances import EXACT

from halfseen import (
    AveragingRegressor,
    GaussianImputer,
    ImputeThenClassifier,
    ImputeThenRegressor,
    MeanImputer,
    load,
)
from halfseen.auto.impute_then import choose_inverse_penalty
from halfseen.base.catalogue import IMPUTED, build_named, predictor_names
from halfseen.data.incomplete import Incomplete

TREES = {"max_iter": 15, "learning_rate": 0.2, "max_leaf_nodes": 8, "min_samples_leaf": 5}


def make_rows(n_rows=200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3)) @ rng.normal(size=(3, 3))
    y = X.sum(axis=1) + 0.1 * rng.normal(size=n_rows)
    return np.where(rng.random(X.shape) < 0.2, np.nan, X), y


def standardised(design, by):
    return (design - by.mean(axis=0)) / by.std(axis=0)


def test_column_means_and_indicators_are_those_of_scikit_learn():
    X, y = make_rows()
    X[:, 2] = np.nan_to_num(X[:, 2])  # complete in training: it has no indicator
    model = ImputeThenRegressor(MeanImputer(), predictor="linear", random_state=0).fit(X, y)
    missing = np.isnan(X)
    filled = np.where(missing, np.nanmean(X, axis=0), X)
    design = np.c_[standardised(filled, filled), missing[:, :2]]
    twin = RidgeCV(alphas=np.logspace(-2, 4, 7)).fit(design, y)
    np.testing.assert_allclose(model.predict(X), twin.predict(design), rtol=1e-9)
    without = ImputeThenRegressor(MeanImputer(), predictor="linear", add_indicator=False).fit(X, y)
    twin = RidgeCV(alphas=np.logspace(-2, 4, 7)).fit(design[:, :3], y)
    np.testing.assert_allclose(without.predict(X), twin.predict(design[:, :3]), rtol=1e-9)
    assert np.isfinite(model.predict([[np.nan] * 3])).all()


def test_trees_of_imputed_rows_are_those_of_scikit_learn():
    X, y = make_rows()
    model = ImputeThenRegressor(**TREES, random_state=0).fit(X, y)
    filled = GaussianImputer().fit(X).transform(X)
    settings = {"l2_regularization": 1.0, "early_stopping": False, "random_state": 0}
    twin = HistGradientBoostingRegressor(**TREES, **settings).fit(np.c_[filled, np.isnan(X)], y)
    np.testing.assert_allclose(model.predict(X), twin.predict(np.c_[filled, np.isnan(X)]), rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_multiple_imputation_averages_the_probabilities_of_each_draw(n_classes):
    X, y = make_rows()
    labels = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_classes + 1)[1:-1]))
    model = ImputeThenClassifier(predictor="linear", n_draws=3, add_indicator=False, random_state=0)
    model.fit(X, labels)
    draws = model.imputer_.sample(X, n_draws=3)
    rows = [standardised(one, draws[0]) for one in draws]
    penalty = choose_inverse_penalty(rows[0], labels)
    twins = [LogisticRegression(C=penalty, max_iter=500).fit(one, labels).predict_proba(one) for one in rows]
    np.testing.assert_allclose(model.predict_proba(X), np.mean(twins, axis=0), atol=1e-6)
    assert model.imputer_.n_posterior_draws == 3
    assert model._template(20_001).n_posterior_draws == 0


def test_intervals_cover_new_rows_as_often_as_they_say():
    X, y = make_rows(3000)
    model = ImputeThenRegressor(predictor="linear", random_state=0).fit(X[:1000], y[:1000])
    low, high = model.predict_interval(X[1000:], level=0.8)
    share = np.mean((low <= y[1000:]) & (y[1000:] <= high))
    assert abs(share - 0.8) < 0.12  # 4 standard errors of the shares of 200 held-out and 2,000 new rows


def test_a_saved_model_keeps_its_imputer_and_one_with_other_scores_is_refused(tmp_path):
    X, y = make_rows(80)
    frame = pd.DataFrame(X, columns=list("abc")).assign(s=np.where(y > 0, "u", "v"))
    gaussian = GaussianImputer(ridge=3.0)
    model = ImputeThenClassifier(gaussian, predictor="linear", random_state=0).fit(frame, X[:, 0] > 0)
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert repr(loaded.imputer) == repr(gaussian)
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    model._models[0] = model._models[0].__class__(np.zeros((8, 4)), np.zeros(4))
    model.save(tmp_path / "bad")
    with pytest.raises(ValueError, match=r"slopes of the shape \(8, 4\) do not fit 7 features"):
        load(tmp_path / "bad")


def test_parameters_that_change_after_fit_change_neither_predictions_nor_the_saved_model(tmp_path):
    X, y = make_rows(80)
    model = ImputeThenRegressor(predictor="linear", n_draws=2, random_state=0).fit(X, y)
    before = model.predict(X)
    model.set_params(n_draws=3, predictor="boosting", add_indicator=False, imputer=MeanImputer())
    np.testing.assert_array_equal(model.predict(X), before)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X), before)


def test_a_rare_class_and_huge_targets_are_predicted():
    X, y = make_rows(60)
    rare = np.where(np.arange(60) == 0, "rare", "common")
    model = ImputeThenClassifier(predictor="linear", random_state=0).fit(X, rare)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=EXACT)
    plain = ImputeThenRegressor(predictor="linear", random_state=0).fit(X, y).predict(X)
    huge = ImputeThenRegressor(predictor="linear", random_state=0).fit(X, 1e200 * y).predict(X)
    np.testing.assert_allclose(huge, 1e200 * plain, rtol=1e-9)


def test_averages_take_imputation_and_prediction_by_name():
    X, y = make_rows(120)
    names = [name for name in IMPUTED if name.endswith("linear")]
    model = AveragingRegressor(names, n_splits=2, random_state=0).fit(X, y)
    assert set(model.weights_) <= set(names)
    assert {type(one) for one in model.members_} == {ImputeThenRegressor}
    assert set(IMPUTED) < set(predictor_names("classifier"))
    assert repr(build_named("multiple+boosting", "regressor")) == "ImputeThenRegressor(n_draws=5)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"predictor": "forest"}, "predictor must be one of boosting, linear, got 'forest'"),
        ({"n_draws": -1}, "n_draws must be at least 0, got -1"),
        ({"max_leaf_nodes": 65}, "max_leaf_nodes must be at most 64, got 65"),
        ({"imputer": "mean"}, "imputer must be an imputer of tables, got 'mean'"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ImputeThenRegressor(**settings).fit([[1.0], [2.0]], [1.0, 2.0])


def test_the_number_of_iterations_is_that_of_the_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    classes = np.repeat(["a", "b", "c"], 30)
    assert ImputeThenRegressor(**TREES).fit(X, X[:, 0]).n_iter_ == TREES["max_iter"]
    assert ImputeThenClassifier(**TREES).fit(X, classes).n_iter_ == TREES["max_iter"]
    assert ImputeThenRegressor(predictor="linear").fit(X, X[:, 0]).n_iter_ == 1
    assert not hasattr(ImputeThenRegressor(), "n_iter_")


@pytest.mark.parametrize("predictor", ["linear", "boosting"])
def test_equal_rows_have_equal_predictions_in_any_batch_and_order(predictor):
    X, y = make_rows()
    X[20:40] = X[0] = [0.5, np.nan, np.nan]
    model = ImputeThenClassifier(predictor=predictor, n_draws=5, random_state=0, **TREES).fit(X, y > 0)
    together = model.predict_proba(X)
    np.testing.assert_allclose(together[20:40], np.broadcast_to(together[0], (20, 2)), rtol=EXACT)
    np.testing.assert_allclose(model.predict_proba(X[[0]]), together[[0]], rtol=EXACT)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(model.predict_proba(X[order]), together[order], rtol=EXACT)
    np.testing.assert_array_equal(model.predict(X[order]), model.predict(X)[order])


def test_equal_training_rows_have_draws_of_their_own():
    X = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 2.5], [1.0, np.nan], [1.0, np.nan]] * 10)
    model = ImputeThenRegressor(predictor="linear", n_draws=2, random_state=0).fit(X, X[:, 0])
    codes, target = Incomplete.from_array(X), torch.from_numpy(X[:, 0])
    rows, _ = model._complete(codes, target, torch.ones(len(X)))
    drawn = rows.rows.designs[0][np.isnan(X[:, 1]), 1]
    assert len(set(drawn)) == len(drawn)
