"""GaussianRegressor against least squares, the textbook conditional, and its own promises."""

import itertools

import numpy as np
import pandas as pd
import pytest
from conformance.tables import PENGUINS
from scipy import stats
from sklearn.linear_model import LinearRegression
from tolerances import EXACT, FAILURE_RATE

import halfseen
from halfseen import GaussianRegressor
from halfseen.testing.tables import hide, names

PATTERNS = [np.array(seen) for seen in itertools.product([False, True], repeat=3)]


def complete_data(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3)) @ rng.normal(size=(3, 3)) * [1.0, 100.0, 0.01] + [0.0, 5.0, 1.0]
    return X, X @ [2.0, -0.03, 40.0] + 3.0 * rng.normal(size=n_rows) + 7.0


def textbook(X, y, row):
    """Mean and variance of y given the observed part of one row, from the moments of complete data."""
    joint = np.column_stack([X, y])
    mean, covariance = joint.mean(axis=0), np.cov(joint.T, bias=True)
    seen = np.flatnonzero(~np.isnan(row))
    weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen, -1])
    return mean[-1] + weights @ (row[seen] - mean[seen]), covariance[-1, -1] - weights @ covariance[seen, -1]


def test_without_a_ridge_it_is_least_squares_on_complete_data():
    X, y = complete_data()
    regressor = GaussianRegressor(ridge=0.0, tol=1e-12).fit(X, y)
    expected = LinearRegression().fit(X, y).predict(X)
    np.testing.assert_allclose(regressor.predict(X), expected, rtol=EXACT, atol=1e-8)


def test_with_weights_it_is_weighted_least_squares_on_complete_data():
    X, y = complete_data()
    weights = np.random.default_rng(1).uniform(0.1, 3.0, size=len(X))
    regressor = GaussianRegressor(ridge=0.0, tol=1e-12).fit(X, y, sample_weight=weights)
    expected = LinearRegression().fit(X, y, sample_weight=weights).predict(X)
    np.testing.assert_allclose(regressor.predict(X), expected, rtol=EXACT, atol=1e-8)


def test_whole_weights_are_repeated_rows_without_a_ridge():
    X, y = complete_data()
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    weights = np.random.default_rng(2).integers(0, 4, size=len(X))
    model = GaussianRegressor(ridge=0.0, tol=1e-13, max_iter=2000)
    weighted = model.fit(X, y, sample_weight=weights).predict(X)
    repeated = model.fit(X.repeat(weights, axis=0), y.repeat(weights)).predict(X)
    np.testing.assert_allclose(weighted, repeated, atol=1e-5 * y.std())


def test_the_smaller_the_ridge_the_nearer_to_least_squares():
    X, y = complete_data(n_rows=40)
    expected = LinearRegression().fit(X, y).predict(X)
    gaps = [
        np.abs(GaussianRegressor(ridge=ridge).fit(X, y).predict(X) - expected).max()
        for ridge in (30.0, 1.0, 1e-2, 1e-6)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-5


@pytest.mark.parametrize("seen", PATTERNS, ids=lambda seen: "".join("x" if s else "-" for s in seen))
def test_every_pattern_has_the_conditional_expectation_and_variance(seen):
    X, y = complete_data()
    regressor = GaussianRegressor(ridge=0.0, tol=1e-12).fit(X, y)
    for row in np.where(seen, X[:5] + 0.1, np.nan):
        mean, variance = textbook(X, y, row)
        assert regressor.predict([row])[0] == pytest.approx(mean, rel=1e-9)
        low, high = (end[0] for end in regressor.predict_interval([row], level=0.8))
        half = stats.norm.ppf(0.9) * np.sqrt(variance)
        assert (low, high) == (pytest.approx(mean - half, rel=1e-8), pytest.approx(mean + half, rel=1e-8))


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_hold_the_target_as_often_as_they_say(level):
    X, y = complete_data(n_rows=6000, seed=1)
    X[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    regressor = GaussianRegressor(random_state=0).fit(X[:4000], y[:4000])
    low, high = regressor.predict_interval(X[4000:], level=level)
    inside = int(((low <= y[4000:]) & (y[4000:] <= high)).sum())
    assert stats.binomtest(inside, 2000, level).pvalue > FAILURE_RATE


def test_it_does_better_than_imputing_means_where_columns_predict_each_other():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 1)) + 0.3 * rng.normal(size=(3000, 3))
    y = X.sum(axis=1) + 0.3 * rng.normal(size=3000)
    X[rng.random(X.shape) < 0.4] = np.nan
    means = np.where(np.isnan(X), np.nanmean(X[:2000], axis=0), X)
    baseline = LinearRegression().fit(means[:2000], y[:2000]).score(means[2000:], y[2000:])
    assert (
        GaussianRegressor(random_state=0).fit(X[:2000], y[:2000]).score(X[2000:], y[2000:]) > baseline + 0.05
    )


def test_several_targets_are_predicted_as_each_alone():
    X, y = complete_data()
    both = np.column_stack([y, -y + X[:, 0] ** 2])
    X[1, 1] = np.nan
    complete = ~np.isnan(X).any(axis=1)
    regressor = GaussianRegressor(ridge=0.0, tol=1e-12).fit(X[complete], both[complete])
    assert regressor.predict(X).shape == (200, 2)
    low, high = regressor.predict_interval(X)
    assert low.shape == high.shape == (200, 2)
    for j in range(2):
        alone = GaussianRegressor(ridge=0.0, tol=1e-12).fit(X[complete], both[complete, j])
        np.testing.assert_allclose(regressor.predict(X)[:, j], alone.predict(X), rtol=1e-9)
        np.testing.assert_allclose(low[:, j], alone.predict_interval(X)[0], rtol=1e-9)


def test_a_target_in_a_column_stays_in_a_column():
    X, y = complete_data()
    assert GaussianRegressor().fit(X, y[:, None]).predict(X).shape == (200, 1)
    assert GaussianRegressor().fit(X, y).predict(X).shape == (200,)


@pytest.fixture(scope="module")
def penguins():
    table = PENGUINS.make().dropna(subset=["body_mass_g"])
    return table.drop(columns="body_mass_g"), table["body_mass_g"]


@pytest.fixture(scope="module")
def of_penguins(penguins):
    return GaussianRegressor(random_state=0).fit(*penguins)


def test_mixed_frames_are_predicted_from(of_penguins, penguins):
    assert of_penguins.score(*penguins) > 0.8


def test_anything_may_be_missing_when_predicting(of_penguins, penguins):
    X, y = penguins
    n_columns = len(names(X))
    one_each = hide(X.iloc[:n_columns], np.eye(n_columns, dtype=bool))
    full, some = of_penguins.predict(X.iloc[:n_columns]), of_penguins.predict(one_each)
    assert np.isfinite(some).all()
    assert (some != full).any()
    low, high = of_penguins.predict_interval(hide(X.iloc[:1], True))
    assert of_penguins.predict(hide(X.iloc[:1], True))[0] == pytest.approx(y.mean(), rel=0.02)
    assert (high - low)[0] == pytest.approx(2 * stats.norm.ppf(0.95) * y.std(), rel=0.05)


def test_less_evidence_gives_wider_intervals(of_penguins, penguins):
    X, _ = penguins
    full, some = X.iloc[:50], hide(X.iloc[:50], np.array(names(X)) == "species")
    widths = [np.subtract(*of_penguins.predict_interval(table)[::-1]) for table in (full, some)]
    assert (widths[1] >= widths[0]).all()


def test_a_level_never_seen_is_no_evidence(of_penguins, penguins):
    X, _ = penguins
    strange, hole = X.iloc[:3].assign(island="Elba"), hide(X.iloc[:3], np.array(names(X)) == "island")
    np.testing.assert_array_equal(of_penguins.predict(strange), of_penguins.predict(hole))


def test_a_prediction_does_not_depend_on_other_rows(of_penguins, penguins):
    X, _ = penguins
    together = of_penguins.predict(X)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(of_penguins.predict(X.iloc[order]), together[order], rtol=EXACT)
    np.testing.assert_allclose(of_penguins.predict(X.iloc[[3]]), together[[3]], rtol=EXACT)


def test_no_rows_in_gives_no_rows_out(of_penguins, penguins):
    assert of_penguins.predict(penguins[0].iloc[:0]).shape == (0,)
    assert [end.shape for end in of_penguins.predict_interval(penguins[0].iloc[:0])] == [(0,), (0,)]


def test_uninformative_columns_give_the_mean_of_the_target():
    X = np.column_stack([np.full(30, 7.5), np.full(30, -1.0)])
    y = np.random.default_rng(0).normal(size=30)
    np.testing.assert_allclose(GaussianRegressor().fit(X, y).predict(X), y.mean(), rtol=1e-9)


def test_more_columns_than_rows_and_constant_targets_do_no_harm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15, 53))
    X[rng.random(X.shape) < 0.2] = np.nan
    assert np.isfinite(GaussianRegressor(random_state=0).fit(X, rng.normal(size=15)).predict(X)).all()
    np.testing.assert_allclose(GaussianRegressor(random_state=0).fit(X, np.full(15, 3.0)).predict(X), 3.0)


def test_a_regressor_of_several_targets_survives_its_file(tmp_path):
    X, y = complete_data()
    regressor = GaussianRegressor(random_state=0).fit(X, np.column_stack([y, y**2]))
    regressor.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    X[::2, 1] = np.nan
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))
    np.testing.assert_array_equal(loaded.predict_interval(X), regressor.predict_interval(X))
    assert loaded.n_iter_ == regressor.n_iter_
    assert loaded.objective_ == regressor.objective_


def test_the_log_likelihood_never_falls():
    X, y = complete_data()
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    regressor = GaussianRegressor(random_state=0).fit(X, y)
    assert regressor.n_iter_ == len(regressor.objective_)
    assert (np.diff(regressor.objective_) >= 0).all()


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 2.0])
def test_a_level_outside_0_and_1_is_refused(of_penguins, penguins, level):
    with pytest.raises(ValueError, match=f"level must be between 0 and 1, got {level!r}"):
        of_penguins.predict_interval(penguins[0], level=level)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan, 2.0], "Input y contains NaN"),
        ([1.0, np.inf, 2.0], "Input y contains infinity"),
        ([1.0, 2.0], "inconsistent numbers of samples"),
        (["a", "b", "c"], "could not convert string to float"),
        (None, "requires y to be passed, but the target y is None"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused(y, message):
    with pytest.raises(ValueError, match=message):
        GaussianRegressor().fit([[1.0], [2.0], [4.0]], y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"ridge": -1.0}, "ridge must be 'auto' or a number of at least 0, got -1.0"),
        ({"ridge": "large"}, "ridge must be 'auto' or a number of at least 0, got 'large'"),
        ({"max_iter": 0}, "max_iter must be at least 1, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        GaussianRegressor(**parameters).fit([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0])


def test_targets_may_come_as_series_and_frames():
    X, y = complete_data()
    expected = GaussianRegressor(random_state=0).fit(X, y).predict(X)
    np.testing.assert_array_equal(GaussianRegressor(random_state=0).fit(X, pd.Series(y)).predict(X), expected)
    both = pd.DataFrame({"a": y, "b": 2 * y + 1})
    assert GaussianRegressor(random_state=0).fit(X, both).predict(X).shape == (200, 2)
