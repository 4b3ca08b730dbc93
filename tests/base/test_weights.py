"""A weight of 2 equals a row that occurs twice, in every imputer."""

import numpy as np
import pytest
from conformance.registry import IMPUTERS

from halfseen import GaussianImputer, MeanImputer

ROWS = [
    pytest.param(row, marks=[pytest.mark.slow] if row.name != "gaussian" else [], id=row.name)
    for row in IMPUTERS
    if not row.slow
]


def incomplete(n_rows=60):
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal([0, 3, 0], [[1, 0.7, 0.2], [0.7, 1, 0], [0.2, 0, 1]], size=n_rows)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.parametrize("row", ROWS)
def test_weights_equal_repeated_rows(row):
    X = incomplete()
    weights = np.random.default_rng(1).integers(0, 3, size=len(X))
    weights[:2] = 1
    weighted = row.make(random_state=0).fit(X, sample_weight=weights.astype(float))
    repeated = row.make(random_state=0).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_array_equal(weighted.transform(X), repeated.transform(X))
    np.testing.assert_array_equal(weighted.sample(X, 2), repeated.sample(X, 2))


def test_weights_of_one_change_nothing_and_other_weights_do():
    X = incomplete()
    plain = GaussianImputer(random_state=0).fit_transform(X)
    np.testing.assert_array_equal(GaussianImputer().fit_transform(X, sample_weight=np.ones(60)), plain)
    assert not np.allclose(GaussianImputer().fit_transform(X, sample_weight=np.arange(60) % 3), plain)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(60, 0.5), "whole numbers, the numbers of times that rows count, got 0.5 in row 0"),
        (np.zeros(60), "zero"),
        (-np.ones(60), "Negative values"),
        (np.ones(3), "sample_weight"),
        (np.full(60, np.nan), "NaN"),
        (np.full(60, 2**62), r"adds up to 2.76\d*e\+20 rows, which is how often rows are repeated"),
        (np.full(60, 1e308), "adds up to inf rows"),
    ],
)
def test_other_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        MeanImputer().fit(incomplete(), sample_weight=weights)
