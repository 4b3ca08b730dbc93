"""Means and covariances of all rows of a table in files, in one pass."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from halfseen.base.table import EncodedRows
from halfseen.data.incomplete import Incomplete, Passes, Standardizer, add_in_tree
from halfseen.gaussian.em import EMSettings, fit_from_moments
from halfseen.gaussian.moments import PatternMoments, moments_suffice
from halfseen.gaussian.tabular import TabularGaussian, with_room_for_noise

MOST_MOMENTS = 1 << 25
"""Cross-products of all patterns that are kept, of 8 bytes each; a guess, and the same on every machine."""


def refit_gaussian(imputer: Any, table: Any, passes: Passes) -> bool:
    """Fits the mean and the covariance of a fitted imputer to all rows of a table, by moments of patterns.

    Parameters
    ----------
    imputer : GaussianImputer
        The imputer, fitted to some rows; its margins and its ridge are kept.
    table : Scan
        The table.
    passes : Passes
        What goes over its rows.

    Returns
    -------
    bool
        False, and nothing is changed, if there are too many patterns of missing values.
    """
    features = imputer.model_.features
    job = _PatternJob(EncodedRows.of(imputer, table, features))
    try:
        moments = add_in_tree(passes(moments_of_run, job, job.rows.runs), job.add)
    except ManyPatternsError:
        return False
    if moments is None or not job.are_few(moments):
        return False
    settings = EMSettings(imputer.max_iter, imputer.tol, imputer.ridge_)
    tell = None if imputer.callback is None else imputer._tell
    result = fit_from_moments(moments, settings, callback=tell)
    imputer.objective_ = list(result.objective)
    imputer.n_iter_ = len(imputer.objective_)
    joint = with_room_for_noise(result.gaussian, features)
    imputer.model_ = TabularGaussian(imputer.model_.columns, features, joint)
    return True


class ManyPatternsError(Exception):
    """Ends a pass over a table."""


@dataclass(frozen=True)
class _PatternJob:
    """The moments of patterns of a table."""

    rows: EncodedRows

    def add(self, one: PatternMoments, other: PatternMoments) -> PatternMoments:
        """Returns the sum; raises an error if it has too many patterns, as the whole can only have more."""
        both = one.add(other)
        if not self.are_few(both):
            raise ManyPatternsError
        return both

    def are_few(self, moments: PatternMoments) -> bool:
        """Returns whether there are so few patterns that their moments are kept."""
        n_patterns, n_features = moments.patterns.shape
        few = moments_suffice(self.rows.table.n_rows, n_patterns, n_features)
        return few and n_patterns * n_features**2 <= MOST_MOMENTS


def moments_of_run(job: _PatternJob, start: int, stop: int) -> PatternMoments | None:
    """Returns the moments of a run of rows."""
    return add_in_tree(map(PatternMoments.of, job.rows.blocks(start, stop)), job.add)


def refit_means(imputer: Any, table: Any, passes: Passes) -> None:
    """Fits the means and standard deviations of a fitted imputer to all rows of a table.

    Parameters
    ----------
    imputer : MeanImputer
        The imputer, fitted to some rows; its groups of levels are kept.
    table, passes : object
        As of `refit_gaussian`.
    """
    model = imputer.model_
    rows = EncodedRows.of(imputer, table, model.features)
    found = add_in_tree(passes(sums_of_run, rows, rows.runs), torch.add)
    if found is None:
        return
    counts, sums, squares = found
    old = model.features.scaler
    mean = sums / counts.clamp(min=1)
    spread = (squares / counts.clamp(min=1) - mean.square()).clamp(min=0.0).sqrt()
    scale = torch.where(spread > 0, old.scale * spread, old.scale)
    features = replace(model.features, scaler=Standardizer(old.loc + old.scale * mean, scale))
    imputer.model_ = TabularGaussian(model.columns, features, model.gaussian)


def sums_of_run(rows: EncodedRows, start: int, stop: int) -> Tensor | None:
    """Returns the numbers, sums and sums of squares (3, D) of the observed features of a run of rows.

    Features are standardised by the rows to which the estimator was fitted, so squares lose little.
    """

    def sums_of(batch: Incomplete) -> Tensor:
        x = batch.filled()
        return torch.stack([batch.observed.to(x.dtype).sum(dim=0), x.sum(dim=0), x.square().sum(dim=0)])

    return add_in_tree(map(sums_of, rows.blocks(start, stop)), torch.add)
