"""Local modes of missing cells."""

import itertools

import pytest
import torch
from circuits.cases import column_masks, complete_rows, random_circuit

from halfseen.circuits.circuit import local_modes
from halfseen.data.incomplete import Incomplete


@pytest.mark.parametrize("name", ["mixture", "odd-trees", "image"])
def test_ascent_never_loses_density_and_ends_where_it_is_stationary(name):
    circuit = random_circuit(name)
    x = complete_rows(circuit, 6)
    columns = torch.rand(6, circuit.structure.n_columns, generator=torch.Generator().manual_seed(0)) < 0.5
    batch = Incomplete(x, column_masks(circuit, columns))
    everything = torch.ones_like(batch.observed)
    course = [local_modes(circuit, batch, max_steps=n)[1] for n in (0, 1, 5)]
    assert all((after >= before - 1e-12).all() for before, after in itertools.pairwise(course))

    completed, log_prob = local_modes(circuit, batch, max_steps=2000, tolerance=0.0)
    assert torch.equal(completed[batch.observed], x[batch.observed])
    for start in (
        circuit.conditional_mean(batch),
        *(circuit.most_probable(batch, k)[0] for k in ("integrated", "joint")),
    ):
        assert (log_prob >= circuit(Incomplete(start, everything)) - 1e-12).all()
    completed.requires_grad_()
    (slope,) = torch.autograd.grad(circuit(Incomplete(completed, everything)).sum(), completed)
    torch.testing.assert_close(
        slope[~batch.observed], torch.zeros_like(slope[~batch.observed]), atol=1e-4, rtol=0
    )


def test_one_missing_number_is_put_where_its_density_is_highest():
    circuit = random_circuit("mixture")
    x = complete_rows(circuit, 5)
    seen = torch.ones_like(x, dtype=torch.bool)
    seen[:, 1] = False
    _completed, log_prob = local_modes(circuit, Incomplete(x, seen), max_steps=500)
    grid = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    for row in range(5):
        rows = x[row].repeat(len(grid), 1)
        rows[:, 1] = grid
        highest = circuit(Incomplete(rows, torch.ones_like(rows, dtype=torch.bool))).max()
        torch.testing.assert_close(log_prob[row], highest.detach(), atol=1e-3, rtol=0)


def test_other_columns_are_refused():
    circuit = random_circuit("trees")
    x = complete_rows(circuit, 2)
    with pytest.raises(ValueError, match="Local modes need circuits whose columns are all Gaussian"):
        local_modes(circuit, Incomplete(x, torch.ones_like(x, dtype=torch.bool)))
