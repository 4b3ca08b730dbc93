"""Weights of several predictive distributions, by their scores on hidden cells."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from halfseen import AutoImputer
from halfseen.auto import hiding as hiding
from halfseen.auto import scoring as scoring
from halfseen.auto import stacking as stacking
from halfseen.auto.stacking import (
    Answers,
    LevelLoss,
    QuadraticLoss,
    _crps,
    find_level_weights,
    find_point_weights,
    find_sharpness,
    find_weights,
    mixture_share,
    tail_weights,
)
from halfseen.data.incomplete import Incomplete


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
    loss, w = QuadraticLoss.of_distributions(a), np.array([0.25, 0.75])
    mixture = np.concatenate(
        [a.atoms[0], np.repeat(a.atoms[1], 3, axis=1)], axis=1
    )  # a quarter, and the rest
    crps = _crps(mixture, a.truth).mean()
    assert loss(w)[0] == pytest.approx(crps / a.losses().min(), rel=1e-9)
    assert a.crps(w) == pytest.approx(crps, rel=1e-9)
    slope = [(loss(w + e)[0] - loss(w - e)[0]) / 2e-6 for e in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(loss(w)[1], slope, rtol=1e-5)
    assert loss.per_cell(w).mean() == pytest.approx(loss(w)[0], rel=1e-9)


def test_cells_count_by_their_weights_in_losses():
    """A cell of weight 3 is three cells."""
    a = answers(n_cells=150)
    weight = 1.0 + 2.0 * (np.arange(150) % 2)
    cells = np.repeat(np.arange(150), weight.astype(int))
    repeated = Answers(a.truth[cells], a.half[cells], a.points[:, cells], a.atoms[:, cells])
    weighted, w = replace(a, weight=weight), np.array([0.25, 0.75])
    losses = [QuadraticLoss.of_distributions(one)(w)[0] for one in (weighted, repeated)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
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


def levels(strengths, n_cells, rng, n_levels=3):
    """Models of levels, each right more often the larger its strength, and calibrated."""
    truth = rng.integers(n_levels, size=n_cells)
    noise = rng.normal(size=(len(strengths), n_cells, n_levels))
    right = np.arange(n_levels) == truth[:, None]
    strength = np.array(strengths)[:, None, None]
    logits = strength * (
        strength * right + noise
    )  # the log of the likelihood of each level, given such noise
    shares = np.exp(logits - logits.max(axis=2, keepdims=True))
    return truth.astype(float), shares / shares.sum(axis=2, keepdims=True)


def level_answers(truth, shares, rng):
    likelihood = np.take_along_axis(shares, truth.astype(int)[None, :, None], 2)[..., 0]
    half = rng.integers(2, size=len(truth))
    points = shares.argmax(axis=2).astype(float)
    return Answers(truth, half, points, likelihood=np.maximum(likelihood, 1e-6), probabilities=shares)


def test_the_weights_of_few_levels_have_the_lowest_brier_score_near_equal_weights():
    """Cell by cell, for two models of about the same strength, neither of which is clearly behind."""
    rng = np.random.default_rng(0)
    columns = [level_answers(*levels([1.0, 1.1], n, rng, k), rng) for n, k in ((9, 3), (100, 2))]

    def score(column, w):
        total, count = 0.0, 0.0
        for one in columns:
            share = 1.0 if one is column else min(1.0, stacking.PRIOR / len(one.truth))
            for cell, truth in enumerate(one.truth):
                mixed = w @ one.probabilities[:, cell]
                total += share * sum((p - (level == truth)) ** 2 for level, p in enumerate(mixed))
                count += share
        return total, count

    for column, found in zip(columns, find_level_weights(columns).T, strict=True):
        best = min(score(column, w)[0] / score(column, w)[1] for w in np.eye(2))
        grid = np.linspace(0, 1, 201)
        away = stacking.EVEN * best * 2 * (grid - 0.5) ** 2
        totals = [score(column, np.array([s, 1 - s]))[0] for s in grid]
        assert abs(grid[int(np.argmin(totals + away))] - found[0]) < 0.006


def test_weights_of_single_values_have_the_lowest_squared_error_near_equal_weights():
    """Cell by cell, for two models that are equally good, on columns of which one is much easier."""
    rng = np.random.default_rng(0)
    columns = []
    for n_cells, noise in ((9, 1.0), (150, 0.05)):
        truth = rng.normal(size=n_cells)
        points = truth + noise * rng.normal(size=(2, n_cells))
        columns.append(Answers(truth, rng.integers(2, size=n_cells), points, points[:, :, None]))
    best = [one.errors().min() for one in columns]
    for column, found in zip(range(2), find_point_weights(columns).T, strict=True):

        def score(w, column=column):
            total, count = 0.0, 0.0
            for c, one in enumerate(columns):
                share = 1.0 if c == column else min(1.0, stacking.PRIOR / len(one.truth))
                for cell, truth in enumerate(one.truth):
                    total += share * (w @ one.points[:, cell] - truth) ** 2 / best[c]
                    count += share
            return total, count

        lowest = min(score(w)[0] / score(w)[1] for w in np.eye(2))
        grid = np.linspace(0, 1, 201)
        totals = [score(np.array([s, 1 - s]))[0] + stacking.EVEN * lowest * 2 * (s - 0.5) ** 2 for s in grid]
        assert abs(grid[int(np.argmin(totals))] - found[0]) < 0.006


def test_single_values_of_good_models_are_averaged_and_of_a_model_that_is_clearly_behind_not_used():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2_000)
    points = truth + np.array([1.0, 0.3])[:, None] * rng.normal(size=(2, 2_000))
    answers = Answers(truth, rng.integers(2, size=2_000), points, points[:, :, None])
    few, many = (find_point_weights([answers.of(np.arange(2_000) < n)])[:, 0] for n in (0, 2_000))
    np.testing.assert_allclose(few, [0.5, 0.5], atol=1e-6)
    assert many[0] < 0.1


def test_weights_of_levels_are_equal_without_hidden_cells_and_a_model_that_is_clearly_behind_has_none():
    rng = np.random.default_rng(0)
    truth, shares = levels([0.3, 2.5], 2_000, rng)
    answers = level_answers(truth, shares, rng)
    few, many = (find_level_weights([answers.of(np.arange(2_000) < n)])[:, 0] for n in (0, 2_000))
    np.testing.assert_allclose(few, [0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(many, [0.0, 1.0], atol=1e-6)


def test_a_column_with_few_hidden_cells_has_nearly_the_weights_of_the_others():
    """The second model knows more, but the first predicts the three hidden cells of one column better."""
    rng = np.random.default_rng(0)
    others = [level_answers(*levels([0.5, 2.5], 200, rng), rng) for _ in range(2)]
    whole = level_answers(*levels([0.5, 2.5], 200, rng), rng)
    brier = np.square(whole.probabilities - (np.arange(3) == whole.truth[:, None])).sum(axis=2)
    first_is_better = np.isin(np.arange(200), (brier[0] - brier[1]).argsort()[:3])
    few = find_level_weights([*others, whole.of(first_is_better)])
    assert few[1, 2] > 0.8
    assert find_level_weights([whole.of(first_is_better)])[0, 0] > 0.5  # by its own cells alone
    of_points = find_point_weights([*_number_columns(), _number_columns(3, first=0.1, second=1.0)[0]])
    assert of_points[1, 2] > 0.8


def _number_columns(n_cells=200, first=1.0, second=0.1):
    """Two columns, in one of two models with errors of these sizes."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2):
        truth = rng.normal(size=n_cells)
        points = truth + np.array([[first], [second]]) * rng.normal(size=(2, n_cells))
        found.append(Answers(truth, rng.integers(2, size=n_cells), points, points[:, :, None]))
    return found


def test_many_columns_with_levels_have_common_weights(monkeypatch):
    monkeypatch.setattr(stacking, "MAX_OWN_WEIGHTS", 1)
    rng = np.random.default_rng(0)
    columns = [level_answers(*levels([1.0, 1.5], 30, rng), rng) for _ in range(3)]
    found = find_level_weights(columns)
    np.testing.assert_allclose(found, found[:, :1].repeat(3, axis=1))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)


def test_a_few_levels_that_a_model_thinks_impossible_do_not_outweigh_that_it_is_right_most_often():
    """The model with the lowest log-loss is right less often."""
    rng = np.random.default_rng(0)
    truth, shares = levels([1.6, 1.1], 400, rng)
    wrong = np.flatnonzero(shares[0].argmax(axis=1) != truth)[:30]
    shares[0, wrong] = np.where(np.arange(3) == truth[wrong, None], 1e-6, shares[0, wrong])
    shares /= shares.sum(axis=2, keepdims=True)
    answers = level_answers(truth, shares, rng)
    assert answers.errors()[0] < answers.errors()[1] - 0.1
    assert answers.losses()[0] > answers.losses()[1]
    assert find_level_weights([answers])[0, 0] > 0.7


@pytest.mark.parametrize("strengths", [(2.5, 1.0, 0.3), (0.3, 1.0, 2.5), (2.0, 2.0, 0.3)])
def test_combined_levels_are_at_most_one_percent_or_two_standard_errors_behind_the_best_model(strengths):
    """On new cells, for 60 hidden cells as in short tables and five seeds; so few leave weights inexact."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        whole = level_answers(*levels(strengths, 2_060, rng), rng)
        seen, new = whole.of(np.arange(2_060) < 60), whole.of(np.arange(2_060) >= 60)
        assert new.probabilities is not None
        w = find_level_weights([seen])[:, 0]
        shares = np.concatenate([new.probabilities, np.tensordot(w, new.probabilities, 1)[None]])
        true = np.arange(3) == new.truth[:, None]
        for cost in (shares.argmax(axis=2) != new.truth, ((shares - true) ** 2).sum(axis=2)):
            best = cost[cost[:-1].mean(axis=1).argmin()].astype(float)
            behind = cost[-1] - best
            error = behind.std(ddof=1) / np.sqrt(len(behind))
            assert behind.mean() <= max(0.01 * best.mean(), 2 * error)


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
    columns = [answers(seed=1), answers(seed=2), nothing]
    for weights in (find_weights(columns, QuadraticLoss.of_distributions)[0], find_point_weights(columns)):
        assert weights.shape == (2, 3)
        np.testing.assert_allclose(weights.sum(axis=0), 1.0)
        assert (weights[0] > 0.85).all()


def test_models_that_err_in_turn_are_mixed():
    rng = np.random.default_rng(0)
    truth, turn = rng.normal(size=400), rng.random(400) < 0.5
    points = np.stack([truth + turn * rng.normal(size=400), truth + ~turn * rng.normal(size=400)])
    atoms = points[:, :, None] + 0.7 * np.linspace(-1.6, 1.6, 19)
    column = Answers(truth, rng.integers(2, size=400), points, atoms)
    weights, share = find_weights([column], QuadraticLoss.of_distributions)
    assert share > 0.8
    assert (weights > 0.3).all()
    assert (find_point_weights([column]) > 0.3).all()


def test_single_values_follow_the_model_with_the_best_mean_and_distributions_the_one_with_the_best_crps():
    """One model knows the distribution but has a poor mean, the other a good mean and no distribution."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=600)
    points = np.stack([truth + 0.8 * rng.normal(size=600), truth + 0.3 * rng.normal(size=600)])
    spread = np.linspace(-1.6, 1.6, 19)
    atoms = np.stack([truth[:, None] + 0.1 * spread, points[1][:, None] + 4.0 * spread])
    column = Answers(truth, rng.integers(2, size=600), points, atoms)
    of_distributions = find_weights([column], QuadraticLoss.of_distributions)[0]
    of_points = find_point_weights([column])
    assert of_distributions[0, 0] > 0.9
    assert of_points[1, 0] > 0.8


def test_mixtures_are_shrunk_towards_the_best_single_model_by_their_standard_error():
    gains = np.random.default_rng(0).normal(0.1, 1.0, size=400)
    mean, error = gains.mean(), gains.std(ddof=1) / 20
    assert mixture_share(gains) == pytest.approx(mean**2 / (mean**2 + error**2))
    assert mixture_share(gains - 1.0) == 0.0
    assert mixture_share(np.zeros(0)) == 0.0


def test_with_models_that_are_equally_good_and_alike_nothing_is_lost_to_the_best_one():
    """On new cells, the combination is at most 1% worse than the best single model, for five seeds."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=2_200)
        common = 0.5 * rng.normal(size=2_200)
        points = truth + common + np.array([0.1, 0.12, 0.4])[:, None] * rng.normal(size=(3, 2_200))
        atoms = points[:, :, None] + 0.5 * norm.ppf((np.arange(19) + 0.5) / 19)
        whole = Answers(truth, rng.integers(2, size=2_200), points, atoms)
        seen, new = (whole.of(np.arange(2_200) < 200), whole.of(np.arange(2_200) >= 200))
        w = find_point_weights([seen])[:, 0]
        assert ((w @ new.points - new.truth) ** 2).mean() <= 1.01 * new.errors().min()
        w = find_weights([seen], QuadraticLoss.of_distributions)[0][:, 0]
        assert new.crps(w) <= 1.01 * new.losses().min()


def test_tables_with_many_columns_have_common_weights(monkeypatch):
    columns = [answers(seed=seed) for seed in range(4)]
    own, _ = find_weights(columns, QuadraticLoss.of_distributions)
    monkeypatch.setattr(stacking, "MAX_OWN_WEIGHTS", 3)
    common, _ = find_weights(columns, QuadraticLoss.of_distributions)
    assert (common == common[:, :1]).all()
    assert common[0, 0] > 0.85
    assert own.shape == common.shape
