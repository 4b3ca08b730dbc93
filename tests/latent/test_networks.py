"""Networks of users and chains of choice in `LatentImputer`."""

import numpy as np
import pytest
import torch
from torch import nn

from halfseen import LatentImputer
from halfseen.nn.residual import LinearWithNetwork

SETTINGS = {"max_epochs": 2, "n_imputation_draws": 20, "n_latent": 2, "random_state": 0}


def mlp(n_inputs, n_outputs):
    return nn.Sequential(nn.Linear(n_inputs, 8), nn.Tanh(), nn.Linear(8, n_outputs))


def table(seed=0, n_rows=80):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 3)) + rng.normal(size=(n_rows, 1))
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def test_networks_of_users_are_trained_and_answer():
    state = torch.get_rng_state()
    imputer = LatentImputer(encoder=mlp, decoder=mlp, **SETTINGS).fit(table())
    assert torch.equal(torch.get_rng_state(), state)  # factories use it, and it is restored
    for network in (imputer.model_.encoder, imputer.model_.decoder):
        assert isinstance(network.network, nn.Sequential)
        assert network.gate != 0  # it has left zero
    again = LatentImputer(encoder=mlp, decoder=mlp, **SETTINGS).fit(table())
    np.testing.assert_array_equal(again.transform(table(1)), imputer.transform(table(1)))
    assert np.isfinite(imputer.score_samples(table(1))).all()


def test_training_starts_at_the_same_factor_analysis_as_with_our_networks():
    """Without training both are linear, so answers agree up to the draws, which have the same noise."""
    settings = SETTINGS | {"max_epochs": 0, "numeric": "gaussian"}
    ours = LatentImputer(**settings).fit(table())
    theirs = LatentImputer(encoder=mlp, **settings).fit(table())
    np.testing.assert_allclose(theirs.transform(table(1)), ours.transform(table(1)), atol=1e-5)


def test_a_gate_of_zero_leaves_the_linear_map(generator):
    network = LinearWithNetwork(mlp, 3, 2).double()
    weight, bias = torch.randn(2, 3, generator=generator).double(), torch.ones(2).double()
    network.set_linear(weight, bias)
    x = torch.randn(5, 4, 3, generator=generator).double()
    assert torch.equal(network(x), nn.functional.linear(x, weight, bias))
    torch.nn.init.ones_(network.gate)
    assert not torch.allclose(network(x), nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            lambda n, m: nn.Linear(n, m + 1),
            r"must map .* to outputs of shape \(3, 2, 6\), got",
        ),
        (
            lambda n, m: nn.Sequential(nn.Linear(n + 3, 8), nn.Linear(8, m)),
            r"The decoder network must map inputs of shape \(3, 2, 2\) to outputs of shape \(3, 2, 6\), but "
            r"its layer Linear\(in_features=5, out_features=8, bias=True\) was given \(3, 2, 2\); it raised",
        ),
        (
            lambda n, m: nn.Sequential(nn.Linear(n, m), nn.BatchNorm1d(m)),
            r"BatchNorm1d.* was given \(3, 2, 6\)",
        ),
        (lambda n, m: nn.LSTM(n, m), r"outputs of shape \(3, 2, 6\), got tuple"),
        (nn.Linear(2, 6), r"must be a function of .* \(here 2 and 6\) .* got the module Linear itself"),
        (
            lambda n: nn.Linear(n, 6),
            r"decoder must be a function of .* \(here 2 and 6\) .* raised TypeError: .* takes 1 positional",
        ),
        (lambda n, m: nn.Linear(n, m // 0), r"decoder must be a function .* it raised ZeroDivisionError: .*"),
        (lambda n, m: "network", "decoder factory must return a torch module, got 'network'"),
    ],
)
def test_networks_that_do_not_fit_are_refused(factory, message):
    with pytest.raises(ValueError, match=message):
        LatentImputer(decoder=factory, numeric="gaussian", **SETTINGS).fit(table())


def test_an_encoder_that_does_not_fit_is_refused_with_the_shapes():
    with pytest.raises(
        ValueError, match=r"The encoder network must map inputs of shape \(3, 2, 6\) to outputs"
    ):
        LatentImputer(encoder=lambda n, m: nn.Linear(4, m), **SETTINGS).fit(table())


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (nn.Linear(2, 3).double().requires_grad_(False), "it raised RuntimeError: mat1 and mat2"),
        (lambda x: torch.sigmoid(x[:, :2]), r"got \(1, 2\)"),
        (lambda x: 0.5, "got float"),
    ],
)
def test_a_known_mechanism_that_does_not_fit_is_refused_with_the_shapes(function, found):
    with pytest.raises(
        ValueError, match=rf"missingness must map a tensor of rows of shape \(1, 3\) .*{found}"
    ):
        LatentImputer(missingness=function, **SETTINGS).fit(table())


def test_a_model_with_a_network_of_a_user_is_not_saved(tmp_path):
    imputer = LatentImputer(decoder=mlp, **SETTINGS).fit(table())
    with pytest.raises(ValueError, match="whose decoder is a user-defined network cannot be saved"):
        imputer.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kernel", ["mwg", "pseudo-gibbs", "ac-mwg"])
def test_every_chain_keeps_observed_values_and_moves_the_others(kernel):
    x = table(1)
    settings = SETTINGS | {"numeric": "gaussian"}
    plain = LatentImputer(**settings).fit(table())
    chained = LatentImputer(n_chain_steps=3, chain_kernel=kernel, **settings).fit(table())
    draws, expected = chained.sample(x, n_draws=4), plain.sample(x, n_draws=4)
    seen = ~np.isnan(x)
    assert (draws[:, seen] == x[seen]).all()
    assert (draws[:, ~seen] != expected[:, ~seen]).any()
    assert np.isfinite(draws).all()


def test_chains_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"chain_kernel must be one of .* got 'gibbs'"):
        LatentImputer(chain_kernel="gibbs", **SETTINGS).fit(table())
    with pytest.raises(ValueError, match="chain_kernel='ac-mwg' needs missingness='mar'"):
        LatentImputer(chain_kernel="ac-mwg", missingness="linear", **SETTINGS).fit(table())
