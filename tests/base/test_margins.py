"""The Gaussian copula of `GaussianImputer`: skewed and discrete columns keep their distribution."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats

from halfseen import GaussianImputer, HalfseenWarning, load
from halfseen._random import row_keys
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import Margin
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.tabular import with_room_for_noise

MARGINS = {
    "log-normal": lambda u: np.exp(1 + stats.norm.ppf(u)),
    "exponential": stats.expon.ppf,
    "counts": lambda u: stats.poisson.ppf(u, 2),
    "zero-inflated": lambda u: np.where(u < 0.4, 0.0, stats.expon.ppf((u - 0.4).clip(0) / 0.6)),
}


def correlated(name, n_rows=1000, seed=0, rate=0.3):
    """A column of some shape and three Gaussian ones, all correlated at 0.6; the first has missing cells."""
    rng = np.random.default_rng(seed)
    scores = rng.multivariate_normal(np.zeros(4), 0.6 + 0.4 * np.eye(4), size=n_rows)
    complete = scores.copy()
    complete[:, 0] = MARGINS[name](stats.norm.cdf(scores[:, 0]))
    hidden = rng.random(n_rows) < rate
    table = complete.copy()
    table[hidden, 0] = np.nan
    return complete, table, hidden


@pytest.mark.parametrize("name", MARGINS)
def test_draws_have_the_mean_and_median_of_the_column(name):
    complete, table, hidden = correlated(name, n_rows=2000)
    drawn = GaussianImputer(random_state=0).fit(table).sample(table, n_draws=20)[:, hidden, 0]
    truth = complete[hidden, 0]
    assert drawn.mean() == pytest.approx(truth.mean(), rel=0.08)
    assert np.median(drawn) == pytest.approx(np.median(truth), rel=0.1, abs=0.05)
    assert (drawn == 0).mean() == pytest.approx((truth == 0).mean(), abs=0.04)


@pytest.mark.parametrize("name", MARGINS)
def test_draws_keep_the_correlation_of_scores_with_other_columns(name):
    complete, table, hidden = correlated(name, n_rows=2000)
    drawn = GaussianImputer(random_state=0).fit(table).sample(table, n_draws=5)
    found = np.mean([stats.spearmanr(draw[hidden, 0], draw[hidden, 1]).statistic for draw in drawn])
    assert found == pytest.approx(stats.spearmanr(complete[:, 0], complete[:, 1]).statistic, abs=0.06)


def test_gaussian_margins_are_the_model_without_margins_exactly():
    rng = np.random.default_rng(0)
    table = rng.multivariate_normal(np.zeros(3), 0.5 + 0.5 * np.eye(3), size=500)
    table[rng.random(table.shape) < 0.2] = np.nan
    auto, plain = (GaussianImputer(margins=m, random_state=0).fit(table) for m in ("auto", "gaussian"))
    assert not auto.model_.features.transformed()  # normal columns stay as they are
    np.testing.assert_allclose(auto.transform(table), plain.transform(table), rtol=1e-10)
    np.testing.assert_allclose(auto.score_samples(table), plain.score_samples(table), rtol=1e-10)


@pytest.mark.parametrize("name", ["log-normal", "exponential"])
def test_the_density_of_a_skewed_number_integrates_to_that_of_the_rest(name):
    _, table, hidden = correlated(name)
    imputer = GaussianImputer(random_state=0).fit(table)
    row = table[~hidden][0]
    logs = np.linspace(-25, 12, 40_001)
    rows = np.tile(row, (len(logs), 1))
    rows[:, 0] = np.exp(logs)
    total = integrate.trapezoid(np.exp(imputer.score_samples(rows) + logs), logs)
    row[0] = np.nan
    assert np.log(total) == pytest.approx(imputer.score_samples([row])[0], abs=2e-3)


def test_the_probabilities_of_counts_sum_to_one():
    _, table, hidden = correlated("counts")
    imputer = GaussianImputer(random_state=0).fit(table)
    rows = np.tile(table[~hidden][0], (40, 1))
    rows[:, 0] = np.arange(40)
    total = np.exp(imputer.score_samples(rows)).sum()
    rows[0, 0] = np.nan
    assert np.log(total) == pytest.approx(imputer.score_samples(rows[:1])[0], abs=1e-6)


def test_an_atom_and_the_numbers_beside_it_have_total_probability_one():
    _, table, hidden = correlated("zero-inflated")
    imputer = GaussianImputer(random_state=0).fit(table)
    grid = np.concatenate([-np.geomspace(50, 1e-9, 4000), np.geomspace(1e-12, 50, 40_001)])
    rows = np.tile(table[~hidden][0], (len(grid) + 1, 1))
    rows[:, 0] = [0.0, *grid]
    scores = np.exp(imputer.score_samples(rows))
    total = scores[0] + integrate.trapezoid(scores[4001:], grid[4000:])
    rows[0, 0] = np.nan
    assert np.log(total) == pytest.approx(imputer.score_samples(rows[:1])[0], abs=5e-3)


def test_draws_are_as_wide_as_quantiles_where_other_columns_nearly_determine_a_value():
    """10,000 draws: the standard error of their standard deviation is .007. It was .74 before.

    Scores of a number that is mostly 0 have a minimum variance, which is larger here than that given the
    other columns.
    """
    rng = np.random.default_rng(0)
    score = rng.normal(size=600)
    table = np.stack(
        [np.floor(2 * (score - 0.7)).clip(0), score > 0.7, score + 0.05 * rng.normal(size=600)], 1
    )
    table[:200, 0] = np.nan
    imputer = GaussianImputer(random_state=0, schema={0: {"kind": "continuous"}}).fit(table)
    model, codes = imputer.model_, Incomplete.from_array(table[:200])
    batch = model.features.encode(codes)
    mean, variance = model.scores(batch)
    assert (model.gaussian.moments(batch)[1] - model.features.noise() < 0.8 * variance)[:, 0].all()
    keys = row_keys(table[:200], 0)
    drawn = model.complete_scores(batch.x, batch.observed, keys, range(50))
    assert ((drawn - mean) / variance.sqrt())[..., 0].std() == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("name", MARGINS)
def test_transform_is_the_mean_of_many_draws(name):
    _, table, hidden = correlated(name)
    imputer = GaussianImputer(random_state=0, schema={0: {"kind": "continuous", "integer": False}}).fit(table)
    rows = np.repeat(table[hidden][:2], 4000, axis=0)
    drawn = imputer.sample(rows)[0].reshape(2, 4000, 4)[:, :, 0]
    error = drawn.std(axis=1) / np.sqrt(4000)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=1) - imputer.transform(rows)[::4000, 0]), 4.5 * error)


@pytest.mark.parametrize("name", MARGINS)
def test_intervals_cover_at_their_level_also_for_values_with_probabilities(name):
    covered = []
    for seed in range(4):
        complete, table, hidden = correlated(name, seed=seed)
        low, high = GaussianImputer(random_state=0).fit(table).interval(table, level=0.9)
        inside = (low[hidden, 0] <= complete[hidden, 0]) & (complete[hidden, 0] <= high[hidden, 0])
        covered.append(inside.mean())
    assert 0.87 < np.mean(covered) < 0.93  # counts had 0.97, zero-inflated numbers 0.95


def test_margins_are_saved_and_loaded(tmp_path):
    _, table, _ = correlated("zero-inflated")
    imputer = GaussianImputer(random_state=0, n_posterior_draws=3).fit(table)
    imputer.save(tmp_path / "model.halfseen")
    again = load(tmp_path / "model.halfseen")
    np.testing.assert_array_equal(again.interval(table), imputer.interval(table))
    np.testing.assert_array_equal(again.transform(table), imputer.transform(table))
    np.testing.assert_array_equal(again.sample(table, 3), imputer.sample(table, 3))
    np.testing.assert_array_equal(again.score_samples(table), imputer.score_samples(table))


@pytest.mark.parametrize("name", ["exponential", "counts"])
def test_posterior_draws_have_margins_of_their_own(name):
    _, table, _ = correlated(name, n_rows=600)
    imputer = GaussianImputer(n_posterior_draws=4, random_state=0).fit(table)
    far = {
        float(draw.features.margins[0].score(torch.tensor(3.0, dtype=torch.float64)))
        for draw in imputer.model_.posterior
    }
    assert len(far) == 4


def test_fitting_encodes_the_table_once_and_means_are_those_of_missing_cells_alone(monkeypatch):
    _, table, hidden = correlated("exponential", n_rows=300)
    encoded, asked = [], []
    indicate, mean = FeatureMap._indicate, Margin.mean
    monkeypatch.setattr(FeatureMap, "_indicate", lambda *a: encoded.append(0) or indicate(*a))
    monkeypatch.setattr(Margin, "mean", lambda self, *a: asked.append(len(a[0])) or mean(self, *a))
    imputer = GaussianImputer(random_state=0).fit(table)
    assert len(encoded) == 1  # margins change columns of what was encoded
    imputer.transform(table)
    assert sum(asked) == hidden.sum()


def test_a_self_masking_model_has_gaussian_margins():
    _, table, _ = correlated("log-normal")
    imputer = GaussianImputer(missingness="self-masking-probit", random_state=0, max_iter=3).fit(table)
    assert not imputer.model_.features.transformed()


def test_columns_whose_outliers_depend_on_each_other_linearly_keep_their_values():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, 2))
    wild = rng.standard_t(1.5, size=2000)
    table = np.column_stack([wild + 0.3 * noise[:, 0], wild + 0.3 * noise[:, 1]])
    imputer = GaussianImputer(random_state=0).fit(table)
    assert not imputer.model_.features.transformed()


def test_a_margin_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="margins must be one of auto, gaussian, got 'cubic'"):
        GaussianImputer(margins="cubic").fit([[1.0], [2.0]])


@pytest.mark.parametrize("n_posterior_draws", [0, 3])
@pytest.mark.parametrize("correlation", [0.999, 0.99999, 0.9999999])
@pytest.mark.parametrize("with_ratings", [False, True])
def test_draws_of_a_near_copy_have_the_residual_spread_of_the_column(
    correlation, with_ratings, n_posterior_draws
):
    """A column of ratings has noise about its scores, which must not widen the other columns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    spread = np.sqrt(1 / correlation**2 - 1)
    y = x + spread * rng.normal(size=1000)
    columns = [x, np.where(rng.random(1000) < 0.3, np.nan, y)]
    if with_ratings:
        columns.append(np.clip(np.round(3 + 0.8 * rng.normal(size=1000) + 0.5 * x), 1, 5))
    table = np.column_stack(columns)
    imputer = GaussianImputer(n_posterior_draws=n_posterior_draws, random_state=0).fit(table)
    missing = np.isnan(table[:, 1])
    residual = imputer.sample(table, 3)[:, missing, 1] - x[missing]
    low, high = imputer.interval(table, 0.9)
    assert residual.std() == pytest.approx(spread, rel=0.1)
    width = np.mean((high - low)[missing, 1]) / (2 * stats.norm.ppf(0.95))
    assert width == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize(("centre", "spread"), [(1e9, 1e-3), (-1e6, 1e-8), (1e9, 1e-5)])
def test_a_column_with_a_tiny_spread_about_a_large_value_is_imputed_like_any_other(centre, spread):
    rng = np.random.default_rng(0)
    z = rng.normal(size=400)
    table = np.column_stack([z + 0.5 * rng.normal(size=400), centre + spread * z])
    missing = rng.random(400) < 0.3
    table[missing, 1] = np.nan
    imputer = GaussianImputer(random_state=0).fit(table)
    draws = (imputer.sample(table, 3)[:, missing, 1] - centre) / spread
    assert draws.std() == pytest.approx(1, abs=0.15)
    assert np.corrcoef((imputer.transform(table)[missing, 1] - centre) / spread, z[missing])[0, 1] > 0.8


@pytest.mark.parametrize("first", [2**52, 2**53 + 10, 10**17])
@pytest.mark.parametrize("n_values", [3, 20, 200])
def test_whole_numbers_that_floats_hardly_distinguish_are_imputed_by_their_like(first, n_values):
    """Thresholds between such numbers would coincide."""
    rng = np.random.default_rng(0)
    numbers = first + 8 * (first > 2**53) * rng.integers(0, n_values, 300) + rng.integers(0, n_values, 300)
    frame = pd.DataFrame({"n": pd.array(numbers, dtype="Int64"), "x": rng.normal(size=300)})
    frame.loc[::5, "n"] = pd.NA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)  # of numbers that cannot be distinguished
        imputer = GaussianImputer(n_posterior_draws=2, random_state=0).fit(frame)
    low, high = frame["n"].min(), frame["n"].max()
    for completed in (imputer.transform(frame), *imputer.sample(frame, 2), *imputer.interval(frame)):
        assert completed["n"].between(low - (high - low), high + (high - low)).all()


def test_scores_keep_some_variance_where_features_with_noise_are_copies_of_each_other():
    """What is left of the variance of a count, given its copies, is much less than its noise."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.poisson(0.7, size=(300, 3)), rng.normal(size=(300, 2))])
    features = GaussianImputer(random_state=0).fit(table).model_.features
    noise = features.noise()
    assert (noise > 0).tolist() == [True] * 3 + [False] * 2
    covariance = torch.full((5, 5), 1 - 1e-10, dtype=torch.float64)
    covariance.diagonal().fill_(1.0)
    roomy = with_room_for_noise(
        Gaussian(torch.zeros(5, dtype=torch.float64), covariance), features
    ).covariance
    assert torch.linalg.cholesky_ex(roomy - noise.diag()).info == 0
    assert torch.equal(roomy[:, 3:], covariance[:, 3:])
    given_others = torch.linalg.inv(torch.linalg.inv(roomy - noise.diag())[:3, :3])
    assert torch.linalg.eigvalsh(given_others).min() > 5e-4
