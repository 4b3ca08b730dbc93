"""The experiment on images: its data, its equal budgets, its scores against other sums."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.latent.model import POSTERIOR_FLOOR
from halfseen.report.figures import to_svg
from papers import EXPERIMENTS, run
from papers.figures.latent import FIGURES
from papers.missvae.images import (
    DISTANCE,
    EXPERIMENT,
    METHODS,
    MISSIWAE,
    MIWAE,
    MNIST,
    MVAE,
    N_PASSES,
    N_PIXELS,
    OMNIGLOT,
    PIXELS,
    PLANS,
    SCORE,
    SEEN,
    SURPRISE,
    WRONG,
    PixelMeans,
    Task,
    TrainedOnImages,
    build,
    make_task,
    train,
)
from papers.missvae.latent_likelihood import refit_encoder
from papers.missvae.methods import bound_of_complete
from papers.tests.verdicts import MET_IF_TRAINED, outcomes

SMOKE = PLANS["smoke", MNIST]
TINY = replace(
    SMOKE,
    encoder={"widths": (4,), "patch": 7, "n_blocks": 1, "pooled": False},
    decoder={"widths": (4,), "patch": 7, "n_blocks": 1},
    n_draws=10,
    n_imputed=6,
)


def log_likelihood(model, task):
    return bound_of_complete(model, task.test, task.plan.refit, N_PASSES, task.plan.n_draws, task.seed)


def tiny_task(seed=0, n_train=60):
    """Images that are white on the left or on the right."""
    rng = np.random.default_rng(seed)
    sides = rng.random((n_train + 8, 1, 1)) < 0.5
    images = np.where((np.arange(28) < 14) ^ sides, 1.0, -1.0).repeat(28, axis=1).reshape(-1, N_PIXELS)
    x = torch.from_numpy(images).float()
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    rows = Incomplete(torch.where(observed, x, torch.nan), observed)
    complete = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
    return Task(rows[:n_train], complete[:n_train], complete[n_train:], observed[n_train:], TINY, seed)


@pytest.mark.slow
@pytest.mark.parametrize("data", [MNIST, OMNIGLOT])
def test_two_quarters_of_binary_images_are_missing_every_pair_as_often(shared_data, data):
    task = make_task({"plan": "smoke", "data": data}, 0)
    assert set(task.train.x[task.train.observed].unique().tolist()) == {-1.0, 1.0}
    quarters = task.train.observed.reshape(-1, 2, 14, 2, 14)
    seen = quarters[:, :, 0, :, 0]  # one pixel of each
    assert torch.equal(quarters, seen[:, :, None, :, None].expand_as(quarters))
    patterns, counts = torch.unique(seen.flatten(1), dim=0, return_counts=True)
    assert (patterns.sum(dim=1) == 2).all()
    assert len(patterns) == 6
    assert (counts - 500 / 6).abs().max() < 5 * (500 * 5 / 36) ** 0.5  # a failure in 10^6
    assert task.test.observed.all()
    other = make_task({"plan": "smoke", "data": data}, 1)
    assert not torch.equal(other.train.observed, task.train.observed)
    assert 0 < (other.test.x != task.test.x).double().mean() < 0.1  # grey pixels are drawn anew


@pytest.mark.slow
def test_the_parts_of_omniglot_have_the_papers_sizes_and_do_not_meet(shared_data):
    task = make_task({"plan": "paper", "data": OMNIGLOT}, 0)
    assert (len(task.train), len(task.test)) == (27_396, 4_870)
    small = make_task({"plan": "smoke", "data": OMNIGLOT}, 0)
    assert (len(small.train), len(small.test)) == (500, 20)


def test_pixel_means_score_independent_pixels():
    task = tiny_task()
    found = PixelMeans().score(task)
    x, seen = task.train.x.numpy(), task.train.observed.numpy()
    white = (np.where(seen, x, 0.0) > 0).sum(axis=0)
    share = (white + 1) / (seen.sum(axis=0) + 2)
    truth = task.test.x.numpy() > 0
    log_prob = np.where(truth, np.log(share), np.log(1 - share))
    assert found[SCORE] == pytest.approx(log_prob.sum(axis=1).mean(), rel=1e-5)
    hidden = ~task.observed.numpy()[:6]
    assert found[SURPRISE] == pytest.approx(-log_prob[:6][hidden].mean(), rel=1e-5)
    wrong = (truth[:6] != (share > 0.5))[hidden]
    assert found[WRONG] == pytest.approx(wrong.mean(), abs=0.1)  # ties apart
    assert found[SEEN] == 60


def test_methods_are_the_papers_and_decode_five_latents_of_an_image():
    found = {}
    for name, method in METHODS.items():
        model = build(method, TINY)
        objective = method.objective(model)
        found[name] = (model.n_components, objective.n_draws, objective.sampling, objective.bound)
    assert found == {
        MVAE: (1, 5, "ancestral", "elbo"),
        MIWAE: (1, 5, "ancestral", "iwelbo"),
        MISSIWAE: (5, 5, "ancestral", "iwelbo"),
    }


def test_training_starts_from_pixel_means_and_is_a_function_of_the_seed():
    task = tiny_task()
    idle = replace(task, plan=replace(TINY, training=replace(TINY.training, max_epochs=0)))
    bias = train(METHODS[MIWAE], idle).decoder.bias.sigmoid()
    seen = task.train.observed
    white = torch.where(seen, task.train.x, -1.0).gt(0).sum(dim=0)
    torch.testing.assert_close(bias.detach(), (white + 1.0) / (seen.sum(dim=0) + 2.0))
    once, again = (train(METHODS[MIWAE], task).state_dict() for _ in range(2))
    other = train(METHODS[MIWAE], replace(task, seed=1)).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in once.items())
    assert not torch.equal(once["decoder.first.weight"], other["decoder.first.weight"])


def test_what_is_under_the_mask_has_no_influence():
    task = tiny_task()
    lies = Incomplete(torch.where(task.train.observed, task.train.x, 1e9), task.train.observed)
    once, again = (train(METHODS[MISSIWAE], replace(task, train=rows)) for rows in (task.train, lies))
    assert torch.equal(once.decoder.first.weight, again.decoder.first.weight)


def test_the_score_of_a_model_that_needs_no_latents_is_exact():
    """The decoder heeds no latent and the posterior is the prior, so that all weights are the likelihood."""
    task = tiny_task()
    task = replace(task, plan=replace(TINY, refit=replace(TINY.refit, max_epochs=0)))
    model = train(METHODS[MIWAE], task)
    with torch.no_grad():
        for weight in (model.decoder.first.weight, model.encoder.output.weight):
            weight.zero_()
        model.encoder.output.bias[:50] = 0.0
        model.encoder.output.bias[50:] = math.log(math.expm1(1.0 - POSTERIOR_FLOOR))
    logits = model.decoder(torch.zeros(1, 50)).detach().double()
    expected = torch.nn.functional.logsigmoid(logits * task.test.x).sum(dim=1)
    torch.testing.assert_close(log_likelihood(model, task), expected, rtol=1e-4, atol=0.0)  # in float32


def test_the_encoder_is_refitted_to_complete_test_images_and_comes_closer(monkeypatch):
    given = []

    def record(model, batch, **options):
        given.append(batch)
        return refit_encoder(model, batch, **options)

    monkeypatch.setattr("papers.missvae.methods.refit_encoder", record)
    task = tiny_task()
    model = train(METHODS[MIWAE], task)
    scores = []
    for epochs in (0, 20):
        refit = replace(TINY.refit, max_epochs=epochs, learning_rate=1e-2)
        scores.append(float(log_likelihood(model, replace(task, plan=replace(TINY, refit=refit))).mean()))
    assert scores[1] > scores[0] + 1.0
    assert all(batch is task.test for batch in given)


def test_the_distance_is_none_for_the_training_images_and_grows_with_noise():
    task = tiny_task(n_train=200)
    assert task.distance(task.complete) == pytest.approx(0.0, abs=1e-4)  # features are in float32
    flips = torch.rand(task.complete.x.shape, generator=torch.Generator().manual_seed(0))
    noisy = [
        task.distance(replace(task.complete, x=torch.where(flips < share, -1.0, 1.0) * task.complete.x))
        for share in (0.05, 0.5)
    ]
    assert 1e-3 < noisy[0] < noisy[1]
    assert PixelMeans().score(task)[DISTANCE] > noisy[0]


@pytest.mark.parametrize("name", [MVAE, MISSIWAE])
def test_a_run_has_scores_what_it_cost_and_pictures_that_keep_what_was_seen(name):
    task = tiny_task()
    found = TrainedOnImages(METHODS[name]).score(task)
    assert set(EXPERIMENT.metrics) <= set(found)
    assert found[SEEN] == 60
    assert 0 <= found[WRONG] <= 1
    truth, observed, draws = (found[key] for key in ("truth", "observed", "draws"))
    assert (truth.shape, observed.shape, draws.shape) == ((6, 784), (6, 784), (4, 6, 784))
    np.testing.assert_array_equal(draws[:, observed], np.broadcast_to(truth[observed], (4, observed.sum())))


def test_the_claims_are_on_trained_networks_and_the_papers_numbers_on_their_lines():
    expected = MET_IF_TRAINED | {"small": {"undecided"}}  # one seed has no interval
    assert outcomes(EXPERIMENT, SCORE, {MVAE: 0.0, MIWAE: 1.0}, 2.0) == expected
    setting = {"data": MNIST, "plan": "small"}
    assert EXPERIMENT.numbers(setting, MISSIWAE, SCORE).mean == pytest.approx(-89.7, abs=EXACT)
    assert EXPERIMENT.numbers({**setting, "data": OMNIGLOT}, MVAE, SCORE).mean == pytest.approx(-124.7)
    assert EXPERIMENT.numbers(setting, PIXELS, SCORE) is None
    assert EXPERIMENT.numbers(setting, MISSIWAE, WRONG) is None
    assert EXPERIMENTS["missvae-images"] is EXPERIMENT


def test_the_plan_of_the_paper_is_the_papers():
    for data, epochs, batch, first in ((MNIST, 500, 200, 32), (OMNIGLOT, 200, 150, 64)):
        plan = PLANS["paper", data]
        training = plan.training
        assert (training.max_epochs, training.batch_size, training.learning_rate) == (epochs, batch, 1e-4)
        assert (training.schedule, training.gradient_clip) == ("cosine", 5.0)
        assert plan.encoder["widths"] == tuple(first * 2**stage for stage in range(4))
        assert plan.decoder["widths"] == (4 * first, 2 * first, first, first)
        assert (plan.n_train, plan.n_test, plan.n_draws) == (None, None, 1_000)


@pytest.mark.slow
def test_the_smoke_scale_runs_and_draws_its_picture(shared_data, tmp_path):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
    picture = FIGURES["missvae-images"]["grid"](results)
    assert sum(len(part.axes) for part in picture.subfigs) == 2 * (2 + len(METHODS))
    again = FIGURES["missvae-images"]["grid"](run(EXPERIMENT, "smoke", tmp_path))
    assert to_svg(again) == to_svg(picture)
