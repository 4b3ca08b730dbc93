"""Growing trees: weights of rows, units of the target, several threads."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from halfseen._threads import warning_filters
from halfseen.trees.growth import BoostedRegressor, Growth
from halfseen.trees.target_statistics import TargetStatistics


def rows(n_rows=120):
    rng = np.random.default_rng(0)
    X = rng.integers(6, size=(n_rows, 3)).astype(float)  # few values, between which all thresholds are
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, np.nansum(X, axis=1) + rng.normal(size=n_rows), rng.integers(0, 4, size=n_rows)


@pytest.mark.parametrize("least", [1, 1000])  # rows in a leaf, which are counted without weights
@pytest.mark.parametrize("kind", ["regress", "classify"])
def test_whole_weights_are_repeated_rows(kind, least):
    X, y, weights = rows()
    y = y if kind == "regress" else np.digitize(y, [6.0, 9.0])
    kept = weights > 0
    grow = getattr(Growth(20, 0.3, 8, least, 1, seed=0), kind)
    trees, constants = grow(X[kept], y[kept], [], weights[kept].astype(float))
    others, expected = grow(X.repeat(weights, axis=0), y.repeat(weights), [])
    np.testing.assert_allclose(constants, expected, atol=1e-6)
    n_scores = len(constants)
    seen = X[kept]  # rows of weight zero may have values that are in no other row
    np.testing.assert_allclose(trees.sums(seen, n_scores), others.sums(seen, n_scores), atol=1e-4)
    plain, _ = grow(seen, y[kept], [])
    assert least > 1 or np.abs(plain.sums(seen, n_scores) - trees.sums(seen, n_scores)).max() > 0.1


def test_whole_weights_are_repeated_rows_in_the_means_of_levels():
    X, y, weights = rows()
    levels, target = X[:, :1], y[:, None]
    found = TargetStatistics.fit(levels, {0: 6}, target, weights.astype(float))
    repeated = TargetStatistics.fit(levels.repeat(weights, axis=0), {0: 6}, target.repeat(weights, axis=0))
    np.testing.assert_allclose(found.tables[0], repeated.tables[0])


@pytest.mark.parametrize("unit", [2.0**-20, 2.0**30, 1e-150, 1e150])
def test_trees_do_not_depend_on_the_unit_of_the_numbers(unit):
    X, y, _ = rows(n_rows=600)  # enough for early stopping
    growth = Growth(40, 0.1, 8, 20, 1, seed=0)
    trees, constant = growth.regress(X, y, [])
    others, scaled = growth.regress(X, unit * y, [])
    assert others.n_trees == trees.n_trees > 6
    np.testing.assert_allclose((others.sums(X) + scaled) / unit, trees.sums(X) + constant, atol=1e-6)


def test_threads_that_grow_trees_leave_the_filters_of_warnings_as_they_were():
    X, y, _ = rows(n_rows=600)
    X = np.c_[X, X, X, X]
    growth = Growth(3, 0.1, 8, 20, 1, seed=0)
    growth.regress(X, y, [])  # the first fit loads parts of scikit-learn
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns if it meets the filters of another thread
        before = list(warnings.filters)
        with ThreadPoolExecutor(4) as threads:
            grown = list(threads.map(lambda _: growth.regress(X, y, [])[0].n_trees, range(40)))
        assert list(warnings.filters) == before
    assert grown == [3] * 40


def is_free(lock):
    """Returns whether another thread can take a lock."""

    def take():
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(take).result()


@pytest.mark.parametrize("early_stopping", [True, False])
def test_the_filters_of_warnings_are_free_once_all_rows_are_binned(early_stopping):
    free = []

    class Watched(BoostedRegressor):
        def _bin_data(self, *rows, **options):
            binned = super()._bin_data(*rows, **options)
            free.append(is_free(warning_filters))
            return binned

    X, y, _ = rows()
    Watched(max_iter=1, early_stopping=early_stopping, random_state=0).fit(X, y)
    assert free == ([False, True] if early_stopping else [True]), (
        "scikit-learn does not bin rows by _bin_data(..., is_training_data=...) any more: in "
        "halfseen.trees.growth._FittedInThreads, release the lock where the last rows are binned now; else "
        "threads wait for each other while trees grow, or change the filters of warnings at the same time"
    )
    assert is_free(warning_filters)
