"""The dependence between pairs of columns, for trees that join dependent columns."""

import numpy as np
import numpy.typing as npt

MAX_LEVELS = 8  # maximum number of levels after discretisation; further levels share the last
BLOCK = 1 << 22  # counts that are in memory at a time
MIN_PAIRS = 20  # with fewer rows in which both are observed, a pair is treated as independent


def normalised_information(codes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    r"""Returns the normalised mutual information (C, C) of columns, from rows in which both are observed.

    .. math:: A_{ij} = \frac{I(x_i; x_j)}{\sqrt{H(x_i) H(x_j)}}

    Columns with more than eight different values are cut at their octiles. The diagonal is zero.

    Parameters
    ----------
    codes : array of shape (N, C)
        Numbers, or positions among levels; NaN where missing.

    Examples
    --------
    >>> x = np.arange(200.0) % 4
    >>> normalised_information(np.column_stack([x, x, x // 2])).round(2)
    array([[0.  , 1.  , 0.71],
           [1.  , 0.  , 0.71],
           [0.71, 0.71, 0.  ]])
    """
    n_rows, n_columns = codes.shape
    indicators = np.concatenate([_indicators(column) for column in codes.T], axis=1)  # (N, C * levels)
    observed = (~np.isnan(codes)).astype(np.float32)
    products = np.arange(n_rows + 1.0)
    products[1:] *= np.log(products[1:])  # n log n, for every possible count n
    affinity = np.zeros((n_columns, n_columns))
    size = max(1, BLOCK // (MAX_LEVELS**2 * n_columns))
    for start in range(0, n_columns, size):
        block = slice(start, min(start + size, n_columns))
        levels = indicators[:, block.start * MAX_LEVELS : block.stop * MAX_LEVELS]
        total = observed[:, block].T @ observed  # (B, C)
        joint = (levels.T @ indicators).reshape(-1, MAX_LEVELS, n_columns, MAX_LEVELS)
        rows = (levels.T @ observed).reshape(-1, MAX_LEVELS, n_columns)
        columns = (observed[:, block].T @ indicators).reshape(-1, n_columns, MAX_LEVELS)
        whole = products[total.astype(np.int64)]
        own, other, both = (  # entropies, times the number of rows
            whole - products[part.astype(np.int64)].sum(axis=axis)
            for part, axis in ((rows, 1), (columns, 2), (joint, (1, 3)))
        )
        scale = np.sqrt(own * other)
        known = (scale > 0) & (total >= MIN_PAIRS)
        affinity[block] = np.where(known, (own + other - both) / np.where(known, scale, 1.0), 0.0)
    np.fill_diagonal(affinity, 0.0)
    return np.clip((affinity + affinity.T) / 2, 0.0, 1.0)  # symmetric to the last bit


def _indicators(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Returns 0/1 (N, levels): all zero where the column is missing."""
    observed = ~np.isnan(column)
    values = column[observed]
    result = np.zeros((len(column), MAX_LEVELS), dtype=np.float32)  # sums of few rows are exact in it
    if len(values):
        distinct = np.unique(values)
        if len(distinct) > MAX_LEVELS:
            cuts = np.unique(np.quantile(values, np.arange(1, MAX_LEVELS) / MAX_LEVELS))
        else:
            cuts = (distinct[1:] + distinct[:-1]) / 2
        result[np.flatnonzero(observed), np.searchsorted(cuts, values, side="right")] = 1.0
    return result
