r"""A Gaussian over the columns of a mixed table: numbers, ordered levels and categories together.

Numbers enter as scores under their margins, so that the model is a Gaussian copula, or unchanged if they
have no margin. Categories enter as indicators. Given the observed cells of a row, the expected indicators of
a missing category are its class probabilities (the linear probability model, clipped and normalised). Joint
draws follow the chain rule: categories are drawn one after the other from their class probabilities, and
each is then treated as observed; finally, all missing numbers are drawn together from their exact
conditional distribution.

A numeric column has a margin only if it improves prediction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from math import factorial, log, pi, sqrt

import numpy as np
import torch
from torch import Tensor
from torch.special import ndtr, ndtri

from halfseen._random import Keys, row_normals, row_uniforms
from halfseen.base.completion import (
    LevelProbabilities,
    central,
    decode_mean,
    level_probabilities,
    log_level,
)
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.margin_choice import choose_margins
from halfseen.data.margin_fits import refit_margin
from halfseen.data.margins import NODES, WEIGHTS, log_mass
from halfseen.data.schema import Column
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import DEFAULT_RIDGE, pairwise_gaussian
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.self_masked import JointGaussian, joint_from_state, joint_state

NOISE_STREAM = 1 << 20  # separate stream of noise for features that represent intervals
SPREAD_STREAM = NOISE_STREAM + 1  # separate stream of noise that raises the variance of scores to its minimum
CATEGORY_STREAM = 1  # separate streams of noise for categories and for numbers
LOW_RELIABILITY, DAMPING = 0.5, 0.8
LEAST_OF_NOISE = 0.2  # minimum variance of a score relative to its noise, since intervals are not Gaussian
LEAST_VARIANCE = 1e-3  # minimum variance, given all other features, of scores that are observed with noise
LEAST_SHARE = 1e-3  # minimum share of a low-rank diagonal that is left when interval noise is subtracted


@dataclass(frozen=True)
class TabularGaussian:
    r"""A model over the codes of a table, with a Gaussian distribution of their features.

    Valid under MAR or, with a `SelfMaskedGaussian`, if numeric values are missing according to its mask
    model. In the latter case, distributions are conditional on the observed cells and the mask.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D).
    gaussian : Gaussian or SelfMaskedGaussian
        The fitted parameters.
    posterior : sequence of TabularGaussian
        Draws of margins and parameters; if there are any, draws and intervals include their uncertainty.

    Notes
    -----
    An observed feature that represents an interval of scores equals the score plus noise of a known variance
    (see `halfseen.data.margins`). Conditional means are therefore unchanged, and conditional variances of
    missing scores are those of features minus the noise variance.
    """

    columns: Sequence[Column]
    features: FeatureMap
    gaussian: JointGaussian
    posterior: Sequence["TabularGaussian"] = ()

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        batch = self.features.encode(codes)
        if not self.features.ordinal and not self.features.transformed():
            return decode_mean(self.features, codes, self.gaussian.conditional_mean(batch))
        mean, variance = self.scores(batch)
        numbers = self.features.mean_numbers(mean, variance, ~codes.observed)
        completed = decode_mean(self.features, codes, mean, numbers)
        for c in self.features.ordinal:
            level = self.ordinal_probabilities(mean, variance, c).argmax(dim=1).to(completed.dtype)
            completed[:, c] = torch.where(codes.observed[:, c], codes.x[:, c], level)
        return completed

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly; draw s uses the s-th posterior parameters."""
        if not self.posterior:
            return self.draws_of(codes, keys, range(n_draws))
        n_parameters = len(self.posterior)
        drawn = codes.x.new_empty(n_draws, *codes.x.shape)
        for k, parameters in enumerate(self.posterior[:n_draws]):
            drawn[k::n_parameters] = parameters.draws_of(codes, keys, range(k, n_draws, n_parameters))
        return drawn

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns conditional quantiles (Q, N, C) of numbers; most probable levels for categories."""
        mean, variance = self._moments(self.features.encode(codes))
        result = self.point(codes).expand(len(probabilities), -1, -1).clone()
        result[..., list(self.features.numeric)] = self._spread(mean, variance, probabilities)
        return torch.where(codes.observed, codes.x, result)

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of central intervals of numbers; most probable levels for categories.

        Where single values have positive probabilities, the ends are chosen so that the probability of the
        interval is as close as possible to `level`, and so that it contains the value of `point`.
        """
        mean, variance = self._moments(self.features.encode(codes))
        point = self.point(codes)
        result = point.expand(2, -1, -1).clone()
        result[..., list(self.features.numeric)] = self._spread(mean, variance, central(level))
        loc, scale = self.features.scaler.loc, self.features.scaler.scale
        for i, margin in self.features.transformed():
            if margin.by_interval:
                c = self.features.numeric[i]
                centre, spread = mean[:, i] * scale[i] + loc[i], variance[:, i].sqrt() * scale[i]
                low, high = margin.ends(centre, spread, level)
                result[0, :, c] = torch.minimum(low, point[:, c])
                result[1, :, c] = torch.maximum(high, point[:, c])
        return torch.where(codes.observed, codes.x, result)

    def _spread(self, mean: Tensor, variance: Tensor, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, n_numeric) of numbers whose features have these moments (N, D)."""
        scores = ndtri(torch.tensor(probabilities, dtype=torch.float64))[:, None, None]
        return self.features.numbers(mean + scores * variance.sqrt())

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        batch = self.features.encode(codes)
        mean, variance = self.scores(batch)
        found = level_probabilities(self.features, codes, mean)
        for c in self.features.ordinal:
            found[c] = LevelProbabilities.of_levels(self.ordinal_probabilities(mean, variance, c), codes, c)
        return dict(sorted(found.items()))

    def log_prob(self, codes: Incomplete) -> Tensor:
        r"""Returns the log density (N) of the observed cells, in the units of the table.

        The density of numbers is exact. Discrete columns (levels, and numbers whose margins have intervals)
        follow by the chain rule, each given the numbers and the columns before it; with such columns,
        marginals depend on the order of the chain. Under a self-masking model, the result is the joint log
        density of the observed cells *and* the mask of the numbers: it is not 0 for a row without observed
        cells, and removing a number is not the same as integrating it out.
        """
        batch = self.features.encode(codes)
        intervals = [
            self.features.numeric[i] for i, margin in self.features.transformed() if margin.by_interval
        ]
        levels = [c for c in self.features.ordinal if c not in intervals]
        chain = [*intervals, *levels, *(block.column for block in self.features.blocks)]
        observed = batch.observed.clone()
        observed[:, self._positions(chain)] = False
        total = self.gaussian.log_prob(Incomplete(batch.x, observed)) + self.features.log_jacobian(
            Incomplete(codes.x, self._hidden(codes, chain))
        )
        for c in chain:
            given = Incomplete(batch.x, observed)
            if c in intervals:
                total = total + self._log_interval(given, codes, c)
            else:
                total = total + log_level(self._one_column(given, codes, c))
            positions = self._positions([c])
            observed[:, positions] = batch.observed[:, positions]
        return total

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        state = self.features.state() | joint_state(self.gaussian)
        if self.posterior:
            state["posterior.loc"] = torch.stack([draw.gaussian.loc for draw in self.posterior])
            for name in ("loadings", "noise") if self._posterior_is_low_rank else ("covariance",):
                state[f"posterior.{name}"] = torch.stack(
                    [getattr(draw.gaussian, name) for draw in self.posterior]
                )
            for s, draw in enumerate(self.posterior):
                state |= draw.features.margin_state(f"posterior.{s}.margin")
        return state

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularGaussian":
        """Rebuilds the model from its columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=False)
        names = ("covariance",) if "posterior.covariance" in state else ("loadings", "noise")
        drawn = [state.get(f"posterior.{name}", ()) for name in ("loc", *names)]
        make = Gaussian.checked if len(names) == 1 else LowRankGaussian.checked_factors
        posterior = tuple(
            cls(columns, features.with_margins(state, f"posterior.{s}.margin"), make(*parts))
            for s, parts in enumerate(zip(*drawn, strict=True))
        )
        return cls(columns, features, joint_from_state(state), posterior)

    @property
    def _posterior_is_low_rank(self) -> bool:
        return all(isinstance(draw.gaussian, LowRankGaussian) for draw in self.posterior)

    @cached_property
    def _noise(self) -> Tensor | None:
        """The variance (D) of observed features about their scores; None if there is none."""
        noise = self.features.noise()
        return noise if bool((noise > 0).any()) else None

    def scores(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns mean and variance (N, D) of missing scores; observed features as they are."""
        mean, variance = self.gaussian.moments(batch)
        if self._noise is None:
            return mean, variance
        variance = torch.maximum(variance - self._noise, self._least_variance(self._noise))
        return mean, torch.where(batch.observed, 0.0, variance)

    @staticmethod
    def _least_variance(noise: Tensor) -> Tensor:
        """Returns the minimum variance (D) of missing scores; 0 if the feature has no noise."""
        return torch.where(noise > 0, (LEAST_OF_NOISE * noise).clamp(min=LEAST_VARIANCE), 0.0)

    def _moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns conditional mean and variance (N, D); over the posterior, by the law of total variance.

        Scores are those of the fitted margins; the variation of margins between draws is negligible here.
        """
        if not self.posterior:
            return self.scores(batch)
        found = [draw.scores(batch) for draw in self.posterior]
        means = torch.stack([mean for mean, _ in found])
        within = torch.stack([variance for _, variance in found]).mean(dim=0)
        return means.mean(dim=0), within + means.var(dim=0, unbiased=False)

    def complete_scores(self, x: Tensor, observed: Tensor, keys: Keys, which: range) -> Tensor:
        """Returns features (S, N, D) with the missing scores drawn jointly."""
        gaussian = self.gaussian
        n_features = observed.shape[1]

        def noises(stream: int) -> Tensor:
            drawn = [row_normals(keys, s, n_features, stream) for s in which]
            return torch.from_numpy(np.stack(drawn))

        normals = noises(0)
        if self._noise is None or not isinstance(gaussian, Gaussian):
            return gaussian.complete(x, observed, normals)
        # Matheron's rule for scores whose observed ones are seen with noise.
        joint = gaussian.without(self._noise).unconditional(normals)
        seen = torch.where(observed, x - joint - self._noise.sqrt() * noises(NOISE_STREAM), 0.0)
        drawn = joint + gaussian.complete(seen, observed)
        # Their variance is raised to the minimum, so that draws are as wide as quantiles.
        row = Incomplete(x if x.ndim == 2 else x[0], observed)
        variance = gaussian.moments(row)[1] - self._noise
        lacking = (self._least_variance(self._noise) - variance.clamp(min=0.0)).clamp(min=0.0)
        if bool((lacking[~observed] > 0).any()):
            drawn = drawn + lacking.sqrt() * noises(SPREAD_STREAM)
        return torch.where(observed, x, drawn)

    def draws_of(self, codes: Incomplete, keys: Keys, which: range) -> Tensor:
        """Returns completed codes (S, N, C) of the draws with these numbers, at the fitted parameters."""
        batch = self.features.encode(codes)
        x, observed = batch.x.expand(len(which), -1, -1).clone(), batch.observed.clone()
        result = codes.x.expand(len(which), -1, -1).clone()
        for number, block in enumerate(self.features.blocks):
            rows = (~codes.observed[:, block.column]).nonzero().squeeze(1)
            if len(rows) == 0:
                continue
            mean = self.gaussian.complete(x[:, rows], observed[rows])
            groups = self.features.group_probabilities(mean, block)  # (S, R, G)
            uniforms = [row_uniforms(keys[rows.numpy()], s, 1, CATEGORY_STREAM + number)[:, 0] for s in which]
            levels = block.draw(groups, torch.from_numpy(np.stack(uniforms)))
            result[:, rows, block.column] = levels.to(result.dtype)
            x[:, rows, block.start : block.stop] = self.features.indicators(levels, block)
            observed[rows, block.start : block.stop] = True
        shared = torch.equal(observed, batch.observed)  # no level was drawn: draws share the condition
        completed = self.complete_scores(batch.x if shared else x, observed, keys, which)
        result[..., list(self.features.numeric)] = self.features.numbers(completed)
        return torch.where(codes.observed, codes.x, result)

    def _one_column(self, given: Incomplete, codes: Incomplete, column: int) -> LevelProbabilities:
        if column not in self.features.ordinal:
            return level_probabilities(self.features, codes, self.gaussian.conditional_mean(given))[column]
        probabilities = self.ordinal_probabilities(*self.scores(given), column)
        return LevelProbabilities.of_levels(probabilities, codes, column)

    def _log_interval(self, batch: Incomplete, codes: Incomplete, column: int) -> Tensor:
        """Returns the log mass or density (N) of the observed values of a column, given the batch; else 0."""
        position = self.features.numeric.index(column)
        margin, scaler = self.features.margins[position], self.features.scaler
        assert margin is not None
        mean, variance = self.scores(batch)
        observed = codes.observed[:, column]
        x = torch.where(observed, codes.x[:, column], 0.0)
        loc, scale, std = scaler.loc[position], scaler.scale[position], variance[:, position].sqrt()
        below, above = (((end - loc) / scale - mean[:, position]) / std for end in margin.interval(x))
        density = -0.5 * (below.square() + log(2 * pi)) - (std * scale).log() + margin.log_slope(x)
        return torch.where(observed, torch.where(above > below, log_mass(below, above), density), 0.0)

    def ordinal_probabilities(self, mean: Tensor, variance: Tensor, column: int) -> Tensor:
        """Returns the probability (N, L) that the latent score lies between the thresholds of each level."""
        position = self.features.numeric.index(column)
        n_levels = len(self.columns[column].levels or ())
        edges = self.features.score(position, torch.arange(n_levels - 1, dtype=torch.float64) + 0.5)
        spread = variance[:, position, None].sqrt().clamp(min=1e-9)
        below = ndtr((edges - mean[:, position, None]) / spread)
        ends = torch.zeros(len(mean), 1, dtype=torch.float64)
        shares = torch.diff(torch.cat([ends, below, ends + 1], dim=1), dim=1)
        return shares.clamp(min=1e-12) / shares.clamp(min=1e-12).sum(dim=1, keepdim=True)

    def _positions(self, columns: Sequence[int]) -> list[int]:
        """Returns the features of the given columns."""
        found = [self.features.numeric.index(c) for c in columns if c in self.features.numeric]
        for block in self.features.blocks:
            found += list(range(block.start, block.stop)) if block.column in columns else []
        return found

    @staticmethod
    def _hidden(codes: Incomplete, columns: Sequence[int]) -> Tensor:
        observed = codes.observed.clone()
        observed[:, list(columns)] = False
        return observed


def with_room_for_noise(gaussian: Gaussian, features: FeatureMap) -> Gaussian:
    """Returns a Gaussian whose covariance stays positive definite when the noise of features is subtracted.

    Covariances of features that mostly have a single value are damped, because dividing features that are not
    Gaussian by a low reliability would exaggerate them. The covariance of the scores of features with noise,
    given all other features, has no eigenvalue below a minimum. This changes only covariances between
    features with noise; others may be near-copies of each other.
    """
    noise = features.noise()
    if not bool((noise > 0).any()):
        return gaussian
    damping = torch.ones_like(noise)
    for i, margin in features.transformed():
        damping[i] = DAMPING if margin.reliability < LOW_RELIABILITY else 1.0
    if isinstance(gaussian, LowRankGaussian):
        return _with_room_in_low_rank(gaussian, noise, damping)
    covariance = gaussian.covariance * damping * damping[:, None]
    covariance.diagonal().copy_(gaussian.covariance.diagonal())
    noisy, rest = (noise > 0).nonzero().squeeze(1), (noise == 0).nonzero().squeeze(1)
    across = covariance[rest[:, None], noisy]
    root = torch.linalg.cholesky(covariance[rest[:, None], rest])
    explained = torch.linalg.solve_triangular(root, across, upper=False)
    left = covariance[noisy[:, None], noisy] - explained.T @ explained - noise[noisy].diag()
    values, vectors = torch.linalg.eigh(left)
    if values[0] < LEAST_VARIANCE:
        lacking = (LEAST_VARIANCE - values).clamp(min=0.0)
        covariance[noisy[:, None], noisy] += (vectors * lacking) @ vectors.T
    return Gaussian(gaussian.loc, covariance)


def _with_room_in_low_rank(gaussian: LowRankGaussian, noise: Tensor, damping: Tensor) -> LowRankGaussian:
    """Returns the same for a covariance of low rank plus a diagonal, whose diagonal makes the room."""
    damped = damping[:, None] * gaussian.loadings
    diagonal = gaussian.noise + gaussian.loadings.square().sum(dim=1) - damped.square().sum(dim=1)
    return LowRankGaussian(gaussian.loc, damped, torch.maximum(diagonal, noise / (1 - LEAST_SHARE)))


MOST_WORSE = 1.25  # ratio of held-out errors of scores and values from which scores are doubtful
MOST_LOST = 0.02  # maximum share of variance that values explain and scores do not
SHRINKAGE = 0.05  # of correlations towards zero, so that no feature is explained completely
N_FOLDS, MOST_ROWS = 5, 5_000  # number of folds and maximum number of rows with which errors are compared
MANY_FEATURES, FEWER_ROWS = 1_000, 1_000  # from this number of features on, this number of rows is used
LEAST_GIVEN_OTHERS = 0.01  # minimum conditional variance of a score given others
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
    doubtful[: len(with_all)] |= _with_optional_margin(columns, scored) & (with_all > MOST_WORSE * with_none)
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


def _with_optional_margin(columns: Sequence[Column], scored: FeatureMap) -> Tensor:
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
    doubtful[transformed] = worse & _with_optional_margin(columns, scored)[transformed]
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
        variance = ((off - features.noise()) * features.scaler.scale.square()).clamp(min=LEAST_GIVEN_OTHERS)
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
