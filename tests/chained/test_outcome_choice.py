"""Outcomes that are found in the data: densities by closed forms and quadrature, choices, and coverage."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit
from tolerances import FAILURE_RATE

import halfseen
from halfseen.chained import outcome_choice
from halfseen.chained.formula import FAMILIES, SubstantiveModel
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.inputs import choose_features, reach
from halfseen.chained.outcome_choice import _Factorised, _Pair
from halfseen.data.incomplete import Incomplete


def table_of(kind, seed, n_rows=300, slope=0.5, steepness=1.0):
    """A covariate x is missing in about 30% of the rows, through the outcome y."""
    rng = np.random.default_rng([seed, 24])
    z = rng.normal(size=n_rows)
    x = 0.5 * z + np.sqrt(0.75) * rng.normal(size=n_rows)
    if kind == "log-normal":
        x = np.exp(x)
    elif kind == "gamma":
        x = rng.gamma(2.0, size=n_rows) * np.exp(0.3 * z)
    index = slope * x + 0.3 * z
    if kind == "counts":
        y = rng.poisson(np.exp(0.3 + index)).astype(float)
    elif kind == "dispersed":
        y = rng.poisson(np.exp(0.3 + index) * rng.gamma(1.0, size=n_rows)).astype(float)
    else:
        y = index + rng.normal(size=n_rows)
    scaled = (y - y.mean()) / y.std()
    table = pd.DataFrame({"x": x, "z": z, "y": y})
    table.loc[rng.random(n_rows) < expit(steepness * scaled - 0.9), "x"] = np.nan
    return table


def found_in(table, **options):
    imputer = ChainedImputer(1, n_cycles=1, random_state=0, **options).fit(table)
    compatible = imputer.model_.compatible
    return None if compatible is None else (compatible.analysis.text, compatible.analysis.family)


@pytest.fixture
def pair(request, monkeypatch):
    """What is compared in a table of a kind."""
    pairs = []
    build = _Pair.of.__func__
    monkeypatch.setattr(
        _Pair, "of", classmethod(lambda cls, *rest: pairs.append(build(cls, *rest)) or pairs[-1])
    )
    found_in(table_of(request.param, 0))
    return next(one for one in pairs[::-1] if one is not None)  # the last complete column is y


@pytest.mark.parametrize("pair", ["normal"], indirect=True)
def test_both_densities_of_normal_columns_are_the_same(pair):
    """The estimates of EM are then those of the regression on the rows in which x is observed."""
    difference = _Factorised(pair, "linear").density() - pair.own_density()
    np.testing.assert_allclose(difference, 0.0, atol=0.02)
    assert not pair.curved


@pytest.mark.parametrize("pair", ["counts"], indirect=True)
@pytest.mark.parametrize("family", ["linear", "poisson"])
def test_densities_are_those_of_quadrature(pair, family):
    model = _Factorised(pair, family)
    at = pair.observed.nonzero().squeeze(1)[:4]
    for row, found in zip(at.tolist(), model.density()[:4].tolist(), strict=True):
        centre, spread = float(pair.rest[row] @ model.of_x), float(model.spread)
        slope, others = float(model.of_y[pair.place]), float(model.others[row] @ model.of_y)
        line = np.polyfit(outcome_choice.GRID, pair.values, 1)  # x has no margin

        def joint(z, row=row, centre=centre, spread=spread, slope=slope, others=others, line=line):
            index, y = others + slope * np.polyval(line, z), float(pair.y[row])
            if family == "poisson":
                of_y = stats.poisson.pmf(y, np.exp(index))
            else:
                of_y = stats.norm.pdf(y, index, float(model.scale))
            return stats.norm.pdf(z, centre, spread) * of_y

        total = integrate.quad(joint, -5, 5)[0]
        expected = np.log(joint(float(pair.score[row])) / total) + 0.5 * np.log(2 * np.pi)
        assert found == pytest.approx(expected, abs=1e-3)
        integrated = model._integrated()[row].item()
        assert integrated == pytest.approx(np.log(total), abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("normal", None),
        ("log-normal", ("y ~ .", "linear")),
        ("counts", ("y ~ .", "poisson")),
        ("dispersed", None),
    ],
)
def test_outcomes_are_found_if_regressions_on_values_explain_more(kind, expected):
    table = table_of(kind, 0)
    assert found_in(table) == expected
    assert found_in(table, find_outcome=False) is None
    for options in (
        {"predictors": {"x": ["y", "z"]}},
        {"methods": {"x": "pmm"}},
        {"constraints": ["x >= -9"]},
    ):
        assert found_in(table, **options) is None
    assert found_in(table.assign(y=table["y"].mask(table.index == 0))) in (None, ("z ~ .", "linear"))


@pytest.mark.parametrize(
    ("gains", "missing_through", "expected"),
    [((5.0, 4.0), "u", "u"), ((5.0, 4.0), "y", "y"), ((4.0, 5.0), "y", "y"), ((5.0, 2.0), "u", "y")],
)
def test_of_equally_good_outcomes_it_is_the_one_through_which_values_are_missing(
    monkeypatch, gains, missing_through, expected
):
    """Gains, of y and of u, that differ by less than two units do not decide."""
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(size=300))
    table = pd.DataFrame({"x": x, "y": x + rng.normal(size=300), "u": x + rng.normal(size=300)})
    table.loc[table[missing_through] > table[missing_through].quantile(0.7), "x"] = np.nan
    each = iter(gains)
    monkeypatch.setattr(outcome_choice, "_gain", lambda pairs: next(each))
    model = ChainedImputer(1, n_cycles=1, random_state=0).fit(table).model_
    assert model.columns[model.compatible.analysis.outcome].name == expected


@pytest.mark.parametrize(
    ("kinds", "expected"), [(("counts",) * 3, "poisson"), (("counts", "dispersed"), None)]
)
def test_the_choice_does_not_depend_on_the_order_of_rows(kinds, expected):
    """In the second table, every second row is from another distribution, and only some are compared."""
    parts = [table_of(kind, seed, n_rows=800) for seed, kind in enumerate(kinds)]
    table = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    for order in (table, table[::-1], table.sample(frac=1.0, random_state=0)):
        found = found_in(order)
        assert (found and found[1]) == expected
    some = [find_inputs(order) for order in (table, table.sample(frac=1.0, random_state=1))]
    np.testing.assert_array_equal(*some)


def find_inputs(table):
    """Returns the rows on which densities are compared."""
    codes = Incomplete.from_array(table.to_numpy())
    return codes[codes.chosen_rows(outcome_choice.MOST_ROWS)].to_array()


def test_draws_are_those_of_the_stated_analysis():
    table = table_of("log-normal", 1)
    found, stated = (
        ChainedImputer(2, random_state=0, analysis=text).fit(table).sample(table, 2)
        for text in (None, "y ~ x + z")
    )
    for one, other in zip(found, stated, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_models_with_a_found_outcome_are_saved(tmp_path):
    table = table_of("counts", 0)
    imputer = ChainedImputer(2, n_cycles=2, random_state=0).fit(table)
    imputer.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model")
    for one, other in zip(again.sample(table, 2), imputer.sample(table, 2), strict=True):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(
    "state", [[0], [3, 1], [-1, 1], [0, 0], [0, FAMILIES.index("cox")], [0, 9], [0.0, 1.0]]
)
def test_forged_outcomes_are_refused(state):
    columns = ChainedImputer(1, n_cycles=1).fit(table_of("normal", 0)).schema_.columns
    with pytest.raises(ValueError, match="outcome of chained equations"):
        SubstantiveModel.from_state(columns, torch.tensor(state))


def test_densities_are_integrated_over_values_as_far_as_draws_may_lie():
    """If they were cut off near the observed values, the linear regression would fit large outcomes badly."""
    table = table_of("log-normal", 0)
    imputer = ChainedImputer(1, n_cycles=1, random_state=0, find_outcome=False).fit(table)
    inputs, known = imputer.model_.inputs, torch.tensor(table["x"].dropna().tolist(), dtype=torch.float64)
    column, place, scores = imputer.schema_.columns[0], inputs.columns[0], outcome_choice.GRID
    margin, scaler = inputs.features.margins[0], inputs.features.scaler
    unlimited = margin.adjusted(greatest=np.inf, least=-np.inf)
    expected = unlimited.inverse(scores * scaler.scale[0] + scaler.loc[0])
    low, high = column.imputed_bounds()
    farthest = float(known.max() ** 3 / known.median() ** 2)
    assert farthest > 1.5 * high
    found = reach(column, place, inputs.features, known, scores)
    torch.testing.assert_close(found, expected.clamp(low, farthest))


def test_densities_of_scores_become_those_of_values_by_the_slopes_of_scores():
    """The sum of the logarithms of the derivatives beside differences; and what margins cost."""
    table = table_of("gamma", 0)
    model = ChainedImputer(1, n_cycles=1, random_state=0, find_outcome=False).fit(table).model_
    codes, features = Incomplete.from_array(table.to_numpy()), model.inputs.features
    logarithm = choose_features(model.columns, features, codes, logarithms=[0])
    for one, n_more in ((features, 1), (logarithm, 0)):
        inputs = replace(model.inputs, features=one)
        x = codes.x[codes.observed[:, 0], 0]
        rise = one.encode_number(0, x * (1 + 1e-5)) - one.encode_number(0, x * (1 - 1e-5))
        expected = float((rise / (2e-5 * x)).log().sum())
        assert outcome_choice._log_slopes(inputs, 0, codes) == pytest.approx(expected, abs=1e-4)
        assert outcome_choice._penalty(inputs, 0, codes) == pytest.approx(0.5 * n_more * np.log(300))
    assert [one.margins[0].link.kind for one in (features, logarithm)] == ["power", "log"]


@pytest.mark.slow
def test_margins_are_chosen_by_all_that_is_known():
    """Of log-normal covariates whose large values are missing, 99% have that margin and an outcome.

    By the observed values alone, a power fits 6 of these 40 better than the logarithm.
    """
    kinds = [
        ChainedImputer(1, n_cycles=1, random_state=0).fit(table_of("log-normal", seed, steepness=1.5))
        for seed in range(200, 240)
    ]
    models = [one.model_ for one in kinds]
    found = [one.compatible is not None for one in models]
    logarithms = [one.inputs.features.margins[0].link.kind == "log" for one in models]
    for several in (found, logarithms):
        assert stats.binomtest(sum(several), 40, 0.99, alternative="less").pvalue > FAILURE_RATE


def test_the_default_keeps_the_ranges_of_its_regressions():
    """Values far in the tail, which the regression of the outcome needs, are not cut off."""
    table = table_of("log-normal", 1)
    default = halfseen.multiple_imputation(table, n_draws=2, random_state=0)
    assert default.imputer.schema_.columns[0].greatest > 2 * table["x"].max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "slope", "steepness", "model"),
    [
        ("log-normal", 500, 0.8, 1.0, "ols"),
        ("gamma", 200, 0.4, 1.2, "ols"),
        ("counts", 500, 0.5, 0.8, "poisson"),
    ],
)
def test_intervals_cover_in_designs_by_which_the_rule_was_not_chosen(kind, rows, slope, steepness, model):
    """Over 40 tables, misses of 95% intervals are no more than chance explains if 90% are right."""
    truth, inside, estimates = np.array([slope, 0.3]), [], []
    for seed in range(1_000, 1_040):
        table = table_of(kind, seed, rows, slope, steepness)
        drawn = halfseen.multiple_imputation(table, n_draws=10, random_state=seed)
        pooled = halfseen.pool("y ~ x + z", drawn, model=model)
        low, high = (end[1:] for end in pooled.interval(0.95))
        inside.append((low <= truth) & (truth <= high))
        estimates.append(pooled.estimate[1:])
    misses = (~np.array(inside)).sum(axis=0)
    assert (stats.binom(40, 0.1).sf(misses - 1) * 2 > FAILURE_RATE).all()
    bias = (np.mean(estimates, axis=0) - truth) / np.std(estimates, axis=0, ddof=1)
    print(kind, misses, bias.round(2))
    assert (np.abs(bias) < 0.2 + stats.norm.isf(FAILURE_RATE / 4) / 40**0.5).all()
