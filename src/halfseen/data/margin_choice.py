r"""Which margin a column has: chosen by the likelihood of held-out values, the simpler one if in doubt."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, log, sqrt

import numpy as np
import numpy.typing as npt
import torch
from scipy import optimize
from scipy.special import ndtri

from halfseen.data.columns import Column
from halfseen.data.frames import Floats
from halfseen.data.links import Link
from halfseen.data.margins import NARROWEST, NO_SCORE_BELOW, STEEP, Margin, truncated_moments

Fit = Callable[[Floats], Margin]
NO_ATOMS = np.empty(0)

LARGEST = 1e100  # numbers beyond stay as they are
FEWEST_VALUES = 50  # with fewer, a column is Gaussian unless bounds or limits say otherwise
MOST_VALUES = 5_000  # that a choice looks at
MOST_LEVELS = 40  # whole numbers that are thresholds; with more they are nearly continuous
ATOM_SHARE, ATOM_COUNT = 0.05, 10  # of the values, that one value needs to be an atom
N_FOLDS = 3
GAIN = 0.01  # in nats per value that a less simple margin must gain at least, beside half a standard error
NOT_NORMAL = 4.0  # standard errors of skewness or kurtosis
TOUCH = 0.03  # of a scale: how far a bound that values touch is moved outwards
LEAST_EXPONENT = {"yeo-johnson": 0.0, "power": 0.05}  # of links with one; near 0 they are a logarithm
LEAST_SLOPE = 1e-3  # of a tail, as a share of the spread
SPACING, USUAL_ROWS = 0.3, 700  # of the scores of knots, at so many values
TAIL_SPAN = 0.6  # scores before the last knot, whose values say how the tail goes on
ROOM = 0.25  # of the range of values, by which answers may go beyond it
FEWEST_KNOWN = 10  # values that are not censored, to choose a link from
LINEAR = 0.995  # correlation of values with scores from which they are on a line
LIMIT_SPAN = 1.5  # scores next to a detection limit, whose values say how it goes on beyond
N_ANSWERS = 50  # quantiles that map answers into bounds


def choose_margin(column: Column, values: Floats) -> Margin | None:
    """Returns the margin of a column with the given observed codes (N); None if the column is Gaussian."""
    if not len(values) or not _is_ordinary(values):
        return None
    if _is_outside(column, values).any():
        unbounded = replace(column, minimum=None, maximum=None, firm=False)
        return _inside(choose_margin(unbounded, values) or Margin(), column, values)
    censored = column.is_censored(values)
    if censored.any():
        return _censored_margin(column, values, censored)
    if len(values) < FEWEST_VALUES or len(np.unique(values)) < 3:
        return bounded_margin(column, values)
    step = column.code_step
    if step and (values.max() - values.min()) / step < MOST_LEVELS:
        return _lattice_margin(column, values, step)
    return _real_margin(column, values)


def refit_margin(column: Column, margin: Margin, values: Floats, weights: Floats) -> Margin:
    """Returns a margin of the same kind, fitted to values (N) that count by their weights (N).

    A margin with detection limits, or with values beyond its bounds, stays as it is.
    """
    limited = margin.censored_below > -inf or margin.censored_above < inf
    if limited or len(margin.values) or values.min() == values.max():
        return margin
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    if margin.half:
        refitted = _thresholds(column, values, 2 * margin.half, weights)
    elif len(margin.places) == 2:
        refitted = _line(_refit_link(margin.link, values, weights), values, weights)
    else:
        atoms = margin.exact[:-1][torch.diff(margin.places) == 0].numpy()
        spread = _spread_ties(values, column.code_step, atoms)
        refitted = _spline(margin.link, spread, atoms, weights=weights)
    return _reliable(replace(refitted, least=margin.least, greatest=margin.greatest), values, weights)


def bounded_margin(column: Column, values: Floats) -> Margin | None:
    """Returns the smooth map that keeps a column within its firm bounds and is no more; None without."""
    if not len(values) or not _is_bounded(column) or not _is_ordinary(values):
        return None
    if _is_outside(column, values).any():
        return _inside(Margin(), column, values)
    return _line(_bounded_link(column, values), values)


def _is_ordinary(values: Floats) -> bool:
    """Tells whether squares neither overflow nor vanish."""
    largest = float(np.abs(values).max())
    return largest == 0 or 1 / LARGEST < largest < LARGEST


def _is_bounded(column: Column) -> bool:
    low, high = column.firm_bounds()
    return low > -inf or high < inf


def _is_outside(column: Column, values: Floats) -> npt.NDArray[np.bool_]:
    low, high = column.firm_bounds()
    return (values < low) | (values > high)


# Numbers on a lattice


def _lattice_margin(column: Column, values: Floats, step: float) -> Margin | None:
    fits: list[Fit] = [
        lambda v: replace(_line(Link(), v), half=step / 2),
        lambda v: _thresholds(column, v, step),
    ]
    if not _is_bounded(column) and not _best(values, fits):
        return None
    return _reliable(_thresholds(column, values, step), values)


def _thresholds(column: Column, values: Floats, step: float, weights: Floats | None = None) -> Margin:
    """Returns a margin in which each whole number has its interval, between thresholds."""
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


# Real numbers


def _real_margin(column: Column, values: Floats) -> Margin | None:
    bounded, atoms = _is_bounded(column), _find_atoms(values)
    if not bounded and not len(atoms) and _looks_normal(values):
        return None
    some = values
    if len(values) > MOST_VALUES:
        some = np.random.default_rng(0).choice(values, MOST_VALUES, replace=False)
    some = _spread_ties(some, column.code_step)
    links = [_bounded_link(column, values)] if bounded else _links(some)
    best = max(links, key=lambda link: float(_line(link, some).log_density(torch.from_numpy(some)).mean()))
    fits: list[Fit] = [*(partial(_line, link) for link in links), partial(_spline, best)]
    chosen = len(links) if len(atoms) else _best(some, fits)
    if chosen == 0 and not bounded:
        return None
    if chosen < len(links):
        margin = _line(links[chosen], values)
    else:
        margin = _spline(best, _spread_ties(values, column.code_step, atoms), atoms)
    return _reliable(_with_room(margin, values), values)


def _links(values: Floats) -> list[Link]:
    """Returns the links that values may have, the simplest first."""
    bent = [_refit_link(Link("yeo-johnson", float(values.mean()), float(values.std())), values)]
    if values.min() <= 0:
        return [Link(), *bent]
    bent.append(_refit_link(Link("power", second=float(np.median(values))), values))
    return [Link(), Link("log"), min(bent, key=lambda link: _bending_loss(link, values))]


def _with_room(margin: Margin, values: Floats) -> Margin:
    """Returns the margin with answers that do not go far beyond the range of values."""
    low, high = float(values.min()), float(values.max())
    room = ROOM * high - ROOM * low
    least = max(low - room, low / 2) if margin.link.kind == "power" else low - room  # so never 0
    return replace(margin, least=least, greatest=high + room)


def _find_atoms(values: Floats) -> Floats:
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[counts >= max(ATOM_COUNT, ATOM_SHARE * len(values))]


def _looks_normal(values: Floats) -> bool:
    """Tells whether skewness, kurtosis and the largest distance of distribution functions allow a normal."""
    n = len(values)
    ordered = np.sort(values)
    spread = ordered.std()
    if not 0 < spread < inf:
        return True  # nothing that could be bent, or too large to be squared
    z = (ordered - ordered.mean()) / spread
    if abs((z**3).mean()) > NOT_NORMAL * sqrt(6 / n) or abs((z**4).mean() - 3) > NOT_NORMAL * sqrt(24 / n):
        return False
    levels = (np.arange(n) + 0.5) / n
    distance = np.abs(torch.special.ndtr(torch.from_numpy(z)).numpy() - levels).max()
    return bool(distance < 1.0 / sqrt(n))


def _spread_ties(values: Floats, step: float | None, atoms: Floats = NO_ATOMS) -> Floats:
    """Returns values in order; whole numbers are spread evenly over the intervals that round to them."""
    ordered = np.sort(values)
    if not step:
        return ordered
    _, first, counts = np.unique(ordered, return_index=True, return_counts=True)
    rank = (np.arange(len(ordered)) - np.repeat(first, counts) + 0.5) / np.repeat(counts, counts)
    moved = ordered + step * (rank - 0.5)
    return np.where(np.isin(ordered, atoms), ordered, moved)


def _refit_link(link: Link, values: Floats, weights: Floats | None = None) -> Link:
    """Returns the link with the exponent of the greatest likelihood of ordered values, if it has one."""
    if link.kind not in LEAST_EXPONENT:
        return link
    every = max(1, len(values) // 1000)
    some = None if weights is None else weights[::every]
    found = optimize.minimize_scalar(
        lambda exponent: _bending_loss(replace(link, third=exponent), values[::every], some),
        bounds=(LEAST_EXPONENT[link.kind], 2.0),
        method="bounded",
        options={"xatol": 0.02},
    )
    return replace(link, third=float(found.x))


def _bending_loss(link: Link, values: Floats, weights: Floats | None = None) -> float:
    """Returns the negative log-likelihood per value, up to a constant, if they are normal past the link."""
    slope = link.log_slope(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    return log(_centre_and_spread(link, values, weights)[1]) - float(np.average(slope, weights=weights))


def _centre_and_spread(link: Link, values: Floats, weights: Floats | None) -> tuple[float, float]:
    """Returns mean and standard deviation of the places of values."""
    u = link.forward(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    centre = float(np.average(u, weights=weights))
    spread = sqrt(np.average((u - centre) ** 2, weights=weights))
    return centre, max(spread, 1e-12 * max(1.0, float(np.abs(u).max())))


def _line(link: Link, values: Floats, weights: Floats | None = None) -> Margin:
    """Returns the margin of values that are Gaussian on the other side of the link."""
    return _through(link, *_centre_and_spread(link, values, weights))


def _through(link: Link, centre: float, slope: float) -> Margin:
    """Returns the margin whose places are on a line: the centre has score 0."""
    places = torch.tensor([centre - slope, centre + slope], dtype=torch.float64)
    scores = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    return Margin(link, places, scores, link.inverse(places), (slope, slope))


def _spline(
    link: Link,
    values: Floats,
    atoms: Floats = NO_ATOMS,
    below: float = 0.0,
    above: float = 0.0,
    weights: Floats | None = None,
) -> Margin:
    """Returns the margin by normal scores of ordered values, which may have weights.

    Shares of all values may be censored, below and above the rest.
    """
    n = len(values)
    shares = np.full(n, 1 / n) if weights is None else weights / weights.sum()
    edges = below + (1 - below - above) * np.r_[0.0, shares.cumsum()].clip(0.0, 1.0)
    levels = 0.5 * (edges[1:] + edges[:-1])
    u = link.forward(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    z = ndtri(levels)
    ends: Floats = np.interp([min(5, n / 10), n - min(5, n / 10)], np.arange(n) + 0.5, z)
    spacing = np.clip(SPACING * (USUAL_ROWS / n) ** (1 / 3), 0.2, 0.8)
    knots = np.linspace(ends[0], ends[1], max(3, int(np.ceil((ends[1] - ends[0]) / spacing)) + 1))
    knots = np.r_[z[:1], knots, z[-1:]]
    places, exact = (np.interp(knots, z, of).reshape(-1) for of in (u, values))
    if len(atoms):
        knots, places, exact = _with_atoms(np.stack([knots, places, exact]), values, u, edges, atoms)
    keep = np.r_[True, np.diff(np.maximum.accumulate(places)) > 0] | np.isin(exact, atoms)
    knots, places, exact = knots[keep], places[keep], exact[keep]
    spans = [LIMIT_SPAN if share else TAIL_SPAN for share in (below, above)]
    return Margin(
        link,
        torch.from_numpy(places),
        torch.from_numpy(knots),
        torch.from_numpy(exact),
        (
            _tail(u - places[0], z - knots[0], z - knots[0] < spans[0]),
            _tail(u - places[-1], z - knots[-1], knots[-1] - z < spans[1]),
        ),
    )


def _with_atoms(knots: Floats, values: Floats, u: Floats, edges: Floats, atoms: Floats) -> Floats:
    """Returns knots (3, K) with the intervals of scores of atoms, and with where values go on."""
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
    return joined[:, np.r_[True, np.diff(joined[0]) > 0]]


def _tail(rise: Floats, run: Floats, there: npt.NDArray[np.bool_]) -> float:
    """Returns the slope of places by scores beyond the last knot, from values near it."""
    usual = float(rise.std())
    slope = float(run[there] @ rise[there]) / max(float(run[there] @ run[there]), NARROWEST)
    return max(slope, LEAST_SLOPE * usual) if usual > 0 else 1.0


# The choice


def _best(values: Floats, fits: Sequence[Fit]) -> int:
    """Returns which fit has the best held-out likelihood; a later one must be clearly better."""
    folds = np.random.default_rng(0).permutation(len(values)) % N_FOLDS
    scores = np.empty((len(fits), len(values)))
    for fold in range(N_FOLDS):
        train, test = values[folds != fold], torch.from_numpy(values[folds == fold])
        for i, fit in enumerate(fits):
            scores[i, folds == fold] = fit(train).log_density(test).clamp(min=-1e3).numpy()
    best = 0
    for i in range(1, len(fits)):
        gain = scores[i] - scores[best]
        if gain.mean() > GAIN + 0.5 * gain.std() / sqrt(len(values)):
            best = i
    return best


def _reliable(margin: Margin, values: Floats, weights: Floats | None = None) -> Margin:
    """Returns a margin that knows which share of the variance of scores its values tell."""
    below, above = margin.interval(torch.from_numpy(np.ascontiguousarray(values)))
    within = torch.where(above > below, truncated_moments(below, above)[1], 0.0)
    return replace(margin, reliability=1 - float(np.average(within.numpy(), weights=weights)))


# Bounds and limits


def _bounded_link(column: Column, values: Floats) -> Link:
    """Returns the link of the bounds; a bound that values touch is moved outwards a little."""
    low, high = column.firm_bounds()
    step = column.code_step or 0.0
    inside = np.clip(values, low, high)
    scale = float(inside.std()) or 1.0
    if low > -inf:
        low -= step / 2 if step else TOUCH * scale * (inside.min() <= low)
    if high < inf:
        high += step / 2 if step else TOUCH * scale * (inside.max() >= high)
    if low > -inf and high < inf:
        return Link("between", low, high)
    return Link("above", low, scale) if low > -inf else Link("below", high, scale)


def _inside(margin: Margin, column: Column, values: Floats) -> Margin:
    """Returns a margin whose answers are mapped from all values, some beyond the bounds, to those within."""
    low, high = column.firm_bounds()
    inside = values[~_is_outside(column, values)]
    if not len(inside):
        ends = [end for end in (low, high) if abs(end) < inf]
        inside = np.linspace(ends[0], ends[-1], N_ANSWERS)
    shares = (np.arange(N_ANSWERS) + 0.5) / N_ANSWERS
    start, first = np.unique(np.quantile(values, shares), return_index=True)
    answers = np.quantile(inside, shares)[first]
    return replace(margin, values=torch.from_numpy(start), answers=torch.from_numpy(answers))


def _censored_margin(column: Column, values: Floats, censored: npt.NDArray[np.bool_]) -> Margin:
    """Returns a margin with the censored values beyond the limits, where the tail of the rest goes on."""
    limits = {
        name: limit
        for name in ("censored_below", "censored_above")
        if (limit := getattr(column, name)) is not None
    }
    known = np.sort(values[~censored])
    if len(known) < FEWEST_KNOWN or known[0] == known[-1]:
        ends = np.array([*limits.values(), *known, values.min(), values.max()])
        return _reliable(replace(_line(Link(), ends), **limits), values)
    links = [_bounded_link(column, known)] if _is_bounded(column) else [Link()]
    if not _is_bounded(column) and known[0] > 0 and limits.get("censored_below", 1.0) > 0:
        links.append(Link("log"))
    below, above = float((values < known[0]).mean()), float((values > known[-1]).mean())
    z = ndtri(below + (1 - below - above) * (np.arange(len(known)) + 0.5) / len(known))
    places = [link.forward(torch.from_numpy(known)).numpy() for link in links]
    fits = [float(np.corrcoef(z, u)[0, 1]) for u in places]
    best = int(np.argmax(fits))
    if fits[best] > LINEAR or len(known) < FEWEST_VALUES:
        slope, centre = np.polyfit(z, places[best], 1)
        margin = _through(links[best], centre, slope)
    else:
        margin = _spline(links[best], known, below=below, above=above)
    return _reliable(_with_room(replace(margin, **limits), values), values)
