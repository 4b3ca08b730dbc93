"""Means and covariances of all rows of a table in files, by moments of patterns of missing values."""

from typing import Any

from halfseen.data.blocks import add_in_tree, rows_in_block
from halfseen.gaussian.em import EMSettings, fit_from_moments
from halfseen.gaussian.moments import PatternMoments, moments_suffice
from halfseen.gaussian.tabular import TabularGaussian, with_room_for_noise

MOST_MOMENTS = 1 << 25
"""Cross-products of all patterns that are kept, of 8 bytes each; a guess, and the same on every machine."""


def refit_gaussian(imputer: Any, table: Any) -> bool:
    """Fits the mean and the covariance of a fitted imputer to all rows of a table, by moments of patterns.

    Parameters
    ----------
    imputer : GaussianImputer
        The imputer, fitted to some rows; its margins and its ridge are kept.
    table : Scan
        The table.

    Returns
    -------
    bool
        False, and nothing is changed, if there are too many patterns of missing values.
    """
    features = imputer.model_.features
    n_features = features.n_features
    named = table.select([str(name) for name in imputer.feature_names_in_])

    def add(one: PatternMoments, other: PatternMoments) -> PatternMoments:
        both = one.add(other)
        if not _are_few(table.n_rows, len(both.patterns), n_features):  # the sum can only have more
            raise _ManyPatterns
        return both

    parts = (
        PatternMoments.of(features.encode(imputer._read(block, reset=False).codes))
        for _, block in named.blocks(n_rows=rows_in_block(n_features))
    )
    try:
        moments = add_in_tree(parts, add)
    except _ManyPatterns:
        return False
    if moments is None or not _are_few(table.n_rows, len(moments.patterns), n_features):
        return False
    settings = EMSettings(imputer.max_iter, imputer.tol, imputer.ridge_)
    tell = None if imputer.callback is None else imputer._tell
    result = fit_from_moments(moments, settings, callback=tell)
    imputer.objective_ = list(result.objective)
    imputer.n_iter_ = len(imputer.objective_)
    joint = with_room_for_noise(result.gaussian, features)
    imputer.model_ = TabularGaussian(imputer.model_.columns, features, joint)
    return True


class _ManyPatterns(Exception):
    """Ends a pass over a table."""


def _are_few(n_rows: int, n_patterns: int, n_features: int) -> bool:
    return moments_suffice(n_rows, n_patterns, n_features) and n_patterns * n_features**2 <= MOST_MOMENTS
