"""Distances between samples of rows equal scipy's in one dimension and brute force in several."""

import numpy as np
import pytest
from scipy import stats
from tolerances import EXACT

from halfseen.evaluation.energy import energy_distance, row_features, sliced_wasserstein
from halfseen.evaluation.scores import Scale


def samples(n_first, n_second, n_features, shift=0.5):
    rng = np.random.default_rng(n_first + 10 * n_second)
    return rng.normal(size=(n_first, n_features)), shift + 1.5 * rng.normal(size=(n_second, n_features))


def test_energy_distance_is_the_square_of_scipys_in_one_dimension():
    x, y = samples(40, 25, 1)
    expected = stats.energy_distance(x[:, 0], y[:, 0]) ** 2
    assert energy_distance(x, y) == pytest.approx(expected, abs=EXACT)
    assert energy_distance(x[:, 0], y[:, 0]) == pytest.approx(expected, abs=EXACT)


def test_energy_distance_equals_brute_force():
    x, y = samples(700, 30, 3)  # more rows than one block

    def mean(a, b):
        return np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=-1)).mean()

    assert energy_distance(x, y) == pytest.approx(2 * mean(x, y) - mean(x, x) - mean(y, y), abs=EXACT)


def test_equal_samples_are_at_distance_zero_also_after_subsampling():
    x, y = samples(3000, 3000, 2)
    assert energy_distance(x, x) == 0.0
    assert energy_distance(x, x.copy(), max_rows=100, random_state=3) == 0.0
    assert energy_distance(x[:500], x[:500][::-1]) == pytest.approx(0, abs=EXACT)
    assert energy_distance(x, y, max_rows=100) > 0.05
    assert sliced_wasserstein(x, x) == 0.0


def test_a_subsample_estimates_the_whole():
    x, y = samples(4000, 3500, 2, shift=2.0)
    assert energy_distance(x, y, max_rows=800) == pytest.approx(energy_distance(x, y, max_rows=4000), rel=0.1)


def test_energy_distance_sees_lost_variance_that_means_hide():
    """Filling in conditional means has the smaller squared error, and the larger energy distance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    y = x + rng.normal(size=2000)
    truth, means = np.c_[x, y], np.c_[x, x]
    drawn = np.c_[x, x + rng.normal(size=2000)]
    assert np.mean((means - truth) ** 2) < np.mean((drawn - truth) ** 2)
    assert energy_distance(truth, means) > 10 * energy_distance(truth, drawn)


@pytest.mark.parametrize(("n_first", "n_second"), [(30, 30), (30, 45), (7, 11), (1, 5)])
def test_sliced_wasserstein_is_scipys_in_one_dimension(n_first, n_second):
    x, y = samples(n_first, n_second, 1)
    expected = stats.wasserstein_distance(x[:, 0], y[:, 0])
    assert sliced_wasserstein(x, y, p=1) == pytest.approx(expected, abs=EXACT)


def test_sliced_wasserstein_of_a_shift_is_its_length_over_the_root_of_the_dimension():
    x, _ = samples(50, 1, 3)
    shift = np.array([1.0, -2.0, 0.5])
    found = sliced_wasserstein(x, x + shift, n_projections=20_000)
    assert found == pytest.approx(np.linalg.norm(shift) / np.sqrt(3), rel=0.02)


def test_rows_that_differ_in_one_level_or_by_one_deviation_are_one_unit_apart():
    scale = Scale(np.array([10.0, 99.0]), np.array([4.0, 99.0]))
    rows = row_features([[10.0, 0.0], [14.0, 0.0], [10.0, 2.0]], [None, 3], scale)
    assert rows.shape == (3, 4)
    np.testing.assert_allclose(np.linalg.norm(rows[1:] - rows[0], axis=1), [1.0, 1.0])


def test_the_global_generator_and_the_answer_stay():
    x, y = samples(300, 200, 2)
    assert sliced_wasserstein(x, y) == sliced_wasserstein(x, y, random_state=0)
    assert sliced_wasserstein(x, y) != sliced_wasserstein(x, y, random_state=1)


@pytest.mark.parametrize("distance", [energy_distance, sliced_wasserstein])
def test_wrong_samples_are_refused(distance):
    with pytest.raises(ValueError, match="1 and 2 features"):
        distance([[1.0]], [[1.0, 2.0]])
    with pytest.raises(ValueError, match="complete rows only"):
        distance([[np.nan]], [[1.0]])
    with pytest.raises(ValueError, match="at least one row"):
        distance(np.empty((0, 1)), [[1.0]])


def test_an_order_below_one_is_refused():
    with pytest.raises(ValueError, match=r"p must be at least 1, got 0\.5"):
        sliced_wasserstein([[1.0]], [[2.0]], p=0.5)
