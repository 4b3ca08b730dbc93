"""The experiment on causes: how variants depart from the methods, and that they run."""

from dataclasses import replace

import pytest
import torch

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.latent.training import FIRST_SCALE, start_images
from papers import EXPERIMENTS
from papers.missvae import causes, images, mixtures
from papers.missvae.causes import DIGITS, EXPERIMENT, MISSIWAE, MODELS, SeveralUpdates, start_together
from papers.missvae.methods import LatentMethod, build, rows_of

PLAN = replace(
    images.PLANS["smoke", images.MNIST],
    encoder={"widths": (4,), "patch": 7, "n_blocks": 1, "pooled": False},
    decoder={"widths": (4,), "patch": 7, "n_blocks": 1},
)


def distances(together):
    """Returns how far apart components are at the start, in standard deviations of each latent."""
    model = images.build(MODELS[DIGITS, MISSIWAE].method, PLAN)
    x = torch.where(torch.rand(20, 784, generator=torch_generator(0)) < 0.3, 1.0, -1.0)
    rows = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
    start_images(model, rows, torch_generator(0))
    if together:
        start_together(model, torch_generator(1))
    posterior = model.posterior(rows)
    assert float(posterior.scale.detach().mean()) == pytest.approx(FIRST_SCALE, rel=1.0)
    apart = posterior.component_distances()
    return float(apart.sum() / (len(rows) * 5 * 4))


def test_components_start_close_together_in_place_of_several():
    assert distances(together=True) < 1.5 < 3.0 < distances(together=False)


def test_one_update_is_the_objective_itself_and_more_change_imputations_more_often(shared_data):
    plan = replace(mixtures.PLANS["smoke"], n_rows=40, n_test=10)
    task = mixtures.make_task({}, 0, plan)
    method = LatentMethod("imputations", n_passes=3)
    found = {}
    for n_updates in (0, 1, 4):
        model = build(method, 5, plan, torch_generator(0))
        rows = rows_of(method, task.train, model, torch_generator(1))
        objective = method.objective(model)
        if n_updates:
            objective = SeveralUpdates(objective, n_updates)
        model.train()
        loss = objective(model, rows, objective.draw_noise(rows, torch_generator(2)))
        found[n_updates] = loss.detach(), rows.completions.visits.clone()
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=0)
    assert [int(visits.max()) for _, visits in found.values()] == [1, 1, 4]


@pytest.mark.slow
def test_every_variant_runs(tmp_path, shared_data):
    from papers import run

    assert EXPERIMENTS["missvae-causes"] is causes.EXPERIMENT
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert [cell.error for cell in results.cells] == [None] * len(MODELS)
