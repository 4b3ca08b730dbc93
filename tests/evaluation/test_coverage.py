"""Intervals keep their promise on data for which the model is right."""

import numpy as np
import pytest

import halfseen


def gaussian_table(seed, n_rows=500, n_features=6):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(n_features, n_features))
    complete = rng.normal(size=(n_rows, n_features)) @ mixing + rng.normal(size=n_features)
    return complete, np.where(rng.random(complete.shape) < 0.3, np.nan, complete)


@pytest.mark.parametrize("n_posterior_draws", [0, pytest.param(10, marks=pytest.mark.slow)])
def test_ninety_percent_intervals_cover_ninety_percent(n_posterior_draws):
    """20 tables pooled, 18,000 cells: the standard error is below 0.4%, so 88 to 92% is five of them away."""
    inside = []
    for seed in range(20):
        complete, holey = gaussian_table(seed)
        imputer = halfseen.GaussianImputer(n_posterior_draws=n_posterior_draws, random_state=seed).fit(holey)
        low, high = imputer.interval(holey, level=0.9)
        hidden = np.isnan(holey)
        inside.append(((low <= complete) & (complete <= high))[hidden])
    assert 0.88 <= np.concatenate(inside).mean() <= 0.92


def test_new_rows_are_covered_too():
    complete, _ = gaussian_table(0, n_rows=3000)
    rng = np.random.default_rng(1)
    hidden = rng.random(complete.shape) < 0.5
    holey = np.where(hidden, np.nan, complete)
    low, high = halfseen.GaussianImputer(random_state=0).fit(holey[:1500]).interval(holey[1500:], level=0.9)
    inside = ((low <= complete[1500:]) & (complete[1500:] <= high))[hidden[1500:]]
    assert 0.88 <= inside.mean() <= 0.92
