"""The choice of imputers: weights that are best on hidden cells, budgets, reasons and files."""

import re
import time

import numpy as np
import pandas as pd
import pytest
import torch
from auto.tables import correlated

import halfseen
from halfseen import AutoImputer, GaussianImputer, MeanImputer, TreeImputer
from halfseen.auto import hiding as hiding
from halfseen.auto import imputer as auto_imputer
from halfseen.auto import scoring as scoring
from halfseen.auto import stacking as stacking
from halfseen.auto.plan import WorkPlan
from halfseen.auto.reason import ChoiceFacts, _say_mixtures, explain
from halfseen.auto.reason import label as auto_label
from halfseen.auto.scoring import ChosenWeights, Cost, compare_hidden, seconds_per_row, too_costly
from halfseen.auto.tabular import TabularStack
from halfseen.data.incomplete import Incomplete
from halfseen.training.progress import TimeBudget
from halfseen.trees import fitting as tree_fitting

SIMPLE = ["mean", "gaussian"]


def test_the_better_method_is_chosen_and_the_reason_says_so():
    X = correlated(150)
    imputer = AutoImputer(candidates=SIMPLE, random_state=0).fit(X)
    assert all(chosen.get("gaussian", 0) > 0.7 for chosen in imputer.chosen_.values())
    assert re.search(
        r"uses Gaussian,|(combines|uses) Gaussian \(\d+% of the weight.*\) and Mean", imputer.reason_
    )
    assert "known cells that were hidden" in imputer.reason_
    scores = {row["candidate"]: row for row in imputer.scores_}
    assert scores["gaussian"]["rmse"] < scores["mean"]["rmse"]
    assert scores["gaussian"]["crps"] < scores["mean"]["crps"]


@pytest.mark.parametrize(
    ("mixed", "words"),
    [
        (
            {"distributions": 0.9, "single values": 1.0, "levels": 1.0},
            ["Distributions are mixed, because", "Weights of single values and levels are between"],
        ),
        (
            {"distributions": 0.0, "single values": 0.0},
            ["The distribution of each column", "did not predict"],
        ),
        ({"levels": 1.0}, ["Weights of levels are between"]),
    ],
    ids=["all", "none", "levels only"],
)
def test_the_reason_says_why_methods_are_mixed(mixed, words):
    sentence = _say_mixtures(mixed)
    assert all(part in sentence for part in words)
    assert ("between" in sentence) == any(mixed.get(kind) for kind in ("single values", "levels"))


def test_the_reason_names_what_was_fitted_to_what():
    scores = [
        {"candidate": "mean", "rmse": 1.0, "crps": 0.5, "accuracy": None},
        {"candidate": "combination", "rmse": 0.25, "crps": 0.125, "accuracy": None},
    ]
    fits = {
        "gaussian": {"rows": 900, "hidden_cells": 0},
        "circuit": {"rows": 900, "hidden_cells": 0},
        "trees": {"rows": 500, "hidden_cells": 0},
        "miwae": {"rows": 900, "hidden_cells": 70},
    }
    weights = {"trees": 0.5, "gaussian": 0.3, "circuit": 0.2}
    facts = ChoiceFacts(
        weights, {"trees": 1.0}, fits, scores, {"made": "why"}, {"levels": 1.0}, 900, 70, ["a"]
    )
    text = explain(facts)
    assert text.startswith(
        "AutoImputer combines Trees (50% of the weight, 100% in single values), Gaussian (30%,"
    )
    assert "Gaussian and Circuit were fitted to all 900 rows." in text
    assert "Trees was fitted to 500 of 900 rows." in text
    assert "MIWAE was fitted to all 900 rows, without 70 hidden cells." in text
    assert "On the hidden cells, this has RMSE 0.250, CRPS 0.125 (Mean: 1.000, 0.500)." in text
    assert "MADE was not used: why." in text
    assert "No trees could be grown for a, which counts as Gaussian" in text


@pytest.mark.slow
def test_the_words_of_the_reason_are_those_of_the_members():
    """Each sentence about a fit is compared with the rows that the member was really given."""
    X = np.random.default_rng(0).normal(size=(400, 4)) @ np.random.default_rng(1).normal(size=(4, 4))
    X = np.where(X > 0, X, X**2)
    X[np.random.default_rng(2).random(X.shape) < 0.3] = np.nan
    given, usual = [], AutoImputer._fit_member

    def record(self, imputer, codes):
        given.append((imputer, len(codes), int(codes.observed.sum())))
        return usual(self, imputer, codes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AutoImputer, "_fit_member", record)
        imputer = AutoImputer(candidates=["mean", "gaussian", "mixture", "trees"], random_state=0).fit(X)
    n_known = int((~np.isnan(X)).sum())
    assert len(imputer.members_) == len(imputer.fitted_to_) == len(imputer.weights_)
    for member, (name, fit) in zip(imputer.members_, imputer.fitted_to_.items(), strict=True):
        assert halfseen.base.catalogue.find_method(name).estimator is type(member)
        _, n_rows, n_seen = next(one for one in reversed(given) if type(one[0]) is type(member))
        assert (n_rows, n_known - n_seen) == (fit["rows"], fit["hidden_cells"])
        assert re.search(rf"{auto_label(name)}[^.]* fitted to all 400 rows\.", imputer.reason_)
    found = imputer.scores_[-1]
    assert f"this has RMSE {found['rmse']:.3f}, CRPS {found['crps']:.3f}" in imputer.reason_
    hidden = np.concatenate([one.loss for one in imputer.hidden_cells_.columns.values()])
    assert found["rmse"] == pytest.approx(np.sqrt(hidden.mean()), rel=0.05)  # by shown, not all, known cells


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
def test_without_a_comparison_it_is_a_gaussian_imputer(X, settings, why):
    imputer = AutoImputer(random_state=0, **settings).fit(X)
    assert why in imputer.reason_
    assert imputer.scores_ == []
    expected = GaussianImputer(random_state=0, **settings).fit(X)
    np.testing.assert_array_equal(imputer.transform(X), expected.transform(X))
    np.testing.assert_array_equal(imputer.sample(X, 2), expected.sample(X, 2))


def test_a_budget_that_is_too_small_still_gives_the_simple_methods():
    candidates = [*SIMPLE, "trees"]
    with pytest.warns(halfseen.HalfseenWarning, match="The time limit was reached"):
        imputer = AutoImputer(1e-6, candidates=candidates, random_state=0).fit(correlated(120))
    assert [row["candidate"] for row in imputer.scores_] == ["mean", "gaussian", "combination"]
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
    assert [row["weight"] for row in imputer.scores_] == [0.0, 0.0, 1.0]


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
    def _fitted_model(self):
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


def compare_candidates(seconds, **costs):
    """Returns what happened, and the candidates, whose costs are (fit, answer of a row) in seconds."""
    gaussian = GaussianImputer().fit(correlated(200))
    codes = Incomplete.from_array(correlated(200))
    task = next(hiding.make_tasks(gaussian.schema_.columns, codes, lambda part: part.filled(), seed=0))
    clock = Clock()
    slow = {name: Slow(gaussian.model_, clock, *cost) for name, cost in costs.items()}
    fits = {name: one.fit for name, one in slow.items()}
    return scoring.run(task, fits, TimeBudget(seconds, clock)), slow, task, clock


def test_no_candidate_starts_that_is_expected_to_take_longer_than_what_is_left():
    compared, slow, *_ = compare_candidates(10.0, mean=(1, 0), gaussian=(3, 0), trees=(1, 0), mixture=(1, 0))
    assert compared.names == [
        "mean",
        "gaussian",
    ]  # 6 of 10 seconds are left, which is twice what the second took
    assert not slow["trees"].started
    assert not slow["mixture"].started
    assert compared.left_out["trees"] == "there was no time left"
    compared, slow, *_ = compare_candidates(10.5, mean=(1, 0), gaussian=(3, 0), trees=(1, 0), mixture=(1, 0))
    assert compared.names == ["mean", "gaussian", "trees"]
    assert not slow["mixture"].started


def test_a_candidate_whose_answers_would_not_end_in_time_is_left_out_after_its_first_rows(monkeypatch):
    monkeypatch.setattr(scoring, "TRIED_ROWS", (10, 40))
    compared, _, task, clock = compare_candidates(8.0, mean=(0, 0), gaussian=(1, 0), trees=(1, 0.1))
    assert compared.left_out == {"trees": "to impute all rows would have taken too long"}
    assert len(task.scored) > 50
    assert clock.now == pytest.approx(2 + 0.1 * 50)
    compared, _, task, _ = compare_candidates(30.0, mean=(0, 0), gaussian=(1, 0), trees=(1, 0.1))
    assert compared.names == ["mean", "gaussian", "trees"]
    assert compared.costs[2] == Cost(1, 200, pytest.approx(0.1))


def test_methods_that_take_long_for_their_weight_are_given_up_until_imputing_ends_in_time():
    costs = [Cost(9.0, 100, 0.001), Cost(1.0, 100, 0.1), Cost(5.0, 100, 0.01)]  # 0.2, 20 and 2 seconds
    third = 1 / 3
    assert too_costly(costs, {0: third, 1: third, 2: third}, 200, 22.3) is None
    assert too_costly(costs, {0: third, 1: third, 2: third}, 200, 22.0) == 1
    assert too_costly(costs, {0: 0.1, 1: 0.89, 2: 0.01}, 200, 22.0) == 2
    assert too_costly(costs, {0: 0.5, 2: 0.5}, 200, 1.0) == 2
    assert too_costly(costs, {0: 1.0}, 200, 0.0) is None


def test_one_gaussian_is_fitted_to_the_same_cells_and_its_penalty_is_found_once(monkeypatch):
    ridges, usual = [], GaussianImputer._fit_model

    def fit_model(self, codes):
        ridges.append((self.ridge, int(codes.observed.sum())))
        return usual(self, codes)

    X = np.random.default_rng(0).uniform(-1, 1, size=(300, 3))
    X[:, 2] = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0) + 0.1 * X[:, 2]  # trees know it, Gaussians do not
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    expected = TreeImputer(**WorkPlan(300, 3, 0, 300).settings("trees", 300), random_state=0).fit(X)
    monkeypatch.setattr(GaussianImputer, "_fit_model", fit_model)
    monkeypatch.setattr(WorkPlan, "n_masks", lambda self, names: 1)
    imputer = AutoImputer(candidates=["mean", "gaussian", "trees"], random_state=0).fit(X)
    (first, n_first), (second, n_second) = ridges
    assert first == "auto"
    assert n_first == (~np.isnan(X)).sum() > n_second
    trees = imputer.members_[list(imputer.fitted_to_).index("trees")]
    assert imputer.fitted_to_["trees"]["hidden_cells"] == 0
    np.testing.assert_array_equal(trees.transform(X), expected.transform(X))  # from the same Gaussian
    assert second == GaussianImputer(random_state=0).fit(X).ridge_
    assert not hasattr(imputer, "_gaussians")
    ridges.clear()
    monkeypatch.setattr(hiding, "MAX_COMPARED_ROWS", 150)
    AutoImputer(candidates=["mean", "gaussian", "trees"], random_state=0).fit(X)
    assert [ridge for ridge, _ in ridges] == ["auto"] * 3  # of the first rows, of random ones, and of all


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


def test_without_time_to_fit_again_the_fits_of_the_comparison_are_used(monkeypatch):
    monkeypatch.setattr(auto_imputer, "COMPARISON_SHARE", 1.0)
    fits = []
    usual = AutoImputer._fit_member

    def slow(self, imputer, codes):
        fits.append(type(imputer).__name__)
        clock.now += 1.0
        return usual(self, imputer, codes)

    clock = Clock()
    monkeypatch.setattr(AutoImputer, "_fit_member", slow)
    monkeypatch.setattr(auto_imputer, "TimeBudget", lambda seconds: TimeBudget(seconds, clock))
    with pytest.warns(halfseen.HalfseenWarning, match="The time limit was reached"):
        imputer = AutoImputer(3.5, candidates=SIMPLE, random_state=0).fit(correlated(150))
    assert fits == ["GaussianImputer", "MeanImputer", "GaussianImputer"]  # the first completes rows
    n_hidden = imputer.fitted_to_["gaussian"]["hidden_cells"]
    assert n_hidden > 0
    assert f"fitted to all 150 rows, without {n_hidden:,} hidden cells." in imputer.reason_
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
    with pytest.warns(halfseen.HalfseenWarning, match="The time limit was reached"):
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
    compared = scoring.run(task, fits, TimeBudget(60.0))
    weights, points = np.tile([[0.4], [0.6]], len(columns)), np.tile([[0.1], [0.9]], len(columns))
    for c, column in enumerate(columns):
        points[:, c] = weights[:, c] if column.levels is not None else points[:, c]
    found = compare_hidden(task, compared, ChosenWeights(weights, points, {}), sharpness=1.7)
    assert found.n_rows == len(task.scored)
    stack = TabularStack(models, weights, 1.7, points)
    shown = task.shown[task.scored]
    point, ends = stack.point(shown), stack.interval(shown, 0.9)
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


def test_large_tables_are_sampled_for_the_comparison_and_fitted_whole(monkeypatch):
    monkeypatch.setattr(hiding, "MAX_COMPARED_ROWS", 80)
    monkeypatch.setattr(hiding, "MAX_SCORED_ROWS", 60)
    X = correlated(300)
    imputer = AutoImputer(candidates=["gaussian"], random_state=0).fit(X)
    np.testing.assert_allclose(
        imputer.members_[0].model_.gaussian.loc, GaussianImputer(random_state=0).fit(X).model_.gaussian.loc
    )


@pytest.mark.parametrize(
    ("n_missing", "names", "n_masks"),
    [(2_000, SIMPLE, 3), (700, ["trees"], 2), (50, ["trees"], 1), (2_000, ["trees", "circuit"], 1)],
)
def test_the_number_of_masks_follows_from_the_size_of_the_table_and_the_work_of_candidates(
    n_missing, names, n_masks
):
    assert WorkPlan(200, 20, n_missing, 200).n_masks(names) == n_masks


def test_a_time_limit_may_end_the_comparison_before_all_masks(monkeypatch):
    clock, n_fits = Clock(), []
    usual = AutoImputer._fit_member

    def slow(self, imputer, codes):
        n_fits.append(type(imputer).__name__)
        clock.now += 1.0
        return usual(self, imputer, codes)

    monkeypatch.setattr(AutoImputer, "_fit_member", slow)
    monkeypatch.setattr(auto_imputer, "TimeBudget", lambda seconds: TimeBudget(seconds, clock))
    monkeypatch.setattr(WorkPlan, "n_masks", lambda self, names: 3)
    monkeypatch.setattr(hiding, "ENOUGH_CELLS", 200)
    for seconds, n_masks in ((None, 3), (20.0, 2), (16.0, 1)):
        n_fits.clear()
        imputer = AutoImputer(seconds, candidates=SIMPLE, random_state=0)
        if n_masks < 3:
            with pytest.warns(halfseen.HalfseenWarning, match="The time limit was reached"):
                imputer.fit(correlated(150))
        else:
            imputer.fit(correlated(150))
        assert n_fits[: 1 + 2 * n_masks].count("MeanImputer") == n_masks


def test_the_plan_depends_on_the_size_of_the_table_alone_and_more_missing_cells_are_worth_more_work():
    names = list(auto_imputer.CANDIDATES)
    assert WorkPlan(344, 7, 19, 344).admitted(names) == ["mean", "gaussian", "mixture"]
    small = WorkPlan(1_000, 9, 2_700, 1_000)
    assert small.admitted(names) == ["mean", "gaussian", "trees", "circuit"]
    assert not small.is_reused("circuit")
    assert WorkPlan(1_000, 17, 5_100, 1_000).is_reused("circuit")  # to fit it twice would take too long
    wide = WorkPlan(1_000, 17, 5_100, 1_000)  # the one with more weight is fitted twice
    assert wide.refitted(["circuit", "gaussian", "trees", "miwae"]) == {"circuit", "gaussian"}
    assert wide.refitted(["trees", "circuit"]) == {"trees"}
    assert small.refitted(["trees", "circuit", "gaussian"]) == {"trees", "circuit", "gaussian"}
    assert WorkPlan(9_000, 9, 9_000, 3_000).refitted(["trees", "miwae"]) == {"trees", "miwae"}
    assert WorkPlan(2_000, 20, 12_000, 2_000).admitted(names) == ["mean", "gaussian", "trees", "mixture"]
    assert "trees" in WorkPlan(1_000, 20, 6_000, 1_000).admitted(names)
    assert WorkPlan(1_000, 20, 0, 1_000).allowance == WorkPlan(1_000, 20, 2_000, 1_000).allowance
    assert WorkPlan(100_000, 20, 600_000, 3_000).fitted_rows("gaussian") == 100_000
    assert WorkPlan(400_000, 10, 600_000, 3_000).fitted_rows("circuit") == 400_000
    assert WorkPlan(400_000, 10, 600_000, 3_000).fitted_rows("mixture") == 100_000
    assert WorkPlan(400_000, 10, 600_000, 3_000).settings("circuit", 400_000) == {"max_epochs": 4}
    assert WorkPlan(400_000, 10, 9, 3_000).default_seconds == np.inf
    assert WorkPlan(500_000, 10, 9, 3_000).default_seconds == 1_800.0


def test_neither_the_clock_nor_the_number_of_threads_changes_a_result(monkeypatch):
    frame = halfseen.datasets.load_penguins("pandas")
    frame = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1)
    settings = {"candidates": ["mean", "gaussian", "mixture", "trees"], "random_state": 0}
    expected = AutoImputer(**settings).fit(frame)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - before if before in (1, 2) else 1)
        for name in ("monotonic", "perf_counter", "process_time"):
            usual = getattr(time, name)
            monkeypatch.setattr(time, name, lambda usual=usual: 100.0 * usual())
        imputer = AutoImputer(**settings).fit(frame)
    finally:
        torch.set_num_threads(before)
    assert imputer.reason_ == expected.reason_
    assert imputer.scores_ == expected.scores_
    pd.testing.assert_frame_equal(imputer.transform(frame), expected.transform(frame), check_exact=True)
    for one, other in zip(imputer.sample(frame, 2), expected.sample(frame, 2), strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)


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
        ({"max_seconds": 0}, "max_seconds must be positive and finite, or None, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        AutoImputer(**settings).fit(correlated(60))


def table_with_levels(kind, rng, n_rows=500):
    """Two numbers, and a number and levels that depend on them linearly or by an interaction."""
    u, v = rng.uniform(-1, 1, size=(2, n_rows))
    product, sum_ = 2.0 * u * v, u + v
    number = {"levels": sum_, "numbers": product, "both": product}[kind] + 0.2 * rng.normal(size=n_rows)
    score = {"levels": product, "numbers": sum_, "both": product}[kind] + 0.1 * rng.normal(size=n_rows)
    return pd.DataFrame({"u": u, "v": v, "number": number, "level": np.where(score > 0, "high", "low")})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["levels", "numbers", "both"])
def test_the_combination_is_at_most_two_percent_or_two_standard_errors_behind_the_best_candidate(kind):
    """One of the candidates is clearly the best for levels, for numbers, or for both.

    Where few hidden cells do not show which one, weights are near equal ones by intention: over many tables
    that is better, on a single one it may be worse.
    """
    rng = np.random.default_rng(0)
    table = table_with_levels(kind, rng)
    hidden = pd.DataFrame(rng.random(table.shape) < 0.2, columns=table.columns)
    shown = table.mask(hidden)
    trees = TreeImputer(**WorkPlan(500, 4, 400, 500).settings("trees", 500), random_state=0)
    auto = AutoImputer(candidates=["mean", "gaussian", "trees"], random_state=0)
    filled = [one.fit_transform(shown) for one in (GaussianImputer(random_state=0), trees, auto)]
    for column in ("number", "level"):
        cells = hidden[column]
        truth = table.loc[cells, column]
        if column == "level":
            losses = [(one.loc[cells, column] != truth).to_numpy(float) for one in filled]
        else:
            losses = [(one.loc[cells, column] - truth).to_numpy(float) ** 2 for one in filled]
        best = min(losses[:-1], key=lambda one: one.mean())
        behind = losses[-1] - best
        error = behind.std(ddof=1) / np.sqrt(len(behind))
        assert behind.mean() <= max(0.02 * best.mean(), 2 * error)
