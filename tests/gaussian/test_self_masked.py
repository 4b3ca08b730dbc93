"""A Gaussian that hides itself, against the textbook, against integrals, and against the exact oracles."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import gaussian as oracle
from scipy import special
from scipy.stats import chi2, kstest
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.mask_factors import FLATTEST, GaussianMaskFactor, ProbitMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian
from papers.problems.gaussian_score import GaussianScore
from papers.problems.links import Linear
from papers.problems.probit import ProbitSelfMasked

SEEDS = st.integers(0, 2**16)
GRID = np.linspace(-12.0, 12.0, 301)
STEP = GRID[1] - GRID[0]


def random_gaussian(seed, n_features):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_features, n_features + 1))
    covariance = root @ root.T / (n_features + 1) + 0.2 * np.eye(n_features)
    return Gaussian(torch.from_numpy(rng.normal(size=n_features)), torch.from_numpy(covariance))


def random_bump(seed, n_features):
    rng = np.random.default_rng(seed)
    coefficients = np.column_stack(
        [rng.normal(size=n_features), rng.normal(scale=0.7, size=n_features), rng.normal(size=n_features)]
    )
    active = torch.ones(n_features, dtype=torch.bool)
    return SelfMaskedGaussian(
        random_gaussian(seed + 1, n_features), GaussianMaskFactor(active, torch.from_numpy(coefficients))
    )


def random_probit(seed, n_features, slope=1.0):
    rng = np.random.default_rng(seed)
    coefficients = np.column_stack([slope * rng.normal(size=n_features), 0.5 * rng.normal(size=n_features)])
    active = torch.ones(n_features, dtype=torch.bool)
    gaussian = random_gaussian(seed + 1, n_features)
    return SelfMaskedGaussian(gaussian, ProbitMaskFactor(active, torch.from_numpy(coefficients)))


def random_batch(seed, n_rows, n_features, rate=0.5):
    rng = np.random.default_rng(seed + 2)
    observed = rng.random((n_rows, n_features)) >= rate
    observed[0], observed[-1] = True, False
    return Incomplete(torch.from_numpy(2 * rng.normal(size=observed.shape)), torch.from_numpy(observed))


def every_pattern(n_features, seed=0):
    observed = torch.tensor(list(itertools.product([True, False], repeat=n_features)))
    x = np.random.default_rng(seed).normal(size=observed.shape)
    return Incomplete(torch.from_numpy(x), observed)


def log_hidden(mask, x):
    """The log probability of being hidden, from the definition; x is (*, D)."""
    if isinstance(mask, GaussianMaskFactor):
        centre, precision, height = (part.numpy() for part in (mask.centre, mask.precision, mask.height))
        return np.log(height) - 0.5 * precision * (x - centre) ** 2
    slope, intercept = mask.coefficients.numpy().T
    return special.log_ndtr(slope * x + intercept)


def log_shown(mask, x):
    if isinstance(mask, GaussianMaskFactor):
        return np.log1p(-np.exp(log_hidden(mask, x)))
    slope, intercept = mask.coefficients.numpy().T
    return special.log_ndtr(-(slope * x + intercept))


def grid_points(n_features):
    return np.array(list(itertools.product(GRID, repeat=n_features))).reshape(
        -1 if n_features else 1, n_features
    )


def by_quadrature(model, row, observed):
    """Log density with the mask, and mean and covariance of the one or two hidden cells, on a grid."""
    hidden = np.flatnonzero(~observed)
    points = grid_points(len(hidden))
    x = np.tile(row, (len(points), 1))
    x[:, hidden] = points
    loc, covariance = model.loc.numpy(), model.covariance.numpy()
    centred = np.linalg.solve(np.linalg.cholesky(covariance), (x - loc).T)
    log_p = -0.5 * (centred**2).sum(axis=0) - 0.5 * np.linalg.slogdet(2 * math.pi * covariance)[1]
    log_p = log_p + np.where(observed, log_shown(model.mask, x), log_hidden(model.mask, x)).sum(axis=1)
    log_total = special.logsumexp(log_p) + len(hidden) * math.log(STEP)
    weights = np.exp(log_p - log_total) * STEP ** len(hidden)
    mean = weights @ points
    return log_total, mean, (points - mean).T @ (weights[:, None] * (points - mean))


def textbook(model, row, observed):
    """Proposition 2.2 with its submatrices: mean and covariance of the hidden cells under a bump."""
    loc, covariance = model.loc.numpy(), model.covariance.numpy()
    mean, rest = oracle.conditional(loc, covariance, row, observed)
    noise = np.diag(1 / model.mask.precision.numpy()[~observed])
    gain = rest @ np.linalg.inv(rest + noise)
    return mean + gain @ (model.mask.centre.numpy()[~observed] - mean), rest - gain @ rest


def test_under_a_bump_every_pattern_has_the_conditionals_of_the_textbook():
    model, batch = random_bump(0, 4), every_pattern(4)
    mean, variance = model.moments(batch)
    for i, (row, observed) in enumerate(zip(batch.x.numpy(), batch.observed.numpy(), strict=True)):
        expected, covariance = textbook(model, row, observed)
        np.testing.assert_allclose(mean[i, ~observed], expected, rtol=EXACT, atol=EXACT)
        np.testing.assert_allclose(variance[i, ~observed], np.diag(covariance), rtol=EXACT, atol=EXACT)
    assert torch.equal(mean[batch.observed], batch.x[batch.observed])
    assert (variance[batch.observed] == 0).all()


@given(seed=SEEDS, rate=st.floats(0, 1), n_features=st.integers(1, 9))
def test_under_a_bump_the_mean_is_that_of_pseudo_observations(seed, rate, n_features):
    model, batch = random_bump(seed, n_features), random_batch(seed, 30, n_features, rate)
    score = GaussianScore(model.loc.numpy(), model.covariance.numpy(), np.ones(n_features), 0.0)
    pseudo = model.mask.centre.numpy(), model.mask.precision.numpy()
    expected = score.conditional_mean(batch.to_array(), *pseudo)
    np.testing.assert_allclose(model.conditional_mean(batch), expected, rtol=1e-8, atol=1e-8)
    _, variance = score.moments(batch.to_array(), *pseudo)
    np.testing.assert_allclose(total_variance(model, batch), variance, rtol=1e-8, atol=1e-8)


def summed_covariance(model, batch, sites, weights=None):
    weights = torch.ones(len(batch), dtype=torch.float64) if weights is None else weights
    return model.condition_and_sum(batch, sites, model._plan(batch.observed), weights)[1]


def total_variance(model, batch):
    """The variance of the sum of the hidden cells of each row, from their weighted covariances."""
    found = []
    for i in range(len(batch)):
        row = batch[i : i + 1]
        sites = model.first_sites(row)
        found.append(summed_covariance(model, row, sites).sum().item())
    return found


@pytest.mark.parametrize("make", [random_bump, random_probit])
@pytest.mark.parametrize("observed", [(True, True), (True, False), (False, True)], ids=str)
def test_with_at_most_one_cell_hidden_everything_is_exact(make, observed):
    model, row, observed = make(3, 2), np.array([0.7, -0.4]), np.array(observed)
    batch = Incomplete(torch.from_numpy(row[None]), torch.from_numpy(observed[None]))
    log_p, mean, covariance = by_quadrature(model, row, observed)
    assert model.log_prob(batch).item() == pytest.approx(log_p, abs=1e-8)
    np.testing.assert_allclose(model.conditional_mean(batch)[0, ~observed], mean, atol=1e-8)
    np.testing.assert_allclose(
        model.conditional_variance(batch)[0, ~observed], covariance.diagonal(), atol=1e-8
    )


@pytest.mark.parametrize("seed", range(5))
def test_with_two_cells_hidden_a_bump_is_exact(seed):
    model, observed = random_bump(seed, 3), np.array([True, False, False])
    batch = Incomplete(torch.full((1, 3), 0.3, dtype=torch.float64), torch.from_numpy(observed[None]))
    log_p, mean, covariance = by_quadrature(model, np.full(3, 0.3), observed)
    assert model.log_prob(batch).item() == pytest.approx(log_p, abs=QUADRATURE)
    np.testing.assert_allclose(model.conditional_mean(batch)[0, 1:], mean, atol=QUADRATURE)
    np.testing.assert_allclose(
        model.conditional_variance(batch)[0, 1:], covariance.diagonal(), atol=QUADRATURE
    )


@pytest.mark.parametrize(("slope", "tolerance"), [(0.5, 1e-4), (1.0, 1e-3), (5.0, 1e-2)])
@pytest.mark.parametrize("seed", range(3))
def test_with_two_cells_hidden_a_probit_is_as_close_as_expectation_propagation_comes(seed, slope, tolerance):
    model, observed = random_probit(seed, 2, slope), np.array([False, False])
    batch = Incomplete(torch.full((1, 2), math.nan, dtype=torch.float64), torch.from_numpy(observed[None]))
    log_p, mean, covariance = by_quadrature(model, np.zeros(2), observed)
    assert model.log_prob(batch).item() == pytest.approx(log_p, abs=tolerance)
    np.testing.assert_allclose(model.conditional_mean(batch)[0], mean, atol=tolerance)
    np.testing.assert_allclose(model.conditional_variance(batch)[0], covariance.diagonal(), atol=tolerance)


@pytest.mark.parametrize("make", [random_bump, random_probit])
@pytest.mark.parametrize(("n_features", "tolerance"), [(1, QUADRATURE), (2, 1e-3)])
def test_summed_over_masks_and_integrated_over_values_the_density_is_one(make, n_features, tolerance):
    """In two dimensions the probit hides both cells with a probability that is approximate."""
    model, total = make(5, n_features), 0.0
    tolerance = QUADRATURE if make is random_bump else tolerance
    for observed in itertools.product([True, False], repeat=n_features):
        n_seen = sum(observed)
        points = grid_points(n_seen)
        x = torch.zeros(len(points), n_features, dtype=torch.float64)
        x[:, list(np.flatnonzero(observed))] = torch.from_numpy(points)
        log_p = model.log_prob(Incomplete(x, torch.tensor([observed]).expand(len(points), -1)))
        total += log_p.exp().sum().item() * STEP**n_seen
    assert total == pytest.approx(1.0, abs=tolerance)


def test_the_height_of_a_bump_cancels_in_conditionals_and_not_in_the_density():
    model, batch = random_bump(7, 3), random_batch(7, 20, 3)
    coefficients = model.mask.coefficients.clone()
    coefficients[:, 2] += 1.0
    other = SelfMaskedGaussian(model.gaussian, GaussianMaskFactor(model.mask.active, coefficients))
    for one, two in zip(model.moments(batch), other.moments(batch), strict=True):
        assert torch.equal(one, two)
    assert (model.log_prob(batch) != other.log_prob(batch)).all()


def test_a_flat_bump_and_a_flat_probit_are_ignorable():
    gaussian, batch = random_gaussian(1, 4), random_batch(1, 50, 4)
    active = torch.ones(4, dtype=torch.bool)
    flat = torch.tensor([[0.5, math.log(FLATTEST), 0.0]] * 4, dtype=torch.float64)
    level = torch.tensor([[0.0, 0.4]] * 4, dtype=torch.float64)
    plain = gaussian.conditional_mean(batch), gaussian.conditional_variance(batch)
    bump, probit = (
        SelfMaskedGaussian(gaussian, m)
        for m in (GaussianMaskFactor(active, flat), ProbitMaskFactor(active, level))
    )
    for one, two in zip(bump.moments(batch), plain, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=20 * FLATTEST)
    for one, two in zip(probit.moments(batch), plain, strict=True):
        torch.testing.assert_close(one, two, rtol=EXACT, atol=EXACT)
    hidden = (~batch.observed).sum(dim=1).double()
    pattern = hidden * special.log_ndtr(0.4) + (4 - hidden) * special.log_ndtr(-0.4)
    torch.testing.assert_close(
        probit.log_prob(batch), gaussian.log_prob(batch) + pattern, rtol=EXACT, atol=EXACT
    )


@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_features_that_do_not_hide_themselves_are_ignorable(make):
    model, batch = make(1, 4), random_batch(1, 50, 4)
    idle = type(model.mask)(torch.zeros(4, dtype=torch.bool), model.mask.coefficients)
    ignorable = SelfMaskedGaussian(model.gaussian, idle)
    kwargs = {"rtol": EXACT, "atol": EXACT}
    torch.testing.assert_close(ignorable.log_prob(batch), model.gaussian.log_prob(batch), **kwargs)
    torch.testing.assert_close(
        ignorable.conditional_mean(batch), model.gaussian.conditional_mean(batch), **kwargs
    )
    torch.testing.assert_close(
        ignorable.conditional_variance(batch), model.gaussian.conditional_variance(batch), **kwargs
    )


def test_a_probit_agrees_with_importance_sampling():
    """The mean of the sum of five features; 0.01 is allowed for expectation propagation."""
    model, batch = random_probit(11, 5), random_batch(11, 60, 5, rate=0.6)
    score = GaussianScore(model.loc.numpy(), model.covariance.numpy(), np.ones(5), 0.0)
    slope, intercept = model.mask.coefficients.numpy().T
    law = ProbitSelfMasked(score, slope, -intercept, n_draws=20_000)
    expected = law.estimate(batch.to_array(), Linear(), exact=False)
    found = model.conditional_mean(batch).sum(dim=1).numpy()
    z = -special.ndtri(FAILURE_RATE / len(batch))
    assert (np.abs(found - expected.mean) < z * expected.standard_error + 0.01).all()
    ignorable = model.gaussian.conditional_mean(batch).sum(dim=1).numpy()
    assert np.abs(ignorable - expected.mean).mean() > 20 * np.abs(found - expected.mean).mean()


@given(seed=SEEDS, rate=st.floats(0, 1))
@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_values_under_the_mask_are_never_read(make, seed, rate):
    model, batch = make(seed, 4), random_batch(seed, 12, 4, rate)
    poison = Incomplete(torch.where(batch.observed, batch.x, math.nan), batch.observed)
    normals = torch.ones(2, *batch.x.shape, dtype=torch.float64)
    assert torch.equal(model.log_prob(poison), model.log_prob(batch))
    for one, two in zip(model.moments(poison), model.moments(batch), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(
        model.complete(poison.x, poison.observed, normals), model.complete(batch.x, batch.observed, normals)
    )
    assert model.complete(poison.x, poison.observed, normals).isfinite().all()


@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_draws_have_the_conditional_mean_and_covariance(make, generator):
    model, batch = make(13, 5), random_batch(13, 8, 5)
    n_draws = 4000
    normals = torch.randn(n_draws, *batch.x.shape, generator=generator, dtype=torch.float64)
    drawn = model.complete(batch.x, batch.observed, normals).numpy()
    mean = model.conditional_mean(batch).numpy()
    for i, (row, observed) in enumerate(zip(batch.x.numpy(), batch.observed.numpy(), strict=True)):
        hidden = ~observed
        assert np.array_equal(
            drawn[:, i, observed], np.broadcast_to(row[observed], (n_draws, observed.sum()))
        )
        if not hidden.any():
            continue
        alone = batch[i : i + 1]
        covariance = summed_covariance(model, alone, model.converge(alone)[1]).numpy()[np.ix_(hidden, hidden)]
        if make is random_bump:
            np.testing.assert_allclose(covariance, textbook(model, row, observed)[1], atol=EXACT)
        white = np.linalg.solve(np.linalg.cholesky(covariance), (drawn[:, i, hidden] - mean[i, hidden]).T)
        assert kstest((white**2).sum(axis=0), chi2(hidden.sum()).cdf).pvalue > FAILURE_RATE
        assert kstest(white[-1], "norm").pvalue > FAILURE_RATE


@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_draws_may_share_what_was_seen_or_differ_in_it(make, generator):
    model, batch = make(17, 4), random_batch(17, 20, 4)
    normals = torch.randn(3, *batch.x.shape, generator=generator, dtype=torch.float64)
    shared = model.complete(batch.x, batch.observed, normals)
    repeated = model.complete(batch.x.expand(3, -1, -1), batch.observed, normals)
    torch.testing.assert_close(shared, repeated, rtol=1e-12, atol=1e-12)
    shifted = torch.stack([batch.x, batch.x + 1])
    together = model.complete(shifted, batch.observed, normals[:2])
    for s in range(2):
        alone = model.complete(shifted[s], batch.observed, normals[s])
        torch.testing.assert_close(together[s], alone, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.complete(batch.x, batch.observed), model.conditional_mean(batch))


@settings(max_examples=8)
@given(seed=SEEDS, rate=st.floats(0, 1))
@pytest.mark.parametrize("make", [random_bump, random_probit])
def test_results_do_not_depend_on_the_order_of_rows_and_features_or_on_other_rows(make, seed, rate):
    model, batch = make(seed, 5), random_batch(seed, 15, 5, rate)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(seed))
    kwargs = {"rtol": EXACT, "atol": EXACT}
    for answer in (model.log_prob, model.conditional_mean, model.conditional_variance):
        torch.testing.assert_close(answer(batch[order]), answer(batch)[order], **kwargs)
        torch.testing.assert_close(answer(batch[:1]), answer(batch)[:1], **kwargs)
    p = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    gaussian = Gaussian(model.loc[p], model.covariance[p][:, p])
    other = SelfMaskedGaussian(gaussian, type(model.mask)(model.mask.active[p], model.mask.coefficients[p]))
    moved = Incomplete(batch.x[:, p], batch.observed[:, p])
    torch.testing.assert_close(other.log_prob(moved), model.log_prob(batch), **kwargs)
    torch.testing.assert_close(other.conditional_mean(moved), model.conditional_mean(batch)[:, p], **kwargs)


@pytest.mark.parametrize("make", [random_bump, random_probit])
@pytest.mark.parametrize("n_features", [1, 3])
def test_no_rows_and_far_rows_have_finite_answers(make, n_features):
    model = make(19, n_features)
    far = torch.full((3, n_features), 1e6, dtype=torch.float64)
    observed = torch.ones(3, n_features, dtype=torch.bool)
    observed[1], observed[2, 0] = False, False
    for batch in (Incomplete(far, observed), Incomplete(far[:0], observed[:0])):
        drawn = model.complete(batch.x, batch.observed, torch.ones_like(batch.x))
        for answer in (model.log_prob(batch), *model.moments(batch), drawn):
            assert len(answer) == len(batch)
            assert answer.isfinite().all()


@pytest.mark.parametrize("slope", [1e2, 1e4, -1e6])
def test_a_steep_probit_masks_one_side(slope):
    """As the slope grows, a hidden cell alone is a truncated normal."""
    gaussian = Gaussian(torch.zeros(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    mask = ProbitMaskFactor(torch.tensor([True]), torch.tensor([[slope, 0.0]], dtype=torch.float64))
    batch = Incomplete(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[False]]))
    model = SelfMaskedGaussian(gaussian, mask)
    assert model.conditional_mean(batch).item() == pytest.approx(
        math.copysign(math.sqrt(2 / math.pi), slope), abs=1e-4
    )
    assert model.conditional_variance(batch).item() == pytest.approx(1 - 2 / math.pi, abs=1e-4)
    assert model.log_prob(batch).item() == pytest.approx(math.log(0.5), abs=1e-8)


def test_rows_count_by_their_weights():
    model, batch = random_bump(23, 4), random_batch(23, 30, 4)
    weights = torch.arange(30) % 4
    repeated = batch[torch.arange(30).repeat_interleave(weights)]
    weighted = summed_covariance(model, batch, model.first_sites(batch), weights.double())
    expected = summed_covariance(model, repeated, model.first_sites(repeated))
    torch.testing.assert_close(weighted, expected, rtol=EXACT, atol=EXACT)


def test_threads_do_not_change_the_answer(monkeypatch):
    from halfseen._threads import task_threads
    from halfseen.gaussian import self_masked

    model, batch = random_probit(29, 6), random_batch(29, 200, 6)
    alone = model.log_prob(batch)
    monkeypatch.setattr(self_masked, "PARALLEL_CELLS", 0)
    with task_threads():
        assert torch.equal(model.log_prob(batch), alone)


def test_expectation_propagation_has_settled():
    """Far more sweeps move nothing, even for steep probits of features that are nearly one."""
    covariance = torch.full((10, 10), 0.9, dtype=torch.float64) + 0.1 * torch.eye(10, dtype=torch.float64)
    gaussian = Gaussian(torch.zeros(10, dtype=torch.float64), covariance)
    mask = ProbitMaskFactor(
        torch.ones(10, dtype=torch.bool), torch.tensor([[10.0, 0.0]] * 10, dtype=torch.float64)
    )
    model, batch = SelfMaskedGaussian(gaussian, mask), random_batch(31, 50, 10)
    batch = Incomplete(0.5 * batch.x[:, :1] + 0.1 * batch.x, batch.observed)
    posterior, sites = model.converge(batch)
    for _ in range(50):
        sites = model.next_sites(posterior, sites).damped(sites, 0.9)
        posterior = model.condition(batch, sites, model._plan(batch.observed))
    torch.testing.assert_close(model.conditional_mean(batch), posterior.mean, rtol=0, atol=1e-3)


def test_a_row_has_its_sweeps_whoever_is_beside_it():
    model, batch = random_probit(37, 5), random_batch(37, 40, 5)
    together, _ = model.converge(batch)
    for i in range(len(batch)):
        alone, _ = model.converge(batch[i : i + 1])
        torch.testing.assert_close(together.mean[i], alone.mean[0], rtol=0, atol=EXACT)
        torch.testing.assert_close(together.log_evidence[i], alone.log_evidence[0], rtol=0, atol=EXACT)
