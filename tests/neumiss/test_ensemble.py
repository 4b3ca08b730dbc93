"""An ensemble is several networks, each as if it were alone."""

import pytest
import torch
from tolerances import EXACT

from halfseen.neumiss.model import EnsembleMLP


def random_ensemble(generator, n_layers=2):
    """All parameters random, the last layer too."""
    ensemble = EnsembleMLP(3, 4, 2, width=5, n_layers=n_layers).double()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return ensemble


def alone(ensemble, which, x):
    """The answer of one of the networks, layer by layer."""
    *hidden, last = [(w[which], b[which]) for w, b in zip(ensemble.weights, ensemble.biases, strict=True)]
    for weight, bias in hidden:
        x = x @ weight + bias
        x = x / (1 + torch.exp(-x))
    return x @ last[0] + last[1]


@pytest.mark.parametrize("n_layers", [0, 1, 2, 3])
def test_each_network_is_a_multilayer_perceptron(generator, n_layers):
    ensemble = random_ensemble(generator, n_layers)
    x = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    answer = ensemble(x)
    assert answer.shape == (3, 7, 2)
    for which in range(3):
        torch.testing.assert_close(answer[which], alone(ensemble, which, x), rtol=EXACT, atol=EXACT)


def test_networks_share_nothing(generator):
    ensemble = random_ensemble(generator)
    x = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    ensemble(x)[1].sum().backward()
    for parameter in ensemble.parameters():
        assert (parameter.grad[1] != 0).any()
        assert (parameter.grad[[0, 2]] == 0).all()


def test_training_starts_from_zero_and_networks_start_apart(generator):
    ensemble = EnsembleMLP(3, 4, 2)
    ensemble.reset_parameters(generator)
    x = torch.randn(7, 4, generator=generator)
    assert (ensemble(x) == 0).all()
    assert not torch.equal(ensemble.weights[0][0], ensemble.weights[0][1])
    spread = ensemble.weights[1].std().item()
    assert spread == pytest.approx((2 / 128) ** 0.5, rel=0.02)


def test_the_generator_decides_the_start(generator):
    one, other = EnsembleMLP(2, 4, 1), EnsembleMLP(2, 4, 1)
    one.reset_parameters(torch.Generator().manual_seed(5))
    other.reset_parameters(torch.Generator().manual_seed(5))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    other.reset_parameters(generator)
    assert not torch.equal(one.weights[0], other.weights[0])


def test_no_rows_and_no_inputs_do_no_harm(generator):
    assert random_ensemble(generator)(torch.zeros(0, 4, dtype=torch.float64)).shape == (3, 0, 2)
    nothing = EnsembleMLP(2, 0, 1)
    nothing.reset_parameters(generator)
    assert nothing(torch.zeros(3, 0)).shape == (2, 3, 1)
