"""Cox models as the analysis: the partial likelihood of statsmodels, drawn hazards, interactions."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

import halfseen
from halfseen.chained.cox import CoxModel, CumulativeHazard, RiskSets
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.regressions import Noise, find_mode

FLAT = torch.full((2,), 1e-12, dtype=torch.float64)


def survival_problem(n_rows=80):
    """Times with many ties, some of them at the same time as censored rows, some before the first event."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n_rows, 2))
    time = np.ceil(8 * rng.exponential(np.exp(-0.7 * z[:, 0]))).astype(float)
    event = (rng.random(n_rows) < 0.6).astype(float)
    event[time == time.min()] = 0.0
    return z, time, event


def models():
    z, time, event = survival_problem()
    ours = CoxModel(RiskSets.of(torch.from_numpy(time), torch.from_numpy(event)), FLAT)
    return ours, torch.from_numpy(z)[None], sm.PHReg(time, z, status=event, ties="breslow")


def test_the_posterior_is_the_partial_likelihood_of_statsmodels():
    ours, design, theirs = models()
    for at in ([0.0, 0.0], [0.4, -1.2], [3.0, 2.0]):
        beta = torch.tensor([at], dtype=torch.float64)
        slope, weights = ours.gradient(design, beta)
        at_zero = ours.log_density(design, 0 * beta).item() - theirs.loglike(np.zeros(2))
        found = ours.log_density(design, beta).item() - at_zero
        np.testing.assert_allclose(found, theirs.loglike(np.array(at)), rtol=1e-8)
        np.testing.assert_allclose(slope[0], theirs.score(np.array(at)), rtol=1e-8, atol=1e-8)
        hessian = -ours.precision(design, weights)[0].numpy()
        np.testing.assert_allclose(hessian, theirs.hessian(np.array(at)), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(find_mode(ours, design)[0], theirs.fit().params, rtol=1e-6)


def test_large_linear_predictors_do_not_overflow():
    ours, design, _ = models()
    beta = torch.tensor([[900.0, -900.0]], dtype=torch.float64)
    assert ours.log_density(design, beta).isfinite().all()
    slope, weights = ours.gradient(design, beta)
    assert slope.isfinite().all()
    assert ours.precision(design, weights).isfinite().all()


def test_drawn_hazards_have_the_breslow_estimate_as_their_mean():
    """4,000 draws of each jump; in units of its sum over the rows at risk it has a gamma distribution."""
    ours, design, _ = models()
    beta = torch.tensor([[0.5, -0.3]], dtype=torch.float64)
    n_chains = 4000
    drawn = ours.draw_hazard(
        design.expand(n_chains, -1, -1), beta.expand(n_chains, -1), Noise(0, range(n_chains))
    )
    z, time, event = survival_problem()
    for j, tau in enumerate(drawn.times.tolist()):
        n_events = event[time == tau].sum()
        at_risk = np.exp(z[time >= tau] @ beta[0].numpy()).sum()
        jumps = drawn.values[:, j] - (drawn.values[:, j - 1] if j else 0.0)
        assert stats.kstest(jumps.numpy() * at_risk, stats.gamma(n_events).cdf).pvalue > FAILURE_RATE
    assert drawn.times.tolist() == sorted(set(time[event > 0]))


def test_a_cumulative_hazard_is_a_step_function():
    hazard = CumulativeHazard(torch.tensor([1.0, 3.0]), torch.tensor([[0.2, 0.5], [0.1, 0.9]]))
    at = torch.tensor([[0.5, 1.0, 2.9], [3.0, 99.0, 0.0]])
    torch.testing.assert_close(hazard.at(at), torch.tensor([[0.0, 0.2, 0.2], [0.9, 0.9, 0.0]]))
    for times, values in (([3.0, 1.0], [[0.1, 0.2]]), ([1.0, 3.0], [[0.2, 0.1]]), ([1.0], [[-1.0]])):
        wrong = CumulativeHazard(*(torch.tensor(part, dtype=torch.float64) for part in (times, values)))
        with pytest.raises(ValueError, match="hazard"):
            wrong.check(1)


def survival_table(seed, n_rows=300):
    """x and z act on the hazard with an interaction; x is missing where the follow-up is short."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n_rows))
    event_time = rng.exponential(np.exp(-(0.7 * x + 0.5 * z + 0.5 * x * z)))
    censored = rng.exponential(3.0, size=n_rows)
    time, died = np.minimum(event_time, censored), (event_time <= censored).astype(int)
    table = pd.DataFrame({"time": time, "died": died, "x": x, "z": z})
    chance = 0.7 / (1 + np.exp(1.0 + 2 * np.log(time) - died))
    table.loc[rng.random(n_rows) < chance, "x"] = np.nan
    return table


def test_a_covariate_is_drawn_from_its_density_given_time_and_event():
    imputer = ChainedImputer(1, analysis="Surv(time, died) ~ x * z", random_state=0).fit(
        survival_table(0, 600)
    )
    model = imputer.model_
    row = {"time": 0.6, "died": 1, "x": np.nan, "z": 0.8}
    drawn = imputer.sample(pd.DataFrame([row] * 3000))[0]["x"].to_numpy()
    grid = torch.linspace(-6, 6, 6001, dtype=torch.float64)
    cells = [torch.full_like(grid, value)[None] for value in row.values()]
    cells[2] = grid[None]
    index = model.outcome.index(model.compatible.analysis.design(cells))[0]
    baseline = model.outcome.hazard.at(torch.tensor([[0.6]], dtype=torch.float64)).item()
    equation, parameters = model.equations[2], model.parameters[2]
    design = model.inputs.design(torch.stack([one[0] for one in cells], dim=-1)[None])
    mean, spread, _ = parameters.predict(equation, design[:, :, equation.inputs])
    score = model.margins[0].encode_number(equation.column.feature, grid)
    logs = index - baseline * index.exp() - 0.5 * ((score - mean[0]) / spread[0]) ** 2
    mass = logs.exp().cumsum(0)
    cdf = np.interp(drawn, grid.numpy(), (mass / mass[-1]).numpy())
    assert stats.kstest(cdf, "uniform").pvalue > FAILURE_RATE
    used = set(equation.inputs.tolist()[1:])
    for outcome in model.inputs.columns[:2]:
        assert not used & set(range(outcome.start, outcome.stop))


@pytest.mark.slow
def test_interactions_of_a_cox_model_are_unbiased_if_the_imputation_knows_it():
    """30 tables. Main effects alone, on the first 10, give a bias of the interaction of more than -.1."""
    formula, found, plain = "Surv(time, died) ~ x * z", [], []
    for seed in range(30):
        table = survival_table(seed)
        tables = halfseen.multiple_imputation(table, n_draws=5, analysis=formula, random_state=seed)
        found.append(halfseen.pool(formula, tables).estimate)  # without a warning
        if seed < 10:
            tables = halfseen.multiple_imputation(table, n_draws=5, random_state=seed)
            with pytest.warns(halfseen.HalfseenWarning, match=r"The analysis has x \* z"):
                plain.append(halfseen.pool(formula, tables).estimate)
    bias = np.array(found) - [0.7, 0.5, 0.5]
    assert (stats.ttest_1samp(bias, 0.0).pvalue > FAILURE_RATE).all()
    assert np.abs(bias.mean(axis=0)).max() < 0.07
    assert np.mean(plain, axis=0)[2] - 0.5 < -0.1


def test_parameters_survive_saving_and_new_rows_may_lack_the_time(tmp_path):
    table = survival_table(1, 120)
    imputer = ChainedImputer(3, analysis="Surv(time, died) ~ x + I(z ** 2)", random_state=0).fit(table)
    imputer.save(tmp_path / "model.halfseen")
    again = halfseen.load(tmp_path / "model.halfseen")
    for one, other in zip(imputer.sample(table, 3), again.sample(table, 3), strict=True):
        pd.testing.assert_frame_equal(one, other)
    new = table.assign(time=np.nan)
    completed = imputer.sample(new)[0]
    assert completed.notna().all(axis=None)
    assert (completed["time"] >= 0).all()


def test_the_order_of_rows_does_not_matter_to_the_risk_sets():
    _, time, event = survival_problem()
    order = np.random.default_rng(0).permutation(len(time))
    z = torch.from_numpy(survival_problem()[0])[None]
    one = CoxModel(RiskSets.of(*map(torch.from_numpy, (time, event))), FLAT)
    other = CoxModel(RiskSets.of(*map(torch.from_numpy, (time[order], event[order]))), FLAT)
    beta = torch.tensor([[0.3, 0.6]], dtype=torch.float64)
    expected = one.gradient(z, beta)[0]
    torch.testing.assert_close(other.gradient(z[:, order], beta)[0], expected, atol=EXACT, rtol=EXACT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": np.nan}, "Column 'time' of the analysis .* is missing in 1 rows; a Cox analysis needs"),
        ({"died": np.nan}, "Column 'died' of the analysis .* is missing in 1 rows"),
        ({"time": -1.0}, "Column 'time' has the time -1; times must not be negative"),
    ],
)
def test_outcomes_that_cannot_be_used_are_named(change, message):
    table = survival_table(0, 60).astype({"died": float})
    for name, value in change.items():
        table.loc[5, name] = value
    with pytest.raises(ValueError, match=message):
        ChainedImputer(2, analysis="Surv(time, died) ~ x * z").fit(table)


def test_all_rows_may_have_an_event():
    table = survival_table(0, 80).drop(columns="died")
    imputer = ChainedImputer(2, analysis="Surv(time) ~ x * z", random_state=0).fit(table)
    assert imputer.model_.outcome.hazard.values.shape == (2, table["time"].nunique())


def test_levels_are_drawn_in_proportion_to_the_density_of_the_time():
    """Times in whole months with many ties; probabilities of two levels by hand, and their frequency."""
    rng = np.random.default_rng(0)
    g = rng.choice(["a", "b"], 400)
    table = pd.DataFrame({"g": g, "months": np.ceil(4 * rng.exponential(np.where(g == "b", 0.4, 1.0)))})
    table["died"] = rng.random(400) < 0.8
    table.loc[rng.random(400) < 0.3, "g"] = None
    imputer = ChainedImputer(1, analysis="Surv(months, died) ~ C(g)", random_state=0).fit(table)
    model, new = imputer.model_, pd.DataFrame({"g": [None] * 3000, "months": 3.0, "died": True})
    drawn = imputer.sample(new)[0]["g"]
    design = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]], dtype=torch.float64)
    index = model.outcome.index(design)[0].numpy()
    baseline = model.outcome.hazard.at(torch.tensor([[3.0]], dtype=torch.float64)).item()
    design = torch.ones(1, 1, 1, dtype=torch.float64)
    before = model.parameters[0].predict(model.equations[0], design)[0].flatten().numpy()
    order = model.inputs.columns[0].block.group.numpy()  # the group of each level
    mass = before[order] * np.exp(index - baseline * np.exp(index))
    share = mass[1] / mass.sum()
    assert stats.binomtest(int((drawn == "b").sum()), 3000, share).pvalue > FAILURE_RATE
    assert abs(share - 0.5) > 0.05  # so that the test can fail


def test_complete_separation_of_events_does_not_stop_the_chains():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    table = pd.DataFrame({"time": rng.exponential(size=40), "died": (x > 1).astype(int), "x": x})
    table["z"] = np.where(np.arange(40) < 9, np.nan, rng.normal(size=40))
    tables = halfseen.multiple_imputation(
        table, n_draws=3, analysis="Surv(time, died) ~ x * z", random_state=0
    )
    assert all(np.isfinite(one.to_numpy()).all() for one in tables)
