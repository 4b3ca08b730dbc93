"""Draws of a matrix factorisation against conditional distributions in closed form."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from halfseen.ratings import matrix_factorization
from halfseen.ratings.matrix_factorization import _draw_prior, _Side, draw_factors
from halfseen.ratings.table import SparseRows


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    matrix = sp.random_array((9, 6), density=0.5, rng=rng, format="csr")
    matrix.data = 1 + 4 * matrix.data
    return SparseRows.from_scipy(sp.csr_array(matrix))


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(1, id="a chunk for each row", marks=pytest.mark.slow),
        pytest.param(2**21, id="one chunk"),
    ],
)
def test_factors_of_a_row_have_their_gaussian_posterior(rows, generator, monkeypatch, cells):
    """1,000 draws: the mean is within 5 standard errors, which fails by chance in one of a million runs."""
    monkeypatch.setattr(matrix_factorization, "CELLS", cells)
    others = torch.randn(6, 3, generator=generator)
    precision, mean, noise = 2.0 * torch.eye(3) + 0.3, torch.tensor([0.5, 0.0, -1.0]), torch.tensor(1.7)
    side, centre = _Side(rows), torch.tensor(3.0)
    drawn = torch.stack([side.draw(others, centre, (mean, precision, noise), generator) for _ in range(1000)])
    for row in range(9):
        own = rows[row : row + 1]
        seen = others[own.columns.long()]
        design = torch.cat([torch.ones(len(seen), 1), seen[:, 1:]], dim=1)
        full = precision + noise * design.T @ design
        linear = precision @ mean + noise * design.T @ (own.values - centre - seen[:, 0])
        covariance = torch.linalg.inv(full)
        error = (drawn[:, row].mean(dim=0) - covariance @ linear) / (covariance.diagonal() / 1000).sqrt()
        assert error.abs().max() < 5
        np.testing.assert_allclose(torch.cov(drawn[:, row].T), covariance, atol=0.2 * covariance.max())


def test_a_new_row_has_the_posterior_mean_of_its_factors(rows, generator):
    draws = draw_factors(rows, 2, 1, 3, generator)
    assert draws.rows.shape == (9, 3, 3)
    columns, values = torch.tensor([1, 4]), torch.tensor([2.0, 5.0])
    found = draws.fold_in(columns, values)
    for draw in range(3):
        seen = draws.columns[columns, draw]
        design = torch.cat([torch.ones(2, 1), seen[:, 1:]], dim=1)
        precision, noise = draws.prior.precision[draw], draws.prior.noise[draw]
        linear = precision @ draws.prior.mean[draw] + noise * design.T @ (values - draws.centre - seen[:, 0])
        expected = torch.linalg.solve(precision + noise * design.T @ design, linear)
        torch.testing.assert_close(found[draw], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        draws.row(draws.rows[2])[4], draws.entries(*torch.tensor([[2], [4]]))[0].float()
    )


def test_the_prior_follows_the_factors(generator):
    """Of 4,000 rows the mean and the covariance are known well."""
    covariance = torch.tensor([[1.0, 0.6], [0.6, 2.0]])
    factors = torch.randn(4000, 2, generator=generator) @ torch.linalg.cholesky(covariance).T + 3.0
    drawn = [_draw_prior(factors, generator) for _ in range(50)]
    mean, precision = (torch.stack(parts).mean(dim=0) for parts in zip(*drawn, strict=True))
    np.testing.assert_allclose(mean, [3.0, 3.0], atol=0.1)
    np.testing.assert_allclose(torch.linalg.inv(precision), covariance, atol=0.15)


def test_a_matrix_of_low_rank_is_recovered(generator):
    truth = 3 + torch.randn(40, 2, generator=generator) @ torch.randn(2, 30, generator=generator)
    observed = torch.rand(40, 30, generator=generator) < 0.5
    values = (truth + 0.1 * torch.randn(40, 30, generator=generator))[observed]
    starts = torch.cat([torch.zeros(1), observed.sum(dim=1).cumsum(0)]).int()
    rows = SparseRows(starts, observed.nonzero()[:, 1].int(), values, 30)
    draws = draw_factors(rows, 3, 30, 20, generator)
    hidden = (~observed).nonzero()
    error = draws.entries(*hidden.T) - truth[~observed]
    assert error.square().mean().sqrt() < 0.35
    assert 20 < draws.prior.noise.mean() < 160
