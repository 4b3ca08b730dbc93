"""Mask models: probabilities that sum to one, curves with the promised shape, and formulas by loops."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from tolerances import EXACT

from halfseen.latent.mask_models import (
    RATE_FLOOR,
    Ignorable,
    KnownMask,
    LinearMask,
    MaskLayout,
    NonlinearMask,
)
from halfseen.latent.self_masking import FlexibleSelfMask, LinearSelfMask, MonotoneMask, SharedSlopeMask

BLOCKS = MaskLayout(column_of_feature=(2, 1, 1, 1, 0))  # a number, three levels, a number; in another order
MODELS = {
    "linear": LinearMask,
    "nonlinear": lambda layout: NonlinearMask(layout, hidden=6),
    "self": LinearSelfMask,
    "self, known signs": lambda layout: LinearSelfMask(layout, signs=(1, 0, -1)),
    "shared": SharedSlopeMask,
    "shared, known sign": lambda layout: SharedSlopeMask(layout, sign=-1),
    "monotone": lambda layout: MonotoneMask(layout, signs=(1, -1, 1)),
    "flexible": FlexibleSelfMask,
}
SELF_MASKING = [name for name in MODELS if "linear" not in name]
LAYOUTS = {"numbers": 3, "blocks": BLOCKS}


def randomised(model, generator, scale=1.0):
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, scale, generator=generator)
    return model


def rows(generator, model, *shape):
    return torch.randn(*shape, model.n_features, generator=generator, dtype=torch.float64)


def every_mask(n_columns):
    return torch.tensor(list(itertools.product([False, True], repeat=n_columns)))


# ------------------------------------------------------------------------------------- laws of every model


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_of_all_masks_sum_to_one(generator, name, layout):
    model = randomised(MODELS[name](layout), generator)
    x = rows(generator, model, 5)
    log_probs = model.log_prob(x.unsqueeze(1), every_mask(3))  # (5, 8)
    torch.testing.assert_close(log_probs.logsumexp(1), torch.zeros(5).double(), rtol=0, atol=EXACT)
    assert log_probs.std(dim=1).min() > 0


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_mask_multiplies_the_probabilities_of_its_columns(generator, name, layout):
    model = randomised(MODELS[name](layout), generator)
    x = rows(generator, model, 4)
    observed = torch.rand(4, 3, generator=generator) > 0.5
    probability = special.expit(model.logits(x).detach().numpy())
    expected = np.where(observed.numpy(), probability, 1 - probability).prod(axis=1)
    np.testing.assert_allclose(
        model.log_prob(x, observed).detach().numpy(), np.log(expected), rtol=0, atol=EXACT
    )


@pytest.mark.parametrize("name", MODELS)
def test_columns_that_are_not_modelled_contribute_nothing(generator, name):
    columns = (2, 0)
    part = randomised(MODELS[name](MaskLayout(BLOCKS.column_of_feature, columns)), generator)
    whole = MODELS[name](BLOCKS).double()
    whole.load_state_dict(part.state_dict())
    x, masks = rows(generator, part, 6, 1), every_mask(3)
    log_probs = torch.nn.functional.logsigmoid(whole.logits(x) * torch.where(masks, 1.0, -1.0))
    torch.testing.assert_close(
        part.log_prob(x, masks), log_probs[..., 0] + log_probs[..., 2], rtol=0, atol=EXACT
    )


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_agree_with_finite_differences(generator, name, layout):
    model = randomised(MODELS[name](layout), generator)
    x = rows(generator, model, 3).requires_grad_()
    observed = torch.rand(3, 3, generator=generator) > 0.5
    parameters = dict(model.named_parameters())

    def log_prob(x, *values):
        named = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(
            _Scorer(model), {f"model.{k}": v for k, v in named.items()}, (x, observed)
        )

    assert torch.autograd.gradcheck(log_prob, (x, *parameters.values()))


class _Scorer(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, observed):
        return self.model.log_prob(x, observed)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_draws_of_rows_share_their_masks(generator, name, layout):
    model = randomised(MODELS[name](layout), generator)
    x = rows(generator, model, 7, 4)  # draws, rows
    observed = torch.rand(4, 3, generator=generator) > 0.5
    log_prob = model.log_prob(x, observed)
    assert log_prob.shape == (7, 4)
    torch.testing.assert_close(log_prob[5, 2], model.log_prob(x[5, 2], observed[2]), rtol=0, atol=EXACT)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_starts_at_the_observed_rates_and_nearly_ignorable(generator, name, layout):
    model = randomised(MODELS[name](layout), generator)
    rate = torch.tensor([0.3, 0.9, 0.55], dtype=torch.float64)
    model.reset_parameters(generator, rate)
    at_zero = model.logits(torch.zeros(model.n_features, dtype=torch.float64)).sigmoid()
    torch.testing.assert_close(at_zero, rate, rtol=0, atol=EXACT)
    probability = model.logits(rows(generator, model, 1000)).sigmoid()
    assert (probability.mean(dim=0) - rate).abs().max() < 0.03
    assert probability.std(dim=0).max() < 0.1
    assert probability.std(dim=0)[0] > 0  # no curve starts flat: its gradient might stay zero


@pytest.mark.parametrize("name", MODELS)
def test_a_column_that_was_always_observed_starts_finite(generator, name):
    model = MODELS[name](3).double()
    model.reset_parameters(generator, torch.tensor([1.0, 0.0, 0.5]))
    at_zero = model.logits(torch.zeros(3, dtype=torch.float64)).sigmoid()
    expected = torch.tensor([1 - RATE_FLOOR, RATE_FLOOR, 0.5], dtype=torch.float64)
    torch.testing.assert_close(at_zero, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_follow_the_generator_and_nothing_else(name):
    rate = torch.full((3,), 0.7)
    models = [MODELS[name](BLOCKS), MODELS[name](BLOCKS)]
    for model in models:
        model.reset_parameters(torch.Generator().manual_seed(3), rate)
    a, b = (model.state_dict() for model in models)
    assert all(torch.equal(a[key], b[key]) for key in a)
    x = torch.ones(5)
    assert torch.equal(copy.deepcopy(models[0]).logits(x), models[0].logits(x))


# ------------------------------------------------------------------------------------- formulas


def test_the_linear_model_is_linear(generator):
    model = randomised(LinearMask(BLOCKS), generator)
    x = rows(generator, model)
    expected = model.weight.detach().numpy() @ x.numpy() + model.bias.detach().numpy()
    np.testing.assert_allclose(model.logits(x).detach().numpy(), expected, rtol=0, atol=EXACT)
    assert not model.is_self_masking


def test_the_nonlinear_model_has_one_hidden_layer(generator):
    model = randomised(NonlinearMask(3, hidden=6), generator)
    x = rows(generator, model)
    weight, bias = (parameter.detach().numpy() for parameter in model.inner.parameters())
    hidden = np.tanh(weight @ x.numpy() + bias)
    expected = model.weight.detach().numpy() @ hidden + model.bias.detach().numpy()
    np.testing.assert_allclose(model.logits(x).detach().numpy(), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("signs", [None, (1, -1, 0)])
def test_self_masking_is_a_slope_and_a_bias_for_each_column(generator, signs):
    model = randomised(LinearSelfMask(3, signs), generator)
    x = rows(generator, model)
    for c, value in enumerate(x.tolist()):
        raw = model.raw_slope[c].item()
        sign = 0 if signs is None else signs[c]
        slope = raw if sign == 0 else sign * math.log1p(math.exp(raw))
        assert math.isclose(model.logits(x)[c].item(), model.bias[c].item() - slope * value, abs_tol=EXACT)


def test_columns_share_the_slope_and_differ_in_bias(generator):
    model = randomised(SharedSlopeMask(3), generator)
    x = rows(generator, model)
    expected = model.bias - model.raw_slope * x
    torch.testing.assert_close(model.logits(x), expected, rtol=0, atol=EXACT)
    assert model.raw_slope.numel() == 1


@pytest.mark.parametrize("name", SELF_MASKING)
def test_a_number_feeds_its_own_column_and_a_block_its_levels(generator, name):
    model = randomised(MODELS[name](BLOCKS), generator)
    x = rows(generator, model)
    values = torch.tensor([x[4], 0.0, x[0]], dtype=torch.float64)  # of columns 0, 1 and 2
    expected = model.column_logits(values)
    expected[1] += (x[1:4] * model.level_logits).sum()
    torch.testing.assert_close(model.logits(x), expected, rtol=0, atol=EXACT)
    assert model.of_blocks.tolist() == [1, 2, 3]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", SELF_MASKING)
def test_a_self_masking_column_depends_on_its_own_features_only(generator, name, layout):
    model = randomised(MODELS[name](layout), generator)
    jacobian = torch.autograd.functional.jacobian(model.logits, rows(generator, model))  # (C, D)
    column = torch.tensor(model.layout.column_of_feature)
    own = torch.arange(3).unsqueeze(-1) == column
    assert model.is_self_masking
    assert torch.equal(jacobian != 0, own)


def test_numbers_in_another_order_feed_their_own_columns(generator):
    model = randomised(LinearSelfMask(MaskLayout((1, 2, 0))), generator)
    x = rows(generator, model, 5)
    expected = model.bias - model.slope * x[:, [2, 0, 1]]
    torch.testing.assert_close(model.logits(x), expected, rtol=0, atol=EXACT)


def test_a_column_without_features_has_a_bias_alone(generator):
    model = randomised(LinearSelfMask(MaskLayout((1, 1), n_columns=4)), generator)
    logits = model.logits(rows(generator, model, 5))
    assert torch.equal(logits[:, [0, 2, 3]], model.bias[[0, 2, 3]].expand(5, 3))


@pytest.mark.parametrize("name", ["linear", "nonlinear"])
def test_agnostic_models_have_no_curves_of_columns(name):
    with pytest.raises(TypeError, match="is not self-masking"):
        MODELS[name](3).column_logits(torch.zeros(3))


# ------------------------------------------------------------------------------------- shapes of curves


@given(seed=st.integers(0, 2**16), scale=st.floats(0.1, 20.0))
def test_known_signs_hold_for_any_parameters(seed, scale):
    generator = torch.Generator().manual_seed(seed)
    signs = torch.tensor([1, -1, 1, -1, 1])
    grid = torch.linspace(-4, 4, 81, dtype=torch.float64).unsqueeze(-1).expand(81, 5)
    for build in (LinearSelfMask, MonotoneMask):
        model = randomised(build(5, signs.tolist()), generator, scale)
        rise = model.logits(grid).diff(dim=0) * signs  # of being observed
        assert rise.max() <= EXACT
    for sign in (-1, 1):
        model = randomised(SharedSlopeMask(5, sign), generator, scale)
        assert (model.logits(grid).diff(dim=0) * sign).max() <= EXACT


def test_larger_values_are_more_often_missing_if_the_sign_is_positive():
    x = torch.tensor([[-1.0], [1.0]])
    for model in (LinearSelfMask(1, 1), MonotoneMask(1, 1), SharedSlopeMask(1, 1)):
        low, high = model.logits(x).sigmoid()
        assert low > high


def test_a_monotone_curve_is_a_line_and_steps(generator):
    model = randomised(MonotoneMask(2, (1, -1), n_units=3), generator)
    x = rows(generator, model)
    softplus = lambda parameter: np.logaddexp(parameter.detach().numpy(), 0)  # noqa: E731
    slope, height, steepness = (softplus(p) for p in (model.raw_slope, model.raw_height, model.raw_steepness))
    for c, (value, sign) in enumerate(zip(x.tolist(), (1, -1), strict=True)):
        curve = slope[c] * value
        for u in range(3):
            curve += height[u, c] * math.tanh(steepness[u, c] * (value - model.threshold[u, c].item()))
        expected = model.bias[c].item() - sign * curve
        assert math.isclose(model.logits(x)[c].item(), expected, abs_tol=EXACT)


def test_a_flexible_curve_is_a_line_and_bumps(generator):
    model = randomised(FlexibleSelfMask(2, n_units=5, reach=2.0), generator)
    x = rows(generator, model)
    for c, value in enumerate(x.tolist()):
        expected = model.bias[c].item() - model.slope[c].item() * value
        for u, centre in enumerate([-2.0, -1.0, 0.0, 1.0, 2.0]):
            expected -= model.height[u, c].item() * math.exp(-0.5 * (value - centre) ** 2)
        assert math.isclose(model.logits(x)[c].item(), expected, abs_tol=EXACT)


@pytest.mark.parametrize(
    ("build", "is_found"), [(FlexibleSelfMask, True), (lambda n: MonotoneMask(n, 1), False)]
)
def test_only_a_flexible_curve_finds_that_the_middle_is_removed(generator, build, is_found):
    x = torch.linspace(-3, 3, 200, dtype=torch.float64).unsqueeze(-1)
    observed = x.abs() > 1
    model = build(1).double()
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = -model.log_prob(x, observed).mean() + 1e-3 * sum(p.square().sum() for p in model.parameters())
        value.backward()
        return value

    optimiser.step(loss)
    found = (model.logits(x) > 0) == observed
    assert (found.double().mean() > 0.95) == is_found


# ------------------------------------------------------------------------------------- without parameters


def test_an_ignorable_model_leaves_the_mask_out(generator):
    model = Ignorable(BLOCKS)
    x = rows(generator, model, 7, 4).requires_grad_()
    log_prob = model.log_prob(x, torch.zeros(4, 3, dtype=torch.bool))
    assert torch.equal(log_prob, torch.zeros(7, 4, dtype=torch.float64))
    assert model.is_ignorable
    assert list(model.parameters()) == []
    with pytest.raises(TypeError, match="does not model the mask"):
        model.logits(x)


def test_a_known_function_gives_the_probability_and_its_gradient(generator):
    def missing(x):
        return torch.sigmoid(2.0 * x[..., :3].roll(1, dims=-1) - 1.0)

    model = KnownMask(missing, MaskLayout(range(3), columns=(0, 2)))
    x = rows(generator, model, 5, 1).requires_grad_()
    probability = missing(x).detach().numpy()[..., [0, 2]]
    masks = every_mask(3)
    expected = np.log(np.where(masks[:, [0, 2]], 1 - probability, probability)).sum(-1)
    np.testing.assert_allclose(model.log_prob(x, masks).detach().numpy(), expected, rtol=0, atol=EXACT)
    np.testing.assert_allclose(
        model.logits(x).detach().numpy(), special.logit(1 - missing(x).detach().numpy()), rtol=0, atol=EXACT
    )
    assert torch.autograd.gradcheck(lambda x: model.log_prob(x, masks), x)
    model.reset_parameters(generator, torch.full((3,), 0.5))  # nothing to learn, nothing to reset


def test_an_impossible_mask_is_very_improbable_but_finite():
    model = KnownMask(torch.square, 1)
    x = torch.tensor([[0.0], [1.0]], requires_grad=True)
    log_prob = model.log_prob(x, torch.tensor([[False], [True]]))
    assert log_prob.isfinite().all()
    assert log_prob.max() < -80
    log_prob.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.detach().numpy(), "got ndarray"),
        (lambda x: x.sum(-1), r"shape \(2, 3\), got \(2,\)"),
    ],
)
def test_a_known_function_that_is_not_of_torch_or_of_another_shape_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        KnownMask(function, 3).log_prob(torch.zeros(2, 3), torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LinearSelfMask(3, (1, 1)), r"signs must be 3 of \(-1, 0, 1\)"),
        (lambda: LinearSelfMask(3, 2), "got 2"),
        (lambda: MonotoneMask(2, (1, 0)), r"signs must be 2 of \(-1, 1\)"),
        (lambda: FlexibleSelfMask(2, n_units=1), "n_units must be at least 2, got 1"),
        (lambda: MaskLayout(()), "at least one feature"),
        (lambda: MaskLayout((0, 3), n_columns=2), "from 0 to 1"),
        (lambda: MaskLayout((0, 1), columns=(-1,)), "from 0 to 1"),
    ],
)
def test_impossible_models_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
