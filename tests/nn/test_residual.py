"""Fully connected networks against their formulas in numpy."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from tolerances import EXACT, FAILURE_RATE

from halfseen.data.incomplete import Incomplete
from halfseen.latent.model import LearnedFill, ZeroFill, encoder_input
from halfseen.nn.residual import ACTIVATIONS, ResidualMLP, drop

FUNCTIONS = {
    "elu": lambda v: np.where(v > 0, v, np.expm1(v)),
    "gelu": lambda v: v * stats.norm.cdf(v),
    "relu": lambda v: np.maximum(v, 0),
    "silu": lambda v: v * special.expit(v),
    "softplus": lambda v: np.logaddexp(v, 0),
    "tanh": np.tanh,
}


def network(generator, **options):
    model = ResidualMLP(5, 3, **{"width": 8, **options}).double()
    model.reset_parameters(generator)
    return model


def inputs(generator, *shape):
    return torch.randn(*shape, 5, generator=generator, dtype=torch.float64)


def affine(layer, x):
    bias = 0.0 if layer.bias is None else layer.bias.detach().numpy()
    return x @ layer.weight.detach().numpy().T + bias


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("linear_skip", [True, False])
def test_residual_blocks_follow_the_formula(generator, activation, linear_skip):
    model = network(generator, n_blocks=3, activation=activation, linear_skip=linear_skip)
    x, function = inputs(generator, 6), FUNCTIONS[activation]
    hidden = function(affine(model.body[0].linear, x.numpy()))
    for block in list(model.body)[1:]:
        hidden = function(hidden + affine(block.outer, function(affine(block.inner.linear, hidden))))
    expected = affine(model.output, hidden) + (affine(model.skip, x.numpy()) if linear_skip else 0.0)
    np.testing.assert_allclose(model(x).detach().numpy(), expected, rtol=0, atol=EXACT)
    assert len(model.body) == 4


def test_plain_layers_follow_the_formula(generator):
    model = network(generator, n_blocks=2, activation="tanh", residual=False)
    x = inputs(generator, 6)
    hidden = np.tanh(affine(model.body[1].linear, np.tanh(affine(model.body[0].linear, x.numpy()))))
    np.testing.assert_allclose(model(x).detach().numpy(), affine(model.output, hidden), rtol=0, atol=EXACT)
    assert len(model.body) == 2


def test_blocks_whose_outer_layers_are_zero_pass_positive_units_on(generator):
    deep = network(generator, n_blocks=4)
    shallow = network(generator, n_blocks=0)
    with torch.no_grad():
        for block in list(deep.body)[1:]:
            block.outer.weight.zero_()
            block.outer.bias.zero_()
    shallow.body.load_state_dict({"0." + k: v for k, v in deep.body[0].state_dict().items()})
    shallow.output.load_state_dict(deep.output.state_dict())
    x = inputs(generator, 7)
    torch.testing.assert_close(deep(x), shallow(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "options", [{"n_blocks": 2, "linear_skip": True}, {"n_blocks": 0, "width": 0, "linear_skip": False}]
)
def test_a_network_set_to_a_linear_map_is_that_map(generator, options):
    model = network(generator, **options)
    weight = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    bias = torch.randn(3, generator=generator, dtype=torch.float64)
    model.set_linear(weight, bias)
    x = inputs(generator, 7)
    torch.testing.assert_close(model(x), x @ weight.mT + bias, rtol=0, atol=EXACT)


def test_a_network_set_to_a_linear_map_can_leave_it(generator):
    model = network(generator, linear_skip=True)
    model.set_linear(torch.zeros(3, 5), torch.zeros(3))
    model(inputs(generator, 7)).sum().backward()
    assert model.output.weight.grad.abs().max() > 0


def test_without_a_linear_path_no_linear_map_is_set(generator):
    with pytest.raises(ValueError, match="linear_skip=True"):
        network(generator).set_linear(torch.zeros(3, 5), torch.zeros(3))


def test_one_linear_layer_has_the_parameters_of_pca(generator):
    model = network(generator, n_blocks=0, width=0, linear_skip=True)
    assert sum(parameter.numel() for parameter in model.parameters()) == 3 * 5 + 3


def test_leading_dimensions_are_free(generator):
    model, x = network(generator, linear_skip=True), inputs(generator, 2, 3)
    torch.testing.assert_close(model(x)[1, 2], model(x[1, 2]), rtol=0, atol=EXACT)
    assert model(x[:0]).shape == (0, 3, 3)


def test_parameters_follow_the_generator_and_nothing_else():
    first, second, third = (torch.Generator().manual_seed(seed) for seed in (1, 1, 2))
    a, b, c = network(first), network(second), network(third)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))


def test_new_networks_are_alike_and_copies_compute_the_same(generator):
    a, b = ResidualMLP(5, 3), ResidualMLP(5, 3)
    x = torch.randn(4, 5, generator=generator)
    assert torch.equal(a(x), b(x))
    assert torch.equal(copy.deepcopy(a)(x), a(x))
    assert a(x).std() > 0


def test_weights_are_uniform_within_the_inverse_root_of_the_inputs(generator):
    model = network(generator, n_blocks=2, width=100)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)
            cells = torch.cat([layer.weight.flatten(), layer.bias]).detach().numpy()
            assert stats.kstest(cells, stats.uniform(-bound, 2 * bound).cdf).pvalue > FAILURE_RATE


@pytest.mark.parametrize("residual", [True, False])
def test_gradients_agree_with_finite_differences(generator, residual):
    model = network(generator, activation="tanh", residual=residual, linear_skip=True)
    assert torch.autograd.gradcheck(model, inputs(generator, 2).requires_grad_())


def test_dropout_keeps_the_mean_and_leaves_out_the_given_share(generator):
    ones = torch.ones(200_000, dtype=torch.float64)
    dropped = drop(ones, 0.3, generator)
    n_zero = int((dropped == 0).sum())
    assert stats.binomtest(n_zero, len(ones), 0.3).pvalue > FAILURE_RATE
    torch.testing.assert_close(dropped[dropped != 0], ones[dropped != 0] / 0.7, rtol=0, atol=EXACT)


@pytest.mark.parametrize("residual", [True, False])
def test_dropout_acts_in_training_only_and_by_the_given_generator(generator, residual):
    model, x = network(generator, dropout=0.5, residual=residual), inputs(generator, 9)
    twice = [model(x, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*twice)
    assert not torch.equal(twice[0], model(x, generator))
    plain = network(generator, residual=residual)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(x), plain(x))


def test_dropout_without_a_generator_is_refused(generator):
    with pytest.raises(ValueError, match="needs a generator"):
        network(generator, dropout=0.5)(inputs(generator, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1 for 2 blocks"),
        ({"n_blocks": -1}, "must not be negative, got -1"),
        ({"activation": "step"}, "got 'step'"),
        ({"dropout": 1.0}, "below 1, got 1.0"),
    ],
)
def test_impossible_networks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ResidualMLP(5, 3, **options)


def test_networks_have_inputs_and_outputs():
    with pytest.raises(ValueError, match="at least 1, got 0 and 3"):
        ResidualMLP(0, 3)


def test_the_encoder_sees_the_fill_of_missing_values_and_then_the_mask(generator):
    x = inputs(generator, 6)
    observed = torch.rand(6, 5, generator=generator) > 0.5
    poisoned = Incomplete(torch.where(observed, x, math.nan), observed)
    fill = LearnedFill(5).double()
    with torch.no_grad():
        fill.value.copy_(torch.arange(5.0))
    for module, value in ((ZeroFill(), np.zeros(5)), (fill, np.arange(5.0))):
        seen = encoder_input(poisoned, module).detach().numpy()
        mask = observed.numpy()
        np.testing.assert_array_equal(seen[:, :5], np.where(mask, x.numpy(), value))
        assert seen.shape[1] == 10
        np.testing.assert_array_equal(seen[:, 5:], mask.astype(float))


def test_the_learned_fill_learns_from_missing_values_only(generator):
    fill, observed = LearnedFill(2).double(), torch.tensor([[True, False], [True, False]])
    encoder_input(Incomplete(torch.full((2, 2), math.nan).double(), observed), fill).nansum().backward()
    assert fill.value.grad.tolist() == [0.0, 2.0]
