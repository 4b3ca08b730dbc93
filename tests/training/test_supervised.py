"""Losses of ensembles against loops over networks and rows."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from tolerances import EXACT

from halfseen.data.sequences import read_sequences
from halfseen.neumiss.model import CorrectedPrediction, CorrectionRows, EnsembleMLP
from halfseen.sequences.classifier import SequenceNetwork
from halfseen.training.supervised import CrossEntropy, Labelled, RankingLoss, SquaredError, WithSubsets


def setting(generator, n_outputs):
    """Three random networks, and six rows with weights."""

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    networks = EnsembleMLP(3, 4, n_outputs, width=5).double()
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.copy_(draw(*parameter.shape))
    return networks, draw(6, 4), draw(6, n_outputs), draw(6, n_outputs), draw(6).abs()


def corrected(objective, networks, inputs, base, target, weight):
    """The loss of first predictions that an ensemble corrects."""
    rows = CorrectionRows(inputs, base)
    return objective(CorrectedPrediction(networks), Labelled(rows, target, weight), ())


def test_squared_error_is_the_weighted_mean_over_networks(generator):
    networks, inputs, base, target, weight = setting(generator, 2)
    losses = corrected(SquaredError(), networks, inputs, base, target, weight)
    answers = networks(inputs)
    for n in range(6):
        errors = [
            sum((base[n, t] + answers[e, n, t] - target[n, t]) ** 2 for t in range(2)) for e in range(3)
        ]
        torch.testing.assert_close(losses[n], weight[n] * sum(errors) / 3, rtol=EXACT, atol=EXACT)


def test_cross_entropy_is_the_weighted_mean_over_networks(generator):
    networks, inputs, base, _, weight = setting(generator, 3)
    target = torch.tensor([0, 1, 2, 2, 0, 1])
    losses = corrected(CrossEntropy(), networks, inputs, base, target, weight)
    answers = networks(inputs)
    for n in range(6):
        total = 0.0
        for e in range(3):
            logits = (base[n] + answers[e, n]).tolist()
            total += math.log(sum(map(math.exp, logits))) - logits[target[n]]
        assert losses[n].item() == pytest.approx(weight[n].item() * total / 3, rel=EXACT)


@pytest.mark.parametrize("objective", [SquaredError(), CrossEntropy()], ids=lambda o: type(o).__name__)
def test_a_row_without_weight_teaches_nothing(objective, generator):
    networks, inputs, base, target, weight = setting(generator, 2)
    target = torch.tensor([0, 1, 0, 1, 0, 1]) if isinstance(objective, CrossEntropy) else target
    weight[0] = 0.0

    def gradient(inputs):
        networks.zero_grad()
        corrected(objective, networks, inputs, base, target, weight).sum().backward()
        return [parameter.grad.clone() for parameter in networks.parameters()]

    one = gradient(inputs)
    other = gradient(inputs + torch.eye(6, dtype=torch.float64)[:, :1] * 7)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("objective", [SquaredError(), CrossEntropy()], ids=lambda o: type(o).__name__)
def test_the_losses_need_no_noise(objective, generator):
    before = generator.get_state()
    assert objective.draw_noise(Labelled(*[torch.zeros(2, 1)] * 3), generator) == ()
    assert torch.equal(generator.get_state(), before)


def test_rows_are_taken_together():
    first, second, third = (torch.arange(5.0)[:, None] + k for k in range(3))
    rows = Labelled(CorrectionRows(first, second), third, torch.arange(5.0) + 3)
    some = rows[torch.tensor([4, 1])]
    assert len(some) == 2
    assert some.rows.inputs.flatten().tolist() == [4, 1]
    assert some.rows.base.flatten().tolist() == [5, 2]
    assert some.target.flatten().tolist() == [6, 3]
    assert some.weight.tolist() == [7, 4]
    assert rows[1:3].weight.tolist() == [4, 5]


@pytest.mark.parametrize("objective", [SquaredError(), CrossEntropy()], ids=lambda o: type(o).__name__)
def test_a_single_network_is_an_ensemble_of_one(objective, generator):
    networks, inputs, _, target, weight = setting(generator, 2)
    target = torch.tensor([0, 1, 0, 1, 0, 1]) if isinstance(objective, CrossEntropy) else target

    class First(torch.nn.Module):
        def __init__(self, outputs):
            super().__init__()
            self.outputs = outputs

        def forward(self, x):
            return networks(x)[self.outputs]

    labelled = Labelled(inputs, target, weight)
    alone, of_one = (objective(First(which), labelled, ()) for which in (0, slice(1)))
    assert alone.shape == (6,)
    torch.testing.assert_close(alone, of_one, rtol=EXACT, atol=EXACT)


def test_the_ranking_loss_is_one_minus_the_auroc_with_ties_counted_half(generator):
    logits = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 3, (40,), generator=generator)
    rows = Labelled(logits, target, torch.ones(40))
    expected = 1 - roc_auc_score(target, logits.softmax(dim=1), multi_class="ovr")
    assert RankingLoss(batch_size=7)(torch.nn.Identity(), rows) == pytest.approx(expected, abs=EXACT)
    tied = torch.randint(0, 3, (40, 2), generator=generator).double()
    two = Labelled(tied, target % 2, torch.ones(40))
    expected = 1 - roc_auc_score(target % 2, tied[:, 1] - tied[:, 0])
    assert RankingLoss(batch_size=64)(torch.nn.Identity(), two) == pytest.approx(expected, abs=EXACT)


def test_the_ranking_loss_needs_two_classes():
    rows = Labelled(torch.zeros(3, 2), torch.ones(3, dtype=torch.int64), torch.ones(3))
    with pytest.raises(ValueError, match="AUROC is not defined: the held-out rows have only one class"):
        RankingLoss(batch_size=2)(torch.nn.Identity(), rows)


def test_a_random_part_of_each_sequence_is_shown_in_training_and_all_of_it_in_evaluation(generator):
    X = torch.randn(2000, 3, 4, generator=generator, dtype=torch.float64)
    X[:, 1, 2] = torch.nan
    sequences = read_sequences(X.numpy())
    batch = Labelled(sequences, torch.zeros(len(X), dtype=torch.long), torch.ones(len(X)))
    objective = WithSubsets(CrossEntropy())
    (kept,) = objective.draw_noise(batch, generator)
    # The number of 12 values that is kept is uniform on 0 to 12: mean 6, variance 14.
    counts = kept.sum(dim=(1, 2)).double()
    assert float(counts.mean()) == pytest.approx(6, abs=4 * (14 / 2000) ** 0.5)
    assert float((counts == 12).double().mean()) == pytest.approx(1 / 13, abs=4 * (1 / 13 / 2000) ** 0.5)
    network = SequenceNetwork(4, 3, 2).double()
    network.reset_parameters(generator, memory=3)
    shown = torch.where(kept, X, torch.nan)
    expected = CrossEntropy()(
        network, Labelled(read_sequences(shown.numpy()), batch.target, batch.weight), ()
    )
    torch.testing.assert_close(objective(network.train(), batch, (kept,)), expected)
    torch.testing.assert_close(objective(network.eval(), batch, (kept,)), CrossEntropy()(network, batch, ()))
