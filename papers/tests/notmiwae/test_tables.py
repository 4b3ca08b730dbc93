"""The experiment on values that hide themselves: its tables, what it keeps, its claims."""

from pathlib import Path

import numpy as np
import pytest

from halfseen.latent.presets import NotMIWAEImputer
from papers import EXPERIMENTS, SCALES, AsPublished, AtLeast, Better, Cell, Results
from papers.amputed_table import AmputedArray
from papers.notmiwae.tables import (
    BEST_PUBLISHED,
    EXPERIMENT,
    GAUSSIAN,
    KNOWN,
    LONGEST,
    MAR,
    MEAN,
    PICTURED,
    PROBIT,
    RMSE,
    TABLES,
    VALUES,
    make_task,
    published,
    score,
)

FEATURES = {"banknote": 4, "concrete": 9, "red": 11, "white": 11, "yeast": 7, "breast": 30}


def tiny_task(n_rows=80):
    rng = np.random.default_rng(0)
    first = rng.normal(size=n_rows)
    X = np.column_stack([first, first + 0.3 * rng.normal(size=n_rows)])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return AmputedArray(X, (X > 0) & np.array([True, False]))


@pytest.mark.parametrize("table", TABLES)
def test_filling_with_means_has_the_papers_error_on_every_table(shared_data, table):
    """So the columns, their order and the units are the paper's; its 1.83 of red wine is 1.838 here."""
    task = make_task({"table": table}, 0)
    paper = published({"table": table}, MEAN, RMSE).mean
    assert score(EXPERIMENT.models[MEAN](), task)[RMSE] == pytest.approx(paper, abs=0.01)
    assert task.X.shape[1] == FEATURES[table]


@pytest.mark.parametrize("table", TABLES)
def test_what_is_missing_is_what_lies_above_the_mean_in_the_first_half_of_columns(shared_data, table):
    task = make_task({"table": table}, 1)
    half = task.X.shape[1] // 2
    np.testing.assert_allclose(task.X.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(task.X.std(axis=0), 1.0, atol=1e-9)
    assert not task.missing[:, half:].any()
    assert np.nanmax(task.incomplete[:, :half]) <= 1e-12
    assert task.X[task.missing].min() > -1e-12
    assert np.isnan(task.incomplete[task.missing]).all()


def test_seeds_change_the_order_of_rows_and_nothing_else(shared_data):
    one, other = (make_task({"table": "banknote"}, seed) for seed in (0, 1))
    assert not np.array_equal(one.X, other.X)
    np.testing.assert_array_equal(np.sort(one.X, axis=0), np.sort(other.X, axis=0))


def test_the_score_is_the_root_mean_square_over_missing_cells_only():
    class Filler:
        def fit(self, X):
            return self

        def transform(self, X):
            return np.where(np.isnan(X), 0.25, X)

    task = tiny_task()
    expected = np.sqrt(np.mean([(0.25 - value) ** 2 for value in task.X[task.missing]]))
    assert score(Filler(), task) == {RMSE: pytest.approx(expected, abs=1e-12)}


def test_of_models_of_missingness_the_learned_curves_are_kept():
    model = NotMIWAEImputer(
        missingness="self-masking-logistic", signs=1, random_state=0, width=8, n_blocks=1, max_epochs=3
    )
    found = score(model, tiny_task())
    assert found["held-out bound"] == -min(model.history_.monitored)
    curve = found["missing"][:, 0]
    assert found["missing"].shape == (len(VALUES), 1)
    assert (np.diff(curve) >= 0).all()
    assert curve[0] < 0.05
    assert curve[-1] > 0.95


def test_the_models_in_claims_run_on_all_tables_with_five_seeds_or_more():
    for scale in ("small", "paper"):
        cells = EXPERIMENT.cells(scale)
        for model in (KNOWN, PROBIT, GAUSSIAN):
            runs = {(cell.setting["table"], cell.seed) for cell in cells if cell.model == model}
            n_seeds = {PICTURED: 10} if (scale, model) == ("small", KNOWN) else {}
            assert runs == {(table, seed) for table in TABLES for seed in range(n_seeds.get(table, 5))}
        without = {LONGEST} if scale == "small" else set()
        assert {cell.setting["table"] for cell in cells if cell.model == MAR} == set(TABLES) - without
    assert EXPERIMENTS["notmiwae"].question == EXPERIMENT.question
    assert set(EXPERIMENT.budgets) == set(SCALES)


def test_the_first_claim_needs_the_papers_number_on_every_table():
    first, *others = EXPERIMENT.claims
    assert first == AsPublished(KNOWN, on=RMSE)
    assert [claim.bound for claim in others if isinstance(claim, AtLeast)] == list(BEST_PUBLISHED)
    assert [claim.model for claim in others if isinstance(claim, Better)] == [KNOWN, PROBIT]

    def outcome(excess):
        cells = [
            Cell({"table": table}, KNOWN, seed, {RMSE: published({"table": table}, KNOWN, RMSE).mean + more})
            for table, more in zip(TABLES, (0.0, excess, 0.0, 0.0, 0.0, 0.0), strict=True)
            for seed in range(2)
        ]
        return Results(EXPERIMENT, "small", cells, {}, Path()).verdicts()[0].outcome

    assert (outcome(-0.01), outcome(0.01)) == ("met", "not met")


def test_the_best_published_number_is_no_worse_than_any_that_is_listed():
    for table, best in zip(TABLES, BEST_PUBLISHED, strict=True):
        known = [published({"table": table}, model, RMSE) for model in EXPERIMENT.models]
        assert best == min(number.mean for number in known if number is not None)
    assert published({"table": "red"}, GAUSSIAN, RMSE) is None
    assert published({"table": "red"}, KNOWN, "held-out bound") is None
