"""Chained trees: what they add to the Gaussian, honest distributions, and parameters."""

import numpy as np
import pandas as pd
import pytest
import torch

import halfseen
from halfseen import GaussianImputer, TreeImputer
from halfseen.data.incomplete import Incomplete
from halfseen.trees.fitting import HeldOut, _choose_predictors, _Examples, _fit_numbers, find_windows


def product(n_rows, seed, noise=0.1):
    """The third column is the product of the first two, with noise that grows with the first."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    X[:, 2] = X[:, 0] * X[:, 1] + noise * (1.2 + X[:, 0]) * rng.normal(size=n_rows)
    return X


@pytest.fixture(scope="module")
def imputer():
    X = product(1500, 0)
    X[np.random.default_rng(1).random(X.shape) < 0.15] = np.nan
    return TreeImputer(random_state=0).fit(X)


@pytest.fixture(scope="module")
def new():
    return product(3000, 2)


def test_an_interaction_is_imputed_that_a_gaussian_cannot_see(imputer, new):
    holes = np.where([False, False, True], np.nan, new)
    error = imputer.transform(holes)[:, 2] - new[:, 2]
    gaussian = GaussianImputer().fit(new).transform(holes)[:, 2] - new[:, 2]
    assert np.sqrt((error**2).mean()) < 0.5 * np.sqrt((gaussian**2).mean())


def test_intervals_hold_their_probability_where_the_noise_is_small_and_where_it_is_large(imputer, new):
    low, high = imputer.interval(np.where([False, False, True], np.nan, new), level=0.9)
    inside = (low[:, 2] <= new[:, 2]) & (new[:, 2] <= high[:, 2])
    for part in (new[:, 0] < 0, new[:, 0] >= 0):
        assert 0.85 < inside[part].mean() < 0.97
    width = high[:, 2] - low[:, 2]
    assert width[new[:, 0] > 0.5].mean() > 1.5 * width[new[:, 0] < -0.5].mean()


def test_missing_numbers_of_a_row_are_drawn_together():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(400, 1))
    X = common + 0.1 * rng.normal(size=(400, 3))
    draws = TreeImputer(random_state=0).fit(X).sample(np.full((300, 3), np.nan))[0]
    assert np.corrcoef(draws.T)[0, 1] > 0.9


def near_copy(noise, n_rows=600):
    """The second column is a copy of the first with noise, partly missing; the third has five ratings."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    X[:, 1] = X[:, 0] + noise * X[:, 1]
    X[:, 2] = np.clip(np.round(3 + 0.7 * X[:, 0] + X[:, 2]), 1, 5)
    X[: n_rows // 5, 1] = np.nan
    return X


def test_a_near_copy_beside_a_coarse_column_is_drawn_with_its_residual_spread(tmp_path):
    """Its cells are hidden with and without the other column, so that errors differ by a factor of 1,000."""
    noise = 1e-3
    X = near_copy(noise)
    imputer = TreeImputer(random_state=0).fit(X)
    draws = imputer.sample(X, n_draws=10)
    missing = np.isnan(X[:, 1])
    assert 0.8 < (draws[:, missing, 1] - X[missing, 0]).std() / noise < 1.3
    assert imputer.model_.rounds[-1][1].relative
    imputer.save(tmp_path / "model.halfseen")
    np.testing.assert_array_equal(halfseen.load(tmp_path / "model.halfseen").sample(X, n_draws=10), draws)


def test_units_of_corrections_are_those_that_predict_held_out_values_better():
    """Errors of a Gaussian that are as large where it is sure as elsewhere are not measured by its spread."""
    inputs = np.zeros((600, 4))
    inputs[:, -1] = np.where(np.arange(600) % 2, 1e-3, 1.0)
    error = np.random.default_rng(0).normal(size=600)
    settings = TreeImputer()._settings()
    for target, relative in ((error, False), (error * inputs[:, -1], True)):
        fold = np.arange(600) // 2 % 3
        examples = _Examples(0, 1.0, np.array([1]), inputs, target, target, fold, [])
        assert _fit_numbers(examples, settings, is_last=True).head.relative == relative


def test_probabilities_of_levels_use_an_interaction():
    X = product(800, 0)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "sign": np.where(X[:, 2] > 0, "plus", "minus")})
    fitted = TreeImputer(random_state=0).fit(frame)
    rows = pd.DataFrame({"a": [0.7, 0.7], "b": [0.7, -0.7], "sign": [None, None]}, dtype=object)
    rows = rows.astype({"a": float, "b": float})
    assert fitted.transform(rows)["sign"].tolist() == ["plus", "minus"]
    assert fitted.class_probabilities(rows)["sign"].max(axis=1).min() > 0.8


@pytest.mark.parametrize("matching", [True, "auto"])
def test_matched_draws_are_observed_values(matching):
    rng = np.random.default_rng(0)
    first = rng.normal(size=300)
    counts = np.where(first > 0, rng.poisson(4 + 2 * np.abs(first)), 0).astype(float)
    X = np.column_stack([first, counts * 1.5, rng.normal(size=300)])
    draws = TreeImputer(1, matching=matching, random_state=0).fit(X).sample(np.full((200, 3), np.nan))[0]
    assert set(draws[:, 1]) <= set(X[:, 1])
    assert set(draws[:, 0]) <= set(X[:, 0]) or matching == "auto"
    assert len(set(draws[:, 2])) > 100 or matching is True


def test_without_rounds_it_is_a_gaussian_imputer():
    X = product(200, 0)
    X[::5, 2] = np.nan
    trees, gaussian = TreeImputer(0, random_state=0).fit(X), GaussianImputer(random_state=0).fit(X)
    np.testing.assert_allclose(trees.transform(X), gaussian.transform(X), rtol=1e-9)
    for one, other in zip(trees.interval(X), gaussian.interval(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_resamples_for_multiple_imputation_repeat_no_row():
    """A repeated row could be both grown on and held out, and residuals would be too small."""
    X = product(120, 0)
    X[::4, 2] = np.nan
    tables = halfseen.multiple_imputation(X, TreeImputer(1, max_trees=2), n_draws=2, random_state=0)
    assert tables.reservations == ()
    assert not np.array_equal(tables[0], tables[1])
    with pytest.raises(AttributeError, match="'BootstrapImputer' has no attribute 'score_samples'"):
        tables.imputer.score_samples(X)
    rows = tables.imputer._resample(Incomplete.from_array(X), np.random.default_rng(0))
    assert len(set(rows)) == len(rows) == 60


def test_wide_tables_use_the_columns_that_correlate_most():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 12))
    X[:, 7] = X[:, 0] + 0.1 * rng.normal(size=200)
    fitted = TreeImputer(1, max_trees=2, max_predictors=3, random_state=0).fit(X)
    heads = fitted.model_.rounds[0]
    assert all(len(head.predictors) == 3 for head in heads.values())
    assert 7 in heads[0].predictors
    assert 0 in heads[7].predictors
    assert _choose_predictors(fitted.model_, 0, 40).tolist() == list(range(1, 12))


def incomes(n_rows=250, seed=0):
    """Income follows from age and job; height goes with income but is not to predict it, nor the job."""
    rng = np.random.default_rng(seed)
    age, job = rng.uniform(20, 60, n_rows), rng.choice(["a", "b", "c"], n_rows)
    income = age + 10 * (job == "b") + rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {"age": age, "job": job, "height": income + rng.normal(size=n_rows), "income": income}
    )
    frame["few"] = np.where(np.arange(n_rows) < 30, income, np.nan)  # too few values for trees
    return frame


LIMITS = {"income": ["age", "job"], "job": ["age"], "few": ["age"]}


def test_a_column_outside_the_predictors_has_no_influence_on_what_is_filled(tmp_path):
    table = incomes()
    for name in ("income", "job"):
        table[name] = table[name].where(np.random.default_rng(1).random(len(table)) > 0.2)
    imputer = TreeImputer(max_trees=4, predictors=LIMITS, random_state=0).fit(table)
    free = TreeImputer(n_rounds=1, max_trees=1, random_state=0).fit(table)
    asked = incomes(60, 2).assign(income=np.nan, few=np.nan)
    other = asked.assign(height=np.random.default_rng(3).permutation(asked["height"]))
    other.loc[::3, "height"] = np.nan
    unlabelled, relabelled = asked.assign(job=None), other.assign(job=None)
    imputer.save(tmp_path / "model")
    for one in (imputer, halfseen.load(tmp_path / "model")):
        for name in ("income", "few"):
            np.testing.assert_array_equal(one.transform(asked)[name], one.transform(other)[name])
            for end, another in zip(one.interval(asked), one.interval(other), strict=True):
                np.testing.assert_array_equal(end[name], another[name])
        levels = [one.class_probabilities(table)["job"] for table in (unlabelled, relabelled)]
        np.testing.assert_array_equal(*levels)
    assert (free.transform(asked)["income"] != free.transform(other)["income"]).all()
    error = imputer.transform(asked)["income"] - incomes(60, 2)["income"]
    assert error.std() < 2.5  # about 1 is possible, and the standard deviation of income is 12
    drawn = np.array([draw["few"] for draw in imputer.sample(asked, 30)])
    low, high = imputer.interval(asked, 0.9)
    assert 0.8 < ((low["few"].to_numpy() <= drawn) & (drawn <= high["few"].to_numpy())).mean() < 0.98


@pytest.mark.parametrize(
    ("predictors", "message"),
    [
        ({"wage": ["age"]}, "predictors refers to column 'wage', which is not in the table"),
        ({"income": ["wage"]}, "predictors refers to column 'wage', which is not in the table"),
        ({"income": "age"}, "The predictors of column 'income' must be a list of names, got 'age'"),
        ({"income": ["age", "income"]}, "Column 'income' cannot predict itself"),
        ({"income": ["same"]}, r"predictors refers to column 'same', which is not modelled \(constant\)"),
        (["age"], r"predictors must be a dict of lists of column names, got \['age'\]"),
    ],
)
def test_predictors_that_the_table_does_not_have_are_refused(predictors, message):
    with pytest.raises(ValueError, match=message):
        TreeImputer(predictors=predictors).fit(incomes(50).assign(same=1.0))


def test_trees_are_grown_on_at_most_so_many_rows():
    X = product(400, 0)
    few = TreeImputer(1, max_trees=2, max_rows=30, random_state=0).fit(X)
    assert few.model_.rounds == ()  # too few for any tree
    assert np.isfinite(few.transform([[0.1, np.nan, np.nan]])).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_leaf_nodes": 65}, "max_leaf_nodes must be at most 64, got 65"),
        ({"max_leaf_nodes": 1}, "max_leaf_nodes must be at least 2, got 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and at most 1, got 0.0"),
        ({"matching": "values"}, "matching must be 'auto', True or False, got 'values'"),
        ({"n_rounds": -1}, "n_rounds must be at least 0, got -1"),
        ({"max_rows": 1.5}, "max_rows must be a whole number of at least 1, got 1.5"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TreeImputer(**settings).fit(product(50, 0))


def test_a_file_whose_trees_ask_for_columns_that_there_are_not_is_refused(imputer, tmp_path):
    state = imputer._state()
    imputer.save(tmp_path / "model")
    assert halfseen.load(tmp_path / "model").model_.rounds[1][2].predictors.tolist() == [0, 1]
    numbers = "head.1.0.numbers"  # of which files of earlier versions had four
    assert not imputer._model_from_state(state | {numbers: state[numbers][:4]}).rounds[1][0].relative
    for name, change, message in (
        (numbers, lambda t: t[:3], "does not fit together"),
        ("trees.feature", lambda t: torch.where(t > 0, t + 9, t), "more inputs than there are"),
        ("head.0.2.predictors", lambda t: t + 7, "no columns"),
        ("head.1.0.atoms", lambda t: t[1:], "does not fit together"),
        ("n_trees", lambda t: t + 1, "not those of the columns"),
        ("rounds", lambda t: t + 5, "out of order"),
        ("scale", lambda t: t * 0, "do not fit the columns"),
    ):
        with pytest.raises(ValueError, match=message):
            imputer._model_from_state(state | {name: change(state[name])})


def test_distributions_are_those_that_predict_held_out_values_best():
    """Designed values around a precise prediction are moved to them; a spike far from the rest is matched."""
    rng = np.random.default_rng(0)
    n_cells, fold = 600, np.arange(600) % 3
    location, spread = rng.uniform(0, 9, size=n_cells), np.full(n_cells, 0.4)
    noisy = location + spread * rng.normal(size=n_cells)
    designed = find_windows(HeldOut(location, spread, 2.0 * np.round(noisy), fold, 2.0), None)
    assert not designed.matched
    np.testing.assert_array_equal(designed.values, np.unique(2.0 * np.round(noisy)))
    said = designed.quantiles(np.array([3.0]), np.array([0.4]), np.array([[0.01], [0.5], [0.99]]), 2.0)
    assert said[:, 0].tolist() == [4.0, 6.0, 8.0]
    spiked = np.where(rng.random(n_cells) < 0.5, -40.0, rng.uniform(0, 9, size=n_cells))
    assert find_windows(HeldOut(location, np.full(n_cells, 20.0), spiked, fold, 1.0), None).matched
    plain = find_windows(HeldOut(location, spread, noisy, fold, 1.0), None)
    assert not plain.matched
    assert not len(plain.values)
