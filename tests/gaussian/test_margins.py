"""Whether columns keep their values or have scores: judged by predictions of held-out values."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conformance.peaks import peak_of

from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.gaussian.em import DEFAULT_RIDGE
from halfseen.gaussian.tabular import N_FOLDS, SHRINKAGE, _predict_others, fit_features


def numbers(n_columns: int) -> list[Column]:
    return [Column(str(c), "continuous", "float64", "number") for c in range(n_columns)]


@pytest.mark.parametrize("n_columns", [4, 31, 45])  # fewer than the rows of other folds, and more
def test_cells_of_complete_rows_are_predicted_by_ridge_regression_on_the_other_folds(n_columns):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, n_columns)) @ rng.normal(size=(n_columns, n_columns))
    x -= x.mean(axis=0)
    predicted = _predict_others(Incomplete.from_array(x)).numpy()
    ridge = DEFAULT_RIDGE + SHRINKAGE * 40
    for rows in np.arange(40).reshape(N_FOLDS, -1):
        train = np.delete(x, rows, axis=0)
        for c in range(n_columns):
            rest = np.delete(train, c, axis=1)
            weights = np.linalg.solve(rest.T @ rest + ridge * np.eye(n_columns - 1), rest.T @ train[:, c])
            np.testing.assert_allclose(predicted[rows, c], np.delete(x[rows], c, axis=1) @ weights)


def test_predictions_make_up_for_cells_that_are_missing_completely_at_random():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200_000, 1)) + 0.5 * rng.normal(size=(200_000, 3))
    observed = rng.random(x.shape) < [0.5, 0.8, 1.0]
    predicted = _predict_others(Incomplete(torch.from_numpy(x), torch.from_numpy(observed))).numpy()
    for c in range(3):
        filled = np.delete(np.where(observed, x, 0.0), c, axis=1)
        seen = observed[:, c]
        weights = np.linalg.lstsq(filled[seen], x[seen, c], rcond=None)[0]
        best, found = (np.mean((x[seen, c] - p) ** 2) for p in (filled[seen] @ weights, predicted[seen, c]))
        assert best <= found < 1.01 * best  # the rest is the shrinkage


def test_parts_of_a_sum_keep_their_values_and_columns_of_a_copula_have_scores():
    rng = np.random.default_rng(0)
    parts = rng.lognormal(sigma=1.2, size=(1_000, 3))
    sums = np.c_[parts, parts.sum(axis=1)]
    scores = rng.multivariate_normal(np.zeros(4), 0.6 + 0.4 * np.eye(4), size=1_000)
    for table, with_margin in ((sums, 0), (np.exp(scores), 4)):
        observed = rng.random(table.shape) < 0.7
        codes = Incomplete(torch.from_numpy(table), torch.from_numpy(observed))
        features, batch = fit_features(numbers(4), codes)
        assert len(features.transformed()) == with_margin
        encoded = features.encode(codes)
        torch.testing.assert_close(encoded.filled(), batch.filled())


def test_columns_whose_zeros_occur_together_keep_their_values():
    """With scores, who was contacted long ago would have been contacted often: zeros make the correlation."""
    rng = np.random.default_rng(0)
    contacted = rng.random(1_000) < 0.2
    days = np.where(contacted, rng.integers(1, 400, size=1_000), -1)
    times = np.where(contacted, rng.geometric(0.4, size=1_000), 0)
    codes = Incomplete.from_array(np.c_[days, times, rng.normal(size=1_000)].astype(float))
    columns = [replace(column, integer=True, step=1.0) for column in numbers(2)] + numbers(3)[2:]
    features, _ = fit_features(columns, codes)
    assert 1 not in dict(features.transformed())  # the times


@pytest.mark.slow
def test_the_margins_of_a_wide_table_need_little_memory():
    rng = np.random.default_rng(0)
    table = rng.lognormal(size=(80, 1_500))
    table[rng.random(table.shape) < 0.1] = np.nan
    codes = Incomplete.from_array(table)
    fit_features(numbers(50), Incomplete.from_array(table[:, :50]))  # libraries allocate their buffers
    (features, _), peak = peak_of(lambda: fit_features(numbers(1_500), codes))
    assert features.transformed()
    assert peak < 256 * 2**20  # about 80 MiB; by matrices of all pairs of columns, one for each fold, 670
