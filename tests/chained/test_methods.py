"""Methods of single columns: predictive mean matching, trees, and functions of the user."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor
from tolerances import FAILURE_RATE

import halfseen
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.methods import LEAF_ROWS, N_DONORS, LeafDonors, MeanDonors, grow_number_tree


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=300), rng.choice(["a", "b", "c"], 300)
    smoker = np.where(x + (group == "b") + rng.normal(size=300) > 0, "yes", "no")
    income = np.exp(x + (smoker == "yes") + 0.5 * rng.normal(size=300))
    frame = pd.DataFrame({"x": x, "group": group, "smoker": smoker, "income": income})
    return frame.mask(rng.random(frame.shape) < 0.2)


@pytest.fixture(scope="module")
def fitted(table):
    methods = {"smoker": "trees", "income": "pmm", "group": "trees", "x": "regression"}
    return ChainedImputer(3, n_cycles=3, methods=methods, random_state=0).fit(table)


def _lines(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), rng.normal(size=(n_rows, 2))])
    return X, X @ [1.0, 2.0, -1.0] + rng.normal(size=n_rows)


def test_donors_are_the_observed_values_with_the_nearest_predicted_means():
    X, y = _lines()
    model = MeanDonors.fit(X, y, np.random.default_rng(1))
    new = _lines(50, seed=2)[0] * 3  # some are beyond all donors
    means = X @ LinearRegression(fit_intercept=False).fit(X, y).coef_
    apart = np.abs(means - (new @ model.coefficients)[:, None])
    nearest = np.sort(y[np.argsort(apart, axis=1)[:, :N_DONORS]], axis=1)
    drawn = [model(new, np.full(50, u)) for u in (np.arange(N_DONORS) + 0.5) / N_DONORS]
    np.testing.assert_array_equal(np.sort(drawn, axis=0).T, nearest)


def test_donors_with_equal_means_are_equally_probable():
    X = np.column_stack([np.ones(60), np.repeat([0.0, 1.0], 30)])
    y = np.arange(60.0)
    model = MeanDonors.fit(X, y, np.random.default_rng(0))
    drawn = model(np.repeat(X[:1], 30, axis=0), (np.arange(30) + 0.5) / 30)
    assert sorted(drawn) == list(range(30))


def test_few_donors_are_all_used():
    model = MeanDonors(np.array([1.0]), np.array([0.0, 1.0]), np.array([5.0, 7.0]))
    drawn = model(np.array([[-9.0], [0.4], [9.0]]), np.array([0.1, 0.9, 0.99]))
    assert drawn.tolist() == [5.0, 7.0, 7.0]


def test_coefficients_of_matching_have_their_posterior_distribution():
    X, y = _lines()
    fit = np.linalg.lstsq(X, y, rcond=None)[0]
    variance = ((y - X @ fit) ** 2).sum() / 197 * np.linalg.inv(X.T @ X)[1, 1]
    drawn = [MeanDonors.fit(X, y, np.random.default_rng(s)).coefficients[1] for s in range(400)]
    scaled = (np.array(drawn) - fit[1]) / np.sqrt(variance)
    assert stats.kstest(scaled, stats.t(197).cdf).pvalue > FAILURE_RATE


def test_rows_reach_the_leaves_of_scikit_learn_and_get_the_values_in_them():
    X, y = _lines()
    model = LeafDonors.fit(X, y, np.random.default_rng(3), levels=False)
    rng = np.random.default_rng(3)
    rows = rng.integers(200, size=200)
    tree = DecisionTreeRegressor(min_samples_leaf=LEAF_ROWS, random_state=int(rng.integers(2**31)))
    tree.fit(X[rows], y[rows])
    new = _lines(50, seed=4)[0]
    leaves, own = tree.apply(new), tree.apply(X[rows])
    low, high = model(new, np.zeros(50)), model(new, np.full(50, 1 - 1e-12))
    for i, leaf in enumerate(leaves):
        inside = y[rows][own == leaf]
        assert (low[i], high[i]) == (inside.min(), inside.max())


def test_donors_give_observed_values_only(table, fitted):
    for completed in fitted.sample(table, 3):
        for name in ("group", "smoker", "income"):
            assert set(completed[name]) <= set(table[name].dropna())
        assert not set(completed["x"]) <= set(table["x"].dropna())


def test_a_row_has_the_same_draws_whatever_is_drawn_with_it(table, fitted):
    whole = fitted.sample(table, 3, row_ids=np.arange(300))
    part = fitted.sample(table[100:150], 3, row_ids=np.arange(100, 150))
    for one, other in zip(whole, part, strict=True):
        pd.testing.assert_frame_equal(one[100:150], other)


def test_models_with_methods_can_be_saved(table, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model")
    assert again.methods == fitted.methods
    for one, other in zip(again.sample(table, 2), fitted.sample(table, 2), strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_points_and_probabilities_are_those_of_the_draws(table, fitted):
    completed, missing = fitted.transform(table), table["income"].isna()
    drawn = np.mean([one["income"][missing] for one in fitted.sample(table, 60)], axis=0)
    assert np.corrcoef(np.log(completed["income"][missing]), np.log(drawn))[0, 1] > 0.9
    np.testing.assert_allclose(fitted.class_probabilities(table)["smoker"].sum(axis=1), 1.0)


def test_trees_find_an_interaction_that_main_effects_miss():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 600))
    table = pd.DataFrame({"x": x, "z": z, "y": 2.0 * (x > 0) * (z > 0) + 0.3 * rng.normal(size=600)})
    table.loc[rng.random(600) < 0.4, "y"] = np.nan
    missing, truth = table["y"].isna(), 2.0 * (x > 0) * (z > 0)
    errors = {}
    for method in ("regression", "trees"):
        imputer = ChainedImputer(5, methods={"y": method}, random_state=0).fit(table)
        errors[method] = np.abs(imputer.transform(table)["y"] - truth)[missing].mean()
    assert errors["trees"] < 0.5 * errors["regression"]


def test_trees_of_whole_numbers_are_regression_trees(table):
    counts = table.assign(few=np.random.default_rng(0).integers(0, 4, 300).astype(float))
    counts.loc[:50, "few"] = np.nan
    imputer = ChainedImputer(2, n_cycles=1, methods={"few": "trees"}, random_state=0).fit(counts)
    assert set(imputer.sample(counts)[0]["few"]) <= {0.0, 1.0, 2.0, 3.0}
    X, y = _lines(30)
    assert isinstance(grow_number_tree(X, y, np.random.default_rng(0)), LeafDonors)


def test_a_function_gets_inputs_values_and_a_generator(table):
    seen = []

    def resampled_line(X, y, rng):
        assert (X[:, 0] == 1).all()
        assert isinstance(rng, np.random.Generator)
        seen.append((len(X), np.sort(y)))
        rows = rng.integers(len(y), size=len(y))
        model = LinearRegression().fit(X[rows], y[rows])
        residual = np.sort(y[rows] - model.predict(X[rows]))
        return lambda new, uniforms: model.predict(new) + np.quantile(residual, uniforms)

    imputer = ChainedImputer(2, n_cycles=2, methods={"x": resampled_line}, random_state=0).fit(table)
    known = np.sort(table["x"].dropna())
    assert len(seen) == 4
    assert all(n == len(known) and np.array_equal(y, known) for n, y in seen)
    pd.testing.assert_frame_equal(imputer.sample(table, 2)[1], imputer.sample(table, 2)[1])
    pooled = halfseen.pool("x ~ C(smoker)", imputer.sample(table, 2))
    assert abs(pooled.estimate[1] - halfseen.pool("x ~ C(smoker)", [table.dropna()] * 2).estimate[1]) < 0.3


def test_a_function_cannot_be_stored_and_its_answers_are_checked(table, tmp_path):
    def nothing(X, y, rng):
        return lambda new, uniforms: np.full(len(new), np.nan)

    with pytest.raises(ValueError, match="The method of column 'x' must draw one number for each of"):
        ChainedImputer(2, methods={"x": nothing}).fit(table)
    imputer = ChainedImputer(
        2, n_cycles=1, methods={"x": lambda X, y, rng: lambda new, uniforms: uniforms}, random_state=0
    ).fit(table)
    with pytest.raises(ValueError, match="A model file cannot store methods that are functions"):
        imputer.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "pmm"}, "methods must be a dict of column names to methods, got 'pmm'"),
        ({"methods": {"age": "pmm"}}, "methods refers to column 'age', which is not a modelled column"),
        ({"methods": {"x": "forest"}}, "must be one of regression, pmm, trees or a function, got 'forest'"),
        ({"methods": {"group": "pmm"}}, "Column 'group' has levels, and predictive mean matching"),
        (
            {"methods": {"x": "pmm"}, "analysis": "income ~ x"},
            "Column 'x' cannot have a method of its own: it is a variable of the analysis",
        ),
        (
            {"methods": {"x": "pmm"}, "constraints": ["x <= 9"]},
            "Column 'x' cannot have a method of its own: it has constraints",
        ),
        (
            {
                "methods": {"x": "pmm"},
                "schema": {"x": {"derived": "income * 2", "predictor": True}},
            },
            "Column 'x' is derived from others, so it cannot have a method",
        ),
    ],
)
def test_methods_that_cannot_be_used_are_named(table, options, message):
    with pytest.raises(ValueError, match=message):
        ChainedImputer(2, n_cycles=1, **options).fit(table)


def test_tables_with_groups_have_regressions_only(table):
    clusters = table.assign(site=np.repeat(np.arange(30), 10))
    with pytest.raises(ValueError, match="it belongs to a table with groups"):
        ChainedImputer(2, groups="site", methods={"x": "pmm"}).fit(clusters)


@pytest.mark.parametrize(
    "change",
    [
        {"left": np.array([0, 0, 0])},  # a node with one child
        {"feature": np.array([3, 0, 0])},
        {"start": np.array([0, 0, 1, 3])},
        {"values": np.array([[1.0, 2.0]])},
    ],
)
def test_forged_trees_are_refused(change):
    good = {
        "left": np.array([1, 0, 0]), "right": np.array([2, 0, 0]), "feature": np.array([2, 0, 0]),
        "threshold": np.zeros(3), "start": np.array([0, 0, 1, 2]), "values": np.array([1.0, 2.0]),
    }  # fmt: skip
    assert LeafDonors(**good).check(3)
    assert not LeafDonors(**(good | change)).check(3)
    assert not MeanDonors(np.zeros(2), np.array([1.0, 0.0]), np.zeros(2)).check(2)
