"""Where curves of missingness start: from probits, and as steps at the edge of what was seen."""

import math

import pytest
import torch
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.latent.mask_models import MaskLayout
from halfseen.latent.self_masking import FlexibleSelfMask, LinearSelfMask, MonotoneMask, SharedSlopeMask
from halfseen.latent.training import LOGISTIC, STEEP, start_from_edges, start_from_probit

EVERY = torch.ones(3, dtype=torch.bool)
UP, DOWN = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([-1.0, -1.0, -1.0])
MODELS = {
    "known, up": (lambda: LinearSelfMask(3, 1), UP),
    "known, down": (lambda: LinearSelfMask(3, -1), DOWN),
    "free": (lambda: LinearSelfMask(3), torch.tensor([1.0, -1.0, 1.0])),
    "shared, up": (lambda: SharedSlopeMask(3, 1), UP),
    "shared, down": (lambda: SharedSlopeMask(3, -1), DOWN),
    "monotone": (lambda: MonotoneMask(3, (1, -1, 1)), torch.tensor([1.0, -1.0, 1.0])),
    "flexible": (lambda: FlexibleSelfMask(3), torch.tensor([-1.0, 1.0, 1.0])),
}


def rows(generator, n_rows=40):
    x = torch.randn(n_rows, 3, generator=generator, dtype=torch.float64)
    observed = torch.rand(n_rows, 3, generator=generator) < 0.7
    return Incomplete(torch.where(observed, x, torch.nan), observed)


def started(name, batch, generator, slope=0.5):
    """A model after both starts, the first with slopes in the directions of the table above."""
    build, directions = MODELS[name]
    model = build().double()
    model.reset_parameters(generator, torch.full((3,), 0.7, dtype=torch.float64))
    coefficients = torch.stack([slope * directions.double(), torch.zeros(3).double()], dim=1)
    start_from_probit(model, coefficients, EVERY)
    start_from_edges(model, batch, EVERY)
    return model, directions.double()


def missing(model, x):
    return torch.sigmoid(-model.logits(x)).detach()


def edges(batch, directions):
    """By plain loops."""
    return torch.tensor(
        [
            float(directions[c]) * max(float(directions[c] * v) for v in batch.x[batch.observed[:, c], c])
            for c in range(3)
        ],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("name", MODELS)
def test_beyond_the_farthest_value_seen_cells_are_missing_and_short_of_it_they_are_not(name, generator):
    batch = rows(generator)
    model, directions = started(name, batch, generator)
    edge = edges(batch, directions)
    assert (missing(model, edge + 0.5 * directions) > 0.99).all()
    assert (missing(model, edge - 0.5 * directions) < 0.01).all()


@pytest.mark.parametrize("name", ["known, up", "known, down", "free", "shared, up", "shared, down"])
def test_at_the_farthest_value_the_odds_are_even_and_have_the_given_slope(name, generator):
    batch = rows(generator)
    model, directions = started(name, batch, generator)
    edge = edges(batch, directions)
    torch.testing.assert_close(missing(model, edge), torch.full((3,), 0.5).double(), rtol=0, atol=EXACT)
    odds = torch.logit(missing(model, edge + 0.1 * directions))
    torch.testing.assert_close(odds, torch.full((3,), 0.1 * STEEP).double(), rtol=0, atol=1e-8)


def test_a_slope_that_is_steeper_stays_and_its_step_moves_to_the_edge(generator):
    batch = rows(generator)
    model, directions = started("known, up", batch, generator, slope=100.0)
    torch.testing.assert_close(
        model.slope, torch.full((3,), 100.0 * LOGISTIC, dtype=torch.float64), rtol=0, atol=1e-8
    )
    torch.testing.assert_close(
        missing(model, edges(batch, directions)), torch.full((3,), 0.5).double(), rtol=0, atol=1e-8
    )


def test_values_under_the_mask_are_never_read(generator):
    batch = rows(generator)
    far = Incomplete(torch.where(batch.observed, batch.x, 1e6), batch.observed)
    states = [torch.Generator().manual_seed(1) for _ in range(2)]
    one, other = (started("free", given, state)[0] for given, state in zip((batch, far), states, strict=True))
    assert torch.equal(one.bias, other.bias)
    assert torch.equal(one.raw_slope, other.raw_slope)


def test_only_active_columns_of_numbers_that_were_seen_become_steps(generator):
    layout = MaskLayout(column_of_feature=(0, 1, 1, 1, 2, 3))  # column 1 has three levels
    x = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    observed = torch.ones(30, 6, dtype=torch.bool)
    observed[:, 5] = False  # never seen, so it has no edge
    model = LinearSelfMask(layout, 1).double()
    model.reset_parameters(generator, torch.full((4,), 0.7, dtype=torch.float64))
    bias, slope = model.bias.detach().clone(), model.slope.detach().clone()
    start_from_edges(model, Incomplete(x, observed), torch.tensor([False, True, True, True]))
    assert torch.equal(model.bias[[0, 1, 3]], bias[[0, 1, 3]])
    assert torch.equal(model.slope[[0, 1, 3]], slope[[0, 1, 3]])
    assert float(model.slope[2].detach()) == pytest.approx(STEEP, abs=1e-8)
    assert float(model.bias[2].detach()) == pytest.approx(STEEP * float(x[:, 4].max()), abs=1e-8)


def test_a_probit_becomes_the_logistic_curve_that_is_closest(generator):
    """They differ by less than 0.01 everywhere, which is why the constant is what it is."""
    model = LinearSelfMask(1).double()
    start_from_probit(model, torch.tensor([[0.8, -0.3]], dtype=torch.float64), EVERY[:1])
    x = torch.linspace(-5, 5, 201, dtype=torch.float64)[:, None]
    probit = 0.5 * (1 + torch.erf((0.8 * x - 0.3) / math.sqrt(2)))
    assert float((missing(model, x) - probit).abs().max()) < 0.01


def test_a_probit_against_the_known_direction_leaves_the_curve_as_it_was(generator):
    model = LinearSelfMask(2, 1).double()
    model.reset_parameters(generator, torch.tensor([0.6, 0.6], dtype=torch.float64))
    slope = model.slope.detach().clone()
    start_from_probit(model, torch.tensor([[-2.0, 0.1], [2.0, 0.1]], dtype=torch.float64), EVERY[:2])
    assert torch.equal(model.slope[0], slope[0])
    assert float(model.slope[1].detach()) == pytest.approx(2.0 * LOGISTIC, abs=1e-8)
