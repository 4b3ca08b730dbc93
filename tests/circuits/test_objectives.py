"""Losses of circuits against the densities they are made of."""

import torch
from circuits.cases import complete_rows, gaussian, random_circuit
from tolerances import EXACT

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.objectives import ConditionalLikelihood, HybridLikelihood
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete
from halfseen.training.supervised import Labelled


def test_with_one_column_of_weight_per_column_the_loss_is_the_joint_likelihood():
    circuit = random_circuit("shallow")
    rows = Incomplete(complete_rows(circuit, 5), torch.ones(5, 4).bool())
    target, weight = torch.tensor([0, 1, 1, 0, -1]), torch.tensor([1.0, 2.0, 1.0, 1.0, 3.0]).double()
    loss = HybridLikelihood(4.0, torch.arange(4))(circuit, Labelled(rows, target, weight), ())
    joint = circuit.class_log_likelihood(rows) + circuit.log_prior
    expected = torch.where(target >= 0, joint.gather(1, target.clamp(min=0)[:, None])[:, 0], circuit(rows))
    torch.testing.assert_close(loss, -weight * expected, rtol=EXACT, atol=EXACT)


def test_weight_decay_adds_the_squares_of_all_sum_weights():
    circuit = random_circuit("image")
    rows = Incomplete(complete_rows(circuit, 3), torch.ones(3, 16).bool())
    batch = Labelled(rows, torch.tensor([0, 1, -1]), torch.tensor([1.0, 2.0, 0.5]).double())
    plain, decayed = (
        HybridLikelihood(1.0, torch.arange(16), decay=d)(circuit, batch, ()) for d in (0.0, 0.1)
    )
    squares = sum((layer.weights**2).sum() for layer in (*circuit.sums, circuit.root))
    torch.testing.assert_close(decayed - plain, 0.1 * squares.expand(3), rtol=EXACT, atol=EXACT)


def test_noise_is_added_to_the_features_that_are_named_and_to_no_other(generator):
    circuit = random_circuit("trees")
    observation = circuit.leaves.observation
    rows = Incomplete(complete_rows(circuit, 200), torch.ones(200, observation.n_features).bool())
    batch = Labelled(rows, torch.zeros(200, dtype=torch.long), torch.ones(200).double())
    jitter = torch.zeros(observation.n_features).double()
    jitter[0] = 0.5  # the only number
    loss = HybridLikelihood(1.0, observation.columns_of_features, 0.5, jitter=jitter)
    kept, added = loss.draw_noise(batch, generator)
    assert (added[:, 1:] == 0).all()
    assert 0.4 < added[:, 0].std() < 0.6  # four standard errors of 0.025
    moved = Labelled(Incomplete(rows.x + added, kept), batch.target, batch.weight)
    alone = HybridLikelihood(1.0, observation.columns_of_features)(circuit, moved, ())
    torch.testing.assert_close(loss(circuit, batch, (kept, added)), alone, rtol=EXACT, atol=EXACT)


def test_columns_are_left_out_as_a_whole_and_what_is_left_out_is_not_read(generator):
    circuit = random_circuit("trees")
    owners = circuit.leaves.observation.columns_of_features
    rows = Incomplete(complete_rows(circuit, 50), torch.ones(50, 8).bool())
    batch = Labelled(rows, torch.zeros(50, dtype=torch.long), torch.ones(50).double())
    loss = HybridLikelihood(1.0, owners, max_dropped=0.9)
    (kept,) = loss.draw_noise(batch, generator)
    assert 0.3 < kept.double().mean() < 0.8
    for column in range(4):
        of_column = kept[:, owners == column]
        assert (of_column == of_column[:, :1]).all()
    shown = Incomplete(rows.x, kept)
    alone = HybridLikelihood(1.0, owners)(circuit, Labelled(shown, batch.target, batch.weight), ())
    torch.testing.assert_close(loss(circuit, batch, (kept,)), alone, rtol=EXACT, atol=EXACT)


def test_the_loss_of_targets_is_their_conditional_density(generator):
    circuit = Circuit(Structure.shallow(3, 2, 2), gaussian(3)).double()
    with torch.no_grad():
        for parameter in circuit.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    observed = torch.tensor([[True, True, True], [True, False, True], [True, True, False], [False] * 3])
    rows, weight = Incomplete(x, observed), torch.ones(4).double()
    loss = ConditionalLikelihood(0.5, torch.arange(3), n_targets=1)
    found = loss(circuit, Labelled(rows, x[:, 2:], weight), ())
    inputs = circuit(Incomplete(x, observed & torch.tensor([True, True, False])))
    torch.testing.assert_close(found, inputs - circuit(rows) - 0.25 * inputs, rtol=EXACT, atol=EXACT)
    assert found[2] == -0.25 * inputs[2]


def test_in_every_second_row_whole_regions_are_left_out(generator):
    circuit = random_circuit("image")
    rows = Incomplete(complete_rows(circuit, 400), torch.ones(400, 16).bool())
    batch = Labelled(rows, torch.zeros(400, dtype=torch.long), torch.ones(400).double())
    blocks = torch.arange(16) // 4
    (kept,) = HybridLikelihood(1.0, torch.arange(16), 1.0, blocks).draw_noise(batch, generator)
    by_block = kept.view(400, 4, 4)
    whole = (by_block == by_block[..., :1]).all(dim=(1, 2)).double().mean()
    assert 0.4 < whole < 0.75
