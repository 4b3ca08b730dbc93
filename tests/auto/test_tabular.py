"""Mixtures of models by column: their quantiles, and draws from the model that is chosen."""

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from tolerances import FAILURE_RATE

from halfseen._random import row_keys
from halfseen.auto.tabular import TabularStack, WeightedAtoms
from halfseen.data.incomplete import Incomplete
from halfseen.training.progress import report_share, watch_answers


class Normal:
    """A model of two independent numbers with one mean and one spread."""

    def __init__(self, mean, spread):
        self.mean, self.spread = mean, spread

    def point(self, codes):
        return torch.where(codes.observed, codes.x, self.mean)

    def quantiles(self, codes, probabilities):
        z = torch.tensor(stats.norm.ppf(probabilities))[:, None, None]
        return torch.where(codes.observed, codes.x, self.mean + self.spread * z)

    def draws(self, codes, keys, n_draws):
        from halfseen._random import row_normals

        noise = np.stack([row_normals(keys, s, 2) for s in range(n_draws)])
        return torch.where(codes.observed, codes.x, self.mean + self.spread * torch.from_numpy(noise))

    def level_probabilities(self, codes):
        return {}


ROWS = Incomplete.from_array(np.full((3000, 2), np.nan))
WEIGHTS = np.array([[0.3, 0.0], [0.7, 1.0]])
STACK = TabularStack([Normal(-2.0, 1.0), Normal(3.0, 0.5)], WEIGHTS)


def mixture_cdf(x):
    return 0.3 * stats.norm.cdf(x, -2.0, 1.0) + 0.7 * stats.norm.cdf(x, 3.0, 0.5)


def test_the_mean_is_that_of_the_mixture():
    torch.testing.assert_close(STACK.point(ROWS[:1]), torch.tensor([[0.3 * -2 + 0.7 * 3, 3.0]]).double())


def test_quantiles_are_those_of_the_mixture():
    found = STACK.quantiles(ROWS[:1], [0.1, 0.2, 0.5, 0.9])[:, 0].numpy()
    for q, (mixed, alone) in zip([0.1, 0.2, 0.5, 0.9], found, strict=True):
        exact = optimize.brentq(lambda x, q=q: mixture_cdf(x) - q, -9, 9)
        np.testing.assert_allclose(mixed, exact, atol=0.03)
        np.testing.assert_allclose(alone, stats.norm.ppf(q, 3.0, 0.5), rtol=1e-12)


def test_draws_follow_the_mixture_and_belong_to_rows():
    keys = row_keys(ROWS.to_array(), 0)
    draws = STACK.draws(ROWS, keys, 2)
    assert stats.kstest(draws[0, :, 0].numpy(), mixture_cdf).pvalue > FAILURE_RATE
    assert stats.kstest(draws[1, :, 1].numpy(), stats.norm(3.0, 0.5).cdf).pvalue > FAILURE_RATE
    torch.testing.assert_close(STACK.draws(ROWS[:7], keys[:7], 1)[0], draws[0, :7])


def test_weighted_quantiles_of_equal_weights_are_ordinary_ones():
    atoms = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    levels = torch.tensor([0.03, 0.4, 0.9], dtype=torch.float64)[:, None].expand(-1, 5)
    found = WeightedAtoms.of(atoms, torch.full((40,), 1 / 40, dtype=torch.float64)).quantiles(levels)
    expected = np.quantile(atoms.numpy(), [0.03, 0.4, 0.9], axis=0, method="hazen")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


SHARP = TabularStack(STACK.models, WEIGHTS, sharpness=2.5)
BLUNT = TabularStack(STACK.models, WEIGHTS, sharpness=0.7)
CHANGED = pytest.mark.parametrize("stack", [SHARP, BLUNT], ids=["narrower", "wider"])


def changed_cdf(stack):
    return lambda x: stats.beta.cdf(mixture_cdf(x), stack.sharpness, stack.sharpness)


@CHANGED
def test_a_sharpened_mixture_has_the_quantiles_of_its_distribution_function(stack):
    found = stack.quantiles(ROWS[:1], [0.05, 0.3, 0.5, 0.95])[:, 0, 0].numpy()
    np.testing.assert_allclose(changed_cdf(stack)(found), [0.05, 0.3, 0.5, 0.95], atol=0.01)
    alone = SHARP.quantiles(ROWS[:1], [0.05])[0, 0, 1]  # a column with one model is not sharpened
    np.testing.assert_allclose(alone, stats.norm.ppf(0.05, 3.0, 0.5), rtol=1e-12)


def test_far_quantiles_of_a_mixture_are_not_cut_off():
    found = STACK.quantiles(ROWS[:1], [0.005, 0.995])[:, 0, 0].numpy()
    np.testing.assert_allclose(mixture_cdf(found), [0.005, 0.995], atol=0.001)


@CHANGED
def test_draws_of_a_sharpened_mixture_follow_its_distribution_function(stack):
    keys = row_keys(ROWS.to_array(), 0)
    draws = stack.draws(ROWS, keys, 2)
    assert stats.kstest(draws[0, :, 0].numpy(), changed_cdf(stack)).pvalue > FAILURE_RATE
    assert stats.kstest(draws[1, :, 1].numpy(), stats.norm(3.0, 0.5).cdf).pvalue > FAILURE_RATE
    torch.testing.assert_close(stack.draws(ROWS[:7], keys[:7], 1)[0], draws[0, :7])


def test_levels_and_quantiles_of_atoms_are_inverse_and_equal_atoms_share_their_probability():
    atoms = torch.tensor([0.0, 0.0, 1.0, 3.0], dtype=torch.float64)[:, None]
    shares = torch.tensor([0.3, 0.2, 0.4, 0.1], dtype=torch.float64)
    levels = torch.tensor([[0.5], [0.6], [0.9]], dtype=torch.float64)
    mixture = WeightedAtoms.of(atoms, shares)
    values = mixture.quantiles(levels)
    half = torch.full_like(values, 0.5)
    torch.testing.assert_close(mixture.levels(values, half)[:2], levels[:2])
    zero = torch.zeros(3, 1, dtype=torch.float64)
    uniforms = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
    found = mixture.levels(zero, uniforms)[:, 0]
    torch.testing.assert_close(found, torch.tensor([0.0, 0.25, 0.5], dtype=torch.float64))
    beyond = mixture.levels(zero + torch.tensor([[-1.0], [9.0], [9.0]]), uniforms)[:, 0]
    torch.testing.assert_close(beyond, torch.tensor([0.0, 0.975, 0.95], dtype=torch.float64))


def test_levels_are_probabilities_though_sums_of_shares_are_rounded():
    shares = torch.full((60,), 1 / 60, dtype=torch.float64)  # their sum is above 1
    assert shares.cumsum(dim=0)[-1] > 1.0
    one = torch.ones(1, 1, dtype=torch.float64)
    found = WeightedAtoms.of(one.expand(60, 1), shares).levels(one, one)
    assert found.item() == 1.0


def test_a_model_without_weight_in_a_column_leaves_its_draws_and_quantiles_alone():
    """Its values are far beyond those of the others, and thirds add up to slightly more than 1."""
    others = [Normal(-2.0, 1.0), Normal(3.0, 0.5), Normal(1.0, 1.0)]
    weights = np.array([[1 / 3, 0.5], [1 / 3, 0.0], [1 / 3, 0.0], [0.0, 0.5]])
    stack = TabularStack([*others, Normal(500.0, 9.0)], weights, sharpness=1.4)
    alone = TabularStack(others, np.full((3, 2), 1 / 3), sharpness=1.4)
    keys = row_keys(ROWS.to_array(), 0)
    drawn, expected = (one.draws(ROWS, keys, 2)[..., 0] for one in (stack, alone))
    assert torch.isfinite(drawn).all()
    torch.testing.assert_close(drawn, expected)
    asked = (0.001, 0.5, 0.999)
    torch.testing.assert_close(
        stack.quantiles(ROWS[:1], asked)[..., 0], alone.quantiles(ROWS[:1], asked)[..., 0]
    )


class Reporting(Normal):
    """A model that reports its progress, half way and at the end, as latent-variable models do."""

    def point(self, codes):
        report_share(0.5)
        report_share(1.0)
        return super().point(codes)


def test_the_share_of_an_answer_that_is_done_never_falls_and_counts_every_model():
    stack = TabularStack([Reporting(-2.0, 1.0), Normal(3.0, 0.5)], WEIGHTS, sharpness=2.0)
    shares = []
    with watch_answers(shares.append):
        stack.point(ROWS[:5])
    assert shares == [0.0, 0.25, 0.5, 0.5, 1.0]  # there are no levels
    shares.clear()
    with watch_answers(shares.append):
        stack.draws(ROWS[:5], row_keys(ROWS[:5].to_array(), 0), 2)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
