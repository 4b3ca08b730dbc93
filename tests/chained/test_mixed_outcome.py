"""Logistic and Poisson analyses with effects of groups: posteriors by numerical integration, and coverage."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats
from scipy.special import expit
from tolerances import FAILURE_RATE

import halfseen
from halfseen.chained import mixed_outcome
from halfseen.chained.effects import GroupedRows
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.mixed_outcome import MixedOutcome
from halfseen.chained.regressions import Noise

N_DRAWS = 5


def _log_density(family, y, index):
    if family == "poisson":
        return y * index - np.exp(np.minimum(index, 700.0))  # a trial step of an optimiser may overflow
    return y * index - np.logaddexp(0.0, index)


def _integrated(family, z, group, y, prior, variance):
    """Means and covariances of two coefficients and the effects of two groups, by a grid of 31^4 points."""
    ends = 3.5 if family == "logistic" else 2.5
    axis = np.linspace(-ends, ends, 31)
    grid = np.stack(np.meshgrid(axis, axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 4)
    logs = -0.5 * (prior * grid[:, :2] ** 2).sum(axis=1) - 0.5 * (grid[:, 2:] ** 2).sum(axis=1) / variance
    for row, outcome, own in zip(z, y, group, strict=True):
        logs += _log_density(family, outcome, grid[:, :2] @ row + grid[:, 2 + own])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, (weights[:, None] * (grid - mean)).T @ (grid - mean)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_coefficients_and_effects_have_their_posterior_given_the_variance_of_effects(family, monkeypatch):
    """1,000 chains of 30 sweeps; means and covariances are those of numerical integration."""
    monkeypatch.setattr(mixed_outcome, "draw_covariance", lambda effects, used, noise: covariance)
    rng = np.random.default_rng(3)
    n_chains, group = 1_000, np.repeat([0, 1], 8)
    z = np.c_[np.ones(16), rng.normal(size=16)]
    index = z @ [0.3, 0.6] + np.array([0.5, -0.5])[group]
    y = rng.poisson(np.exp(index)) if family == "poisson" else rng.random(16) < expit(index)
    prior, covariance = np.array([1.5, 1.0]), torch.full((n_chains, 1, 1), 0.4, dtype=torch.float64)
    grouping = GroupedRows(torch.from_numpy(group), 2, torch.ones(16, 1, dtype=torch.float64))
    start = torch.tensor([[0.3, 0.6]], dtype=torch.float64).expand(n_chains, -1)
    part = MixedOutcome(grouping, family, torch.from_numpy(prior), start)
    part.covariance = covariance
    design = torch.from_numpy(z).expand(n_chains, -1, -1)
    outcome, noise = torch.from_numpy(y).double().expand(n_chains, -1), Noise(0, range(n_chains))
    for _ in range(30):
        part.sweep(design, outcome, noise)
    found = torch.cat([part.coefficients, part.effects[..., 0]], dim=1).numpy()
    mean, spread = _integrated(family, z, group, y, prior, 0.4)
    errors = [(found - mean).mean(axis=0) / np.sqrt(np.diag(spread) / n_chains)]
    products = (found - mean)[:, :, None] * (found - mean)[:, None, :]
    errors.append(((products.mean(axis=0) - spread) / (products.std(axis=0) / n_chains**0.5)).ravel())
    p = 2 * stats.norm.sf(np.abs(np.concatenate(errors)).max())
    assert p * 14 > FAILURE_RATE  # four means, ten entries of a symmetric matrix


def test_a_step_along_constant_inputs_leaves_linear_predictors_as_they_are():
    rng = np.random.default_rng(0)
    group = torch.from_numpy(np.repeat(np.arange(6), 3))
    inputs = torch.from_numpy(np.c_[np.ones(18), rng.normal(size=18)])
    of_groups = rng.normal(size=6)[group]
    design = torch.from_numpy(np.c_[np.ones(18), of_groups, rng.normal(size=18)]).expand(3, -1, -1)
    start, prior = torch.zeros(3, 3, dtype=torch.float64), torch.full((3,), 0.1, dtype=torch.float64)
    part = MixedOutcome(GroupedRows(group, 6, inputs), "logistic", prior, start)
    part.effects = torch.from_numpy(rng.normal(size=(3, 6, 2)))
    before = (design @ part.coefficients.unsqueeze(-1)).squeeze(-1) + part.grouping.offsets(part.effects)
    part._shift(design, Noise(0, range(3)))
    after = (design @ part.coefficients.unsqueeze(-1)).squeeze(-1) + part.grouping.offsets(part.effects)
    torch.testing.assert_close(after, before)
    assert (part.coefficients[:, :2].abs() > 1e-3).all()
    assert not part.coefficients[:, 2].any()  # it varies within groups


def _clustered(seed, family, n_groups=40, size=10):
    """A three-level covariate is missing through the outcome; groups have effects on both."""
    rng = np.random.default_rng(seed)
    group, n = np.repeat(np.arange(n_groups), size), n_groups * size
    z = rng.normal(size=n)
    latent = 0.5 * z + 0.7 * rng.normal(size=n_groups)[group] + rng.logistic(size=n)
    level = np.digitize(latent, [-0.7, 0.9])
    index = -0.4 + np.array([0.0, 0.5, 1.0])[level] + 0.4 * z + 0.7 * rng.normal(size=n_groups)[group]
    y = rng.poisson(np.exp(index)) if family == "poisson" else (rng.random(n) < expit(index)).astype(int)
    high = y > (1 if family == "poisson" else 0)
    kind = np.array(["a", "b", "c"], dtype=object)[level]
    kind[rng.random(n) < np.where(high, 0.45, 0.15)] = None
    return pd.DataFrame({"site": 100 + group, "kind": kind, "z": z, "y": y})


def _analyse(table, family):
    """Maximum likelihood with a random intercept, integrated by 15 nodes: estimates and their covariance."""
    kind, y = table["kind"].to_numpy(), table["y"].to_numpy(float)
    x = np.c_[np.ones(len(y)), kind == "b", kind == "c", table["z"]].astype(float)
    group = table["site"].to_numpy() - 100
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    member = np.eye(group.max() + 1)[group]

    def loss(at):
        index = (x @ at[:4])[:, None] + np.exp(at[4]) * nodes
        by_group = member.T @ _log_density(family, y[:, None], index)
        return -np.log(np.exp(by_group - by_group.max(axis=1, keepdims=True)) @ weights).sum() - (
            by_group.max(axis=1).sum()
        )

    start = np.r_[np.log(y.mean()) if family == "poisson" else 0.0, np.zeros(3), np.log(0.7)]
    found = optimize.minimize(loss, start, method="BFGS")
    return found.x[:4], found.hess_inv[:4, :4]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_intervals_of_mixed_analyses_with_levels_cover(family):
    """Over 40 tables: no more misses of intervals of 95%, and no more bias, than chance explains.

    A right method fails with a probability of at most two failure rates.
    """
    truth, inside, estimates = np.array([0.5, 1.0, 0.4]), [], []
    for seed in range(40):
        drawn = halfseen.multiple_imputation(
            _clustered(seed, family),
            n_draws=N_DRAWS,
            groups="site",
            analysis="y ~ C(kind) + z",
            family=family,
            random_state=seed,
        )
        pooled = halfseen.pool(lambda table: _analyse(table, family), drawn)
        low, high = (end[1:] for end in pooled.interval(0.95))
        inside.append((low <= truth) & (truth <= high))
        estimates.append(pooled.estimate[1:])
    misses, estimates = (~np.array(inside)).sum(axis=0), np.array(estimates)
    assert (stats.binom(40, 0.05).sf(misses - 1) * 3 > FAILURE_RATE).all()
    error = (estimates.mean(axis=0) - truth) / (estimates.std(axis=0, ddof=1) / 40**0.5)
    assert (2 * stats.t(39).sf(np.abs(error)) * 3 > FAILURE_RATE).all()


@pytest.fixture(scope="module", params=["logistic", "poisson"])
def fitted(request):
    table = _clustered(0, request.param)
    options = {"analysis": "y ~ C(kind) * z", "family": request.param, "groups": "site"}
    return table, ChainedImputer(2, n_cycles=2, random_state=0, **options).fit(table)


def test_models_are_saved_and_complete_known_and_new_groups(fitted, tmp_path):
    table, imputer = fitted
    assert imputer.model_.chain.outcome.effects.values.shape == (2, 1, 40, 1)
    imputer.save(tmp_path / "model")
    again, new = halfseen.load(tmp_path / "model"), table.head(20).assign(site=999)
    for rows in (table, new):
        for one, other in zip(again.sample(rows, 2), imputer.sample(rows, 2), strict=True):
            pd.testing.assert_frame_equal(one, other)
            assert one.notna().all().all()
    whole = imputer.sample(table, 2, row_ids=np.arange(400))[1]
    part = imputer.sample(table[80:160], 2, row_ids=np.arange(80, 160))[1]
    pd.testing.assert_frame_equal(part, whole[80:160])
