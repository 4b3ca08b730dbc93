"""The experiment on optimisers of AutoRec: the steps that they make."""

import numpy as np
import pytest
import scipy.sparse
import torch

from halfseen.ratings.autorec import SparseAutoencoder
from halfseen.ratings.recommender import RatedRows
from halfseen.ratings.table import SparseRows
from papers.sparsity import optimisers as sparsity_optimisers
from papers.sparsity.optimisers import ADAM, RATE, RPROP, FullBatchAutoRec, descend


@pytest.fixture
def ratings():
    rng = np.random.default_rng(0)
    taste = rng.normal(size=(40, 1)) * rng.normal(size=30)
    values = np.where(rng.random(taste.shape) < 0.5, np.clip(np.round(3 + taste), 1, 5), 0.0)
    return scipy.sparse.csr_array(values)


@pytest.mark.parametrize("name", [ADAM, RPROP])
def test_a_first_step_goes_against_the_dense_gradient_by_the_rate(ratings, generator, name):
    """Of both optimisers the first step is the sign of the gradient times the rate."""
    rows, penalty = SparseRows.from_scipy(ratings), 3.0
    module = SparseAutoencoder(rows.n_columns, 4)
    module.reset_parameters(rows, generator)
    weight = module.encoder.detach().clone().requires_grad_()
    x = torch.from_numpy(ratings.toarray()).float()
    predicted = torch.sigmoid(x @ weight) @ module.decoder.detach().T + module.output_bias.detach()
    loss = ((predicted - x) * (x != 0)).square().sum() + penalty / 2 * weight.square().sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    optimiser = sparsity_optimisers.OPTIMISERS[name](module.parameters(), lr=RATE)
    both = RatedRows(rows, rows)
    best = descend(module, optimiser, both, both, penalty, n_steps=1, look_every=1, patience=1)
    assert best.step == 1
    clear = gradient.abs() > 1e-3
    moved = (module.encoder.detach() - weight.detach())[clear]
    torch.testing.assert_close(moved, -RATE * gradient.sign()[clear], rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("name", [ADAM, RPROP])
def test_a_network_learns_more_than_its_start(ratings, name, monkeypatch):
    monkeypatch.setattr(sparsity_optimisers, "N_STEPS", 100)
    model = FullBatchAutoRec(name, "user", n_hidden=8, random_state=0).fit(ratings)
    user, item = ratings.nonzero()
    errors = model.predict(user, item) - ratings.toarray()[user, item]
    means = np.array([column[column > 0].mean() for column in ratings.toarray().T])
    assert np.mean(errors**2) < 0.9 * np.mean((means[item] - ratings.toarray()[user, item]) ** 2)
