"""Averages of predictors: their weights, and that they are averages of their members."""

import numpy as np
import pandas as pd
import pytest
from tolerances import EXACT

from halfseen import AveragingClassifier, AveragingRegressor, BoostingRegressor, load
from halfseen.auto.mixing_weights import weigh_classes, weigh_numbers
from halfseen.data.schema import code_settings

TREES = {"max_iter": 10, "min_samples_leaf": 5, "max_leaf_nodes": 6}


def make_table(n_rows=120):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "s": rng.choice(["u", "v", "w"], n_rows)})
    y = 2 * x[:, 0] + (x[:, 1] > 0) + (frame["s"] == "u") + 0.1 * rng.normal(size=n_rows)
    return frame.mask(rng.random(frame.shape) < 0.15), y.to_numpy()


def test_shares_of_rows_are_repeated_rows():
    rng = np.random.default_rng(1)
    errors, counts = rng.normal(size=(3, 200)), rng.integers(0, 4, size=200)
    shares = counts / counts.sum()
    expected = weigh_numbers(errors.repeat(counts, axis=1))
    np.testing.assert_allclose(weigh_numbers(errors, shares), expected, atol=1e-6)
    likelihood = rng.uniform(0.05, 1.0, size=(3, 200))
    expected = weigh_classes(likelihood.repeat(counts, axis=1))
    np.testing.assert_allclose(weigh_classes(likelihood, shares), expected, atol=1e-4)


def test_weights_of_rows_reach_the_weights_of_members_and_the_intervals():
    X, y = make_table(200)
    odd = np.arange(200) % 2 == 1
    noisy = np.where(odd, y + 20 * np.random.default_rng(2).normal(size=200), y)
    model = AveragingRegressor({"gaussian": {}, "boosting": TREES}, n_splits=2, random_state=0)
    widths = []
    for weight in (np.ones(200), np.where(odd, 1e-3, 1.0)):
        low, high = model.fit(X, noisy, sample_weight=weight).predict_interval(X)
        widths.append(np.mean(high - low))
    assert widths[1] < 0.2 * widths[0]


def test_the_weights_of_two_numbers_are_those_of_the_closed_form():
    rng = np.random.default_rng(1)
    first, second = errors = rng.normal(size=(2, 500)) * [[1.0], [1.3]]
    share = (second @ second - first @ second) / ((first - second) @ (first - second))
    for scale in (1.0, 1e-150, 1e200):
        np.testing.assert_allclose(weigh_numbers(scale * errors), [share, 1 - share], atol=1e-4)
    np.testing.assert_allclose(weigh_numbers(np.stack([first, 3 * first])), [1, 0], atol=EXACT)
    np.testing.assert_allclose(weigh_numbers(np.zeros((2, 5))).sum(), 1)


def test_the_weights_of_probabilities_have_the_lowest_log_loss_of_a_grid():
    likelihood = np.random.default_rng(2).beta(4, 2, size=(3, 400))
    found = weigh_classes(likelihood)
    grid = [(i / 50, j / 50, 1 - (i + j) / 50) for i in range(51) for j in range(51 - i)]
    losses = [-np.log(np.array(w) @ likelihood).mean() for w in grid]
    assert -np.log(found @ likelihood).mean() <= min(losses) + 1e-6
    np.testing.assert_allclose(found, grid[int(np.argmin(losses))], atol=0.03)


def test_the_prediction_is_the_average_of_the_members_with_a_weight():
    X, y = make_table()
    model = AveragingRegressor({"gaussian": {}, "boosting": TREES}, n_splits=3, random_state=0).fit(X, y)
    assert list(model.weights_) == ["boosting", "gaussian"]
    assert sum(model.weights_.values()) == pytest.approx(1)
    codes = X.assign(s=X["s"].map({"u": 0.0, "v": 1.0, "w": 2.0})).to_numpy()
    parts = [member.predict(codes) for member in model.members_]
    weights = np.array([*model.weights_.values()])
    np.testing.assert_allclose(model.predict(X), weights @ parts, rtol=EXACT)
    low, high = model.predict_interval(X, level=0.8)
    ends = np.einsum("m,men->en", weights, [one.predict_interval(codes) for one in model.members_])
    below, above = np.maximum(np.abs(ends - model.predict(X)), 0.05 * (ends[1] - ends[0]))
    np.testing.assert_allclose((model.predict(X) - low) / below, (high - model.predict(X)) / above)
    assert np.ptp((high - model.predict(X)) / above) < 1e-9  # one factor for all rows
    lacking = model.predict(X.assign(a=np.nan))
    assert np.isfinite(lacking).all()


def test_given_weights_are_used_and_members_without_one_are_not_fitted(tmp_path):
    X, y = make_table(60)
    predictors = {"gaussian": {}, "boosting": TREES}
    model = AveragingRegressor(predictors, weights={"boosting": 3}, random_state=0).fit(X, y)
    assert model.weights_ == {"boosting": 1.0}
    alone = BoostingRegressor(
        **TREES, schema=code_settings(list(model.schema_)), random_state=model.members_[0].random_state
    )
    codes = X.assign(s=X["s"].map({"u": 0.0, "v": 1.0, "w": 2.0})).to_numpy()
    np.testing.assert_array_equal(model.predict(X), alone.fit(codes, y).predict(codes))
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").weights_ == model.weights_


def test_members_may_have_infinite_bounds(tmp_path):
    X, y = make_table(60)
    neumiss = {"head": "linear"}
    model = AveragingRegressor({"neumiss": neumiss, "boosting": TREES}, weights={"neumiss": 1}).fit(X, y)
    assert not model._tensors()["0/bounds"].isfinite().all()
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X), model.predict(X))


def test_the_weights_of_few_rows_or_of_a_class_that_is_in_one_fold_only_are_equal():
    X, y = make_table()
    few = AveragingRegressor({"gaussian": {}, "boosting": TREES}, random_state=0).fit(X[:49], y[:49])
    assert few.weights_ == {"boosting": 0.5, "gaussian": 0.5}
    rare = np.where(np.arange(len(X)) == 0, "rare", "common")
    tiny = {"boosting": TREES, "sparsity-norm": {"width": 4, "max_epochs": 1}}
    model = AveragingClassifier(tiny, n_splits=2, random_state=0).fit(X, rare)
    assert model.weights_ == {"boosting": 0.5, "sparsity-norm": 0.5}
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"predictors": []}, r"predictors must be a list of different names, .* got \[\]"),
        ({"predictors": ["gaussian", "gaussian"]}, "predictors must be a list of different names"),
        ({"predictors": ["forest"]}, "predictors has 'forest'; choose from gaussian, neumiss"),
        ({"predictors": ["average"]}, "predictors has 'average'; choose from"),
        ({"predictors": {"gaussian": 3}}, "The parameters of 'gaussian' must be a dict, got 3"),
        ({"weights": {"forest": 1}}, "weights has 'forest', which is not among the predictors"),
        ({"weights": {"boosting": -1}}, r"weights\['boosting'\] must be at least 0 and finite, got -1"),
        ({"weights": {"boosting": 0}}, "One of the weights must be positive"),
        ({"weights": [1, 2]}, r"weights must be a dict of numbers by name, got \[1, 2\]"),
        ({"n_splits": 1}, "n_splits must be at least 2, got 1"),
    ],
)
def test_wrong_parameters_are_refused_by_name(settings, message):
    X, y = make_table(60)
    with pytest.raises(ValueError, match=message):
        AveragingRegressor(**settings).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, {"gaussian": 1, "boosting": 2}])
def test_intervals_have_the_stated_coverage(weights):
    """The factors come from 1,000 or 200 rows: differences are at most 4.3 standard errors of both shares."""
    X, y = make_table(4000)
    model = AveragingRegressor(["gaussian", "boosting"], weights=weights, random_state=0)
    model.fit(X[:1000], y[:1000])
    for level in (0.5, 0.8, 0.9):
        low, high = model.predict_interval(X[1000:], level=level)
        covered = ((low <= y[1000:]) & (y[1000:] <= high)).mean()
        assert abs(covered - level) < (0.08 if weights is None else 0.16)
