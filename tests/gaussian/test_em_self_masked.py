"""EM for Gaussians that hide themselves: never downhill, at a maximum, and back to what made the data."""

import itertools
import math

import numpy as np
import pytest
import torch
from tolerances import EXACT

from halfseen.data.incomplete import PIECE_BYTES, Incomplete
from halfseen.gaussian import em_self_masked
from halfseen.gaussian.distribution import Gaussian, plan_buckets
from halfseen.gaussian.em import EMSettings, fit_gaussian, pairwise_gaussian
from halfseen.gaussian.em_self_masked import OFFERED, fit_masked_gaussian, fit_self_masked
from halfseen.gaussian.mask_factors import GaussianMaskFactor, ProbitMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian

CORRELATED = torch.tensor([[1.0, 0.6, 0.3], [0.6, 1.0, 0.5], [0.3, 0.5, 1.0]], dtype=torch.float64)
BUMPS = torch.tensor([[1.0, 0.5, 1.0], [-0.5, -0.3, 2.0], [0.7, 0.2, 0.0]], dtype=torch.float64)
PROBITS = torch.tensor([[1.0, -0.5], [-0.8, -0.2], [2.0, -0.4]], dtype=torch.float64)
ALL = torch.ones(3, dtype=torch.bool)


def make_data(mask, n_rows, seed=0, poison=0.0):
    """Rows of a Gaussian of mean zero, with cells hidden by the mask."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n_rows, 3, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(CORRELATED).T
    uniform = torch.rand(n_rows, 3, generator=generator, dtype=torch.float64)
    observed = uniform < mask.log_observed(x).exp()
    return Incomplete(torch.where(observed, x, poison), observed)


def fit(batch, missingness, *, may_hide=ALL, weights=None, seed=0, **settings):
    return fit_masked_gaussian(
        batch,
        missingness,
        may_hide,
        EMSettings(**settings),
        generator=torch.Generator().manual_seed(seed),
        weights=weights,
    )


def standard_start():
    return Gaussian(torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))


def test_with_a_bump_no_plain_step_goes_down():
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 300)
    mask = GaussianMaskFactor(ALL, torch.zeros(3, 3, dtype=torch.float64))
    algorithm = em_self_masked._SelfMaskedEM(batch, mask, EMSettings(), None)
    model = SelfMaskedGaussian(standard_start(), mask)
    point, values = em_self_masked._Point(model, model.first_sites(batch)), []
    for _ in range(30):
        value, point = algorithm.step(point)
        values.append(value)
    assert (np.diff(values) >= -1e-12).all()
    assert values[-1] > values[0] + 0.1


@pytest.mark.parametrize("seed", range(3))
def test_with_a_bump_the_objective_never_falls(seed):
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 200, seed)
    objective = fit(batch, "self-masking-gaussian", tolerance=1e-8).objective
    assert len(objective) > 5
    assert (np.diff(objective) >= 0).all()


def test_the_objective_is_the_penalised_likelihood_of_the_result():
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 200)
    ascent = fit_self_masked(
        batch, standard_start(), GaussianMaskFactor(ALL, BUMPS), EMSettings(ridge=2.0, max_iterations=1)
    )
    start = SelfMaskedGaussian(standard_start(), GaussianMaskFactor(ALL, BUMPS))
    penalty = 0.5 * 2.0 * 3  # log det 0, trace 3
    assert ascent.objective[0] == pytest.approx((start.log_prob(batch).sum().item() - penalty) / 200)


def gradient_norm(model, batch, ridge):
    """The largest slope of the penalised likelihood per row, by finite differences of the density."""
    n_features = len(model.loc)

    def objective(loc, covariance, coefficients):
        gaussian = Gaussian(loc, covariance)
        mask = type(model.mask)(model.mask.active, coefficients)
        penalty = 0.5 * ridge * (gaussian.log_det + gaussian.precision.diagonal().sum())
        total = SelfMaskedGaussian(gaussian, mask).log_prob(batch).sum() + mask.log_prior() - penalty
        return total.item() / len(batch)

    point = (model.loc, model.covariance, model.mask.coefficients)
    moves = []
    for i in range(n_features):
        moves.append((torch.eye(n_features)[i], 0, 0))
        for j in range(i, n_features):
            both = torch.zeros(n_features, n_features)
            both[i, j] = both[j, i] = 1
            moves.append((0, both, 0))
        for j in range(model.mask.coefficients.shape[1]):
            one = torch.zeros_like(model.mask.coefficients)
            one[i, j] = 1
            moves.append((0, 0, one))
    slopes, step = [], 1e-5
    for move in moves:
        ends = [
            objective(*(p + sign * step * m for p, m in zip(point, move, strict=True))) for sign in (1, -1)
        ]
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return np.abs(slopes).max()


@pytest.mark.parametrize(
    "mask",
    [GaussianMaskFactor(ALL, BUMPS), pytest.param(ProbitMaskFactor(ALL, PROBITS), marks=pytest.mark.slow)],
    ids=["self-masking-gaussian", "self-masking-probit"],
)
def test_plain_steps_lead_to_a_maximum(mask, monkeypatch):
    """For a probit, of the likelihood that expectation propagation gives: where sites settle, it is exact."""
    batch, settings = make_data(mask, 1500), EMSettings(tolerance=1e-12, max_iterations=400)
    fast = fit_self_masked(batch, standard_start(), mask, settings)
    monkeypatch.setattr(em_self_masked._SelfMaskedEM, "extrapolate", lambda self, first, second, third: third)
    plain = fit_self_masked(batch, standard_start(), mask, settings)
    assert gradient_norm(plain.point, batch, ridge=1.0) < 1e-4
    assert gradient_norm(SelfMaskedGaussian(standard_start(), mask), batch, ridge=1.0) > 1e-2
    assert len(fast.objective) < len(plain.objective)
    assert fast.objective[-1] == pytest.approx(plain.objective[-1], abs=1e-4)


@pytest.mark.slow
def test_bumps_are_found_again():
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 40_000)
    model = fit(batch, "self-masking-gaussian", tolerance=1e-8, max_iterations=500).model
    truth = GaussianMaskFactor(ALL, BUMPS)
    np.testing.assert_allclose(model.mask.centre, truth.centre, atol=0.15)
    np.testing.assert_allclose(model.mask.precision, truth.precision, rtol=0.25)
    np.testing.assert_allclose(model.mask.height, truth.height, atol=0.05)
    np.testing.assert_allclose(model.loc, 0.0, atol=0.05)
    np.testing.assert_allclose(model.covariance, CORRELATED, atol=0.08)


@pytest.mark.slow
def test_probits_are_found_again():
    batch = make_data(ProbitMaskFactor(ALL, PROBITS), 40_000)
    model = fit(batch, "self-masking-probit", tolerance=1e-8, max_iterations=500).model
    np.testing.assert_allclose(model.mask.coefficients, PROBITS, atol=0.12)
    np.testing.assert_allclose(model.loc, 0.0, atol=0.05)
    np.testing.assert_allclose(model.covariance, CORRELATED, atol=0.08)
    ignorable = fit(batch, "mar").model
    assert ignorable.loc.abs().max() > 0.3


@pytest.mark.parametrize("missingness", OFFERED)
def test_a_weight_of_k_counts_as_k_rows(missingness):
    mask = (
        ProbitMaskFactor(ALL, PROBITS)
        if missingness == "self-masking-probit"
        else GaussianMaskFactor(ALL, BUMPS)
    )
    batch = make_data(mask, 120)
    weights = 1 + torch.arange(120) % 3
    repeated = batch[torch.arange(120).repeat_interleave(weights)]
    settings = EMSettings(max_iterations=8, tolerance=0.0)
    if missingness == "mar":
        keywords = {"generator": torch.Generator().manual_seed(0), "start": standard_start()}
        one = fit_gaussian(batch, settings, weights=weights.double(), **keywords)
        two = fit_gaussian(repeated, settings, **keywords)
        laws = one.gaussian, two.gaussian
    else:
        one = fit_self_masked(batch, standard_start(), mask, settings, weights=weights.double())
        two = fit_self_masked(repeated, standard_start(), mask, settings)
        laws = one.point, two.point
        torch.testing.assert_close(
            one.point.mask.coefficients, two.point.mask.coefficients, rtol=1e-8, atol=1e-8
        )
    np.testing.assert_allclose(one.objective, two.objective, rtol=EXACT)
    torch.testing.assert_close(laws[0].loc, laws[1].loc, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(laws[0].covariance, laws[1].covariance, rtol=1e-8, atol=1e-8)


def test_weights_change_the_fit():
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 120)
    weights = (1 + torch.arange(120) % 3).double()
    assert (
        fit(batch, "self-masking-gaussian", weights=weights).objective
        != fit(batch, "self-masking-gaussian").objective
    )


def test_the_statistics_of_a_gaussian_count_rows_by_their_weights():
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 60)
    observed = batch.observed.clone()
    observed[:5] = False
    batch = Incomplete(batch.x, observed)
    gaussian = pairwise_gaussian(batch, 1.0)
    weights = torch.arange(60) % 4
    repeated = batch[torch.arange(60).repeat_interleave(weights)]
    weighted = gaussian.statistics(batch, plan_buckets(observed), weights.double())
    expected = gaussian.statistics(repeated, plan_buckets(repeated.observed))
    torch.testing.assert_close(weighted.covariance, expected.covariance, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(weighted.log_prob, gaussian.log_prob(batch), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("missingness", OFFERED)
def test_values_under_the_mask_are_never_read(missingness):
    zero, nan = (
        fit(make_data(GaussianMaskFactor(ALL, BUMPS), 150, poison=p), missingness) for p in (0.0, math.nan)
    )
    assert zero.objective == nan.objective
    assert torch.equal(zero.model.loc, nan.model.loc)
    assert torch.equal(zero.model.covariance, nan.model.covariance)


@pytest.mark.parametrize("missingness", ["self-masking-gaussian", "self-masking-probit"])
def test_features_that_may_not_hide_stay_ignorable(missingness):
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 300)
    some = fit(batch, missingness, may_hide=torch.tensor([True, False, True])).model
    assert some.mask.active.tolist() == [True, False, True]
    none = fit(batch, missingness, may_hide=~ALL, tolerance=1e-9, max_iterations=1000)
    plain = fit(batch, "mar", tolerance=1e-9, max_iterations=1000)
    torch.testing.assert_close(none.model.covariance, plain.model.covariance, rtol=0, atol=1e-3)
    assert none.objective[-1] == pytest.approx(plain.objective[-1], abs=1e-6)


@pytest.mark.parametrize("missingness", ["self-masking-gaussian", "self-masking-probit"])
def test_features_with_too_few_cells_hidden_or_shown_stay_ignorable(missingness):
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 300)
    observed = batch.observed.clone()
    observed[:, 1], observed[:, 2] = True, False
    observed[:5, 1], observed[:5, 2] = False, True
    model = fit(Incomplete(batch.x, observed), missingness).model
    assert model.mask.active.tolist() == [True, False, False]
    assert model.covariance.isfinite().all()


@pytest.mark.parametrize("missingness", ["self-masking-gaussian", "self-masking-probit"])
def test_one_far_value_does_no_harm(missingness):
    batch = make_data(ProbitMaskFactor(ALL, PROBITS), 300)
    row = batch.observed[:, 0].nonzero()[0, 0]
    batch.x[row, 0] = 1e6
    result = fit(batch, missingness)
    assert np.isfinite(result.objective).all()
    assert result.model.conditional_mean(batch).isfinite().all()


def test_a_step_function_is_fitted_with_a_steep_slope():
    """Values above zero always hide: the prior keeps the slope finite."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 3, generator=generator, dtype=torch.float64) @ torch.linalg.cholesky(CORRELATED).T
    observed = torch.ones_like(x, dtype=torch.bool)
    observed[:, 0] = x[:, 0] < 0
    model = fit(Incomplete(x, observed), "self-masking-probit").model
    assert 5 < model.mask.coefficients[0, 0] < 100
    error = (model.conditional_mean(Incomplete(x, observed)) - x)[~observed].square().mean().sqrt()
    ignorable = fit(Incomplete(x, observed), "mar").model
    worse = (ignorable.conditional_mean(Incomplete(x, observed)) - x)[~observed].square().mean().sqrt()
    assert error < 0.7 * worse


@pytest.mark.parametrize(
    ("missingness", "mask"),
    [
        ("self-masking-gaussian", GaussianMaskFactor(ALL, BUMPS)),
        pytest.param("self-masking-probit", ProbitMaskFactor(ALL, PROBITS), marks=pytest.mark.slow),
    ],
)
def test_a_large_table_starts_from_a_part_of_it(missingness, mask, monkeypatch):
    batch = make_data(mask, 1200)
    cold = fit(batch, missingness, tolerance=1e-10, max_iterations=2000)
    monkeypatch.setattr(em_self_masked, "WARM_UP_ROWS", 300)
    sizes = []
    monkeypatch.setattr(
        em_self_masked,
        "fit_self_masked",
        lambda b, *a, **k: sizes.append(len(b)) or fit_self_masked(b, *a, **k),
    )
    warm = fit(batch, missingness, tolerance=1e-10, max_iterations=2000)
    assert sizes[-2:] == [300, 1200]
    assert warm.objective[-1] == pytest.approx(cold.objective[-1], abs=1e-4)


@pytest.mark.parametrize("missingness", ["self-masking-gaussian", "self-masking-probit"])
def test_a_mask_is_fitted_to_some_rows_of_a_table_with_very_many_cells(missingness, monkeypatch):
    monkeypatch.setattr(em_self_masked, "WARM_UP_ROWS", 20)
    monkeypatch.setattr(em_self_masked, "MOST_CELLS", 300)
    sizes, usual = [], em_self_masked._SelfMaskedEM.__init__

    def remembered(self, batch, mask, settings, weights):
        assert len(weights) == len(batch)
        sizes.append(len(batch))
        usual(self, batch, mask, settings, weights)

    monkeypatch.setattr(em_self_masked._SelfMaskedEM, "__init__", remembered)
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    batch = Incomplete(x, x < 0.5)
    settings = EMSettings(ridge=1.0, max_iterations=3, tolerance=1e-4)
    fit_masked_gaussian(
        batch,
        missingness,
        torch.ones(3, dtype=torch.bool),
        settings,
        generator=torch.Generator().manual_seed(0),
        weights=torch.ones(400, dtype=torch.float64),
    )
    assert max(sizes) == 100  # a third of the cells that are allowed, as there are three features


def test_what_is_no_missingness_is_refused():
    message = "missingness must be one of 'mar', 'self-masking-probit', 'self-masking-gaussian', got 'mnar'"
    with pytest.raises(ValueError, match=message):
        fit(make_data(GaussianMaskFactor(ALL, BUMPS), 30), "mnar")


@pytest.mark.parametrize("missingness", ["self-masking-gaussian", "self-masking-probit"])
def test_dependent_columns_without_ridge_are_explained(missingness):
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 200)
    same = Incomplete(batch.x[:, [0, 0, 1]], batch.observed[:, [0, 0, 1]])
    with pytest.raises(ValueError, match=r"singular with ridge=0: .* Increase the parameter ridge"):
        fit(same, missingness, ridge=0.0)


def test_the_same_generator_gives_the_same_fit():
    batch = make_data(GaussianMaskFactor(ALL, BUMPS), 200)
    fits = [fit(batch, "self-masking-gaussian", seed=s) for s in (1, 1)]
    for one, two in itertools.pairwise(fits):
        assert one.objective == two.objective
        assert torch.equal(one.model.mask.coefficients, two.model.mask.coefficients)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_side_that_is_cut_off_is_found_though_no_other_feature_is_informative(side, seed):
    """Values beyond half a standard deviation are missing; their mean is that of a truncated normal.

    With 2,000 rows the maximum is within 0.1 of it; a start without a slope stays at the mean of the rest.
    """
    x = np.random.default_rng(seed).normal(size=(2000, 3))
    hidden = side * x[:, 0] > 0.5
    batch = Incomplete.from_array(np.where(np.arange(3) == 0, np.where(hidden, np.nan, x.T[0])[:, None], x))
    generator = torch.Generator().manual_seed(0)
    every = torch.ones(3, dtype=torch.bool)
    fit = fit_masked_gaussian(batch, "self-masking-probit", every, EMSettings(), generator=generator)
    expected = side * math.exp(-(0.5**2) / 2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(0.5 / math.sqrt(2)))
    filled = fit.model.conditional_mean(batch)[torch.from_numpy(hidden), 0]
    assert float(filled.mean()) == pytest.approx(expected, abs=0.1)


def test_steep_starts_are_tried_only_for_skewed_features():
    x = np.random.default_rng(0).normal(size=(2000, 3))
    hidden = np.random.default_rng(1).random(x.shape) < 0.3
    hidden[:, 2] = x[:, 2] < -0.5
    batch = Incomplete.from_array(np.where(hidden, np.nan, x))
    flat, *steep = em_self_masked._probits(batch, torch.ones(3, dtype=torch.bool))
    assert (flat.coefficients[:, 0] == 0).all()
    assert [mask.coefficients[:, 0].tolist() for mask in steep] == [[0, 0, -1], [0, 0, -4]]
    for mask in (flat, *steep):  # of a standard normal, the rate is that of the column
        slope, intercept = mask.coefficients.T
        rate = torch.special.ndtr(intercept / (1 + slope**2).sqrt())
        torch.testing.assert_close(rate, torch.from_numpy(hidden.mean(axis=0)), rtol=EXACT, atol=EXACT)
    inactive = torch.tensor([True, True, False])
    assert len(em_self_masked._probits(batch, inactive)) == 1


@pytest.mark.parametrize(
    "mask", [GaussianMaskFactor(ALL, BUMPS), ProbitMaskFactor(ALL, PROBITS)], ids=["bump", "probit"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_by_parts_of_rows_and_features_is_the_step_of_all_together(mask, weighted, monkeypatch):
    batch = make_data(mask, 100)
    weights = torch.linspace(0.5, 2.0, 100, dtype=torch.float64) if weighted else None
    model = SelfMaskedGaussian(standard_start(), mask)
    point = em_self_masked._Point(model, model.first_sites(batch))
    value, whole = em_self_masked._SelfMaskedEM(batch, mask, EMSettings(), weights).step(point)
    monkeypatch.setattr(em_self_masked, "COPIES", PIECE_BYTES // 800)  # room for a hundred numbers at once
    algorithm = em_self_masked._SelfMaskedEM(batch, mask, EMSettings(), weights)
    assert len(algorithm.parts) == 4
    assert len(algorithm.columns) == 3
    other, parts = algorithm.step(point)
    assert other == pytest.approx(value, rel=1e-12)
    for one, two in (
        (whole.model.gaussian.covariance, parts.model.gaussian.covariance),
        (whole.model.mask.coefficients, parts.model.mask.coefficients),
        (whole.sites.linear, parts.sites.linear),
    ):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
