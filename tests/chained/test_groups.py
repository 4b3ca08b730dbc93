"""ChainedImputer with groups: repeated rows, columns that are constant within groups, new groups, errors."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats
from tolerances import FAILURE_RATE

import halfseen
from halfseen.chained.imputer import ChainedImputer
from halfseen.cli.main import main

ICC = 0.4
TRUE_MEAN = 1.5  # of the last of four waves


def panel(seed, n_people=300, n_waves=4, *, as_text=False):
    """People are seen in four waves, and drop out after low values; their ages are known or not."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.sqrt(ICC) * rng.normal(size=n_people), n_waves)
    wave = np.tile(np.arange(n_waves), n_people)
    y = person + 0.5 * wave + np.sqrt(1 - ICC) * rng.normal(size=len(wave))
    name = np.repeat(1000 + rng.permutation(n_people), n_waves)
    age = np.repeat(rng.normal(40, 10, n_people), n_waves) + 0.0
    smokes = np.where(person + rng.normal(size=len(wave)) > 0, "yes", "no").astype(object)
    table = pd.DataFrame({"id": name, "wave": wave, "age": age, "y": y, "smokes": smokes})
    values, gone = y.reshape(n_people, n_waves), np.zeros(n_people, bool)
    for k in range(1, n_waves):
        gone |= rng.random(n_people) < 1 / (1 + np.exp(1.5 + 1.5 * (values[:, k - 1] - 0.5 * (k - 1))))
        table.loc[np.flatnonzero(gone) * n_waves + k, "y"] = np.nan
    table.loc[np.repeat(rng.random(n_people) < 0.2, n_waves), "age"] = np.nan
    table.loc[rng.random(len(table)) < 0.2, "smokes"] = None
    return table.assign(id="p" + table["id"].astype(str)) if as_text else table


@pytest.fixture(scope="module")
def table():
    return panel(0, 60, as_text=True)


@pytest.fixture(scope="module")
def fitted(table):
    return ChainedImputer(3, groups="id", random_state=0).fit(table)


def test_a_column_that_is_constant_within_groups_is_drawn_once_for_each_group(table, fitted):
    for drawn in fitted.sample(table, n_draws=3):
        assert (drawn.groupby("id")["age"].nunique() == 1).all()
        assert drawn.notna().all().all()


def test_a_cell_that_is_known_from_another_row_of_its_group_is_not_drawn(table):
    known = table["age"].notna() & (table["wave"] == 2)
    shown = table.assign(age=table["age"].mask(known))
    imputer = ChainedImputer(2, groups="id", random_state=0).fit(shown)
    for completed in (*imputer.sample(shown, n_draws=2), imputer.transform(shown)):
        np.testing.assert_allclose(completed.loc[known, "age"], table.loc[known, "age"], rtol=1e-9)


def test_rows_of_known_groups_use_the_effect_of_their_group(table, fitted):
    """People with high observed values have high imputed values, whatever is known in the row itself."""
    mean = table.groupby("id")["y"].mean()
    low, high = mean.idxmin(), mean.idxmax()
    new = pd.DataFrame({"id": [low, high], "wave": [3, 3], "age": [40.0, 40.0], "y": np.nan, "smokes": "no"})
    completed = fitted.transform(new)
    assert completed["y"][1] > completed["y"][0] + 0.5


def test_new_rows_are_completed_as_those_of_fit_and_do_not_depend_on_each_other(table, fitted):
    together, alone = fitted.sample(table, n_draws=2), fitted.sample(table.iloc[40:44], n_draws=2)
    for one, other in zip(together, alone, strict=True):
        pd.testing.assert_frame_equal(one.iloc[40:44], other)


def test_rows_of_one_new_group_share_its_effect_and_other_new_groups_have_others(fitted):
    rows = pd.DataFrame({
        "id": ["new", "new", "other", None], "wave": 1, "age": 40.0, "y": np.nan, "smokes": "no"
    })  # fmt: skip
    chain, rest = fitted.model_._split(fitted._read(rows, reset=False).codes)
    groups = chain.groups.of_rows
    assert int(groups[0]) == int(groups[1]) < -1
    assert int(groups[2]) not in (int(groups[0]), -1)
    assert int(groups[3]) == -1
    keys = np.arange(8, dtype=np.uint64).reshape(2, 4)
    position = [column.name for column in fitted._within].index("y")
    effects = chain.parameters[position].effects.of([0, 1])
    cells = rest.x.expand(2, -1, -1)
    added, variance = chain.groups.added(position, effects, torch.arange(4), cells, keys)
    assert (added[:, 0] == added[:, 1]).all()
    assert not (added[:, 0] == added[:, 2]).any()
    assert not variance.any()


def test_point_imputations_of_new_groups_average_their_effects(fitted):
    rows = pd.DataFrame({"id": ["a", "b"], "wave": 1, "age": 40.0, "y": np.nan, "smokes": "no"})
    completed = fitted.transform(rows)["y"]
    assert completed[0] == completed[1]
    known = rows.assign(id=[*fitted.schema_.columns[0].levels[:2]])
    widths = [np.subtract(*(end["y"] for end in fitted.interval(one)))[0] for one in (rows, known)]
    assert widths[0] < widths[1] < 0  # lower minus upper ends


def test_groups_are_never_imputed_and_stay_as_they_are(table, fitted):
    rows = table.head(4).assign(id=[None, "p1", "someone", table["id"][0]])
    pd.testing.assert_series_equal(fitted.transform(rows)["id"], rows["id"])


def test_models_with_groups_can_be_saved(table, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    rows = table.head(12).assign(id=[*table["id"][:8], "x", "x", "y", None])
    for one, other in zip(fitted.sample(rows, 3), loaded.sample(rows, 3), strict=True):
        pd.testing.assert_frame_equal(one, other)
    pd.testing.assert_frame_equal(fitted.transform(rows), loaded.transform(rows))


def test_slopes_vary_between_groups(table, tmp_path):
    imputer = ChainedImputer(2, groups="id", slopes="wave", random_state=0).fit(table)
    position = [column.name for column in imputer._within].index("y")
    assert imputer.model_.chain.parameters[position].effects.values.shape == (2, 1, 60, 2)
    imputer.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model").sample(table, 1)[0]
    pd.testing.assert_frame_equal(again, imputer.sample(table, 1)[0])


def test_other_libraries_have_the_same_draws(table, fitted):
    drawn = fitted.sample(pl.from_pandas(table), 1)[0]
    np.testing.assert_array_equal(drawn["y"].to_numpy(), fitted.sample(table, 1)[0]["y"])


def test_class_probabilities_add_up_to_one(table, fitted):
    for shares in fitted.class_probabilities(table.head(5)).values():
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)


def test_declared_groups_are_not_announced_as_dependent_rows(table, recwarn):
    tables = halfseen.multiple_imputation(table, n_draws=2, groups="id", random_state=0)
    assert not [str(w.message) for w in recwarn if "independent" in str(w.message)]
    assert tables.reservations == ()


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"groups": "person"}, "groups must be the name of a column, got 'person', which is not in"),
        ({}, {"groups": 0}, "groups must be the name of a column, got 0"),
        ({}, {"groups": "id", "slopes": "time"}, "slopes must be the name of a column, got 'time'"),
        ({}, {"slopes": "wave"}, "slopes='wave' needs groups"),
        ({"id": "a"}, {"groups": "id"}, "Column 'id' groups rows, but all rows have one value"),
        (
            {"id": [None, *"ab" * 119, "a"]},
            {"groups": "id"},
            "Column 'id' groups rows, but is missing in row 0",
        ),
        (
            {"id": range(240)},
            {"groups": "id"},
            "Column 'id' groups rows, but each row has a value of its own",
        ),
        ({}, {"groups": "id", "slopes": "smokes"}, "Column 'smokes', whose slopes vary .* must be a number"),
        (
            {},
            {"groups": "id", "slopes": "y"},
            "Column 'y', whose slopes vary between groups, is missing in row",
        ),
        ({}, {"groups": "id", "predictors": {"y": ["id"]}}, "predictors refers to column 'id'"),
    ],
)
def test_wrong_groups_are_named(table, change, options, message):
    with pytest.raises(ValueError, match=message):
        ChainedImputer(2, **options).fit(table.assign(**change))


def test_slopes_by_a_column_that_is_constant_within_groups_are_refused(table):
    constant = table.assign(age=table["age"].fillna(30.0))
    with pytest.raises(ValueError, match="Column 'age' does not vary within the groups of 'id'"):
        ChainedImputer(2, groups="id", slopes="age").fit(constant)


def test_groups_need_a_chained_imputer(table):
    with pytest.raises(ValueError, match="groups= is a parameter of ChainedImputer, got GaussianImputer"):
        halfseen.multiple_imputation(table, halfseen.GaussianImputer(), groups="id")


@pytest.mark.slow
def test_the_command_line_has_groups(table, tmp_path, capsys):
    table.to_csv(tmp_path / "in.csv", index=False)
    source, out = str(tmp_path / "in.csv"), str(tmp_path / "out.csv")
    assert main(["impute", source, "-o", out, "--draws", "2", "--groups", "id", "-q"]) == 0
    drawn = pd.read_csv(out)
    assert len(drawn) == 2 * len(table)
    assert drawn["y"].notna().all()
    assert (drawn.groupby([drawn.columns[0], "id"])["age"].nunique() == 1).all()
    assert main(["impute", source, "-o", out, "--groups", "id", "--method", "trees", "-q"]) == 2
    assert "--groups: belongs to the method chained alone" in capsys.readouterr().err


def intraclass(table):
    """The intraclass correlation of y, given the wave, by analysis of variance."""
    groups = (table["y"] - table.groupby("wave")["y"].transform("mean")).groupby(table["id"])
    between, within = groups.mean().var() * 4, groups.var().mean()
    return (between - within) / (between + 3 * within)


@pytest.mark.slow
@pytest.mark.parametrize("slopes", [None, "wave"])
def test_means_and_intraclass_correlations_of_repeated_measurements_are_recovered(slopes):
    """Over 20 panels of 300 people with numeric codes, who drop out after low values."""
    means, correlations = [], []
    for seed in range(20):
        shown = panel(seed).drop(columns="smokes")
        tables = halfseen.multiple_imputation(shown, n_draws=5, groups="id", slopes=slopes, random_state=seed)
        means.append(np.mean([one.loc[one["wave"] == 3, "y"].mean() for one in tables]))
        correlations.append(np.mean([intraclass(one) for one in tables]))
    for found, truth, allowed in ((means, TRUE_MEAN, 0.03), (correlations, ICC, 0.03)):
        error = max(0.0, abs(np.mean(found) - truth) - allowed)
        assert 2 * stats.norm.sf(error / (np.std(found, ddof=1) / 20**0.5)) > FAILURE_RATE
    assert np.std(means) < 0.12  # no panel is far off


def _clustered(seed, n_groups=50, size=8):
    """The outcome has an interaction and effects of groups; the covariate is missing through the outcome."""
    rng = np.random.default_rng(seed)
    group, n = np.repeat(np.arange(n_groups), size), n_groups * size
    z = rng.normal(size=n)
    x = 0.5 * z + 0.7 * rng.normal(size=n_groups)[group] + rng.normal(size=n)
    y = 1 + x + 0.5 * z + 0.7 * x * z + rng.normal(size=n_groups)[group] + rng.normal(size=n)
    table = pd.DataFrame({"site": 100 + group, "x": x, "z": z, "y": y})
    table.loc[rng.random(n) < 0.8 / (1 + np.exp(1 - y)), "x"] = np.nan
    table.loc[rng.random(n) < 0.1, "y"] = np.nan
    return table


@pytest.fixture(scope="module")
def clustered():
    return _clustered(0)


@pytest.fixture(scope="module")
def compatible(clustered):
    return ChainedImputer(3, groups="site", analysis="y ~ x * z", random_state=0).fit(clustered)


def test_an_analysis_of_clusters_is_unbiased_if_draws_know_its_groups():
    """Without the analysis, the interaction is halved; without the groups, the effect of x is too small."""
    smf = pytest.importorskip("statsmodels.formula.api")
    estimates = []
    for seed in range(4):
        table = _clustered(seed)
        drawn = halfseen.multiple_imputation(
            table, n_draws=3, groups="site", analysis="y ~ x * z", random_state=seed
        )
        fits = [smf.mixedlm("y ~ x * z", one, groups=one["site"]).fit() for one in drawn]
        estimates.append(np.mean([fit.params[["x", "x:z"]] for fit in fits], axis=0))
    estimates = np.array(estimates)
    error = estimates.std(axis=0, ddof=1) / 2
    p = 2 * stats.t(3).sf(np.abs(estimates.mean(axis=0) - [1.0, 0.7]) / error)
    assert (p > FAILURE_RATE).all()
    assert (np.abs(estimates.mean(axis=0) - [1.0, 0.7]) < 0.1).all()


def test_effects_on_the_outcome_are_those_of_the_mixed_model(clustered, compatible):
    effects = compatible.model_.chain.outcome.effects
    assert effects.values.shape == (3, 1, 50, 1)
    own = clustered.dropna()
    residual = own["y"] - 1 - own["x"] - 0.5 * own["z"] - 0.7 * own["x"] * own["z"]
    means = residual.groupby(own["site"]).mean().reindex(range(100, 150))
    drawn = effects.values[:, 0, :, 0].mean(dim=0).numpy()
    assert np.corrcoef(drawn[means.notna()], means.dropna())[0, 1] > 0.7
    assert 0.3 < float(effects.covariance.mean()) < 3.0


def test_models_of_an_analysis_of_groups_can_be_saved_and_complete_new_groups(
    clustered, compatible, tmp_path
):
    compatible.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model")
    new = clustered.head(40).assign(site=900)
    for table in (clustered, new):
        for one, other in zip(again.sample(table, 2), compatible.sample(table, 2), strict=True):
            pd.testing.assert_frame_equal(one, other)
    part = compatible.sample(clustered[80:160], 2, row_ids=np.arange(80, 160))[1]
    whole = compatible.sample(clustered, 2, row_ids=np.arange(400))[1]
    pd.testing.assert_frame_equal(part, whole[80:160])
    assert not compatible.transform(clustered).isna().any().any()


@pytest.mark.parametrize(
    ("analysis", "why"),
    [
        ("Surv(time, event) ~ x", "the Cox model of its outcome has no effects of groups"),
        ("y ~ x * age", "column 'age' is constant within groups and has missing values"),
    ],
)
def test_analyses_that_cannot_have_effects_of_groups_are_explained(clustered, analysis, why):
    rng = np.random.default_rng(0)
    age = np.where(rng.random(400) < 0.2, np.nan, rng.normal(size=50).repeat(8))
    times = {"time": rng.exponential(size=400), "event": rng.integers(0, 2, 400)}
    table = clustered.assign(age=age, **(times if "event" in analysis else {}))
    with pytest.raises(ValueError, match=f"cannot be combined with groups, because {why}.* add C"):
        ChainedImputer(2, groups="site", analysis=analysis, n_cycles=1).fit(table)
