"""The tabular study of mixture posteriors: its rows, its equal budgets, its scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from halfseen.data.incomplete import Incomplete
from papers import EXPERIMENTS, run
from papers.missvae.frechet import draw_rows
from papers.missvae.methods import build
from papers.missvae.mixtures import GAUSSIAN, SingleGaussian
from papers.missvae.tables import (
    CALIFORNIA,
    DEMISSVAE,
    DISTANCE,
    EXPERIMENT,
    LETTER,
    METHODS,
    MINIBOONE,
    MISSSVAE,
    MIWAE,
    MVAE,
    N_PASSES,
    PLANS,
    SCORE,
    SOURCES,
    Task,
    TrainedOnTables,
    make_task,
    score,
)
from papers.tests.verdicts import MET_IF_TRAINED, outcomes

TINY = replace(PLANS["smoke", LETTER], width=8, n_latent=2)


def tiny_task(seed=0, n_rows=300):
    rng = np.random.default_rng(seed)
    rows = rng.multivariate_normal(
        [0.0, 0.0, 0.0], [[1.0, 0.7, 0.2], [0.7, 1.0, 0.4], [0.2, 0.4, 1.0]], n_rows
    )
    holes = np.where(rng.random(rows.shape) < 0.3, np.nan, rows)
    train = Incomplete.from_array(holes[50:], torch.float32)
    return Task(train[train.observed.any(dim=1)], Incomplete.from_array(rows[:50], torch.float32), TINY, seed)


@pytest.mark.parametrize(("table", "shape"), [(CALIFORNIA, 9), (LETTER, 16), (MINIBOONE, 43)])
def test_rows_are_standardised_and_half_of_the_cells_missing(shared_data, table, shape):
    setting = {"plan": "smoke", "table": table, "missing": 0.5}
    task = make_task(setting, 0)
    n_empty = 500 - len(task.train)
    assert int((~task.train.observed).sum()) + shape * n_empty == shape * 250
    assert task.train.n_features == shape
    assert task.test.observed.all()
    train, test = SOURCES[table]()
    assert not {*map(tuple, train)} & {*map(tuple, test)}
    whole = make_task({**setting, "plan": "small"}, 0)
    cells = whole.train.x[whole.train.observed]
    assert abs(float(cells.mean())) < 0.02
    assert abs(float(cells.square().mean()) - 1) < 0.1
    other = make_task(setting, 1)
    assert torch.equal(other.test.x, task.test.x)  # seeds change only which cells are missing
    assert not np.array_equal(other.train.to_array(), task.train.to_array(), equal_nan=True)


def test_no_value_of_a_column_that_we_prepared_is_common(shared_data):
    """A density has no bound where many rows agree."""
    for table in (CALIFORNIA, LETTER):
        for column in SOURCES[table]()[0].T:
            _, counts = np.unique(column, return_counts=True)
            assert counts.max() < 0.02 * len(column), table


def test_methods_decode_five_latents_of_a_row():
    generator = torch.Generator().manual_seed(0)
    for name, method in METHODS.items():
        model = build(method, 3, TINY, generator)
        n_components = 5 if method.posterior == "mixture" else 1
        assert (model.n_components, model.n_latent) == (n_components, 2), name
        if method.posterior != "imputations":
            objective = method.objective(model)
            stratified = objective.sampling == "stratified"
            assert objective.n_draws * (n_components if stratified else 1) == N_PASSES


@pytest.mark.parametrize("name", [MVAE, MIWAE, DEMISSVAE])
def test_a_run_is_a_function_of_the_seed(name):
    task = tiny_task()
    once, again = (score(TrainedOnTables(METHODS[name]), task) for _ in range(2))
    assert once == again
    assert np.isfinite(list(once.values())).all()
    assert score(TrainedOnTables(METHODS[name]), replace(task, seed=1))[SCORE] != once[SCORE]


def test_the_gaussian_has_its_exact_likelihood():
    task = tiny_task(n_rows=5_000)
    law = multivariate_normal([0.0, 0.0, 0.0], [[1.0, 0.7, 0.2], [0.7, 1.0, 0.4], [0.2, 0.4, 1.0]])
    expected = law.logpdf(task.test.x.double().numpy()).mean()
    assert SingleGaussian().score(task)[SCORE] == pytest.approx(expected, abs=0.02)  # 5,000 rows


def test_the_bound_of_a_trained_model_comes_near_the_truth():
    """Three correlated Gaussians: a model with two latents can say them."""
    task = tiny_task(n_rows=4_000)
    training = replace(TINY.training, max_epochs=60, learning_rate=1e-2)
    plan = replace(TINY, training=training, refit=replace(TINY.refit, max_epochs=50), n_draws=200)
    exact = SingleGaussian().score(task)[SCORE]
    found = score(TrainedOnTables(METHODS[MIWAE]), replace(task, plan=plan))
    assert exact - 0.5 < found[SCORE] < exact + 0.2


def test_the_claims_are_on_trained_networks_and_the_papers_numbers_on_their_lines():
    worth = {GAUSSIAN: 0.0, MVAE: 1.0, MISSSVAE: 1.0, DEMISSVAE: 1.5}
    assert outcomes(
        replace(EXPERIMENT, metrics={SCORE: "higher", DISTANCE: "higher"}), SCORE, worth, 2.0
    ) == (MET_IF_TRAINED)
    setting = {"table": MINIBOONE, "plan": "small", "missing": 0.5}
    assert EXPERIMENT.numbers(setting, MIWAE, SCORE).mean == pytest.approx(-17.45)
    assert EXPERIMENT.numbers({**setting, "table": LETTER}, MIWAE, SCORE) is None
    assert EXPERIMENT.numbers(setting, GAUSSIAN, SCORE) is None
    assert EXPERIMENTS["missvae-tables"] is EXPERIMENT


def test_rows_of_the_model_that_test_rows_are_from_are_nearer_than_others():
    first, second, reference = (
        build(METHODS[MVAE], 3, TINY, torch.Generator().manual_seed(seed)) for seed in range(3)
    )
    x = draw_rows(first, 2_000, generator=torch.Generator().manual_seed(9)).x
    task = replace(tiny_task(), test=Incomplete.from_array(x.numpy(), torch.float32))
    task.__dict__["reference"] = reference  # in place of a trained one
    assert task.distance(first) < 0.1 * task.distance(second)


def test_only_tasks_with_complete_rows_score_the_distance():
    model, task = TrainedOnTables(METHODS[MVAE]), tiny_task()
    assert DISTANCE not in score(model, task)
    assert DISTANCE in score(model, replace(task, complete=task.test))


@pytest.mark.slow
def test_the_smoke_scale_runs(shared_data, tmp_path):
    assert not any(cell.failed for cell in run(EXPERIMENT, "smoke", tmp_path).cells)
