"""Codes to features and back: indicators, merged levels, scales, and what is saved."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import EXACT

from halfseen.data.features import MAX_INDICATORS, MIN_COUNT, FeatureMap, _group_levels
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column

N_ROWS = 60
COUNTS = (25, 20, 9, 3, 2, 1, 0)  # of the levels of "many": three have an indicator, the rest share one


def number(name, kind="continuous"):
    return Column(name, kind, "float64", "number")


def levelled(name, kind, n_levels):
    return Column(name, kind, "str", "label", levels=tuple(f"{name}{i}" for i in range(n_levels)))


COLUMNS = (
    levelled("two", "binary", 2),
    number("x"),
    levelled("many", "categorical", len(COUNTS)),
    levelled("order", "ordinal", 4),
    number("y"),
)


def some_codes(seed=0, rate=0.2):
    rng = np.random.default_rng(seed)
    codes = np.column_stack(
        [
            rng.integers(0, 2, N_ROWS),
            rng.normal(5, 3, N_ROWS),
            rng.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS)),
            rng.integers(0, 4, N_ROWS),
            rng.normal(-100, 0.1, N_ROWS),
        ]
    ).astype(float)
    hidden = rng.random(codes.shape) < rate
    hidden[:, 2] = False  # its counts are given
    codes[hidden] = np.nan
    return Incomplete.from_array(codes)


def fitted(all_indicators, seed=0, rate=0.2):
    codes = some_codes(seed, rate)
    return FeatureMap.fit(COLUMNS, codes, all_indicators=all_indicators), codes


def decoded(features, encoded):
    """Codes (N, C) that features stand for, level by level the most probable."""
    result = torch.empty(len(encoded), len(COLUMNS), dtype=torch.float64)
    result[:, list(features.numeric)] = features.numbers(encoded)
    for block in features.blocks:
        probabilities = features.level_probabilities(encoded, block)
        result[:, block.column] = probabilities.argmax(dim=-1).double()
    return result


def test_numbers_come_first_and_an_ordinal_column_is_a_number_or_a_block():
    gaussian, _ = fitted(all_indicators=False)
    assert gaussian.numeric == (1, 3, 4)
    assert gaussian.ordinal == (3,)
    assert [(b.column, b.start, b.stop) for b in gaussian.blocks] == [(0, 3, 4), (2, 4, 7)]
    mixture, _ = fitted(all_indicators=True)
    assert mixture.numeric == (1, 4)
    assert mixture.ordinal == ()
    assert [(b.column, b.start, b.stop) for b in mixture.blocks] == [(0, 2, 4), (2, 4, 8), (3, 8, 12)]
    assert (gaussian.n_features, mixture.n_features) == (7, 12)


@pytest.mark.parametrize("all_indicators", [False, True])
def test_decoding_undoes_encoding_up_to_merged_levels(all_indicators):
    features, codes = fitted(all_indicators)
    encoded = features.encode(codes)
    back = decoded(features, encoded.filled())
    merged = (codes.x[:, 2] >= 3).nonzero().flatten()
    expected = codes.x.clone()
    expected[merged, 2] = 3  # the most frequent of the merged levels
    torch.testing.assert_close(back[codes.observed], expected[codes.observed], rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("all_indicators", [False, True])
def test_a_block_is_seen_or_unseen_as_one(all_indicators):
    features, codes = fitted(all_indicators)
    encoded = features.encode(codes)
    for block in features.blocks:
        for j in range(block.start, block.stop):
            assert torch.equal(encoded.observed[:, j], codes.observed[:, block.column])
    for position, c in enumerate(features.numeric):
        assert torch.equal(encoded.observed[:, position], codes.observed[:, c])


def test_indicators_of_a_mixture_are_one_hot():
    features, codes = fitted(all_indicators=True)
    encoded = features.encode(codes)
    for block in features.blocks:
        part = encoded.x[codes.observed[:, block.column], block.start : block.stop]
        assert set(part.unique().tolist()) == {0.0, 1.0}
        assert (part.sum(dim=1) == 1).all()


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 0.7), all_indicators=st.booleans())
def test_features_of_the_observed_cells_are_standardised(seed, rate, all_indicators):
    features, codes = fitted(all_indicators, seed, rate)
    array = features.encode(codes).to_array()
    array = array[:, : len(features.numeric)] if all_indicators else array
    spread = np.nanstd(array, axis=0)
    np.testing.assert_allclose(np.nanmean(array, axis=0)[spread > 0], 0, atol=1e-9)
    np.testing.assert_allclose(spread[spread > 0], 1, atol=1e-9)


@pytest.mark.parametrize("all_indicators", [False, True])
def test_values_under_the_mask_are_never_read(all_indicators):
    _, codes = fitted(all_indicators)
    poisoned = Incomplete(torch.where(codes.observed, codes.x, torch.nan), codes.observed)
    clean = FeatureMap.fit(COLUMNS, codes, all_indicators=all_indicators)
    dirty = FeatureMap.fit(COLUMNS, poisoned, all_indicators=all_indicators)
    for key, tensor in clean.state().items():
        assert torch.equal(dirty.state()[key], tensor)
    assert torch.equal(dirty.encode(poisoned).filled(), clean.encode(codes).filled())
    assert torch.equal(dirty.log_jacobian(poisoned), clean.log_jacobian(codes))


@given(seed=st.integers(0, 2**16), all_indicators=st.booleans())
def test_level_probabilities_are_probabilities_whatever_the_features(seed, all_indicators):
    features, _ = fitted(all_indicators)
    wild = torch.from_numpy(np.random.default_rng(seed).normal(0, 5, (2, 3, features.n_features)))
    for block in features.blocks:
        probabilities = features.level_probabilities(wild, block)
        assert probabilities.shape == (2, 3, len(block.group))
        assert (probabilities > 0).all()  # every level stays possible, also one never seen
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, 3).double(), rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("all_indicators", [False, True])
def test_expected_indicators_give_back_the_frequencies(all_indicators):
    features, codes = fitted(all_indicators)
    block = next(b for b in features.blocks if b.column == 2)
    mean = features.encode(codes).filled().mean(dim=0)
    frequencies = torch.tensor(COUNTS, dtype=torch.float64) / N_ROWS
    shares = torch.tensor([3, 2, 1, 0.5]).double() / 6.5  # a level never seen weighs half a count
    expected = torch.cat([frequencies[:3], frequencies[3:].sum() * shares])
    torch.testing.assert_close(features.level_probabilities(mean, block), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("all_indicators", [False, True])
def test_indicators_of_levels_are_what_encoding_gives(all_indicators):
    features, codes = fitted(all_indicators, rate=0.0)
    encoded = features.encode(codes).x
    for block in features.blocks:
        torch.testing.assert_close(
            features.indicators(codes.x[:, block.column], block),
            encoded[:, block.start : block.stop],
            rtol=0,
            atol=0,
        )


def test_the_log_jacobian_is_the_product_of_the_scales_of_observed_numbers():
    features, codes = fitted(all_indicators=False)
    for i in range(N_ROWS):
        product = 1.0
        for position, c in enumerate(features.numeric):
            if codes.observed[i, c]:
                low, high = (
                    features.numbers(torch.full((features.n_features,), float(v)))[position] for v in (0, 1)
                )
                product *= float(high - low)  # what one unit of the feature is in units of the table
        assert features.log_jacobian(codes)[i].item() == pytest.approx(-np.log(product), abs=EXACT)


@pytest.mark.parametrize("all_indicators", [False, True])
def test_state_rebuilds_the_map_exactly(all_indicators):
    features, codes = fitted(all_indicators)
    again = FeatureMap.from_state(COLUMNS, features.state(), all_indicators=all_indicators)
    assert (again.numeric, again.ordinal, again.n_features) == (
        features.numeric,
        features.ordinal,
        features.n_features,
    )
    assert torch.equal(again.encode(codes).filled(), features.encode(codes).filled())
    wild = torch.randn(
        3, features.n_features, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    for new, old in zip(again.blocks, features.blocks, strict=True):
        assert (new.column, new.start, new.stop, new.n_groups) == (
            old.column,
            old.start,
            old.stop,
            old.n_groups,
        )
        assert torch.equal(again.level_probabilities(wild, new), features.level_probabilities(wild, old))


@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=80))
def test_groups_hold_every_level_and_their_shares_sum_to_one(counts):
    counts = torch.tensor(counts)
    group, share = _group_levels(counts)
    sizes = torch.bincount(group)
    assert len(sizes) <= MAX_INDICATORS + 1
    assert (sizes[:-1] == 1).all()  # only the last group may hold several
    assert (share > 0).all()
    total = torch.zeros(len(sizes)).double().index_add_(0, group, share)
    torch.testing.assert_close(total, torch.ones(len(sizes)).double(), rtol=EXACT, atol=EXACT)
    if len(counts) > 3 and (counts >= MIN_COUNT).any():
        merged = counts[group == group.max()] if sizes[-1] > 1 else counts[:0]
        kept = counts[group < group.max()] if sizes[-1] > 1 else counts
        assert not len(merged) or not len(kept) or merged.max() <= kept.min()


def test_tables_of_numbers_only_and_of_levels_only_and_without_rows():
    for columns, codes in (
        (COLUMNS[1:2], [[1.0], [np.nan], [3.0]]),
        (COLUMNS[:1], [[1.0], [np.nan], [0.0]]),
        (COLUMNS[:2], np.empty((0, 2))),
        ((levelled("one", "categorical", 1), number("x")), [[0.0, 1.5], [np.nan, 2.5]]),
    ):
        batch = Incomplete.from_array(codes)
        for all_indicators in (False, True):
            features = FeatureMap.fit(columns, batch, all_indicators=all_indicators)
            encoded = features.encode(batch)
            assert encoded.x.shape == (len(batch), features.n_features)
            for block in features.blocks:
                total = features.level_probabilities(encoded.filled(), block).sum(-1)
                torch.testing.assert_close(total, torch.ones(len(batch)).double(), rtol=EXACT, atol=EXACT)


def grouped_levels(n_levels=200, seed=0):
    """A column of many levels, most of them rare, and random expected features."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.cat([torch.arange(40, 5, -1), torch.ones(n_levels - 35).long()])
    counts = counts[torch.randperm(n_levels, generator=generator)]
    codes = torch.arange(n_levels).repeat_interleave(counts).double()[:, None]
    column = levelled("many", "categorical", n_levels)
    features = FeatureMap.fit(
        [column], Incomplete(codes, torch.ones_like(codes).bool()), all_indicators=False
    )
    wild = torch.randn(50, features.n_features, generator=generator, dtype=torch.float64)
    return features, wild


def test_the_likeliest_level_by_groups_is_that_of_all_levels():
    features, wild = grouped_levels()
    (block,) = features.blocks
    groups, levels = features.group_probabilities(wild, block), features.level_probabilities(wild, block)
    assert groups.shape[1] < levels.shape[1] == 200
    assert torch.equal(block.likeliest(groups), levels.argmax(dim=1))
    torch.testing.assert_close(block.of_leaders(groups).amax(dim=1), levels.amax(dim=1))


def test_levels_drawn_by_groups_are_as_frequent_as_their_probabilities():
    features, wild = grouped_levels()
    (block,) = features.blocks
    uniforms = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000  # every share shows up exactly
    groups = features.group_probabilities(wild[:1], block)
    drawn = block.draw(groups.expand(len(uniforms), -1), uniforms)
    shares = torch.bincount(drawn, minlength=200) / len(uniforms)
    expected = features.level_probabilities(wild[0], block)
    torch.testing.assert_close(shares.double(), expected, rtol=0, atol=1.5e-5)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0])
def test_a_level_drawn_from_a_certain_group_is_of_that_group(uniform):
    features, _ = grouped_levels()
    (block,) = features.blocks
    certain = torch.eye(block.n_groups, dtype=torch.float64)
    drawn = block.draw(certain, torch.full((block.n_groups,), uniform, dtype=torch.float64))
    assert block.group[drawn].tolist() == list(range(block.n_groups)) or uniform == 1.0
    assert ((drawn >= 0) & (drawn < 200)).all()
