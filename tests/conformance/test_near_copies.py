"""A law of every imputer: near-copies are drawn with the spread of their residual, as narrow as it may be."""

import warnings

import numpy as np
import pytest

RESIDUALS = {"x1": 0.0447, "x3": 1e-4}  # in standard deviations: correlations of .999 and .999999995


def make_table(rng):
    """Returns numbers, and the values about which those of the second and the fourth column vary."""
    latent = rng.normal(size=(400, 2))
    first, skewed = latent[:, 0], np.exp(latent[:, 0] / 2 + latent[:, 1])
    known = np.stack([3 * first + 10, -skewed], axis=1)
    spread = known.std(axis=0) * list(RESIDUALS.values())
    copies = known + spread * rng.normal(size=known.shape)
    rating = np.clip(np.round(3 + first + rng.normal(size=400)), 1, 5)
    X = np.column_stack([first, copies[:, 0], skewed, copies[:, 1], rating])
    hidden = rng.random(X.shape) < [0.05, 0.25, 0, 0.25, 0.05]
    return np.where(hidden, np.nan, X), known, spread


def test_near_copies_are_drawn_with_the_spread_of_their_residual(row):
    if not row.make().capabilities.relates_near_copies:
        pytest.skip("columns are independent by definition")
    X, known, spread = make_table(np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that columns are near-copies, or values far from the observed ones
        imputer = row.make(random_state=0).fit(X)
        draws, filled = imputer.sample(X, n_draws=4), imputer.transform(X)
        ends = imputer.interval(X, level=0.9)
    for copy, column, source in ((0, 1, 0), (1, 3, 2)):
        rows = np.isnan(X[:, column]) & ~np.isnan(X[:, source])
        error = (draws[:, rows, column] - known[rows, copy]) / spread[copy]
        assert 0.5 < error.std() < 2
        assert np.sqrt(np.mean(((filled[rows, column] - known[rows, copy]) / spread[copy]) ** 2)) < 1.5
        width = (ends[1] - ends[0])[rows, column] / spread[copy] / (2 * 1.645)
        assert 0.5 < np.median(width) < 2
