"""The experiment on mixture posteriors: its data, its equal budgets, its scores against other sums."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.errors import HalfseenWarning
from halfseen.training.loop import TrainingSettings
from papers import EXPERIMENTS, Better
from papers.missvae.methods import N_PASSES, build, rows_of, train
from papers.missvae.mixtures import (
    CVI,
    DEMISSIWAE,
    DEMISSVAE,
    EXPERIMENT,
    GAUSSIAN,
    METHODS,
    MISSIWAE,
    MISSSIWAE,
    MISSSVAE,
    MISSVAE,
    MIWAE,
    MVAE,
    MVB,
    N_SEEN,
    PICTURE_BOUNDS,
    PLANS,
    POSTERIORS,
    SCORE,
    TRUTH,
    GridPlan,
    SingleGaussian,
    Task,
    TrainedOnMixture,
    Truth,
    make_task,
    posteriors,
    score,
)
from papers.problems.toys import MixtureOfGaussians
from papers.tests.verdicts import MET_IF_TRAINED, outcomes

TINY = GridPlan(
    n_rows=200,
    n_test=20,
    n_blocks=1,
    width=16,
    training=TrainingSettings(max_epochs=2, batch_size=64, compile=False),
    bounds=(-5.0, 5.0),
    n_points=80,
)


def tiny_task(seed=0, share=0.5):
    law = MixtureOfGaussians.draw(n_components=3, random_state=0)
    x = torch.from_numpy(law.sample(200, 1).X).float()
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < share
    rows = Incomplete(torch.where(observed, x, torch.nan), observed)
    test = Incomplete.from_array(law.sample(20, 2).X, torch.float32)
    return Task(rows[observed.any(dim=1)], test, law, TINY, seed)


@pytest.fixture
def drawn_task(monkeypatch):
    """The task of a machine without the paper's file."""
    monkeypatch.delenv("HALFSEEN_DATA", raising=False)
    with pytest.warns(HalfseenWarning, match="another mixture is drawn"):
        return make_task({"plan": "smoke"}, 0)


def test_half_of_all_cells_are_missing_exactly_and_no_row_is_empty(drawn_task):
    rows = drawn_task.train
    n_empty = PLANS["smoke"].n_rows - len(rows)
    assert int((~rows.observed).sum()) + 5 * n_empty == 5 * PLANS["smoke"].n_rows // 2
    assert 0 < n_empty < 2 * PLANS["smoke"].n_rows / 32
    assert rows.observed.any(dim=1).all()
    assert drawn_task.test.observed.all()
    assert len(drawn_task.test) == PLANS["smoke"].n_test


def test_seeds_change_the_mask_and_never_the_rows(drawn_task):
    with pytest.warns(HalfseenWarning):
        other = make_task({"plan": "smoke"}, 1)
    size = min(len(other.train), len(drawn_task.train))
    assert not torch.equal(other.train.observed[:size], drawn_task.train.observed[:size])
    assert torch.equal(other.test.x, drawn_task.test.x)
    seen = [set(task.train.x[task.train.observed].tolist()) for task in (other, drawn_task)]
    assert len(seen[0] & seen[1]) > 2_000  # cells that both show, a quarter of 10,000


def test_the_papers_rows_have_the_known_scores_of_their_distribution_and_of_a_gaussian(shared_data):
    task = make_task({"plan": "small"}, 0)
    assert task.true_score == pytest.approx(-2.095, abs=5e-4)
    assert SingleGaussian().score(task)[SCORE] == pytest.approx(-6.97, abs=0.02)
    assert (len(task.test), 19_200 < len(task.train) < 19_550) == (1_000, True)


def test_a_gaussian_of_complete_rows_is_their_mean_and_covariance():
    task = tiny_task(share=1.1)
    x = task.train.to_array()
    law = multivariate_normal(x.mean(axis=0), np.cov(x.T, bias=True))
    expected = law.logpdf(task.test.to_array()).mean()
    assert SingleGaussian().score(task)[SCORE] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_decodes_as_many_latents_of_a_row_in_a_step(name, monkeypatch):
    task, counts = tiny_task(), []

    def count(method, *args):
        model = build(method, *args)
        model.decoder.register_forward_hook(lambda _, given, __: counts.append(given[0].shape))
        return model

    monkeypatch.setattr("papers.missvae.methods.build", count)
    train(METHODS[name], task.train, TINY, 0)
    n_batches = math.ceil(len(task.train) / 64)
    rows = len(task.train) // n_batches
    assert len(counts) == 2 * n_batches  # one call a step: no method has evaluations besides
    assert {math.prod(shape[:-1]) for shape in counts} == {N_PASSES * rows}


def test_methods_are_the_papers_combinations_of_posterior_sampling_and_bound():
    found = {}
    for name, method in METHODS.items():
        model = build(method, 5, TINY, torch.Generator().manual_seed(0))
        objective = method.objective(model)
        if method.posterior == "imputations":
            found[name] = (model.n_components, objective.variant, objective.imputer, objective.gradient)
        else:
            found[name] = (model.n_components, objective.sampling, objective.bound, objective.gradient)
    assert found == {
        MVAE: (1, "ancestral", "elbo", "stl"),
        MISSVAE: (15, "ancestral", "elbo", "stl"),
        MISSSVAE: (15, "stratified", "elbo", "stl"),
        MIWAE: (1, "ancestral", "iwelbo", "stl"),
        MISSIWAE: (15, "ancestral", "iwelbo", "stl"),
        MISSSIWAE: (15, "stratified", "iwelbo", "stl"),
        DEMISSVAE: (1, "decomposed", "lair", "stl"),
        DEMISSIWAE: (1, "decomposed-iw", "lair", "stl"),
        CVI: (1, "cvi", "lair", "stl"),
        MVB: (1, "mvb", "lair", "stl"),
    }


def test_all_methods_start_from_the_same_decoder_and_another_seed_from_another():
    def weights(method, seed):
        model = build(method, 5, TINY, torch.Generator().manual_seed(seed))
        return torch.cat([p.flatten() for p in model.decoder.parameters()])

    first = weights(METHODS[MVAE], 0)
    assert all(torch.equal(weights(method, 0), first) for method in METHODS.values())
    assert not torch.equal(weights(METHODS[MVAE], 1), first)


@pytest.mark.parametrize("name", [MISSSIWAE, DEMISSVAE])
def test_training_is_a_function_of_the_seed_and_changes_both_networks(name):
    task = tiny_task()
    once, again, other = (train(METHODS[name], task.train, TINY, seed).model for seed in (0, 0, 1))
    start = build(METHODS[name], 5, TINY, torch.Generator().manual_seed(0))
    for key, value in once.state_dict().items():
        assert torch.equal(value, again.state_dict()[key])
        if key.endswith("weight"):
            assert not torch.equal(value, other.state_dict()[key])
            assert not torch.equal(value, start.state_dict()[key])


def test_imputations_change_in_training_and_diagnostics_leave_them_alone():
    task = tiny_task()
    fitted = train(METHODS[DEMISSVAE], task.train, TINY, 0)
    completions = fitted.rows.completions
    assert completions.n_completions == N_PASSES
    assert (completions.visits >= 1).all()
    before = completions.x.clone()
    assert set(fitted.noise(64, 0)) == {"encoder gradient SNR", "decoder gradient SNR"}
    assert torch.equal(completions.x, before)


def test_the_score_is_the_log_likelihood_of_complete_rows_under_the_trained_decoder():
    task = tiny_task()
    found = score(TrainedOnMixture(MIWAE, METHODS[MIWAE]), task)
    model = train(METHODS[MIWAE], task.train, TINY, 0).model.double()
    axis = torch.linspace(-7, 7, 141, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis)
    loc, raw = model.decoder(z).detach().chunk(2, dim=-1)
    std = 1e-3 + torch.nn.functional.softplus(raw)
    x = task.test.x.double()[:, None]
    log_prob = torch.distributions.Normal(loc, std).log_prob(x).sum(dim=-1)
    log_prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(dim=-1)
    expected = (log_prob + log_prior).logsumexp(dim=-1).mean() + 2 * math.log(0.1)
    assert found[SCORE] == pytest.approx(float(expected), abs=1e-4)  # networks in float32
    assert found["below the true mixture"] == pytest.approx(task.true_score - found[SCORE], abs=EXACT)
    assert found["rows narrower than cells"] == 0
    assert found.pop(POSTERIORS).shape[:2] == (len(N_SEEN), 3)
    assert all(math.isfinite(value) for value in found.values())


def grid_points(n_points):
    step = (PICTURE_BOUNDS[1] - PICTURE_BOUNDS[0]) / n_points
    axis = PICTURE_BOUNDS[0] + step * (torch.arange(n_points, dtype=torch.float64) + 0.5)
    return torch.cartesian_prod(axis, axis)


def random_model(method, seed=0):
    """A decoder with weights of twice the usual size, so that posteriors differ from the prior."""
    model = build(method, 5, TINY, torch.Generator().manual_seed(seed)).double()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.mul_(2.0)
    return model


def test_kept_posteriors_are_of_the_complete_row_of_what_is_seen_and_of_the_encoder():
    """The mean of a density over the cells of the picture, against a finer sum of other code."""
    model, test = random_model(METHODS[MISSSVAE]), tiny_task().test.to(torch.float64)
    found = posteriors(model, test).astype(float)
    assert found.sum(axis=(2, 3)) == pytest.approx(np.ones((len(N_SEEN), 3)), abs=2e-3)  # half precision
    side = found.shape[-1]
    coarse, fine = grid_points(side), grid_points(3 * side)
    loc, raw = model.decoder(fine).detach().chunk(2, dim=-1)
    law = torch.distributions.Normal(loc, 1e-3 + torch.nn.functional.softplus(raw))
    log_prior = torch.distributions.Normal(0.0, 1.0).log_prob(fine).sum(dim=-1)
    for place, n_seen in enumerate(N_SEEN):
        terms = law.log_prob(test.x[place])  # (G, D)
        expected = {}
        for seen in torch.combinations(torch.arange(5), n_seen).tolist():
            weights = (terms[:, seen].sum(dim=-1) + log_prior).softmax(dim=0)
            expected[tuple(seen)] = (weights[:, None] * fine).sum(dim=0)
        whole = ((terms.sum(dim=-1) + log_prior).softmax(dim=0)[:, None] * fine).sum(dim=0)
        means = torch.einsum("tg,gl->tl", torch.from_numpy(found[place].reshape(3, -1)), coarse)
        torch.testing.assert_close(means[0], whole, rtol=0, atol=5e-3)
        seen = min(expected, key=lambda some: float((expected[some] - means[1]).norm()))
        torch.testing.assert_close(means[1], expected[seen], rtol=0, atol=5e-3)
        observed = torch.tensor([[feature in seen for feature in range(5)]])
        encoder = model.posterior(Incomplete(test.x[place : place + 1], observed)).mean()[0].detach()
        torch.testing.assert_close(means[2], encoder, rtol=0, atol=5e-3)


def test_posteriors_are_kept_of_four_methods_and_one_seed(monkeypatch):
    monkeypatch.setattr("papers.missvae.mixtures.posteriors", lambda model, test: np.zeros(1))
    monkeypatch.setattr("papers.missvae.methods.SNR_STEPS", 2)

    def keeps(name, seed):
        return POSTERIORS in TrainedOnMixture(name, METHODS[name]).score(tiny_task(seed=seed))

    assert [keeps(name, 0) for name in (MVAE, MISSSVAE, MIWAE, MISSSIWAE)] == [True] * 4
    assert not keeps(MISSVAE, 0)
    assert not keeps(MVAE, 1)


def test_the_use_of_components_is_reported_for_mixtures_only():
    task = tiny_task()
    usage = {name: train(METHODS[name], task.train, TINY, 0).usage(task.train) for name in (MIWAE, MISSSIWAE)}
    assert usage[MIWAE] == {}
    found = usage[MISSSIWAE]
    assert 1 <= found["components in use in a row"] <= N_PASSES
    assert found["components in use in no row"] == 0
    model = build(METHODS[MISSSIWAE], 5, TINY, torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.encoder.output.weight.zero_()
        model.encoder.output.bias.zero_()
        model.encoder.output.bias[0] = 2.0  # the first latent of the first component
    fitted = dataclasses.replace(train(METHODS[MISSSIWAE], task.train, TINY, 0), model=model)
    nearest = 2.0 / (math.log(2.0) + 1e-5) / math.sqrt(2.0)  # for one of 15; the others are copies
    assert fitted.usage(task.train) == {
        "components in use in a row": pytest.approx(15.0),
        "components in use in no row": 0.0,
        "distance to the nearest component": pytest.approx(nearest / 15, rel=1e-5),
    }


@pytest.mark.parametrize(
    ("name", "sizes"),
    [(MIWAE, (1, 6)), (MISSIWAE, (6, 6)), (MISSSIWAE, (6, 1)), (DEMISSVAE, (6, 1)), (DEMISSIWAE, (2, 3))],
)
def test_a_budget_is_shared_by_components_or_imputations_and_their_latents(name, sizes):
    method, data = dataclasses.replace(METHODS[name], n_passes=6), tiny_task().train
    generator = torch.Generator().manual_seed(0)
    model = build(method, 5, TINY, generator)
    rows = rows_of(method, data, model, generator)
    n_parts = rows.completions.n_completions if hasattr(rows, "completions") else model.n_components
    assert (n_parts, method.objective(model).n_draws) == sizes


def test_nothing_is_above_the_true_mixture_and_its_own_score_is_its_density():
    task = tiny_task()
    found = score(Truth(), task)
    parts = [
        np.log(weight) + multivariate_normal(loc, covariance).logpdf(task.test.to_array())
        for weight, loc, covariance in zip(task.law.weights, task.law.locs, task.law.covariances, strict=True)
    ]
    assert found[SCORE] == pytest.approx(np.logaddexp.reduce(parts).mean(), abs=1e-8)
    assert found["below the true mixture"] == 0.0


def test_the_claims_are_those_of_the_paper_on_models_that_every_scale_runs():
    pairs = [(claim.model, claim.other, claim.on) for claim in EXPERIMENT.claims]
    assert pairs[:3] == [(MISSSVAE, MVAE, SCORE), (MISSSIWAE, MIWAE, SCORE), (DEMISSVAE, MVAE, SCORE)]
    assert all(isinstance(claim, Better) for claim in EXPERIMENT.claims)
    assert [claim.other for claim in EXPERIMENT.claims if claim.by] == [MIWAE]  # "comparable"
    for scale, n_seeds in {"smoke": 1, "small": 3, "paper": 5}.items():
        cells = EXPERIMENT.cells(scale)
        assert {cell.model for cell in cells} == {*METHODS, TRUTH, GAUSSIAN}
        judged = {name for pair in pairs for name in pair[:2]}
        assert {(c.model, c.seed) for c in cells} >= {(m, s) for m in judged for s in range(n_seeds)}
        assert {cell.setting["plan"] for cell in cells} == {scale}
    assert EXPERIMENTS["missvae"] is EXPERIMENT


def test_claims_are_judged_on_trained_networks_only():
    worse = dict.fromkeys((MVAE, MIWAE, MISSVAE, MISSIWAE, CVI, MVB), 0.0)
    assert outcomes(EXPERIMENT, SCORE, worse, 1.0) == MET_IF_TRAINED


def test_the_plan_of_the_paper_is_the_papers():
    plan = PLANS["paper"]
    assert (plan.n_rows, plan.n_test, plan.n_blocks, plan.width) == (20_000, 1_000, 3, 200)
    assert (plan.bounds, plan.n_points) == ((-10.0, 10.0), 500)
    training = plan.training
    assert (training.max_epochs, training.batch_size, training.learning_rate) == (500, 64, 1e-3)
    assert (training.schedule, training.gradient_clip, training.patience) == ("constant", 10.0, 500)
