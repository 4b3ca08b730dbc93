r"""Features of a table with a margin for each column of numbers, as far as margins help to predict it."""

from collections.abc import Sequence
from dataclasses import replace
from math import factorial, sqrt

import numpy as np
import torch
from torch import Tensor

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import choose_margin, refit_margin
from halfseen.data.margins import NODES, WEIGHTS, Margin
from halfseen.data.schema import Column
from halfseen.training.em import DEFAULT_RIDGE, pairwise_gaussian

MOST_LOST = 0.07  # of the variance of values, that scores may leave unexplained though values explain it
SHRINKAGE = 0.05  # towards no correlation: what explains all but a twentieth is as good as everything
DEGREE = 12  # of the polynomials that describe how values depend on scores


def fit_features(columns: Sequence[Column], codes: Incomplete) -> FeatureMap:
    """Returns the features of a Gaussian copula: margins are chosen column by column.

    Where values depend on those of other columns linearly, outliers together, as parts of a sum do, scores
    know less than the values. So a column keeps its values as they are if the others explain much more of
    them, by linear regression, than a copula could with what they explain of the scores.
    """
    plain = FeatureMap.fit(columns, codes, all_indicators=False)
    scored = FeatureMap.fit(columns, codes, all_indicators=False, choose=choose_margin)
    if not scored.bent():
        return plain
    of_values, of_scores = (_explained(features.encode(codes)) for features in (plain, scored))
    harmful = {
        scored.numeric[i]
        for i, margin in scored.bent()
        if not _needed(columns[scored.numeric[i]])
        and _explained_by_scores(margin, float(of_scores[i])) < float(of_values[i]) - MOST_LOST
    }
    if not harmful:
        return scored
    kept = {scored.numeric[i]: margin for i, margin in scored.bent() if scored.numeric[i] not in harmful}
    return FeatureMap.fit(columns, codes, all_indicators=False, margins=kept)


def redraw_margins(
    features: FeatureMap, columns: Sequence[Column], codes: Incomplete, generator: torch.Generator
) -> FeatureMap:
    """Returns the features with margins of the same kind, drawn by the Bayesian bootstrap: rows have weights.

    So the spread among several of them is that of estimated margins; their place and scale matter little, as
    the parameters of a Gaussian make up for them.

    References
    ----------
    Rubin (1981), The Bayesian bootstrap.
    """
    if not features.bent():
        return features
    weights = torch.empty(len(codes), dtype=torch.float64).exponential_(generator=generator)
    margins = list(features.margins)
    for i, margin in features.bent():
        column = features.numeric[i]
        seen = codes.observed[:, column]
        margins[i] = refit_margin(
            columns[column], margin, codes.x[seen, column].numpy(), weights[seen].numpy()
        )
    return replace(features, margins=tuple(margins))


def _needed(column: Column) -> bool:
    """Whether only a margin keeps to the bounds or knows the limits of a column."""
    return column.firm or column.censored_below is not None or column.censored_above is not None


def _explained(batch: Incomplete) -> Tensor:
    """Returns (D) the share of the variance of each feature that the others explain, by pairwise moments."""
    gaussian = pairwise_gaussian(batch, DEFAULT_RIDGE + SHRINKAGE * len(batch))
    return 1 - 1 / (gaussian.precision.diagonal() * gaussian.covariance.diagonal())


def _explained_by_scores(margin: Margin, share: float) -> float:
    """Returns the share of the variance of values that is explained if this share of the features' is."""
    share = min(share / margin.reliability, 1.0)
    weights = (WEIGHTS / WEIGHTS.sum()).numpy()
    values = margin.inverse(NODES).numpy()
    values = values - weights @ values
    total, explained = weights @ values**2, 0.0
    for degree in range(1, DEGREE + 1):
        polynomial = np.polynomial.hermite_e.hermeval(NODES.numpy(), [0] * degree + [1])
        coefficient = weights @ (values * polynomial) / sqrt(factorial(degree))
        explained += coefficient**2 * share**degree
    return float(explained / total) if total > 0 else 0.0
