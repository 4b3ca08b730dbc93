"""Buckets of patterns: every incomplete row is in one, and blocks come from and go to their places."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfseen.gaussian.distribution import plan_buckets


def random_mask(seed, n_rows, n_features, rate):
    return torch.rand(n_rows, n_features, generator=torch.Generator().manual_seed(seed)) >= rate


@given(
    seed=st.integers(0, 2**31),
    n_features=st.integers(1, 7),
    rate=st.floats(0, 1),
    missing_side=st.booleans(),
    by_row=st.booleans(),
)
def test_each_row_is_in_one_bucket_with_its_own_features(seed, n_features, rate, missing_side, by_row):
    observed = random_mask(seed, 40, n_features, rate)
    seen = []
    for bucket in plan_buckets(observed, missing_side=missing_side, by_row=by_row):
        assert not (missing_side and bucket.by_observed)
        for features, rows in zip(bucket.features.tolist(), bucket.rows.tolist(), strict=True):
            own = [row for row in rows if row < 40]
            assert len(own) == 1 or not by_row
            for row in own:
                side = observed[row] if bucket.by_observed else ~observed[row]
                assert [f for f in features if f < n_features] == side.nonzero().squeeze(1).tolist()
            seen += own
    needed = ~observed.all(dim=1) & (observed.any(dim=1) | missing_side)
    assert sorted(seen) == needed.nonzero().squeeze(1).tolist()


@pytest.mark.parametrize("by_row", [False, True])
def test_blocks_are_taken_from_a_matrix_and_put_back(by_row, generator):
    observed = random_mask(1, 50, 6, 0.5)
    matrix = torch.randn(7, 7, generator=generator, dtype=torch.float64)
    for bucket in plan_buckets(observed, by_row=by_row):
        blocks = bucket.blocks(matrix)
        expected = torch.zeros_like(matrix)
        for features, block in zip(bucket.features.tolist(), blocks, strict=True):
            for a, row in enumerate(features):
                for b, column in enumerate(features):
                    assert block[a, b] == matrix[row, column]
                    expected[row, column] += block[a, b]
        torch.testing.assert_close(bucket.summed(blocks, 7), expected.flatten())


def test_neighbouring_shapes_share_a_bucket_in_a_small_table():
    observed = random_mask(2, 1000, 9, 0.3)
    buckets = list(plan_buckets(observed))
    assert len(buckets) <= 4  # by shapes alone there are more than ten
    assert sum(int((bucket.rows < 1000).sum()) for bucket in buckets) == int((~observed.all(dim=1)).sum())


def test_buckets_keep_no_more_memory_than_they_need():
    for bucket in plan_buckets(random_mask(2, 500, 40, 0.1)):
        assert bucket.features.untyped_storage().nbytes() == bucket.features.numel() * 8
