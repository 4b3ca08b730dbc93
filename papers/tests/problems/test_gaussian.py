"""Gaussian problems: published seeds, and the best prediction against formulas, grids and rejection."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.missingness.mcar import MCAR
from papers.problems import Bowl, Break, GaussianProblem, GaussianScore, Linear, Wave
from papers.problems.gaussian import MECHANISMS
from papers.problems.links import response_variance
from papers.problems.probit import ProbitSelfMasked
from papers.tests.problems.oracles import (
    gain_form,
    orthogonality,
    patterns,
    precision_form,
    probit_by_grid,
    published_form,
    score_moments,
)
from papers.tests.problems.pairs import name, pair_with_mechanisms

LINKS = [Linear(), Bowl(), Wave(), Break()]
PAIRS = pair_with_mechanisms(LINKS)


def law_of(n_features, seed=0):
    return GaussianProblem.draw(n_features, random_state=seed).score


def every_pattern(law, seed=1):
    observed = patterns(len(law.loc))
    x = np.random.default_rng(seed).multivariate_normal(law.loc, law.covariance, size=len(observed))
    return np.where(observed, x, np.nan), x, observed


# ------------------------------------------------------------------------------------- published numbers


@pytest.mark.parametrize(("seed", "expected"), [(0, 0.818671), (1, 0.778006)])
def test_the_seeds_of_the_paper_give_its_bayes_rates(seed, expected):
    problem = GaussianProblem.draw(10, "mcar", random_state=seed)
    test = problem.sample(30_000, random_state=seed).take(slice(10_000))
    assert problem.bayes_r2(test.incomplete, test.y) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(
    ("mechanism", "n_rows", "expected", "within"),
    [
        ("self-masking-gaussian", 10_000, 0.8349, 5e-5),
        pytest.param("self-masking-probit", 10_000, 0.8392, 5e-4, marks=pytest.mark.slow),
    ],
)
def test_self_masking_with_the_noise_of_a_chunk_gives_the_known_bayes_rates(
    mechanism, n_rows, expected, within
):
    problem = GaussianProblem.draw(10, mechanism, random_state=0)
    score = problem.score
    chunk = score(np.random.RandomState(0).multivariate_normal(score.loc, score.covariance, size=30_000))
    problem = dataclasses.replace(problem, noise_variance=np.var(chunk) / 10)
    test = problem.sample(30_000, random_state=0).take(slice(n_rows))
    assert problem.bayes_r2(test.incomplete, test.y) == pytest.approx(expected, abs=within)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_simulator_keeps_its_rates_and_its_noise(mechanism):
    problem = GaussianProblem.draw(6, mechanism, rate=0.3, random_state=3)
    X, y, observed = problem.sample(20_000, random_state=4)
    affected = problem.mechanism.columns_
    for j in affected:
        assert binomtest(int((~observed[:, j]).sum()), len(X), 0.3).pvalue > FAILURE_RATE / 10
    assert observed[:, np.setdiff1d(np.arange(6), affected)].all()
    full = 1 - np.mean((y - problem.score(X)) ** 2) / np.var(y)
    assert full == pytest.approx(10 / 11, abs=0.005)


def test_data_with_other_generators_and_mechanisms_are_accepted():
    whole_rows = GaussianProblem.draw(3, MCAR(rate=0.4, unit="rows"), random_state=np.random.default_rng(0))
    sample = whole_rows.sample(2000, random_state=np.random.default_rng(1))
    n_seen = sample.observed.sum(axis=1)
    assert set(n_seen) == {0, 3}
    assert binomtest(int((n_seen == 0).sum()), 2000, 0.4).pvalue > FAILURE_RATE
    again = whole_rows.sample(2000, random_state=np.random.default_rng(1))
    np.testing.assert_array_equal(sample.observed, again.observed)
    assert whole_rows.sample(3).X.shape == (3, 3)


@pytest.mark.parametrize("link", LINKS, ids=name)
def test_scores_of_other_than_linear_links_have_variance_one_and_noise_a_tenth(link):
    problem = GaussianProblem.draw(8, "mcar", link, random_state=0)
    linear = isinstance(link, Linear)
    assert problem.score.variance == pytest.approx(
        problem.score.covariance.sum() if linear else 1.0, rel=EXACT
    )
    X, y, _ = problem.sample(20_000, random_state=0)
    assert np.var(y - link(problem.score(X))) == pytest.approx(problem.noise_variance, rel=0.05)
    assert np.var(link(problem.score(X))) == pytest.approx(10 * problem.noise_variance, rel=0.1)


# ------------------------------------------------------------------------------------- formulas


def test_missing_at_random_equals_the_textbook_for_every_pattern():
    law = law_of(5)
    incomplete, x, observed = every_pattern(law)
    expected = np.array([score_moments(law, *pair) for pair in zip(x, observed, strict=True)])
    np.testing.assert_allclose(np.column_stack(law.moments(incomplete)), expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("form", [published_form, precision_form, gain_form])
@pytest.mark.parametrize("seed", [0, 1])
def test_self_masking_equals_three_algebraic_forms_for_every_pattern(form, seed):
    problem = GaussianProblem.draw(6, "self-masking-gaussian", random_state=seed)
    law, mechanism = problem.score, problem.mechanism
    incomplete, x, observed = every_pattern(law)
    pairs = zip(x, observed, strict=True)
    parameters = form, mechanism.centres_, mechanism.variances_
    mean, variance = np.array([score_moments(law, *pair, *parameters) for pair in pairs]).T
    got = law.moments(incomplete, mechanism.centres_, 1 / mechanism.variances_)
    np.testing.assert_allclose(got[0], mean, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(got[1], variance, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(problem.predict_bayes(incomplete), mean, rtol=EXACT, atol=EXACT)


def test_vague_self_masking_is_missing_at_random():
    law = law_of(4)
    incomplete, *_ = every_pattern(law)
    for got, expected in zip(law.moments(incomplete, 3.0, 1e-13), law.moments(incomplete), strict=True):
        np.testing.assert_allclose(got, expected, atol=QUADRATURE)


@pytest.mark.parametrize("mechanism", ["mar", "self-masking-gaussian"])
def test_imputing_keeps_what_was_seen_and_gives_the_score_its_mean(mechanism):
    problem = GaussianProblem.draw(5, mechanism, random_state=2)
    incomplete, x, observed = every_pattern(problem.score)
    filled = problem.impute_bayes(incomplete)
    assert (filled[observed] == x[observed]).all()
    expected = problem.predict_bayes(incomplete)
    np.testing.assert_allclose(problem.score(filled), expected, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(problem.predict_plugged_in(incomplete), expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("link", LINKS, ids=name)
def test_expected_responses_equal_integrals(link):
    grid = np.linspace(-10, 10, 200_001)
    weight = norm.pdf(grid) / norm.pdf(grid).sum()
    mean, variance = np.array([-1.0, 0.9, 1.0, 2.5]), np.array([0.5, 1e-3, 4.0, 0.04])
    expected = [weight @ link(t + np.sqrt(v) * grid) for t, v in zip(mean, variance, strict=True)]
    tolerance = 2e-4 if isinstance(link, Break) else QUADRATURE  # a jump costs a grid its order
    np.testing.assert_allclose(link.expectation(mean, variance), expected, atol=tolerance)
    certain = np.array([0.5, 1.0, 1.5])
    np.testing.assert_allclose(link.expectation(certain, np.zeros(3)), link(certain), rtol=EXACT)


def test_the_variance_of_a_response_is_that_of_its_distribution():
    assert response_variance(Linear(), 3.0, 2.0) == pytest.approx(2.0, rel=EXACT)
    assert response_variance(Bowl(), 3.0, 2.0) == pytest.approx(
        2 * 2.0**2 + 4 * 2.0 * (3.0 - 1) ** 2, rel=EXACT
    )


# ------------------------------------------------------------------------------------- simulation


@pytest.mark.parametrize(("mechanism", "link"), PAIRS)
def test_residuals_of_the_best_prediction_depend_on_nothing_that_was_seen(mechanism, link):
    problem = GaussianProblem.draw(3, mechanism, link, latent_share=0.7, random_state=5)
    sample = problem.sample(8000, random_state=6)
    assert orthogonality(sample, problem.predict_bayes(sample.incomplete)) > FAILURE_RATE


def test_that_check_finds_predictions_that_are_only_nearly_best():
    masked = GaussianProblem.draw(3, "self-masking-gaussian", latent_share=0.7, random_state=5)
    sample = masked.sample(15_000, random_state=6)
    assert orthogonality(sample, masked.score.moments(sample.incomplete)[0]) < FAILURE_RATE
    bowl = GaussianProblem.draw(3, "mcar", "bowl", latent_share=0.7, random_state=5)
    sample = bowl.sample(15_000, random_state=6)
    assert orthogonality(sample, bowl.predict_plugged_in(sample.incomplete)) < FAILURE_RATE


@pytest.mark.parametrize("mechanism", ["self-masking-gaussian", "self-masking-probit"])
def test_rejection_sampling_agrees_in_two_dimensions(mechanism):
    problem = GaussianProblem.draw(2, mechanism, random_state=7)
    law, generator = problem.score, np.random.default_rng(8)
    x = generator.multivariate_normal(law.loc, law.covariance, size=200_000)
    hidden = generator.uniform(size=x.shape) < problem.mechanism.probability(x)
    both = law(x[hidden.all(axis=1)])  # rows of which nothing was seen
    assert _p_value(both, problem.predict_bayes([[np.nan, np.nan]])[0]) > FAILURE_RATE

    seen = law.loc[0] + 0.7  # the second feature given the first, kept if it hides itself
    gain = law.covariance[0, 1] / law.covariance[0, 0]
    spread = law.covariance[1, 1] - gain * law.covariance[0, 1]
    second = law.loc[1] + gain * (seen - law.loc[0]) + np.sqrt(spread) * generator.normal(size=200_000)
    rows = np.column_stack([np.full(200_000, seen), second])
    kept = generator.uniform(size=200_000) < problem.mechanism.probability(rows)[:, 1]
    assert _p_value(law(rows[kept]), problem.predict_bayes([[seen, np.nan]])[0]) > FAILURE_RATE


def _p_value(draws, mean):
    return 2 * norm.sf(abs(draws.mean() - mean) / (draws.std() / np.sqrt(len(draws))))


# ------------------------------------------------------------------------------------- probit


def probit(n_features, seed=0, **options):
    problem = GaussianProblem.draw(n_features, "self-masking-probit", latent_share=0.7, random_state=seed)
    mechanism = problem.mechanism
    return ProbitSelfMasked(problem.score, mechanism.slopes_, mechanism.thresholds_, **options)


def test_truncated_normals_equal_an_integral_for_up_to_two_missing_features():
    law = probit(3)
    incomplete, x, observed = every_pattern(law.score)
    few = observed.sum(axis=1) >= 1
    got = law.estimate(incomplete[few], Linear())
    expected = [
        probit_by_grid(law.score, row, seen, law.slope, law.threshold, Linear())
        for row, seen in zip(x[few], observed[few], strict=True)
    ]
    np.testing.assert_allclose(got.mean, expected, rtol=QUADRATURE)
    assert (got.standard_error == 0).all()
    assert (got.effective == 1).all()


@pytest.mark.parametrize(
    "link", [LINKS[0], *(pytest.param(link, marks=pytest.mark.slow) for link in LINKS[1:])], ids=name
)
def test_importance_sampling_equals_an_integral_within_its_error(link):
    law = probit(3, n_draws=5000)
    incomplete, x, observed = every_pattern(law.score)
    got = law.estimate(incomplete, link, exact=False)
    for i in range(len(x)):
        expected = probit_by_grid(law.score, x[i], observed[i], law.slope, law.threshold, link)
        z = abs(got.mean[i] - expected) / (got.standard_error[i] + 1e-4)
        assert 2 * norm.sf(z) > FAILURE_RATE
    assert (got.effective > 0.3).all()


def test_importance_sampling_equals_truncated_normals_within_its_error():
    law = probit(6, n_draws=4000)
    incomplete, _, observed = every_pattern(law.score)
    rows = incomplete[(observed.sum(axis=1) >= 4) & ~observed.all(axis=1)]
    closed, drawn = law.estimate(rows, Linear()), law.estimate(rows, Linear(), exact=False)
    z = (drawn.mean - closed.mean) / drawn.standard_error
    assert (2 * norm.sf(abs(z))).min() * len(z) > FAILURE_RATE
    assert (drawn.standard_error > 0).all()


def test_a_flat_probit_is_missing_at_random():
    law = law_of(4)
    flat = ProbitSelfMasked(law, np.full(4, 1e-9), np.zeros(4), n_draws=50)
    incomplete, *_ = every_pattern(law)
    np.testing.assert_allclose(
        flat.estimate(incomplete, Linear()).mean, law.moments(incomplete)[0], atol=QUADRATURE
    )


def test_rows_that_hardly_ever_lose_two_features_still_have_a_finite_answer():
    law = ProbitSelfMasked(
        GaussianScore(np.zeros(3), np.eye(3), np.ones(3), 0.0), np.ones(3), np.full(3, 8.0)
    )
    got = law.estimate(np.array([[np.nan, np.nan, 0.0]]), Linear())
    assert np.isfinite(got.mean).all()
    assert got.standard_error[0] > 0  # importance sampling took over
    assert got.mean[0] == pytest.approx(probit_by_grid(
        law.score, np.zeros(3), np.array([False, False, True]), law.slope, law.threshold, Linear()
    ), abs=5 * got.standard_error[0])  # fmt: skip


# ------------------------------------------------------------------------------------- rows and errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_row_is_predicted_alike_alone_and_in_a_batch(mechanism):
    problem = GaussianProblem.draw(5, mechanism, random_state=0)
    rows = problem.sample(40, random_state=1).incomplete
    alone = np.concatenate([problem.predict_bayes(row[None]) for row in rows])
    np.testing.assert_allclose(problem.predict_bayes(rows), alone, rtol=EXACT)
    assert problem.predict_bayes(np.empty((0, 5))).shape == (0,)


def test_a_complete_row_is_predicted_by_its_response_exactly():
    for mechanism in MECHANISMS:
        problem = GaussianProblem.draw(4, mechanism, "break", random_state=0)
        X = problem.sample(50, random_state=1).X
        np.testing.assert_array_equal(problem.predict_bayes(X), problem.link(problem.score(X)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanism": "mnar"}, "mechanism must be one of mcar, mar, .*, got 'mnar'"),
        ({"link": "stairs"}, "link must be one of linear, bowl, wave, break, got 'stairs'"),
        ({"rate": 1.0}, "rate must be between 0 and 1, got 1.0"),
        ({"random_state": -1}, "random_state must be .*, got -1"),
        ({"random_state": "a"}, "random_state must be .*, got 'a'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GaussianProblem.draw(4, **options)


def test_rows_of_another_shape_are_refused():
    problem = GaussianProblem.draw(4, random_state=0)
    with pytest.raises(ValueError, match="X must have 4 features, as the problem has; got 3"):
        problem.predict_bayes(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"X must have two dimensions, .* got shape \(4,\)"):
        problem.predict_bayes(np.zeros(4))
    probit_problem = GaussianProblem.draw(4, "self-masking-probit", random_state=0)
    with pytest.raises(ValueError, match="no closed form for ProbitSelfMasking"):
        probit_problem.impute_bayes(np.zeros((2, 4)))
