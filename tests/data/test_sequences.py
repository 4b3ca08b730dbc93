"""Sequences are read into values, a mask and lengths; what cannot be read is refused with a remedy."""

import numpy as np
import pytest
import torch

from halfseen.data.sequences import read_sequences

X = np.arange(24.0).reshape(4, 3, 2)


def test_missing_values_and_steps_after_the_end_are_not_observed():
    array = X.copy()
    array[0, 0, 1] = np.nan
    read = read_sequences(array, lengths=[3, 1, 2, 3])
    assert not read.values.observed[0, 0, 1]
    assert read.inside.tolist() == [[True] * 3, [True, False, False], [True, True, False], [True] * 3]
    assert torch.equal(read.values.observed[1:], read.inside[1:, :, None].expand(-1, -1, 2))
    np.testing.assert_array_equal(read.values.to_array()[0], array[0])
    assert (len(read), read.n_steps, read.n_features) == (4, 3, 2)


def test_without_lengths_missing_steps_at_the_end_belong_to_the_sequence():
    array = X.copy()
    array[0, 2] = np.nan
    read = read_sequences(array)
    assert read.lengths.tolist() == [3, 3, 3, 3]
    assert read.inside.all()


def test_what_lies_after_the_end_is_never_read():
    poisoned = X.copy()
    poisoned[1, 1:], poisoned[2, 2:] = np.inf, 1e300
    lengths = [3, 1, 2, 3]
    plain, other = read_sequences(X, lengths), read_sequences(poisoned, lengths)
    assert torch.equal(plain.values.filled(), other.values.filled())


def test_rows_are_taken_with_their_lengths():
    read = read_sequences(X, lengths=[3, 1, 2, 3])
    some = read[torch.tensor([2, 1])]
    assert some.lengths.tolist() == [2, 1]
    np.testing.assert_array_equal(some.values.filled()[0, :2], X[2, :2])
    assert len(read[1:3].steps) == 2 * 3


@pytest.mark.parametrize(
    "given",
    [
        X.tolist(),
        np.ma.array(X, mask=np.zeros_like(X, dtype=bool)),
        X.astype(object),
        X.astype(int),
        torch.from_numpy(X),
    ],
    ids=["list", "masked", "object", "whole", "torch"],
)
def test_arrays_of_other_kinds_are_read_alike(given):
    assert torch.equal(read_sequences(given).values.x, torch.from_numpy(X))


def test_none_and_masked_values_are_missing():
    masked = np.ma.array(X, mask=X == 5.0)
    nothing = np.where(X == 5.0, None, X.astype(object))
    for given in (masked, nothing):
        observed = read_sequences(given).values.observed
        assert np.array_equal(observed.numpy(), X != 5.0)


def test_the_users_array_is_not_changed_or_shared():
    array = X.copy()
    read_sequences(array).values.x.zero_()
    np.testing.assert_array_equal(array, X)


@pytest.mark.parametrize(
    ("given", "lengths", "match"),
    [
        (X[0], None, r"three dimensions .*, got an array of shape \(3, 2\). For sequences of one feature"),
        (X[None], None, r"got an array of shape \(1, 4, 3, 2\)\."),
        ([[[1.0], [2.0]], [[1.0]]], None, "different numbers of steps, from 1 to 2. Pad all sequences"),
        ([[[1.0], [2.0, 3.0]], [[1.0], [2.0]]], None, "The steps of X have different numbers of features"),
        (X[:0], None, r"at least one sequence, step and feature, got the shape \(0, 3, 2\)"),
        (X[:, :0], None, r"got the shape \(4, 0, 2\)"),
        (np.full((2, 3, 1), np.nan), None, "All 6 values of X are missing"),
        (np.full((2, 3, 1), np.nan), [1, 2], "All 3 values of X are missing"),
        (np.full((1, 1, 1), "a"), None, "X must hold numbers, got an array of dtype <U1"),
        (np.full((1, 1, 1), "a", dtype=object), None, "X must hold numbers, or None .*could not convert"),
        (np.where(X == 9.0, -np.inf, X), None, "Sequence 1 holds -inf at step 1, feature 1"),
        (X, [1, 2], r"one number per sequence, shape \(4,\), got shape \(2,\)"),
        (X, [3, 0, 1, 1], "from 1 to 3, the number of steps of X; sequence 1 has 0"),
        (X, [3, 1, 4, 1], "sequence 2 has 4"),
        (X, [3, 1.5, 1, 1], "sequence 1 has 1.5"),
        (X, [3, np.nan, 1, 1], "sequence 1 has nan"),
        (X, ["3"] * 4, "lengths must be whole numbers, got an array of dtype <U1"),
    ],
)
def test_what_is_no_array_of_sequences_is_refused(given, lengths, match):
    with pytest.raises(ValueError, match=match):
        read_sequences(given, lengths)


def test_a_fitted_estimator_reads_sequences_of_any_number_but_of_its_features():
    assert len(read_sequences(X[:0], n_features=2)) == 0
    assert not read_sequences(np.full((1, 5, 2), np.nan), n_features=2).values.observed.any()
    with pytest.raises(ValueError, match="X has 2 features, but the estimator was fitted to 3"):
        read_sequences(X, n_features=3)
