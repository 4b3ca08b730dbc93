"""The downstream score: what a predictor makes of a completed table, with and without indicators."""

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold

from halfseen import GaussianImputer
from halfseen.evaluation.scores import downstream_score


def test_it_equals_a_cross_validation_by_hand():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = X @ [1.0, -1.0, 2.0] + rng.normal(size=90)
    X[rng.random(X.shape) < 0.2] = np.nan
    scored = downstream_score(LinearRegression(), SimpleImputer(), X, y, n_splits=3, random_state=0)
    for found, add_indicator in ((scored.without, False), (scored.with_indicators, True)):
        by_hand = []
        for train, test in KFold(3, shuffle=True, random_state=0).split(X):
            imputer = SimpleImputer(add_indicator=add_indicator).fit(X[train])
            model = LinearRegression().fit(imputer.transform(X[train]), y[train])
            by_hand.append(model.score(imputer.transform(X[test]), y[test]))
        np.testing.assert_allclose(found, by_hand)


def test_indicators_help_when_missingness_is_informative():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    missing = rng.random(500) < 0.4
    y = X[:, 1] + 3.0 * missing
    X[missing, 0] = np.nan
    scored = downstream_score(LinearRegression(), GaussianImputer(), X, y)
    assert scored.gain > 0.5
    assert scored.with_indicators.mean() > 0.99


def test_mixed_frames_and_classifiers_work():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 200)
    frame = pd.DataFrame({"x": rng.normal(size=200) + kind, "s": np.array(["a", "b", "c"])[kind]})
    frame.loc[rng.random(200) < 0.2, "s"] = None
    scored = downstream_score(LogisticRegression(), GaussianImputer(), frame, kind == 2, scoring="roc_auc")
    assert scored.without.shape == (5,)
    assert scored.without.mean() > 0.9


def test_a_target_of_another_length_is_refused():
    with pytest.raises(ValueError, match="X has 3 rows, y has 2"):
        downstream_score(LinearRegression(), SimpleImputer(), [[1.0], [2.0], [4.0]], [1.0, 2.0])
