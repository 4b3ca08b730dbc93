"""The diagonal mixture against numpy and scipy, which enumerate components and levels one cell at a time."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, special, stats
from tolerances import EXACT, FAILURE_RATE, QUADRATURE

from halfseen.base.density import DrawableModel
from halfseen.data.incomplete import Incomplete
from halfseen.mixtures.imputer import LEVEL_SMOOTHING, MIN_SCALE, DiagonalMixture

BLOCKS = ((4, 6), (1, 4))  # not in the order of features, with Gaussian features 0 and 6 around them
N_FEATURES = 7
LEVELS = {block: np.eye(block[1] - block[0]) for block in BLOCKS}


def random_mixture(generator, n_components=3, n_features=N_FEATURES, blocks=BLOCKS):
    model = DiagonalMixture(n_features, n_components, blocks).double()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise)
    return model


def random_batch(generator, n_rows=8, rate=0.5):
    """Rows with numbers and one-hot blocks, in which each column is missing at `rate`."""
    x = torch.randn(n_rows, N_FEATURES, generator=generator, dtype=torch.float64)
    observed = torch.rand(n_rows, N_FEATURES, generator=generator) >= rate
    for start, stop in BLOCKS:
        level = torch.randint(stop - start, (n_rows,), generator=generator)
        x[:, start:stop] = torch.nn.functional.one_hot(level, stop - start)
        observed[:, start:stop] = observed[:, start : start + 1]
    return Incomplete(x, observed)


class Oracle:
    """The same mixture in numpy, by loops: parameters in plain arrays, densities from scipy."""

    def __init__(self, model):
        self.weights = special.softmax(model.logits.detach().numpy())
        self.loc, scale = model.loc.detach().numpy(), model.raw_scale.detach().numpy()
        self.scale = MIN_SCALE + np.log1p(np.exp(scale))
        self.gaussian = [d for d in range(model.n_features) if not any(a <= d < b for a, b in model.blocks)]
        self.levels, position = {}, 0
        for start, stop in model.blocks:
            logits = model.level_logits.detach().numpy()[:, position : position + stop - start]
            even = 1.0 / (stop - start)
            self.levels[start, stop] = (1 - LEVEL_SMOOTHING) * special.softmax(
                logits, 1
            ) + LEVEL_SMOOTHING * even
            position += stop - start

    def joint(self, x, observed):
        """The weight and density of each component for one row."""
        joint = self.weights.copy()
        for k in range(len(joint)):
            for index, d in enumerate(self.gaussian):
                if observed[d]:
                    joint[k] *= stats.norm.pdf(x[d], self.loc[k, index], self.scale[k, index])
            for (start, stop), probs in self.levels.items():
                if observed[start]:
                    joint[k] *= probs[k, int(np.argmax(x[start:stop]))]
        return joint

    def posterior(self, x, observed):
        joint = self.joint(x, observed)
        return joint / joint.sum()


def rows_of(batch):
    return zip(batch.x.numpy(), batch.observed.numpy(), strict=True)


def noise_for(generator, n_rows):
    """Uniforms of a component, of two numbers and of the blocks."""
    return torch.rand(n_rows, 3 + len(BLOCKS), generator=generator, dtype=torch.float64).clamp(min=1e-12)


def one_row_many_times(generator, n_rows):
    """A row of which feature 0 and the first block are seen, and the rest is to be drawn."""
    row = random_batch(generator, n_rows=1, rate=0.0)
    observed = torch.tensor([True, False, False, False, True, True, False])
    return Incomplete(row.x.expand(n_rows, -1), observed.expand(n_rows, -1))


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 1), n_components=st.integers(1, 4))
def test_log_prob_equals_the_enumeration_of_components(seed, rate, n_components):
    generator = torch.Generator().manual_seed(seed)
    model, batch = random_mixture(generator, n_components), random_batch(generator, rate=rate)
    oracle = Oracle(model)

    expected = [math.log(oracle.joint(*row).sum()) for row in rows_of(batch)]

    np.testing.assert_allclose(model(batch).detach(), expected, rtol=EXACT, atol=EXACT)


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 1))
def test_values_under_the_mask_are_never_read(seed, rate):
    generator = torch.Generator().manual_seed(seed)
    model, batch = random_mixture(generator), random_batch(generator, rate=rate)
    poisoned = Incomplete(torch.where(batch.observed, batch.x, math.nan), batch.observed)
    noise = noise_for(generator, len(batch))

    for answer in (
        model,
        model.log_joint,
        model.conditional_mean,
        lambda rows: model.conditional_quantile(rows, 0.9),
        lambda rows: model.conditional_draw(rows, noise),
    ):
        torch.testing.assert_close(answer(poisoned), answer(batch), rtol=0, atol=0)
    (model(poisoned).sum() + model.conditional_mean(poisoned).sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_row_without_observed_values_has_log_prob_zero(generator):
    batch = random_batch(generator, rate=1.0)
    assert not batch.observed.any()
    np.testing.assert_allclose(random_mixture(generator)(batch).detach(), 0.0, atol=EXACT)


def test_marginalising_equals_integrating_numbers_and_summing_levels(generator):
    model, row = random_mixture(generator), random_batch(generator, n_rows=1, rate=0.0)
    grid = torch.linspace(-40.0, 40.0, 8001, dtype=torch.float64)
    observed = torch.tensor([[True, False, False, False, True, True, False]])

    total = 0.0
    for level in LEVELS[1, 4]:
        x = row.x.repeat(len(grid), 1)
        x[:, 1:4] = torch.from_numpy(level)
        x[:, 6] = grid
        density = model(Incomplete(x, torch.ones_like(x, dtype=torch.bool))).exp().detach()
        total += integrate.trapezoid(density.numpy(), grid.numpy())

    marginal = model(Incomplete(row.x, observed)).exp().item()
    np.testing.assert_allclose(total, marginal, rtol=QUADRATURE)


def test_the_density_of_all_features_integrates_to_one(generator):
    model = random_mixture(generator)
    axis = np.linspace(-30.0, 30.0, 601)
    first, last = np.meshgrid(axis, axis, indexing="ij")
    total = 0.0
    for b, a in itertools.product(LEVELS[4, 6], LEVELS[1, 4]):
        x = np.concatenate(
            [first.reshape(-1, 1), np.tile(a, (first.size, 1)), np.tile(b, (first.size, 1))], 1
        )
        x = torch.from_numpy(np.concatenate([x, last.reshape(-1, 1)], 1))
        density = model(Incomplete(x, torch.ones_like(x, dtype=torch.bool))).exp().detach().numpy()
        total += integrate.trapezoid(integrate.trapezoid(density.reshape(first.shape), axis), axis)
    np.testing.assert_allclose(total, 1.0, rtol=QUADRATURE)


def test_conditional_mean_is_the_quadrature_of_joint_over_marginal(generator):
    model, batch = random_mixture(generator), random_batch(generator, n_rows=20)
    grid = torch.linspace(-40.0, 40.0, 8001, dtype=torch.float64)
    mean = model.conditional_mean(batch).detach()
    log_marginal = model(batch).detach()

    for row, feature in (~batch.observed).nonzero().tolist():
        if feature in (0, 6):
            x = batch.x[row].repeat(len(grid), 1)
            x[:, feature] = grid
            density = conditional_density(model, batch, row, x, [feature], log_marginal)
            expected = integrate.trapezoid((grid * density).numpy(), grid.numpy())
        else:
            start, stop = next(block for block in BLOCKS if block[0] <= feature < block[1])
            x = batch.x[row].clone().unsqueeze(0)
            x[0, start:stop] = torch.from_numpy(LEVELS[start, stop][feature - start])
            density = conditional_density(model, batch, row, x, range(start, stop), log_marginal)
            expected = density.item()
        np.testing.assert_allclose(mean[row, feature], expected, rtol=QUADRATURE, atol=QUADRATURE)


def conditional_density(model, batch, row, x, features, log_marginal):
    """Bayes' rule on `forward` alone: log p(x_a, x_b) - log p(x_a)."""
    observed = batch.observed[row].repeat(len(x), 1)
    observed[:, list(features)] = True
    return (model(Incomplete(x, observed)).detach() - log_marginal[row]).exp()


@pytest.mark.parametrize("level", [1e-4, 0.05, 0.5, 0.9])
def test_conditional_quantile_inverts_the_distribution_function(generator, level):
    model, batch = random_mixture(generator), random_batch(generator, n_rows=30)
    oracle, quantile = Oracle(model), model.conditional_quantile(batch, level)
    for row, (x, observed) in enumerate(rows_of(batch)):
        weights = oracle.posterior(x, observed)
        for index, feature in enumerate(oracle.gaussian):
            if not observed[feature]:
                spread = stats.norm(oracle.loc[:, index], oracle.scale[:, index])
                expected = optimize.brentq(lambda t: weights @ spread.cdf(t) - level, -60, 60, xtol=1e-13)  # noqa: B023
                np.testing.assert_allclose(quantile[row, feature], expected, rtol=1e-7, atol=1e-7)
        for (start, stop), probs in oracle.levels.items():
            if not observed[start]:
                np.testing.assert_array_equal(quantile[row, start:stop], weights @ probs > 1 - level)


def test_a_quantile_between_two_narrow_and_distant_components_is_found():
    model = DiagonalMixture(n_features=1, n_components=2).double()
    with torch.no_grad():
        model.logits.copy_(torch.tensor([0.3, 0.7]).log())
        model.loc.copy_(torch.tensor([[-50.0], [50.0]]))
        model.raw_scale.fill_(-30.0)
    batch = Incomplete(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.bool))
    for level in (0.1, 0.2999, 0.3001, 0.9):
        inner = level / 0.3 if level < 0.3 else (level - 0.3) / 0.7
        expected = (-50.0 if level < 0.3 else 50.0) + MIN_SCALE * stats.norm.ppf(inner)
        np.testing.assert_allclose(model.conditional_quantile(batch, level).item(), expected, rtol=1e-6)


def test_quantiles_do_not_depend_on_the_piece_in_which_cells_are_searched(generator, monkeypatch):
    model, batch = random_mixture(generator), random_batch(generator, n_rows=30)
    whole = model.conditional_quantile(batch, 0.8)
    monkeypatch.setattr("halfseen.mixtures.imputer._NUMBERS_AT_ONCE", 7)
    np.testing.assert_allclose(model.conditional_quantile(batch, 0.8), whole, rtol=EXACT)


def test_draws_of_numbers_follow_the_conditional_distribution(generator):
    model, batch = random_mixture(generator), one_row_many_times(generator, 20_000)
    draws = model.conditional_draw(batch, noise_for(generator, len(batch))).detach().numpy()
    oracle = Oracle(model)
    weights = oracle.posterior(batch.x[0].numpy(), batch.observed[0].numpy())

    def cdf(t):
        return stats.norm.cdf(np.asarray(t)[..., None], oracle.loc[:, 1], oracle.scale[:, 1]) @ weights

    assert stats.kstest(draws[:, 6], cdf).pvalue > FAILURE_RATE


def test_draws_of_levels_and_the_sign_of_a_number_have_their_joint_frequencies(generator):
    model, batch = random_mixture(generator), one_row_many_times(generator, 20_000)
    draws = model.conditional_draw(batch, noise_for(generator, len(batch))).detach().numpy()
    oracle = Oracle(model)
    weights = oracle.posterior(batch.x[0].numpy(), batch.observed[0].numpy())
    below = stats.norm.cdf(0.0, oracle.loc[:, 1], oracle.scale[:, 1])
    expected = np.stack([(weights * side) @ oracle.levels[1, 4] for side in (below, 1 - below)])

    counts = np.stack([draws[draws[:, 6] < 0, 1:4].sum(0), draws[draws[:, 6] >= 0, 1:4].sum(0)])

    np.testing.assert_array_equal(draws[:, 1:4].sum(1), 1.0)
    assert stats.chisquare(counts.ravel(), expected.ravel() * len(draws)).pvalue > FAILURE_RATE


def test_levels_follow_their_uniforms_and_the_last_takes_what_rounding_leaves():
    model = DiagonalMixture(n_features=10, n_components=1, blocks=[(0, 10)]).double()
    batch = Incomplete(torch.zeros(4, 10, dtype=torch.float64), torch.zeros(4, 10, dtype=torch.bool))
    chances = torch.tensor([[1e-12], [0.3999], [0.4001], [1.0]], dtype=torch.float64)
    draws = model.conditional_draw(batch, torch.cat([torch.ones_like(chances), chances], dim=1))
    assert draws.argmax(-1).tolist() == [0, 3, 4, 9]  # ten times 0.1 is a little less than 1.0


def test_a_number_is_drawn_by_its_own_uniform_from_the_component_that_its_uniform_chooses(generator):
    model = random_mixture(generator)
    batch = random_batch(generator, n_rows=1000, rate=1.0)
    noise = noise_for(generator, 1000)
    draws = model.conditional_draw(batch, noise).detach().numpy()

    oracle = Oracle(model)
    component = np.searchsorted(oracle.weights.cumsum(), noise[:, 0].numpy())
    expected = oracle.loc[component] + oracle.scale[component] * stats.norm.ppf(noise[:, 1:3].numpy())
    assert set(component) == {0, 1, 2}
    np.testing.assert_allclose(draws[:, [0, 6]], expected, rtol=EXACT)


def test_a_draw_belongs_to_its_row_and_not_to_its_batch(generator):
    model, batch = random_mixture(generator), random_batch(generator, n_rows=50)
    noise = noise_for(generator, 50)
    together = model.conditional_draw(batch, noise)
    for row in range(50):
        alone = model.conditional_draw(batch[row : row + 1], noise[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=0)


def test_observed_cells_come_back_exactly_also_from_single_precision(generator):
    model, batch = random_mixture(generator).float(), random_batch(generator)
    for answer in (
        model.conditional_mean(batch),
        model.conditional_quantile(batch, 0.3),
        model.conditional_draw(batch, noise_for(generator, len(batch))),
    ):
        assert answer.dtype == torch.float64
        assert torch.equal(answer[batch.observed], batch.x[batch.observed])
        assert answer.isfinite().all()


def test_permuting_features_and_model_together_changes_nothing(generator):
    model, batch = random_mixture(generator), random_batch(generator)
    order = torch.tensor([6, 4, 5, 0, 1, 2, 3])  # the blocks move to (1, 3) and (4, 7)
    moved = DiagonalMixture(N_FEATURES, 3, [(1, 3), (4, 7)]).double()
    moved.load_state_dict(
        model.state_dict() | {n: model.state_dict()[n].flip(-1) for n in ("loc", "raw_scale")}
    )
    shuffled = Incomplete(batch.x[:, order], batch.observed[:, order])
    torch.testing.assert_close(moved(shuffled), model(batch), rtol=EXACT, atol=EXACT)


def test_the_order_of_rows_and_leading_axes_change_nothing(generator):
    model, batch = random_mixture(generator), random_batch(generator, n_rows=12)
    order = torch.randperm(12, generator=generator)
    torch.testing.assert_close(model(batch[order]), model(batch)[order], rtol=EXACT, atol=EXACT)
    folded = Incomplete(batch.x.reshape(3, 4, -1), batch.observed.reshape(3, 4, -1))
    torch.testing.assert_close(model(folded).reshape(-1), model(batch), rtol=EXACT, atol=EXACT)
    for name, arguments in (("conditional_mean", ()), ("conditional_quantile", (0.2,))):
        flat, nested = (getattr(model, name)(rows, *arguments) for rows in (batch, folded))
        torch.testing.assert_close(nested.reshape(12, -1), flat, rtol=EXACT, atol=EXACT)


def test_single_precision_keeps_the_digits_that_the_expanded_square_would_cancel():
    model = DiagonalMixture(n_features=1, n_components=1)
    with torch.no_grad():
        model.loc.fill_(100.0)
        model.raw_scale.fill_(-30.0)
    batch = Incomplete(torch.full((1, 1), 100.0), torch.ones(1, 1, dtype=torch.bool))
    np.testing.assert_allclose(model(batch).item(), stats.norm.logpdf(0.0, 0.0, MIN_SCALE), rtol=1e-5)


@pytest.mark.parametrize(("n_features", "blocks"), [(2, ()), (3, [(0, 3)])], ids=["numbers", "one block"])
def test_features_may_all_be_of_one_sort(generator, n_features, blocks):
    model = random_mixture(generator, n_features=n_features, blocks=blocks)
    x = torch.zeros(2, n_features, dtype=torch.float64)
    x[:, 0] = 1.0
    batch = Incomplete(x, torch.tensor([[True], [False]]).expand(2, n_features))
    model.reset_parameters(batch, generator)
    noise = torch.full((2, model.n_noise), 0.5)
    answers = (
        model.conditional_mean(batch),
        model.conditional_quantile(batch, 0.5),
        model.conditional_draw(batch, noise),
    )
    assert model(batch)[1].abs() < EXACT
    assert all(answer.shape == x.shape and torch.equal(answer[0], x[0]) for answer in answers)


def test_initial_centres_are_rows_and_blocks_follow_frequencies(generator):
    batch = random_batch(generator, n_rows=500, rate=0.3)
    model = DiagonalMixture(N_FEATURES, 40, BLOCKS).double()
    model.reset_parameters(batch, generator)
    numbers = torch.where(batch.observed, batch.x, math.nan)[:, [0, 6]].numpy()

    np.testing.assert_allclose(model.scale.detach()[0], np.nanstd(numbers, axis=0), rtol=1e-6)
    assert model.loc.std() > 0.5
    assert model.loc.abs().max() < 3.5
    frequencies = model.level_probs.detach().mean(0)
    assert ((frequencies > 0.1) & (frequencies < 0.8)).all()
    assert model(batch).isfinite().all()


def test_initialisation_repeats_with_its_generator_and_ignores_what_is_masked(generator):
    batch = random_batch(generator, n_rows=50)
    poisoned = Incomplete(torch.where(batch.observed, batch.x, math.nan), batch.observed)
    models = [DiagonalMixture(N_FEATURES, 4, BLOCKS).double() for _ in range(2)]
    for model, rows in zip(models, (batch, poisoned), strict=True):
        model.reset_parameters(rows, torch.Generator().manual_seed(7))
    for first, second in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(first, second)


def test_initialisation_survives_equal_rows_constant_and_empty_columns(generator):
    batch = Incomplete(torch.ones(3, 2, dtype=torch.float64), torch.tensor([[True, False]]).expand(3, 2))
    model = DiagonalMixture(n_features=2, n_components=5).double()
    model.reset_parameters(batch, generator)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert len(model.loc[:, 0].unique()) == 5


def test_no_component_is_narrower_and_no_level_rarer_than_their_floors():
    model = DiagonalMixture(n_features=3, n_components=1, blocks=[(1, 3)]).double()
    with torch.no_grad():
        model.raw_scale.fill_(-1e3)
        model.level_logits.copy_(torch.tensor([[0.0, 1e4]]))
    assert model.scale.item() == MIN_SCALE
    np.testing.assert_allclose(model.level_probs.detach(), [[LEVEL_SMOOTHING / 2, 1 - LEVEL_SMOOTHING / 2]])


def test_the_mixture_answers_every_question_of_a_drawable_model():
    assert isinstance(DiagonalMixture(2, 1), DrawableModel)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "n_features must be at least 1, got 0"),
        ((1, 0), "n_components must be at least 1, got 0"),
        ((4, 1, [(2, 5)]), r"A block must lie within 0 and 4, got \(2, 5\)"),
        ((4, 1, [(2, 2)]), r"A block must lie within 0 and 4, got \(2, 2\)"),
        ((4, 1, [(1, 3), (0, 2)]), r"Blocks must not overlap, but \(1, 3\) begins before 2"),
    ],
)
def test_an_impossible_layout_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DiagonalMixture(*arguments)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan])
def test_a_level_outside_zero_and_one_is_refused(generator, level):
    with pytest.raises(ValueError, match=f"level must be between 0 and 1, got {level}"):
        random_mixture(generator).conditional_quantile(random_batch(generator), level)


@pytest.mark.parametrize(
    ("x", "observed", "message"),
    [
        ([[1.0, 0.0]], [[True, False]], r"block \(0, 2\) must be observed or missing as a whole"),
        ([[1.0, 1.0]], [[True, True]], r"block \(0, 2\) must be one-hot"),
        ([[0.5, 0.5]], [[True, True]], r"block \(0, 2\) must be one-hot"),
        ([[1.0]], [[True]], r"batch must have shape \(N, 2\) with N > 0, got \(1, 1\)"),
    ],
)
def test_data_that_do_not_fit_the_blocks_are_refused(generator, x, observed, message):
    model = DiagonalMixture(n_features=2, n_components=1, blocks=[(0, 2)])
    with pytest.raises(ValueError, match=message):
        model.reset_parameters(Incomplete(torch.tensor(x), torch.tensor(observed)), generator)
