"""NeuMiss networks trained end to end: what they learn, what they read, what they refuse."""

import numpy as np
import pytest
import torch

from halfseen.neumiss import (
    NeuMissBlock,
    NeuMissLayers,
    NeuMissNetwork,
    NeuMissNetworkClassifier,
    NeuMissNetworkRegressor,
    NeuMissPredictor,
)
from halfseen.nn import Incomplete
from papers.problems import GaussianProblem


@pytest.fixture(scope="module")
def sample():
    return GaussianProblem.draw(4, "mcar", rate=0.3, random_state=0).sample(3000, 0)


@pytest.mark.parametrize(
    "choices",
    [
        {"shared_weights": False, "residual": True},
        *(pytest.param(one, marks=pytest.mark.slow) for one in ({}, {"width": 0}, {"shared_weights": False})),
    ],
    ids=str,
)
def test_every_architecture_comes_close_to_the_bayes_rate(sample, choices):
    problem = GaussianProblem.draw(4, "mcar", rate=0.3, random_state=0)
    train, test = sample.take(slice(2000)), sample.take(slice(2000, None))
    model = NeuMissNetworkRegressor(random_state=0, max_epochs=40, **choices)
    found = model.fit(train.incomplete, train.y).score(test.incomplete, test.y)
    bayes = problem.predict_bayes(test.incomplete)
    assert found > 1 - np.mean((bayes - test.y) ** 2) / np.var(test.y) - 0.08


def test_intervals_cover_about_as_many_targets_as_they_say(sample):
    """Of 1,000 new rows; four standard errors of both samples, and the loss from choosing the epoch."""
    train, test = sample.take(slice(2000)), sample.take(slice(2000, None))
    model = NeuMissNetworkRegressor(random_state=0, max_epochs=30).fit(train.incomplete, train.y)
    low, high = model.predict_interval(test.incomplete, 0.8)
    covered = ((low <= test.y) & (test.y <= high)).mean()
    assert abs(covered - 0.8) < 4.4 * np.sqrt(0.16 * (1 / 400 + 1 / 1000)) + 0.02
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got 1\.0"):
        model.predict_interval(test.incomplete, 1.0)


def test_a_linear_head_on_shared_weights_is_the_published_block(generator):
    module = NeuMissPredictor(3, 2, depth=4).double()
    module.reset_parameters(generator)
    block = NeuMissBlock(3, 4).double()
    block.load_state_dict(module.body.state_dict())
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.rand(20, 3, generator=generator) < 0.6)
    expected = block(batch) @ module.head.output.weight.T + module.head.output.bias
    torch.testing.assert_close(module(batch), expected)


def test_a_linear_head_on_separate_weights_is_the_published_network(generator):
    network = NeuMissNetwork(3, 2, residual=True).double()
    network.reset_parameters(generator)
    layers = NeuMissLayers(3, 2, residual=True).double()
    shared = {k: v for k, v in network.state_dict().items() if k not in ("coef", "intercept")}
    layers.load_state_dict(shared)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    batch = Incomplete(x, torch.rand(20, 3, generator=generator) < 0.6)
    torch.testing.assert_close(network(batch), layers(batch) @ network.coef + network.intercept)


def test_classes_of_any_type_are_learned(sample):
    y = np.where(sample.y > np.median(sample.y), "high", "low")
    model = NeuMissNetworkClassifier(random_state=0, max_epochs=20).fit(sample.incomplete, y)
    assert model.classes_.tolist() == ["high", "low"]
    assert model.score(sample.incomplete, y) > 0.8
    probabilities = model.predict_proba(sample.incomplete)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(probabilities), model.predict_log_proba(sample.incomplete))


def test_columns_that_do_not_vary_are_refused():
    message = r"needs a column that varies: .* \(n_samples=60\)"
    with pytest.raises(ValueError, match=message):
        NeuMissNetworkRegressor().fit(np.ones((60, 2)), np.arange(60.0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": -1}, "depth must be at least 0, got -1"),
        ({"batch_size": 0}, "batch_size must be 'auto' or at least 1, got 0"),
        ({"weight_decay": -1.0}, "weight_decay must be a number of at least 0, got -1.0"),
    ],
)
def test_parameters_out_of_range_are_refused(sample, parameters, message):
    with pytest.raises(ValueError, match=message):
        NeuMissNetworkRegressor(**parameters).fit(sample.incomplete, sample.y)
