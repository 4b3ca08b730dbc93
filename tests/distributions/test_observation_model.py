"""The likelihood of a whole table against its families, column by column."""

import numpy as np
import pytest
import torch
from tolerances import EXACT

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.leaves import GaussianLeaf, LogNormalLeaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_counts import (
    CategoricalLeaf,
    NegativeBinomialLeaf,
    OrdinalLeaf,
    PoissonLeaf,
)
from halfseen.distributions.observation_model import ObservationModel, Part

N_ROWS = 200
LIKELIHOODS = {"visits": "negative-binomial", "income": "log-normal", "order": "ordinal"}


def number(name, kind):
    return Column(name, kind, "float64", "number")


def levelled(name, kind, n_levels):
    return Column(name, kind, "str", "label", levels=tuple(f"{name}{i}" for i in range(n_levels)))


COLUMNS = (
    levelled("order", "ordinal", 6),
    number("visits", "count"),
    levelled("two", "binary", 2),
    number("income", "positive"),
    number("x", "continuous"),
    levelled("many", "categorical", 4),
    number("when", "datetime"),
)


def some_codes(rate=0.2):
    rng = np.random.default_rng(0)
    codes = np.column_stack(
        [
            rng.choice(
                6, N_ROWS, p=[0.1, 0.2, 0.015, 0.4, 0.01, 0.275]
            ),  # two rare levels share an indicator
            rng.negative_binomial(2, 0.3, N_ROWS),
            rng.integers(0, 2, N_ROWS),
            rng.lognormal(3, 0.8, N_ROWS),
            rng.normal(-100, 0.1, N_ROWS),
            rng.choice(4, N_ROWS, p=[0.1, 0.2, 0.3, 0.4]),
            rng.normal(1e15, 1e13, N_ROWS),
        ]
    ).astype(float)
    codes[rng.random(codes.shape) < rate] = np.nan
    return Incomplete.from_array(codes)


@pytest.fixture(scope="module")
def table():
    codes = some_codes()
    features = FeatureMap.fit(COLUMNS, codes, all_indicators=True)
    return features, features.encode(codes)


def observation_of(table, **settings):
    features, batch = table
    return ObservationModel.for_table(COLUMNS, features, batch, **settings).double()


def some_parameters(observation, generator, *shape):
    noise = torch.randn(*shape, observation.n_parameters, generator=generator, dtype=torch.float64)
    return observation.neutral_parameters() + 0.5 * noise


def test_each_column_has_the_log_probability_of_its_own_family(table, generator):
    """Each column is computed alone, by a leaf built by hand from the codes of that column only."""
    features, batch = table
    codes = some_codes()
    observation = observation_of(table, numeric="student-t", likelihoods=LIKELIHOODS)
    parameters = some_parameters(observation, generator, N_ROWS)
    found = observation.log_prob(parameters, batch.filled(observation.filler()))
    assert found.shape == (N_ROWS, len(COLUMNS))
    given = dict(
        zip(
            ("ordinal", "count", "categorical", "positive", "real"),
            observation.split(parameters),
            strict=True,
        )
    )

    def values(c):
        return codes.x[codes.observed[:, c], c]

    def check(c, leaf, outputs, x):
        expected = leaf.double().log_prob(outputs, x)[:, 0]
        seen = codes.observed[:, c]
        torch.testing.assert_close(found[seen, c], expected[seen], rtol=EXACT, atol=EXACT)

    def scaled(c):
        return (codes.filled()[:, [c]] - values(c).mean()) / values(c).std(correction=0)

    def moments(c):
        return values(c).mean()[None], values(c).std(correction=0)[None]

    mean, std = moments(1)
    shape = mean**2 / (std**2 - mean)
    check(1, NegativeBinomialLeaf(mean, std, mean, shape), given["count"], scaled(1))
    log = values(3).log()
    log_normal = LogNormalLeaf(*moments(3), log.mean()[None], log.std(correction=0)[None])
    check(3, log_normal, given["positive"], scaled(3))
    for c, j in ((4, 0), (6, 1)):  # the two columns of reals: locations, scales, degrees of freedom
        check(c, StudentTLeaf(1), given["real"][:, [j, 2 + j, 4 + j]], scaled(c))
    order = features.blocks[0]
    count = torch.bincount(order.group[values(0).long()]).double()
    frequencies = (count + 0.5)[order.group] * order.share
    level = OrdinalLeaf([torch.arange(6)], [frequencies]).double()  # every level by itself
    by_level = level.mean(given["ordinal"])
    by_group = by_level @ (order.group[:, None] == torch.arange(order.n_groups)).double()
    seen, shown = codes.observed[:, 0], order.group[codes.filled()[:, 0].long()]
    expected = by_group.gather(1, shown[:, None])[:, 0].log()
    torch.testing.assert_close(found[seen, 0], expected[seen], rtol=1e-5, atol=1e-5)  # thresholds are single
    two, many = features.blocks[1], features.blocks[2]
    check(2, CategoricalLeaf([2]), given["categorical"][:, :2], batch.filled()[:, two.start : two.stop])
    check(5, CategoricalLeaf([4]), given["categorical"][:, 2:], batch.filled()[:, many.start : many.stop])


def test_an_ordinal_column_keeps_the_order_of_its_levels_not_that_of_their_indicators(table):
    """Indicators go by frequency; a greater output must still favour greater levels."""
    features, _ = table
    observation = observation_of(table)
    block = features.blocks[0]
    assert block.group[2] == block.group[4]
    assert block.n_groups == 5
    neutral = observation.neutral_parameters().expand(3, -1).clone()
    place = next(i for i, leaf in enumerate(observation.leaves) if isinstance(leaf, OrdinalLeaf))
    start = sum(leaf.n_parameters for leaf in list(observation.leaves)[:place])
    neutral[:, start] += torch.tensor([-30.0, 0.0, 30.0])
    indicators = observation.mean(neutral)[:, block.start : block.stop]
    likeliest = features.level_probabilities(observation.mean(neutral), block).argmax(dim=1)
    assert indicators[0].argmax() == block.group[0]
    assert likeliest[1] == 3
    assert indicators[2].argmax() == block.group[5]


@pytest.mark.parametrize("numeric", ["gaussian", "shared-gaussian", "student-t"])
def test_neutral_outputs_give_observed_means_and_frequencies(table, numeric):
    _, batch = table
    observation = observation_of(table, numeric=numeric, likelihoods={"visits": "poisson"})
    mean = observation.mean(observation.neutral_parameters()).detach()
    seen = batch.observed.double().sum(dim=0)
    expected = torch.where(batch.observed, batch.x, 0.0).sum(dim=0) / seen
    torch.testing.assert_close(mean, expected, rtol=0.02, atol=1e-2)  # half a count is added to every level


def test_features_and_columns_are_mapped_to_each_other(table):
    features, batch = table
    observation = observation_of(table, likelihoods=LIKELIHOODS)
    assert observation.numeric == features.numeric == (1, 3, 4, 6)
    expected = [*features.numeric, *(b.column for b in features.blocks for _ in range(b.start, b.stop))]
    assert observation.columns_of_features.tolist() == expected
    assert torch.equal(observation.observed_columns(batch.observed), some_codes().observed)
    assert observation.is_density.tolist() == [False, False, False, True, True, False, True]


def test_draws_means_variances_and_distribution_functions_are_those_of_the_families(table, generator):
    features, _ = table
    observation = observation_of(table, numeric="student-t", likelihoods=LIKELIHOODS)
    parameters = some_parameters(observation, generator, 3, 4)
    noise = torch.rand(3, 4, observation.n_noise, generator=generator, dtype=torch.float64)
    block_features = [[*range(b.start, b.stop)] for b in features.blocks]
    places = [block_features[0], [0], block_features[1] + block_features[2], [1], [2, 3]]
    pieces = noise.split([leaf.n_noise for leaf in observation.leaves], dim=-1)
    drawn, relaxed = observation.sample(parameters, noise), observation.rsample(parameters, noise)
    mean, variance = observation.mean(parameters), observation.variance(parameters)
    below = observation.cdf(parameters, drawn[..., :4])
    for leaf, part, piece, place in zip(
        observation.leaves, observation.split(parameters), pieces, places, strict=True
    ):
        assert torch.equal(drawn[..., place], leaf.sample(part, piece))
        assert torch.equal(relaxed[..., place], leaf.rsample(part, piece))
        assert torch.equal(mean[..., place], leaf.mean(part))
        assert torch.equal(variance[..., place], leaf.variance(part))
        if hasattr(leaf, "cdf"):
            assert torch.equal(below[..., place], leaf.cdf(part, drawn[..., place]))


def test_parts_in_any_order_of_columns_give_the_same_answers(generator):
    one, two = GaussianLeaf(2), StudentTLeaf(1)
    mixed = ObservationModel(
        [Part(one, columns=[2, 0], features=[1, 2]), Part(two, columns=[1], features=[0])]
    )
    parameters = some_parameters(mixed, generator, 5)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    terms = one.log_prob(parameters[:, :4], x[:, [1, 2]])
    expected = torch.stack([terms[:, 1], two.log_prob(parameters[:, 4:], x[:, :1])[:, 0], terms[:, 0]], dim=1)
    assert torch.equal(mixed.log_prob(parameters, x), expected)
    assert mixed.columns_of_features.tolist() == [1, 2, 0]
    numbers = x[:, [2, 0, 1]]  # by column
    below = one.cdf(parameters[:, :4], x[:, [1, 2]])
    expected = torch.stack([below[:, 1], two.cdf(parameters[:, 4:], x[:, :1])[:, 0], below[:, 0]], dim=1)
    assert torch.equal(mixed.cdf(parameters, numbers), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_under_the_mask_are_never_read(table, generator, dtype):
    features, batch = table
    observation = ObservationModel.for_table(
        COLUMNS, features, batch, numeric="student-t", likelihoods=LIKELIHOODS
    ).to(dtype)
    parameters = some_parameters(observation, generator, N_ROWS).to(dtype).requires_grad_()
    seen = observation.observed_columns(batch.observed)

    def total(value):
        poisoned = Incomplete(torch.where(batch.observed, batch.x, value).to(dtype), batch.observed)
        terms = observation.log_prob(parameters, poisoned.filled(observation.filler()))
        return torch.where(seen, terms, 0.0).sum()

    assert torch.equal(total(torch.nan), total(0.0))
    total(torch.nan).backward()
    assert parameters.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in observation.parameters())


def test_weights_restore_what_was_learnt_from_a_batch(table, generator):
    features, batch = table
    observation = observation_of(table, likelihoods=LIKELIHOODS)
    bare = ObservationModel.for_table(COLUMNS, features, likelihoods=LIKELIHOODS).double()
    parameters = some_parameters(observation, generator, N_ROWS)
    x = batch.filled(observation.filler())
    assert bare.log_prob(parameters, bare.filler()).isfinite().all()
    assert not torch.allclose(bare.log_prob(parameters, x), observation.log_prob(parameters, x))
    bare.load_state_dict(observation.state_dict())
    assert torch.equal(bare.log_prob(parameters, x), observation.log_prob(parameters, x))
    assert torch.equal(bare.neutral_parameters(), observation.neutral_parameters())


def test_every_column_may_have_another_family(table):
    observation = observation_of(
        table, numeric="shared-gaussian", likelihoods={"visits": "poisson", "order": "categorical"}
    )
    assert {type(leaf) for leaf in observation.leaves} == {CategoricalLeaf, PoissonLeaf, SharedGaussianLeaf}


def test_a_table_without_numbers_has_an_empty_distribution_function():
    column = levelled("two", "binary", 2)
    features = FeatureMap.fit([column], Incomplete.from_array([[0.0], [1.0], [np.nan]]), all_indicators=True)
    observation = ObservationModel.for_table([column], features)
    assert observation.numeric == ()
    assert observation.cdf(observation.neutral_parameters().expand(3, -1), torch.empty(3, 0)).shape == (3, 0)


def test_an_ordinal_column_of_one_level_is_categorical():
    column = levelled("one", "ordinal", 1)
    features = FeatureMap.fit([column], Incomplete.from_array([[0.0], [np.nan]]), all_indicators=True)
    observation = ObservationModel.for_table([column], features, likelihoods={"one": "ordinal"})
    assert observation.log_prob(observation.neutral_parameters(), torch.ones(1)).item() == 0


@pytest.mark.parametrize(
    "family", ["gaussian", "shared-gaussian", "student-t", "bernoulli", "discretised-logistic"]
)
def test_pixels_are_one_column_each(family, generator):
    observation = ObservationModel.for_pixels(6, family, low=-1.0).double()
    parameters = some_parameters(observation, generator, 5)
    noise = torch.rand(5, observation.n_noise, generator=generator, dtype=torch.float64)
    drawn = observation.sample(parameters, noise)
    [leaf] = observation.leaves
    assert torch.equal(drawn, leaf.sample(parameters, noise))
    assert torch.equal(observation.log_prob(parameters, drawn), leaf.log_prob(parameters, drawn))
    assert observation.columns_of_features.tolist() == list(range(6))
    if family == "bernoulli":
        assert set(drawn.unique().tolist()) == {-1.0, 1.0}


def test_impossible_settings_are_refused(table):
    features, batch = table
    with pytest.raises(ValueError, match="'x' is continuous, which the likelihood 'poisson' cannot describe"):
        ObservationModel.for_table(COLUMNS, features, batch, likelihoods={"x": "poisson"})
    with pytest.raises(ValueError, match="'normal' cannot describe"):
        ObservationModel.for_table(COLUMNS, features, batch, numeric="normal")
    reduced = FeatureMap.fit(COLUMNS, some_codes(), all_indicators=False)
    with pytest.raises(ValueError, match="fit them with all_indicators=True"):
        ObservationModel.for_table(COLUMNS, reduced)
    with pytest.raises(ValueError, match="There is no family 'cubic'"):
        ObservationModel.for_pixels(3, "cubic")
    with pytest.raises(ValueError, match=r"all features from 0 on once, got \[0, 0\]"):
        ObservationModel([Part(GaussianLeaf(2), columns=[0, 1], features=[0, 0])])
    with pytest.raises(ValueError, match="A leaf of 1 columns and 1 features cannot serve 2 columns"):
        ObservationModel([Part(GaussianLeaf(1), columns=[0, 1], features=[0])])
