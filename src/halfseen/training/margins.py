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

MOST_LOST = 0.02  # of the variance of values, that scores may leave unexplained though values explain it
SHRINKAGE = 0.05  # towards no correlation: what explains all but a twentieth is as good as everything
N_FOLDS, MOST_ROWS = 5, 5_000  # by which errors are compared
LEAST_VARIANCE = 1e-3  # of a score given others
PLACES = torch.linspace(-6.0, 6.0, 49, dtype=torch.float64)  # mean scores at which expected values are known
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
    know less than the values. Columns are candidates for keeping their values as they are if the others
    explain more of them, by linear regression, than a copula could with what they explain of the scores.
    They do keep them if held-out values of all columns are then predicted better.
    """
    plain, values = FeatureMap.fit_encoded(columns, codes, all_indicators=False)
    scored, scores = plain.choose_margins(columns, codes, values, choose_margin)
    if not scored.bent():
        return plain, values
    doubtful = _doubtful(columns, scored, _explained(values), _explained(scores))
    if not bool(doubtful.any()):
        return scored, scores
    margins = [None if doubt else margin for doubt, margin in zip(doubtful, scored.margins, strict=False)]
    scaler = Standardizer(
        torch.where(doubtful, plain.scaler.loc, scored.scaler.loc),
        torch.where(doubtful, plain.scaler.scale, scored.scaler.scale),
    )
    mixed = replace(scored, margins=tuple(margins) if any(margins) else (), scaler=scaler)
    batch = Incomplete(torch.where(doubtful, values.x, scores.x), scores.observed)
    if _held_out_error(mixed, batch, plain, values) < _held_out_error(scored, scores, plain, values):
        return mixed, batch
    return scored, scores


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


def _doubtful(columns: Sequence[Column], scored: FeatureMap, of_values: Tensor, of_scores: Tensor) -> Tensor:
    """Returns (D) which features had better be values, judged by the shares that others explain."""
    doubtful = torch.zeros(scored.n_features, dtype=torch.bool)
    least, of_scores_list = (of_values - MOST_LOST).tolist(), of_scores.tolist()
    for i, margin in scored.bent():
        if least[i] > 0 and not _needed(columns[scored.numeric[i]]):
            doubtful[i] = _explained_by_scores(margin, of_scores_list[i]) < least[i]
    return doubtful


def _held_out_error(features: FeatureMap, batch: Incomplete, plain: FeatureMap, values: Incomplete) -> float:
    """Returns the mean over columns of the squared error of held-out values, in units of their variance.

    Rows are taken at random; `values` are the same rows as `batch`, without margins.
    """
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(batch))[:MOST_ROWS])
    rows = rows[: len(rows) - len(rows) % N_FOLDS]
    if not len(rows):
        return 0.0
    batch, values = batch[rows], values[rows]
    predicted = _predict_others(batch)
    loc, scale = features.scaler.loc, features.scaler.scale
    for i, margin in features.bent():
        off = torch.where(batch.observed[:, i], batch.x[:, i] - predicted[:, i], 0.0)
        share = off.square().sum() / batch.observed[:, i].sum().clamp(min=1)
        std = (share * scale[i] ** 2 - margin.noise).clamp(min=LEAST_VARIANCE).sqrt()
        expected = (margin.mean(PLACES, std.expand(len(PLACES))) - plain.scaler.loc[i]) / plain.scaler.scale[
            i
        ]
        places = (predicted[:, i] * scale[i] + loc[i]).numpy()
        predicted[:, i] = torch.from_numpy(np.interp(places, PLACES.numpy(), expected.numpy()))
    wrong = torch.where(values.observed, values.x - predicted, 0.0)[:, : len(features.numeric)]
    counts = values.observed[:, : len(features.numeric)].sum(dim=0).clamp(min=1)
    return float((wrong.square().sum(dim=0) / counts).mean())


def _predict_others(batch: Incomplete) -> Tensor:
    r"""Returns (N, D) the linear prediction of each cell from the others of its row, learned on other folds.

    Missing cells are 0. If cells are missing completely at random, and a feature is observed with probability
    p, then with zeros its covariances are p times those of the feature; so with the precision P of features
    with zeros the best prediction from the others is :math:`-\sum_{j \ne i} P_{ij} z_j / (p_i P_{ii})`.
    """
    n_features = batch.n_features
    z = batch.filled().view(N_FOLDS, -1, n_features)
    scatter = z.mT @ z
    ridge = DEFAULT_RIDGE + SHRINKAGE * len(batch)
    others = scatter.sum(dim=0) - scatter + ridge * torch.eye(n_features, dtype=z.dtype)
    precision: Tensor = torch.linalg.inv(others)  # (F, D, D)
    seen = batch.observed.to(z.dtype).mean(dim=0).clamp(min=1 / len(batch))
    diagonal = precision.diagonal(dim1=1, dim2=2)
    weights = -precision / (diagonal * seen)[:, None, :]
    weights.diagonal(dim1=1, dim2=2).zero_()
    predicted: Tensor = z @ weights
    return predicted.view(-1, n_features)


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
