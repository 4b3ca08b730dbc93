"""Noise that belongs to rows: whose it is, and that it is noise."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tolerances import FAILURE_RATE

from halfseen._random import id_keys, row_keys, row_normals, row_uniforms, seed_from, torch_generator

N_ROWS = 4000


def counting_rows(n_rows=N_ROWS):
    """The least random table there is, so that all randomness must come from the hash."""
    return np.column_stack([np.arange(n_rows, dtype=float), np.zeros(n_rows), np.full(n_rows, np.nan)])


def p_values_of_uniforms(seed):
    """P-values of uniformity and independence, by name."""
    keys = row_keys(counting_rows(), seed)
    draws = {
        (draw, stream): row_uniforms(keys, draw, 4, stream)
        for draw, stream in itertools.product((0, 1), repeat=2)
    }
    result = {}
    for name, u in draws.items():
        result["uniform", name] = stats.kstest(u.ravel(), "uniform").pvalue
        result["rows", name] = stats.pearsonr(u[1:].ravel(), u[:-1].ravel()).pvalue
        for a, b in itertools.combinations(range(4), 2):
            result["features", a, b, name] = stats.pearsonr(u[:, a], u[:, b]).pvalue
    for (a, u), (b, v) in itertools.combinations(draws.items(), 2):
        result["draws and streams", a, b] = stats.pearsonr(u.ravel(), v.ravel()).pvalue
    other = row_uniforms(row_keys(counting_rows(), seed + 1), 0, 4)
    result["seeds"] = stats.pearsonr(draws[0, 0].ravel(), other.ravel()).pvalue
    bits = (draws[0, 0] * 2**32).astype(np.uint64)
    ones = sum(int(((bits >> np.uint64(b)) & np.uint64(1)).sum()) for b in range(32))
    result["bits"] = stats.binomtest(ones, bits.size * 32).pvalue
    return result


def test_uniforms_are_uniform_and_independent():
    surprising = {name: p for name, p in p_values_of_uniforms(seed=0).items() if p < FAILURE_RATE}
    assert not surprising


def test_normals_are_normal_and_finite():
    normals = row_normals(row_keys(counting_rows(), 0), 0, 10)
    assert stats.kstest(normals.ravel(), "norm").pvalue > FAILURE_RATE
    assert np.isfinite(normals).all()
    uniforms = row_uniforms(row_keys(counting_rows(), 0), 0, 10)
    np.testing.assert_array_equal(normals, stats.norm.ppf(uniforms))


def test_uniforms_never_reach_0_or_1():
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    u = ((ends >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53
    assert 0 < u[0]
    assert np.isfinite(stats.norm.ppf(row_uniforms(row_keys(counting_rows(100_000), 1), 0, 4))).all()


def test_a_million_rows_have_a_million_keys():
    cells = counting_rows(1_000_000)
    cells[500_000:] = 1.5  # half of them are equal, and differ by rank
    assert len(np.unique(row_keys(cells, 0))) == len(cells)


@given(seed=st.integers(0, 2**63 - 1), order=st.permutations(range(6)))
def test_keys_belong_to_rows_and_not_to_batches(seed, order):
    cells = np.array([[1.0, np.nan], [2.0, 3.0], [np.nan, 1.0], [3.0, 2.0], [0.0, np.nan], [np.nan, np.nan]])
    keys = row_keys(cells, seed)
    np.testing.assert_array_equal(row_keys(cells[order], seed), keys[order])
    for i in range(6):
        np.testing.assert_array_equal(row_keys(cells[i : i + 1], seed), keys[i : i + 1])
    assert len(set(keys.tolist())) == 6
    assert not set(keys.tolist()) & set(row_keys(cells, seed ^ 1).tolist())


def test_equal_rows_differ_by_their_rank_among_equals():
    row, other = [1.0, np.nan], [2.0, 2.0]
    together = row_keys(np.array([row, other, row, row, other]), 0)
    assert len(set(together.tolist())) == 5
    np.testing.assert_array_equal(row_keys(np.array([row, row, row]), 0), together[[0, 2, 3]])
    np.testing.assert_array_equal(row_keys(np.array([other, other]), 0), together[[1, 4]])


def test_a_cell_is_its_value_and_not_its_bits():
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    plain = row_keys(np.array([[0.0, np.nan]]), 0)
    for zero, nan in itertools.product((0.0, -0.0), payload):
        np.testing.assert_array_equal(row_keys(np.array([[zero, nan]]), 0), plain)
    assert row_keys(np.array([[np.nan, 0.0]]), 0) != plain  # the order of columns counts


def test_memory_order_does_not_matter_and_cells_are_not_written():
    cells = np.random.default_rng(0).normal(size=(5, 3))
    cells[0, 0] = -0.0
    cells.setflags(write=False)
    np.testing.assert_array_equal(row_keys(np.asfortranarray(cells), 0), row_keys(cells, 0))


@pytest.mark.parametrize("shape", [(0, 3), (0, 0), (3, 0)])
def test_empty_tables_have_keys_too(shape):
    keys = row_keys(np.empty(shape), 0)
    assert len(set(keys.tolist())) == shape[0]
    assert row_uniforms(keys, 0, 2).shape == (shape[0], 2)


def test_noise_of_a_feature_does_not_depend_on_how_many_there_are():
    keys = row_keys(counting_rows(5), 0)
    np.testing.assert_array_equal(row_uniforms(keys, 3, 7)[:, :4], row_uniforms(keys, 3, 4))
    np.testing.assert_array_equal(row_uniforms(keys[2:3], 3, 4), row_uniforms(keys, 3, 4)[2:3])


# ------------------------------------------------------------------------------------------- seeds


def test_seeds_come_from_integers_and_generators():
    assert seed_from(7) == seed_from(np.int64(7)) == 7
    assert seed_from(2**63 + 5) == 5
    assert 0 <= seed_from(None) < 2**63
    assert seed_from(None) != seed_from(None)
    assert seed_from(np.random.default_rng(3)) == seed_from(np.random.default_rng(3))
    generator = np.random.default_rng(3)
    assert seed_from(generator) != seed_from(generator)
    legacy = np.random.RandomState(3)
    assert seed_from(legacy) != seed_from(legacy)


@pytest.mark.parametrize(
    ("random_state", "message"),
    [
        (-1, "random_state must not be negative, got -1"),
        ("7", "random_state must be None, an integer or a numpy generator, got '7'"),
        (1.5, "random_state must be None, an integer or a numpy generator, got 1.5"),
        (True, "random_state must be None, an integer or a numpy generator, got True"),
    ],
)
def test_other_seeds_are_refused(random_state, message):
    with pytest.raises(ValueError, match=message):
        seed_from(random_state)


def test_torch_generators_are_fresh():
    first, second = torch_generator(5), torch_generator(5)
    torch.rand(3, generator=first)
    assert torch.equal(torch.rand(3, generator=second), torch.rand(3, generator=torch_generator(5)))
    torch_generator(2**63 - 1)


def test_keys_of_ids_depend_on_the_id_and_the_seed_alone():
    ids = np.arange(-5, 1000)
    keys = id_keys(ids, seed=3)
    assert len(set(keys.tolist())) == len(ids)
    np.testing.assert_array_equal(id_keys(ids[7:9], seed=3), keys[7:9])
    assert not (id_keys(ids, seed=4) == keys).any()
    for same in (ids.astype(np.int16), ids.tolist(), ids.astype(object)):
        np.testing.assert_array_equal(id_keys(same, seed=3), keys)
    np.testing.assert_array_equal(id_keys(ids[5:].astype(np.uint64), seed=3), keys[5:])
    assert id_keys(np.array([-1]), 0) != id_keys(np.array([2**64 - 1], dtype=np.uint64), 0)
    texts = [str(one) for one in ids]
    assert not (id_keys(texts, seed=3) == keys).any()
    np.testing.assert_array_equal(id_keys(np.array(texts), seed=3), id_keys(texts, seed=3))
    assert id_keys([], seed=3).shape == (0,)


def test_noise_of_consecutive_ids_is_uniform_and_independent():
    u = row_uniforms(id_keys(np.arange(N_ROWS), seed=0), 0, 4)
    assert stats.kstest(u.ravel(), "uniform").pvalue > FAILURE_RATE
    assert stats.pearsonr(u[1:].ravel(), u[:-1].ravel()).pvalue > FAILURE_RATE
    assert stats.pearsonr(u[:, 0], u[:, 1]).pvalue > FAILURE_RATE


@pytest.mark.parametrize("wrong", [1.0, None, float("nan"), True, 2**64, b"a"], ids=repr)
def test_ids_that_are_neither_texts_nor_integers_are_refused(wrong):
    with pytest.raises(
        ValueError, match=r"row_ids must be texts or integers of 64 bits, got .* at position 1"
    ):
        id_keys(np.array([1, wrong], dtype=object), seed=0)


def test_ids_have_one_dimension():
    with pytest.raises(ValueError, match=r"row_ids must be one-dimensional, got the shape \(2, 1\)"):
        id_keys(np.zeros((2, 1), dtype=np.int64), seed=0)
