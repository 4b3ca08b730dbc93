"""The experiment on the imputations of DeMissVAE: exact draws, oracles and their divergence."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerances import EXACT
from torch import nn

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation_model import ObservationModel
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.completions import CompletedRows, Completions
from halfseen.latent.decomposed import DecomposedObjective
from halfseen.latent.model import LatentModel
from halfseen.nn.residual import ResidualMLP
from papers.missvae import mixtures
from papers.missvae.imputations import (
    EXPERIMENT,
    ORACLES,
    FromPool,
    GivenImputations,
    Oracle,
    from_model,
    make_task,
)
from papers.missvae.methods import LatentMethod, build, rows_of
from papers.problems.toys import MixtureOfGaussians

LAW = MixtureOfGaussians.draw(3, 3, random_state=0)
N_DRAWS = 20_000
WITHIN = 4.5  # standard errors: with ten numbers a test, fewer than one in ten thousand seeds fails


def incomplete(*rows):
    x = torch.tensor(rows, dtype=torch.float64)
    return Incomplete(x, ~x.isnan())


ROWS = incomplete([0.5, math.nan, -0.3], [math.nan, 0.2, math.nan])


def mean_and_error(draws):
    return draws.mean(dim=0), draws.std(dim=0) / len(draws) ** 0.5


def test_draws_of_the_true_conditional_have_its_mean_and_keep_what_is_observed():
    draws = Oracle(LAW, ORACLES["truth"]).draws(ROWS, N_DRAWS, torch_generator(0))
    assert (draws[:, ROWS.observed] == ROWS.x[ROWS.observed]).all()
    mean, error = mean_and_error(draws)
    expected = torch.from_numpy(LAW.predict_bayes(ROWS.x.numpy()))
    assert ((mean - expected).abs() <= WITHIN * error + EXACT).all()  # rounding of observed cells


def test_marginals_and_normals_do_not_depend_on_what_is_observed():
    draws = Oracle(LAW, ORACLES["marginals"]).draws(ROWS, N_DRAWS, torch_generator(0))[:, ~ROWS.observed]
    mean, error = mean_and_error(draws)
    assert (mean.abs() <= WITHIN * error).all()  # columns are standardised
    covered = (draws[:, 0] < 0.3).double().mean()
    column = LAW.sample(200_000, 1).X[:, 1] < 0.3
    assert float(covered) == pytest.approx(column.mean(), abs=WITHIN * 0.5 / N_DRAWS**0.5)
    normal = Oracle(LAW, ORACLES["normal"]).draws(ROWS, N_DRAWS, torch_generator(0))[:, ~ROWS.observed]
    assert normal.std(dim=0).numpy() == pytest.approx(np.ones(3), abs=WITHIN / (2 * N_DRAWS) ** 0.5)


@pytest.mark.parametrize("name", ORACLES)
def test_densities_are_of_the_draws(name):
    """They integrate to one, with the mean of the draws."""
    oracle, row = Oracle(LAW, ORACLES[name]), ROWS[:1]
    cells = torch.linspace(-12.0, 12.0, 4_001, dtype=torch.float64)
    grid = row.x.expand(len(cells), -1).clone()
    grid[:, 1] = cells
    batch = Incomplete(row.x.expand(len(cells), -1), row.observed.expand(len(cells), -1))
    density = oracle.log_prob(batch, grid).exp()
    assert float(torch.trapezoid(density, cells)) == pytest.approx(1.0, abs=1e-3)
    draws = oracle.draws(row, N_DRAWS, torch_generator(1))[:, 0, 1]
    mean = torch.trapezoid(density * cells, cells)
    assert abs(float(draws.mean() - mean)) <= WITHIN * float(draws.std()) / N_DRAWS**0.5


def test_the_divergence_is_zero_of_the_truth_and_below_the_log_of_two():
    X, _, observed = LAW.sample(300, 3)
    batch = Incomplete.from_array(np.where(observed, X, np.nan))
    found = {
        name: Oracle(LAW, shares).divergence(batch, torch_generator(0)) for name, shares in ORACLES.items()
    }
    assert found["truth"] == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < found["half marginals"] < found["marginals"] < math.log(2.0)
    assert 0.0 < found["half modes"] < found["modes"] < math.log(2.0)


class LinearDecoder(nn.Module):
    """Means that are linear in two latents, and one scale."""

    def __init__(self, slopes, raw_scale):
        super().__init__()
        self.slopes, self.raw_scale = slopes, raw_scale

    def forward(self, z):
        loc = z @ self.slopes.to(z.dtype)
        return torch.cat([loc, torch.full_like(loc, self.raw_scale)], dim=-1)


def test_draws_of_the_model_are_those_of_its_gaussian_if_the_decoder_is_linear():
    slopes = torch.tensor([[0.8, -0.5, 0.3], [0.2, 0.6, 0.9]], dtype=torch.float64)
    observation = ObservationModel.for_pixels(3, "gaussian")
    model = LatentModel(ResidualMLP(6, 4), LinearDecoder(slopes, 0.3), observation, 2)
    K, batch = N_DRAWS, incomplete([0.5, math.nan, -0.3])
    rows = CompletedRows.of(
        batch, Completions(torch.zeros(1, K, 3), batch.observed, torch.zeros(1), None, None)
    )
    generator = torch_generator(0)
    noise = [torch.rand(1, K, *rest, generator=generator, dtype=torch.float64) for rest in ((), (2,), (3,))]
    drawn = from_model(model, rows, tuple(noise))[0, :, 1]
    scale = float(
        observation.sample(
            torch.cat([torch.zeros(1, 3), torch.full((1, 3), 0.3)], dim=1),
            torch.tensor([[0.5, 0.5, 0.8413447]]),
        ).double()[0, 2]
    )
    law = Gaussian(torch.zeros(3, dtype=torch.float64), slopes.T @ slopes + scale**2 * torch.eye(3))
    mean, variance = (moment[0, 1] for moment in law.moments(batch))
    assert abs(float(drawn.mean() - mean)) <= WITHIN * float(variance / K) ** 0.5
    # Draws within a cell of side 1/6 are uniform, which widens posteriors by less than its square.
    assert float(drawn.var()) == pytest.approx(float(variance), rel=WITHIN * (2 / K) ** 0.5 + 0.02)


def test_given_imputations_leave_the_objective_as_it_is(shared_data):
    task = mixtures.make_task({}, 0, replace(mixtures.PLANS["smoke"], n_rows=40, n_test=10))
    model = build(LatentMethod("imputations", n_passes=3), 5, task.plan, torch_generator(0))
    rows = rows_of(LatentMethod("imputations", n_passes=3), task.train, model, torch_generator(1))
    before = rows.completed
    pool = before.movedim(1, 0).unsqueeze(0) + torch.tensor([0.0, 0.1]).view(2, 1, 1, 1)
    own = DecomposedObjective.for_model(model, n_rounds=0)
    given = GivenImputations(own, FromPool(pool), n_skipped=0)
    noise = given.draw_noise(rows, torch_generator(2))
    model.train()
    torch.testing.assert_close(given(model, rows, noise), own(model, replace(rows, held_out=True), noise[:3]))
    torch.testing.assert_close(rows.completed, before)
    given(model, rows, noise)  # the second visit
    missing = ~task.train.observed.unsqueeze(1).expand_as(before)
    allowed = rows.allowed(before + 0.1)
    torch.testing.assert_close(rows.completed, torch.where(missing & allowed, before + 0.1, before))


@pytest.mark.slow
def test_every_method_runs_with_imputations_of_the_model_and_of_oracles(tmp_path, shared_data):
    from papers import EXPERIMENTS, run

    assert EXPERIMENTS["missvae-imputations"] is EXPERIMENT
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert [cell.error for cell in results.cells] == [None] * 9
    assert make_task({"plan": "smoke", "imputations": "modes"}, 0).scores["divergence"] > 0
