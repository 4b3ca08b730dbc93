"""Inflated scales against models that are known to be overconfident."""

import pytest
import torch
from tolerances import EXACT

from halfseen import config
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf, StudentTLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.importance import MIN_CELLS, choose_inflation, hide_cells


@pytest.mark.parametrize("leaf", [GaussianLeaf(2), StudentTLeaf(2)])
def test_inflated_distributions_are_wider_by_the_factor_and_have_the_same_mean(leaf, generator):
    parameters = torch.randn(50, leaf.n_parameters, generator=generator, dtype=torch.float64)
    factor = torch.tensor([1.7, 0.6], dtype=torch.float64)
    wider = leaf.inflated(parameters, factor)
    torch.testing.assert_close(leaf.mean(wider), leaf.mean(parameters), rtol=0, atol=EXACT)
    expected = factor**2 * leaf.variance(parameters)
    torch.testing.assert_close(leaf.variance(wider), expected, rtol=1e-9, atol=0)


def one_gaussian(n_rows, n_columns, generator, *, spread):
    """Rows of numbers with a spread, as a model with one draw and scale 1 sees them."""
    observation = ObservationModel.for_pixels(n_columns, "gaussian")
    parameters = observation.neutral_parameters().expand(1, n_rows, -1)
    truth = spread * torch.randn(n_rows, n_columns, generator=generator, dtype=torch.float64)
    return observation, parameters, torch.ones(1, n_rows, dtype=torch.float64), truth


def inflation_of(n_rows, generator, *, spread, half=0.0, n_hidden=None):
    """The factors of two columns, of which a given number of cells is hidden."""
    hidden = (torch.arange(n_rows) < (n_rows if n_hidden is None else n_hidden))[:, None].expand(-1, 2)
    arguments = one_gaussian(n_rows, 2, generator, spread=spread)
    return choose_inflation(*arguments, hidden, torch.full((2,), half, dtype=torch.float64))


@pytest.mark.parametrize("spread", [1.3, 2.5])
def test_the_factor_is_that_by_which_a_model_is_too_narrow(spread, generator):
    """With 20,000 cells coverage has a standard error of .002, and the factor one of .7%."""
    assert inflation_of(10_000, generator, spread=spread) == pytest.approx((spread, spread), rel=0.035)


def test_whole_numbers_may_have_a_factor_below_one_since_rounding_widens(generator):
    """Covered are |x| - h <= 1.645 s: with h = 0.5, and x of scale 1, s = (1.645 - 0.5) / 1.645 = .696."""
    found = inflation_of(10_000, generator, spread=1.0, half=0.5)
    assert found == pytest.approx((0.696, 0.696), rel=0.035)


def test_a_model_that_is_wide_enough_or_has_few_hidden_cells_is_left_alone(generator):
    assert inflation_of(500, generator, spread=0.8) == (1.0, 1.0)
    assert inflation_of(500, generator, spread=9.0, n_hidden=MIN_CELLS // 2 - 1) == (1.0, 1.0)


def test_columns_of_both_kinds_have_factors_of_their_own(generator):
    observation, parameters, weights, truth = one_gaussian(5_000, 2, generator, spread=2.0)
    half = torch.tensor([0.0, 0.5], dtype=torch.float64)
    found = choose_inflation(observation, parameters, weights, truth, torch.ones(5_000, 2).bool(), half)
    assert found == pytest.approx((2.0, (2 * 1.645 - 0.5) / 1.645), rel=0.05)


def test_factors_do_not_depend_on_the_memory_budget(generator):
    observation, parameters, weights, truth = one_gaussian(70_000, 2, generator, spread=2.0)
    half, hidden = torch.zeros(2, dtype=torch.float64), torch.ones(70_000, 2).bool()
    found = []
    for budget in ("512 MiB", "16 MiB"):  # in one part, and in several
        with config.context(memory_budget=budget):
            found.append(choose_inflation(observation, parameters, weights, truth, hidden, half))
    assert found[0] == found[1]


def test_only_observed_cells_are_hidden_and_indicators_of_a_column_together(generator):
    owners = torch.tensor([0, 1, 1, 1])
    observed = (torch.rand(4000, 2, generator=generator) < 0.6)[:, owners]
    hidden = hide_cells(Incomplete(torch.zeros(4000, 4), observed), owners, generator)
    assert not (hidden & ~observed).any()
    assert torch.equal(hidden[:, 1], hidden[:, 2])
    assert torch.equal(hidden[:, 1], hidden[:, 3])
    share = float(hidden[observed].double().mean())
    assert abs(share - 0.4) < 0.04  # 4,800 cells: four standard errors are .028; .4 itself is an estimate
