"""Hiding known cells: which ones are hidden, and how the predictions of several masks are joined."""

import numpy as np
import pytest
import torch
from auto.tables import correlated

from halfseen import GaussianImputer
from halfseen.auto import hiding, scoring
from halfseen.data.incomplete import Incomplete
from halfseen.missingness import MCAR
from halfseen.training.progress import TimeBudget


def test_hidden_cells_are_observed_ones_and_leave_something_in_each_row_and_column():
    X = correlated(200)
    codes = Incomplete.from_array(X)
    columns = GaussianImputer().fit(X).schema_.columns
    task = next(hiding.make_tasks(columns, codes, lambda part: part.filled(), seed=0))
    assert not (task.hidden & ~codes.observed).any()
    assert 0.1 < float(task.hidden.double().sum() / codes.observed.sum()) < 0.35
    several = codes.observed.sum(dim=1) > 1
    assert (task.shown.observed.sum(dim=1)[several] > 0).all()
    again = next(hiding.make_tasks(columns, codes, lambda part: part.filled(), seed=0))
    assert torch.equal(task.hidden, again.hidden)


@pytest.mark.parametrize("seed", [0, 5])
def test_cells_are_hidden_in_all_columns_if_others_were_removed_by_a_mechanism_with_the_same_seed(seed):
    """No column has less than half as many hidden cells as columns have on average.

    With the random numbers of the mechanism itself, some columns had a quarter. A column has about 85, with a
    standard deviation of at most 10, so that one of 18 has less than half of them with a probability of 1e-3.
    """
    X = np.random.default_rng(0).normal(size=(1_000, 9))
    X = MCAR(rate=0.3).fit(X).amputate(X, random_state=seed)
    columns, codes = GaussianImputer().fit(X).schema_.columns, Incomplete.from_array(X)
    task = next(hiding.make_tasks(columns, codes, lambda part: part.filled(), seed=seed))
    n_hidden = task.hidden.sum(dim=0)
    assert n_hidden.min() > 0.5 * n_hidden.double().mean()
    assert n_hidden.double().mean() > 70


def test_few_cells_that_are_missing_together_are_hidden_together():
    X = np.random.default_rng(0).normal(size=(600, 4))
    X[:9, :2] = np.nan
    task = next(
        hiding.make_tasks(
            GaussianImputer().fit(X).schema_.columns,
            Incomplete.from_array(X),
            lambda part: part.filled(),
            seed=0,
        )
    )
    first, second = task.hidden[:, 0], task.hidden[:, 1]
    together = first & second
    assert float(together.double().sum() / first.sum()) > 0.6
    assert (task.hidden.sum(dim=1)[~together] <= 1).all()  # other cells are hidden one by one
    assert task.hidden[:, 2:].any(dim=0).all()


def test_small_tables_hide_other_cells_again_and_their_predictions_are_joined(monkeypatch):
    codes = Incomplete.from_array(correlated(200))
    gaussian = GaussianImputer().fit(correlated(200))
    monkeypatch.setattr(hiding, "ENOUGH_CELLS", 200)
    tasks = list(hiding.make_tasks(gaussian.schema_.columns, codes, lambda part: part.filled(), seed=0))
    assert len(tasks) == 3
    fits = {"gaussian": lambda shown: gaussian}
    results = [scoring.run(task, fits, TimeBudget(60.0)) for task in tasks]
    assert torch.stack([task.hidden for task in tasks]).sum(dim=0).max() == 1  # no cell twice
    n_cells = [len(answers.truth) for answers in scoring.collect(tasks[0], results[0])]
    assert results[0].join(results[1])
    assert results[0].join(results[2])
    whole = scoring.collect(hiding.join_tasks(tasks), results[0])
    last = scoring.collect(tasks[-1], results[-1])
    for c, answers in enumerate(whole):
        assert len(answers.truth) == sum(int(task.hidden[:, c].sum()) for task in tasks) > n_cells[c]
        # The scale by which both are divided is summed over more cells, and may differ in its last bit.
        np.testing.assert_allclose(answers.truth[-len(last[c].truth) :], last[c].truth, rtol=1e-14)
        np.testing.assert_allclose(answers.points[:, -len(last[c].truth) :], last[c].points, rtol=1e-14)
    assert not results[0].join(scoring.CandidateResults())


def test_hiding_leaves_as_much_of_a_row_as_incomplete_rows_have():
    """If cells are missing completely at random, hidden cells lack as many neighbours as missing ones do.

    The means are compared at five standard errors of their difference.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_500, 10))
    X[rng.random(X.shape) < 0.3] = np.nan
    codes = Incomplete.from_array(X)
    columns = GaussianImputer().fit(X).schema_.columns
    task = next(hiding.make_tasks(columns, codes, lambda part: part.filled(), seed=0))
    lacking = (~task.shown.observed).sum(dim=1, keepdim=True).double().expand(-1, 10)
    hidden = lacking[task.hidden].numpy()
    missing = (~codes.observed).sum(dim=1, keepdim=True).double().expand(-1, 10)[~codes.observed].numpy()
    error = np.sqrt(hidden.var() / len(hidden) + missing.var() / len(missing))
    assert len(hidden) > 500
    assert abs(hidden.mean() - missing.mean()) < 5 * error + 0.1  # rows without a known cell cannot lose one
