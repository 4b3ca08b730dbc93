"""EM for a Gaussian: the textbook step, never downhill, at a stationary point, and what ridge does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import gaussian as oracle
from tolerances import EXACT

from halfseen.data import incomplete as blocks
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian import em
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import EMSettings, choose_ridge, fit_gaussian, maximise, pairwise_gaussian
from halfseen.gaussian.moments import PatternMoments


def make_batch(seed, n_rows=80, n_features=4, rate=0.3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    observed = rng.random(x.shape) >= rate
    return Incomplete(torch.from_numpy(x), torch.from_numpy(observed))


def fit(batch, **settings):
    return fit_gaussian(batch, EMSettings(**settings), generator=torch.Generator().manual_seed(0))


def test_a_step_equals_the_textbook_step():
    """With columns that others do not nearly determine, so that the penalty is the usual one."""
    x = np.random.default_rng(0).normal(size=(80, 4))
    x[:, 1:] += 0.5 * x[:, :-1]
    batch = Incomplete(torch.from_numpy(x / x.std(axis=0)), make_batch(0).observed)
    start = pairwise_gaussian(batch, ridge=0.5)
    assert start.precision.diagonal().max() < 10
    value, following = em._GaussianEM(batch, EMSettings(ridge=0.5), None)._step(start)
    loc, covariance, expected = oracle.em_step(
        start.loc.numpy(), start.covariance.numpy(), batch.x.numpy(), batch.observed.numpy(), 0.5
    )
    np.testing.assert_allclose(following.loc, loc, atol=EXACT)
    np.testing.assert_allclose(following.covariance, covariance, atol=EXACT)
    assert value == pytest.approx(expected, abs=EXACT)


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 0.9), n_rows=st.integers(2, 60))
def test_the_objective_never_falls(seed, rate, n_rows):
    batch = make_batch(seed, n_rows=n_rows, n_features=5, rate=rate)
    objective = fit(batch, ridge=1.0, tolerance=1e-9).objective
    assert (np.diff(objective) >= 0).all()


def test_the_result_is_a_maximum_of_the_observed_likelihood():
    """The gradient of the penalised likelihood, by finite differences of the textbook density, is zero."""
    batch = make_batch(1, n_rows=60, n_features=3)
    ridge = 0.7
    result = fit(batch, ridge=ridge, tolerance=1e-14, max_iterations=2000)
    rows = list(zip(batch.x.numpy(), batch.observed.numpy(), strict=True))

    def objective(loc, covariance):
        total = sum(oracle.log_prob(loc, covariance, x, o) for x, o in rows)
        return total - 0.5 * ridge * (np.linalg.slogdet(covariance)[1] + np.trace(np.linalg.inv(covariance)))

    loc, covariance = result.gaussian.loc.numpy(), result.gaussian.covariance.numpy()
    step = 1e-5
    for i in range(3):
        move = np.eye(3)[i] * step
        slope = (objective(loc + move, covariance) - objective(loc - move, covariance)) / (2 * step)
        assert abs(slope) < 1e-4
        for j in range(i, 3):
            move = np.zeros((3, 3))
            move[i, j] = move[j, i] = step
            slope = (objective(loc, covariance + move) - objective(loc, covariance - move)) / (2 * step)
            assert abs(slope) < 1e-4


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 0.6), closeness=st.sampled_from([1e-1, 1e-3, 1e-6, 0.0]))
def test_the_objective_never_falls_with_columns_that_are_nearly_copies(seed, rate, closeness):
    rng = np.random.default_rng(seed)
    batch = make_batch(seed, n_features=3, rate=rate)
    copies = batch.x + closeness * torch.from_numpy(rng.normal(size=batch.x.shape))
    observed = torch.from_numpy(rng.random(copies.shape) >= rate)
    both = Incomplete(torch.cat([batch.x, copies], dim=1), torch.cat([batch.observed, observed], dim=1))
    result = fit(both, ridge=1.0, tolerance=1e-9)
    assert (np.diff(result.objective) >= 0).all()
    assert torch.linalg.eigvalsh(result.gaussian.covariance).min() > 1e-12


@pytest.mark.parametrize("correlation", [0.9, 0.999, 0.99999, 0.9999999])
def test_the_residual_of_a_near_copy_is_not_inflated(correlation):
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    y = correlation * x + np.sqrt(1 - correlation**2) * rng.normal(size=2000)
    observed = np.column_stack([np.ones(2000, dtype=bool), rng.random(2000) < 0.7])
    batch = Incomplete(torch.from_numpy(np.column_stack([x, y])), torch.from_numpy(observed))
    residual = 1 / fit(batch).gaussian.precision[1, 1]
    seen = observed[:, 1]
    expected = np.var(y[seen] - np.polyval(np.polyfit(x[seen], y[seen], 1), x[seen]))
    assert residual == pytest.approx(expected, rel=0.02)


def test_complete_data_give_the_sample_moments():
    batch = make_batch(2, rate=0.0)
    result = fit(batch, ridge=0.0)
    np.testing.assert_allclose(result.gaussian.loc, batch.x.mean(dim=0), atol=EXACT)
    np.testing.assert_allclose(result.gaussian.covariance, np.cov(batch.x.T, bias=True), atol=1e-8)


def test_extrapolation_only_saves_iterations(monkeypatch):
    batch = make_batch(4, n_rows=200, n_features=6, rate=0.6)
    fast = fit(batch, tolerance=1e-10, max_iterations=5000)
    monkeypatch.setattr(em, "_extrapolate", lambda first, second, third: third)
    plain = fit(batch, tolerance=1e-10, max_iterations=5000)
    assert len(fast.objective) < len(plain.objective) / 2
    assert fast.objective[-1] == pytest.approx(plain.objective[-1], abs=1e-7)


def test_a_run_cut_short_returns_a_point_that_was_reached_by_plain_steps():
    batch = make_batch(6, n_rows=200, n_features=6, rate=0.6)
    for n_iterations in range(1, 8):
        result = fit(batch, max_iterations=n_iterations, tolerance=0.0)
        value, _ = em._GaussianEM(batch, EMSettings(), None)._step(result.gaussian)
        assert value >= result.objective[-1]


def test_a_warm_start_on_a_subset_leads_to_the_same_maximum(monkeypatch):
    batch = make_batch(8, n_rows=600)
    cold = fit(batch, tolerance=1e-12, max_iterations=1000)
    monkeypatch.setattr(em, "WARM_UP_ROWS", 100)
    warm = fit(batch, tolerance=1e-12, max_iterations=1000)
    np.testing.assert_allclose(warm.gaussian.covariance, cold.gaussian.covariance, atol=1e-5)


def test_more_features_than_rows_is_positive_definite():
    batch = make_batch(9, n_rows=15, n_features=53)
    result = fit(batch, ridge=1.0)
    assert torch.linalg.eigvalsh(result.gaussian.covariance).min() >= 1.0 / 16 - 1e-9


def test_dependent_columns_without_ridge_are_explained():
    batch = Incomplete.from_array(np.eye(3))  # every row sums to one
    with pytest.raises(ValueError, match=r"singular with ridge=0: .* Increase the parameter ridge"):
        fit(batch, ridge=0.0)


def test_the_ridge_follows_the_data():
    """Independent columns call for a large ridge, strongly dependent ones for a small one."""
    rng = np.random.default_rng(0)
    settings, generator = EMSettings(), torch.Generator().manual_seed(0)
    noise = Incomplete.from_array(rng.normal(size=(60, 20)))
    factor = rng.normal(size=(60, 1)) + 0.05 * rng.normal(size=(60, 20))
    dependent = Incomplete.from_array(factor / factor.std(axis=0))
    assert choose_ridge(noise, settings, generator=generator) >= 30
    assert choose_ridge(dependent, settings, generator=generator) <= 1


def test_ample_rows_need_no_choice_of_ridge(monkeypatch):
    def refuse(*args, **keywords):
        raise AssertionError("no fit is needed")

    monkeypatch.setattr(em, "fit_gaussian", refuse)
    batch = make_batch(0, n_rows=200)
    assert choose_ridge(batch, EMSettings(), generator=torch.Generator()) == em.DEFAULT_RIDGE


def test_the_callback_sees_every_iteration():
    seen = []
    fit_gaussian(
        make_batch(0),
        EMSettings(),
        generator=torch.Generator().manual_seed(0),
        callback=lambda i, value: seen.append((i, value)),
    )
    assert [i for i, _ in seen] == list(range(len(seen)))
    assert len(seen) >= 2


def test_an_extrapolation_that_is_not_positive_definite_is_shortened():
    eye = torch.eye(2, dtype=torch.float64)
    loc = torch.zeros(2, dtype=torch.float64)
    shrinking = [Gaussian(loc, scale * eye) for scale in (1.0, 0.5, 0.3)]
    assert torch.linalg.eigvalsh(em._extrapolate(*shrinking).covariance).min() > 0


def table_with_few_patterns(generator, weighted, n_rows=3000):
    x = torch.randn(n_rows, 4, generator=generator, dtype=torch.float64) @ torch.randn(
        4, 4, generator=generator, dtype=torch.float64
    )
    batch = Incomplete(x + 0.5, torch.rand(x.shape, generator=generator) > 0.3)
    return batch, torch.rand(n_rows, generator=generator, dtype=torch.float64) + 0.5 if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_the_size_of_pieces_changes_rounding_only(generator, weighted, monkeypatch):
    batch, weights = table_with_few_patterns(generator, weighted)
    settings = EMSettings(max_iterations=5)
    start = Gaussian(torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64))
    whole = em._GaussianEM(batch, settings, weights).run(start, None)
    monkeypatch.setattr(blocks, "MOST_ROWS", 512)
    algorithm = em._GaussianEM(batch, settings, weights)
    assert len(algorithm.parts) == 6
    pieces = algorithm.run(start, None)
    torch.testing.assert_close(pieces.gaussian.loc, whole.gaussian.loc, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pieces.gaussian.covariance, whole.gaussian.covariance, rtol=1e-12, atol=1e-12)
    assert pieces.objective == pytest.approx(whole.objective, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_a_fit_to_moments_of_patterns_is_the_fit_to_rows(generator, weighted, ridge):
    """To convergence, with rows that show everything and rows that show nothing."""
    batch, weights = table_with_few_patterns(generator, weighted)
    assert {0, 4} <= set(batch.observed.sum(dim=1).tolist())
    settings = EMSettings(ridge=ridge)
    by_moments = fit_gaussian(batch, settings, generator=generator, weights=weights)
    first = pairwise_gaussian(batch, ridge) if weights is None else by_moments.gaussian
    by_rows = em._GaussianEM(batch, settings, weights).run(first, None)
    if weighted:  # pairwise moments of rows ignore weights, so that both start from one fit
        by_moments = fit_gaussian(batch, settings, generator=generator, weights=weights, start=first)
    assert len(by_moments.objective) == len(by_rows.objective)
    torch.testing.assert_close(by_moments.gaussian.loc, by_rows.gaussian.loc, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        by_moments.gaussian.covariance, by_rows.gaussian.covariance, rtol=1e-12, atol=1e-12
    )
    assert by_moments.objective == pytest.approx(by_rows.objective, rel=1e-12)


def test_columns_that_are_nearly_one_are_fitted_to_moments_as_to_rows(generator):
    """Five steps: in such a table, later ones enlarge the rounding of rows in another order just as much."""
    batch, _ = table_with_few_patterns(generator, weighted=False)
    noise = 1e-4 * torch.randn(len(batch), generator=generator, dtype=torch.float64)
    batch.x[:, 3] = batch.x[:, 0] + noise
    settings = EMSettings(ridge=1.0, max_iterations=5)
    start = pairwise_gaussian(batch, 1.0)
    by_rows = em._GaussianEM(batch, settings, None).run(start, None).gaussian
    by_moments = fit_gaussian(batch, settings, generator=generator, start=start).gaussian
    torch.testing.assert_close(by_moments.precision, by_rows.precision, rtol=1e-8, atol=1e-6)
    torch.testing.assert_close(by_moments.covariance, by_rows.covariance, rtol=1e-10, atol=1e-12)


def test_merged_moments_of_blocks_are_those_of_all_rows(generator, monkeypatch):
    batch, weights = table_with_few_patterns(generator, weighted=True)
    whole = PatternMoments.of(batch, weights)
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    merged = PatternMoments.of_table(batch, weights)
    assert torch.equal(merged.patterns, whole.patterns)
    assert merged.n_rows == whole.n_rows == len(batch)
    for name in ("counts", "sums", "products"):
        torch.testing.assert_close(getattr(merged, name), getattr(whole, name), rtol=1e-12, atol=1e-10)
    position = int((whole.patterns == torch.tensor([True, False, True, True])).all(dim=1).nonzero())
    rows = (batch.observed == whole.patterns[position]).all(dim=1)
    x = batch.filled()[rows]
    torch.testing.assert_close(whole.products[position], x.T @ (weights[rows, None] * x))


def test_few_patterns_are_fitted_without_rows_and_others_with_them(generator, monkeypatch):
    calls = []
    monkeypatch.setattr(em, "fit_from_moments", lambda *args, **kwargs: calls.append(args))
    few, _ = table_with_few_patterns(generator, weighted=False)
    fit_gaussian(few, EMSettings(), generator=generator)
    assert len(calls) == 1
    many = Incomplete(*(part[:200] for part in (few.x, few.observed)))
    fit_gaussian(many, EMSettings(), generator=generator)
    assert len(calls) == 1


def test_moments_have_no_rank(generator):
    batch, _ = table_with_few_patterns(generator, weighted=False, n_rows=50)
    with pytest.raises(ValueError, match="A covariance of rank 2 is fitted to rows"):
        em.fit_from_moments(PatternMoments.of_table(batch), EMSettings(rank=2))


def test_the_m_step_of_blocks_is_that_of_all_rows(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 3, generator=generator, dtype=torch.float64) + 5.0
    weights = torch.rand(1000, generator=generator, dtype=torch.float64)
    covariance, pseudo = 7.0 * torch.eye(3, dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0])
    for sharing in (None, weights):
        total = 1000.0 if sharing is None else float(weights.sum())
        w = torch.ones(1000).double() if sharing is None else weights
        loc = (w[:, None] * x).sum(dim=0) / total
        scatter = torch.einsum("n,ni,nj->ij", w, x - loc, x - loc) + covariance + pseudo.double().diag()
        monkeypatch.setattr(blocks, "MOST_ROWS", 256)
        found = maximise(x, covariance, 2.0, pseudo, sharing)
        torch.testing.assert_close(found.loc, loc, rtol=EXACT, atol=EXACT)
        torch.testing.assert_close(found.covariance, scatter / (total + 2.0), rtol=EXACT, atol=EXACT)
