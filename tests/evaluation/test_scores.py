"""Scores equal hand computations, scipy and scikit-learn; distributions are scored as theory says."""

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn import metrics
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.evaluation import scores


def test_scale_is_learned_from_observed_training_cells_alone():
    train = np.array([[1.0, 10.0], [3.0, np.nan], [np.nan, 30.0]])
    scale = scores.Scale.fit(train)
    np.testing.assert_allclose(scale.loc, [2.0, 20.0])
    np.testing.assert_allclose(scale.scale, [1.0, 10.0])
    np.testing.assert_allclose(scale.forward([[4.0, 0.0]]), [[2.0, -2.0]])


@pytest.mark.parametrize("column", [[5.0, 5.0], [np.nan, np.nan], [1e9, 1e9]])
def test_a_column_without_spread_keeps_its_unit(column):
    assert scores.Scale.fit(np.array(column)[:, None]).scale.tolist() == [1.0]


def test_errors_equal_scikit_learns():
    rng = np.random.default_rng(0)
    truth, filled = rng.normal(size=(2, 50))
    assert scores.rmse(truth, filled) == pytest.approx(metrics.root_mean_squared_error(truth, filled), EXACT)
    assert scores.mae(truth, filled) == pytest.approx(metrics.mean_absolute_error(truth, filled), EXACT)


def test_log_loss_equals_scikit_learns_in_the_order_of_the_levels():
    rng = np.random.default_rng(0)
    truth, chances = rng.integers(0, 4, 60), rng.dirichlet(np.ones(4), 60)
    expected = metrics.log_loss(truth, chances, labels=[0, 1, 2, 3])
    assert scores.log_loss(truth, chances) == pytest.approx(expected, EXACT)
    assert scores.log_loss(truth, chances[:, ::-1]) != pytest.approx(expected, 0.01)


def test_an_impossible_level_costs_much_but_not_infinitely():
    assert 30 < scores.log_loss([0], [[0.0, 1.0]]) < 40


@pytest.mark.parametrize("fair", [True, False])
@pytest.mark.parametrize("n_draws", [1, 2, 7])
def test_crps_from_draws_equals_the_double_sum(fair, n_draws):
    rng = np.random.default_rng(n_draws)
    truth, draws = rng.normal(size=5), rng.normal(size=(n_draws, 5))
    pairs = np.abs(draws[:, None] - draws[None]).sum(axis=(0, 1))
    count = max(n_draws * (n_draws - 1), 1) if fair else n_draws**2
    expected = np.abs(draws - truth).mean(axis=0) - pairs / (2 * count)
    np.testing.assert_allclose(scores.crps_draws(truth, draws, fair=fair), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(("z", "mean", "spread"), [(0.0, 0.0, 1.0), (2.5, 1.0, 0.5), (-3.0, 1.0, 2.0)])
def test_gaussian_crps_equals_the_integral_of_its_definition(z, mean, spread):
    def gap(y):
        return (stats.norm.cdf(y, mean, spread) - (y >= z)) ** 2

    low, high = min(z, mean) - 12 * spread, max(z, mean) + 12 * spread
    below = integrate.quad(gap, low, z, epsabs=1e-10)[0]
    above = integrate.quad(gap, z, high, epsabs=1e-10)[0]
    assert scores.crps_gaussian(z, mean, spread) == pytest.approx(below + above, abs=QUADRATURE)


def test_gaussian_crps_without_spread_is_the_absolute_error():
    np.testing.assert_array_equal(scores.crps_gaussian([1.0, 2.0], 0.0, [0.0, 0.0]), [1.0, 2.0])


def test_fair_crps_of_few_draws_has_the_expectation_of_the_closed_form():
    """Over 40,000 cells with 3 draws each; the plain form is too high, by far more than the error."""
    rng = np.random.default_rng(0)
    n = 40_000
    mean, spread, truth = rng.normal(size=n), rng.uniform(0.5, 2, n), rng.normal(size=n)
    draws = mean + spread * rng.normal(size=(3, n))
    exact = scores.crps_gaussian(truth, mean, spread)
    assert stats.ttest_rel(scores.crps_draws(truth, draws), exact).pvalue > FAILURE_RATE
    assert stats.ttest_rel(scores.crps_draws(truth, draws, fair=False), exact).pvalue < FAILURE_RATE


def test_crps_from_many_draws_converges_to_the_closed_form():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=20)
    exact = scores.crps_gaussian(truth, 0.3, 1.5)
    errors = [
        np.abs(scores.crps_draws(truth, 0.3 + 1.5 * rng.normal(size=(s, 20))) - exact).mean()
        for s in (100, 10_000)
    ]
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 4  # a tenth, in expectation


def test_intervals_of_a_correct_model_cover_at_their_level():
    rng = np.random.default_rng(0)
    mean, spread = rng.normal(size=20_000), rng.uniform(0.5, 2, 20_000)
    truth = mean + spread * rng.normal(size=20_000)
    for level in (0.5, 0.9, 0.95):
        low, high = stats.norm.interval(level, mean, spread)
        inside = round(scores.coverage(truth, low, high) * len(truth))
        assert stats.binomtest(inside, len(truth), level).pvalue > FAILURE_RATE
        assert stats.binomtest(inside, len(truth), level - 0.03).pvalue < FAILURE_RATE


def test_the_interval_score_prefers_the_true_quantiles():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=20_000)

    def score(half):
        ends = np.full(len(truth), half)
        return scores.interval_score(truth, -ends, ends, level=0.9)

    right = stats.norm.ppf(0.95)
    assert score(right) < min(score(0.7 * right), score(1.3 * right))
    assert scores.interval_score([3.0], [0.0], [1.0], level=0.5) == pytest.approx(1 + 4 * 2)


def test_width_and_coverage_include_the_ends():
    assert scores.coverage([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]) == 1.0
    assert scores.width([0.0, 0.0], [1.0, 2.0]) == 1.5


def test_r2_minus_bayes_is_the_difference_of_two_r2():
    rng = np.random.default_rng(0)
    y, predicted, bayes = rng.normal(size=(3, 40))
    expected = metrics.r2_score(y, predicted) - metrics.r2_score(y, bayes)
    assert scores.r2_minus_bayes(y, predicted, bayes) == pytest.approx(expected, abs=EXACT)
    assert scores.r2_minus_bayes(y, bayes, bayes) == 0


def test_no_cells_have_no_score():
    empty = np.empty(0)
    for score in (scores.rmse, scores.mae, scores.accuracy, scores.width):
        assert np.isnan(score(empty, empty))
    assert np.isnan(scores.coverage(empty, empty, empty))
    assert np.isnan(scores.interval_score(empty, empty, empty))
    assert np.isnan(scores.log_loss(empty, np.empty((0, 3))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scores.rmse([1.0], [1.0, 2.0]), r"one shape \(n_cells,\), got \(1,\) and \(2,\)"),
        (lambda: scores.log_loss([2], [[0.5, 0.5]]), "Level .*2.* outside the 2 levels"),
        (lambda: scores.log_loss([0, 1], [[0.5, 0.5]]), r"shape \(2, n_levels\)"),
        (lambda: scores.crps_draws([1.0], np.empty((0, 1))), "at least one draw"),
        (lambda: scores.crps_draws([1.0], [[1.0, 2.0]]), r"shape \(n_draws, 1\)"),
        (lambda: scores.log_loss([0.5], [[0.5, 0.5]]), "Level .*0.5.* outside the 2 levels"),
        (lambda: scores.log_loss([np.nan], [[0.5, 0.5]]), "Level .*nan.* outside the 2 levels"),
        (lambda: scores.log_loss([0], [[3.0, 2.0]]), "Probabilities must be between 0 and 1"),
        (lambda: scores.crps_gaussian([0.0, 1.0], [[0.0], [1.0]], 1.0), r"one shape, got \(2,\), \(2, 1\)"),
        (lambda: scores.crps_gaussian([0.0], [0.0], [-1.0]), "scale must not be negative, got -1"),
        (lambda: scores.coverage([0.0, 1.0], [[0.0], [1.0]], [1.0, 2.0]), r"one shape, got \(2,\), \(2, 1\)"),
        (lambda: scores.interval_score([1.0], [2.0], [0.0]), "Interval 0 ends before it begins: 2 > 0"),
        (lambda: scores.width([0.0, 2.0], [1.0, 0.0]), "Interval 1 ends before it begins"),
        (lambda: scores.interval_score([1.0], [0.0], [1.0], level=1.0), "between 0 and 1, got 1.0"),
        (lambda: scores.r2_minus_bayes([1.0, 1.0], [1.0, 1.0], [1.0, 1.0]), "one value only"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------------- calibration


def test_calibration_error_of_one_column_equals_a_hand_computation():
    """Bins of width 1/4: (0.1, 0.25) hold 1 of 2; (0.3) 0 of 1; (0.6) 1 of 1; (0.8, 0.9, 1.0) 2 of 3."""
    y = [0, 1, 0, 1, 1, 0, 1]
    chances = [0.1, 0.25, 0.3, 0.6, 0.8, 0.9, 1.0]
    expected = (abs(1 - 0.35) + abs(0 - 0.3) + abs(1 - 0.6) + abs(2 - 2.7)) / 7
    assert scores.expected_calibration_error(y, chances, n_bins=4) == pytest.approx(expected, abs=EXACT)
    nothing = scores.expected_calibration_error([1, 0], [0.0, 0.1], n_bins=4)  # 0 is in the first bin too
    assert nothing == pytest.approx(0.9 / 2, abs=EXACT)


def test_calibration_error_of_several_classes_is_that_of_the_top_label():
    """Top labels 0, 1, 2, 0 with 0.5, 0.6, 0.9, 0.4: right, wrong, right, right (a tie goes to the first)."""
    chances = [[0.5, 0.2, 0.3], [0.3, 0.6, 0.1], [0.0, 0.1, 0.9], [0.4, 0.4, 0.2]]
    y = [0, 0, 2, 0]
    halves = (abs(2 - 0.9) + abs(1 - 1.5)) / 4  # 0.5 belongs to the lower bin
    assert scores.expected_calibration_error(y, chances, n_bins=2) == pytest.approx(halves, abs=EXACT)
    assert scores.expected_calibration_error(y, chances, n_bins=1) == pytest.approx(0.6 / 4, abs=EXACT)


def test_certain_predictions_err_by_the_share_of_wrong_ones():
    certain = np.eye(3)[[0, 1, 2, 2]]
    assert scores.expected_calibration_error([0, 1, 2, 1], certain) == pytest.approx(0.25, abs=EXACT)
    assert scores.expected_calibration_error([0, 1, 1, 1], [0.0, 1.0, 1.0, 0.0]) == 0.25
    assert scores.expected_calibration_error([0, 1, 0, 1], [0.0, 1.0, 0.0, 1.0]) == 0.0


@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_calibration_error_equals_a_loop_over_bins(n_bins):
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(4), 300)
    y = rng.integers(0, 4, 300)
    top, right = chances.max(axis=1), chances.argmax(axis=1) == y
    expected = 0.0
    for b in range(n_bins):
        inside = (top > b / n_bins) & (top <= (b + 1) / n_bins)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - top[inside].mean())
    got = scores.expected_calibration_error(y, chances, n_bins)
    assert got == pytest.approx(expected, abs=EXACT)


def test_calibration_error_of_the_true_probabilities_vanishes_with_rows_and_of_others_does_not():
    rng = np.random.default_rng(0)
    chance = rng.uniform(size=100_000)
    y = (rng.uniform(size=100_000) < chance).astype(int)
    assert scores.expected_calibration_error(y, chance) < 0.01
    assert scores.expected_calibration_error(y, chance**2) == pytest.approx(1 / 6, abs=0.01)  # E[p - p^2]


def test_no_rows_have_no_calibration_error():
    assert np.isnan(scores.expected_calibration_error([], []))
    assert np.isnan(scores.expected_calibration_error([], np.empty((0, 3))))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0.5]), r"a probability for each of y, \(2,\), got \(1,\)"),
        (([0], [[[0.5, 0.5]]]), r"a probability for each of y, \(1,\), got \(1, 1, 2\)"),
        (([0], [1.5]), "between 0 and 1"),
        (([0], [np.nan]), "between 0 and 1"),
        (([2], [0.5]), "Class .*2.* is outside the 2 classes"),
        (([3], [[0.2, 0.3, 0.5]]), "Class .*3.* is outside the 3 classes"),
        (([0], [0.5], 0), "n_bins must be at least 1, got 0"),
    ],
)
def test_calibration_error_refuses_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        scores.expected_calibration_error(*arguments)


def test_the_coverage_of_an_unknown_value_is_unknown():
    assert np.isnan(scores.coverage([0.5, np.nan], [0.0, 0.0], [1.0, 1.0]))
    assert np.isnan(scores.coverage([0.5, 0.5], [0.0, np.nan], [1.0, 1.0]))
