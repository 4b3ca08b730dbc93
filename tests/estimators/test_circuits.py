"""Estimators with circuits: what they learn, keep and refuse."""

import numpy as np
import pytest
import torch
from models.circuits.cases import gaussian

import halfseen
from halfseen import CircuitImputer
from halfseen.data.incomplete import Incomplete
from halfseen.models.circuits.circuit import Circuit
from halfseen.models.circuits.dependence import normalised_information
from halfseen.models.circuits.initialisation import resemble_rows, spread_leaves
from halfseen.models.circuits.structure import Structure


def circle(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, size=n_rows)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(n_rows, 2))


def test_both_sides_of_a_circle_are_possible():
    imputer = CircuitImputer(n_leaves=12, n_channels=12, max_epochs=20, random_state=0).fit(circle(600))
    draws = imputer.sample(np.array([[0.0, np.nan]]), n_draws=200)[:, 0, 1]
    assert (np.abs(np.abs(draws) - 1) < 0.5).mean() > 0.8
    assert 0.3 < (draws > 0).mean() < 0.7


@pytest.mark.parametrize("settings", [{"n_trees": 2}, {"structure": "shallow"}])
def test_a_saved_structure_is_that_of_the_fitted_model(settings, tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 5))
    X[::7, 2] = np.nan
    imputer = CircuitImputer(n_leaves=3, n_channels=3, max_epochs=2, random_state=0, **settings).fit(X)
    imputer.save(tmp_path / "model.halfseen")
    loaded = halfseen.load(tmp_path / "model.halfseen")
    assert loaded.model_.module.structure == imputer.model_.module.structure
    np.testing.assert_array_equal(loaded.score_samples(X), imputer.score_samples(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"structure": "deep"}, "structure must be 'tree' or 'shallow', got 'deep'"),
        ({"n_leaves": 0}, "n_leaves must be"),
        ({"n_trees": 1.5}, "n_trees must be"),
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
