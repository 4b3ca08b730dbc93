r"""Fitting margins (normal after a link, normal scores, thresholds) to values that may have weights."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import torch
from scipy.special import ndtri

from halfseen._arrays import Booleans, Floats
from halfseen.data.columns import Column
from halfseen.data.margins import (
    LARGEST_RATIO,
    NARROWEST,
    NO_SCORE_BELOW,
    STEEP,
    Link,
    Margin,
    truncated_moments,
)

NO_ATOMS = np.empty(0)

LEAST_EXPONENT = {"yeo-johnson": 0.0, "power": 0.05}  # smallest exponents; near 0 the link is a logarithm
# Guesses, apart from `ROUNDING`: knots must be dense enough to follow a distribution with several modes and
# far enough apart that each rests on several values; tails are short, so that few outliers do not bend them.
N_EXPONENTS, MOST_LOOKED_AT = 13, 250  # number of exponents that are tried, and of quantiles used for this
ROUNDING = 4 * float(np.finfo(np.float64).eps)  # relative differences that floats do not resolve
LEAST_SLOPE = 0.3  # minimum slope of a tail, relative to the scale: limits the influence of outliers
SPACING, USUAL_ROWS = 0.3, 700  # distance between the scores of knots, for this number of values
TAIL_SPAN = 0.6  # range of scores before the last knot that determines the slope of the tail
LIMIT_SPAN = 1.5  # range of scores next to a detection limit that determines the tail beyond it


def refit_margin(column: Column, margin: Margin, values: Floats, weights: Floats) -> Margin:
    """Returns a margin of the same kind, fitted to weighted values (N).

    A margin with detection limits, or with values beyond its bounds, is not refitted.
    """
    if margin.is_censored or len(margin.unlimited) or values.min() == values.max():
        return margin
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    if margin.half:
        refitted = thresholds(column, values, 2 * margin.half, weights)
    elif len(margin.places) == 2:
        link = margin.link
        link = fit_exponent(link, values, weights) if link.kind in LEAST_EXPONENT else link
        refitted = line(link, values, weights)
    else:
        atoms = margin.exact[:-1][torch.diff(margin.places) == 0].numpy()
        spread = spread_ties(values, column.code_step, atoms)
        refitted = spline(margin.link, spread, atoms, weights=weights)
    return reliable(refitted.adjusted(least=margin.least, greatest=margin.greatest), values, weights)


def line(link: Link, values: Floats, weights: Floats | None = None) -> Margin:
    """Returns the margin of values that are Gaussian after the link."""
    return through(link, *_centre_and_spread(link, values, weights))


def through(link: Link, centre: float, slope: float) -> Margin:
    """Returns the margin whose scores are a linear function of the linked values; the centre has score 0.

    A slope that floats do not resolve, or that is not positive because of rounding, is raised.
    """
    centre = float(centre)
    slope = max(float(slope), ROUNDING * abs(centre)) or 1.0
    places = torch.tensor([centre - slope, centre + slope], dtype=torch.float64)
    scores = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    return Margin(link, places, scores, link.inverse(places), (slope, slope))


def _centre_and_spread(link: Link, values: Floats, weights: Floats | None) -> tuple[float, float]:
    """Returns mean and standard deviation of the linked values."""
    u = link.forward(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    centre = float(np.average(u, weights=weights))
    with np.errstate(over="ignore"):
        spread = sqrt(np.average((u - centre) ** 2, weights=weights))
    return centre, spread


def fit_exponent(link: Link, values: Floats, weights: Floats | None = None) -> Link:
    """Returns a power or Yeo-Johnson link with the exponent of the greatest likelihood of ordered values."""
    first, second = np.array([link.first]), np.array([link.second])
    some = None if weights is None else weights[None]
    return replace(link, third=float(fit_exponents(link.kind, first, second, values[None], some)[0]))


def fit_exponents(
    kind: str, first: Floats | float, second: Floats, values: Floats, weights: Floats | None = None
) -> Floats:
    """Returns the exponents (G) of power or Yeo-Johnson links of ordered values (G, N), by likelihood.

    The links have the parameters `first` and `second` (G); values may have weights (G, N).
    """
    n = values.shape[1]
    every = max(1, n // MOST_LOOKED_AT)
    starts = np.arange(0, n, every)
    if weights is None:
        shares = np.diff(starts, append=n)[None].astype(np.float64)
    else:
        shares = np.add.reduceat(weights, starts, axis=1)
    shares = (shares / shares.sum(axis=1, keepdims=True))[:, :, None]  # (G or 1, Q, 1)
    middle = np.minimum(starts + every // 2, n - 1)
    first, second = np.reshape(first, (-1, 1)), np.reshape(second, (-1, 1))
    with np.errstate(over="ignore"):
        ratio = ((values[:, middle] - first) / second).clip(-LARGEST_RATIO, LARGEST_RATIO)
    exponents = np.linspace(LEAST_EXPONENT[kind], 2.0, N_EXPONENTS)
    if kind == "power":
        growth = np.log(ratio.clip(1 / LARGEST_RATIO))
        logs, signs, powers = growth[:, None], 1.0, exponents[:, None]
    else:
        growth = np.copysign(np.log1p(np.abs(ratio)), ratio)
        logs, signs = np.abs(growth)[:, None], np.sign(ratio)[:, None]
        powers = np.where(ratio[:, None] >= 0, exponents[:, None], 2 - exponents[:, None]).clip(1e-9)
    with np.errstate(over="ignore", invalid="ignore"):
        places = signs * np.expm1(powers * logs) / powers  # (G, E, Q)
        spread = np.square(places - places @ shares) @ shares  # (G, E, 1)
    losses = (
        0.5 * np.log(spread[:, :, 0].clip(NARROWEST)) - (exponents - 1) * (growth[:, None] @ shares)[:, 0]
    )
    return _lowest(exponents, np.where(np.isnan(losses), inf, losses))


def _lowest(x: Floats, y: Floats) -> Floats:
    """Returns the minima (G) of the parabolas through the lowest point (G, E) and its two neighbours."""
    rows, i = np.arange(len(y)), y.argmin(axis=1)
    inner = i.clip(1, len(x) - 2)
    before, here, after = (y[rows, inner + side] for side in (-1, 0, 1))
    with np.errstate(invalid="ignore"):
        bend = before - 2 * here + after
        usable = (i == inner) & (bend > 0) & np.isfinite(bend)
        moved = 0.5 * (before - after) / np.where(usable, bend, 1.0) * (x[1] - x[0])
    found: Floats = x[i] + np.where(usable, moved, 0.0)
    return found


def spline(
    link: Link,
    values: Floats,
    atoms: Floats = NO_ATOMS,
    below: float = 0.0,
    above: float = 0.0,
    weights: Floats | None = None,
) -> Margin:
    """Returns the margin by normal scores of ordered values, which may have weights.

    Fractions of all values may be censored, below and above the others.
    """
    n = len(values)
    if weights is None:
        shares = np.arange(n + 1) / n
    else:
        shares = np.concatenate([[0.0], (weights / weights.sum()).cumsum()]).clip(0.0, 1.0)
    edges = below + (1 - below - above) * shares
    levels = 0.5 * (edges[1:] + edges[:-1])
    u = link.forward(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    z = ndtri(levels)
    knots = knots_of(z)
    places, exact = (np.interp(knots, z, of).reshape(-1) for of in (u, values))
    if len(atoms):
        knots, places, exact = _with_atoms(np.stack([knots, places, exact]), values, u, edges, atoms)
    keep = np.diff(np.maximum.accumulate(places), prepend=-inf) > 0
    if len(atoms):
        keep |= np.isin(exact, atoms)
    knots, places, exact = knots[keep], places[keep], exact[keep]
    spans = LIMIT_SPAN if below else TAIL_SPAN, LIMIT_SPAN if above else TAIL_SPAN
    tails = tails_of(u, z, places, knots, spans)
    return Margin(link, torch.from_numpy(places), torch.from_numpy(knots), torch.from_numpy(exact), tails)


def knots_of(z: Floats) -> Floats:
    """Returns the scores of knots for values with scores z (N), in order."""
    n = len(z)
    ends: Floats = np.interp([min(5, n / 10), n - min(5, n / 10)], np.arange(n) + 0.5, z)
    spacing = np.clip(SPACING * (USUAL_ROWS / n) ** (1 / 3), 0.2, 0.8)
    knots = np.linspace(ends[0], ends[1], max(3, int(np.ceil((ends[1] - ends[0]) / spacing)) + 1))
    found: Floats = np.concatenate([z[:1], knots, z[-1:]])
    return found


def tails_of(
    u: Floats, z: Floats, places: Floats, knots: Floats, spans: tuple[float, float] = (TAIL_SPAN, TAIL_SPAN)
) -> tuple[float, float]:
    """Returns the slopes of places u by scores z beyond the first and last knot."""
    return (
        _tail(u - places[0], z - knots[0], z - knots[0] < spans[0]),
        _tail(u - places[-1], z - knots[-1], knots[-1] - z < spans[1]),
    )


def _with_atoms(knots: Floats, values: Floats, u: Floats, edges: Floats, atoms: Floats) -> Floats:
    """Returns knots (3, K) that include the score intervals of atoms."""
    scores, _, exact = knots
    keep, added = np.ones(len(scores), dtype=bool), []
    for atom in atoms.tolist():
        first = int(np.searchsorted(values, atom))
        last = int(np.searchsorted(values, atom, side="right"))
        low = float(ndtri(edges[first])) if first else NO_SCORE_BELOW
        high = float(ndtri(edges[last])) if last < len(values) else -NO_SCORE_BELOW
        apart = np.zeros_like(keep)
        added += [(low + STEEP / 2, u[first], atom), (high - STEEP / 2, u[first], atom)]
        if first:
            apart |= (scores < low) & (exact < values[first - 1])
            added.append((low - STEEP / 2, u[first - 1], values[first - 1]))
        if last < len(values):
            apart |= (scores > high) & (exact > values[last])
            added.append((high + STEEP / 2, u[last], values[last]))
        keep &= apart
    joined = np.concatenate([knots[:, keep], np.array(added).T], axis=1)
    joined = joined[:, np.lexsort((joined[0], joined[1]))]
    return joined[:, np.diff(joined[0], prepend=-inf) > 0]


def _tail(rise: Floats, run: Floats, there: Booleans) -> float:
    """Returns the slope of places by scores beyond the last knot, from values near it."""
    usual = float(rise.std())
    slope = float(run[there] @ rise[there]) / max(float(run[there] @ run[there]), NARROWEST)
    return max(slope, LEAST_SLOPE * usual) if usual > 0 else 1.0


def spread_ties(values: Floats, step: float | None, atoms: Floats = NO_ATOMS) -> Floats:
    """Returns values in order; whole numbers are spread evenly over the intervals that round to them."""
    ordered = np.sort(values)
    if not step:
        return ordered
    _, first, counts = np.unique(ordered, return_index=True, return_counts=True)
    rank = (np.arange(len(ordered)) - np.repeat(first, counts) + 0.5) / np.repeat(counts, counts)
    moved = ordered + step * (rank - 0.5)
    return np.where(np.isin(ordered, atoms), ordered, moved)


def thresholds(column: Column, values: Floats, step: float, weights: Floats | None = None) -> Margin:
    """Returns a margin in which each integer has an interval of scores between two thresholds."""
    low, high = column.code_bounds()
    first, last = round(float(values.min()) / step), round(float(values.max()) / step)
    if column.levels is not None:
        first, last = 0, len(column.levels) - 1
    numbers = np.round(values / step).astype(np.int64) - first
    counts = np.bincount(numbers, weights, minlength=last - first + 1)
    below, above = first * step - step / 2 > low, last * step + step / 2 < high  # are there others?
    smoothed = np.concatenate([[0.5] * below, counts + 0.5 / len(counts), [0.5] * above])
    scores = ndtri(smoothed.cumsum()[:-1] / smoothed.sum())
    places = (np.arange(first, last + 2)[not below : None if above else -1] - 0.5) * step
    slopes = np.diff(places) / np.diff(scores) if len(places) > 1 else np.array([step])
    return Margin(
        places=torch.from_numpy(places),
        scores=torch.from_numpy(scores),
        exact=torch.from_numpy(places),
        tails=(float(slopes[:2].mean()), float(slopes[-2:].mean())),
        half=step / 2,
        low=-inf if below and not np.isfinite(low) else np.ceil(low / step) * step - step / 2,
        high=inf if above and not np.isfinite(high) else np.floor(high / step) * step + step / 2,
    )


def reliable(margin: Margin, values: Floats, weights: Floats | None = None) -> Margin:
    """Returns a margin with the share of the variance of scores that its values explain."""
    if not margin.half and not margin.has_atoms and not margin.is_censored:
        return margin
    if not margin.half and not margin.is_censored:
        return margin.adjusted(reliability=1 - margin.atom_variance())
    distinct, which = np.unique(values, return_inverse=True)
    below, above = margin.interval(torch.from_numpy(distinct))
    within = torch.where(above > below, truncated_moments(below, above)[1], 0.0)[which].numpy()
    return margin.adjusted(reliability=1 - float(np.average(within, weights=weights)))
