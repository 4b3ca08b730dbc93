"""Tables for tests of the automatic choice."""

import numpy as np


def correlated(n_rows, seed=0):
    """Returns three columns that depend on each other, with a fifth of the values missing."""
    X = np.random.default_rng(seed).multivariate_normal(np.zeros(3), 0.2 + 0.8 * np.ones((3, 3)), size=n_rows)
    X[np.random.default_rng(seed + 1).random(X.shape) < 0.2] = np.nan
    return X
