"""ChainedImputer: roles of columns, predictors, diagnostics, and coverage of pooled intervals."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from tolerances import FAILURE_RATE

import halfseen
from halfseen.chained.imputer import ChainedImputer, ChainTrace
from halfseen.chained.inputs import Role


def _table(seed, n_rows, n_levels=3):
    """A covariate with levels is missing through the outcome, a normal one completely at random."""
    rng = np.random.default_rng(seed)
    effects = np.array([0.0, 1.0, 2.5])[:n_levels]
    level, z = rng.integers(n_levels, size=n_rows), rng.normal(size=n_rows)
    y = effects[level] + 0.5 * z + rng.normal(size=n_rows)
    table = pd.DataFrame({"y": y, "g": np.array(list("abc"))[level], "z": z})
    table.loc[rng.random(n_rows) < 0.6 / (1 + np.exp(1.5 - 1.5 * y)), "g"] = None
    table.loc[rng.random(n_rows) < 0.1, "z"] = np.nan
    return table, np.append(effects, 0.5)


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5))
    x[:, 1:] += x[:, :1]
    table = pd.DataFrame({
        "number": x[:, 0],
        "skewed": np.exp(x[:, 1]),
        "grade": pd.Categorical.from_codes(np.digitize(x[:, 2], [-1, 0, 1]), list("dcba"), ordered=True),
        "few": np.digitize(x[:, 3], [-1, 1]) + 1,
        "level": np.where(x[:, 4] > 0, "yes", "no"),
    })  # fmt: skip
    return table.mask(rng.random(table.shape) < 0.2)


@pytest.fixture(scope="module")
def fitted(mixed):
    return ChainedImputer(n_chains=4, random_state=0).fit(mixed)


def test_each_column_has_the_regression_of_its_kind(fitted):
    roles = [column.role for column in fitted.model_.inputs.columns]
    assert roles == [Role.NUMBER, Role.NUMBER, Role.ORDERED, Role.ORDERED, Role.LEVELS]


def test_skewed_numbers_predict_by_their_values_as_well_as_by_their_scores(fitted):
    columns = fitted.model_.inputs.columns
    assert [column.with_value for column in columns[:2]] == [False, True]


def test_a_regression_does_not_use_its_own_column(fitted):
    for equation in fitted.model_.equations:
        own = set(range(equation.column.start, equation.column.stop))
        assert not own & set(equation.inputs.tolist())


def test_predictors_limit_the_columns_of_a_regression(mixed):
    imputer = ChainedImputer(n_chains=2, predictors={"skewed": ["number"]}, random_state=0).fit(mixed)
    number, skewed = imputer.model_.inputs.columns[:2]
    equation = imputer.model_.equations[skewed.position]
    assert equation.inputs.tolist() == [0, *range(number.start, number.stop)]


@pytest.mark.parametrize(
    ("predictors", "message"),
    [
        ({"skewed": "number"}, "The predictors of column 'skewed' must be a list of names, got 'number'"),
        ({"skewed": ["weight"]}, "predictors refers to column 'weight', which is not in the table"),
        (["number"], "predictors must be a dict of lists of column names"),
    ],
)
def test_wrong_predictors_are_named(mixed, predictors, message):
    with pytest.raises(ValueError, match=message):
        ChainedImputer(predictors=predictors).fit(mixed)


@pytest.mark.parametrize("name", ["n_chains", "n_cycles", "max_predictors", "max_rows"])
def test_wrong_numbers_are_named(mixed, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        ChainedImputer(**{name: 0}).fit(mixed)


def test_the_trace_has_every_cycle_and_chain_of_the_incomplete_columns(fitted, mixed):
    assert fitted.trace_.mean.shape == (5, 4, 5)
    assert list(fitted.r_hat_) == list(mixed.columns)


def test_more_draws_than_chains_are_a_reservation(fitted, mixed):
    assert fitted.sample(mixed, n_draws=4).reservations == ()
    (sentence,) = fitted.sample(mixed, n_draws=5).reservations
    assert "5 draws share 4 draws of the parameters; fit with n_chains=5" in sentence


def test_r_hat_tells_chains_apart_that_differ():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(200, 8, 2))
    mean[:, :, 1] += 3 * np.arange(8)
    found = ChainTrace(("same", "apart"), mean, mean).r_hat()
    assert found["same"] == pytest.approx(1.0, abs=0.02)
    assert found["apart"] > 5


def test_a_single_missing_cell_is_drawn_from_its_regression():
    """A Kolmogorov-Smirnov test of 2,000 draws at the parameters of one chain."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    x[:, 1] += x[:, 0]
    x[:50, 1] = np.nan
    imputer = ChainedImputer(n_chains=1, random_state=0).fit(x)
    drawn = imputer.sample(np.tile([[0.7, np.nan]], (2000, 1)))[0, :, 1]
    model = imputer.model_
    inputs, features = model.inputs, model.inputs.features
    row = inputs.encode(inputs.columns[0], torch.tensor([0.7], dtype=torch.float64)).reshape(-1)
    constant, slope = model.parameters[1].coefficients[0].tolist()
    loc, scale = features.scaler.loc[1].item(), features.scaler.scale[1].item()
    mean = (constant + slope * float(row[0])) * scale + loc
    deviation = float(model.parameters[1].scale[0]) * scale
    assert stats.kstest(drawn, stats.norm(mean, deviation).cdf).pvalue > FAILURE_RATE


def test_levels_missing_through_the_outcome_leave_coefficients_unbiased():
    """Twelve tables of 1,000 rows; the joint Gaussian has a bias of -.16, five standard errors of the mean.

    A t test of each of four means; all pass with probability 1 - 4e-5.
    """
    errors = []
    for seed in range(12):
        table, true = _table(seed, 1000)
        draws = ChainedImputer(n_chains=5, random_state=seed).fit(table).sample(table, n_draws=5)
        errors.append(halfseen.pool("y ~ C(g) + z", draws).estimate - true)
    assert (stats.ttest_1samp(errors, 0.0).pvalue > FAILURE_RATE).all()
    assert np.abs(np.mean(errors, axis=0)).max() < 0.12


@pytest.mark.slow
@pytest.mark.parametrize("n_levels", [2, 3])
@pytest.mark.parametrize("n_rows", [300, 1000, 4000])
def test_pooled_intervals_of_levels_cover(n_rows, n_levels):
    """100 tables: the number of 95% intervals that cover is binomial; too few with probability 1e-5."""
    covered = []
    for seed in range(100):
        table, true = _table(1000 + seed, n_rows, n_levels)
        draws = ChainedImputer(n_chains=10, random_state=seed).fit(table).sample(table, n_draws=10)
        low, high = halfseen.pool("y ~ C(g) + z", draws).interval(0.95)
        covered.append((low <= true) & (true <= high))
    assert np.sum(covered, axis=0).min() >= stats.binom(100, 0.95).ppf(1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x, None),
        (lambda x: x.assign(b=np.where(x["b"] > 0, "high", "low")), "column 'b' has levels"),
        (lambda x: x.assign(b=np.exp(x["b"])), "column 'b' is skewed"),
        (lambda x: x.assign(b=x["b"].round().clip(-2, 2).astype(int)), "column 'b' has few distinct values"),
        (lambda x: x.assign(b=x["b"].where(x["b"].abs() > 0.3, 0.0)), "column 'b' has a frequent value"),
        (lambda x: x[:50], "there are only 50 rows for 3 columns"),
    ],
)
def test_draws_for_pooling_are_chained_unless_a_joint_gaussian_will_do(change, reason):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=list("abc"))
    table.loc[:20, "a"] = np.nan
    imputer = halfseen.multiple_imputation(change(table), n_draws=2, random_state=0).imputer
    expected = "GaussianImputer" if reason is None else "ChainedImputer"
    assert type(imputer.members_[0]).__name__ == expected
    assert (reason or "all columns are nearly normal") in imputer.reason_


def test_a_saved_model_of_skewed_columns_gives_the_same_answers(tmp_path):
    rng = np.random.default_rng(0)
    income = rng.lognormal(1, 1, 150)
    table = pd.DataFrame({"income": income, "spent": 0.8 * income + 0.1 * rng.normal(size=150)})
    table = table.mask(rng.random(table.shape) < 0.2)
    model = ChainedImputer(2, random_state=0).fit(table)
    start, margins = model.model_.start.features, model.model_.margins[0]
    assert not torch.equal(start.scaler.loc, margins.scaler.loc)  # columns that depend linearly on each other
    model.save(tmp_path / "model.half")
    same = halfseen.load(tmp_path / "model.half")
    pd.testing.assert_frame_equal(same.transform(table), model.transform(table))
    for one, other in zip(same.sample(table, n_draws=2), model.sample(table, n_draws=2), strict=True):
        pd.testing.assert_frame_equal(one, other)
