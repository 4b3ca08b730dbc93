"""The recurrent network of sequences: its cells against a plain recursion, its inputs, its start."""

import numpy as np
import pytest
import torch
from tolerances import EXACT

from halfseen.data.sequences import read_sequences
from halfseen.sequences.classifier import SequenceNetwork, time_gaps


@pytest.fixture
def sequences():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 5, 3))
    X[rng.random(X.shape) < 0.4] = np.nan
    return read_sequences(X, lengths=[5, 3, 1, 5, 2, 4])


def lstm(weights, x):
    """The recursion of an LSTM, written as in its definition."""
    h = c = torch.zeros(weights["weight_hh_l0"].shape[1], dtype=torch.float64)
    for row in x:
        gates = weights["weight_ih_l0"] @ row + weights["bias_ih_l0"] + weights["weight_hh_l0"] @ h
        i, f, u, o = gates.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


@pytest.mark.parametrize("count_over", ["sequence", "step"])
def test_the_logits_are_those_of_the_recursion_up_to_the_end_of_each_sequence(
    sequences, count_over, generator
):
    network = SequenceNetwork(3, 4, 2, count_over=count_over, alpha=1.0).double().requires_grad_(False)
    network.reset_parameters(generator, memory=5)
    network.norm.fit(sequences.values.observed)
    weights = dict(network.cell.named_parameters())
    x, seen = sequences.values.filled(), sequences.values.observed
    counts = seen.sum(dim=(1, 2)) if count_over == "sequence" else seen.sum(dim=2)
    mean = counts[counts > 0].double().mean()
    for i, length in enumerate(sequences.lengths.tolist()):
        factor = mean / counts[i].clamp(min=1)
        scaled = x[i] * (factor if count_over == "sequence" else factor[:, None])
        expected = network.output(lstm(weights, scaled[:length]))
        torch.testing.assert_close(network(sequences)[i], expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_units_begin_with_spans_of_memory_up_to_the_length_of_a_sequence(cell, generator):
    network = SequenceNetwork(1, 500, 2, cell=cell)
    network.reset_parameters(generator, memory=50)
    kept = dict(network.cell.named_parameters())["bias_ih_l0"][500:1000].detach().sigmoid()
    spans = 1 / (1 - kept)  # steps after which a state that is kept at this rate has faded
    assert 2 <= spans.min() < 4
    assert 45 < spans.max() <= 50


def test_marks_and_gaps_are_further_inputs(sequences, generator):
    network = SequenceNetwork(3, 4, 2, mask_inputs=True, gap_inputs=True).double()
    network.reset_parameters(generator, memory=5)
    inputs = network._inputs(sequences.values)
    seen = sequences.values.observed
    torch.testing.assert_close(inputs[..., 3:6], seen.double())
    torch.testing.assert_close(inputs[..., 6:].expm1().round().long(), time_gaps(seen))
    assert network(sequences).shape == (6, 2)


def test_values_that_are_not_observed_have_no_gradient(sequences, generator):
    network = SequenceNetwork(3, 4, 2, mask_inputs=True, gap_inputs=True).double()
    network.reset_parameters(generator, memory=5)
    x = torch.where(sequences.values.observed, sequences.values.x, torch.nan).requires_grad_()
    network(sequences.with_values(x)).sum().backward()
    assert x.grad.isfinite().all()
    assert (x.grad[~sequences.values.observed] == 0).all()
