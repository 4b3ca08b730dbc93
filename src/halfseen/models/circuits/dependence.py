"""The dependence between pairs of columns, for trees that join dependent columns."""

import numpy as np
import numpy.typing as npt

MAX_LEVELS = 8  # maximum number of levels after discretisation; further levels share the last
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
    n_columns = codes.shape[1]
    indicators = np.concatenate([_indicators(column) for column in codes.T], axis=1)  # (N, C * levels)
    counts = (indicators.T @ indicators).reshape(n_columns, MAX_LEVELS, n_columns, MAX_LEVELS)
    counts = counts.transpose(0, 2, 1, 3)  # (C, C, levels, levels)
    total = counts.sum(axis=(2, 3), keepdims=True)
    joint = counts / np.maximum(total, 1.0)
    rows, columns = joint.sum(axis=3), joint.sum(axis=2)
    information = _entropy(rows) + _entropy(columns) - _entropy(joint.reshape(n_columns, n_columns, -1))
    scale = np.sqrt(_entropy(rows) * _entropy(columns))
    known = (scale > 0) & (total[..., 0, 0] >= MIN_PAIRS)
    affinity = np.where(known, information / np.where(known, scale, 1.0), 0.0)
    np.fill_diagonal(affinity, 0.0)
    return np.clip((affinity + affinity.T) / 2, 0.0, 1.0)  # symmetric to the last bit


def _indicators(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns 0/1 (N, levels): all zero where the column is missing."""
    observed = ~np.isnan(column)
    values = column[observed]
    result = np.zeros((len(column), MAX_LEVELS))
    if len(values):
        distinct = np.unique(values)
        if len(distinct) > MAX_LEVELS:
            cuts = np.unique(np.quantile(values, np.arange(1, MAX_LEVELS) / MAX_LEVELS))
        else:
            cuts = (distinct[1:] + distinct[:-1]) / 2
        result[np.flatnonzero(observed), np.searchsorted(cuts, values, side="right")] = 1.0
    return result


def _entropy(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    safe = np.where(probabilities > 0, probabilities, 1.0)
    entropy: npt.NDArray[np.float64] = -(probabilities * np.log(safe)).sum(axis=-1)
    return entropy
