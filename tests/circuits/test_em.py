"""EM for the sum weights of circuits: it never falls, and learns from incomplete rows."""

from itertools import product

import pytest
import torch
from circuits.cases import CIRCUITS, binary, column_masks, complete_rows, random_circuit
from torch.nn.functional import one_hot

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.fitting import fit_sum_weights
from halfseen.circuits.initialisation import random_weights
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete


@pytest.mark.parametrize("name", CIRCUITS)
def test_the_penalised_likelihood_of_incomplete_and_partly_labelled_rows_never_falls(name):
    circuit = random_circuit(name)
    x = complete_rows(circuit, 40)
    generator = torch.Generator().manual_seed(1)
    columns = torch.rand(40, circuit.structure.n_columns, generator=generator) < 0.6
    classes = torch.arange(40) % (circuit.structure.n_classes + 1) - 1
    course = fit_sum_weights(circuit, Incomplete(x, column_masks(circuit, columns)), classes, max_steps=8)
    gains = torch.tensor(course).diff()
    assert (gains > -1e-6).all()  # the floor of the weights may cost as much
    assert gains[0] > 1e-3


def test_counts_do_not_depend_on_chunks_and_the_callback_receives_the_objective():
    answers = []
    for n_rows in (7, 100):
        circuit, told = random_circuit("trees"), []
        x = complete_rows(circuit, 40)
        batch = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
        course = fit_sum_weights(circuit, batch, max_steps=3, n_rows=n_rows, callback=told.append)
        assert [progress.objective for progress in told] == course[1:]
        answers.append(course)
    assert answers[0] == pytest.approx(answers[1], abs=1e-12)


def test_every_row_uses_one_weight_of_each_sum_on_its_way():
    circuit = random_circuit("image")
    x = complete_rows(circuit, 30)
    classes = torch.arange(30) % 2
    counts = circuit.expected_counts(Incomplete(x, torch.ones_like(x, dtype=torch.bool)), classes)
    assert [c.shape for c in counts] == [layer.weights.shape for layer in circuit.sum_layers]
    torch.testing.assert_close(counts[0].sum(dim=(0, 1)), torch.tensor([15.0, 15.0]).double())
    torch.testing.assert_close(counts[1].sum(), torch.tensor(4 * 30.0).double())  # four patches of each row


def test_a_step_for_a_mixture_is_the_mean_of_its_responsibilities():
    circuit = random_circuit("mixture")
    x = complete_rows(circuit, 50)
    batch = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
    expected = circuit.responsibilities(batch, of_class=0)[0].mean(dim=0)
    zeros = torch.zeros(50, dtype=torch.long)
    fit_sum_weights(circuit, batch, zeros, max_steps=1, smoothing=1e-9)
    torch.testing.assert_close(circuit.root.weights[0, :, 0].detach(), expected, atol=1e-5, rtol=0)


def rows_of_bits(bits):
    return one_hot(bits, 2).flatten(1).double()


def circuit_of_bits(seed):
    """A tree over four binary columns, whose two leaves are nearly certain of one value each."""
    pairings = [(((0, 1), (2, 3)), ((0, 1),))]
    circuit = Circuit(Structure.trees(4, pairings, 2, [2, 3]), binary(4)).double()
    random_weights(circuit, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        circuit.leaves.theta.copy_(torch.tensor([[6.0, -6.0], [-6.0, 6.0]]).repeat(1, 4))
    return circuit


def test_learning_from_incomplete_rows_is_closer_to_the_truth_than_after_filling_in_the_mode():
    truth = circuit_of_bits(seed=5)
    n_rows, generator = 1000, torch.Generator().manual_seed(0)
    nothing = torch.zeros(n_rows, 8, dtype=torch.float64)
    noise = torch.rand(n_rows, truth.n_noise, generator=generator, dtype=torch.float64)
    x = truth.conditional_draw(Incomplete(nothing, nothing.bool()), noise)
    seen = (torch.rand(n_rows, 4, generator=generator) < 0.5).repeat_interleave(2, dim=1)

    bits = x[:, 1::2]
    observed = torch.where(seen[:, 1::2], bits, torch.nan)
    filled = torch.where(observed.isnan(), observed.nanmean(dim=0).round(), bits).long()
    everything = rows_of_bits(torch.tensor(list(product([0, 1], repeat=4))))
    of_all = Incomplete(everything, torch.ones_like(everything, dtype=torch.bool))
    log_truth = truth(of_all).detach()

    def divergence(rows, observed):
        learned = circuit_of_bits(seed=1)
        fit_sum_weights(learned, Incomplete(rows, observed), max_steps=150, tolerance=0.0)
        return (log_truth.exp() * (log_truth - learned(of_all).detach())).sum().item()

    exact = divergence(torch.where(seen, x, 0.0), seen)
    imputed = divergence(rows_of_bits(filled), torch.ones_like(seen))
    assert exact < 0.03  # 15 free numbers, 1,000 rows, half of the cells
    assert imputed > 3 * exact
