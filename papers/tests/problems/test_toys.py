"""The toy distributions and the health table: conditional means against integrals, draws and numbers."""

import numpy as np
import pytest
from scipy.stats import binomtest, multivariate_normal, norm
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from papers.problems import CorrelatedGaussian, HealthScreening, MixtureOfGaussians, Ring
from papers.problems.health import PREVALENCES
from papers.problems.problem import Sample
from papers.tests.problems.oracles import orthogonality

GRID = np.linspace(-12, 12, 48_001)


# ------------------------------------------------------------------------------------- two features


@pytest.mark.parametrize("seen", [-3.0, 0.0, 1.7])
def test_the_first_of_two_correlated_features_equals_an_integral(seen):
    problem = CorrelatedGaussian(0.8)
    density = norm.pdf(GRID, 0.8 * seen, 0.6) * (GRID > 0)
    expected = density @ GRID / density.sum()
    np.testing.assert_allclose(problem.predict_bayes([[np.nan, seen]]), [[expected, seen]], atol=1e-3)


def test_the_correlated_gaussian_has_its_known_best_error():
    problem = CorrelatedGaussian()
    sample = problem.sample(200_000, random_state=0)
    assert problem.bayes_rmse(sample.incomplete, sample.y) == pytest.approx(0.459, abs=0.003)
    at_random = (sample.X[:, 0] - 0.8 * sample.X[:, 1])[~sample.observed[:, 0]]
    assert np.sqrt(np.mean(at_random**2)) == pytest.approx(0.600, abs=0.003)
    assert 0.7 < problem.bayes_r2(sample.incomplete, sample.y) < 0.85
    first = Sample(sample.X, sample.X[:, 0], sample.observed)
    assert orthogonality(first, problem.predict_bayes(sample.incomplete)[:, 0] + _noise(first)) > FAILURE_RATE


def _noise(sample):
    """Zero where the target was hidden; where it was seen there is no residual, and nothing to test."""
    return np.where(sample.observed[:, 0], np.random.default_rng(0).normal(size=len(sample.X)), 0.0)


def test_the_ring_has_its_known_best_error():
    problem = Ring()
    sample = problem.sample(100_000, random_state=0)
    expected = np.sqrt((4.5**2 + 0.5) * (0.5 - 1 / np.pi))
    assert expected == pytest.approx(1.942, abs=5e-4)
    assert problem.bayes_rmse(sample.incomplete, sample.y) == pytest.approx(expected, abs=0.02)
    radius = np.linalg.norm(sample.X, axis=1)
    assert radius.mean() == pytest.approx(4.5, abs=0.01)
    assert radius.var() == pytest.approx(0.5, abs=0.01)
    assert binomtest(int((~sample.observed[:, 0]).sum()), len(sample.X), 0.25).pvalue > FAILURE_RATE
    first = Sample(sample.X, sample.X[:, 0], sample.observed)
    assert orthogonality(first, problem.predict_bayes(sample.incomplete)[:, 0] + _noise(first)) > FAILURE_RATE


@pytest.mark.parametrize("problem", [CorrelatedGaussian(), Ring()])
def test_a_feature_that_is_never_missing_must_be_there(problem):
    with pytest.raises(ValueError, match="Column 1 is never missing in this problem, but it is in row 1"):
        problem.predict_bayes([[0.0, 1.0], [0.0, np.nan]])


# ------------------------------------------------------------------------------------- mixture


def test_a_drawn_mixture_is_standardised_and_has_the_asked_shape():
    problem = MixtureOfGaussians.draw(random_state=0)
    assert (problem.locs.shape, problem.covariances.shape) == ((15, 5), (15, 5, 5))
    assert problem.weights.sum() == pytest.approx(1.0, rel=EXACT)
    np.testing.assert_allclose(problem.weights @ problem.locs, 0.0, atol=EXACT)
    second = problem.covariances + problem.locs[:, :, None] * problem.locs[:, None, :]
    np.testing.assert_allclose(np.diag(np.tensordot(problem.weights, second, 1)), 1.0, rtol=EXACT)
    assert (np.linalg.eigvalsh(problem.covariances) > 0).all()
    sample = problem.sample(20_000, random_state=1)
    np.testing.assert_allclose(sample.X.mean(axis=0), 0.0, atol=5 / np.sqrt(20_000))
    assert binomtest(int(sample.observed.sum()), sample.observed.size, 0.5).pvalue > FAILURE_RATE


def test_densities_and_means_of_a_mixture_equal_sums_and_integrals():
    problem = MixtureOfGaussians.draw(4, 2, random_state=3)
    X = np.array([[0.4, -0.3], [1.0, 0.2]])
    parts = zip(problem.weights, problem.locs, problem.covariances, strict=True)
    density = sum(weight * multivariate_normal(loc, scale).pdf(X) for weight, loc, scale in parts)
    np.testing.assert_allclose(problem.log_prob(X), np.log(density), rtol=EXACT)

    line = np.column_stack([np.full_like(GRID, 0.4), GRID])  # the second feature, given the first
    along = np.exp(problem.log_prob(line))
    step = GRID[1] - GRID[0]
    row = np.array([[0.4, np.nan]])
    assert problem.log_prob(row)[0] == pytest.approx(np.log(along.sum() * step), abs=QUADRATURE)
    assert problem.predict_bayes(row)[0, 1] == pytest.approx(along @ GRID / along.sum(), abs=QUADRATURE)
    assert problem.predict_bayes(row)[0, 0] == 0.4


def test_a_mixture_predicts_the_mean_for_a_row_without_observed_values():
    problem = MixtureOfGaussians.draw(random_state=0)
    nothing = np.full((1, 5), np.nan)
    np.testing.assert_allclose(problem.predict_bayes(nothing), 0.0, atol=EXACT)
    np.testing.assert_allclose(problem.log_prob(nothing), 0.0, atol=EXACT)


def test_the_mixture_of_the_paper_has_its_known_likelihood(shared_data):
    with np.load(shared_data / "mog_ground_truth" / "data_mog2_large.npz") as file:
        parameters = (file[key].astype(np.float64) for key in ("comp_probs", "means", "covs"))
        problem, test = MixtureOfGaussians(*parameters), file["test"]
    assert problem.log_prob(test).mean() == pytest.approx(-2.095, abs=1e-3)


# ------------------------------------------------------------------------------------- health screening


def test_diseases_have_their_prevalence_and_attendance_its_distribution():
    problem = HealthScreening.draw(random_state=0)
    X, y, observed = problem.sample(20_000, random_state=1)
    assert (X.shape, y.shape) == ((20_000, 170), (20_000, 5))
    for k, prevalence in enumerate(PREVALENCES):
        assert binomtest(int(y[:, k].sum()), len(y), prevalence).pvalue > FAILURE_RATE
    rate = observed.mean(axis=1)  # over 170 coins of a Beta(1.2, 3)
    assert rate.mean() == pytest.approx(1.2 / 4.2, abs=0.007)
    variance = 1.2 * 3 / (4.2**2 * 5.2)
    assert rate.var() == pytest.approx(variance + (1.2 / 4.2 * (3 / 4.2) - variance) / 170, rel=0.05)
    np.testing.assert_allclose(X.mean(axis=0), 0.5, atol=0.006)
    np.testing.assert_allclose(X.std(axis=0), 1 / 8, rtol=0.03)


def check_calibration(problem, predict):
    """The smallest p-value, times their number, that residuals depend on what was seen or predicted."""
    X, y, observed = problem.sample(8000, random_state=3)
    predicted = predict(np.where(observed, X, np.nan))
    filled = np.where(observed, X - 0.5, 0.0)
    seen = np.column_stack([np.ones(len(X)), observed.mean(axis=1) - 0.5, filled[:, :5], filled[:, -5:]])
    products = (y - predicted)[:, :, None] * np.concatenate(
        [seen[:, None, :].repeat(5, 1), predicted[:, :, None]], 2
    )
    z = products.mean(axis=0) / (products.std(axis=0) / np.sqrt(len(X)))
    return 2 * norm.sf(np.abs(z)).min() * z.size


@pytest.mark.parametrize("mechanism", ["mcar", "mnar"])
def test_disease_probabilities_are_calibrated_given_all_that_was_seen(mechanism):
    problem = HealthScreening.draw(8, 3, mechanism=mechanism, strength=3.0, random_state=2)
    assert check_calibration(problem, problem.predict_bayes) > FAILURE_RATE


def test_ignoring_how_much_was_seen_is_found_out_when_it_matters():
    problem = HealthScreening.draw(8, 3, mechanism="mnar", strength=3.0, random_state=2)
    blind = HealthScreening(problem.loadings, problem.weights, 3, "mcar")
    assert check_calibration(problem, blind.predict_bayes) < FAILURE_RATE


def test_without_strength_attendance_is_uninformative():
    problem = HealthScreening.draw(4, 2, mechanism="mnar", strength=0.0, random_state=0)
    blind = HealthScreening(problem.loadings, problem.weights, 2, "mcar")
    rows = problem.sample(50, random_state=1).incomplete
    np.testing.assert_allclose(problem.predict_bayes(rows), blind.predict_bayes(rows), rtol=EXACT)


def test_unknown_attendance_is_refused():
    with pytest.raises(ValueError, match="mechanism must be 'mcar' or 'mnar', got 'mar'"):
        HealthScreening.draw(mechanism="mar")
