r"""Features of a table, with a margin for each numeric column for which it improves prediction."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from math import factorial, sqrt

import numpy as np
import torch
from torch import Tensor

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.margin_choice import choose_margins
from halfseen.data.margin_fits import refit_margin
from halfseen.data.margins import NODES, WEIGHTS
from halfseen.data.schema import Column
from halfseen.gaussian.em import DEFAULT_RIDGE, pairwise_gaussian

MOST_WORSE = 1.25  # ratio of held-out errors of scores and values from which scores are doubtful
MOST_LOST = 0.02  # maximum share of variance that values explain and scores do not
SHRINKAGE = 0.05  # towards no correlation, so that no feature is explained completely
N_FOLDS, MOST_ROWS = 5, 5_000  # number of folds and maximum number of rows with which errors are compared
MANY_FEATURES, FEWER_ROWS = 1_000, 1_000  # from this number of features on, this number of rows is used
LEAST_VARIANCE = 0.01  # minimum conditional variance of a score given others
CURVES_AT_ONCE = 64  # number of curves that are smoothed at once
GRID = torch.linspace(-6.0, 6.0, 121, dtype=torch.float64)  # scores at which values are tabulated
SPACING = float(GRID[1] - GRID[0])
DEGREES = torch.arange(1, 13)  # degrees of the polynomials that express values as functions of scores
SHARES = WEIGHTS / WEIGHTS.sum()
POLYNOMIALS = SHARES * torch.from_numpy(
    np.stack(
        [
            np.polynomial.hermite_e.hermeval(NODES.numpy(), [0] * degree + [1]) / sqrt(factorial(degree))
            for degree in DEGREES.tolist()
        ]
    )
)  # (degree, node), of length 1 under a standard normal


def fit_features(columns: Sequence[Column], codes: Incomplete) -> tuple[FeatureMap, Incomplete]:
    """Returns the features of a Gaussian copula, with a margin chosen for each column, and the encoded codes.

    If values depend linearly on those of other columns, including outliers, as the parts of a sum do, scores
    are less informative than the values. A column is a candidate for remaining untransformed if the other
    columns explain more of its variance, by linear regression, than a copula could, given how much they
    explain of its scores; or if its held-out values are predicted much worse from scores, for example if
    zeros of several columns occur together. The candidates remain untransformed if held-out values of all
    columns are then predicted better. With many features, only held-out values are used.
    """
    plain, values = FeatureMap.fit_encoded(columns, codes, all_indicators=False)
    most_rows = MOST_ROWS if plain.n_features <= MANY_FEATURES else FEWER_ROWS
    rows = torch.from_numpy(np.random.default_rng(0).permutation(len(codes))[:most_rows])
    some_values = values[rows]  # a copy: the others are overwritten by scores
    numeric = (columns[c] for c in plain.numeric)
    chosen = [choose_margins([*islice(numeric, len(some))], some) for some in plain.observed_numbers(codes)]
    scored, scores = plain.with_chosen([*chain.from_iterable(chosen)], codes, values)
    if not scored.transformed():
        return plain, values
    some_scores = scores[rows]
    curves = torch.stack([margin.inverse(torch.cat([GRID, NODES])) for _, margin in scored.transformed()])
    standard = _standardised(curves[:, : len(GRID)], plain, scored)
    with_all = _held_out_errors(scored, some_scores, some_values, standard)
    with_none = _held_out_errors(plain, some_values, some_values, standard[:0])
    if plain.n_features <= MANY_FEATURES:
        shares = _explained(some_values), _explained(some_scores)
        doubtful = _doubtful(columns, scored, curves[:, len(GRID) :], *shares)
    else:
        doubtful = torch.zeros(plain.n_features, dtype=torch.bool)
    doubtful[: len(with_all)] |= _free(columns, scored) & (with_all > MOST_WORSE * with_none)
    if not bool(doubtful.any()):
        return scored, scores
    margins = [None if doubt else margin for doubt, margin in zip(doubtful, scored.margins, strict=False)]
    scaler = Standardizer(
        torch.where(doubtful, plain.scaler.loc, scored.scaler.loc),
        torch.where(doubtful, plain.scaler.scale, scored.scaler.scale),
    )
    mixed = replace(scored, margins=tuple(margins) if any(margins) else (), scaler=scaler)
    some_mixed = Incomplete(torch.where(doubtful, some_values.x, some_scores.x), some_scores.observed)
    kept = ~doubtful[[i for i, _ in scored.transformed()]]
    if _held_out_errors(mixed, some_mixed, some_values, standard[kept]).mean() < with_all.mean():
        scores.x[:, doubtful] = plain.encode(codes).x[:, doubtful]
        return mixed, scores
    return scored, scores


def redraw_margins(
    features: FeatureMap, columns: Sequence[Column], codes: Incomplete, generator: torch.Generator
) -> FeatureMap:
    """Returns the features with margins of the same kind, fitted to rows with Bayesian bootstrap weights.

    The variation between several results is that of estimated margins. Their location and scale matter
    little, because the parameters of a Gaussian compensate for them.

    References
    ----------
    Rubin (1981), The Bayesian bootstrap.
    """
    if not features.transformed():
        return features
    weights = torch.empty(len(codes), dtype=torch.float64).exponential_(generator=generator)
    margins = list(features.margins)
    for i, margin in features.transformed():
        column = features.numeric[i]
        observed = codes.observed[:, column]
        margins[i] = refit_margin(
            columns[column], margin, codes.x[observed, column].numpy(), weights[observed].numpy()
        )
    return replace(features, margins=tuple(margins))


def _free(columns: Sequence[Column], scored: FeatureMap) -> Tensor:
    """Returns (numbers) which features have a margin that is not needed for firm bounds or limits."""
    free = torch.zeros(len(scored.numeric), dtype=torch.bool)
    for i, _ in scored.transformed():
        column = columns[scored.numeric[i]]
        free[i] = not (column.firm or column.censored_below is not None or column.censored_above is not None)
    return free


def _doubtful(
    columns: Sequence[Column], scored: FeatureMap, curves: Tensor, of_values: Tensor, of_scores: Tensor
) -> Tensor:
    """Returns (D) which features should remain untransformed, judged by the variance that others explain.

    Shapes
    ------
    curves : (B, K), values of the features with margins at the nodes of quadrature.
    of_values, of_scores : (D), the shares of their variance that others explain.
    """
    doubtful = torch.zeros(scored.n_features, dtype=torch.bool)
    transformed = [i for i, _ in scored.transformed()]
    reliability = torch.tensor(
        [margin.reliability for _, margin in scored.transformed()], dtype=torch.float64
    )
    share = (of_scores[transformed] / reliability).clamp(max=1.0)
    by_scores = _explained_by_scores(curves, share)
    worse = (by_scores < of_values[transformed] - MOST_LOST) & (of_values[transformed] > MOST_LOST)
    doubtful[transformed] = worse & _free(columns, scored)[transformed]
    return doubtful


def _standardised(curves: Tensor, plain: FeatureMap, scored: FeatureMap) -> Tensor:
    """Returns the values (B, G) of features with margins on the scale that they have without."""
    transformed = [i for i, _ in scored.transformed()]
    return (curves - plain.scaler.loc[transformed, None]) / plain.scaler.scale[transformed, None]


def _held_out_errors(features: FeatureMap, batch: Incomplete, values: Incomplete, curves: Tensor) -> Tensor:
    """Returns the mean squared error of the held-out values of each column, in units of their variance.

    Shapes
    ------
    values : (N, D), the rows of `batch` without margins.
    curves : (B, G), standardised values of the features with margins, on the grid of scores.
    """
    n_rows = len(batch) - len(batch) % N_FOLDS
    if not n_rows:
        return torch.zeros(len(features.numeric), dtype=torch.float64)
    batch, values = batch[:n_rows], values[:n_rows]
    counts = values.observed.sum(dim=0).clamp(min=1)
    predicted = _predict_others(batch)
    transformed = [i for i, _ in features.transformed()]
    if transformed:
        off = torch.where(batch.observed, batch.x - predicted, 0.0).square().sum(dim=0) / counts
        variance = ((off - features.noise()) * features.scaler.scale.square()).clamp(min=LEAST_VARIANCE)
        places = (
            predicted[:, transformed] * features.scaler.scale[transformed] + features.scaler.loc[transformed]
        )
        predicted[:, transformed] = _on_curve(_smoothed(curves, variance[transformed].sqrt()), places)
    wrong = torch.where(values.observed, values.x - predicted, 0.0).square().sum(dim=0) / counts
    return wrong[: len(features.numeric)]


def _smoothed(curves: Tensor, std: Tensor) -> Tensor:
    """Returns expected values (B, G) where scores are normal about the points of the grid."""
    expected = torch.empty_like(curves)
    for some in torch.arange(len(curves)).split(CURVES_AT_ONCE):
        apart = (GRID[:, None] - GRID) / std[some, None, None]
        weights = torch.softmax(-0.5 * apart.square(), dim=-1)  # (B, G, G)
        expected[some] = (weights @ curves[some].unsqueeze(-1)).squeeze(-1)
    return expected


def _on_curve(curves: Tensor, places: Tensor) -> Tensor:
    """Returns values (N, B) at scores, on lines between the points (B, G) of a grid."""
    steps = ((places - GRID[0]) / SPACING).clamp(0.0, len(GRID) - 1.001)
    before = steps.long()
    low, high = (curves.T.gather(0, before + side) for side in (0, 1))
    return low + (steps - before) * (high - low)


def _predict_others(batch: Incomplete) -> Tensor:
    r"""Returns (N, D) the linear prediction of each cell from the others of its row, learned on other folds.

    Missing cells are 0. If cells are missing completely at random, and a feature is observed with probability
    p, then with zeros its covariances are p times those of the feature; so with the precision P of features
    with zeros the best prediction from the others is :math:`-\sum_{j \ne i} P_{ij} z_j / (p_i P_{ii})`.
    """
    z = batch.filled().view(N_FOLDS, -1, batch.n_features)
    ridge = DEFAULT_RIDGE + SHRINKAGE * len(batch)
    is_wide = batch.n_features > len(batch) * (N_FOLDS - 1) / N_FOLDS
    products, diagonal = (_wide_products if is_wide else _products)(z, ridge)
    seen = batch.observed.to(z.dtype).mean(dim=0).clamp(min=1 / len(batch))
    return ((z - products / diagonal[:, None, :]) / seen).view(-1, batch.n_features)


def _products(z: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Returns each fold (F, N, D) times the precision of the others, and the diagonals (F, D) of these."""
    n_folds, _, n_features = z.shape
    total = z.flatten(0, 1).T @ z.flatten(0, 1) + ridge * torch.eye(n_features, dtype=z.dtype)
    products, diagonal = torch.empty_like(z), z.new_empty(n_folds, n_features)
    for folds in torch.arange(n_folds).split(n_folds if n_features <= MANY_FEATURES else 1):
        precision: Tensor = torch.linalg.inv(total - z[folds].mT @ z[folds])
        products[folds], diagonal[folds] = z[folds] @ precision, precision.diagonal(dim1=1, dim2=2)
    return products, diagonal


def _wide_products(z: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Returns what `_products` does, by matrices of rows, of which there are fewer than features."""
    products, diagonal = torch.empty_like(z), z.new_empty(len(z), z.shape[2])
    for fold in range(len(z)):
        others = torch.cat([z[:fold], z[fold + 1 :]]).flatten(0, 1)  # (M, D)
        inner = others @ others.T + ridge * torch.eye(len(others), dtype=z.dtype)
        root = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), others, upper=False)
        products[fold] = (z[fold] - (z[fold] @ root.T) @ root) / ridge
        diagonal[fold] = (1 - root.square().sum(dim=0)) / ridge
    return products, diagonal


def _explained(batch: Incomplete) -> Tensor:
    """Returns (D) the share of the variance of each feature that the others explain, by pairwise moments."""
    gaussian = pairwise_gaussian(batch, DEFAULT_RIDGE + SHRINKAGE * len(batch))
    return 1 - 1 / (gaussian.precision.diagonal() * gaussian.covariance.diagonal())


def _explained_by_scores(curves: Tensor, share: Tensor) -> Tensor:
    """Returns the explained share (B) of the variance of values, given that of the scores."""
    values = curves - (curves @ SHARES)[:, None]
    total = values.square() @ SHARES
    explained = ((values @ POLYNOMIALS.T).square() * share[:, None] ** DEGREES).sum(dim=1)
    return torch.where(total > 0, explained / total, 0.0)
