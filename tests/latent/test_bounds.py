import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE
from torch.func import grad_and_value

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.mixture import GaussianMixture
from halfseen.latent.bounds import (
    BOUNDS,
    EXTRAPOLATION,
    Support,
    doubly_reparametrised,
    elbo,
    iwelbo,
    looser_siwelbo,
    scale_gradient,
)

F64 = torch.float64
NOISE = 0.5  # the standard deviation of x given z, where z is standard normal


def normal_log_prob(x, loc, scale):
    return -0.5 * ((x - loc) / scale) ** 2 - math.log(2.0 * math.pi) / 2.0 - math.log(scale)


def log_joint(x, z):
    return normal_log_prob(z, 0.0, 1.0) + normal_log_prob(x, z, NOISE)


def log_likelihood(x):
    return normal_log_prob(x, 0.0, math.sqrt(1.0 + NOISE**2))


def random_weights(generator, n_draws=6, n_rows=50, n_components=4):
    log_w = 3.0 * torch.randn(n_draws, n_rows, n_components, generator=generator, dtype=F64)
    return log_w, torch.randn(n_rows, n_components, generator=generator, dtype=F64).log_softmax(dim=-1)


def wrong_posterior(n_rows):
    """A mixture of two components that is not the posterior of any x."""
    logits = torch.tensor([0.4, -0.3], dtype=F64).expand(n_rows, 2)
    loc = torch.tensor([[0.2], [1.1]], dtype=F64).expand(n_rows, 2, 1)
    return GaussianMixture(logits, loc, torch.tensor([[0.6], [0.9]], dtype=F64).expand(n_rows, 2, 1))


def sampled_weights(generator, x, n_draws, scheme):
    """Log weights (S, N, K) and log strata (N, K) of draws from the wrong posterior."""
    posterior = wrong_posterior(len(x))
    if scheme == "stratified":
        z = posterior.stratified(torch.randn(n_draws, len(x), 2, 1, generator=generator, dtype=F64))
        log_w = log_joint(x[:, None], z.squeeze(-1)) - posterior.log_prob_strata(z)
        return log_w, posterior.log_weights
    uniforms = torch.rand(n_draws, len(x), generator=generator, dtype=F64)
    z = posterior.ancestral(uniforms, torch.randn(n_draws, len(x), 1, generator=generator, dtype=F64))
    log_w = log_joint(x, z.squeeze(-1)) - posterior.log_prob(z)
    return log_w.unsqueeze(-1), torch.zeros(len(x), 1, dtype=F64)


def test_bounds_are_their_formulas_written_out(generator):
    log_w, log_strata = random_weights(generator)
    w, pi = log_w.exp().numpy(), log_strata.exp().numpy()
    by_hand = {
        "elbo": (pi * np.log(w).mean(axis=0)).sum(axis=-1),
        "iwelbo": np.log((pi * w.mean(axis=0)).sum(axis=-1)),
        "siwelbo-loose": (pi * np.log(w.mean(axis=0))).sum(axis=-1),
    }
    assert set(BOUNDS) == set(by_hand)
    for name, bound in BOUNDS.items():
        np.testing.assert_allclose(bound(log_w, log_strata), by_hand[name], rtol=EXACT)


@pytest.mark.parametrize("n_draws", [1, 2, 20])
def test_bounds_are_ordered_in_every_row(generator, n_draws):
    weights = random_weights(generator, n_draws)
    low, middle, high = elbo(*weights), looser_siwelbo(*weights), iwelbo(*weights)
    assert (low <= middle + EXACT).all()
    assert (middle <= high + EXACT).all()
    assert (high > middle + 0.01).any()


def test_the_looser_bound_lies_between_the_others_and_meets_them_at_its_ends(generator):
    one_draw = random_weights(generator, n_draws=1)
    torch.testing.assert_close(looser_siwelbo(*one_draw), elbo(*one_draw), rtol=EXACT, atol=EXACT)
    one_component = random_weights(generator, n_components=1)
    torch.testing.assert_close(looser_siwelbo(*one_component), iwelbo(*one_component), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("level", [0.0, -3.0, -1e5, 1e5])
def test_weights_that_are_all_equal_are_the_bound(generator, name, level):
    log_w, log_strata = random_weights(generator)
    bound = BOUNDS[name](torch.full_like(log_w, level), log_strata)
    torch.testing.assert_close(bound, torch.full_like(bound, level), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", BOUNDS)
def test_the_order_of_draws_and_of_components_changes_nothing(generator, name):
    log_w, log_strata = random_weights(generator)
    order = [2, 0, 3, 1]
    shuffled = BOUNDS[name](log_w.flip(0)[..., order], log_strata[:, order])
    torch.testing.assert_close(shuffled, BOUNDS[name](log_w, log_strata), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", BOUNDS)
def test_every_bound_of_the_true_posterior_is_the_log_likelihood(generator, name):
    x = torch.randn(20, generator=generator, dtype=F64)
    variance = NOISE**2 / (1.0 + NOISE**2)
    loc = (x / (1.0 + NOISE**2)).reshape(20, 1, 1).expand(20, 3, 1)
    posterior = GaussianMixture.uniform(loc, torch.full_like(loc, math.sqrt(variance)))
    z = posterior.stratified(torch.randn(4, 20, 3, 1, generator=generator, dtype=F64))
    log_w = log_joint(x[:, None], z.squeeze(-1)) - posterior.log_prob_strata(z)
    bound = BOUNDS[name](log_w, posterior.log_weights)
    torch.testing.assert_close(bound, log_likelihood(x), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("scheme", ["ancestral", "stratified"])
@pytest.mark.parametrize("name", BOUNDS)
def test_no_bound_exceeds_the_log_likelihood_on_average(generator, name, scheme):
    x = torch.tensor([0.7], dtype=F64).expand(20_000)
    bound = BOUNDS[name](*sampled_weights(generator, x, 2, scheme))
    exact = log_likelihood(x[0]).item()
    assert stats.ttest_1samp(bound, exact, alternative="greater").pvalue > FAILURE_RATE
    assert stats.ttest_1samp(bound, exact, alternative="less").pvalue < FAILURE_RATE  # the gap is seen


@pytest.mark.parametrize("scheme", ["ancestral", "stratified"])
def test_the_weights_of_either_scheme_are_unbiased_for_the_likelihood(generator, scheme):
    x = torch.tensor([0.7], dtype=F64).expand(20_000)
    estimate = iwelbo(*sampled_weights(generator, x, 2, scheme)).exp()
    assert stats.ttest_1samp(estimate, log_likelihood(x[0]).exp().item()).pvalue > FAILURE_RATE


@pytest.mark.parametrize("scheme", ["ancestral", "stratified"])
def test_the_importance_weighted_bound_grows_with_draws_up_to_the_log_likelihood(generator, scheme):
    x = torch.tensor([0.7], dtype=F64).expand(10_000)
    bounds = [iwelbo(*sampled_weights(generator, x, n_draws, scheme)) for n_draws in (1, 2, 8, 64)]
    for fewer, more in itertools.pairwise(bounds):
        worse = stats.ttest_ind(fewer, more, alternative="greater", equal_var=False)
        assert worse.pvalue > FAILURE_RATE
    assert bounds[0].mean() < bounds[-1].mean()
    assert abs(bounds[-1].mean() - log_likelihood(x[0])) < 0.02


def test_the_gradient_of_the_importance_weighted_bound_is_the_normalised_weights(generator):
    log_w, log_strata = random_weights(generator)
    log_w.requires_grad_()
    (gradient,) = torch.autograd.grad(iwelbo(log_w, log_strata).sum(), log_w)
    joint = (log_w.detach() + log_strata).exp()
    expected = joint / joint.sum(dim=(0, 2), keepdim=True)
    torch.testing.assert_close(gradient, expected, rtol=EXACT, atol=EXACT)


def test_a_scaled_gradient_leaves_values_as_they_are(generator):
    z = torch.randn(5, 4, generator=generator, dtype=F64, requires_grad=True)
    factor = torch.rand(5, 1, generator=generator, dtype=F64)
    scaled = scale_gradient(z, factor)
    assert torch.equal(scaled, z)
    (gradient,) = torch.autograd.grad((scaled**2).sum(), z)
    torch.testing.assert_close(gradient, factor * 2.0 * z.detach(), rtol=EXACT, atol=EXACT)


def dreg_loss(loc, scale, weight, x, normals):
    """The bound that gives DReG gradients, for a Gaussian posterior and the decoder N(weight z, NOISE^2)."""

    def loss(parameters):
        loc, scale, weight = parameters
        z = loc + scale * normals  # (S, N, 1)

        def log_weights(z):
            log_p = normal_log_prob(z, 0.0, 1.0) + normal_log_prob(x, weight * z, NOISE)
            square = ((z - loc.detach()) / scale.detach()) ** 2
            return log_p + 0.5 * square + scale.detach().log() + math.log(2.0 * math.pi) / 2.0

        return iwelbo(doubly_reparametrised(log_weights, z), torch.zeros(len(x), 1, dtype=F64)).sum()

    return loss, (loc, scale, weight)


def gaussian_case(generator, n_draws, n_rows):
    parameters = [torch.full((n_rows, 1), v, dtype=F64) for v in (0.3, 0.8, 1.2)]
    x = torch.full((n_rows, 1), 0.7, dtype=F64)
    return (*parameters, x, torch.randn(n_draws, n_rows, 1, generator=generator, dtype=F64))


def test_doubly_reparametrised_gradients_are_their_formula_written_out(generator):
    loc, scale, weight, x, normals = gaussian_case(generator, n_draws=5, n_rows=3)
    loss, parameters = dreg_loss(loc, scale, weight, x, normals)
    leaves = [part.clone().requires_grad_() for part in parameters]
    eager = torch.autograd.grad(loss(leaves), leaves)
    functional, _ = grad_and_value(loss)(parameters)

    z = loc + scale * normals
    log_q = stats.norm.logpdf(z, loc, scale)
    w = np.exp(stats.norm.logpdf(z) + stats.norm.logpdf(x, weight * z, NOISE) - log_q)
    shares = torch.from_numpy(w / w.sum(axis=0))
    score = -z + weight * (x - weight * z) / NOISE**2 + (z - loc) / scale**2
    by_hand = (
        (shares**2 * score).sum(dim=0),
        (shares**2 * score * normals).sum(dim=0),
        (shares * z * (x - weight * z) / NOISE**2).sum(dim=0),
    )
    for ours, functional_one, expected in zip(eager, functional, by_hand, strict=True):
        torch.testing.assert_close(ours, expected, rtol=EXACT, atol=EXACT)
        torch.testing.assert_close(functional_one, expected, rtol=EXACT, atol=EXACT)


def test_doubly_reparametrised_gradients_are_unbiased_and_less_noisy(generator):
    loc, scale, weight, x, normals = gaussian_case(generator, n_draws=4, n_rows=20_000)
    loss, parameters = dreg_loss(loc, scale, weight, x, normals)
    doubly, _ = grad_and_value(loss)(parameters)

    def plain(parameters):
        loc, scale, weight = parameters
        fresh = torch.randn(normals.shape, generator=generator, dtype=F64)
        z = loc + scale * fresh
        log_q = -0.5 * fresh**2 - scale.log() - math.log(2.0 * math.pi) / 2.0
        log_w = normal_log_prob(z, 0.0, 1.0) + normal_log_prob(x, weight * z, NOISE) - log_q
        return iwelbo(log_w, torch.zeros(len(x), 1, dtype=F64)).sum()

    leaves = [part.clone().requires_grad_() for part in parameters]
    ordinary = torch.autograd.grad(plain(leaves), leaves)
    for ours, expected in zip(doubly, ordinary, strict=True):
        assert stats.ttest_ind(ours[:, 0], expected[:, 0], equal_var=False).pvalue > FAILURE_RATE
    for ours, expected in zip(doubly[:2], ordinary[:2], strict=True):
        assert ours.std() < 0.9 * expected.std()


def test_doubly_reparametrised_gradients_of_ancestral_draws_are_unbiased(generator):
    n_rows = 20_000
    x = torch.full((n_rows,), 0.7, dtype=F64)
    like = wrong_posterior(n_rows)

    def gradients(doubly):
        leaves = [part.clone().requires_grad_() for part in (like.logits, like.loc, like.scale)]
        posterior = GaussianMixture(*leaves)
        uniforms = torch.rand(4, n_rows, generator=generator, dtype=F64)
        z = posterior.ancestral(uniforms, torch.randn(4, n_rows, 1, generator=generator, dtype=F64))

        def log_weights(z):
            density = posterior.detach() if doubly else posterior
            return (log_joint(x, z.squeeze(-1)) - density.log_prob(z)).unsqueeze(-1)

        log_w = doubly_reparametrised(log_weights, z) if doubly else log_weights(z)
        bound = iwelbo(log_w, torch.zeros(n_rows, 1, dtype=F64)).sum()
        return [part.flatten(1) for part in torch.autograd.grad(bound, leaves)]

    for ours, expected in zip(gradients(True), gradients(False), strict=True):
        assert stats.ttest_ind(ours, expected, equal_var=False).pvalue.min() > FAILURE_RATE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiled_doubly_reparametrised_gradients_are_the_eager_ones(generator):
    loss, parameters = dreg_loss(*gaussian_case(generator, n_draws=5, n_rows=3))
    eager, _ = grad_and_value(loss)(parameters)
    compiled, _ = torch.compile(grad_and_value(loss), fullgraph=True, dynamic=False)(parameters)
    for ours, expected in zip(compiled, eager, strict=True):
        torch.testing.assert_close(ours, expected, rtol=EXACT, atol=EXACT)


def test_stratified_draws_are_refused_by_doubly_reparametrised_gradients():
    z = torch.zeros(5, 4, 3, 2, dtype=F64)
    with pytest.raises(ValueError, match="need a single stratum, got 3"):
        doubly_reparametrised(lambda z: z.sum(dim=-1), z)


def test_missing_cells_cost_the_square_of_their_distance_from_the_observed_range():
    x = torch.tensor([[0.0, math.nan, 1.0], [4.0, math.nan, 1.0], [math.nan, math.nan, math.nan]])
    support = Support.of(Incomplete(x, ~x.isnan()))
    means = torch.tensor([[-2.0, 99.0, 5.0], [5.0, -99.0, 5.0], [3.0, 0.0, 0.0]], requires_grad=True)
    term = support.log_prior(means, torch.tensor([[False] * 3, [False] * 3, [True] * 3]))
    # A range of 4; a column that nobody saw, and one of a single value, have no range to judge by.
    torch.testing.assert_close(term, -EXTRAPOLATION * torch.tensor([(2 / 4) ** 2, (1 / 4) ** 2, 0.0]))
    term.sum().backward()
    assert means.grad.isfinite().all()
    assert means.grad[0].tolist() == pytest.approx([EXTRAPOLATION * 0.25, 0.0, 0.0])
