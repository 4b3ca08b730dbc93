"""Logistic regression on moments, against scikit-learn, integrals and grids."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from sklearn.linear_model import LogisticRegression
from tolerances import EXACT

from halfseen.training.logistic import BLEND_ROWS, SHYEST, LogisticLink, fit_blend, fit_logistic

MACKAY_ERROR = 0.02
"""The largest error of MacKay's probability, found on a fine grid of means and variances."""


def problem(n_classes, n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 3))
    scores = x @ rng.normal(size=(3, n_classes)) + rng.gumbel(size=(n_rows, n_classes))
    return x, scores.argmax(axis=1), rng.integers(0, 4, size=n_rows).astype(float)


def fit(x, y, n_classes, weights, variance=None, **options):
    n_scores = 1 if n_classes == 2 else n_classes
    variance = torch.zeros(len(x), n_scores, dtype=torch.float64) if variance is None else variance
    return fit_logistic(
        torch.from_numpy(x),
        variance,
        torch.from_numpy(y),
        n_classes,
        weights=torch.from_numpy(weights),
        **options,
    )


@pytest.mark.parametrize("ridge", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_without_missing_values_it_is_that_of_scikit_learn(n_classes, ridge):
    x, y, weights = problem(n_classes)
    found = fit(x, y, n_classes, weights, ridge=ridge)
    reference = LogisticRegression(C=1 / ridge, tol=1e-8, max_iter=10_000).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(found.weights.T, reference.coef_, atol=1e-4)
    np.testing.assert_allclose(
        found.bias - found.bias.mean() * (n_classes > 2), reference.intercept_, atol=1e-4
    )


def test_integer_weights_are_repeated_rows():
    x, y, weights = problem(3)
    times = weights.astype(int)
    repeated = fit(x.repeat(times, axis=0), y.repeat(times), 3, np.ones(times.sum()))
    found = fit(x, y, 3, weights)
    torch.testing.assert_close(found.weights, repeated.weights, rtol=0, atol=1e-4)


def test_it_goes_on_from_a_start():
    x, y, weights = problem(3)
    found = fit(x, y, 3, weights)
    again = fit(x, y, 3, weights, start=found)
    torch.testing.assert_close(again.weights, found.weights, rtol=0, atol=1e-4)
    assert not found.weights.requires_grad


@pytest.mark.parametrize("mean", [-4.0, -1.0, 0.0, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("variance", [0.0, 0.1, 1.0, 5.0, 30.0])
def test_an_uncertain_score_gives_nearly_the_expected_probability(mean, variance):
    line = LogisticLink(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64))
    logits = line(
        torch.tensor([[mean]], dtype=torch.float64), torch.tensor([[variance]], dtype=torch.float64)
    )
    found = logits.softmax(dim=1)[0, 1].item()
    centre, spread = mean + 0.3, np.sqrt(variance)
    exact = special.expit(centre)
    if variance:
        exact, _ = integrate.quad(
            lambda s: special.expit(s) * stats.norm.pdf(s, centre, spread),
            centre - 9 * spread,
            centre + 9 * spread,
        )
    assert found == pytest.approx(exact, abs=MACKAY_ERROR if variance else EXACT)


def test_uncertainty_that_is_known_does_not_shrink_the_weights():
    """Scores are seen with noise: a fit that knows of it finds the weights behind the noise."""
    rng = np.random.default_rng(0)
    score = 2.0 * rng.normal(size=20_000)
    hidden = rng.random(20_000) < 0.5
    y = (
        rng.random(20_000) < special.expit(score + np.where(hidden, 3.0 * rng.normal(size=20_000), 0.0))
    ).astype(int)
    variance = torch.from_numpy(np.where(hidden, 9.0, 0.0))[:, None]
    weights = np.ones(20_000)
    aware = fit(score[:, None], y, 2, weights, variance=variance).weights.item()
    naive = fit(score[:, None], y, 2, weights).weights.item()
    assert aware == pytest.approx(1.0, abs=0.05)
    assert naive < 0.8


def blend_problem(seed=0, n_rows=400):
    rng = np.random.default_rng(seed)
    base, extra = rng.normal(size=(2, n_rows, 3))
    logits = 0.6 * base + 1.5 * extra
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return [torch.from_numpy(a) for a in (base, extra, y, rng.random(n_rows))]


def test_a_blend_is_the_best_on_a_grid():
    base, extra, y, weights = blend_problem()

    def loss(a, c):
        fits = torch.nn.functional.cross_entropy(a * base + c * extra, y, reduction="none")
        return (weights * fits).sum().item() + 0.5 * BLEND_ROWS * ((a - 1) ** 2 + (c - 1) ** 2)

    a, c = fit_blend(base, extra, y, weights=weights)
    assert loss(a, c) <= min(loss(a + i, c + j) for i in (-0.01, 0, 0.01) for j in (-0.01, 0, 0.01)) + 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_correction_that_points_the_wrong_way_does_not_count(sign):
    base, extra, y, weights = blend_problem()
    _, share = fit_blend(base, sign * extra, y, weights=weights)
    assert share > 1 if sign > 0 else share == 0.0
    shy, _ = fit_blend(-sign * base - 5 * extra, None, y, weights=weights)
    assert shy == SHYEST


def test_a_full_blend_counts_the_correction_by_one_and_none_by_nothing():
    base, extra, y, weights = blend_problem()
    assert fit_blend(base, extra, y, weights=weights, full=True)[1] == 1.0
    assert fit_blend(base, None, y, weights=weights)[1] == 0.0


def test_a_few_rows_that_are_all_right_do_not_make_bold():
    base = torch.tensor([[2.0, 0.0], [0.0, 2.0]], dtype=torch.float64).repeat(3, 1)
    bold, _ = fit_blend(base, None, torch.tensor([0, 1] * 3), weights=torch.ones(6, dtype=torch.float64))
    assert 1.0 < bold < 1.5
