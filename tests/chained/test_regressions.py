"""The regressions of chained equations, against independent computations."""

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.chained.regressions import (
    LogisticPosterior,
    MultinomialModel,
    Noise,
    OrderedModel,
    are_few,
    choose_prior_rows,
    draw_between,
    draw_linear,
    find_mode,
    follow_mode,
    multinomial,
    ordered,
)

CLOSE = {"atol": EXACT, "rtol": EXACT}
N_CHAINS, N_ROWS, WIDTH, N_LEVELS = 3, 120, 4, 3


@pytest.fixture
def design(generator):
    z = torch.randn(N_CHAINS, N_ROWS, WIDTH, generator=generator, dtype=torch.float64)
    z[..., 0] = 1.0
    return z


@pytest.fixture(params=[MultinomialModel, OrderedModel])
def model(request, generator):
    levels = torch.randint(0, N_LEVELS, (N_ROWS,), generator=generator)
    levels[:20] = -1
    return request.param(levels, N_LEVELS, torch.tensor([0.01, 0.16, 0.16, 0.3], dtype=torch.float64))


def _somewhere(model, generator):
    noise = torch.randn(N_CHAINS, len(model.prior), generator=generator, dtype=torch.float64)
    return model.start() + 0.1 * noise


def test_derivatives_of_logistic_posteriors_are_those_of_automatic_differentiation(model, design, generator):
    at = _somewhere(model, generator).requires_grad_()
    (slope,) = torch.autograd.grad(model.log_density(design, at).sum(), at, create_graph=True)
    found, parts = model.gradient(design, at)
    torch.testing.assert_close(found, slope, **CLOSE)
    rows = [torch.autograd.grad(slope[:, q].sum(), at, retain_graph=True)[0] for q in range(at.shape[1])]
    torch.testing.assert_close(model.precision(design, parts), -torch.stack(rows, dim=1), **CLOSE)


def test_the_log_density_is_that_of_the_probabilities(model, design, generator):
    at = _somewhere(model, generator)
    shares = (multinomial if isinstance(model, MultinomialModel) else ordered)(design, at)
    torch.testing.assert_close(shares.sum(dim=-1), torch.ones(N_CHAINS, N_ROWS).double(), **CLOSE)
    seen = model.observed[0].bool()
    picked = (
        shares[:, seen].gather(2, model.levels[0, seen].expand(N_CHAINS, -1).unsqueeze(-1)).log().sum((1, 2))
    )
    torch.testing.assert_close(
        model.log_density(design, at), picked - 0.5 * at.square() @ model.prior, **CLOSE
    )


def test_the_mode_has_no_slope_and_is_followed_after_small_changes(model, design):
    mode = find_mode(model, design)
    assert model.gradient(design, mode)[0].abs().max() < 1e-6
    nearby = LogisticPosterior(mode + 0.01, torch.empty(0))
    followed = follow_mode(model, design, nearby, refresh=True)
    torch.testing.assert_close(followed.mode, mode, atol=1e-4, rtol=0)
    _, parts = model.gradient(design, mode + 0.01)
    torch.testing.assert_close(followed.factor @ followed.factor.mT, model.precision(design, parts), **CLOSE)


def test_separated_levels_have_finite_coefficients():
    z = torch.stack([torch.ones(40), torch.linspace(-1, 1, 40)], dim=1).double()[None]
    model = MultinomialModel((z[0, :, 1] < 0).long(), 2, torch.tensor([0.01, 0.16]).double())
    mode = find_mode(model, z)
    assert model.gradient(z, mode)[0].abs().max() < 1e-6
    assert mode.abs().max() < 20


def test_draws_of_a_linear_regression_have_the_moments_of_its_posterior():
    """400 chains of the same table; both tests together fail with probability 2e-5."""
    n_chains, n_rows = 400, 30
    rng = np.random.default_rng(0)
    z = np.column_stack([np.ones(n_rows), rng.normal(size=(n_rows, 2))])
    y = z @ [1.0, 2.0, -1.0] + 0.5 * rng.normal(size=n_rows)
    seen = np.arange(n_rows) >= 5
    every = torch.from_numpy(z).expand(n_chains, -1, -1)
    gram = torch.from_numpy(z[seen].T @ z[seen]).expand(n_chains, -1, -1)
    target = torch.from_numpy(y).expand(n_chains, -1)
    drawn = draw_linear(
        gram, every, torch.arange(3), target, torch.from_numpy(seen), torch.zeros(3).double(),
        Noise(0, range(n_chains)),
    )  # fmt: skip
    b, squares, *_ = np.linalg.lstsq(z[seen], y[seen], rcond=None)
    freedom = seen.sum() - 3
    chi2 = squares[0] / drawn.scale.numpy() ** 2
    assert stats.kstest(chi2, stats.chi2(freedom).cdf).pvalue > FAILURE_RATE
    deviation = np.sqrt(np.linalg.inv(z[seen].T @ z[seen])[1, 1] * squares[0] / freedom)
    t = (drawn.coefficients[:, 1].numpy() - b[1]) / deviation
    assert stats.kstest(t, stats.t(freedom).cdf).pvalue > FAILURE_RATE


def test_draws_with_a_prior_have_the_quantiles_of_the_conjugate_posterior():
    """400 chains of one table; both tests together fail with probability 2e-5."""
    n_chains, n_rows = 400, 12
    rng = np.random.default_rng(2)
    z = np.column_stack([np.ones(n_rows), rng.normal(size=(n_rows, 3))])
    y, penalty = z @ [0.5, 1.0, 0.0, -1.0] + rng.normal(size=n_rows), np.array([0.0, 2.0, 2.0, 3.0])
    every = torch.from_numpy(z).expand(n_chains, -1, -1)
    drawn = draw_linear(
        every.mT @ every, every, torch.arange(4), torch.from_numpy(y).expand(n_chains, -1),
        torch.ones(n_rows, dtype=torch.bool), torch.from_numpy(penalty), Noise(0, range(n_chains)),
    )  # fmt: skip
    # The prior as rows of its own: coefficient j times the root of its precision is 0 with noise sigma
    rows, targets = np.vstack([z, np.diag(np.sqrt(penalty))[1:]]), np.append(y, np.zeros(3))
    b, squares, *_ = np.linalg.lstsq(rows, targets, rcond=None)
    freedom = n_rows - 1
    assert stats.kstest(squares[0] / drawn.scale.numpy() ** 2, stats.chi2(freedom).cdf).pvalue > FAILURE_RATE
    deviation = np.sqrt(np.linalg.inv(rows.T @ rows)[1, 1] * squares[0] / freedom)
    t = (drawn.coefficients[:, 1].numpy() - b[1]) / deviation
    assert stats.kstest(t, stats.t(freedom).cdf).pvalue > FAILURE_RATE


@pytest.mark.parametrize("kind", [MultinomialModel, OrderedModel])
def test_draws_of_a_logistic_regression_have_the_quantiles_of_its_skewed_posterior(kind):
    """Two levels, ten rows, one free coefficient; quadrature; fails with probability 1e-5.

    The normal approximation alone would fail, because nine of ten levels are the same.
    """
    n_chains, n_rows = 2_000, 10
    levels = torch.zeros(n_rows, dtype=torch.int64)
    levels[0] = 1
    # The log odds of the first level are the constant of the one model, and the threshold of the other
    z, prior = torch.ones(n_chains, n_rows, 1, dtype=torch.float64), torch.tensor([0.04]).double()
    model, noise = kind(levels, 2, prior), Noise(0, range(n_chains))
    mode = find_mode(model, z)
    posterior = follow_mode(model, z, LogisticPosterior(mode, mode), refresh=True)
    drawn = None
    for _ in range(10):
        drawn = posterior.choose(model, z, drawn, noise)
    grid = np.linspace(-15, 25, 40_001)
    density = np.exp(9 * stats.logistic.logcdf(grid) + stats.logistic.logsf(grid) - 0.02 * grid**2)
    below = np.cumsum(density) / density.sum()
    assert stats.kstest(drawn[:, 0].numpy(), lambda b: np.interp(b, grid, below)).pvalue > FAILURE_RATE
    normal = posterior.draw(noise)[:, 0].numpy()
    assert stats.kstest(normal, lambda b: np.interp(b, grid, below)).pvalue < FAILURE_RATE


def test_densities_of_several_coefficients_per_chain_are_those_of_each_one(model, design, generator):
    several = torch.stack([_somewhere(model, generator) for _ in range(4)], dim=1)  # (S, 4, Q)
    found = model.log_density(design, several.flatten(0, 1)).unflatten(0, (N_CHAINS, 4))
    for k in range(4):
        torch.testing.assert_close(found[:, k], model.log_density(design, several[:, k]), **CLOSE)


def test_a_draw_of_a_chain_does_not_depend_on_the_other_chains():
    assert torch.equal(Noise(3, range(4)).normals(5)[2], Noise(3, [2]).normals(5)[0])
    assert not torch.equal(Noise(3, [2]).normals(5), Noise(4, [2]).normals(5))


@pytest.mark.parametrize("rows", [0.5, 8.0])
def test_the_prior_is_chosen_by_the_marginal_likelihood(rows):
    """The difference of two log evidences is that of Student t densities of the centred target."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(12, 9)), rng.normal(size=12)
    basis = np.linalg.svd(np.eye(12) - 1 / 12)[0][:, :11]  # of the space without the mean

    def evidence(penalty):
        shape = basis.T @ (np.eye(12) + (x - x.mean(0)) @ (x - x.mean(0)).T / penalty) @ basis
        v = basis.T @ y
        return -0.5 * np.linalg.slogdet(shape)[1] - 5.5 * np.log(v @ np.linalg.solve(shape, v))

    found = choose_prior_rows(torch.from_numpy(x), torch.from_numpy(y), [rows, 2.0])
    assert found == (rows if evidence(rows) > evidence(2.0) else 2.0)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.5), (2.0, np.inf), (-np.inf, -6.0), (5.0, 5.1)])
def test_normal_draws_between_limits_have_the_quantiles_of_scipy(low, high):
    share = torch.tensor([0.001, 0.3, 0.999], dtype=torch.float64)
    one = torch.ones(3, dtype=torch.float64)
    found = draw_between(0.2 * one, 1.5 * one, low * one, high * one, share)
    ends = (low - 0.2) / 1.5, (high - 0.2) / 1.5
    quantiles = share if low <= 0.2 else 1 - share  # drawn from the other side, for digits
    expected = stats.truncnorm(*ends, loc=0.2, scale=1.5).ppf(quantiles.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-7)


def test_rows_are_few_if_coefficients_are_half_as_many():
    assert are_few(19, 10)
    assert not are_few(20, 10)
    assert are_few(2, 1)
