"""Numbers with a frequent value, such as zero: a logistic regression of it, a linear one of the others."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats
from scipy.special import expit
from tolerances import EXACT, FAILURE_RATE

import halfseen
from halfseen.chained.analysis import Response
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.inputs import Spike
from halfseen.chained.outcome_choice import _Factorised, _Pair
from halfseen.data.columns import Column


def table_of(seed, n_rows=500, centre=10.0):
    """An amount w that is zero more often where z is small, and otherwise normal around a line in z."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n_rows)
    w = np.where(rng.random(n_rows) < expit(-0.5 - z), 0.0, centre + 2 * z + rng.normal(size=n_rows))
    return pd.DataFrame({"w": w, "z": z})


def number(**settings):
    return Column("w", "continuous", "float64", "number", **settings)


OTHERS = np.linspace(1.0, 9.0, 60)


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ([0.0] * 10, {}, Spike(0.0, 0.5, np.inf)),
        ([9.0] * 40, {}, Spike(9.0, -np.inf, 9.0 - 8 / 118)),
        ([0.0] * 9, {}, None),  # not frequent enough
        ([5.0] * 40, {}, None),  # not at an end
        ([0.0] * 10, {"censored_below": 0.5}, None),
        ([0.0] * 10, {"minimum": 0.5, "firm": True}, None),
        ([0.0] * 10, {"integer": True}, Spike(0.0, 1.0, np.inf)),
    ],
)
def test_a_frequent_end_of_a_number_is_found(values, settings, expected):
    others = np.arange(1.0, 61.0) if settings.get("integer") else OTHERS
    found = Spike.find(number(**settings), np.concatenate([others, values]))
    assert (found is None) == (expected is None)
    if found is not None:
        assert (found.value, found.least, found.greatest) == pytest.approx(
            (expected.value, expected.least, expected.greatest)
        )


def test_a_count_needs_more_zeros_than_its_distribution_has():
    counts = np.random.default_rng(0).poisson(1.5, size=400).astype(float)
    assert Spike.find(number(integer=True), counts) is None
    assert Spike.find(number(integer=True), np.concatenate([counts, np.zeros(300)])) is not None


def test_the_logistic_part_is_drawn_from_its_posterior():
    """The mean of both coefficients over 400 chains beside that of the posterior density on a grid."""
    table = table_of(0)
    imputer = ChainedImputer(400, n_cycles=1, find_outcome=False, random_state=0).fit(table)
    drawn = imputer.model_.parameters[0].spike.numpy()
    z = ((table["z"] - table["z"].mean()) / table["z"].std(ddof=0)).to_numpy()
    first, second = np.meshgrid(np.linspace(-2, 1, 151), np.linspace(-3, 0, 151), indexing="ij")
    index = first[..., None] + second[..., None] * z
    at = (table["w"] == 0).to_numpy()
    logs = (index * at - np.logaddexp(0, index)).sum(-1) - first**2 / 200 - second**2 / 50
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    for values, coefficients in zip((first, second), drawn.T, strict=True):
        mean = (weights * values).sum()
        spread = np.sqrt((weights * (values - mean) ** 2).sum())
        # 400 draws of a sampler that was started once: normal means, and 15% for the spread
        assert stats.norm.sf(abs(coefficients.mean() - mean) / (spread / 20)) * 2 > FAILURE_RATE
        assert coefficients.std() == pytest.approx(spread, rel=0.15)


def test_the_linear_part_is_fitted_to_the_other_values():
    """Draws at one z beside the least squares of the rows with amounts; a t test of 2,000 draws."""
    table = table_of(1)
    imputer = ChainedImputer(100, n_cycles=1, find_outcome=False, random_state=0).fit(table)
    new = pd.DataFrame({"w": np.nan, "z": np.full(20, 0.7)})
    drawn = np.stack([one["w"] for one in imputer.sample(new, n_draws=100)])
    positive = table[table["w"] > 0]
    slope, constant = np.polyfit(positive["z"], positive["w"], 1)
    residual = (positive["w"] - constant - slope * positive["z"]).std(ddof=2)
    means = np.array([one[one > 0].mean() for one in drawn])
    assert stats.ttest_1samp(means, constant + 0.7 * slope).pvalue > FAILURE_RATE
    assert drawn[drawn > 0].std() == pytest.approx(residual, rel=0.1)
    chance = expit(
        imputer.model_.parameters[0].spike.numpy() @ [1.0, (0.7 - table["z"].mean()) / table["z"].std(ddof=0)]
    )
    assert (drawn == 0).mean() == pytest.approx(chance.mean(), abs=4 * np.sqrt(0.25 / drawn.size))
    point = imputer.transform(new)["w"]
    assert point.to_numpy() == pytest.approx(
        np.full(20, drawn.mean()), abs=4 * drawn.std() / np.sqrt(drawn.size)
    )


def test_the_indicator_of_the_value_predicts_other_columns():
    """A jump of y at zero, which no line in w has, beside least squares with an indicator."""
    table = table_of(2)
    rng = np.random.default_rng(2)
    y = np.where(table["w"] == 0, 5.0, 0.3 * table["w"]) + 0.5 * rng.normal(size=len(table))
    table["y"] = y
    table.loc[rng.random(len(table)) < 0.3, "y"] = np.nan
    imputer = ChainedImputer(50, n_cycles=1, find_outcome=False, random_state=0).fit(table)
    new = pd.DataFrame({"w": [0.0, 10.0], "z": [0.0, 0.0], "y": np.nan})
    drawn = np.stack([one["y"] for one in imputer.sample(new, n_draws=50)])
    known = table.dropna()
    design = np.column_stack([np.ones(len(known)), known["w"], known["z"], known["w"] == 0])
    beta = np.linalg.lstsq(design, known["y"].to_numpy(), rcond=None)[0]
    expected = np.array([[1, 0, 0, 1], [1, 10, 0, 0]]) @ beta
    assert (stats.ttest_1samp(drawn, expected).pvalue > FAILURE_RATE).all()


@pytest.mark.parametrize("y_given", [0.0, 2.0])
def test_values_given_an_outcome_have_the_density_of_both_parts(y_given):
    """The share of zeros, and the distribution of the others, beside sums over a fine grid of values."""
    rng = np.random.default_rng(1)
    x = np.where(rng.random(600) < 0.5, rng.gamma(2.0, size=600), 0.0)
    table = pd.DataFrame({"x": x, "y": x + rng.normal(size=600)})
    table.loc[:150, "x"] = np.nan
    imputer = ChainedImputer(1, n_cycles=3, analysis="y ~ x", random_state=0).fit(table)
    model, n_rows = imputer.model_, 4000
    drawn = imputer.sample(pd.DataFrame({"x": np.nan, "y": np.full(n_rows, y_given)}))[0]["x"].to_numpy()
    grid = torch.linspace(0.0, 15, 30_001, dtype=torch.float64)
    grid[0] = float(drawn[drawn > 0].min()) / 2
    index = model.outcome.index(model.compatible.analysis.design([grid[None], grid[None]]))
    of_y = model.compatible.log_density(Response(torch.full_like(index, y_given)), index, model.outcome)[0]
    zero = torch.zeros(1, 1, dtype=torch.float64)
    at_zero = model.outcome.index(model.compatible.analysis.design([zero, zero]))
    of_y_at_zero = model.compatible.log_density(Response(zero + y_given), at_zero, model.outcome)[0]
    part, scores = model.parameters[0], model.margins[0].encode_number(0, grid)
    density = stats.norm.pdf(scores, float(part.coefficients[0, 0]), float(part.scale[0])) * np.gradient(
        scores.numpy(), grid.numpy()
    )
    chance = expit(float(part.spike[0, 0]))
    others = (1 - chance) * density * of_y.exp().numpy()
    zeros = chance * float(of_y_at_zero.exp())
    total = integrate.trapezoid(others, grid.numpy())
    assert stats.binomtest(int((drawn == 0).sum()), n_rows, zeros / (zeros + total)).pvalue > FAILURE_RATE
    cdf = np.interp(drawn[drawn > 0], grid.numpy(), np.cumsum(others) / others.sum())
    assert stats.kstest(cdf, "uniform").pvalue > FAILURE_RATE


def test_the_likelihood_of_both_parts_is_that_of_quadrature(monkeypatch):
    """Log densities of an outcome, with its covariate known, or summed and integrated over it."""
    pairs, build = [], _Pair.of.__func__
    monkeypatch.setattr(
        _Pair, "of", classmethod(lambda cls, *rest: pairs.append(build(cls, *rest)) or pairs[-1])
    )
    table = table_of(3)
    rng = np.random.default_rng(3)
    table["y"] = 0.5 * table["w"] + table["z"] + rng.normal(size=len(table))
    table.loc[rng.random(len(table)) < 0.3, "w"] = np.nan
    ChainedImputer(1, n_cycles=1, random_state=0).fit(table)
    pair = next(one for one in pairs[::-1] if one is not None)
    model = _Factorised(pair, "linear")
    grid, values = np.linspace(-5, 5, 51), pair.values[:-1].numpy()
    for row in (0, 1, 2, 3):
        chance, centre = expit(float(pair.rest[row] @ model.of_spike)), float(pair.rest[row] @ model.of_x)
        others, slope = float(model.others[row] @ model.of_y), float(model.of_y[pair.place])

        def of_y(value, others=others, slope=slope, row=row):
            return stats.norm.pdf(float(pair.y[row]), others + slope * value, float(model.scale))

        def density(score, centre=centre, of_y=of_y):
            return stats.norm.pdf(score, centre, float(model.spread)) * of_y(np.interp(score, grid, values))

        spiked = chance * of_y(float(pair.values[-1]))
        expected = np.log(spiked + (1 - chance) * integrate.quad(density, -5, 5, limit=200)[0])
        assert model._integrated()[row].item() == pytest.approx(expected, abs=1e-2)
        if pair.observed[row]:
            of_score = stats.norm.pdf(float(pair.score[row]), centre, float(model.spread))
            one = of_score * of_y(float(pair.terms[row, pair.place]))
            known = spiked if pair.spike[row] else (1 - chance) * one
            found = model._with_known()[row].item() - 0.5 * np.log(2 * np.pi)
            assert found == pytest.approx(np.log(known), abs=1e-6)


def test_quantiles_of_both_parts_are_those_of_their_mixture():
    share = torch.tensor([0.3, 0.3, 0.0], dtype=torch.float64)
    asked = torch.tensor([0.2, 0.65, 0.65], dtype=torch.float64)
    left, chosen = Spike(0.0, 1.0, np.inf).left_share(asked, share)
    assert chosen.tolist() == [True, False, False]
    assert left[1:].tolist() == pytest.approx([0.5, 0.65], abs=EXACT)
    left, chosen = Spike(9.0, -np.inf, 8.0).left_share(1 - asked, share)
    assert chosen.tolist() == [True, False, False]
    assert left[1:].tolist() == pytest.approx([0.5, 0.35], abs=EXACT)


@pytest.mark.parametrize("analysis", [None, "z ~ w"])
def test_both_parts_survive_saving(tmp_path, analysis):
    table = table_of(4, n_rows=200)
    table.loc[:40, "w"] = np.nan
    imputer = ChainedImputer(2, random_state=0, analysis=analysis).fit(table)
    imputer.save(tmp_path / "model.halfseen")
    again = halfseen.load(tmp_path / "model.halfseen")
    assert again.model_.inputs.spikes == imputer.model_.inputs.spikes
    for one, other in zip(imputer.sample(table, 2), again.sample(table, 2), strict=True):
        pd.testing.assert_frame_equal(one, other)
    for one, other in zip(imputer.interval(table), again.interval(table), strict=True):
        pd.testing.assert_frame_equal(one, other)
    state = imputer.model_.state()
    with pytest.raises(ValueError, match="does not fit its inputs"):
        type(imputer.model_).from_state(imputer._within, state | {"chain.0.spike": torch.ones(1, 2)})
    with pytest.raises(ValueError, match="frequent value of column 0"):
        type(imputer.model_).from_state(imputer._within, state | {"inputs.spike.0": torch.ones(3)})


@pytest.mark.parametrize(
    "options",
    [{"constraints": ["w <= 99"]}, {"methods": {"w": "pmm"}}, {"blocks": [["w", "z"]]}, {"groups": "g"}],
)
def test_columns_under_control_have_one_regression(options):
    table = table_of(5, n_rows=200).assign(g=np.repeat(np.arange(20), 10).astype(str))
    table.loc[:40, "w"] = np.nan
    imputer = ChainedImputer(1, n_cycles=1, random_state=0, **options).fit(table)
    model = getattr(imputer.model_, "chain", imputer.model_)
    assert model.inputs.spikes == {}


@pytest.mark.slow
def test_intervals_of_a_semi_continuous_covariate_cover():
    """60 tables of the experiment that no choice has seen; binomial and t tests."""
    from papers.library import inference

    task = inference.make_task(
        {"table": "semi-continuous covariate", "rows": 300, "repetitions": 60, "first": 90_000}, 0
    )
    found = inference.score(inference.draw_by_default, task)
    for name in ("x", "z"):
        covered = round(60 * found[f"coverage of {name}"])
        assert stats.binomtest(covered, 60, 0.95).pvalue > FAILURE_RATE
        assert abs(found[f"bias of {name}"]) < 4 * np.sqrt(found[f"variance of {name}"] / 60)


def test_numbers_whose_squares_overflow_have_no_spike():
    x = np.concatenate([np.zeros(200), np.linspace(1.0, 2.0, 200)])
    column = halfseen.MeanImputer().fit(pd.DataFrame({"x": x})).schema_.columns[0]
    assert Spike.find(column, x) is not None
    assert Spike.find(column, x * 1e160) is None
