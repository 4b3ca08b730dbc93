"""Each column loses the share that was asked for: on the fitted table, and on fresh rows."""

import numpy as np
import pytest
from missingness.five_tables import RATED, RATES, TABLES, table, wanted_rates
from tolerances import EXACT

from halfseen import missingness as ms
from halfseen.missingness.calibration import solve_intercept

STANDARD_ERRORS = 4.0


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("kind", RATED)
def test_the_rate_of_every_column_is_the_one_asked_for(kind, name, rate):
    """On fitted rows within 4 binomial standard errors; on fresh rows the error of the calibration adds.

    A mechanism hides cell i with probability p_i, and the mean of p over n fitted rows is the rate r. On m
    fresh rows the share has variance E[p (1 - p)] / m + Var[p] (1 / m + 1 / n) <= r (1 - r) (1 / m + 1 / n).
    """
    train, test = table(name)
    mechanism = RATED[kind](rate).fit(train)
    wanted = wanted_rates(mechanism, rate, train.shape[1])
    np.testing.assert_allclose(mechanism.expected_rate_, wanted, atol=1e-9)
    np.testing.assert_allclose(mechanism.probability(train).mean(axis=0), wanted, atol=1e-9)
    for X, extra in ((train, 0.0), (test, 1.0 / len(train))):
        share = 1.0 - mechanism.sample(X, random_state=1).mean(axis=0)
        error = np.sqrt(wanted * (1.0 - wanted) * (1.0 / len(X) + extra))
        assert np.all(np.abs(share - wanted) <= STANDARD_ERRORS * error + EXACT), (share, wanted)


@pytest.mark.parametrize("kind", RATED)
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_and_everything_can_be_hidden(kind, rate):
    if kind == "GaussianSelfMasking, low" and rate == 1.0:
        return  # an amplitude below 1 cannot hide everything, and is refused
    train, test = table("mixed", n_rows=200)
    mechanism = RATED[kind](rate).fit(train)
    wanted = wanted_rates(mechanism, rate, train.shape[1])
    for X in (train, test, 1e3 * test, -1e3 * test):
        observed = mechanism.sample(X, random_state=0)
        np.testing.assert_array_equal(observed.mean(axis=0), 1.0 - wanted)
        np.testing.assert_array_equal(mechanism.log_prob(observed, X), 0.0)


@pytest.mark.parametrize(
    "make", [ms.MCAR, ms.LogisticSelfMasking, ms.QuantileCensoring, ms.GaussianSelfMasking]
)
def test_each_column_may_have_its_own_rate(make):
    train, _ = table("skewed")
    rates = [0.05, 0.2, 0.4, 0.6, 0.9]
    np.testing.assert_allclose(make(rates).fit(train).expected_rate_, rates, atol=1e-9)
    with pytest.raises(
        ValueError, match=r"rate must be one number, or 5 \(one per column\), got \[0.1, 0.2\]"
    ):
        make([0.1, 0.2]).fit(train)


def test_the_usual_simulator_would_miss_these_rates():
    """One intercept against all columns at once, as in widely copied code: the reason for this suite."""
    train, _ = table("scaled")
    z = 2.0 * (train - train.mean()) / train.std()
    shared = solve_intercept(z.ravel(), 0.3)
    shares = (1.0 / (1.0 + np.exp(-(z + shared)))).mean(axis=0)
    assert np.abs(shares - 0.3).max() > 0.2


@pytest.mark.parametrize("kind", RATED)
def test_the_rate_is_a_share_of_the_cells_that_were_there(kind):
    train, _ = table("skewed", n_rows=2000)
    holed = ms.MCAR(0.4).fit(train).amputate(train, random_state=5)
    mechanism = RATED[kind](0.3).fit(holed)
    wanted = wanted_rates(mechanism, 0.3, train.shape[1])
    there = ~np.isnan(holed)
    observed = mechanism.sample(holed, random_state=6)
    assert not (observed & ~there).any()
    share = (there & ~observed).sum(axis=0) / there.sum(axis=0)
    error = np.sqrt(wanted * (1.0 - wanted) / there.sum(axis=0))
    assert np.all(np.abs(share - wanted) <= STANDARD_ERRORS * error + 1e-3)


def test_expected_rates_of_mechanisms_without_a_rate_are_what_comes_of_them():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.integers(0, 3, 500), rng.normal(size=500)])
    for mechanism, column in (
        (ms.Threshold(offset=0.5, columns=0), 0),
        (ms.DetectionLimit(lower=-1.0, upper=1.0, columns=2), 2),
        (ms.SkipPattern(0, when=1, equals=2), 0),
        (ms.AngularSector(columns=2, axes=(0, 2)), 2),
    ):
        observed = mechanism.fit(X).sample(X, random_state=0)
        expected = np.zeros(3)
        expected[column] = 1.0 - observed[:, column].mean()
        np.testing.assert_allclose(mechanism.expected_rate_, expected, atol=EXACT)
