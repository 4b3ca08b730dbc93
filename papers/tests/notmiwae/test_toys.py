"""The toys of the not-MIWAE report: their distributions against integrals, their scores by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import binom, binomtest, kstest, norm
from sklearn.impute import SimpleImputer
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from papers import EXPERIMENTS, Cell, Results, run
from papers.figures.latent import toy_draws
from papers.notmiwae.disc import SHAPE, disc_error, hidden_if_bright, hide_bright
from papers.notmiwae.toys import (
    CHOSEN,
    DRAWN,
    ENERGY,
    EXPERIMENT,
    GAUSSIAN,
    GIVEN,
    MAR,
    MEAN,
    N_DRAWS,
    NOT,
    OFF,
    ORACLE,
    RING,
    RMSE,
    SIDES,
    ByHeldOut,
    Task,
    ToyAnswer,
    ToyOracle,
    answer,
    hidden_at_the_top,
    judge,
    make_toy,
    score,
)
from papers.problems.problem import Sample
from papers.problems.toys import CorrelatedGaussian, Ring


def density(law, x1, x2):
    """The density of the two features, missing or not, up to a constant."""
    if isinstance(law, CorrelatedGaussian):
        return norm.pdf(x1, 0.8 * x2, 0.6)
    radius = np.hypot(x1, x2)
    return norm.pdf(radius, 4.5, 0.5**0.5) / radius


def interval(law, x2):
    """Where the first feature is missing."""
    return (0.0, 12.0) if isinstance(law, CorrelatedGaussian) else (-x2, x2)


CASES = [(CorrelatedGaussian(), -1.0), (CorrelatedGaussian(), 2.0), (Ring(), 3.3), (Ring(), 4.4)]


@pytest.mark.parametrize(("law", "x2"), CASES)
def test_the_oracle_expects_what_an_integral_does(law, x2):
    low, high = interval(law, x2)
    total = quad(lambda x: density(law, x, x2), low, high, epsabs=1e-12)[0]
    expected = quad(lambda x: x * density(law, x, x2), low, high, epsabs=1e-12)[0] / total
    assert law.predict_bayes([[np.nan, x2]])[0, 0] == pytest.approx(expected, abs=QUADRATURE)


@pytest.mark.parametrize(("law", "x2"), CASES)
def test_draws_of_the_oracle_have_the_distribution_of_missing_values(law, x2):
    low, high = interval(law, x2)
    grid = np.linspace(low, high, 20_001)
    middle = density(law, (grid[1:] + grid[:-1]) / 2, x2)
    cdf = np.concatenate([[0.0], middle.cumsum() / middle.sum()])
    drawn = law.draw_bayes([[np.nan, x2], [-0.7, x2]], 40_000, random_state=0)
    assert drawn.shape == (40_000, 2, 2)
    assert kstest(drawn[:, 0, 0], lambda x: np.interp(x, grid, cdf)).pvalue > FAILURE_RATE
    assert len(np.unique(drawn[:, 0, 0])) == 40_000
    assert (drawn[:, 1, 0] == -0.7).all()
    assert (drawn[..., 1] == x2).all()


@pytest.mark.parametrize("toy", [GAUSSIAN, RING])
def test_missing_rows_have_the_distribution_that_the_oracle_draws_from(toy):
    """Ranks of true values among draws are uniform, as they are of one more draw."""
    law = make_toy(toy, 0).law
    sample = law.sample(3_000, 1)
    task = Task(law, sample)
    below = np.mean(law.draw_bayes(task.to_fill, 999, 2)[..., 0] < sample.X[task.hidden, 0], axis=0)
    assert kstest(below, "uniform").pvalue > FAILURE_RATE
    share = {GAUSSIAN: 0.5, RING: 0.25}[toy]
    assert binomtest(int(task.hidden.sum()), 3_000, share).pvalue > FAILURE_RATE


def test_distances_are_from_the_circle_and_from_the_regression_line():
    np.testing.assert_allclose(Ring().distance([[3.0, -4.0], [0.0, 2.0]]), [0.5, 2.5], atol=EXACT)
    np.testing.assert_allclose(CorrelatedGaussian(0.5).distance([[[1.0, -1.0]]]), [[1.5]], atol=EXACT)


def test_toys_are_those_of_the_report():
    gaussian, ring = (make_toy(toy, 3) for toy in (GAUSSIAN, RING))
    assert (gaussian.sample.X.shape, ring.sample.X.shape) == ((500, 2), (1500, 2))
    assert (gaussian.hidden == (gaussian.sample.X[:, 0] > 0)).all()
    assert (ring.hidden == (ring.sample.X[:, 1] >= np.abs(ring.sample.X[:, 0]))).all()
    assert gaussian.sample.observed[:, 1].all()
    assert not np.array_equal(make_toy(RING, 4).sample.X, ring.sample.X)


def test_the_given_mechanism_removes_the_top_only():
    hidden = torch.tensor([[0.0, 4.5], [3.0, 3.5], [-3.0, 3.5]])
    seen = torch.tensor([[3.5, 3.0], [-3.5, 3.0], [4.5, 0.0], [-1.0, -4.0]])
    assert hidden_at_the_top(hidden).round().tolist() == [[1.0, 0.0]] * 3
    assert hidden_at_the_top(seen).round().tolist() == [[0.0, 0.0]] * 4
    assert hidden_at_the_top(torch.tensor([[2.0, 2.0]]))[0, 0] == 0.5


def ring_task(X, hidden):
    X = np.asarray(X, dtype=np.float64)
    return Task(Ring(), Sample(X, X, np.column_stack([~np.array(hidden), np.ones(len(X), dtype=bool)])))


def test_scores_of_an_answer_that_was_made_by_hand():
    task = ring_task([[3.0, 4.0], [-2.0, 3.0], [4.5, 0.0]], [True, True, False])
    best = np.array([[0.0, 4.0], [1.0, 3.0]])
    draws = np.array([[[3.0, 4.0], [4.0, 3.0]], [[3.0, 4.0], [0.0, 3.0]], [[-3.0, 4.0], [4.0, 3.0]]])
    found = judge(ToyAnswer(best, draws), task)
    assert found[RMSE] == pytest.approx(3.0, abs=EXACT)  # errors 3 and 3
    assert found[OFF] == pytest.approx(0.5, abs=EXACT)  # radii 5, 5, 5, 5, 3, 5
    assert found[SIDES] == pytest.approx((1 / 3 + 0.0) / 2, abs=EXACT)  # a draw at 0 is on neither side
    points, truth = draws.reshape(-1, 2), task.sample.X[:2]
    apart = [np.linalg.norm(a[:, None] - b, axis=-1).mean() for a, b in ((points, truth), (points, points))]
    own = np.linalg.norm(truth[:, None] - truth, axis=-1).mean()
    assert found[ENERGY] == pytest.approx(2 * apart[0] - apart[1] - own, abs=EXACT)


def test_single_values_are_their_own_draws_and_lie_on_one_side():
    class Threes:
        def fit(self, X):
            self.seen = X
            return self

        def transform(self, X):
            return np.where(np.isnan(X), 3.0, X)

    task = ring_task([[3.0, 4.0], [-2.0, 3.0], [4.5, 0.0]], [True, True, False])
    model = Threes()
    found = answer(model, task)
    np.testing.assert_array_equal(model.seen, task.sample.incomplete)
    np.testing.assert_array_equal(found.draws, [[[3.0, 4.0], [3.0, 3.0]]])
    assert (judge(found, task)[SIDES], found.ess) == (0.0, None)


def test_the_oracle_is_scored_as_the_truth_is():
    task = make_toy(RING, 0)
    found = ToyOracle().answer(task)
    assert found.draws.shape == (N_DRAWS, task.hidden.sum(), 2)
    scores = judge(found, task)
    # 4.4 standard errors of 375 rows, which is a failure rate of 1e-5; draws of a row count for one at worst.
    assert scores[OFF] == pytest.approx(norm.ppf(0.75) * 0.5**0.5, abs=0.09 * 2**0.5)
    assert scores[RMSE] == pytest.approx(1.942, abs=0.18)
    rarer = np.arange(N_DRAWS + 1)
    expected = binom.pmf(rarer, N_DRAWS, 0.5) @ np.minimum(rarer, N_DRAWS - rarer) / N_DRAWS
    assert scores[SIDES] == pytest.approx(expected, abs=4.4 * 0.5 / np.sqrt(N_DRAWS * len(task.to_fill)))


def test_the_imputer_with_the_best_held_out_score_is_fitted_to_all_rows():
    class Fake:
        def __init__(self, quality):
            self.quality, self.fits, self.scored = quality, [], []

        def fit(self, X):
            self.fits.append(X)
            return self

        def score(self, X):
            self.scored.append(X)
            return self.quality

    X = np.arange(20.0).reshape(10, 2)
    models = {"bad": Fake(-2.0), "good": Fake(-1.0), "worse": Fake(-3.0)}
    choice = ByHeldOut(models)
    assert choice.fit(X) is models["good"]
    assert choice.bounds_ == {"bad": -2.0, "good": -1.0, "worse": -3.0}
    np.testing.assert_array_equal(models["good"].fits[-1], X)
    assert [len(model.fits) for model in models.values()] == [1, 2, 1]
    for model in models.values():
        rows = np.concatenate([model.fits[0], model.scored[0]])
        assert (len(model.scored[0]), sorted(map(tuple, rows))) == (2, list(map(tuple, X)))
        np.testing.assert_array_equal(model.scored[0], models["bad"].scored[0])


def test_claims_are_about_models_that_the_small_scale_runs():
    cells = {(cell.setting["toy"], cell.model) for cell in EXPERIMENT.cells("small")}
    for claim in EXPERIMENT.claims:
        names = [claim.model, *([claim.other] if hasattr(claim, "other") else [])]
        toys = claim.where["toy"] if isinstance(claim.where["toy"], tuple) else (claim.where["toy"],)
        assert any({(toy, name) for name in names} <= cells for toy in toys)
    assert EXPERIMENTS["notmiwae-toys"] is EXPERIMENT
    assert {cell.seed for cell in EXPERIMENT.cells("small")} == set(range(5))


def test_the_reports_numbers_stand_beside_ours():
    assert EXPERIMENT.numbers({"toy": GAUSSIAN}, NOT, RMSE).mean == 1.152
    assert EXPERIMENT.numbers({"toy": RING}, MAR, RMSE).mean == 1.977
    assert EXPERIMENT.numbers({"toy": GAUSSIAN}, NOT, RMSE).other  # the report's networks are others
    assert EXPERIMENT.numbers({"toy": "ring"}, MAR, RMSE) is None  # stored runs of another ring
    assert EXPERIMENT.numbers({"toy": RING}, NOT, OFF) is None
    assert EXPERIMENT.numbers({"toy": RING}, CHOSEN, RMSE) is None


def test_the_picture_shows_the_draws_that_runs_have_kept():
    task = make_toy(RING, 0)
    kept = score(ToyOracle(), task)[DRAWN]
    np.testing.assert_array_equal(kept, ToyOracle().answer(task).draws[0])
    assert DRAWN not in score(ToyOracle(), make_toy(RING, 1))

    def results(model, arrays):
        cell = Cell({"toy": RING}, model, 0, {RMSE: 1.0}, arrays=arrays)
        return Results(EXPERIMENT, "small", [cell], {}, Path())

    assert toy_draws(results(GIVEN, {})) is None
    kept[:2] = 100.0  # outside the axes
    truth, drawn, *_ = toy_draws(results(GIVEN, {DRAWN: kept})).axes
    assert truth.get_title(loc="left") == f"{RING}: truth"
    assert drawn.get_title(loc="left") == f"{RING}: {GIVEN} (2 beyond)"
    complete, points = (np.asarray(one.get_offsets()) for one in truth.collections)
    np.testing.assert_array_equal(points, task.sample.X[task.hidden])
    np.testing.assert_array_equal(complete, task.sample.X[~task.hidden])
    np.testing.assert_array_equal(drawn.collections[1].get_offsets(), kept)
    assert truth.get_xlim() == drawn.get_xlim()


def test_bright_pixels_of_the_disc_are_missing_and_no_others():
    X = np.zeros((2, *SHAPE))
    X[0] = 0.6
    X[1, 13, 13], X[1, 14, 14], X[1, 0, 0] = 1.0, 0.5, 1.0
    task = hide_bright(X.reshape(2, -1))
    missing = task.missing.reshape(X.shape)
    rows, columns = np.indices(SHAPE)
    np.testing.assert_array_equal(missing[0], (rows - 13.5) ** 2 + (columns - 13.5) ** 2 <= 25)
    assert np.argwhere(missing[1]).tolist() == [[13, 13]]
    np.testing.assert_array_equal(np.isnan(task.incomplete), task.missing)
    given = hidden_if_bright(torch.from_numpy(task.X)).numpy()
    np.testing.assert_array_equal((given > 0.5), task.missing)
    assert given[1].reshape(SHAPE)[14, 14] == 0.5


def test_the_error_of_images_is_on_the_scale_from_minus_one_to_one():
    task = hide_bright(np.full((1, 784), 0.9))
    constant = SimpleImputer(strategy="constant", fill_value=0.4, keep_empty_features=True)
    assert disc_error(constant, task) == pytest.approx(1.0, abs=EXACT)


@pytest.mark.slow
def test_the_smallest_scale_runs_and_not_miwae_is_near_the_oracle(tmp_path):
    results = run(EXPERIMENT, "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
    assert {verdict.outcome for verdict in results.verdicts()} <= {"met", "undecided", "not testable"}
    scores = {(cell.setting["toy"], cell.model): cell.scores for cell in results.cells}
    assert scores[GAUSSIAN, NOT][RMSE] < scores[GAUSSIAN, ORACLE][RMSE] + 0.1
    assert scores[GAUSSIAN, MEAN][RMSE] > 1.5
