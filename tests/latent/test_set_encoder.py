"""The set encoder against a loop over observed features, and its laws."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.latent.architecture import SetEncoder
from halfseen.latent.model import ZeroFill, encoder_input
from halfseen.nn.residual import ResidualMLP


def encoder(generator, n_features=4, **options):
    network = ResidualMLP(6, 3, n_blocks=1, width=8, **options)
    model = SetEncoder(n_features, network, embedding_size=5, code_size=6).double()
    model.reset_parameters(generator)
    return model


def batch(generator, n_rows=7, n_features=4):
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    return x, torch.rand(n_rows, n_features, generator=generator) > 0.4


def both(x, observed):
    return torch.cat([x, observed.to(x.dtype)], dim=-1)


def test_codes_of_observed_features_are_summed(generator):
    model, (x, observed) = encoder(generator), batch(generator)
    weight, bias = model.code.weight.detach().numpy(), model.code.bias.detach().numpy()
    totals = np.zeros((len(x), 6))
    for i, j in zip(*observed.numpy().nonzero(), strict=True):
        pair = np.append(model.embedding[j].detach().numpy(), x[i, j])
        totals[i] += np.maximum(weight @ pair + bias, 0)
    expected = model.network(torch.from_numpy(totals))
    torch.testing.assert_close(model(both(x, observed)), expected, rtol=0, atol=EXACT)


@given(seed=st.integers(0, 2**16))
def test_permuting_features_together_with_embeddings_changes_nothing(seed):
    generator = torch.Generator().manual_seed(seed)
    model, (x, observed) = encoder(generator), batch(generator)
    before = model(both(x, observed))
    order = torch.randperm(4, generator=generator)
    with torch.no_grad():
        model.embedding.copy_(model.embedding[order].clone())
    after = model(both(x[:, order], observed[:, order]))
    torch.testing.assert_close(after, before, rtol=0, atol=EXACT)


def test_features_are_distinguished_by_their_embeddings(generator):
    model, (x, observed) = encoder(generator), batch(generator)
    order = torch.tensor([1, 0, 3, 2])
    moved = model(both(x[:, order], observed[:, order]))
    assert (moved - model(both(x, observed))).abs().max() > 1e-3


@given(seed=st.integers(0, 2**16))
def test_missing_features_contribute_exactly_nothing(seed):
    generator = torch.Generator().manual_seed(seed)
    model, (x, observed) = encoder(generator), batch(generator)
    poisoned = torch.where(observed, x, math.nan)
    answer = model(both(poisoned, observed))
    torch.testing.assert_close(answer, model(both(x, observed)), rtol=0, atol=0)
    answer.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_feature_that_is_never_seen_may_as_well_not_exist(generator):
    large = encoder(generator, n_features=4)
    small = encoder(generator, n_features=3)
    small.load_state_dict({**large.state_dict(), "embedding": large.embedding[:3]})
    x, observed = batch(generator)
    observed[:, 3] = False
    expected = small(both(x[:, :3], observed[:, :3]))
    torch.testing.assert_close(large(both(x, observed)), expected, rtol=0, atol=EXACT)


def test_a_row_without_observed_values_is_the_network_at_zero(generator):
    model = encoder(generator)
    nothing = Incomplete(torch.full((2, 4), math.nan).double(), torch.zeros(2, 4, dtype=torch.bool))
    expected = model.network(torch.zeros(2, 6, dtype=torch.float64))
    assert torch.equal(model(encoder_input(nothing, ZeroFill())), expected)


def test_leading_dimensions_are_free(generator):
    model, (x, observed) = encoder(generator), batch(generator, n_rows=6)
    flat = model(both(x, observed))
    folded = model(both(x, observed).reshape(2, 3, 8))
    torch.testing.assert_close(folded.reshape(6, 3), flat, rtol=0, atol=EXACT)


def test_gradients_agree_with_finite_differences(generator):
    model, (x, observed) = encoder(generator, activation="tanh"), batch(generator, n_rows=2)
    assert torch.autograd.gradcheck(lambda values: model(both(values, observed)), x.requires_grad_())


def test_parameters_follow_the_generator_and_nothing_else():
    a, b, c = (encoder(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))


def test_dropout_of_the_network_draws_from_the_given_generator(generator):
    model, (x, observed) = encoder(generator, dropout=0.5), batch(generator)
    with pytest.raises(ValueError, match="needs a generator"):
        model(both(x, observed))
    assert torch.equal(*(model(both(x, observed), torch.Generator().manual_seed(1)) for _ in range(2)))


def test_a_network_of_another_size_is_refused():
    with pytest.raises(ValueError, match="code_size = 20 inputs, got 6"):
        SetEncoder(4, ResidualMLP(6, 3))
