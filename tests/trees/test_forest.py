"""Boosted trees as arrays: their predictions are those of scikit-learn, and malformed arrays are refused."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from halfseen.trees import forest as forest_module
from halfseen.trees.forest import Forest
from halfseen.trees.growth import Growth

GROWTH = Growth(12, 0.2, 64, 3, n_categories=31, seed=0)
SETTINGS = {
    "max_iter": 12,
    "learning_rate": 0.2,
    "max_leaf_nodes": 64,
    "min_samples_leaf": 3,
    "l2_regularization": 1.0,
    "categorical_features": [1, 4],
    "early_stopping": False,
    "random_state": 0,
}


def table(n_rows=390, seed=0):
    """Numbers with ties and gaps, two categories with gaps in their codes, and missing values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5))
    X[:, 3] = X[:, 3].round()
    X[:, 1], X[:, 4] = rng.integers(0, 4, n_rows) * 2, rng.integers(2, 30, n_rows)
    y = X[:, 0] ** 2 + X[:, 1] % 3 + np.sin(2 * X[:, 4]) + X[:, 3] * X[:, 2]
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


def new_rows():
    """Rows with categories that were not seen, and without any value."""
    X, _ = table(500, seed=1)
    X[:20, 1], X[20:40, 4], X[40] = 3.0, 30.0, np.nan
    return X


@pytest.mark.parametrize("at_once", [5, 256])  # 12 trees in three blocks, or in one
def test_sums_of_leaves_are_the_predictions_of_scikit_learn(at_once, monkeypatch):
    monkeypatch.setattr(forest_module, "TREES_AT_ONCE", at_once)
    X, y = table()
    forest, constant = GROWTH.regress(X, y, [1, 4])
    expected = HistGradientBoostingRegressor(**SETTINGS).fit(X, y).predict(new_rows())
    np.testing.assert_allclose(forest.sums(new_rows())[:, 0] + constant, expected, rtol=0, atol=1e-12)
    assert np.bincount(np.repeat(np.arange(12), np.diff(forest.starts))[forest.feature < 0]).max() > 32
    assert (forest.split >= 0).any()


@pytest.mark.parametrize("edges", [[1.0], [-0.5, 1.0, 2.0]], ids=["two classes", "four classes"])
def test_scores_of_classes_are_those_of_scikit_learn(edges, monkeypatch):
    monkeypatch.setattr(forest_module, "TREES_AT_ONCE", 5)  # blocks that divide the trees of one iteration
    X, y = table()
    classes = np.digitize(y, edges)
    forest, constants = GROWTH.classify(X, classes, [1, 4])
    booster = HistGradientBoostingClassifier(**SETTINGS).fit(X, classes)
    found = constants + forest.sums(new_rows(), len(constants))
    expected = booster.decision_function(new_rows()).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_classes", [None, 2, 4])
def test_no_tree_is_grown_from_so_few_rows_that_none_can_be_split(n_classes):
    """The constants are those of scikit-learn, whose trees of one leaf are zero."""
    X, y = table(39)
    growth = replace(GROWTH, min_samples_leaf=20)
    settings = SETTINGS | {"min_samples_leaf": 20}
    if n_classes is None:
        forest, constants = growth.regress(X, y, [1, 4])
        expected = HistGradientBoostingRegressor(**settings).fit(X, y).predict(X)
    else:
        classes = np.arange(39) ** 2 % 11 % n_classes
        forest, constants = growth.classify(X, classes, [1, 4])
        booster = HistGradientBoostingClassifier(**settings).fit(X, classes)
        expected = booster.decision_function(X)
    assert forest.n_trees == 0
    np.testing.assert_allclose(np.broadcast_to(constants, expected.shape), expected, rtol=0, atol=1e-12)
    assert growth.regress(np.concatenate([X, X[:1]]), np.append(y, 0.0), [])[0].n_trees > 0


def test_trees_joined_taken_apart_and_saved_are_the_same_trees():
    X, y = table()
    one, other = (GROWTH.regress(X, values, [1, 4])[0] for values in (y, -(y**2)))
    joined = Forest.from_state(Forest.joined([one, Forest.empty(), other]).state())
    total = one.sums(X) + other.sums(X)
    np.testing.assert_allclose(joined.sums(X), total, rtol=1e-12)
    np.testing.assert_array_equal(joined.trees(12, 24).sums(X), other.sums(X))
    assert Forest.empty().sums(X).tolist() == [[0.0]] * len(X)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("right", lambda a: np.where(a == a.max(), 1, a), "not in preorder"),
        ("right", lambda a: np.where(a > 0, a + 1, a), "not in preorder"),
        ("feature", lambda a: np.where(np.arange(len(a)) == 0, -1, a), "not in preorder"),
        ("split", lambda a: a + 1000, "no categories"),
        ("starts", lambda a: a + 1, "do not fit together"),
        ("value", lambda a: a[1:], "do not fit together"),
        ("value", lambda a: a.astype(np.float32), "has the type float32"),
    ],
)
def test_arrays_that_are_no_trees_are_refused(name, change, message):
    X, y = table()
    forest, _ = GROWTH.regress(X, y, [1, 4])
    with pytest.raises(ValueError, match=message):
        Forest.from_state(replace(forest, **{name: change(getattr(forest, name))}).state())
