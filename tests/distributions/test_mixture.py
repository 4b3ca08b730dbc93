import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE
from torch import distributions
from torch.func import grad_and_value, jacrev

from halfseen.distributions.mixture import GaussianMixture

F64 = torch.float64


def random_parameters(generator, *batch, n_components=3, n_latents=3, dtype=F64):
    shape = (*batch, n_components, n_latents)
    logits = torch.randn(shape[:-1], generator=generator, dtype=dtype)
    loc = 1.5 * torch.randn(shape, generator=generator, dtype=dtype)
    return logits, loc, 0.4 + torch.rand(shape, generator=generator, dtype=dtype)


def noise(generator, *lead, n_latents=3, dtype=F64):
    uniforms = torch.rand(lead, generator=generator, dtype=dtype)
    return uniforms, torch.randn((*lead, n_latents), generator=generator, dtype=dtype)


def torch_mixture(mixture):
    component = distributions.Independent(distributions.Normal(mixture.loc, mixture.scale), 1)
    return distributions.MixtureSameFamily(distributions.Categorical(logits=mixture.logits), component)


def with_gradient(parameters):
    return tuple(part.clone().requires_grad_() for part in parameters)


def gradients_of(function, parameters):
    parameters = with_gradient(parameters)
    return torch.autograd.grad(function(GaussianMixture(*parameters)), parameters)


def chain(logits, loc, scale, z):
    """The uniforms u (L) of a draw (L), one conditional distribution function after the other."""
    uniforms = []
    for j in range(len(z)):
        earlier = distributions.Normal(loc[:, :j], scale[:, :j]).log_prob(z[:j]).sum(dim=-1)
        weights = (logits + earlier).softmax(dim=0)
        uniforms.append((weights * torch.special.ndtr((z[j] - loc[:, j]) / scale[:, j])).sum())
    return torch.stack(uniforms)


def draw_at(uniforms, logits, loc, scale):
    """The inverse of ``chain`` by root finding, slow and obvious."""
    logits, loc, scale = (part.numpy() for part in (logits, loc, scale))
    z = np.zeros(len(uniforms))
    for j, level in enumerate(uniforms):
        log_weights = logits + stats.norm.logpdf(z[:j], loc[:, :j], scale[:, :j]).sum(axis=-1)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()

        def excess(t, weights=weights, j=j, level=level):
            return weights @ stats.norm.cdf(t, loc[:, j], scale[:, j]) - level

        z[j] = optimize.brentq(excess, -20.0, 20.0, xtol=1e-15, rtol=1e-14)
    return z


def test_the_density_agrees_with_that_of_torch(generator):
    mixture = GaussianMixture(*random_parameters(generator, 4, 2))
    z = 2.0 * torch.randn(5, 4, 2, 3, generator=generator, dtype=F64)
    torch.testing.assert_close(
        mixture.log_prob(z), torch_mixture(mixture).log_prob(z), rtol=EXACT, atol=EXACT
    )


def test_the_density_integrates_to_one(generator):
    mixture = GaussianMixture(*random_parameters(generator, n_latents=2))
    axis = torch.linspace(-14.0, 14.0, 1401, dtype=F64)
    density = mixture.log_prob(torch.cartesian_prod(axis, axis)).exp().sum() * (axis[1] - axis[0]) ** 2
    assert abs(density - 1.0) < QUADRATURE


def test_the_density_at_strata_is_that_of_the_whole_mixture(generator):
    mixture = GaussianMixture(*random_parameters(generator, 4))
    z = mixture.stratified(torch.randn(5, 4, 3, 3, generator=generator, dtype=F64))
    expected = torch.stack([mixture.log_prob(z[..., k, :]) for k in range(3)], dim=-1)
    torch.testing.assert_close(mixture.log_prob_strata(z), expected, rtol=EXACT, atol=EXACT)


def test_the_density_at_strata_keeps_its_digits_in_single_precision_when_components_are_narrow(generator):
    logits, loc, _ = random_parameters(generator, 4, dtype=torch.float32)
    mixture = GaussianMixture(logits, loc, torch.full_like(loc, 1e-3))
    z = mixture.stratified(torch.randn(5, 4, 3, 3, generator=generator))
    exact = GaussianMixture(logits.double(), loc.double(), mixture.scale.double()).log_prob_strata(z.double())
    torch.testing.assert_close(mixture.log_prob_strata(z).double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_one_component_is_the_diagonal_gaussian_to_the_last_bit(generator, dtype):
    parameters = random_parameters(generator, 6, n_components=1, n_latents=7, dtype=dtype)
    uniforms, normals = noise(generator, 5, 6, n_latents=7, dtype=dtype)

    def mixture_terms(logits, loc, scale):
        mixture = GaussianMixture(logits, loc, scale)
        z = mixture.ancestral(uniforms, normals)
        strata = mixture.stratified(normals.unsqueeze(-2))
        return z, mixture.log_prob(z), strata.squeeze(-2), mixture.log_prob_strata(strata).squeeze(-1)

    def plain_terms(logits, loc, scale):
        loc, scale = loc[:, 0], scale[:, 0]
        z = loc + scale * normals
        log_prob = distributions.Normal(loc, scale).log_prob(z).sum(dim=-1)
        return z, log_prob, z, log_prob

    for term in range(4):
        answers = []
        for terms in (mixture_terms, plain_terms):
            leaves = with_gradient(parameters)
            value = terms(*leaves)[term]
            answers.append((value, *torch.autograd.grad(value.pow(3).sum(), leaves[1:])))
        for ours, plain in zip(*answers, strict=True):
            assert torch.equal(ours, plain)


def test_an_ancestral_draw_fills_the_component_that_its_uniform_chooses(generator):
    logits, loc, scale = random_parameters(generator, 40)
    uniforms, normals = noise(generator, 5, 40)
    draws = GaussianMixture(*with_gradient((logits, loc, scale))).ancestral(uniforms, normals).detach()
    for s, n in np.ndindex(5, 40):
        k = np.searchsorted(logits[n].softmax(0).cumsum(0).numpy(), uniforms[s, n].item(), side="right")
        assert torch.equal(draws[s, n], loc[n, k] + scale[n, k] * normals[s, n])


def test_uniforms_at_the_ends_choose_components_that_have_weight(generator):
    _, loc, scale = random_parameters(generator, n_components=10)
    first = GaussianMixture(torch.tensor([-1e9] + [0.0] * 9, dtype=F64), loc, scale)
    ends = torch.tensor([0.0, 1.0 - 2.0**-53], dtype=F64)
    draws = first.ancestral(ends, torch.zeros(2, 3, dtype=F64))
    assert torch.equal(draws, loc[[1, 9]])


def test_ancestral_draws_turn_into_independent_uniforms(generator):
    parameters = random_parameters(generator)
    draws = GaussianMixture(*parameters).ancestral(*noise(generator, 3000))
    uniforms = torch.stack([chain(*parameters, z) for z in draws]).numpy()
    normals = stats.norm.ppf(uniforms)
    for j in range(3):
        assert stats.kstest(uniforms[:, j], "uniform").pvalue > FAILURE_RATE
        assert stats.pearsonr(normals[:, j], normals[:, (j + 1) % 3]).pvalue > FAILURE_RATE
        assert stats.pearsonr(normals[:, j] ** 2, normals[:, (j + 1) % 3] ** 2).pvalue > FAILURE_RATE


def test_implicit_gradients_agree_with_finite_differences_at_fixed_uniforms(generator):
    parameters = random_parameters(generator)
    step = 3e-4
    stencil = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}  # of order four
    for _ in range(4):
        one = noise(generator)
        g = torch.randn(3, generator=generator, dtype=F64)
        draw = GaussianMixture(*parameters).ancestral(*one)
        uniforms = chain(*parameters, draw).numpy()
        np.testing.assert_allclose(draw_at(uniforms, *parameters), draw, atol=1e-12)

        ours = gradients_of(lambda mixture, one=one, g=g: g @ mixture.ancestral(*one), parameters)
        for which, gradient in enumerate(ours):
            for index in np.ndindex(*gradient.shape):
                expected = 0.0
                for steps, weight in stencil.items():
                    moved = [part.clone() for part in parameters]
                    moved[which][index] += steps * step
                    expected += weight / step * (g.numpy() @ draw_at(uniforms, *moved))
                assert abs(gradient[index] - expected) < 1e-8 * max(1.0, abs(expected))


@pytest.mark.parametrize("n_latents", [1, 6])
def test_implicit_gradients_solve_the_linear_system_of_the_distribution_functions(generator, n_latents):
    parameters = random_parameters(generator, n_components=4, n_latents=n_latents)
    for _ in range(5):
        one = noise(generator, n_latents=n_latents)
        z = GaussianMixture(*parameters).ancestral(*one)
        *by_parameter, by_draw = jacrev(chain, argnums=(0, 1, 2, 3))(*parameters, z)
        expected = [-torch.linalg.solve(by_draw, part.flatten(1)) for part in by_parameter]
        ours = jacrev(lambda *p, one=one: GaussianMixture(*p).ancestral(*one), argnums=(0, 1, 2))(*parameters)
        for gradient, solved in zip(ours, expected, strict=True):
            torch.testing.assert_close(gradient.flatten(1), solved, rtol=1e-8, atol=1e-9)


def polynomial(z):
    return z[..., 0] ** 2 * z[..., 1] + z[..., 2] ** 3 - 2.0 * z[..., 0] * z[..., 2]


def mean_polynomial(mixture):
    """E f(z) in closed form, from the moments of each component."""
    m, v = mixture.loc, mixture.scale.square()
    each = (
        (m[:, 0] ** 2 + v[:, 0]) * m[:, 1] + m[:, 2] ** 3 + 3.0 * m[:, 2] * v[:, 2] - 2.0 * m[:, 0] * m[:, 2]
    )
    return (mixture.logits.softmax(dim=0) * each).sum()


@pytest.mark.parametrize("scheme", ["ancestral", "stratified"])
def test_gradients_of_draws_have_the_gradient_of_the_expectation_as_their_mean(generator, scheme):
    parameters, n_draws = random_parameters(generator), 20_000
    rows = with_gradient([part.expand(n_draws, *part.shape) for part in parameters])
    mixture = GaussianMixture(*rows)
    if scheme == "ancestral":
        values = polynomial(mixture.ancestral(*noise(generator, n_draws)))
    else:
        normals = torch.randn(n_draws, 3, 3, generator=generator, dtype=F64)
        values = (mixture.log_weights.exp() * polynomial(mixture.stratified(normals))).sum(dim=-1)
    drawn = torch.autograd.grad(values.sum(), rows)
    exact = gradients_of(mean_polynomial, parameters)
    for sample, expected in zip(drawn, exact, strict=True):
        pvalues = stats.ttest_1samp(sample.flatten(1).numpy(), expected.flatten().numpy()).pvalue
        assert pvalues.min() > FAILURE_RATE


def test_gradients_of_torch_func_and_sums_over_draws_are_those_of_backward(generator):
    parameters, one = random_parameters(generator, 4), noise(generator, 7, 4)

    def loss(parameters):
        mixture = GaussianMixture(*parameters)
        z = mixture.ancestral(*one)
        return (polynomial(z) - mixture.log_prob(z)).sum()

    functional, _ = grad_and_value(loss)(parameters)
    leaves = with_gradient(parameters)
    for ours, expected in zip(functional, torch.autograd.grad(loss(leaves), leaves), strict=True):
        torch.testing.assert_close(ours, expected, rtol=EXACT, atol=EXACT)
    by_draw = [
        gradients_of(lambda m, s=s: polynomial(m.ancestral(one[0][s], one[1][s])).sum(), parameters)
        for s in range(7)
    ]
    together = gradients_of(lambda m: polynomial(m.ancestral(*one)).sum(), parameters)
    for ours, parts in zip(together, zip(*by_draw, strict=True), strict=True):
        torch.testing.assert_close(ours, sum(parts), rtol=EXACT, atol=EXACT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_gradient_is_the_eager_one(generator):
    parameters, one = random_parameters(generator, 4), noise(generator, 7, 4)

    def loss(parameters, uniforms, normals):
        return polynomial(GaussianMixture(*parameters).ancestral(uniforms, normals)).sum()

    eager, _ = grad_and_value(loss)(parameters, *one)
    compiled, _ = torch.compile(grad_and_value(loss), fullgraph=True, dynamic=False)(parameters, *one)
    for ours, expected in zip(compiled, eager, strict=True):
        torch.testing.assert_close(ours, expected, rtol=EXACT, atol=EXACT)


def test_gradients_stay_finite_in_single_precision_when_components_are_far_apart(generator):
    logits, loc, _ = random_parameters(generator, 50, n_latents=40, dtype=torch.float32)
    parameters = logits, 30.0 * loc, torch.full_like(loc, 1e-5)
    one = noise(generator, 5, 50, n_latents=40, dtype=torch.float32)
    draws = GaussianMixture(*parameters).ancestral(*one)
    assert draws.isfinite().all()
    for gradient in gradients_of(lambda m: m.ancestral(*one).pow(2).sum(), parameters):
        assert gradient.dtype == torch.float32
        assert gradient.isfinite().all()


def test_an_excluded_component_leaves_values_and_gradients_finite(generator):
    _, loc, scale = random_parameters(generator, n_components=2, dtype=torch.float32)
    parameters = torch.tensor([0.0, -200.0]), loc, scale
    far = torch.tensor([0.5]), torch.full((1, 3), 60.0)  # no density of either component reaches there
    assert torch.equal(GaussianMixture(*parameters).ancestral(*far), (loc[:1] + scale[:1] * far[1]))
    for gradient in gradients_of(lambda m: m.ancestral(*far).sum(), parameters):
        assert gradient.isfinite().all()


def test_gradients_in_the_far_tails_mirror_each_other(generator):
    logits, loc, scale = random_parameters(generator)
    uniforms, normals = torch.tensor([0.5], dtype=F64), torch.full((1, 3), 8.0, dtype=F64)
    g = torch.tensor([1.0, -2.0, 3.0], dtype=F64)
    upper = gradients_of(lambda m: (g * m.ancestral(uniforms, normals)).sum(), (logits, loc, scale))
    lower = gradients_of(lambda m: (g * m.ancestral(uniforms, -normals)).sum(), (logits, -loc, scale))
    for high, low, sign in zip(upper, lower, (-1.0, 1.0, -1.0), strict=True):
        torch.testing.assert_close(high, sign * low, rtol=EXACT, atol=EXACT)


def test_draws_without_gradients_have_the_same_values(generator):
    parameters, one = random_parameters(generator, 4), noise(generator, 7, 4)
    attached = GaussianMixture(*with_gradient(parameters)).ancestral(*one)
    with torch.no_grad():
        assert torch.equal(GaussianMixture(*parameters).ancestral(*one), attached)
    assert attached.requires_grad


def test_leading_axes_and_the_order_of_components_change_no_density(generator):
    parameters = random_parameters(generator, 4)
    mixture, order = GaussianMixture(*parameters), [2, 0, 1]
    z = torch.randn(6, 4, 3, generator=generator, dtype=F64)
    shuffled = GaussianMixture(*(part[:, order] for part in parameters))
    torch.testing.assert_close(shuffled.log_prob(z), mixture.log_prob(z), rtol=EXACT, atol=EXACT)
    folded = mixture.log_prob(z.reshape(2, 3, 4, 3)).reshape(6, 4)
    torch.testing.assert_close(folded, mixture.log_prob(z), rtol=EXACT, atol=EXACT)


def test_the_mean_is_that_of_torch_and_weights_are_normalised(generator):
    mixture = GaussianMixture(*random_parameters(generator, 4))
    torch.testing.assert_close(mixture.mean(), torch_mixture(mixture).mean, rtol=EXACT, atol=EXACT)
    total = mixture.log_weights.exp().sum(dim=-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=EXACT, atol=EXACT)


def test_a_uniform_mixture_has_equal_weights(generator):
    _, loc, scale = random_parameters(generator, 4)
    weights = GaussianMixture.uniform(loc, scale).log_weights
    torch.testing.assert_close(weights, torch.full((4, 3), -math.log(3.0), dtype=F64), rtol=EXACT, atol=EXACT)


def test_a_detached_mixture_keeps_its_values_and_drops_its_gradients(generator):
    parameters = with_gradient(random_parameters(generator, 4))
    mixture = GaussianMixture(*parameters).detach()
    for ours, original in zip((mixture.logits, mixture.loc, mixture.scale), parameters, strict=True):
        assert torch.equal(ours, original)
        assert not ours.requires_grad


def test_distances_count_pooled_standard_deviations(generator):
    loc = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=F64)
    scale = torch.tensor([[1.0, 1.0], [1.0, 7.0**0.5], [5.0, 5.0]], dtype=F64)
    distances = GaussianMixture.uniform(loc, scale).component_distances()
    # (9 / 1 + 16 / 4) / 2 and (9 / 13 + 16 / 16) / 2
    first, second = math.sqrt(6.5), math.sqrt((9 / 13 + 1) / 2)
    expected = [[0.0, first, 0.0], [first, 0.0, second], [0.0, second, 0.0]]
    np.testing.assert_allclose(distances, expected, rtol=EXACT)


@pytest.mark.parametrize("shapes", [((4, 2), (4, 3, 5), (4, 3, 5)), ((4, 3), (4, 3, 5), (4, 3, 1))])
def test_parameters_that_do_not_fit_each_other_are_refused(shapes):
    with pytest.raises(
        ValueError, match=r"must have shapes \(\*, K\), \(\*, K, L\), \(\*, K, L\), got \(4, "
    ):
        GaussianMixture(*(torch.ones(shape) for shape in shapes))
