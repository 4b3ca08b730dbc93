"""The pair of values and what was seen."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import stats
from tolerances import FAILURE_RATE

from halfseen.data.incomplete import Incomplete

cells = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5),
    elements=st.floats(-9, 9) | st.just(np.nan),
)


@given(array=cells)
def test_an_array_with_nan_comes_back_to_the_bit(array):
    batch = Incomplete.from_array(array)
    np.testing.assert_array_equal(batch.to_array(), array)
    np.testing.assert_array_equal(batch.observed.numpy(), ~np.isnan(array))
    assert not batch.x.isnan().any()
    assert (len(batch), batch.n_features) == array.shape


def test_memory_is_never_shared_with_the_caller():
    array = np.array([[1.0, np.nan]])
    batch = Incomplete.from_array(array)
    array[0, 0] = 5.0
    assert batch.x[0, 0] == 1.0
    batch.to_array()[0, 0] = 7.0
    assert batch.x[0, 0] == 1.0
    frozen = np.array([[1.0, np.nan]])
    frozen.setflags(write=False)
    Incomplete.from_array(frozen)  # without a warning


def test_values_under_the_mask_are_never_read():
    x, observed = torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]])
    batch = Incomplete(x, observed)
    assert batch.filled().tolist() == [[1.0, 0.0]]
    assert batch.filled(torch.tensor([3.0, 4.0])).tolist() == [[1.0, 4.0]]
    np.testing.assert_array_equal(Incomplete(torch.zeros(1, 2), observed).to_array(), [[0.0, np.nan]])


def test_types_and_rows_are_chosen_for_both_at_once():
    batch = Incomplete.from_array([[1.0, np.nan], [np.nan, 2.0], [3.0, 4.0]])
    single = batch.to(torch.float32)
    assert single.x.dtype == torch.float32
    assert single.filled(0.5).dtype == torch.float32
    assert single.to_array().dtype == np.float64
    np.testing.assert_array_equal(batch[1:].to_array(), batch.to_array()[1:])
    np.testing.assert_array_equal(batch[torch.tensor([2, 0])].to_array(), batch.to_array()[[2, 0]])
    pieces = [piece.to_array() for piece in batch.chunks(2)]
    assert [len(piece) for piece in pieces] == [2, 1]
    np.testing.assert_array_equal(np.concatenate(pieces), batch.to_array())
    assert not list(batch[:0].chunks(2))


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (torch.ones(2, 2), r"observed must be boolean \(True for observed values\), got torch.float32"),
        (torch.ones(2, 3, dtype=torch.bool), r"must have one shape, got \(2, 2\) and \(2, 3\)"),
    ],
)
def test_pairs_that_do_not_match_are_refused(observed, message):
    with pytest.raises(ValueError, match=message):
        Incomplete(torch.zeros(2, 2), observed)


def test_chosen_rows_are_those_of_the_set_of_rows():
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 4, size=(500, 3)).astype(float)  # most rows occur several times
    cells[rng.random(cells.shape) < 0.2] = np.nan
    whole = Incomplete.from_array(cells)
    shuffled = whole[torch.from_numpy(rng.permutation(500))]
    for n_rows, seed in ((1, 0), (40, 0), (499, 7)):
        one, other = (table[table.chosen_rows(n_rows, seed)].to_array() for table in (whole, shuffled))
        assert len(one) == n_rows
        np.testing.assert_array_equal(one, other)
    assert whole.chosen_rows(500).tolist() == list(range(500))
    assert set(whole.chosen_rows(40, 1).tolist()) != set(whole.chosen_rows(40, 0).tolist())


def test_every_row_is_as_likely_to_be_chosen():
    """Equal rows are not chosen together: the share of each kind of row is that in the table."""
    kinds = np.repeat([0.0, 1.0, 2.0], [2_000, 1_000, 1_000])
    table = Incomplete.from_array(kinds[:, None])
    found = np.bincount(table[table.chosen_rows(400)].to_array()[:, 0].astype(int), minlength=3)
    assert stats.chisquare(found, [200, 100, 100]).pvalue > FAILURE_RATE
