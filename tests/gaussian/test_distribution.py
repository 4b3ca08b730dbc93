"""The Gaussian with missing values against the textbook, one row at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import gaussian as oracle
from scipy.stats import chi2, kstest
from tolerances import EXACT, FAILURE_RATE

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian, invert_many, plan_buckets


def random_problem(seed, n_rows=40, n_features=7, rate=0.5):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_features, n_features + 1))
    covariance = root @ root.T / n_features + 0.1 * np.eye(n_features)
    loc = rng.normal(size=n_features)
    x = rng.multivariate_normal(loc, covariance, size=n_rows)
    observed = rng.random((n_rows, n_features)) >= rate
    observed[: n_rows // 4] = observed[0]  # many rows of one pattern
    observed[-1], observed[-2] = True, False
    gaussian = Gaussian(torch.from_numpy(loc), torch.from_numpy(covariance))
    return gaussian, Incomplete(torch.from_numpy(x), torch.from_numpy(observed))


def textbook(gaussian, batch):
    loc, covariance = gaussian.loc.numpy(), gaussian.covariance.numpy()
    for x, observed in zip(batch.x.numpy(), batch.observed.numpy(), strict=True):
        yield oracle.conditional(loc, covariance, x, observed), oracle.log_prob(loc, covariance, x, observed)


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 1), n_features=st.integers(1, 70))
def test_mean_variance_and_density_equal_the_textbook(seed, rate, n_features):
    gaussian, batch = random_problem(seed, n_features=n_features, rate=rate)
    mean, variance = gaussian.conditional_mean(batch), gaussian.conditional_variance(batch)
    log_prob = gaussian.log_prob(batch)
    for i, ((expected, covariance), density) in enumerate(textbook(gaussian, batch)):
        missing = ~batch.observed[i]
        np.testing.assert_allclose(mean[i, missing], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(variance[i, missing], np.diag(covariance), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(log_prob[i], density, rtol=1e-8, atol=1e-8)
    assert torch.equal(mean[batch.observed], batch.x[batch.observed])
    assert (variance[batch.observed] == 0).all()


@pytest.mark.parametrize("rate", [0.2, 0.8])
def test_both_sides_of_the_inverse_give_the_same_statistics(rate):
    """Few missing features go by the precision, many by the covariance; the sums must agree."""
    gaussian, batch = random_problem(3, n_rows=60, rate=rate)
    statistics = gaussian.statistics(batch, plan_buckets(batch.observed))
    total = np.zeros((7, 7))
    for i, ((_, covariance), _) in enumerate(textbook(gaussian, batch)):
        missing = ~batch.observed[i].numpy()
        total[np.ix_(missing, missing)] += covariance
    np.testing.assert_allclose(statistics.covariance, total, rtol=EXACT, atol=EXACT)
    assert torch.equal(statistics.completed[batch.observed], batch.x[batch.observed])


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 1))
def test_values_under_the_mask_are_never_read(seed, rate):
    gaussian, batch = random_problem(seed, rate=rate)
    poison = Incomplete(torch.where(batch.observed, batch.x, torch.nan), batch.observed)
    normals = torch.ones(2, *batch.x.shape, dtype=torch.float64)
    assert torch.equal(gaussian.log_prob(poison), gaussian.log_prob(batch))
    assert torch.equal(gaussian.conditional_mean(poison), gaussian.conditional_mean(batch))
    assert torch.equal(
        gaussian.complete(poison.x, poison.observed, normals),
        gaussian.complete(batch.x, batch.observed, normals),
    )


def test_draws_have_the_conditional_distribution(generator):
    gaussian, batch = random_problem(5, n_rows=8)
    n_draws = 4000
    normals = torch.randn(n_draws, *batch.x.shape, generator=generator, dtype=torch.float64)
    drawn = gaussian.complete(batch.x, batch.observed, normals).numpy()
    for i, ((mean, covariance), _) in enumerate(textbook(gaussian, batch)):
        missing = ~batch.observed[i].numpy()
        if not missing.any():
            continue
        white = np.linalg.solve(np.linalg.cholesky(covariance), (drawn[:, i, missing] - mean).T)
        # Jointly standard normal: squared lengths are chi-square, each coordinate is normal.
        assert kstest((white**2).sum(axis=0), chi2(missing.sum()).cdf).pvalue > FAILURE_RATE
        assert kstest(white[0], "norm").pvalue > FAILURE_RATE
        assert np.array_equal(
            drawn[:, i, ~missing], np.broadcast_to(batch.x[i, ~missing], (n_draws, (~missing).sum()))
        )


def test_draws_may_share_a_pattern_and_differ_in_what_was_seen():
    gaussian, batch = random_problem(7)
    shifted = torch.stack([batch.x, batch.x + 1])
    together = gaussian.complete(shifted, batch.observed)
    for s in range(2):
        torch.testing.assert_close(
            together[s], gaussian.complete(shifted[s], batch.observed), rtol=1e-12, atol=1e-12
        )


def test_every_incomplete_row_is_in_exactly_one_bucket():
    _, batch = random_problem(11, n_rows=500)
    listed = torch.cat([bucket.rows[bucket.rows < 500] for bucket in plan_buckets(batch.observed)])
    partial = batch.observed.any(dim=1) & ~batch.observed.all(dim=1)
    assert sorted(listed.tolist()) == partial.nonzero().squeeze(1).tolist()


def test_buckets_stay_within_their_memory_whatever_the_patterns(monkeypatch):
    from halfseen.gaussian import distribution

    gaussian, batch = random_problem(13, n_rows=300, n_features=12)
    whole = gaussian.log_prob(batch)
    monkeypatch.setattr(distribution, "BUCKET_BYTES", 20_000)
    sizes = [b.features.shape[0] * b.features.shape[1] ** 2 for b in plan_buckets(batch.observed)]
    assert max(sizes) <= 20_000 // 8
    torch.testing.assert_close(gaussian.log_prob(batch), whole, rtol=1e-12, atol=1e-12)


def test_more_features_than_a_word_has_bits_have_distinct_patterns():
    """Patterns are distinguished by packed words; features beyond the first word must count."""
    observed = torch.ones(2, 130, dtype=torch.bool)
    observed[0, 64], observed[1, 129] = False, False
    buckets = list(plan_buckets(observed))
    assert sum(len(bucket.rows) for bucket in buckets) == 2


@pytest.mark.parametrize("far", [1e160, 1e300])
def test_a_value_whose_square_overflows_has_no_density_left(far):
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)
    gaussian = Gaussian(torch.zeros(2, dtype=torch.float64), covariance)
    batch = Incomplete.from_array([[far, 1.0], [far, np.nan]], torch.float64)
    assert gaussian.log_prob(batch).tolist() == [-torch.inf, -torch.inf]


@pytest.mark.parametrize("n_matrices", [3, 300])
@pytest.mark.parametrize("size", [1, 5, 12, 20])
def test_matrices_inverted_together_are_those_inverted_one_by_one(n_matrices, size, generator):
    root = torch.randn(n_matrices, size, size + 2, generator=generator, dtype=torch.float64)
    matrices = root @ root.mT + 0.01 * torch.eye(size)
    inverses, log_dets = invert_many(matrices)
    torch.testing.assert_close(inverses, torch.linalg.inv(matrices), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(log_dets, torch.logdet(matrices), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_matrices", [3, 300])
def test_a_matrix_that_is_not_positive_definite_is_refused(n_matrices):
    matrices = torch.eye(2, dtype=torch.float64).repeat(n_matrices, 1, 1)
    matrices[1] = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(torch.linalg.LinAlgError):
        invert_many(matrices)
