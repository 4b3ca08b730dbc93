"""The experiment on pooled intervals: its tables have the stated coefficients, and scores are as defined."""

import dataclasses
import json
import shutil
import subprocess
import warnings

import fill_tables
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from tolerances import FAILURE_RATE

import halfseen
from halfseen.errors import HalfseenWarning
from papers.library import inference, mice
from papers.library.inference_tables import DESIGNS, INTRACLASS, DropOut, simulate

FOUR_SIGMA = 4.0


@pytest.mark.parametrize("name", DESIGNS)
def test_the_analysis_of_a_large_complete_table_has_the_true_coefficients(name):
    design = DESIGNS[name]
    table = simulate({"table": name, "rows": 20_000}, 0)
    found = inference.fit_complete(design, table.complete)
    truth = np.array([design.truth[name] for name in found.index])
    assert (np.abs(found["estimate"] - truth) < FOUR_SIGMA * found["error"]).all()


RANDOM = [name for name, design in DESIGNS.items() if not isinstance(design.missing, DropOut)]


@pytest.mark.parametrize("name", RANDOM)
def test_the_stated_share_is_missing_more_often_where_the_outcome_is_large(name):
    design = DESIGNS[name]
    table = simulate({"table": name, "rows": 20_000}, 0)
    missing = table.shown.isna()
    assert set(missing.columns[missing.any()]) == set(design.missing.columns)
    y = table.complete[design.missing.through]
    for column in design.missing.columns:
        assert missing[column].mean() == pytest.approx(design.missing.share, abs=0.015)
        difference = (y[missing[column]].mean() - y[~missing[column]].mean()) / y.std()
        assert difference > 0.4 if design.missing.slope else abs(difference) < 0.1
        seen = ~missing[column]
        assert (table.shown[column][seen] == table.complete[column][seen]).all()


def test_people_who_leave_are_not_seen_again_and_had_low_values():
    table = simulate({"table": "repeated measurements, groups given", "rows": 20_000}, 0)
    seen = table.shown["y"].notna().to_numpy().reshape(-1, 4)
    assert seen[:, 0].all()
    assert (np.diff(seen.astype(int)) <= 0).all()
    first = table.complete["y"].to_numpy().reshape(-1, 4)[:, 0]
    assert first[seen[:, 1]].mean() > first[~seen[:, 1]].mean() + 0.5
    known = table.shown["y"].notna()
    assert (table.shown["y"][known] == table.complete["y"][known]).all()


@pytest.mark.parametrize("name", ["clusters, groups given", "repeated measurements, groups given"])
def test_random_intercepts_are_those_of_statsmodels(name):
    design, group = DESIGNS[name], DESIGNS[name].options["groups"]
    table = simulate({"table": name, "rows": 200}, 1).complete
    fit = smf.mixedlm(design.formula, table, groups=table[group]).fit(reml=True, gtol=1e-10)
    found = inference.prepare(design, table)(table)
    assert found.names == (*fit.fe_params.index, INTRACLASS)
    np.testing.assert_allclose(found.estimate[:-1], fit.fe_params, rtol=1e-6)
    together = table[group].to_numpy()[:, None] == table[group].to_numpy()
    variance = fit.scale * np.eye(len(table)) + float(fit.cov_re.iloc[0, 0]) * together
    inverse = np.linalg.inv(fit.model.exog.T @ np.linalg.solve(variance, fit.model.exog))
    np.testing.assert_allclose(found.covariance[:-1], np.diag(inverse), rtol=1e-4)
    size = len(table) // table[group].nunique()
    log_f = np.log1p(size * float(fit.cov_re.iloc[0, 0]) / fit.scale)
    assert found.estimate[-1] == pytest.approx(log_f, abs=1e-4)


def test_the_interval_of_an_intraclass_correlation_is_that_of_fishers_z():
    """Intervals of the correlation contain 0.4 as often as those of Fisher's z contain z(0.4)."""
    design = DESIGNS["clusters, groups given"]
    table = simulate({"table": "clusters, groups given", "rows": 400}, 0).complete
    estimate, (low, high) = inference.analyse(design, [table] * 2)
    found = inference.prepare(design, table)(table)
    log_f, variance = found.estimate[-1], found.covariance[-1]
    three = np.array([estimate[1], low[1], high[1]])
    z = np.log((1 + 9 * three) / (1 - three))
    np.testing.assert_allclose(z[0], log_f)
    assert z[2] - z[1] == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.02)
    complete = inference.fit_complete(design, table)
    np.testing.assert_allclose(complete["estimate"], estimate)


def test_two_repetitions_differ_and_the_same_one_is_the_same_for_every_method():
    setting = {"table": "two levels", "rows": 50}
    pd.testing.assert_frame_equal(simulate(setting, 3).shown, simulate(setting, 3).shown)
    assert not simulate(setting, 3).complete["y"].equals(simulate(setting, 4).complete["y"])


@pytest.mark.parametrize("name", ["three levels, strong", "Poisson outcome"])
def test_without_missing_values_intervals_are_those_of_the_complete_table(name):
    task = inference.make_task({"table": name, "rows": 100, "repetitions": 4}, 1)
    assert [table.seed for table in task.tables] == [4, 5, 6, 7]
    scores = inference.score(lambda table, design: [table.complete] * 3, task)
    fits = [getattr(smf, task.design.model)(task.design.formula, t.complete).fit(disp=0) for t in task.tables]
    for coefficient, truth in task.design.truth.items():
        estimates = np.array([fit.params[coefficient] for fit in fits])
        inside = [low <= truth <= high for low, high in (fit.conf_int().loc[coefficient] for fit in fits)]
        assert scores[f"bias of {coefficient}"] == pytest.approx(estimates.mean() - truth)
        assert scores[f"variance of {coefficient}"] == pytest.approx(estimates.var(ddof=1))
        assert scores[f"coverage of {coefficient}"] == np.mean(inside)
        assert scores[f"width of {coefficient}"] == pytest.approx(1.0, abs=0.02)  # fewer degrees of freedom


FORMULAS = [name for name, design in DESIGNS.items() if design.model in ("ols", "poisson")]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_that_is_read_once_gives_what_pool_gives(name):
    design = DESIGNS[name]
    tables = [simulate({"table": name, "rows": 80}, one).complete for one in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)  # these tables were not imputed
        pooled = halfseen.pool(design.formula, tables, model=design.model)
    places = [pooled.names.index(one) for one in design.truth]
    estimates, ends = inference.analyse(design, tables)
    np.testing.assert_allclose(estimates, pooled.estimate[places], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ends, np.stack(pooled.interval(0.95))[:, places], rtol=1e-9, atol=1e-12)


def test_draws_are_those_of_the_public_call():
    table = simulate({"table": "two levels", "rows": 60}, 3)
    drawn = inference.draw_by_default(table, DESIGNS["two levels"])
    expected = halfseen.multiple_imputation(table.shown, n_draws=inference.N_DRAWS, random_state=3)
    for one, other in zip(drawn, expected, strict=True):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("name", inference.NORMAL_SCORES)
def test_the_true_model_is_fitted_with_missing_values_integrated_out(name):
    """Without missing values it is the analysis; with them its estimates are those of a fine grid's sums."""
    design = DESIGNS[name]
    table = simulate({"table": name, "rows": 150}, 0)
    complete = dataclasses.replace(table, shown=table.complete)
    found, expected = (
        inference.fit_true_model(complete, design),
        inference.fit_complete(design, table.complete),
    )
    np.testing.assert_allclose(found["estimate"], expected["estimate"], atol=1e-4)
    np.testing.assert_allclose(found["error"], expected["error"], rtol=0.02)  # n in place of n - 3
    few = inference.fit_true_model(table, design)
    assert (few["error"] > found["error"]).all()
    with pytest.MonkeyPatch.context() as patch:
        grid = np.linspace(-8, 8, 1001)
        patch.setattr(inference, "_NODES", grid)
        patch.setattr(inference, "_LOG_WEIGHTS", stats.norm.logpdf(grid) + np.log(grid[1] - grid[0]))
        np.testing.assert_allclose(few, inference.fit_true_model(table, design), rtol=1e-3)


def test_a_setting_with_new_tables_names_the_first_one():
    task = inference.make_task({"table": "two levels", "rows": 20, "repetitions": 2, "first": 100}, 3)
    assert [table.seed for table in task.tables] == [106, 107]
    cells = inference.EXPERIMENT.cells("paper")
    new = {cell.setting["table"] for cell in cells if "first" in cell.setting}
    assert new == set(inference.FRESH)


def test_complete_tables_are_analysed_as_they_are():
    task = inference.make_task({"table": "two levels", "rows": 60, "repetitions": 3}, 0)
    scores = inference.score(inference.analyse_complete, task)
    fits = [smf.ols(task.design.formula, table.complete).fit() for table in task.tables]
    assert scores["bias of z"] == pytest.approx(np.mean([fit.params["z"] for fit in fits]) - 0.5)
    assert scores["width of z"] == pytest.approx(1.0)


def test_every_score_of_every_setting_is_a_metric_and_every_claim_has_runs():
    for design in DESIGNS.values():
        for coefficient in design.truth:
            assert f"coverage of {coefficient}" in inference.EXPERIMENT.metrics
    settings = {(c.setting["table"], c.setting["rows"]) for c in inference.EXPERIMENT.cells("small")}
    claimed = {(claim.where["table"], claim.where["rows"]) for claim in inference.EXPERIMENT.claims}
    assert claimed <= settings
    assert {table for table, _ in settings - claimed} == {"interaction", "square"}


def test_results_of_r_are_summarised_by_coefficient(tmp_path, monkeypatch):
    monkeypatch.setattr(mice, "N_TABLES", 3)
    monkeypatch.setattr(mice, "SIZES", {"square": (50,)})
    mice.write_tables(tmp_path)
    [design] = pd.read_csv(tmp_path / "designs.csv").to_dict("records")
    assert design["formula"] == "y ~ x + I(x^2) + z"
    first = pd.read_csv(tmp_path / f"{design['name']}-0.csv")
    shown = simulate({"table": "square", "rows": 50}, 0).shown
    pd.testing.assert_frame_equal(first, shown)
    terms = {"(Intercept)": 0.0, "x": 0.6, "I(x^2)": 0.2, "z": 0.5}
    rows = [
        {"repetition": r, "term": t, "estimate": v + r, "low": v - 0.2, "high": v + 0.2, "seconds": 2.0 + r}
        for r in range(3)
        for t, v in terms.items()
    ]
    pd.DataFrame(rows).to_csv(tmp_path / f"{design['name']}-results.csv", index=False)
    (tmp_path / "versions.csv").write_text("R,mice\n4.2.2,3.15.0\n")
    mice.store(tmp_path, tmp_path / "stored.json")
    stored = json.loads((tmp_path / "stored.json").read_text())
    scores = stored["cells"][0]["scores"]
    assert scores["bias of I(x ** 2)"] == pytest.approx(0.2 + 1 - 0.5)
    assert scores["variance of x"] == pytest.approx(1.0)
    assert (scores["coverage of x"], scores["coverage of I(x ** 2)"], scores["CPU seconds"]) == (1, 0, 3)
    monkeypatch.setattr(inference, "MICE_FILE", tmp_path / "stored.json")
    number = inference.mice_number({"table": "square", "rows": 50}, inference.DEFAULT, "bias of z")
    assert (number.mean, number.label) == (pytest.approx(1.0), "mice 3.15.0, 3 tables")
    assert inference.mice_number({"table": "square", "rows": 50}, inference.JOINT, "bias of z") is None
    assert inference.mice_number({"table": "square", "rows": 51}, inference.DEFAULT, "bias of z") is None


@pytest.mark.slow
def test_clusters_are_completed_as_well_as_by_2l_pan():
    """Bias and variance of both coefficients over 25 tables beside the stored numbers of mice over 50."""
    name, n_tables = "clusters, groups given", 25
    stored = inference._read_mice(inference.MICE_FILE)[name, 400]
    task = inference.make_task({"table": name, "rows": 400, "repetitions": n_tables}, 0)
    found = inference.score(inference.draw_by_default, task)
    for coefficient in task.design.truth:
        theirs = stored["scores"]
        assert stored["repetitions"] == 50
        variance = found[f"variance of {coefficient}"] / n_tables + theirs[f"variance of {coefficient}"] / 50
        z = (found[f"bias of {coefficient}"] - theirs[f"bias of {coefficient}"]) / np.sqrt(variance)
        assert 2 * stats.norm.sf(abs(z)) > FAILURE_RATE
        ratio = found[f"variance of {coefficient}"] / theirs[f"variance of {coefficient}"]
        assert 2 * min(stats.f(24, 49).cdf(ratio), stats.f(24, 49).sf(ratio)) > FAILURE_RATE
        assert found[f"width of {coefficient}"] == pytest.approx(theirs[f"width of {coefficient}"], abs=0.05)


def test_cells_where_mice_is_better_are_listed_beyond_the_monte_carlo_error():
    def scores(bias, coverage):
        return {"bias of x": bias, "variance of x": 0.04, "coverage of x": coverage}

    own = {"biased": scores(0.1, 0.85), "fine": scores(0.02, 0.94), "ours": scores(0, 0.95)}
    summary = [
        {"setting": {"table": name, "rows": 300, "repetitions": 25}, "model": "default", "metric": metric,
         "mean": mean, "n_runs": 16, "n_failed": 0}
        for name, found in own.items()
        for metric, mean in found.items()
    ]  # fmt: skip
    theirs = {
        "biased": scores(0, 0.94),
        "fine": scores(0, 0.95),
        "ours": scores(-0.2, 0.5),
        "other": scores(0, 1),
    }
    cells = [
        {"table": name, "rows": 300, "repetitions": 100, "scores": found} for name, found in theirs.items()
    ]
    told = fill_tables._worse({"summary": summary}, {"cells": cells}, ["all"])
    assert told.splitlines()[2:] == [
        "| biased | 300 | `x` | bias / SD | +0.50 | +0.00 |",
        "| biased | 300 | `x` | coverage | 0.85 | 0.94 |",
        "",
        "3 coefficients were compared.",
    ]
    assert fill_tables._worse({"summary": summary}, {"cells": cells}, ["ours"]) == "None of 1 coefficients."


def test_commits_are_told_by_table_if_there_are_several():
    cells = [
        {"setting": {"table": table, "rows": 30}, "commit": commit}
        for table, commit in (("a", "1234567890"), ("b", "abcdefabcd"), ("c", "1234567890"))
    ]
    results = {"provenance": {"commit": "abcdefabcd"}, "cells": cells}
    told = fill_tables._commits_by_table(results, ["all"])
    assert told == "commit 1234567 (a (30 rows), c (30 rows)); commit abcdefa (b (30 rows))"
    assert fill_tables._commits_by_table(results, ["b"]) == "commit abcdefa"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["square", "clusters, groups given"])
def test_the_script_of_r_analyses_tables_without_and_with_groups(tmp_path, monkeypatch, name):
    if shutil.which("Rscript") is None:
        pytest.skip("needs R: Rscript was not found")
    asked = "cat(all(c('mice', 'pan') %in% rownames(installed.packages())))"
    if subprocess.run(["Rscript", "-e", asked], capture_output=True, text=True).stdout != "TRUE":
        pytest.skip("needs the packages mice and pan of R")
    monkeypatch.setattr(mice, "N_TABLES", 2)
    monkeypatch.setattr(mice, "N_DRAWS", 3)
    monkeypatch.setattr(mice, "SIZES", {name: (80,)})
    mice.write_tables(tmp_path)
    subprocess.run(["Rscript", mice.__file__.replace(".py", ".R"), str(tmp_path)], check=True, timeout=300)
    mice.store(tmp_path, tmp_path / "stored.json")
    [cell] = json.loads((tmp_path / "stored.json").read_text())["cells"]
    assert (cell["table"], cell["repetitions"]) == (name, 2)
    assert all(abs(cell["scores"][f"bias of {one}"]) < 1 for one in DESIGNS[name].truth)
