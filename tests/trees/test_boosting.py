"""Boosted trees on incomplete tables: the trees of scikit-learn, and what is told of missing values."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit, softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from tolerances import EXACT

from halfseen import BoostingClassifier, BoostingRegressor, load
from halfseen.trees import boosting

SETTINGS = {
    "max_iter": 20, "learning_rate": 0.2, "max_leaf_nodes": 8, "min_samples_leaf": 5, "max_features": 1.0
}  # fmt: skip


def make_rows(n_rows=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    y = X[:, 0] + (X[:, 1] > 0) + 0.1 * rng.normal(size=n_rows)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


def rival(kind):
    return kind(**SETTINGS, l2_regularization=1.0, early_stopping=False, random_state=0)


def test_the_predictions_are_those_of_the_trees_of_scikit_learn():
    X, y = make_rows(90)  # too few for early stopping
    ours = BoostingRegressor(**SETTINGS, random_state=0).fit(X, y)
    theirs = rival(HistGradientBoostingRegressor).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=EXACT)
    assert ours.n_iter_ == theirs.n_iter_


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_probabilities_are_those_of_the_trees_of_scikit_learn(n_classes):
    X, y = make_rows(90)
    labels = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_classes + 1)[1:-1]))
    ours = BoostingClassifier(**SETTINGS, random_state=0).fit(X, labels)
    theirs = rival(HistGradientBoostingClassifier).fit(X, labels)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=EXACT)


def test_forests_whose_splits_draw_columns_are_averaged_without_early_stopping():
    X, y = make_rows(90)
    seeds = [0, *(int(np.random.default_rng([0, place]).integers(2**31)) for place in range(1, 5))]
    settings = SETTINGS | {"max_features": 0.5}
    kind = HistGradientBoostingRegressor
    theirs = [
        kind(**settings, l2_regularization=1.0, early_stopping=False, random_state=seed).fit(X, y).predict(X)
        for seed in seeds
    ]
    assert np.abs(theirs[0] - theirs[1]).max() > 0.01  # they draw different columns
    ours = BoostingRegressor(**settings, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), np.mean(theirs, axis=0), rtol=EXACT)


@pytest.mark.parametrize("n_classes", [0, 2])
def test_forests_of_small_tables_have_the_number_of_trees_that_is_best_for_all_held_out_rows(n_classes):
    X, y = make_rows(200)
    y = (y > 0).astype(int) if n_classes else y
    seeds = [0, *(int(np.random.default_rng([0, place]).integers(2**31)) for place in range(1, 5))]
    settings = SETTINGS | {"max_iter": 40, "max_features": 0.5, "l2_regularization": 1.0}
    settings |= {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 40, "tol": 0.0}
    kind = HistGradientBoostingClassifier if n_classes else HistGradientBoostingRegressor
    theirs = [kind(**settings, random_state=seed).fit(X, y) for seed in seeds]
    n_trees = int(np.mean([one.validation_score_ for one in theirs], axis=0).argmax())
    assert 1 < n_trees < 40
    ours = (BoostingClassifier if n_classes else BoostingRegressor)(
        **SETTINGS | {"max_iter": 40, "max_features": 0.5}, random_state=0
    ).fit(X, y)
    assert ours.n_iter_ == 5 * n_trees
    steps = "staged_decision_function" if n_classes else "staged_predict"
    scores = np.mean([list(getattr(one, steps)(X))[n_trees - 1] for one in theirs], axis=0).ravel()
    found = logit(ours.predict_proba(X)[:, 1]) if n_classes else ours.predict(X)
    np.testing.assert_allclose(found, scores, rtol=1e-6)


@pytest.mark.parametrize("n_classes", [0, 3])
def test_with_early_stopping_the_mean_of_several_forests_of_scikit_learn_predicts(n_classes, monkeypatch):
    monkeypatch.setattr(boosting, "N_FORESTS", 3)
    X, y = make_rows(600)
    settings = SETTINGS | {"max_iter": 80}
    seeds = [0, *(int(np.random.default_rng([0, place]).integers(2**31)) for place in (1, 2))]
    kind, y = (HistGradientBoostingClassifier, np.digitize(y, [0, 1])) if n_classes else (
        HistGradientBoostingRegressor, y
    )  # fmt: skip
    theirs = [
        kind(**settings, l2_regularization=1.0, early_stopping=True, n_iter_no_change=15, random_state=seed)
        for seed in seeds
    ]
    theirs = [one.fit(X, y) for one in theirs]
    assert len({one.n_iter_ for one in theirs}) > 1  # they hold out different rows
    ours = (BoostingClassifier if n_classes else BoostingRegressor)(**settings, random_state=0).fit(X, y)
    assert ours.n_iter_ == sum(one.n_iter_ for one in theirs)
    if n_classes:
        scores = np.mean([one.decision_function(X) for one in theirs], axis=0)
        np.testing.assert_allclose(ours.predict_proba(X), softmax(scores, axis=1), rtol=EXACT)
    else:
        expected = np.mean([one.predict(X) for one in theirs], axis=0)
        np.testing.assert_allclose(ours.predict(X), expected, rtol=EXACT)


def test_large_tables_have_one_forest(monkeypatch):
    X, y = make_rows(600)
    several = BoostingRegressor(**SETTINGS, random_state=0).fit(X, y)
    monkeypatch.setattr(boosting, "MANY_ROWS", 599)
    one = BoostingRegressor(**SETTINGS, random_state=0).fit(X, y)
    assert one.n_iter_ <= SETTINGS["max_iter"] < several.n_iter_


def test_a_class_with_one_row_or_more_classes_than_held_out_rows_leave_no_early_stopping():
    X, _ = make_rows(600)
    rare = np.where(np.arange(600) == 7, 2, np.arange(600) % 2)
    model = BoostingClassifier(**SETTINGS, random_state=0).fit(X, rare)
    assert model.n_iter_ == SETTINGS["max_iter"]
    many = BoostingClassifier(**SETTINGS | {"max_iter": 2}, random_state=0).fit(X, np.arange(600) % 70)
    assert many.predict_proba(X[:1]).shape == (1, 70)


def test_levels_are_split_in_any_order_and_an_unknown_level_counts_as_missing():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"s": rng.choice(list("abcd"), 400), "x": rng.normal(size=400)})
    y = frame["s"].isin(["a", "c"]) * 2.0
    model = BoostingRegressor(**SETTINGS | {"max_iter": 60}, random_state=0).fit(frame, y)
    new = pd.DataFrame({"s": ["a", "b", "c", "d", "zz", None], "x": [0.0] * 6})
    predicted = model.predict(new)
    np.testing.assert_allclose(predicted[:4], [2, 0, 2, 0], atol=0.1)
    assert predicted[4] == predicted[5]


def test_intervals_cover_new_rows_as_often_as_they_say():
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(4000, 2))
    y = X[:, 0] + rng.normal(size=4000)
    model = BoostingRegressor(max_iter=30, random_state=0).fit(X[:2000], y[:2000])
    low, high = model.predict_interval(X[2000:], level=0.8)
    share = np.mean((low <= y[2000:]) & (y[2000:] <= high))
    assert abs(share - 0.8) < 0.05  # standard error .013 with the 400 held-out rows


def test_a_saved_model_predicts_the_same_and_a_model_with_other_trees_is_refused(tmp_path):
    X, y = make_rows()
    model = BoostingClassifier(**SETTINGS, random_state=0).fit(X, y > 0)
    model.save(tmp_path / "m")
    assert (load(tmp_path / "m").predict_proba(X) == model.predict_proba(X)).all()
    model._constants = np.zeros(4)
    model.save(tmp_path / "bad")
    with pytest.raises(ValueError, match="4 scores do not fit 2 classes"):
        load(tmp_path / "bad")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
        ({"max_leaf_nodes": 65}, "max_leaf_nodes must be at most 64, got 65"),
        ({"max_features": 0}, "max_features must be positive and at most 1, got 0"),
        ({"learning_rate": -1}, "learning_rate must be positive and finite"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BoostingRegressor(**settings).fit([[1.0], [2.0]], [1.0, 2.0])
