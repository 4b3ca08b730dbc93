"""The selection model against quadrature, Heckman's likelihood and data that it generated."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import expit
from scipy.stats import binomtest, kstest, norm
from tolerances import FAILURE_RATE

import halfseen
from halfseen import GaussianImputer
from halfseen.pooling import SelectionModel, selection
from halfseen.pooling.selection import draw_selected, logistic_likelihood, probit_likelihood

NORMAL = GaussianImputer(margins="gaussian")


def small_problem():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(8), rng.normal(size=8)])
    y = rng.normal(size=8)
    return np.array([0.3, -0.5, -0.2, 0.4, 0.6, -0.8]), x, y, np.arange(8) < 5


@pytest.mark.parametrize(
    ("likelihood", "chance"),
    [(probit_likelihood, norm.cdf), (logistic_likelihood, expit)],
    ids=["probit", "logistic"],
)
def test_the_likelihood_integrates_over_missing_values(likelihood, chance):
    theta, x, y, observed = small_problem()
    beta, sigma, gamma, slope = theta[:2], np.exp(theta[2]), theta[3:5], theta[5]
    expected = 0.0
    for row, value, seen in zip(x, y, observed, strict=True):

        def joint(v, row=row, sign=1 if seen else -1):
            return norm.pdf(v, row @ beta, sigma) * chance(sign * (row @ gamma + slope * v))

        expected += np.log(joint(value) if seen else quad(joint, -15, 15, epsabs=1e-13)[0])
    found, gradient = likelihood(theta, x, y, observed)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    numeric = approx_fprime(theta, lambda t: likelihood(t, x, y, observed)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


def test_it_is_the_model_of_heckman():
    """His selection equation has a residual of variance one that is correlated with that of the outcome."""
    theta, x, y, observed = small_problem()
    beta, sigma, gamma, slope = theta[:2], np.exp(theta[2]), theta[3:5], theta[5]
    spread = np.sqrt(1 + slope**2 * sigma**2)
    rho, index = slope * sigma / spread, x @ (gamma + slope * beta) / spread
    residual = (y - x @ beta) / sigma
    seen = norm.logpdf(residual) - np.log(sigma)
    seen += norm.logcdf((index + rho * residual) / np.sqrt(1 - rho**2))
    expected = np.where(observed, seen, norm.logcdf(-index)).sum()
    np.testing.assert_allclose(probit_likelihood(theta, x, y, observed)[0], expected, rtol=1e-10)


def table_of(slope, n_rows=3000, seed=1):
    """y has mean 0 and is missing more often for large z and, with a slope, for large values of its own."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n_rows)
    y = 0.7 * z + rng.normal(size=n_rows)
    missing = rng.random(n_rows) < norm.cdf(-0.3 + 0.8 * z + slope * y)
    return np.column_stack([z, np.where(missing, np.nan, y)])


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_missingness_may_depend_on_a_covariate_and_on_the_value(slope):
    """The intervals cover the true mean, 0, at random and not at random; without the value, MAR is wrong."""
    check_rows(slope, ["selection"], ["probit"])


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_the_dependence_may_be_logistic(slope):
    check_rows(slope, ["selection-logistic"], ["logistic"])


def check_rows(slope, mechanisms, links):
    asked = {"deltas": [1.0], "n_draws": 10, "mechanisms": mechanisms}
    found = halfseen.sensitivity(NORMAL, table_of(slope, 2000), "x1", **asked)
    assert [row.missingness for row in found.mechanisms] == mechanisms
    for row, link in zip(found.mechanisms, links, strict=True):
        assert row.low < 0 < row.high
        assert f"depends on the value and on the other columns of a row, linearly on the {link} scale" in str(
            found
        )
        assert row.missingness not in found.conclusion
        if slope:
            assert row.delta > 0.2
    if slope:
        assert found.at_mar[2] < 0
    else:
        assert found.at_mar[1] < 0 < found.at_mar[2]


def density_of_missing(theta, row, chance):
    """The distribution function of a missing value, on a grid."""
    grid = np.linspace(-12, 12, 20_001)
    logs = norm.logpdf(grid, row @ theta[:2], np.exp(theta[2]))
    mass = np.cumsum(np.exp(logs) * chance(-(row @ theta[3:5] + theta[5] * grid)))
    return lambda v: np.interp(v, grid, mass / mass[-1])


@pytest.mark.parametrize(
    ("draw", "chance"), [(selection._draw_probit, norm.cdf), (selection._draw_logistic, expit)]
)
@pytest.mark.parametrize("slope", [-3.0, 0.0, 0.8])
def test_missing_values_are_drawn_from_their_density(draw, chance, slope):
    theta = np.array([0.3, -0.5, 0.2, 0.4, 0.6, slope])
    row = np.array([1.0, 0.7])
    drawn = draw(theta, np.tile(row, (5000, 1)), np.random.default_rng(0))
    assert kstest(drawn, density_of_missing(theta, row, chance)).pvalue > FAILURE_RATE


def instrumented(n_rows=2000):
    """Values missing at random; a coin decides who is asked twice, and not what they say."""
    rng = np.random.default_rng(3)
    z, asked_twice = rng.normal(size=n_rows), rng.choice(["no", "yes"], size=n_rows)
    y = 0.5 * z + rng.normal(size=n_rows)
    missing = rng.random(n_rows) < norm.cdf(0.2 + 0.5 * z - 2.0 * (asked_twice == "yes"))
    return pd.DataFrame({"z": z, "asked": asked_twice, "y": np.where(missing, np.nan, y)})


def test_an_instrument_makes_the_interval_much_narrower():
    """The truth is 0; what the shape of residuals alone identifies is identified poorly."""
    mechanisms = ["selection", SelectionModel(instruments=("asked",))]
    found = halfseen.sensitivity(NORMAL, instrumented(), "y", deltas=[1.0], mechanisms=mechanisms)
    without, helped = found.mechanisms
    assert helped.low < 0 < helped.high
    assert helped.high - helped.low < (without.high - without.low) / 2
    assert "assumes that asked influences whether the value is observed" in helped.assumption
    assert helped.assumption in str(found)


def test_an_instrument_has_no_coefficient_in_the_equation_of_the_value():
    table = instrumented(300)
    x, y, excluded = selection._covariates(table, 2, ("asked",))
    assert excluded.tolist() == [False, False, True]
    observed = ~np.isnan(y)
    free = np.append(~excluded, np.ones(4, dtype=bool))
    given = x, np.where(observed, y, 0.0), observed, free
    assert selection._find_posterior(probit_likelihood, *given).draw(np.random.default_rng(0))[2] == 0


def test_the_dependence_on_the_value_is_drawn_from_its_marginal_density():
    """A grid that is four times finer gives the same distribution; 300 rows, where it is skewed."""
    table = table_of(0.7, 300)
    x, y, _ = selection._covariates(table, 1, ())
    observed, free = ~np.isnan(y), np.ones(5, dtype=bool)
    given = probit_likelihood, x, np.where(observed, y, 0.0), observed, free
    posterior = selection._find_posterior(*given)
    rng = np.random.default_rng(0)
    drawn = np.array([posterior.draw(rng)[-1] for _ in range(500)])
    slopes, at = np.linspace(-selection.WIDEST, selection.WIDEST, 101), posterior.modes[12]
    logs = np.zeros(101)
    for side in (range(50, 101), range(49, -1, -1)):
        mode = at
        for g in side:
            logs[g], mode, _ = selection._given_slope(*given, mode, slopes[g])
    density = np.exp(logs - logs.max())
    mass = np.append(0, np.cumsum(density[1:] + density[:-1]))
    assert kstest(drawn, lambda v: np.interp(v, slopes, mass / mass[-1])).pvalue > FAILURE_RATE


def test_a_search_that_fails_is_announced(monkeypatch):
    monkeypatch.setattr(selection, "MOST_STEPS", 1)
    table = instrumented(300)
    rows = np.flatnonzero(table["y"].isna())
    with pytest.warns(halfseen.HalfseenWarning, match="selection model did not converge"):
        draw_selected([table.fillna({"y": 0.0})], 2, rows, np.random.default_rng(0), SelectionModel())


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 0.7])
def test_intervals_cover_whether_or_not_values_are_missing_at_random(slope):
    """40 tables; under MAR both rows cover, otherwise the selection model alone."""
    inside = np.zeros((40, 2), dtype=bool)
    for seed in range(40):
        table = table_of(slope, 800, seed)
        asked = {"deltas": [1.0], "n_draws": 10, "mechanisms": ["selection"], "random_state": seed}
        found = halfseen.sensitivity(NORMAL, table, "x1", **asked)
        (row,) = found.mechanisms
        inside[seed] = row.low < 0 < row.high, found.at_mar[1] < 0 < found.at_mar[2]
    covered = inside.sum(axis=0)
    assert binomtest(int(covered[0]), 40, 0.95).pvalue > FAILURE_RATE
    if slope:
        assert covered[1] < 10
    else:
        assert binomtest(int(covered[1]), 40, 0.95).pvalue > FAILURE_RATE


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SelectionModel("cauchit"), "link must be one of probit, logistic, got 'cauchit'"),
        (
            lambda: SelectionModel(instruments=("w",)),
            "instrument 'w' is not one of the other columns: z, asked, y",
        ),
        (lambda: SelectionModel(instruments=("y",)), "instrument 'y' is not one of the other columns"),
        (lambda: SelectionModel(instruments=("same",)), "instruments same do not vary"),
    ],
)
def test_models_that_cannot_be_used_are_explained(build, message):
    table = instrumented(100).assign(same="a")
    with pytest.raises(ValueError, match=message):
        draw_selected([table], 2, np.flatnonzero(table["y"].isna()), np.random.default_rng(0), build())


def test_a_selection_model_is_for_one_column_of_numbers():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=60), "g": ["u", "v"] * 30})
    table.loc[:20, "g"] = None
    with pytest.raises(ValueError, match="selection needs one column of numbers"):
        halfseen.sensitivity(NORMAL, table, "g=v", n_draws=2, deltas=[1.0], mechanisms=["selection"])
