"""Circuits against enumeration of all latent assignments, quadrature, and other models."""

import math
from itertools import product

import pytest
import torch
from circuits.cases import (
    CIRCUITS,
    binary,
    column_masks,
    complete_rows,
    gaussian,
    random_circuit,
    two_trees,
)
from distributions.leaf_cases import COUNTS, PIXELS, grid, leaf_of, some_parameters
from oracles import circuit as oracle
from scipy import stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.circuits.circuit import Circuit
from halfseen.circuits.initialisation import random_weights
from halfseen.circuits.layers import Messages, SumLayer, log_matmul_exp
from halfseen.circuits.structure import Level, Structure
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation_model import ObservationModel, Part
from halfseen.mixtures.imputer import DiagonalMixture

GRID = torch.linspace(-60.0, 60.0, 40001, dtype=torch.float64)


def all_masks(n_columns):
    return torch.tensor(list(product([True, False], repeat=n_columns)))


def one_row_under_masks(circuit, columns):
    x = complete_rows(circuit, 1).expand(len(columns), -1)
    return Incomplete(x, column_masks(circuit, columns))


def some_masks(circuit, n_rows, seed=1):
    columns = torch.rand(n_rows, circuit.structure.n_columns, generator=torch.Generator().manual_seed(seed))
    return Incomplete(complete_rows(circuit, n_rows), column_masks(circuit, columns < 0.5))


def uniforms(n_rows, circuit, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n_rows, circuit.n_noise, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ["mixture", "shallow", "shallow-levels", "trees", "odd-trees"])
def test_the_density_is_the_sum_over_all_assignments_for_every_mask(name):
    circuit = random_circuit(name)
    batch = one_row_under_masks(circuit, all_masks(circuit.structure.n_columns))
    expected = torch.stack(
        [oracle.likelihood(circuit, batch, y) for y in range(circuit.root.logits.shape[-1])]
    )
    torch.testing.assert_close(
        circuit.class_log_likelihood(batch).detach().exp(), expected.T, rtol=EXACT, atol=0
    )
    joint = expected.T * circuit.log_prior.exp()
    torch.testing.assert_close(circuit(batch).detach().exp(), joint.sum(1), rtol=EXACT, atol=0)
    posterior = circuit.class_probabilities(batch).detach()
    torch.testing.assert_close(posterior, joint / joint.sum(1, keepdim=True), rtol=EXACT, atol=0)


@pytest.mark.parametrize("name", ["image", "colours", "small-patches", "shallow-image"])
def test_the_density_of_an_image_is_the_sum_over_all_assignments(name):
    circuit = random_circuit(name)
    batch = some_masks(circuit, 20)
    batch.observed[0], batch.observed[1] = True, False
    for y in range(circuit.root.logits.shape[-1]):
        expected = oracle.likelihood(circuit, batch, y)
        torch.testing.assert_close(
            circuit.class_log_likelihood(batch)[:, y].detach().exp(), expected, rtol=EXACT, atol=0
        )


@pytest.mark.parametrize("name", ["log-normal", "student-t", *COUNTS, *PIXELS])
def test_leaves_of_every_family_are_integrated_out_and_have_exact_moments(name, generator):
    """The sum or integral over one of two columns is the marginal, and gives its moments."""
    leaf = leaf_of(name)
    structure = Structure.shallow(2, n_leaves=3, n_channels=2, n_classes=2)
    circuit = Circuit(structure, ObservationModel([Part(leaf, range(2), range(2))])).double()
    random_weights(circuit, generator)
    with torch.no_grad():
        circuit.leaves.theta.copy_(some_parameters(leaf, generator, 3))
    values, weights = grid(leaf, name)
    x = torch.stack([values[len(values) // 2, 0].expand(len(values)), values[:, 1]], dim=1)
    rows = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
    missing = Incomplete(x[:1], torch.tensor([[True, False]]))
    mass = (circuit(rows) - circuit(missing)).exp().detach() * weights[:, 1]
    mean = (mass * x[:, 1]).sum()
    variance = (mass * (x[:, 1] - mean).square()).sum()
    assert mass.sum().item() == pytest.approx(1.0, abs=QUADRATURE)
    assert circuit.conditional_mean(missing)[0, 1].item() == pytest.approx(mean.item(), rel=1e-6, abs=1e-6)
    found = circuit.conditional_variance(missing)[0, 1].item()
    assert found == pytest.approx(variance.item(), rel=1e-6)
    filled, density = circuit.most_probable(missing, "joint")
    probable = rows[mass.argsort(descending=True)[:50]]
    assert (circuit.most_probable(probable)[1] <= density + EXACT).all()
    assert filled[0, 0] == x[0, 0]


@pytest.mark.parametrize("name", CIRCUITS)
def test_a_row_without_observed_cells_has_log_density_zero_and_float32_keeps_it(name):
    circuit = random_circuit(name)
    nothing = Incomplete(
        complete_rows(circuit, 2) * math.nan, torch.zeros(2, circuit.leaves.n_features).bool()
    )
    assert circuit(nothing).abs().max() < EXACT
    assert circuit.float()(nothing.to(torch.float32)).abs().max() < 1e-5


def test_probabilities_of_all_binary_rows_sum_to_one_and_the_chain_rule_holds_in_any_order():
    circuit = Circuit(two_trees(4), binary(4)).double()
    with torch.no_grad():
        for parameter in circuit.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    levels = torch.tensor(list(product([0, 1], repeat=4)))
    x = torch.nn.functional.one_hot(levels, 2).flatten(1).double()
    everything = circuit.class_log_likelihood(Incomplete(x, torch.ones_like(x, dtype=torch.bool))).exp()
    torch.testing.assert_close(everything.sum(0), torch.ones(2).double(), rtol=0, atol=EXACT)

    row = x[5:6]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        observed = torch.zeros(1, 4, dtype=torch.bool)
        total, before = torch.zeros(1).double(), torch.zeros(1).double()
        for column in order:
            observed[0, column] = True
            after = circuit(Incomplete(row, column_masks(circuit, observed)))
            total, before = total + (after - before), after
        full = circuit(Incomplete(row, torch.ones_like(row, dtype=torch.bool)))
        torch.testing.assert_close(total, full, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("of_class", [None, 1])
def test_conditional_densities_are_ratios_of_enumerated_ones(of_class):
    circuit = random_circuit("trees")
    batch = some_masks(circuit, 12)
    given = column_masks(circuit, torch.tensor([True, False, True, False]).expand(12, -1))
    rows = (batch, Incomplete(batch.x, batch.observed & given))
    prior = circuit.log_prior.exp()
    joint = [torch.stack([oracle.likelihood(circuit, part, y) for y in range(2)]) for part in rows]  # (2, N)
    after, before = (p[of_class] if of_class is not None else prior @ p for p in joint)
    found = circuit.conditional_log_prob(batch, given, of_class=of_class).detach().exp()
    torch.testing.assert_close(found, after / before, rtol=EXACT, atol=0)


def test_a_circuit_of_one_sum_is_the_diagonal_mixture():
    generator = torch.Generator().manual_seed(0)
    circuit = Circuit(Structure.mixture(3, 4), gaussian(3)).double()
    mixture = DiagonalMixture(3, 4).double()
    with torch.no_grad():
        for parameter in (circuit.leaves.theta, circuit.root.logits):
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        mixture.logits.copy_(circuit.root.weights[0, :, 0].log())
        mixture.loc.copy_(circuit.leaves.theta[:, :3])
        scale = circuit.leaves.observation.variance(circuit.leaves.theta).sqrt()
        mixture.raw_scale.copy_(torch.log(torch.expm1(scale - 0.05)))
    batch = some_masks(circuit, 30)
    torch.testing.assert_close(circuit(batch), mixture(batch), rtol=EXACT, atol=EXACT)
    answers = (circuit.conditional_mean(batch), mixture.conditional_mean(batch).detach())
    torch.testing.assert_close(*answers, rtol=EXACT, atol=EXACT)
    quantiles = (circuit.conditional_quantile(batch, 0.8), mixture.conditional_quantile(batch, 0.8))
    torch.testing.assert_close(*quantiles, rtol=QUADRATURE, atol=QUADRATURE)


def log_density(circuit, batch, of_class):
    if of_class is None:
        return circuit(batch).detach()
    return circuit.class_log_likelihood(batch)[:, of_class].detach()


@pytest.mark.parametrize("of_class", [None, 1])
@pytest.mark.parametrize("name", ["shallow", "image", "odd-trees"])
def test_conditional_moments_and_quantiles_equal_quadrature(name, of_class):
    circuit = random_circuit(name)
    columns = torch.tensor([[True, False, False] + [True] * (circuit.structure.n_columns - 3)])
    batch = one_row_under_masks(circuit, columns)
    x = batch.x.repeat(len(GRID), 1)
    observed = batch.observed.repeat(len(GRID), 1)
    x[:, 1], observed[:, 1] = GRID, True
    curve = log_density(circuit, Incomplete(x, observed), of_class) - log_density(circuit, batch, of_class)
    curve, step = curve.exp(), GRID[1] - GRID[0]
    assert curve.sum().item() * step == pytest.approx(1.0, abs=QUADRATURE)  # the marginal is the integral
    mean = (curve * GRID).sum() * step
    variance = (curve * (GRID - mean).square()).sum() * step
    given = {"of_class": of_class}
    found = circuit.conditional_mean(batch, **given)[0, 1].item()
    assert found == pytest.approx(mean.item(), abs=QUADRATURE)
    found = circuit.conditional_variance(batch, **given)[0, 1].item()
    assert found == pytest.approx(variance.item(), rel=QUADRATURE)
    quantile = circuit.conditional_quantile(batch, 0.3, **given)[0, 1]
    assert (curve[GRID < quantile].sum() * step).item() == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("name", ["trees", "image", "colours"])
def test_responsibilities_are_the_posterior_of_components(name):
    circuit = random_circuit(name)
    batch = some_masks(circuit, 4)
    expected = torch.zeros(circuit.leaves(batch).shape, dtype=torch.float64)
    for y in range(circuit.structure.n_classes):
        for probability, _, components in oracle.assignments(circuit, batch, y):
            for leaf, component in components.items():
                expected[leaf, :, component] += circuit.log_prior[y].exp() * probability
    expected /= circuit(batch).detach().exp()[:, None]
    found = circuit.responsibilities(batch)
    torch.testing.assert_close(found, expected, rtol=EXACT, atol=EXACT)
    given = circuit.responsibilities(batch, of_class=1)
    assert (given - found).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["shallow-levels", "trees"])
def test_draws_given_what_was_observed_have_the_exact_joint_probabilities(name):
    circuit = random_circuit(name)
    columns = torch.tensor([[False, False, True, True]])
    batch = one_row_under_masks(circuit, columns)
    combinations = torch.tensor(list(product(range(2), range(3))))
    x = batch.x.repeat(6, 1)
    x[:, 1:3], x[:, 3:6] = (
        torch.nn.functional.one_hot(combinations[:, c], width) for c, width in ((0, 2), (1, 3))
    )
    expected = (circuit(Incomplete(x, torch.ones_like(x, dtype=torch.bool))) - circuit(batch)).exp().detach()

    many = Incomplete(batch.x.repeat(4000, 1), batch.observed.repeat(4000, 1))
    drawn = circuit.conditional_draw(many, uniforms(4000, circuit))
    assert torch.equal(drawn[many.observed], many.x[many.observed])
    counts = torch.bincount(drawn[:, 1:3].argmax(1) * 3 + drawn[:, 3:6].argmax(1), minlength=6)
    assert (
        stats.chisquare(counts.numpy(), 4000 * expected.numpy() / expected.sum().item()).pvalue > FAILURE_RATE
    )


@pytest.mark.parametrize("name", ["image", "colours", "odd-trees"])
def test_draws_of_a_class_have_its_mean(name):
    circuit = random_circuit(name, scale=0.7)
    n_rows, n_features = 20_000, circuit.leaves.n_features
    nothing = Incomplete(torch.zeros(n_rows, n_features).double(), torch.zeros(n_rows, n_features).bool())
    drawn = circuit.conditional_draw(nothing, uniforms(n_rows, circuit), of_class=1)
    weights = circuit.responsibilities(nothing[:1], of_class=1)
    leaves = circuit.leaves
    mean = leaves.expectation(weights, leaves.observation.mean(leaves.theta))[0].detach()
    z = (drawn.mean(0) - mean) / (drawn.std(0) / math.sqrt(n_rows))
    assert stats.norm.sf(z.abs().max().item()) * 2 * n_features > FAILURE_RATE


@pytest.mark.parametrize("name", ["shallow-levels", "trees", "image"])
def test_the_most_probable_assignment_is_that_of_an_enumeration(name):
    circuit = random_circuit(name)
    batch = some_masks(circuit, 6)
    for missing, terms in (("integrated", circuit.leaves), ("joint", circuit.leaves.best)):
        values = terms(batch).detach()
        best = oracle.greatest_joint(circuit, values)
        completed, found = circuit.most_probable(batch, missing)
        torch.testing.assert_close(found, best, rtol=EXACT, atol=EXACT)
        assert torch.equal(completed[batch.observed], batch.x[batch.observed])
        if missing == "joint":  # the completed row has this density under its best assignment
            full = Incomplete(completed, torch.ones_like(batch.observed))
            torch.testing.assert_close(circuit.most_probable(full)[1], best, rtol=EXACT, atol=EXACT)


def test_marginalising_is_right_where_imputing_must_fail():
    """Claim 3: with the second of two binary inputs always missing, imputation errs twice as often."""
    small = 1e-4
    table = [[[1 - small, 1.0], [1 - small, 1.0]], [[0.0, 1 + small], [0.0, 1 + small]]]
    joint = torch.tensor(table, dtype=torch.float64)
    joint /= joint.sum()  # of class, first, second
    structure = Structure((((0, 1)),), (0, 1), (0, 1), 2, (Level(4, ((0, 1),)),), 2)
    circuit = Circuit(structure, binary(2)).double()
    with torch.no_grad():
        circuit.leaves.theta.copy_(torch.tensor([[300.0, 0.0] * 2, [0.0, 300.0] * 2]))  # indicators
        cells = torch.tensor(list(product([0, 1], repeat=2)))  # a channel for each pair of values
        circuit.sums[0].set_weights(torch.nn.functional.one_hot(cells.T, 2).double().transpose(1, 2))
        circuit.root.set_weights((joint.flatten(1) / joint.sum((1, 2))[:, None]).T[None])
        circuit.log_prior.copy_(joint.sum((1, 2)).log())
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]).double()  # both values of the first
    batch = Incomplete(x, torch.tensor([[True, True, False, False]] * 2))

    marginal = circuit.class_probabilities(batch).argmax(1)
    second = circuit.conditional_mean(batch)[:, 2:].argmax(1)
    completed = torch.cat([x[:, :2], torch.nn.functional.one_hot(second, 2).double()], dim=1)
    imputed = circuit.class_probabilities(
        Incomplete(completed, torch.ones_like(completed, dtype=torch.bool))
    ).argmax(1)
    first = joint.sum(2)  # of class and first
    accuracy = [
        sum(first[y, value].item() for value, y in enumerate(p.tolist())) for p in (marginal, imputed)
    ]
    assert accuracy[0] == pytest.approx((2 - small) / 3, abs=1e-9)
    assert accuracy[1] == pytest.approx((1 + small) / 3, abs=1e-9)


def test_deep_circuits_need_more_rank_than_shallow_ones_and_only_across_their_branches():
    generator = torch.Generator().manual_seed(0)
    pairings = [(((0, 1), (2, 3)), ((0, 1),))]
    deep = Circuit(Structure.trees(4, pairings, 3, [3, 3]), gaussian(4)).double()
    shallow = Circuit(Structure.shallow(4, 3, 2), gaussian(4)).double()
    for circuit in (deep, shallow):
        for layer in (*circuit.sums, circuit.root):
            with torch.no_grad():
                layer.logits.copy_(2 * torch.randn(layer.logits.shape, generator=generator))

    def rank(circuit, rows):
        (tensor,) = oracle.component_tensor(circuit, 0)
        others = [axis for axis in range(4) if axis not in rows]
        return torch.linalg.matrix_rank(tensor.permute(*rows, *others).reshape(9, 9), rtol=1e-9).item()

    assert rank(deep, [0, 2]) == 9
    assert rank(deep, [0, 1]) == 3
    assert rank(shallow, [0, 2]) == rank(shallow, [0, 1]) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("observed", [True, False])
def test_gradients_are_finite_at_extreme_logits_and_without_observed_cells(dtype, observed):
    circuit = random_circuit("image", scale=300.0).to(dtype)
    x = 30 * complete_rows(circuit, 5).to(dtype)
    circuit(Incomplete(x, torch.full(x.shape, observed))).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in circuit.parameters())


def test_the_gradient_of_a_sum_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(3, 4, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def total(x, weights):
        values, shift = log_matmul_exp(x, weights)
        return values + shift.unsqueeze(-1)

    direct = torch.logsumexp(x.unsqueeze(-1) + weights.log().unsqueeze(1), dim=2)
    torch.testing.assert_close(total(x, weights), direct, rtol=EXACT, atol=EXACT)
    assert torch.autograd.gradcheck(total, (x, weights))


def test_weights_that_are_set_are_the_weights():
    layer = SumLayer(2, 3, 4).double()
    weights = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0)).double().softmax(dim=1)
    layer.set_weights(weights)
    torch.testing.assert_close(layer.weights.detach(), weights, rtol=0, atol=EXACT)


def test_permuting_the_channels_of_a_level_changes_nothing():
    circuit = random_circuit("image")
    batch = some_masks(circuit, 5)
    before = circuit(batch)
    order = torch.tensor([1, 0])
    with torch.no_grad():
        circuit.sums[0].logits.copy_(circuit.sums[0].logits[:, :, order])
        following = circuit.sums[1] if len(circuit.sums) > 1 else circuit.root
        following.logits.copy_(following.logits[:, order])
    torch.testing.assert_close(circuit(batch), before, rtol=EXACT, atol=EXACT)


def test_permuting_columns_together_with_their_leaves_and_weights_changes_nothing():
    circuit, permuted = random_circuit("shallow"), random_circuit("shallow")
    batch, order = some_masks(circuit, 5), torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        permuted.leaves.theta.copy_(circuit.leaves.theta.unflatten(1, (2, 4))[:, :, order].flatten(1))
        permuted.sums[0].logits.copy_(circuit.sums[0].logits[order])
    moved = Incomplete(batch.x[:, order], batch.observed[:, order])
    assert not torch.allclose(permuted(batch), circuit(batch))
    torch.testing.assert_close(permuted(moved), circuit(batch), rtol=EXACT, atol=EXACT)


def test_large_log_densities_keep_the_differences_between_classes_in_float32():
    """The shift is carried apart: both precisions agree though the log density is in the thousands."""
    circuit = random_circuit("image")
    with torch.no_grad():
        circuit.leaves.theta[:, 4:] = -20.0  # the narrowest leaves
    batch = some_masks(circuit, 5)
    exact = circuit.class_scores(batch)[0].log_softmax(dim=-1)
    assert circuit(batch).min() < -1e5
    narrow = circuit.float().class_scores(batch.to(torch.float32))[0].log_softmax(dim=-1).double()
    torch.testing.assert_close(narrow, exact, rtol=1e-3, atol=1.0)


def test_circuits_refuse_likelihoods_that_do_not_fit():
    with pytest.raises(ValueError, match="a window has 4 places"):
        Circuit(Structure.image((4, 4), 2, [2]), gaussian(3))
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got 1\.0"):
        random_circuit("shallow").conditional_quantile(some_masks(random_circuit("shallow"), 2), 1.0)


def test_marginalising_a_region_is_the_same_as_missing_pixels_of_its_patch():
    circuit = random_circuit("image")
    batch = some_masks(circuit, 5)
    window = [pixel for pixel in circuit.structure.windows[2] if pixel >= 0]
    batch.observed[:, window] = False
    messages = circuit.messages(batch)
    assert (messages.values[2] == 0).all()
    sums = circuit.sums[0](messages).values[2]
    torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=EXACT)


def test_prototypes_follow_the_greatest_weights_down_to_the_leaves():
    structure = Structure.image((4, 4), 3, [2, 2], n_classes=2)
    circuit = Circuit(structure, ObservationModel([Part(GaussianLeaf(4), range(4), range(4))])).double()
    random_weights(circuit, torch.Generator().manual_seed(0))
    means = torch.arange(12.0).view(3, 4)
    with torch.no_grad():
        circuit.leaves.theta[:, :4] = means
    shown = circuit.prototypes(0)
    best = circuit.sums[0].weights.argmax(dim=1)  # (places, channels); windows are in order of their place
    for channel, place in product(range(2), range(4)):
        expected = means[best[place, channel]].double()
        torch.testing.assert_close(shown[channel, list(structure.windows[place])], expected)


@pytest.mark.parametrize("n_shared", [0, 3])
def test_deep_circuits_have_full_rank_between_odd_and_even_columns_with_shared_weights_too(n_shared):
    structure = Structure.image((1, 8), 2, [2, 2, 2], patch=1, n_shared=n_shared)
    circuit = Circuit(structure, gaussian(1)).double()
    random_weights(circuit, torch.Generator().manual_seed(0))
    (tensor,) = oracle.component_tensor(circuit, 0)
    place_of_column = [structure.regions.index(structure.windows.index((c,))) for c in range(8)]
    by_column = tensor.permute(*place_of_column)
    across = by_column.permute(0, 2, 4, 6, 1, 3, 5, 7).reshape(16, 16)
    assert torch.linalg.matrix_rank(across, rtol=1e-12).item() == 16
    assert torch.linalg.matrix_rank(by_column.reshape(16, 16), rtol=1e-9).item() == 2


def bayes_table(circuit, missing_rate):
    """Returns all rows, by enumeration p(x, y) (16, 2), and the rate at which column 3 is missing."""
    bits = torch.tensor(list(product([0, 1], repeat=4)))
    x = torch.nn.functional.one_hot(bits, 2).flatten(1).double()
    rows = Incomplete(x, torch.ones_like(x, dtype=torch.bool))
    joint = (circuit.class_log_likelihood(rows).detach() + circuit.log_prior).exp()
    return rows, joint, missing_rate(bits).double()


def test_marginal_probabilities_are_those_of_bayes_if_values_are_missing_at_random():
    circuit = Circuit(two_trees(4), binary(4)).double()
    random_weights(circuit, torch.Generator().manual_seed(2))
    with torch.no_grad():
        circuit.leaves.theta.copy_(torch.tensor([[2.0, -2.0], [-2.0, 2.0]]).repeat(1, 4))
    for depends_on in (0, 3):  # an observed column: at random; the missing one itself: not at random
        rows, joint, rate = bayes_table(circuit, lambda b, c=depends_on: 0.1 + 0.8 * b[:, c])
        seen = rows.observed.clone()
        seen[:, 6:] = False
        marginal = circuit.class_probabilities(Incomplete(rows.x, seen)).detach()
        missing = (joint * rate[:, None]).view(8, 2, 2).sum(dim=1)  # p(x_o, y, column 3 is missing)
        bayes = (missing / missing.sum(dim=1, keepdim=True)).repeat_interleave(2, dim=0)
        if depends_on == 0:
            torch.testing.assert_close(marginal, bayes)
            continue
        # With the probability of the mask given each class, the posterior is that of Bayes again.
        of_class = circuit.class_log_likelihood(rows) - circuit.class_log_likelihood(Incomplete(rows.x, seen))
        of_mask = (
            (of_class.detach().exp() * rate[:, None]).view(8, 2, 2).sum(dim=1).repeat_interleave(2, dim=0)
        )
        corrected = marginal * of_mask
        torch.testing.assert_close(corrected / corrected.sum(dim=1, keepdim=True), bayes)
        assert (marginal - bayes).abs().max() > 0.01


def test_sums_follow_a_constant_that_all_their_inputs_gain_and_a_shift_is_such_a_constant(generator):
    layer = random_circuit("shallow").sums[0]
    x = torch.randn(4, 6, 3, generator=generator, dtype=torch.float64)
    constant = 50 * torch.randn(4, 6, generator=generator, dtype=torch.float64)
    plain, gained, shifted = (
        layer(Messages(x, torch.zeros_like(constant))),
        layer(Messages(x + constant[..., None], torch.zeros_like(constant))),
        layer(Messages(x, constant)),
    )
    expected = plain.values + (plain.shift + constant)[..., None]
    for found in (gained, shifted):
        torch.testing.assert_close(found.values + found.shift[..., None], expected, rtol=EXACT, atol=1e-11)


def test_pixels_around_an_image_are_missing_pixels_of_a_larger_one(generator):
    padded, whole = (
        Circuit(Structure.image((side, side), 3, [2, 2], n_classes=2), gaussian(4)).double()
        for side in (3, 4)
    )
    random_weights(whole, generator)
    with torch.no_grad():
        whole.leaves.theta.normal_(generator=generator)
    padded.load_state_dict(whole.state_dict())
    images = torch.randn(5, 3, 3, generator=generator, dtype=torch.float64)
    frames, seen = torch.zeros(5, 4, 4, dtype=torch.float64), torch.zeros(5, 4, 4, dtype=torch.bool)
    frames[:, :3, :3], seen[:, :3, :3] = images, True
    complete = Incomplete(images.flatten(1), torch.ones(5, 9, dtype=torch.bool))
    found = whole.class_log_likelihood(Incomplete(frames.flatten(1), seen.flatten(1)))
    torch.testing.assert_close(padded.class_log_likelihood(complete), found, rtol=EXACT, atol=EXACT)
