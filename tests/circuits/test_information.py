"""The information gain against enumeration and quadrature."""

import pytest
import torch
from circuits.cases import column_masks, complete_rows, random_circuit, random_pairs
from tolerances import EXACT

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.evidence import information_gain
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import StudentTLeaf
from halfseen.distributions.observation_model import ObservationModel, Part


def entropy(probabilities):
    return torch.special.entr(probabilities).sum(-1)


@pytest.mark.parametrize("name", ["shallow-levels", "trees"])
def test_the_gain_of_a_column_with_levels_is_that_of_an_enumeration(name):
    circuit = random_circuit(name)
    columns = torch.tensor([[True, False, True, False], [False, False, False, True]])
    batch = Incomplete(complete_rows(circuit, 2), column_masks(circuit, columns))
    found = information_gain(circuit, batch)
    assert (found[columns] == 0).all()
    for row in range(2):
        one = batch[torch.tensor([row] * 3)]
        one.x[:, 3:6], one.observed[:, 3:6] = torch.eye(3).double(), True  # the three levels of column 1
        share = (circuit(one) - circuit(batch)[row]).exp()
        after = (share * entropy(circuit.class_probabilities(one))).sum()
        expected = entropy(circuit.class_probabilities(batch))[row] - after
        torch.testing.assert_close(found[row, 1], expected.detach(), rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", ["shallow", "image", "odd-trees"])
def test_the_gain_of_a_number_is_that_of_quadrature(name):
    circuit = random_circuit(name)
    with torch.no_grad():  # components are apart, and every channel prefers one input: classes differ
        n_leaves, n_columns = len(circuit.leaves.theta), circuit.leaves.observation.n_columns
        circuit.leaves.theta[:, :n_columns] = torch.linspace(-3, 3, n_leaves).double()[:, None]
        for layer in (*circuit.sums, circuit.root):
            _, n_inputs, n_outputs = layer.logits.shape
            layer.logits += 4 * (torch.arange(n_inputs)[:, None] % n_outputs == torch.arange(n_outputs))
    columns = torch.zeros(1, circuit.structure.n_columns, dtype=torch.bool)
    columns[0, 3] = True
    batch = Incomplete(complete_rows(circuit, 1), columns)
    grid = torch.linspace(-20, 20, 8001, dtype=torch.float64)
    many = batch[torch.zeros(len(grid), dtype=torch.long)]
    many.x[:, 1], many.observed[:, 1] = grid, True
    curve = (circuit(many) - circuit(batch)).exp() * (grid[1] - grid[0])
    after = (curve * entropy(circuit.class_probabilities(many))).sum()
    expected = entropy(circuit.class_probabilities(batch))[0] - after
    found = information_gain(circuit, batch)[0]
    assert found[1].item() == pytest.approx(expected.item(), abs=1e-5)
    assert (found[3] == 0).all()
    assert expected > 1e-3


def test_columns_of_a_likelihood_without_a_rule_are_refused():
    observation = ObservationModel([Part(StudentTLeaf(2), [0, 1], [0, 1])])
    circuit = Circuit(Structure.trees(2, [random_pairs(2, 0)], 2, [2], n_classes=2), observation).double()
    batch = Incomplete(torch.zeros(1, 2).double(), torch.zeros(1, 2).bool())
    with pytest.raises(ValueError, match="likelihood StudentTLeaf is not implemented"):
        information_gain(circuit, batch)
