"""What is solved for a rate: against quadrature, brute force and the numbers of the literature."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, ndtr
from scipy.stats import norm
from tolerances import EXACT, QUADRATURE

from halfseen import missingness as ms
from halfseen.missingness.calibration import (
    data_variance,
    gaussian_variance,
    probit_threshold,
    solve_intercept,
    split_at_quantile,
    standardizer,
)

RATES = (0.01, 0.1, 0.3, 0.5, 0.7, 0.99)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.5, 2.0, 3.0])
def test_the_closed_form_of_gaussian_self_masking_equals_quadrature(rate, shift):
    x = gaussian_variance(rate, shift)
    found = quad(lambda z: norm.pdf(z) * np.exp(-((z - shift) ** 2) / (2 * x)), -12, 12, points=[shift])[0]
    assert found == pytest.approx(rate, abs=QUADRATURE)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("slope", [-2.0, 0.0, 0.5, 3.0])
def test_the_closed_form_of_probit_self_masking_equals_quadrature(rate, slope):
    mean, variance = 1.5, 4.0
    c = probit_threshold(rate, slope, mean, variance)
    found = quad(lambda x: norm.pdf(x, mean, 2.0) * ndtr(slope * x - c), -20, 25, limit=200)[0]
    assert found == pytest.approx(rate, abs=QUADRATURE)


def test_the_published_simulations_are_special_cases():
    rng = np.random.default_rng(0)
    X = rng.normal([3.0, -1.0], [2.0, 0.5], size=(200_000, 2))
    known = {"mean": [3.0, -1.0], "variance": [4.0, 0.25], "calibration": "gaussian"}
    bell = ms.GaussianSelfMasking(0.5, shift=2.0, **known).fit(X)
    np.testing.assert_allclose(bell.centres_, [7.0, 0.0], atol=EXACT)
    np.testing.assert_allclose(bell.variances_, 2.72534 * np.array([4.0, 0.25]), rtol=1e-5)
    probit = ms.ProbitSelfMasking(0.5, slope=0.5, standardize=False, **known).fit(X)
    np.testing.assert_allclose(probit.thresholds_, [1.5, -0.5], atol=EXACT)
    for mechanism in (bell, probit):
        np.testing.assert_allclose(mechanism.expected_rate_, 0.5, atol=4 * 0.5 / np.sqrt(len(X)))


@pytest.mark.parametrize("rate", RATES)
def test_the_two_calibrations_agree_on_gaussian_columns_and_only_there(rate):
    rng = np.random.default_rng(0)
    normal, skewed = rng.normal(5.0, 3.0, size=(100_000, 1)), rng.lognormal(0.0, 1.5, size=(100_000, 1))
    for make in (ms.GaussianSelfMasking, ms.ProbitSelfMasking):
        assert make(rate, calibration="gaussian").fit(normal).expected_rate_[0] == pytest.approx(
            rate, abs=0.01
        )
        assert make(rate, calibration="data").fit(skewed).expected_rate_[0] == pytest.approx(rate, abs=1e-9)
    if rate in (0.3, 0.5):
        missed = ms.GaussianSelfMasking(rate, calibration="gaussian").fit(skewed).expected_rate_[0]
        assert abs(missed - rate) > 0.05


@pytest.mark.parametrize("link", ["logistic", "probit"])
@pytest.mark.parametrize("rate", RATES)
def test_an_intercept_gives_its_rate_with_weights_too(link, rate):
    rng = np.random.default_rng(0)
    function = expit if link == "logistic" else ndtr
    for scores in (
        rng.standard_t(1.0, 500) * 50,
        rng.normal(size=500) * 1e-8,
        rng.integers(0, 2, 500) * 30.0,
    ):
        assert function(scores + solve_intercept(scores, rate, link)).mean() == pytest.approx(rate, abs=1e-9)
        weights = rng.random(500) * (rng.random(500) < 0.5)
        b = solve_intercept(scores, rate, link, weights)
        assert weights @ function(scores + b) / weights.sum() == pytest.approx(rate, abs=1e-9)


def test_intercepts_of_no_scores_and_of_certain_rates():
    assert solve_intercept(np.empty(0), 0.5) == 0.0
    assert solve_intercept(np.zeros(3), 0.0) == -np.inf
    assert solve_intercept(np.zeros(3), 1.0) == np.inf
    assert solve_intercept(np.full(3, 2.0), 0.5) == -2.0


@pytest.mark.parametrize("rate", RATES)
def test_the_width_on_data_gives_its_rate_also_with_cells_at_the_centre(rate):
    rng = np.random.default_rng(0)
    columns = (rng.normal(size=300), rng.standard_t(1.0, 300), rng.integers(0, 2, 300) * 2.0, np.zeros(300))
    for z in columns:
        for shift in (2.0, 0.0):
            x, amplitude = data_variance(z, rate, shift)
            share = np.mean(amplitude * np.exp(-((z - shift) ** 2) / (2 * x)))
            assert share == pytest.approx(rate, abs=1e-9)
            assert 0.0 < amplitude <= 1.0


@pytest.mark.parametrize("rate", RATES)
def test_a_quantile_with_ties_leaves_exactly_the_share(rate):
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=77), rng.integers(0, 3, 77) + 0.0, np.full(77, 4.0)):
        t, p = split_at_quantile(values, rate)
        assert 0.0 <= p <= 1.0
        assert np.sum(values > t) + p * np.sum(values == t) == pytest.approx(rate * 77, abs=EXACT)


def test_standardising_knows_a_constant_column():
    assert standardizer(np.empty(0)) == (0.0, 1.0)
    assert standardizer(np.full(10, 0.1)) == (0.1, 1.0)
    mean, scale = standardizer(np.array([1.0, 3.0]))
    assert (mean, scale) == (2.0, 1.0)


def test_the_weights_of_mar_have_the_steepness_asked_for():
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(5000, 6)) * 10.0 ** np.arange(6)
    mechanism = ms.MARLogistic(0.3, predictors=[0, 5], steepness=3.0).fit(X)
    scores = (X[:, [0, 5]] - X[:, [0, 5]].mean(axis=0)) @ mechanism.weights_
    np.testing.assert_allclose(scores.std(axis=0), 3.0, rtol=1e-10)
    drawn = ms.MARLogistic(0.3, predictors=[0], steepness=(2.0, 10.0)).fit(X)
    spread = ((X[:, :1] - X[:, :1].mean(axis=0)) @ drawn.weights_).std(axis=0)
    assert np.all((spread >= 2.0) & (spread <= 10.0))
    assert len(np.unique(spread)) == 5


def test_without_standardising_the_largest_unit_decides():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4)) * [1.0, 1.0, 1.0, 1e6]
    raw = ms.MARLogistic(0.3, predictors=[0, 3], standardize=False, steepness=2.0).fit(X)
    scores = X[:, [0, 3]] * np.abs(raw.weights_[:, 0])
    assert scores[:, 1].std() > 1e4 * scores[:, 0].std()
    fair = ms.MARLogistic(0.3, predictors=[0, 3], steepness=2.0).fit(X)
    ratio = (fair.weights_[1] * 1e6 / fair.weights_[0])[:2]
    assert np.all(np.abs(ratio) < 1e3)


def test_mar_draws_its_subset_among_columns_that_vary_and_are_whole():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 10))
    X[:, [0, 1, 2]] = 1.0
    X[5, [3, 4, 5, 6]] = np.nan
    for seed in range(20):
        mechanism = ms.MARLogistic(0.3, predictor_share=0.3, random_state=seed).fit(X)
        assert set(mechanism.predictors_) == {7, 8, 9}
    X[6, 7:] = np.nan
    assert set(ms.MARLogistic(0.3, predictor_share=1.0).fit(X).predictors_) == set(range(3, 10))
    two = {tuple(ms.MARLogistic(0.3, random_state=seed).fit(X).predictors_) for seed in range(20)}
    assert len(two) > 3
