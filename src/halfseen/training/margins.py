r"""Features of a table with a margin for each column of numbers, as far as margins help to predict it."""

from collections.abc import Sequence
from dataclasses import replace
from math import factorial, sqrt

import numpy as np
import torch
from torch import Tensor

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import choose_margin
from halfseen.data.margin_fits import refit_margin
from halfseen.data.margins import NODES, WEIGHTS, Margin
from halfseen.data.scaling import Standardizer
from halfseen.data.schema import Column
from halfseen.training.em import DEFAULT_RIDGE, pairwise_gaussian

MOST_LOST = 0.07  # of the variance of values, that scores may leave unexplained though values explain it
SHRINKAGE = 0.05  # towards no correlation: what explains all but a twentieth is as good as everything
DEGREES = np.arange(1, 13)  # of the polynomials that describe how values depend on scores
SHARES = (WEIGHTS / WEIGHTS.sum()).numpy()
POLYNOMIALS = SHARES * np.stack(
    [
        np.polynomial.hermite_e.hermeval(NODES.numpy(), [0] * degree + [1]) / sqrt(factorial(degree))
        for degree in DEGREES
    ]
)  # (degree, node), of length 1 under a standard normal


def fit_features(columns: Sequence[Column], codes: Incomplete) -> tuple[FeatureMap, Incomplete]:
    """Returns the features of a Gaussian copula, margins chosen column by column, and the encoded codes.

    Where values depend on those of other columns linearly, outliers together, as parts of a sum do, scores
    know less than the values. So a column keeps its values as they are if the others explain much more of
    them, by linear regression, than a copula could with what they explain of the scores.
    """
    plain, values = FeatureMap.fit_encoded(columns, codes, all_indicators=False)
    scored, scores = plain.choose_margins(columns, codes, values, choose_margin)
    if not scored.bent():
        return plain, values
    of_values, of_scores = _explained(values), _explained(scores)
    margins, harmful = list(scored.margins), torch.zeros(plain.n_features, dtype=torch.bool)
    least = (of_values - MOST_LOST).tolist()
    for i, margin in scored.bent():
        if least[i] <= 0 or _needed(columns[scored.numeric[i]]):
            continue
        if _explained_by_scores(margin, float(of_scores[i])) < least[i]:
            margins[i], harmful[i] = None, True
    scaler = Standardizer(
        torch.where(harmful, plain.scaler.loc, scored.scaler.loc),
        torch.where(harmful, plain.scaler.scale, scored.scaler.scale),
    )
    features = replace(scored, margins=tuple(margins) if any(margins) else (), scaler=scaler)
    return features, Incomplete(torch.where(harmful, values.x, scores.x), scores.observed)


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
        observed = codes.observed[:, column]
        margins[i] = refit_margin(
            columns[column], margin, codes.x[observed, column].numpy(), weights[observed].numpy()
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
    values = margin.inverse(NODES).numpy()
    values = values - SHARES @ values
    total = SHARES @ values**2
    explained = (POLYNOMIALS @ values) ** 2 @ share**DEGREES
    return float(explained / total) if total > 0 else 0.0
