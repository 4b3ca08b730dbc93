"""The experiment on autoencoders of ratings: its splits, its baseline, and the drift that it measures."""

import numpy as np
import pytest

from halfseen.ratings import AutoRec
from papers.sparsity.ratings import (
    EXPERIMENT,
    OFFSETS,
    SHARES,
    drift_scores,
    make_task,
    measure_drift,
    score,
)


@pytest.fixture(scope="module")
def task(shared_data):
    return make_task({"data": "ML-100K", "rows": "user"}, 0)


def test_a_split_has_every_rating_once(task):
    assert (len(task.train), len(task.test)) == (90_000, 10_000)
    pairs = {*zip(task.train["user"], task.train["item"], strict=True)}
    assert len(pairs) == 90_000
    assert not pairs & {*zip(task.test["user"], task.test["item"], strict=True)}


def test_users_with_few_ratings_give_higher_ones(task):
    """So the mean over users who count alike is not that over ratings, as the experiment says."""
    assert task.train["rating"].mean() == pytest.approx(3.53, abs=0.005)
    assert task.train.groupby("user")["rating"].mean().mean() == pytest.approx(3.59, abs=0.005)


def test_the_constants_of_the_normalisation_are_the_documented_mean_counts(task):
    """Rows without ratings do not count: of 1,682 items 11 to 23 have none in the training part."""
    models = [AutoRec(rows, n_hidden=2, max_epochs=0, validation_fraction=0.0) for rows in ("user", "item")]
    users, items = (float(model.fit(task.train).module_.mean_count) for model in models)
    assert users == pytest.approx(95.44, abs=0.005)
    assert 53.9 <= items <= 54.3


def test_the_baseline_has_the_error_that_is_known_of_it(task):
    assert score(EXPERIMENT.models[OFFSETS](), task)["RMSE"] == pytest.approx(0.923, abs=0.002)


def test_the_drift_of_an_untrained_network_shrinks_by_the_normalisation(task):
    """The effect is there before any training: hidden units grow with the number of ratings."""
    few = task.train[task.train["user"] <= 200]
    slopes = []
    for normalised in (False, True):
        model = AutoRec("user", sparsity_norm=normalised, centre=False, max_epochs=0, random_state=0).fit(few)
        model.module_.encoder.mul_(0.1).add_(0.001)  # where the sigmoid is nearly linear
        model.module_.decoder += 0.01
        means, weights = measure_drift(model, 0)
        slopes.append(drift_scores(means, weights, 0)["absolute slope"])
    assert slopes[1] < slopes[0] / 3


def test_rows_count_by_their_ratings_in_the_drift():
    """Of two rows with opposite slopes the one with three times the ratings has half the sum of both."""
    means = np.stack([SHARES.numpy(), -SHARES.numpy()])
    found = drift_scores(means, np.array([3.0, 1.0]), 0)
    assert found["slope"] == pytest.approx(0.5)
    assert found["slope, rows alike"] == pytest.approx(0.0, abs=1e-12)
    assert found["slope, lower end"] == pytest.approx(-1.0)  # of bootstrap samples with the second row alone
    assert found["slope, upper end"] == pytest.approx(1.0)
