"""Draws that are compatible with an analysis: its formula, its densities, and unbiased interactions."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

import halfseen
from halfseen.chained.analysis import CompatibleModel, OutcomeDraw, Response
from halfseen.chained.formula import SubstantiveModel
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.inputs import decode_scores
from halfseen.chained.regressions import Noise, PoissonModel, find_mode
from halfseen.data.columns import Column


def _number(name, **settings):
    return Column(name, "continuous", "float64", "number", **settings)


COLUMNS = [
    _number("y"),
    _number("x"),
    Column("g", "categorical", "object", "label", levels=("a", "b", "c")),
    _number("my z"),
    Column("yes", "binary", "object", "label", levels=("no", "yes")),
    Column("n", "count", "int64", "number", integer=True, observed_low=0.0, codes=(0.0, 1.0, 2.0)),
]
CELLS = torch.tensor([[9, 9], [2, 3], [1, 2], [5, 7], [0, 1], [1, 2]], dtype=torch.float64).unbind()


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ x", [[1, 2], [1, 3]]),
        ("y ~ x * `my z`", [[1, 2, 5, 10], [1, 3, 7, 21]]),
        ("y ~ x:g", [[1, 2, 0], [1, 0, 3]]),
        ("y ~ C(g) * x", [[1, 1, 0, 2, 2, 0], [1, 0, 1, 3, 0, 3]]),
        ("y ~ I(x ** 2 + 1) + log(x)", [[1, 5, np.log(2)], [1, 10, np.log(3)]]),
        ("y ~ np.log(x) + I(numpy.sqrt(x))", [[1, np.log(2), 2**0.5], [1, np.log(3), 3**0.5]]),
        ("y ~ 1 + x + x * x:g", [[1, 2, 2, 0], [1, 3, 0, 3]]),  # a column interacts with itself once
        ("y ~ C(n)", [[1, 1, 0], [1, 0, 1]]),
        ("yes ~ n", [[1, 1], [1, 2]]),
        ("Surv(y, yes) ~ x:`my z`", [[1, 10], [1, 21]]),
    ],
)
def test_a_formula_is_the_design_matrix_of_its_terms(formula, expected):
    design = SubstantiveModel.parse(formula, COLUMNS).design(CELLS)
    columns = np.array(expected, dtype=float).T.tolist()
    assert sorted(design.T.tolist()) == sorted(columns)  # in any order


@pytest.mark.parametrize(
    ("formula", "family", "message"),
    [
        ("x + g", "auto", "has no outcome before a ~"),
        ("y ~ w", "auto", "refers to 'w'"),
        ("q ~ x", "auto", "refers to 'q', which is not a modelled column"),
        ("y ~ y * x", "auto", "has its outcome on both sides"),
        ("y ~ x ** 2", "auto", r"has the term 'x \*\* 2', which cannot be read"),
        ("y ~ 1", "auto", "has no covariate"),
        ("y ~ I(g ** 2)", "auto", "computes with 'g', which has levels"),
        ("y ~ C(x)", "auto", "column 'x' has too many values for levels"),
        ("g ~ x", "auto", "The outcome 'g' .* has 3 levels"),
        ("y ~ x", "logistic", "The outcome 'y' of a logistic analysis must have two levels"),
        ("y ~ x", "poisson", "The outcome 'y' of a Poisson analysis must be counts"),
        ("y ~ x", "probit", "family must be one of auto, linear, logistic, poisson, cox, got 'probit'"),
        ("y ~ x", "cox", r"outcome of a Cox model is Surv\(time, event\), got 'y'"),
        ("Surv(y, yes) ~ x", "linear", "is a Cox model, which family='linear' contradicts"),
        ("Surv(y, g) ~ x", "auto", "event 'g' .* must have two levels"),
        ("Surv(g, yes) ~ x", "auto", "times 'g' .* must be numbers"),
        ("Surv(y, yes) ~ x * yes", "auto", "has its outcome on both sides"),
        ("Surv(q, yes) ~ x", "auto", "refers to 'q'"),
        ("y ~ I(__import__('os'))", "auto", "The formula"),
        ("y ~ np.tan(x)", "auto", "has a call of 'np.tan' that is not available"),
    ],
)
def test_an_analysis_that_cannot_be_read_is_explained(formula, family, message):
    with pytest.raises(ValueError, match=message):
        SubstantiveModel.parse(formula, COLUMNS, family)


def test_derivatives_of_the_poisson_posterior_are_those_of_automatic_differentiation(generator):
    z = torch.randn(2, 50, 3, generator=generator, dtype=torch.float64)
    counts = torch.poisson(z[..., 1].exp(), generator=generator)
    model = PoissonModel(counts, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
    at = (model.start().expand(2, -1) + 0.1).clone().requires_grad_()
    (slope,) = torch.autograd.grad(model.log_density(z, at).sum(), at, create_graph=True)
    found, mean = model.gradient(z, at)
    torch.testing.assert_close(found, slope, atol=EXACT, rtol=EXACT)
    rows = [torch.autograd.grad(slope[:, q].sum(), at, retain_graph=True)[0] for q in range(3)]
    torch.testing.assert_close(model.precision(z, mean), -torch.stack(rows, dim=1), atol=EXACT, rtol=EXACT)
    assert model.gradient(z, find_mode(model, z))[0].abs().max() < 1e-6


@pytest.mark.parametrize(
    ("family", "density"),
    [
        ("linear", lambda y, eta: stats.norm(eta, 0.7).logpdf(y)),
        ("poisson", lambda y, eta: stats.poisson(np.exp(eta)).logpmf(y)),
        ("logistic", lambda y, eta: stats.bernoulli(1 / (1 + np.exp(-eta))).logpmf(y)),
    ],
)
def test_the_density_of_the_outcome_is_that_of_scipy_up_to_a_constant_of_the_row(family, density):
    outcome = {"linear": "y", "poisson": "n", "logistic": "yes"}[family]
    analysis = SubstantiveModel.parse(f"{outcome} ~ x", COLUMNS, family)
    model = CompatibleModel(analysis, COLUMNS, None, (torch.zeros(2), torch.ones(2)))
    drawn = OutcomeDraw(
        torch.zeros(1, 2), torch.tensor([0.7], dtype=torch.float64), torch.zeros(2), torch.ones(2)
    )
    eta = torch.tensor([[[-1.0, 0.5, 2.0]]], dtype=torch.float64)
    y = torch.tensor([[[1.0]]], dtype=torch.float64)
    difference = model.log_density(Response(y), eta, drawn)[0, 0].numpy() - density(1.0, eta[0, 0].numpy())
    np.testing.assert_allclose(difference, difference[0], atol=EXACT)


def _interaction(seed, n_rows=300):
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n_rows))
    y = x + z + 0.6 * x * z + rng.normal(size=n_rows)
    table = pd.DataFrame({"y": y, "x": x, "z": z})
    table.loc[rng.random(n_rows) < 0.6 / (1 + np.exp(0.6 - 0.8 * y)), "x"] = np.nan
    return table


def test_interactions_are_unbiased_if_the_imputation_knows_the_analysis():
    """16 tables. Main effects alone give a bias of -.12, about eight standard errors of the mean."""
    formula, found = "y ~ x * z", []
    for seed in range(16):
        table = _interaction(seed)
        tables = halfseen.multiple_imputation(table, n_draws=5, analysis=formula, random_state=seed)
        found.append(halfseen.pool(formula, tables).estimate)  # without a warning
    assert (stats.ttest_1samp(np.array(found) - [0, 1, 1, 0.6], 0.0).pvalue > FAILURE_RATE).all()
    assert abs(np.mean(found, axis=0)[-1] - 0.6) < 0.06


@pytest.mark.parametrize(("y_given", "reach"), [(1.5, 0.2), (12.0, 0.5)])
def test_a_number_is_drawn_from_its_density_given_the_outcome(y_given, reach):
    """The distribution of x given y under a quadratic analysis, by draws and on a grid.

    The second outcome is that of values more than three standard deviations from the mean.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=800)
    y = x**2 + 0.5 * rng.normal(size=800)
    table = pd.DataFrame({"y": y, "x": x})
    table.loc[:200, "x"] = np.nan
    imputer = ChainedImputer(1, analysis="y ~ x + I(x ** 2)", random_state=0).fit(table)
    model = imputer.model_
    drawn = imputer.sample(pd.DataFrame({"y": np.full(3000, y_given), "x": np.nan}))[0]["x"].to_numpy()
    grid = torch.linspace(-6, 6, 6001, dtype=torch.float64)
    index = model.outcome.index(model.compatible.analysis.design([grid[None], grid[None]]))
    response = Response(torch.full_like(index, y_given))
    outcome = model.compatible.log_density(response, index, model.outcome)[0]
    features = model.margins[0]
    score, parameters = features.encode_number(1, grid), model.parameters[1]
    prior = -0.5 * ((score - parameters.coefficients[0, 0]) / parameters.scale[0]) ** 2
    mass = (outcome + prior).exp().cumsum(0)
    cdf = np.interp(drawn, grid.numpy(), (mass / mass[-1]).numpy())
    assert stats.kstest(cdf, "uniform").pvalue > FAILURE_RATE
    assert (drawn > 0).mean() == pytest.approx(0.5, abs=reach)  # both roots of the parabola


def test_a_frequent_value_in_the_middle_is_as_frequent_as_given_the_outcome():
    """A value with an interval of scores, whose probability given y is computed on a grid of scores."""
    rng = np.random.default_rng(1)
    x = np.where(rng.random(600) < 0.5, 2 * rng.normal(size=600), 0.0)
    table = pd.DataFrame({"x": x, "y": x + rng.normal(size=600)})
    table.loc[:150, "x"] = np.nan
    imputer = ChainedImputer(1, n_cycles=3, analysis="y ~ x", random_state=0).fit(table)
    model, n_rows = imputer.model_, 4000
    drawn = imputer.sample(pd.DataFrame({"x": np.nan, "y": np.full(n_rows, 0.5)}))[0]["x"].to_numpy()
    scores = torch.linspace(-8, 8, 16_001, dtype=torch.float64)[None]
    codes = decode_scores(imputer.schema_.columns[0], model.inputs.columns[0], scores, model.margins)
    index = model.outcome.index(model.compatible.analysis.design([codes, torch.zeros_like(codes)]))
    outcome = model.compatible.log_density(Response(torch.full_like(index, 0.5)), index, model.outcome)
    parameters = model.parameters[0]
    prior = -0.5 * ((scores - parameters.coefficients[0, 0]) / parameters.scale[0]).square()
    mass = torch.softmax(outcome + prior, dim=1)
    chance = float(mass[codes == 0].sum())
    assert 0.2 < chance < 0.8
    assert stats.binomtest(int((drawn == 0).sum()), n_rows, chance).pvalue > FAILURE_RATE


def test_levels_and_outcomes_are_completed_and_survive_saving(tmp_path):
    rng = np.random.default_rng(0)
    g = rng.integers(3, size=300)
    table = pd.DataFrame(
        {"y": rng.poisson(np.exp(0.3 * g)), "g": np.array(list("abc"))[g], "w": rng.normal(size=300)}
    )
    table["y"] = table["y"].astype(float)
    table = table.mask(rng.random(table.shape) < 0.2)
    imputer = ChainedImputer(3, analysis="y ~ C(g) * w", family="poisson", random_state=0).fit(table)
    drawn = imputer.sample(table, n_draws=3)
    assert not any(one.isna().any().any() for one in drawn)
    imputer.save(tmp_path / "model.halfseen")
    again = halfseen.load(tmp_path / "model.halfseen")
    for one, other in zip(drawn, again.sample(table, n_draws=3), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_parameters_of_the_analysis_are_drawn_around_the_least_squares():
    """The mean of 400 chains of one complete table; a t test for each coefficient."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 60))
    y = 1 + 2 * x - z + x * z + rng.normal(size=60)
    columns = [_number("y"), _number("x"), _number("z")]
    analysis = SubstantiveModel.parse("y ~ x * z", columns)
    table = torch.from_numpy(np.column_stack([y, x, z]))
    model = CompatibleModel(analysis, columns, None, analysis.units(table))
    drawn = model.draw_parameters(table.expand(400, -1, -1), Noise(0, range(400)))
    design = analysis.design(table.unbind(-1))
    expected = (design @ torch.linalg.lstsq(design, table[:, 0]).solution)[:10]
    found = drawn.index(design[:10].expand(400, -1, -1)).numpy()
    assert (stats.ttest_1samp(found, expected.numpy()).pvalue > FAILURE_RATE).all()


def test_an_analysis_needs_chained_equations():
    with pytest.raises(ValueError, match="analysis= is a parameter of ChainedImputer, got MeanImputer"):
        halfseen.multiple_imputation(_interaction(0), halfseen.MeanImputer(), analysis="y ~ x * z")


def test_imputed_covariates_of_an_analysis_reach_into_a_long_tail():
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(size=400))
    table = pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=400)})
    shown = table.assign(x=table["x"].mask(table["x"] > np.quantile(x, 0.9)))
    highest, middle = shown["x"].max(), shown["x"].median()
    imputer = ChainedImputer(3, analysis="y ~ x", random_state=0).fit(shown)
    assert imputer.schema_.columns[0].greatest == pytest.approx(highest**3 / middle**2, rel=0.01)
    drawn = np.stack([one["x"] for one in imputer.sample(shown, 3)])[:, shown["x"].isna()]
    hidden = x[shown["x"].isna()]
    assert drawn.max() > 2 * highest  # beyond one observed range, without a warning
    assert np.corrcoef(drawn.mean(axis=0), hidden)[0, 1] > 0.9


def test_ranges_of_columns_that_are_not_skewed_stay_as_they_are():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(50, 100, 200), "y": rng.normal(size=200)})
    table.loc[:50, "x"] = np.nan
    ranges = [
        ChainedImputer(2, n_cycles=1, analysis=analysis, random_state=0)
        .fit(table)
        .schema_.columns[0]
        .greatest
        for analysis in (None, "y ~ x")
    ]
    assert ranges[0] == ranges[1]
