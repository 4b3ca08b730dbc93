"""Weights of classes: decisions follow them, probabilities do not."""

import numpy as np
import pytest
import torch
from conformance.registry import CLASSIFIERS

import halfseen
from halfseen.base.targets import read_class_weights
from halfseen.testing.tables import fit_quietly

ROWS = [row for row in CLASSIFIERS if type(row.make()).__name__ != "SparsityNormClassifier"]
"""`SparsityNormClassifier` is also trained with the weights, and has a test of its own."""


def labelled(n_rows=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    y = np.array(["common", "rare", "seldom"])[np.digitize(X[:, 0] + rng.normal(size=n_rows), [0.8, 1.6])]
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


@pytest.mark.laws_only
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_decisions_follow_the_weights_of_classes_and_probabilities_do_not(row):
    X, y = labelled()
    weights = {"common": 1.0, "rare": 5.0, "seldom": 2.0}
    plain = fit_quietly(row.make(random_state=0), X, y)
    weighted = fit_quietly(row.make(random_state=0).set_params(class_weight=weights), X, y)
    probabilities = weighted.predict_proba(X)
    np.testing.assert_array_equal(probabilities, plain.predict_proba(X))
    scores = probabilities * list(weights.values())
    np.testing.assert_array_equal(weighted.predict(X), weighted.classes_[scores.argmax(axis=1)])
    assert (weighted.predict(X) != plain.predict(X)).any()


@pytest.mark.laws_only
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_weights_of_classes_are_saved(row, tmp_path):
    X, y = labelled()
    fitted = fit_quietly(row.make(random_state=0).set_params(class_weight="balanced"), X, y)
    fitted.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


def test_balanced_weights_count_rows_by_their_weights():
    classes, codes = np.array(["a", "b"]), torch.tensor([0, 0, 0, 1, -1])
    found = read_class_weights("balanced", classes, codes, torch.tensor([1.0, 1.0, 2.0, 1.0, 9.0]))
    np.testing.assert_allclose(found, [5 / 8, 5 / 2])
    np.testing.assert_allclose(read_class_weights("balanced", classes, codes), [4 / 6, 4 / 2])
    with pytest.raises(ValueError, match="class_weight must hold positive numbers"):
        read_class_weights({"a": 0.0, "b": 1.0}, classes, codes)
