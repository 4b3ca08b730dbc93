"""A covariance of low rank plus a diagonal: every answer is that of the Gaussian with that covariance."""

import pytest
import torch
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.low_rank import LowRankGaussian, pack, unpack


def make_gaussian(rank, n_features=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(n_features, generator=generator, dtype=torch.float64)
    loadings = torch.randn(n_features, rank, generator=generator, dtype=torch.float64)
    noise = 0.1 + torch.rand(n_features, generator=generator, dtype=torch.float64)
    return LowRankGaussian(loc, loadings, noise)


def make_batch(n_rows=30, n_features=7, seed=1):
    generator = torch.Generator().manual_seed(seed)
    observed = torch.rand(n_rows, n_features, generator=generator) < 0.6
    observed[0], observed[1] = False, True
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    return Incomplete(x.masked_fill(~observed, torch.nan), observed)


def dense(gaussian):
    return Gaussian(gaussian.loc, gaussian.loadings @ gaussian.loadings.T + gaussian.noise.diag())


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("answer", ["log_prob", "conditional_mean", "conditional_variance"])
def test_an_answer_is_that_of_the_dense_gaussian(rank, answer, monkeypatch):
    monkeypatch.setattr("halfseen.gaussian.low_rank.WORKING_BYTES", 1000)  # several blocks of rows
    gaussian, batch = make_gaussian(rank), make_batch()
    expected = getattr(dense(gaussian), answer)(batch)
    torch.testing.assert_close(getattr(gaussian, answer)(batch), expected, rtol=0, atol=EXACT)
    assert "covariance" not in vars(gaussian)  # no D x D matrix was made


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_draws_have_the_conditional_covariance(rank):
    """Draws are linear in their noise: unit vectors of noise show the whole map."""
    gaussian, batch = make_gaussian(rank), make_batch()
    normals = torch.eye(7, dtype=torch.float64)[:, None, :].expand(-1, len(batch), -1)
    moved = gaussian.complete(batch.x, batch.observed, normals) - gaussian.conditional_mean(batch)
    moved = torch.where(batch.observed, 0.0, moved)  # (S, N, D)
    covariance = torch.einsum("snd,sne->nde", moved, moved)
    full = dense(gaussian).covariance
    for row, seen in enumerate(batch.observed):
        inverse = torch.linalg.inv(full[seen][:, seen])
        expected = full[~seen][:, ~seen] - full[~seen][:, seen] @ inverse @ full[seen][:, ~seen]
        torch.testing.assert_close(covariance[row][~seen][:, ~seen], expected, rtol=0, atol=EXACT)


def test_matrices_come_back_from_their_triangles():
    root = torch.arange(18.0).view(2, 3, 3)
    matrices = root @ root.mT
    torch.testing.assert_close(unpack(pack(matrices), 3), matrices, rtol=0, atol=0)
