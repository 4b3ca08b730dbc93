"""Estimators with circuits: what they learn, keep and refuse."""

import numpy as np
import pytest
import torch
from circuits.cases import gaussian

import halfseen
from halfseen import CircuitImputer
from halfseen.auto.plan import WorkPlan
from halfseen.circuits import CircuitClassifier, CircuitRegressor
from halfseen.circuits import fitting as _circuit_fit
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.fitting import normalised_information
from halfseen.circuits.initialisation import resemble_rows, spread_leaves
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete


def circle(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, size=n_rows)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(n_rows, 2))


def test_both_sides_of_a_circle_are_possible():
    imputer = CircuitImputer(n_leaves=12, n_channels=12, max_epochs=20, random_state=0).fit(circle(600))
    draws = imputer.sample(np.array([[0.0, np.nan]]), n_draws=200)[:, 0, 1]
    assert (np.abs(np.abs(draws) - 1) < 0.5).mean() > 0.8
    assert 0.3 < (draws > 0).mean() < 0.7


def test_em_never_loses_likelihood_and_learns_the_circle_too():
    X = circle(600)
    X[::4, 0] = np.nan
    imputer = CircuitImputer(12, 12, algorithm="em", max_epochs=15, random_state=0).fit(X)
    losses = np.array(imputer.history_.train_loss)
    assert (np.diff(losses) < 1e-6).all()
    start = CircuitImputer(12, 12, algorithm="em", max_epochs=0, random_state=0).fit(X)
    assert imputer.score(circle(200, seed=1)) > start.score(circle(200, seed=1)) + 0.1
    draws = imputer.sample(np.array([[0.0, np.nan]]), n_draws=200)[:, 0, 1]
    assert (np.abs(np.abs(draws) - 1) < 0.5).mean() > 0.8


@pytest.mark.parametrize("settings", [{"n_trees": 2}, {"structure": "shallow"}])
def test_a_saved_structure_is_that_of_the_fitted_model(settings, tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 5))
    X[::7, 2] = np.nan
    imputer = CircuitImputer(n_leaves=3, n_channels=3, max_epochs=2, random_state=0, **settings).fit(X)
    imputer.save(tmp_path / "model.halfseen")
    loaded = halfseen.load(tmp_path / "model.halfseen")
    assert loaded.model_.module.structure == imputer.model_.module.structure
    np.testing.assert_array_equal(loaded.score_samples(X), imputer.score_samples(X))


def test_numbers_of_channels_are_those_of_the_top_levels():
    X, y = products(200)
    X = np.column_stack([X, X])
    model = CircuitClassifier(4, (3, 5), max_epochs=1, random_state=0).fit(X, y)
    assert [level.n_channels for level in model.circuit_.structure.levels] == [3, 3, 5]
    model = CircuitClassifier(max_epochs=1, random_state=0).fit(X, y)
    assert [level.n_channels for level in model.circuit_.structure.levels] == [12, 12, 12]  # 200 rows / 16


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "deep"}, "structure must be 'tree' or 'shallow', got 'deep'"),
        ({"n_leaves": 0}, "n_leaves must be"),
        ({"n_trees": 1.5}, "n_trees must be"),
        ({"n_channels": (8, 0)}, "n_channels must be"),
        ({"n_channels": ()}, "n_channels is empty"),
        ({"algorithm": "adam"}, "algorithm must be 'gradient' or 'em', got 'adam'"),
    ],
)
def test_impossible_parameters_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CircuitImputer(**settings).fit(circle(30))


def test_sums_that_resemble_rows_are_a_better_start_than_random_ones(generator):
    rows = Incomplete.from_array(circle(400))
    structure = Structure.shallow(2, 12, 24)
    circuit = Circuit(structure, gaussian(2)).double()
    spread_leaves(circuit, rows, generator)
    with torch.no_grad():
        for layer in (*circuit.sums, circuit.root):
            layer.logits.copy_(torch.randn(layer.logits.shape, generator=generator))
    at_random = circuit(rows).mean().item()
    resemble_rows(circuit, rows, generator)
    assert circuit(rows).mean().item() > at_random + 0.2


def test_columns_count_as_independent_where_they_are_never_seen_together():
    x = np.random.default_rng(0).normal(size=(100, 2))
    x = np.column_stack([x[:, 0], x[:, 0], x[:, 1]])
    x[:50, 0], x[50:, 1] = np.nan, np.nan
    affinity = normalised_information(x)
    assert affinity[0, 1] == 0.0
    assert (affinity == affinity.T).all()


def products(n_rows, seed=0):
    """Inputs, and a class that only the first two together determine."""
    X = np.random.default_rng(seed).normal(size=(n_rows, 3))
    return X, np.where(X[:, 0] * X[:, 1] > 0, "same", "other")


SMALL = {"n_leaves": 8, "n_channels": 12, "max_epochs": 15, "learning_rate": 0.1, "random_state": 0}


def test_unlabelled_rows_are_marginalised_and_any_marker_of_missing_labels_is_the_same():
    X, y = products(300)
    some = y.astype(object)
    some[::2] = None
    model = CircuitClassifier(**SMALL).fit(X, some)
    assert list(model.classes_) == ["other", "same"]
    assert model.score(*products(200, seed=1)) > 0.75
    numbers = np.where(y == "same", 1.0, 0.0)
    marked = np.where(np.arange(300) % 2 == 0, np.nan, numbers)
    other = CircuitClassifier(**SMALL).fit(X, marked)
    np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X))


def test_the_information_gain_names_the_input_to_measure_next():
    X, y = products(400)
    model = CircuitClassifier(**SMALL).fit(X, y)
    row = np.array([[1.5, np.nan, np.nan]])
    gain = model.information_gain(row)
    assert gain.shape == (1, 3)
    assert gain[0, 0] == 0.0
    assert gain[0, 1] > 0.1 > 5 * gain[0, 2]


def test_missing_targets_of_a_regressor_are_left_out_and_its_intervals_widen_with_missing_inputs():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 2))
    y = np.column_stack([X[:, 0] ** 2, -X[:, 0]]) + 0.1 * rng.normal(size=(400, 2))
    y[::3, 0] = np.nan
    model = CircuitRegressor(**SMALL).fit(X, y)
    low, high = model.predict_interval([[0.8, 0.0], [np.nan, 0.0]])
    assert low.shape == (2, 2)
    assert ((high - low)[1] > (high - low)[0]).all()
    np.testing.assert_allclose(model.predict([[0.8, 0.0]])[0], [0.64, -0.8], atol=0.25)


def test_targets_that_teach_nothing_are_refused():
    X = circle(30)
    for labels in ([None] * 30, np.full(30, np.nan)):
        with pytest.raises(ValueError, match="CircuitClassifier needs labels: all values of y are missing"):
            CircuitClassifier().fit(X, labels)
    with pytest.raises(ValueError, match="at least two classes, got 1 class: 'a'"):
        CircuitClassifier().fit(X, ["a", *[None] * 28, "a"])
    with pytest.raises(ValueError, match="CircuitRegressor needs targets: all values of y are missing"):
        CircuitRegressor().fit(X, np.column_stack([np.ones(30), np.full(30, np.nan)]))
    for settings, message in (
        ({"beta": -1.0}, "beta must be"),
        ({"max_dropped": 1.5}, "max_dropped must be"),
        ({"noise": -0.1}, "noise must be"),
    ):
        with pytest.raises(ValueError, match=message):
            CircuitClassifier(**settings).fit(X, X[:, 0] > 0)


def test_a_table_of_constants_is_refused_by_predictors():
    with pytest.raises(ValueError, match="needs a column that varies"):
        CircuitRegressor().fit(np.ones((20, 2)), np.arange(20.0))


def test_trees_over_too_many_columns_are_refused_and_are_no_candidates(monkeypatch):
    monkeypatch.setattr(_circuit_fit, "MOST_TREE_COLUMNS", 2)
    X = np.random.default_rng(0).normal(size=(160, 3))
    X[::5, 0] = np.nan
    with pytest.raises(ValueError, match=r"limited to 2 columns, got 3\. Use structure='shallow'"):
        CircuitImputer().fit(X)
    assert np.isfinite(CircuitImputer(structure="shallow", max_epochs=1).fit_transform(X)).all()
    chosen = halfseen.AutoImputer(random_state=0)
    chosen.schema_ = halfseen.MeanImputer().fit(X).schema_
    plan = WorkPlan(len(X), 3, 2_000, len(X))
    assert "circuit" not in chosen._named(plan)
    chosen.schema_ = halfseen.MeanImputer().fit(X[:, :2]).schema_
    assert "circuit" in chosen._named(plan)
