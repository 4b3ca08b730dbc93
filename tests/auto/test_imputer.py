"""The choice of imputers: weights that are best on hidden cells, budgets, reasons and files."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate
from scipy.stats import norm

import halfseen
from halfseen import AutoImputer, GaussianImputer, MeanImputer
from halfseen.auto import hiding as hiding
from halfseen.auto import imputer as auto_imputer
from halfseen.auto import scoring as scoring
from halfseen.auto.imputer import _explain_mixtures
from halfseen.auto.scoring import Cost, compare_hidden, seconds_per_row, too_costly
from halfseen.auto.stacking import (
    Answers,
    LevelLoss,
    NumberLoss,
    _crps,
    find_sharpness,
    find_weights,
    tail_weights,
)
from halfseen.auto.tabular import TabularStack
from halfseen.data.incomplete import Incomplete
from halfseen.training.time_limit import TimeBudget
from halfseen.trees import fitting as tree_fitting

SIMPLE = ["mean", "gaussian"]


def correlated(n_rows, seed=0):
    X = np.random.default_rng(seed).multivariate_normal(np.zeros(3), 0.2 + 0.8 * np.ones((3, 3)), size=n_rows)
    X[np.random.default_rng(seed + 1).random(X.shape) < 0.2] = np.nan
    return X


def answers(n_cells=200, seed=0):
    """Two models of numbers: one is right for most cells, the other has no idea."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n_cells)
    points = np.stack([truth + 0.3 * rng.normal(size=n_cells), np.zeros(n_cells)])
    spread = np.array([0.3, 1.0])[:, None, None] * np.linspace(-1.6, 1.6, 19)
    return Answers(truth, rng.integers(2, size=n_cells), points, points[:, :, None] + spread)


def test_the_loss_of_weights_is_the_score_of_the_mixture():
    a = answers()
    grid = np.linspace(-9, 9, 40_001)
    steps = (a.atoms[0, 0] <= grid[:, None]).mean(axis=1) - (a.truth[0] <= grid)
    assert _crps(a.atoms[0], a.truth)[0] == pytest.approx(integrate.trapezoid(steps**2, grid), abs=1e-3)
    loss, w = NumberLoss.of(a), np.array([0.25, 0.75])
    mixture = np.concatenate(
        [a.atoms[0], np.repeat(a.atoms[1], 3, axis=1)], axis=1
    )  # a quarter, and the rest
    crps = _crps(mixture, a.truth).mean() / a.losses().min()
    square = ((w @ a.points - a.truth) ** 2).mean() / a.errors().min()
    assert loss(w)[0] == pytest.approx(crps + square / 2, rel=1e-9)
    slope = [(loss(w + e)[0] - loss(w - e)[0]) / 2e-6 for e in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(loss(w)[1], slope, rtol=1e-5)


def test_cells_count_by_their_weights_in_losses():
    """A cell of weight 3 is three cells."""
    a = answers(n_cells=150)
    weight = 1.0 + 2.0 * (np.arange(150) % 2)
    cells = np.repeat(np.arange(150), weight.astype(int))
    repeated = Answers(a.truth[cells], a.half[cells], a.points[:, cells], a.atoms[:, cells])
    weighted, w = replace(a, weight=weight), np.array([0.25, 0.75])
    assert NumberLoss.of(weighted)(w)[0] == pytest.approx(NumberLoss.of(repeated)(w)[0], rel=1e-12)
    column = weighted.of(a.half == 0)
    assert column.shares.sum() == pytest.approx(1.0)
    assert column.shares[weight[a.half == 0] == 3.0].max() == pytest.approx(3 * column.shares.min())
    # The width of mixtures is for values that are missing at random: intervals then cover at their rate.
    assert find_sharpness([weighted], w[:, None], seed=0) == find_sharpness([a], w[:, None], seed=0)


def test_tails_count_as_if_values_were_missing_by_their_own_size():
    """By hand: the chance of a value is the logistic of 2 z - 1.2, or of -2 z - 1.2."""
    z = np.array([-2.0, -0.5, 0.0, 0.5, 2.0])
    lost = [1 / (1 + np.exp(1.2 - sign * 2 * z)) for sign in (1, -1)]
    expected = (1 + sum(chance / chance.mean() for chance in lost)) / 3
    found = tail_weights(z)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.mean() == pytest.approx(1.0)
    np.testing.assert_allclose(found, found[::-1])
    assert found[0] > found[1] > found[2]
    assert tail_weights(np.zeros(0)).shape == (0,)
    assert np.isfinite(tail_weights(np.array([-1e9]))).all()


def test_the_loss_of_weights_for_levels_is_the_log_loss_of_the_mixture():
    likelihood = np.random.default_rng(0).random((2, 50))
    loss, w = LevelLoss(likelihood), np.array([0.4, 0.6])
    assert loss(w)[0] == pytest.approx(-np.log(w @ likelihood).mean(), rel=1e-12)
    slope = [(loss(w + e)[0] - loss(w - e)[0]) / 2e-6 for e in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(loss(w)[1], slope, rtol=1e-5)


def test_sharpness_is_the_parameter_of_the_levels_of_true_values_and_one_for_calibrated_mixtures():
    """4,000 values: the estimate of 2.5 has a standard error of .05, so it is 0.25 away once in millions."""
    rng = np.random.default_rng(0)
    atoms = norm.ppf((np.arange(19) + 0.5) / 19) * np.array([1.0, 2.0])[:, None]
    grid = np.linspace(-12, 12, 20_001)
    cdf = 0.5 * norm.cdf(grid) + 0.5 * norm.cdf(grid, scale=2.0)

    def found(a):
        truth = np.interp(rng.beta(a, a, size=4_000), cdf, grid)
        said = np.repeat(atoms[:, None], len(truth), axis=1)
        column = Answers(truth, np.zeros(len(truth), dtype=int), np.zeros((2, len(truth))), said)
        return find_sharpness([column], np.full((2, 1), 0.5), seed=0)

    assert found(2.5) == pytest.approx(2.5, abs=0.25)
    assert found(1.0) == pytest.approx(1.0, abs=0.1)
    assert found(0.8) == pytest.approx(0.8, abs=0.1)  # mixtures that are too narrow become wider
    assert find_sharpness([answers()], np.array([[1.0], [0.0]]), seed=0) == 1.0  # no mixture


def test_a_column_that_is_mostly_missing_is_scored_on_at_most_a_third_of_its_cells():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[rng.random(300) < 0.7, 2] = np.nan
    imputer = AutoImputer(candidates=["mean", "gaussian"], random_state=0).fit(X)
    codes = Incomplete.from_array(X)
    task = next(hiding.make_tasks(imputer._modelled, codes, lambda part: part.filled(0.0), 0))
    n_hidden, n_known = task.hidden.sum(dim=0), codes.observed.sum(dim=0)
    assert 10 <= n_hidden[2] <= n_known[2] // 3
    assert not (task.hidden & ~codes.observed).any()
    assert (task.shown.observed.sum(dim=0) >= 10).all()


def test_weights_go_to_the_model_that_knows_more_and_a_column_without_cells_takes_those_of_all():
    nothing = answers().of(np.zeros(200, dtype=bool))
    weights, _ = find_weights([answers(seed=1), answers(seed=2), nothing])
    assert weights.shape == (2, 3)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    assert (weights[0] > 0.9).all()


def test_models_that_err_in_turn_are_mixed():
    rng = np.random.default_rng(0)
    truth, turn = rng.normal(size=400), rng.random(400) < 0.5
    points = np.stack([truth + turn * rng.normal(size=400), truth + ~turn * rng.normal(size=400)])
    atoms = points[:, :, None] + 0.7 * np.linspace(-1.6, 1.6, 19)
    weights, mixed = find_weights([Answers(truth, rng.integers(2, size=400), points, atoms)])
    assert mixed
    assert (weights > 0.3).all()


def test_the_better_method_is_chosen_and_the_reason_says_so():
    X = correlated(150)
    imputer = AutoImputer(candidates=SIMPLE, random_state=0).fit(X)
    assert all(chosen.get("gaussian", 0) > 0.7 for chosen in imputer.chosen_.values())
    assert re.search(
        r"uses Gaussian,|(combines|uses) Gaussian \(\d+% of the weight\) and Mean", imputer.reason_
    )
    assert "known cells that were hidden" in imputer.reason_
    scores = {row["candidate"]: row for row in imputer.scores_}
    assert scores["gaussian"]["rmse"] < scores["mean"]["rmse"]
    assert scores["gaussian"]["crps"] < scores["mean"]["crps"]


@pytest.mark.parametrize(
    ("mixed", "words"),
    [
        ({"numbers": True, "levels": True}, ["Methods are mixed, because"]),
        ({"numbers": False}, ["Each column has one method, because mixtures did not"]),
        ({"numbers": False, "levels": True}, ["mixed for levels", "each column of numbers has one"]),
    ],
    ids=["all", "none", "levels only"],
)
def test_the_reason_says_why_methods_are_mixed(mixed, words):
    sentence = _explain_mixtures(mixed)
    assert all(part in sentence for part in words)


def test_independent_columns_need_no_more_than_the_mean():
    X = np.random.default_rng(0).normal(size=(300, 3))
    X[::3, 1] = np.nan
    imputer = AutoImputer(candidates=SIMPLE, random_state=0).fit(X)
    expected = np.nanmean(X[:, 1])
    assert np.abs(imputer.transform(X)[::3, 1] - expected).max() < 0.3


@pytest.mark.parametrize(
    ("X", "settings", "why"),
    [
        (correlated(30), {}, "a table of 30 rows is too small"),
        (correlated(100)[:, :1], {}, "there is only one column to model"),
        (correlated(60), {"n_posterior_draws": 2}, "draws for pooling need"),
        (correlated(60), {"schema": {"x0": {"censored_below": -1.0}}}, "column 'x0' has detection limits"),
    ],
    ids=["tiny", "one column", "pooling", "limits"],
)
def test_without_a_race_it_is_a_gaussian_imputer(X, settings, why):
    imputer = AutoImputer(random_state=0, **settings).fit(X)
    assert why in imputer.reason_
    assert imputer.scores_ == []
    expected = GaussianImputer(random_state=0, **settings).fit(X)
    np.testing.assert_array_equal(imputer.transform(X), expected.transform(X))
    np.testing.assert_array_equal(imputer.sample(X, 2), expected.sample(X, 2))


def test_a_budget_that_is_too_small_still_gives_the_simple_methods():
    candidates = [*SIMPLE, "trees"]
    imputer = AutoImputer(1e-6, candidates=candidates, random_state=0).fit(correlated(120))
    assert [row["candidate"] for row in imputer.scores_] == ["mean", "gaussian"]
    assert "Trees was not used: there was no time left." in imputer.reason_
    assert imputer.time_limit_met_
    assert "The time limit was reached" in imputer.reason_


def test_columns_for_which_no_tree_was_grown_are_reported_as_gaussian(monkeypatch):
    X = correlated(200)
    monkeypatch.setattr(tree_fitting, "is_over", lambda: True)  # trees are cut short, and equal the Gaussian
    imputer = AutoImputer(candidates=["mean", "trees"], random_state=0).fit(X)
    expected = GaussianImputer(random_state=0).fit(X)
    np.testing.assert_allclose(imputer.transform(X), expected.transform(X))
    assert imputer.chosen_ == {name: {"gaussian": 1.0} for name in imputer.chosen_}
    assert imputer.reason_.startswith("AutoImputer uses Gaussian, chosen by")
    assert "No trees could be grown for x0, x1" in imputer.reason_
    assert {row["candidate"]: row["weight"] for row in imputer.scores_} == {"mean": 0.0, "trees": 0.0}


def test_without_a_time_limit_that_is_met_nothing_is_said_about_time():
    imputer = AutoImputer(candidates=SIMPLE, random_state=0).fit(correlated(120))
    assert not imputer.time_limit_met_
    assert "time" not in imputer.reason_


class Clock:
    """A clock that moves only when something is said to take time."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Slow:
    """A model whose fit and whose answers take a given time on a clock."""

    def __init__(self, model, clock, fit, answer):
        self.model, self.clock, self.seconds, self.answer = model, clock, fit, answer
        self.started = False

    @property
    def _answers(self):
        return self

    def fit(self, shown):
        self.started = True
        self.clock.now += self.seconds
        return self

    def _numbers_per_row(self, n_draws):
        return n_draws

    def point(self, codes):
        self.clock.now += self.answer * len(codes)
        return self.model.point(codes)

    def quantiles(self, codes, levels):
        return self.model.quantiles(codes, levels)

    def level_probabilities(self, codes):
        return self.model.level_probabilities(codes)


def hold_race(seconds, **costs):
    """Returns what happened, and the candidates, whose costs are (fit, answer of a row) in seconds."""
    gaussian = GaussianImputer().fit(correlated(200))
    codes = Incomplete.from_array(correlated(200))
    task = next(hiding.make_tasks(gaussian.schema_.columns, codes, lambda part: part.filled(), seed=0))
    clock = Clock()
    slow = {name: Slow(gaussian.model_, clock, *cost) for name, cost in costs.items()}
    fits = {name: one.fit for name, one in slow.items()}
    return scoring.run(task, fits, TimeBudget(seconds, clock)), slow, task, clock


def test_no_candidate_starts_that_is_expected_to_take_longer_than_what_is_left():
    race, slow, *_ = hold_race(10.0, mean=(1, 0), gaussian=(3, 0), trees=(1, 0), mixture=(1, 0))
    assert race.names == ["mean", "gaussian"]  # 6 of 10 seconds are left, which is twice what the second took
    assert not slow["trees"].started
    assert not slow["mixture"].started
    assert race.left_out["trees"] == "there was no time left"
    race, slow, *_ = hold_race(10.5, mean=(1, 0), gaussian=(3, 0), trees=(1, 0), mixture=(1, 0))
    assert race.names == ["mean", "gaussian", "trees"]
    assert not slow["mixture"].started


def test_a_candidate_whose_answers_would_not_end_in_time_is_left_out_after_its_first_rows(monkeypatch):
    monkeypatch.setattr(scoring, "TRIED_ROWS", (10, 40))
    race, _, task, clock = hold_race(8.0, mean=(0, 0), gaussian=(1, 0), trees=(1, 0.1))
    assert race.left_out == {"trees": "to impute all rows would have taken too long"}
    assert len(task.scored) > 50
    assert clock.now == pytest.approx(2 + 0.1 * 50)
    race, _, task, _ = hold_race(30.0, mean=(0, 0), gaussian=(1, 0), trees=(1, 0.1))
    assert race.names == ["mean", "gaussian", "trees"]
    assert race.costs[2] == Cost(1, 200, pytest.approx(0.1))


def test_methods_that_take_long_for_their_weight_are_given_up_until_imputing_ends_in_time():
    costs = [Cost(9.0, 100, 0.001), Cost(1.0, 100, 0.1), Cost(5.0, 100, 0.01)]  # 0.2, 20 and 2 seconds
    third = 1 / 3
    assert too_costly(costs, {0: third, 1: third, 2: third}, 200, 22.3) is None
    assert too_costly(costs, {0: third, 1: third, 2: third}, 200, 22.0) == 1
    assert too_costly(costs, {0: 0.1, 1: 0.89, 2: 0.01}, 200, 22.0) == 2
    assert too_costly(costs, {0: 0.5, 2: 0.5}, 200, 1.0) == 2
    assert too_costly(costs, {0: 1.0}, 200, 0.0) is None


def test_members_are_fitted_within_half_of_the_memory_budget(monkeypatch):
    seen, usual = [], GaussianImputer._fit_codes

    def fit_codes(self, codes):
        seen.append(halfseen.config.get()["memory_budget"])
        usual(self, codes)

    monkeypatch.setattr(GaussianImputer, "_fit_codes", fit_codes)
    with halfseen.config.context(memory_budget="200 MiB"):
        AutoImputer(candidates=SIMPLE, random_state=0).fit(correlated(60))
        assert halfseen.config.get()["memory_budget"] == 200 * 2**20
    assert len(seen) > 1
    assert set(seen) == {100 * 2**20}
    with halfseen.config.context(memory_budget="16 MiB"):  # the smallest that there is
        AutoImputer(candidates=SIMPLE, random_state=0).fit(correlated(60))
    assert seen[-1] == 16 * 2**20


def test_without_time_to_fit_again_the_fits_of_the_race_are_used(monkeypatch):
    monkeypatch.setattr(auto_imputer, "RACE_SHARE", 1.0)
    fits = []
    usual = AutoImputer._fit_member

    def slow(self, imputer, codes):
        fits.append(type(imputer).__name__)
        clock.now += 1.0
        return usual(self, imputer, codes)

    clock = Clock()
    monkeypatch.setattr(AutoImputer, "_fit_member", slow)
    monkeypatch.setattr(auto_imputer, "TimeBudget", lambda seconds: TimeBudget(seconds, clock))
    imputer = AutoImputer(3.5, candidates=SIMPLE, random_state=0).fit(correlated(150))
    assert fits == ["GaussianImputer", "MeanImputer", "GaussianImputer"]  # the first completes rows
    assert "Gaussian was fitted to 150 rows without the hidden cells only." in imputer.reason_
    assert np.isfinite(imputer.transform(correlated(150))).all()


def test_methods_are_fitted_to_as_many_rows_as_there_is_time_for():
    cost = Cost(2.0, 100, 0.0)
    assert cost.rows_within(20.0, 1_000) == 1_000
    assert cost.rows_within(10.0, 1_000) == 500
    assert cost.rows_within(0.0, 1_000) == 100
    assert Cost(0.0, 100, 0.0).rows_within(0.0, 1_000) == 1_000


def test_the_time_of_a_row_leaves_out_what_is_done_once():
    assert seconds_per_row([10, 100, 40], [1.1, 2.0, 1.4]) == pytest.approx(0.01)
    assert seconds_per_row([10, 100], [9.0, 2.0]) == pytest.approx(0.005)  # a quarter of the mean
    assert seconds_per_row([10], [2.0]) == pytest.approx(0.2)
    assert seconds_per_row([], []) == 0.0


def test_a_method_that_takes_too_long_for_all_rows_is_not_used_and_the_reason_says_so(monkeypatch):
    place = "halfseen.auto.imputer.too_costly"
    monkeypatch.setattr(place, lambda costs, used, *_: max(used) or None)
    imputer = AutoImputer(candidates=SIMPLE, random_state=0).fit(correlated(150))
    assert set(imputer.chosen_["x0"]) == {"mean"}
    assert "Gaussian was not used: to impute all rows would have taken too long" in imputer.reason_


def test_losses_of_hidden_cells_are_those_of_the_chosen_mixture():
    frame = halfseen.datasets.load_penguins("pandas").sample(200, random_state=0)
    imputers = [MeanImputer().fit(frame), GaussianImputer().fit(frame)]
    models = [imputer.model_ for imputer in imputers]
    codes, columns = imputers[0]._read(frame, reset=False).codes, imputers[0]._modelled
    task = next(hiding.make_tasks(columns, codes, models[1].point, seed=0))
    fits = {"mean": lambda shown: imputers[0], "gaussian": lambda shown: imputers[1]}
    race = scoring.run(task, fits, TimeBudget(60.0))
    weights = np.tile([[0.4], [0.6]], len(columns))
    found = compare_hidden(task, race, weights, sharpness=1.7)
    assert found.n_rows == len(task.scored)
    stack = TabularStack(models, weights, sharpness=1.7)
    shown = task.shown[task.scored]
    point, ends = stack.point(shown), stack.quantiles(shown, (0.05, 0.95))
    inside, claimed = [], []
    for c, column in enumerate(columns):
        cells, losses = task.hidden[task.scored, c], found.columns[column.name]
        truth = codes.x[task.scored, c][cells].numpy()
        known = task.shown.x[task.shown.observed[:, c], c].numpy()
        if column.levels is None:
            value = column.constrain(point[cells, c].numpy())
            np.testing.assert_allclose(losses.loss, ((value - truth) / known.std()) ** 2, rtol=1e-6)
            np.testing.assert_allclose(
                losses.baseline, ((known.mean() - truth) / known.std()) ** 2, rtol=1e-6
            )
            low, high = ends[:, cells, c].numpy()
            inside.append((low <= truth) & (truth <= high))
            claimed.append(losses.covered(0.9))
        else:
            np.testing.assert_array_equal(losses.loss, point[cells, c].numpy() != truth)
            assert losses.below is None
    assert (np.concatenate(inside) == np.concatenate(claimed)).mean() > 0.97  # 19 quantiles, against 60


def test_columns_below_the_smallest_skill_are_left_empty(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(correlated(400), columns=["a", "b", "c"])
    frame["consent"] = np.where(rng.random(400) < 0.3, None, rng.choice(["ja", "nein"], 400, p=[0.7, 0.3]))
    settings = {"candidates": SIMPLE, "random_state": 0}
    assert AutoImputer(**settings).fit_transform(frame).notna().all(axis=None)
    with pytest.warns(
        halfseen.HalfseenWarning, match="^Column 'consent' is filled no better than by the most"
    ):
        imputer = AutoImputer(min_skill=0.1, **settings).fit(frame)
    assert list(imputer.columns_left_) == ["consent"]
    imputer.save(tmp_path / "model")
    for one in (imputer, halfseen.load(tmp_path / "model")):
        completed = one.transform(frame)
        assert completed["consent"].isna().equals(frame["consent"].isna())
        assert completed[["a", "b", "c"]].notna().all(axis=None)


def test_large_tables_are_sampled_for_the_race_and_fitted_whole(monkeypatch):
    monkeypatch.setattr(hiding, "MAX_RACE_ROWS", 80)
    monkeypatch.setattr(hiding, "MAX_SCORED_ROWS", 60)
    X = correlated(300)
    imputer = AutoImputer(candidates=["gaussian"], random_state=0).fit(X)
    np.testing.assert_allclose(
        imputer.members_[0].model_.gaussian.loc, GaussianImputer(random_state=0).fit(X).model_.gaussian.loc
    )


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
    assert float(task.hidden.double().mean()) > 0.12
    # If the cells of a row were hidden independently of each other, both sides would be about equal.
    assert float((first & second).double().sum() / first.sum()) > 1.5 * float(second.double().mean())


def test_small_tables_hide_other_cells_again_and_their_predictions_are_joined():
    codes = Incomplete.from_array(correlated(200))
    gaussian = GaussianImputer().fit(correlated(200))
    tasks = list(hiding.make_tasks(gaussian.schema_.columns, codes, lambda part: part.filled(), seed=0))
    assert len(tasks) == 3
    fits = {"gaussian": lambda shown: gaussian}
    races = [scoring.run(task, fits, TimeBudget(60.0)) for task in tasks]
    assert torch.stack([task.hidden for task in tasks]).sum(dim=0).max() == 1  # no cell twice
    n_cells = [len(answers.truth) for answers in scoring.collect(tasks[0], races[0])]
    assert races[0].join(races[1])
    assert races[0].join(races[2])
    whole = scoring.collect(hiding.join_tasks(tasks), races[0])
    last = scoring.collect(tasks[-1], races[-1])
    for c, answers in enumerate(whole):
        assert len(answers.truth) == sum(int(task.hidden[:, c].sum()) for task in tasks) > n_cells[c]
        np.testing.assert_array_equal(answers.truth[-len(last[c].truth) :], last[c].truth)
        np.testing.assert_array_equal(answers.points[:, -len(last[c].truth) :], last[c].points)
    assert not races[0].join(scoring.Race())


@pytest.mark.parametrize(
    ("max_rows", "seconds", "n_masks"),
    [(3000, 120.0, 3), (3000, 20.0, 2), (3000, 16.0, 1), (100, 120.0, 3), (100, 36.0, 2), (100, 30.0, 1)],
)
def test_masks_are_not_repeated_when_there_is_no_time(monkeypatch, max_rows, seconds, n_masks):
    """The time is 0.36 of all seconds, or half of that if a part of the rows is used; a mask takes three."""
    clock, n_fits = Clock(), []
    usual = AutoImputer._fit_member

    def slow(self, imputer, codes):
        n_fits.append(type(imputer).__name__)
        clock.now += 1.0
        return usual(self, imputer, codes)

    monkeypatch.setattr(AutoImputer, "_fit_member", slow)
    monkeypatch.setattr(auto_imputer, "TimeBudget", lambda seconds: TimeBudget(seconds, clock))
    monkeypatch.setattr(hiding, "MAX_RACE_ROWS", max_rows)
    AutoImputer(seconds, candidates=SIMPLE, random_state=0).fit(correlated(150))
    assert n_fits[: 1 + 2 * n_masks].count("MeanImputer") == n_masks
    assert len(n_fits) <= 1 + 2 * n_masks + 2


def test_levels_and_numbers_are_saved_with_their_weights(tmp_path):
    frame = halfseen.datasets.load_penguins("pandas").sample(120, random_state=0)
    imputer = AutoImputer(candidates=["mean", "gaussian"], random_state=0).fit(frame)
    imputer.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.transform(frame), imputer.transform(frame))
    assert (loaded.reason_, loaded.chosen_, loaded.scores_) == (
        imputer.reason_,
        imputer.chosen_,
        imputer.scores_,
    )
    assert loaded.candidates == ["mean", "gaussian"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": "best"}, "candidates must be 'auto' or a list of names, got 'best'"),
        ({"candidates": []}, r"candidates must be 'auto' or a list of names, got \[\]"),
        ({"candidates": ["made"]}, "candidates must be imputers of tables, got 'made'"),
        ({"candidates": ["auto"]}, "candidates must be imputers of tables, got 'auto'"),
        ({"candidates": ["median"]}, "There is no method 'median'"),
        ({"max_seconds": 0}, "max_seconds must be positive and finite, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        AutoImputer(**settings).fit(correlated(60))
