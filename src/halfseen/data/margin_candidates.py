r"""Comparison of candidate margins for many columns at once.

A candidate is a normal distribution after one of several links, or a spline of normal scores after the best
link. All samples have the same size, so that a comparison needs few operations on arrays of columns by
values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log, pi, sqrt

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri

from halfseen.data.frames import Floats
from halfseen.data.links import LARGEST_RATIO, Link
from halfseen.data.margin_fits import LEAST_SLOPE, TAIL_SPAN, fit_exponents, knots_of
from halfseen.data.margins import NARROWEST

Indices = npt.NDArray[np.int64]

N_FOLDS = 3
LOWEST = -1e3  # log density of a held-out value
GAIN = 0.01  # in nats per value that a less simple margin must gain at least, beside half a standard error


@dataclass(frozen=True)
class Choice:
    """The link after which a column is closest to normal, and the candidate that was chosen.

    The candidates are `simplest` (the first link), `line` (a later one) or neither, a spline after `best`.
    """

    best: Link
    line: Link | None
    simplest: bool


@dataclass(frozen=True)
class _Bent:
    """Samples after four kinds of links (4, G, Q), log slopes, and which columns (4, G) have the link."""

    links: list[list[Link]]
    places: Floats
    slopes: Floats
    valid: npt.NDArray[np.bool_]


def compare_margins(
    samples: Floats, bounds: Sequence[Link | None], spline_only: Sequence[bool]
) -> list[Choice]:
    """Returns the choice of each column, by samples (G, Q) in order.

    A bounded column has the link of its bounds and no other. Columns that are `spline_only` get a spline.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of values that are too far from the rest
        bent = _bend(samples, bounds)
        spread = np.log(bent.places.std(axis=2).clip(NARROWEST)) - bent.slopes.mean(axis=2)
        best = np.where(bent.valid, spread, np.inf).argmin(axis=0)
        chosen = np.full(len(samples), len(bent.links))
        some = np.flatnonzero(~np.asarray(spline_only))
        if len(some):
            scores = _held_out(bent.places[:, some], bent.slopes[:, some], best[some])
            valid = np.concatenate([bent.valid[:, some], np.ones((1, len(some)), dtype=bool)])
            chosen[some] = clearly_best(scores, valid)
    return [
        Choice(bent.links[b][g], bent.links[c][g] if c < len(bent.links) else None, bool(c == 0))
        for g, (b, c) in enumerate(zip(best.tolist(), chosen.tolist(), strict=True))
    ]


def _bend(samples: Floats, bounds: Sequence[Link | None]) -> _Bent:
    """Returns samples transformed by all links that are possible for them, the simplest first."""
    n_columns = len(samples)
    free = np.array([bound is None for bound in bounds])
    positive = free & (samples[:, 0] > 0)
    centre, spread = samples.mean(axis=1), samples.std(axis=1)
    middle = np.where(positive, np.median(samples, axis=1), 1.0)
    spread = np.where(spread > 0, spread, 1.0)
    logs = np.log(np.where(positive[:, None], samples, 1.0))
    powers = fit_exponents("power", 0.0, middle, np.where(positive[:, None], samples, 1.0))
    exponents = fit_exponents("yeo-johnson", centre, spread, samples)
    shifted = logs - np.log(middle)[:, None]
    ratio = ((samples - centre[:, None]) / spread[:, None]).clip(-LARGEST_RATIO, LARGEST_RATIO)
    growth = np.copysign(np.log1p(np.abs(ratio)), ratio)
    power = np.where(ratio >= 0, exponents[:, None], 2 - exponents[:, None]).clip(1e-9)
    places = np.stack(
        [
            samples,
            logs,
            np.expm1(powers[:, None] * shifted) / powers[:, None],
            np.copysign(np.expm1(power * np.abs(growth)) / power, growth),
        ]
    )
    slopes = np.stack(
        [
            np.zeros_like(samples),
            -logs,
            (powers[:, None] - 1) * shifted - np.log(middle)[:, None],
            (exponents[:, None] - 1) * growth - np.log(spread)[:, None],
        ]
    )
    first = [Link() if bound is None else bound for bound in bounds]
    for g in np.flatnonzero(~free):
        x = torch.from_numpy(samples[g])
        places[0, g], slopes[0, g] = first[g].forward(x).numpy(), first[g].log_slope(x).numpy()
    links = [
        first,
        [Link("log")] * n_columns,
        [Link("power", second=float(middle[g]), third=float(powers[g])) for g in range(n_columns)],
        [
            Link("yeo-johnson", float(centre[g]), float(spread[g]), float(exponents[g]))
            for g in range(n_columns)
        ],
    ]
    return _Bent(links, places, slopes, np.stack([np.ones_like(free), positive, positive, free]))


def _held_out(places: Floats, slopes: Floats, best: Indices) -> Floats:
    """Returns log densities (L + 1, G, Q) of held-out values: normal after each link, and by a spline.

    Shapes
    ------
    places, slopes : (L, G, Q), ordered values after each link, and the log slopes of the links there.
    best : (G), the link of the spline.
    """
    columns = np.arange(len(best))
    scores = np.concatenate([slopes, slopes[None, best, columns]])
    for train, test in _folds(places.shape[2]):
        known, asked = places[:, :, train], places[:, :, test]
        centre, spread = known.mean(axis=2), known.std(axis=2).clip(NARROWEST)
        z = (asked - centre[:, :, None]) / spread[:, :, None]
        scores[:-1, :, test] += log_normal(z) - np.log(spread)[:, :, None]
        scores[-1][:, test] += _spline_density(known[best, columns], asked[best, columns])
    return scores


def _spline_density(train: Floats, test: Floats) -> Floats:
    """Returns the log density of places (G, S) by the normal scores of others (G, T), which are in order."""
    grid = _grid(train.shape[1])
    train = np.ascontiguousarray(train)
    places = train[:, grid.index] * (1 - grid.weight) + train[:, grid.index + 1] * grid.weight  # (G, K)
    places = np.ascontiguousarray(places)
    rise = np.diff(places, axis=1)
    new = np.concatenate([np.ones((len(train), 1), dtype=bool), rise > 0], axis=1)
    first = np.maximum.accumulate(np.where(new, np.arange(len(grid.knots)), 0), axis=1)
    knots = grid.knots[first]  # of equal places, the first
    usual = train.std(axis=1)
    tails = [
        np.where(usual > 0, np.maximum((train[:, part] - train[:, [end]]) @ run, LEAST_SLOPE * usual), 1.0)
        for end, part, run in ((0, grid.lower, grid.lower_run), (-1, grid.upper, grid.upper_run))
    ]
    inner = np.diff(knots, axis=1) / np.where(rise > 0, rise, 1.0)
    slopes = np.concatenate([1 / tails[0][:, None], inner, 1 / tails[1][:, None]], axis=1)  # (G, K + 1)
    segment = torch.searchsorted(
        torch.from_numpy(places), torch.from_numpy(np.ascontiguousarray(test)), right=True
    ).numpy()
    before = (segment - 1).clip(0)
    slope = np.take_along_axis(slopes, segment, axis=1)
    along = test - np.take_along_axis(places, before, axis=1)
    density: Floats = log_normal(np.take_along_axis(knots, before, axis=1) + slope * along) + np.log(slope)
    return density


@dataclass(frozen=True)
class _Grid:
    """The positions of the knots among T ordered values, and the values from which the tails are fitted."""

    knots: Floats
    index: Indices
    weight: Floats
    lower: slice
    upper: slice
    lower_run: Floats
    upper_run: Floats


@lru_cache(maxsize=64)
def _grid(n: int) -> _Grid:
    z = normal_scores(n)
    knots = knots_of(z)
    index = (np.searchsorted(z, knots, side="right") - 1).clip(0, n - 2)
    weight = ((knots - z[index]) / (z[index + 1] - z[index])).clip(0.0, 1.0)
    lower = slice(0, int(np.searchsorted(z - z[0], TAIL_SPAN)))
    upper = slice(int(np.searchsorted(z - z[-1], -TAIL_SPAN, side="right")), n)
    runs = [z[part] - z[end] for end, part in ((0, lower), (-1, upper))]
    shares = [run / max(float(run @ run), NARROWEST) for run in runs]
    return _Grid(knots, index, weight, lower, upper, shares[0], shares[1])


def normal_scores(n: int) -> Floats:
    """Returns the scores of n values in order."""
    scores: Floats = ndtri((np.arange(n) + 0.5) / n)
    return scores


def log_normal(z: Floats) -> Floats:
    """Returns the log density of a standard normal."""
    found: Floats = -0.5 * z**2 - 0.5 * log(2 * pi)
    return found


@lru_cache(maxsize=64)
def _folds(n: int) -> list[tuple[Indices, Indices]]:
    """Returns which of n ordered values are known, and which are held out, in each fold."""
    fold = fold_numbers(n)
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(N_FOLDS)]


@lru_cache(maxsize=64)
def fold_numbers(n: int) -> Indices:
    """Returns the fold of each of n values."""
    return np.random.default_rng(0).permutation(n) % N_FOLDS


def clearly_best(scores: Floats, valid: npt.NDArray[np.bool_]) -> Indices:
    """Returns the best candidate (G) by held-out likelihoods (F, G, Q); later ones must be clearly better."""
    scores = scores.clip(LOWEST)
    current, chosen = scores[0].copy(), np.zeros(scores.shape[1], dtype=np.int64)
    for i in range(1, len(scores)):
        gain = scores[i] - current
        better = valid[i] & (gain.mean(axis=1) > GAIN + 0.5 * gain.std(axis=1) / sqrt(gain.shape[1]))
        current = np.where(better[:, None], scores[i], current)
        chosen[better] = i
    return chosen
