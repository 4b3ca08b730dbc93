"""Class probabilities of Gaussian rows with missing values: formulas, integrals, rejection, calibration."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import binomtest, chi2, norm, ttest_rel
from sklearn import metrics
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from papers.problems import (
    Bowl,
    GaussianClassificationProblem,
    GaussianProblem,
    Linear,
    Logistic,
    Probit,
)
from papers.problems.gaussian import MECHANISMS
from papers.tests.problems.oracles import gain_form, orthogonality, patterns, probit_by_grid, score_moments
from papers.tests.problems.pairs import name, pair_with_mechanisms

LINKS = [Probit(), Logistic()]
PAIRS = pair_with_mechanisms(LINKS)
CLOSED = ["mcar", "mar", "self-masking-gaussian"]


def draw(n_features, mechanism="mcar", link="probit", seed=0, **options):
    return GaussianClassificationProblem.draw(
        n_features, mechanism, link, latent_share=0.7, random_state=seed, **options
    )


def every_pattern(law, seed=1):
    observed = patterns(len(law.loc))
    x = np.random.default_rng(seed).multivariate_normal(law.loc, law.covariance, size=len(observed))
    return np.where(observed, x, np.nan), x, observed


def integral(link, mean, variance):
    """E[g(s)] by adaptive quadrature, split where the probability is one half."""
    deviation = np.sqrt(variance)
    middle = np.clip(-mean / deviation, -11, 11)
    halves = [(-12, middle), (middle, 12)]
    return sum(
        quad(lambda z: norm.pdf(z) * link(mean + deviation * z), *half, epsabs=1e-13, limit=500)[0]
        for half in halves
    )


# ------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("variance", [1e-4, 0.3, 1.0, 9.0, 100.0, 1e4])
@pytest.mark.parametrize("link", LINKS, ids=name)
def test_expected_probabilities_equal_integrals_whatever_the_variance(link, variance):
    mean = np.array([-25.0, -6.0, -1.0, 0.0, 0.4, 3.0, 12.0])
    expected = [integral(link, t, variance) for t in mean]
    got = link.expectation(mean, np.full(7, variance))
    np.testing.assert_allclose(got, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("link", LINKS, ids=name)
def test_a_certain_score_has_the_probability_of_the_link_and_a_nearly_certain_one_nearly(link):
    score = np.linspace(-30, 30, 41)
    np.testing.assert_array_equal(link.expectation(score, np.zeros(41)), link(score))
    np.testing.assert_allclose(link.expectation(score, np.full(41, 1e-13)), link(score), rtol=1e-8)


def test_links_are_the_normal_and_the_logistic_distribution_function():
    score = np.linspace(-8, 8, 33)
    np.testing.assert_allclose(Probit()(score), norm.cdf(score), rtol=EXACT)
    np.testing.assert_allclose(Logistic()(score), 1 / (1 + np.exp(-score)), rtol=EXACT)


@pytest.mark.parametrize("link", LINKS, ids=name)
def test_shapes_of_mean_and_variance_broadcast(link):
    mean, variance = np.array([[-1.0], [2.0]]), np.array([0.0, 0.5, 4.0])
    got = link.expectation(mean, variance)
    alone = [[link.expectation(np.array([t]), np.array([v]))[0] for v in variance] for t in mean[:, 0]]
    np.testing.assert_allclose(got, alone, rtol=EXACT)


# ------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("link", LINKS, ids=name)
@pytest.mark.parametrize("mechanism", CLOSED)
def test_probabilities_equal_the_textbook_for_every_pattern(mechanism, link):
    problem = draw(4, mechanism, link)
    incomplete, x, observed = every_pattern(problem.score)
    form = ()
    if mechanism == "self-masking-gaussian":
        form = gain_form, problem.mechanism.centres_, problem.mechanism.variances_
    moments = np.array([score_moments(problem.score, *pair, *form) for pair in zip(x, observed, strict=True)])
    got = problem.predict_bayes(incomplete)
    holes = ~observed.all(axis=1)
    expected = [integral(link, t, v) for t, v in moments[holes]]
    np.testing.assert_allclose(got[holes], expected, rtol=0, atol=EXACT)
    if isinstance(link, Probit):
        closed = norm.cdf(moments[:, 0] / np.sqrt(1 + moments[:, 1]))
        np.testing.assert_allclose(got, closed, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize(
    "link", [LINKS[0], *(pytest.param(link, marks=pytest.mark.slow) for link in LINKS[1:])], ids=name
)
def test_probit_self_masking_equals_an_integral_within_its_error(link):
    problem = draw(3, "self-masking-probit", link)
    incomplete, x, observed = every_pattern(problem.score)
    got = problem.estimate_bayes(incomplete)
    slope, threshold = problem.mechanism.slopes_, problem.mechanism.thresholds_
    expected = np.array([
        probit_by_grid(problem.score, row, seen, slope, threshold, link)
        for row, seen in zip(x, observed, strict=True)
    ])  # fmt: skip
    z = (got.mean - expected) / (got.standard_error + QUADRATURE)
    assert (2 * norm.sf(abs(z))).min() * len(z) > FAILURE_RATE
    assert (got.standard_error < 0.02).all()
    assert (got.standard_error[~observed.all(axis=1)] > 0).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("link", LINKS, ids=name)
def test_complete_rows_have_the_probability_of_their_score(mechanism, link):
    problem = draw(4, mechanism, link)
    X = problem.sample(50, random_state=1).X
    np.testing.assert_array_equal(problem.predict_bayes(X), problem.link(problem.score(X)))


def test_plugging_in_the_expected_score_picks_the_same_class_with_more_confidence():
    problem = draw(5, "self-masking-gaussian", "logistic")
    incomplete, _, observed = every_pattern(problem.score)
    holes = ~observed.all(axis=1)
    best, plugged = (
        predict(incomplete[holes]) for predict in (problem.predict_bayes, problem.predict_plugged_in)
    )
    mean, _ = problem.score.moments(
        incomplete[holes], problem.mechanism.centres_, 1 / problem.mechanism.variances_
    )
    np.testing.assert_allclose(plugged, expit(mean), rtol=EXACT)
    assert ((best > 0.5) == (plugged > 0.5)).all()
    assert (abs(plugged - 0.5) > abs(best - 0.5)).all()


# ------------------------------------------------------------------------------------- simulation


@pytest.mark.parametrize("link", LINKS, ids=name)
@pytest.mark.parametrize("mechanism", ["self-masking-gaussian", "self-masking-probit"])
def test_rejection_sampling_agrees_in_two_dimensions(mechanism, link):
    problem = draw(2, mechanism, link, seed=7)
    law, generator = problem.score, np.random.default_rng(8)
    x = generator.multivariate_normal(law.loc, law.covariance, size=200_000)
    hidden = generator.uniform(size=x.shape) < problem.mechanism.probability(x)
    assert _p_value(problem, x[hidden.all(axis=1)], [np.nan, np.nan], generator) > FAILURE_RATE

    seen = law.loc[0] + 0.7  # the second feature given the first, kept if it hides itself
    gain = law.covariance[0, 1] / law.covariance[0, 0]
    spread = law.covariance[1, 1] - gain * law.covariance[0, 1]
    second = law.loc[1] + gain * (seen - law.loc[0]) + np.sqrt(spread) * generator.normal(size=200_000)
    rows = np.column_stack([np.full(200_000, seen), second])
    kept = generator.uniform(size=200_000) < problem.mechanism.probability(rows)[:, 1]
    assert _p_value(problem, rows[kept], [seen, np.nan], generator) > FAILURE_RATE


def _p_value(problem, kept, row, generator):
    """That the labels of rows which were kept have the probability of the incomplete row."""
    score = problem.score.intercept + kept @ problem.score.coefficients
    noise = {Probit: generator.normal, Logistic: generator.logistic}[type(problem.link)]
    labels = score + noise(size=len(kept)) > 0  # the latent form: no probability is computed
    got = problem.estimate_bayes([row])
    spread = np.hypot(labels.std() / np.sqrt(len(labels)), got.standard_error[0])
    return 2 * norm.sf(abs(labels.mean() - got.mean[0]) / spread)


@pytest.mark.parametrize(("mechanism", "link"), PAIRS)
def test_residuals_of_the_probabilities_depend_on_nothing_that_was_seen(mechanism, link):
    problem = draw(3, mechanism, link, seed=5)
    sample = problem.sample(8000, random_state=6)
    assert orthogonality(sample, problem.predict_bayes(sample.incomplete)) > FAILURE_RATE


def calibration(y, chance, n_bins=20):
    """The p-value of the labels under the probabilities, by a chi-square over bins of one variance each."""
    order = np.argsort(chance, kind="stable")
    variance = (chance * (1 - chance))[order]
    place = np.minimum(n_bins * variance.cumsum() / variance.sum(), n_bins - 1).astype(int)
    excess = np.bincount(place, weights=(y - chance)[order], minlength=n_bins)
    return chi2.sf((excess**2 / np.bincount(place, weights=variance, minlength=n_bins)).sum(), n_bins)


@pytest.mark.parametrize(("mechanism", "link"), PAIRS)
def test_probabilities_are_calibrated(mechanism, link):
    problem = draw(5, mechanism, link, seed=2)
    sample = problem.sample(8000, random_state=3)
    assert calibration(sample.y, problem.predict_bayes(sample.incomplete)) > FAILURE_RATE


@pytest.mark.parametrize("mechanism", ["mcar", "self-masking-gaussian"])
def test_probabilities_at_the_expected_score_are_not_calibrated(mechanism):
    problem = draw(5, mechanism, seed=2)
    sample = problem.sample(8000, random_state=3)
    assert calibration(sample.y, problem.predict_plugged_in(sample.incomplete)) < FAILURE_RATE


def test_ignoring_that_values_hide_themselves_costs_calibration_and_log_loss():
    problem = draw(6, "self-masking-gaussian", seed=2)
    sample = problem.sample(20_000, random_state=3)
    best = problem.predict_bayes(sample.incomplete)
    ignorant = problem.link.expectation(*problem.score.moments(sample.incomplete))
    assert calibration(sample.y, ignorant) < FAILURE_RATE
    for rival in (ignorant, problem.predict_plugged_in(sample.incomplete)):
        losses = [-np.log(np.where(sample.y == 1, p, 1 - p).clip(1e-15)) for p in (best, rival)]
        gap = ttest_rel(*losses)
        assert gap.statistic < 0
        assert gap.pvalue < FAILURE_RATE


# ------------------------------------------------------------------------------------- the law drawn


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_simulator_keeps_its_rates(mechanism):
    problem = draw(6, mechanism, rate=0.3, prevalence=0.2, seed=3)
    X, y, observed = problem.sample(20_000, random_state=4)
    affected = problem.mechanism.columns_
    for j in affected:
        assert binomtest(int((~observed[:, j]).sum()), len(X), 0.3).pvalue > FAILURE_RATE / 10
    assert observed[:, np.setdiff1d(np.arange(6), affected)].all()
    assert binomtest(int(y.sum()), len(y), 0.2).pvalue > FAILURE_RATE


@pytest.mark.parametrize("link", ["probit", "logistic"])
@pytest.mark.parametrize("prevalence", [0.01, 0.5, 0.8])
@pytest.mark.parametrize("variance", [0.25, 9.0])
def test_the_score_has_its_variance_and_the_classes_their_prevalence(link, prevalence, variance):
    problem = draw(5, "mcar", link, prevalence=prevalence, score_variance=variance)
    assert problem.score.variance == pytest.approx(variance, rel=EXACT)
    assert integral(problem.link, problem.score.mean, variance) == pytest.approx(prevalence, abs=EXACT)
    nothing = problem.predict_proba_bayes(np.full((1, 5), np.nan))
    np.testing.assert_allclose(nothing, [[1 - prevalence, prevalence]], rtol=0, atol=EXACT)


def test_labels_are_integers_of_two_values_drawn_with_the_probability_of_complete_rows():
    problem = draw(4, "mar", "logistic")
    X, y, _ = problem.sample(20_000, random_state=0)
    assert y.dtype == np.int64
    assert set(y) == {0, 1}
    assert calibration(y, expit(problem.score.intercept + X @ problem.score.coefficients)) > FAILURE_RATE


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_rows_and_masks_are_those_of_the_regression_problem_of_the_same_seed(mechanism):
    pair = GaussianClassificationProblem, GaussianProblem
    first, second = (cls.draw(5, mechanism, random_state=3).sample(300, random_state=4) for cls in pair)
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.observed, second.observed)


def test_labels_follow_rows_and_mask_in_one_stream_of_the_generator():
    problem = draw(3)
    by_seed, again = problem.sample(200, random_state=4), problem.sample(200, random_state=4)
    by_generator = problem.sample(200, random_state=np.random.RandomState(4))
    np.testing.assert_array_equal(by_seed.y, again.y)
    np.testing.assert_array_equal(by_seed.y, by_generator.y)
    assert problem.sample(200, random_state=np.random.default_rng(4)).y.shape == (200,)


def test_the_accuracy_on_complete_rows_is_the_known_one():
    for deviation in (1.0, 3.0):
        problem = draw(5, score_variance=deviation**2)
        sample = problem.sample(20_000, random_state=1)
        n_right = round(20_000 * problem.bayes_accuracy(sample.X, sample.y))
        expected = 0.5 + np.arctan(deviation) / np.pi
        assert binomtest(n_right, 20_000, expected).pvalue > FAILURE_RATE


def test_bayes_scores_equal_scikit_learns():
    problem = draw(5, "self-masking-gaussian", prevalence=0.3)
    sample = problem.sample(500, random_state=1)
    chances = problem.predict_proba_bayes(sample.incomplete)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=EXACT)
    loss = problem.bayes_log_loss(sample.incomplete, sample.y)
    assert loss == pytest.approx(metrics.log_loss(sample.y, chances), rel=EXACT)
    right = metrics.accuracy_score(sample.y, chances[:, 1] > 0.5)
    assert problem.bayes_accuracy(sample.incomplete, sample.y) == pytest.approx(right, rel=EXACT)


def test_an_impossible_label_costs_much_but_not_infinitely():
    problem = draw(2, score_variance=1e4)
    far = problem.score.loc + 100 * np.sign(problem.score.coefficients)
    assert 30 < problem.bayes_log_loss(far[None], [0]) < 40


# ------------------------------------------------------------------------------------- rows and errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_row_is_predicted_alike_alone_and_in_a_batch(mechanism):
    problem = draw(5, mechanism, "logistic")
    rows = problem.sample(40, random_state=1).incomplete
    alone = np.concatenate([problem.predict_proba_bayes(row[None]) for row in rows])
    np.testing.assert_allclose(problem.predict_proba_bayes(rows), alone, rtol=EXACT, atol=EXACT)
    assert problem.predict_proba_bayes(np.empty((0, 5))).shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanism": "mnar"}, "mechanism must be one of mcar, mar, .*, got 'mnar'"),
        ({"link": "linear"}, "link must be one of probit, logistic, got 'linear'"),
        ({"link": Linear()}, r"link must give probabilities, .* got Linear\(\)"),
        ({"link": Bowl()}, r"link must give probabilities, .* got Bowl\(\)"),
        ({"score_variance": 0.0}, "score_variance must be positive and finite, got 0.0"),
        ({"score_variance": np.inf}, "score_variance must be positive and finite, got inf"),
        ({"prevalence": 1.0}, "prevalence must be between 0 and 1, got 1.0"),
        ({"rate": 0.0}, "rate must be between 0 and 1, got 0.0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GaussianClassificationProblem.draw(4, **options)


def test_a_link_without_probabilities_is_refused_also_without_drawing():
    problem = draw(3)
    with pytest.raises(ValueError, match=r"link must give probabilities, .* got Linear\(\)"):
        GaussianClassificationProblem(problem.score, problem.mechanism, Linear())


@pytest.mark.parametrize("score", ["bayes_log_loss", "bayes_accuracy"])
def test_labels_other_than_two_classes_are_refused(score):
    call = getattr(draw(3), score)
    with pytest.raises(ValueError, match=r"y must be 0 or 1, got .*2"):
        call(np.zeros((2, 3)), [0, 2])
    with pytest.raises(ValueError, match=r"y must have one label for each of 2 rows, got shape \(3,\)"):
        call(np.zeros((2, 3)), [0, 1, 1])


def test_rows_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="X must have 3 features, as the problem has; got 2"):
        draw(3).predict_proba_bayes(np.zeros((2, 2)))
