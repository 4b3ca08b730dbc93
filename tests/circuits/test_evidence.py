"""Evidence weighted by the observed fraction: exact limits, and calibration of a circuit that is too sure."""

import numpy as np
import pytest
import torch
from circuits.cases import gaussian

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.evidence import FEWEST_ROWS, EvidenceWeight, fit_evidence_weight, observed_fraction
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete
from halfseen.evaluation.scores import expected_calibration_error
from halfseen.training.supervised import Labelled

N_COLUMNS, OWNERS = 12, torch.arange(12)
PRIOR = torch.tensor([0.3, 0.7], dtype=torch.float64)


def correlated_rows(n_rows, seed):
    """Two classes whose columns share a factor, which a product of columns does not know."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n_rows) < PRIOR[1].item()).astype(int)
    x = np.sqrt(0.7) * rng.normal(size=(n_rows, 1)) + np.sqrt(0.3) * rng.normal(size=(n_rows, N_COLUMNS))
    rows = Incomplete.from_array(x + 0.8 * (2 * y[:, None] - 1))
    return Labelled(rows, torch.from_numpy(y), torch.ones(n_rows, dtype=torch.float64))


@pytest.fixture(scope="module")
def naive():
    """The right density of every column given the class, with columns independent given the class."""
    circuit = Circuit(Structure.mixture(N_COLUMNS, 2, n_classes=2), gaussian(N_COLUMNS)).double()
    circuit.requires_grad_(False)
    with torch.no_grad():
        circuit.log_prior.copy_(PRIOR.log())
        circuit.root.set_weights(torch.eye(2, dtype=torch.float64)[None])
        leaf = circuit.leaves.observation.leaves[0]
        raw = np.log(np.expm1(1.0 - leaf.std_floor))
        circuit.leaves.theta[:, :N_COLUMNS] = torch.tensor([[-0.8], [0.8]])
        circuit.leaves.theta[:, N_COLUMNS:] = raw
    return circuit


def masked(rows, rate, seed):
    kept = torch.rand(rows.x.shape, generator=torch.Generator().manual_seed(seed)) >= rate
    return Incomplete(rows.x, rows.observed & kept)


def fitted(circuit, held):
    return fit_evidence_weight(
        lambda rows: circuit.class_scores(rows)[0],
        circuit.log_prior,
        held,
        OWNERS,
        torch.Generator().manual_seed(0),
    )


def test_weights_of_one_keep_the_probabilities_and_an_empty_row_keeps_the_prior(naive):
    rows = masked(correlated_rows(50, 0).rows, 0.5, 0)
    scores, _ = naive.class_scores(rows)
    fraction = observed_fraction(rows, OWNERS)
    torch.testing.assert_close(EvidenceWeight()(scores, naive.log_prior, fraction), scores, rtol=0, atol=0)
    nothing = Incomplete(rows.x, torch.zeros_like(rows.observed))
    empty, _ = naive.class_scores(nothing)
    found = EvidenceWeight(0.4, 0.1)(empty, naive.log_prior, torch.zeros(50)).softmax(dim=1)
    torch.testing.assert_close(found, PRIOR.expand(50, 2), rtol=0, atol=1e-5)  # the floor of sum weights


def test_the_observed_fraction_counts_columns_and_not_their_features():
    observed = torch.tensor([[True, True, True, False], [False, False, False, True]])
    found = observed_fraction(Incomplete(torch.zeros(2, 4), observed), torch.tensor([0, 0, 0, 1]))
    torch.testing.assert_close(found, torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_a_circuit_that_is_too_sure_becomes_calibrated_at_every_missing_rate(naive):
    weight = fitted(naive, correlated_rows(1000, 1))
    assert weight.complete < weight.empty
    test = correlated_rows(8000, 2)
    for rate in (0.0, 0.3, 0.6, 0.8):
        rows = masked(test.rows, rate, 3)
        scores, _ = naive.class_scores(rows)
        calibrated = weight(scores, naive.log_prior, observed_fraction(rows, OWNERS))
        raw, found = (
            expected_calibration_error(test.target.numpy(), s.softmax(dim=1).numpy())
            for s in (scores, calibrated)
        )
        assert found < 0.05
        assert found < 0.6 * raw


def test_too_few_rows_with_a_known_class_change_nothing(naive):
    held = correlated_rows(200, 4)
    assert fitted(naive, None) == EvidenceWeight()
    assert fitted(naive, held[: FEWEST_ROWS - 1]) == EvidenceWeight()
    unknown = torch.where(torch.arange(200) < FEWEST_ROWS - 1, held.target, -1)
    assert fitted(naive, Labelled(held.rows, unknown, held.weight)) == EvidenceWeight()
    partly = torch.where(torch.arange(200) < 150, held.target, -1)
    assert fitted(naive, Labelled(held.rows, partly, held.weight)) == fitted(naive, held[:150])
