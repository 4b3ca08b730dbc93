import math

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.latent.weights import effective_sample_size, pareto_k

F64 = torch.float64


def pareto_log_weights(generator, shape, size):
    """Logarithms of generalised Pareto numbers with scale 1, by their quantiles."""
    uniforms = 1.0 - torch.rand(size, generator=generator, dtype=F64)
    return (torch.expm1(-shape * uniforms.log()) / shape).log()


def test_equal_weights_are_worth_all_draws_and_a_single_one_is_worth_one():
    equal = torch.full((8, 3), -40.0, dtype=F64)
    np.testing.assert_allclose(effective_sample_size(equal), 8.0, rtol=EXACT)
    single = torch.tensor([0.0] + [-math.inf] * 7, dtype=F64)
    assert effective_sample_size(single) == 1.0


@pytest.mark.parametrize("n_equal", [1, 2, 5])
def test_draws_without_weight_do_not_count(n_equal):
    log_w = torch.tensor([3.0] * n_equal + [-math.inf] * 4, dtype=F64)
    np.testing.assert_allclose(effective_sample_size(log_w), n_equal, rtol=EXACT)


def test_two_weights_have_the_effective_size_of_their_formula():
    log_w = torch.tensor([1.0, 3.0], dtype=F64).log()
    np.testing.assert_allclose(effective_sample_size(log_w + 700.0), 16.0 / 10.0, rtol=EXACT)


def test_effective_sizes_are_those_of_each_column(generator):
    log_w = torch.randn(30, 4, 2, generator=generator, dtype=F64)
    together = effective_sample_size(log_w)
    assert together.shape == (4, 2)
    for index in np.ndindex(4, 2):
        w = np.exp(log_w[:, *index].numpy())
        np.testing.assert_allclose(together[index], w.sum() ** 2 / (w**2).sum(), rtol=EXACT)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.5, 0.9, 1.5])
def test_the_tail_of_pareto_weights_has_their_shape(generator, shape):
    n_draws, n_rows = 10_000, 40
    n_tail = 300  # three times the root of the draws
    fitted = pareto_k(pareto_log_weights(generator, shape, (n_draws, n_rows)))
    unshrunk = (fitted * (n_tail + 10.0) - 5.0) / n_tail
    # The mean of many fits is precise: what remains is the bias of order 1 / M of a single fit.
    error = stats.norm.isf(FAILURE_RATE / 2) * (1.0 + shape) / math.sqrt(n_tail * n_rows)
    assert abs(unshrunk.mean() - shape) < error + 2.0 / n_tail
    assert unshrunk.std() < 2.0 * (1.0 + shape) / math.sqrt(n_tail)


def test_the_fit_comes_close_to_the_maximum_of_the_likelihood(generator):
    log_w = pareto_log_weights(generator, 0.6, (10_000, 3))
    fitted = (pareto_k(log_w) * 310.0 - 5.0) / 300.0
    for row in range(3):
        falling = np.sort(np.exp(log_w[:, row].numpy()))[::-1]
        shape, _, _ = stats.genpareto.fit(falling[:300] - falling[300], floc=0.0)
        assert abs(fitted[row] - shape) < 0.3 * (1.0 + shape) / math.sqrt(300)  # standard errors


def test_a_short_tail_is_drawn_towards_one_half(generator):
    log_w = pareto_log_weights(generator, 2.0, (25, 500))
    assert 0.5 < pareto_k(log_w).mean() < 2.0


def test_fits_do_not_depend_on_other_rows_nor_on_the_level_or_order_of_weights(generator):
    log_w = torch.randn(100, 3, 2, generator=generator, dtype=F64) * 2.0
    together = pareto_k(log_w)
    assert together.shape == (3, 2)
    moved = pareto_k(log_w.flip(0) + 900.0)
    torch.testing.assert_close(moved, together, rtol=1e-8, atol=1e-8)
    for index in np.ndindex(3, 2):
        torch.testing.assert_close(pareto_k(log_w[:, *index]), together[index], rtol=EXACT, atol=EXACT)


def test_equal_weights_have_no_tail_and_ties_or_impossible_draws_are_no_obstacle():
    equal = torch.zeros(50, dtype=F64)
    assert pareto_k(equal) == -math.inf
    tied = torch.tensor([0.0] * 45 + [1.0] * 5, dtype=F64)
    assert pareto_k(tied).isfinite()
    impossible = torch.tensor([-math.inf] * 30 + [0.1 * i for i in range(20)], dtype=F64)
    assert pareto_k(impossible).isfinite()


def test_an_answer_is_double_whatever_the_precision_of_the_weights(generator):
    log_w = pareto_log_weights(generator, 0.5, (1000, 4))
    single = pareto_k(log_w.float())
    assert single.dtype == F64
    torch.testing.assert_close(single, pareto_k(log_w), rtol=1e-4, atol=1e-4)


def test_too_few_draws_for_a_tail_are_refused():
    with pytest.raises(ValueError, match="25 draws or more, got 24"):
        pareto_k(torch.zeros(24))
