r"""Choice of the margin of a column by held-out likelihood; simpler margins are preferred."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, log, pi, sqrt

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data.columns import Column
from halfseen.data.margin_fits import (
    LEAST_SLOPE,
    TAIL_SPAN,
    fit_exponents,
    knots_of,
    line,
    reliable,
    spline,
    spread_ties,
    thresholds,
    through,
)
from halfseen.data.margins import LARGEST_RATIO, NARROWEST, Link, Margin, log_mass

# Comparison of candidate margins for many columns at once.
#
# A candidate is a normal distribution after one of several links, or a spline of normal scores after the
# best link. All samples have the same size, so that a comparison needs few operations on arrays of columns
# by values.

Indices = Integers

# Guesses: three folds are the fewest by which each value is predicted from most of the others, and the least
# gain keeps the simpler margin where the difference hardly matters.
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
class _Transformed:
    """Samples after four kinds of links (4, G, Q), log slopes, and which links (4, G) are possible."""

    links: list[list[Link]]
    places: Floats
    slopes: Floats
    valid: Booleans


def compare_margins(
    samples: Floats, bounds: Sequence[Link | None], spline_only: Sequence[bool]
) -> list[Choice]:
    """Returns the choice of each column, by samples (G, Q) in order.

    A bounded column has the link of its bounds and no other. Columns that are `spline_only` get a spline.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of values that are too far from the rest
        linked = _apply_links(samples, bounds)
        spread = np.log(linked.places.std(axis=2).clip(NARROWEST)) - linked.slopes.mean(axis=2)
        best = np.where(linked.valid, spread, np.inf).argmin(axis=0)
        chosen = np.full(len(samples), len(linked.links))
        some = np.flatnonzero(~np.asarray(spline_only))
        if len(some):
            scores = _held_out(linked.places[:, some], linked.slopes[:, some], best[some])
            valid = np.concatenate([linked.valid[:, some], np.ones((1, len(some)), dtype=bool)])
            chosen[some] = clearly_best(scores, valid)
    return [
        Choice(linked.links[b][g], linked.links[c][g] if c < len(linked.links) else None, bool(c == 0))
        for g, (b, c) in enumerate(zip(best.tolist(), chosen.tolist(), strict=True))
    ]


def _apply_links(samples: Floats, bounds: Sequence[Link | None]) -> _Transformed:
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
    return _Transformed(links, places, slopes, np.stack([np.ones_like(free), positive, positive, free]))


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


def clearly_best(scores: Floats, valid: Booleans) -> Indices:
    """Returns the best candidate (G) by held-out likelihoods (F, G, Q); later ones must be clearly better."""
    scores = scores.clip(LOWEST)
    current, chosen = scores[0].copy(), np.zeros(scores.shape[1], dtype=np.int64)
    for i in range(1, len(scores)):
        gain = scores[i] - current
        better = valid[i] & (gain.mean(axis=1) > GAIN + 0.5 * gain.std(axis=1) / sqrt(gain.shape[1]))
        current = np.where(better[:, None], scores[i], current)
        chosen[better] = i
    return chosen


# `LARGEST` and `MOST_EXACT` follow from the range and the precision of doubles. The others are guesses that
# no measurement chose: they say from how many values, and from how clear a departure, a margin is estimated.
LARGEST = 1e100  # larger numbers are not transformed
FEWEST_VALUES = 50  # with fewer, a column is Gaussian unless it has bounds or limits
MOST_VALUES = 2_000  # maximum number of lattice values on which a choice is based
# Sizes of samples of real numbers, on which a choice is based.
SAMPLES = 2 ** (np.arange(5 * 4, 10 * 4 + 1) / 4)
MOST_LEVELS = 40  # maximum number of integers modelled by thresholds; more are nearly continuous
MOST_EXACT = 2.0**51  # steps from zero up to which floats resolve halves of a step
ATOM_SHARE, ATOM_COUNT = 0.05, 10  # minimum share and number of equal values that make an atom
NOT_NORMAL = 4.0  # standard errors of skewness or kurtosis beyond which a column is not normal
TOUCH = 0.03  # shift of a bound that values touch, relative to the scale
ROOM = 0.25  # how far imputed values may exceed the range of values, relative to the range
FAR = 1e6  # standard deviations; a link bends by a millionth over the values if a bound is so far away
FEWEST_KNOWN = 10  # minimum number of uncensored values to choose a link
LINEAR = 0.995  # correlation of values and scores from which their relation counts as linear
N_BOUND_KNOTS = 50  # number of quantiles that map imputed values into the bounds


def choose_margin(column: Column, values: Floats) -> Margin | None:
    """Returns the margin of a column with the given observed codes (N); None if the column is Gaussian."""
    return choose_margins([column], [values])[0]


def choose_margins(columns: Sequence[Column], values: Sequence[Floats]) -> list[Margin | None]:
    """Returns the margins of columns with the given observed codes; None where a column is Gaussian."""
    margins: list[Margin | None] = [None] * len(columns)
    real = []
    for i, (column, x) in enumerate(zip(columns, values, strict=True)):
        if not len(x) or not _is_ordinary(x):
            continue
        if _is_outside(column, x).any():
            unbounded = replace(column, minimum=None, maximum=None, firm=False)
            margins[i] = _inside(choose_margin(unbounded, x) or Margin(), column, x)
        elif (censored := column.is_censored(x)).any():
            margins[i] = _censored_margin(column, x, censored)
        elif len(x) < FEWEST_VALUES or not _has_inner(x):
            margins[i] = bounded_margin(column, x)
        elif (step := column.code_step) and _is_lattice(x, step):
            margins[i] = _lattice_margin(column, x, step)
        else:
            real.append(i)
    found = _real_margins([columns[i] for i in real], [values[i] for i in real])
    for i, margin in zip(real, found, strict=True):
        margins[i] = margin
    return margins


def _is_lattice(values: Floats, step: float) -> bool:
    """Returns whether multiples of a step are few, and floats can represent the thresholds between them."""
    low, high = float(values.min()), float(values.max())
    return (high - low) / step < MOST_LEVELS and max(abs(low), abs(high)) / step < MOST_EXACT


def _has_inner(values: Floats) -> bool:
    """Returns whether there are more than two values."""
    low, high = values.min(), values.max()
    return bool(((values > low) & (values < high)).any())


def bounded_margin(column: Column, values: Floats) -> Margin | None:
    """Returns a margin that does nothing but keep a column within its firm bounds; None without bounds."""
    if not len(values) or not _is_bounded(column) or not _is_ordinary(values):
        return None
    if _is_outside(column, values).any():
        return _inside(Margin(), column, values)
    return line(_bounded_link(column, values), values)


def _is_ordinary(values: Floats) -> bool:
    """Returns whether squares of the values neither overflow nor underflow."""
    largest = float(np.abs(values).max())
    return largest == 0 or 1 / LARGEST < largest < LARGEST


def _is_bounded(column: Column) -> bool:
    low, high = column.firm_bounds()
    return low > -inf or high < inf


def _is_outside(column: Column, values: Floats) -> Booleans:
    low, high = column.firm_bounds()
    return (values < low) | (values > high)


# Numbers on a lattice


def _lattice_margin(column: Column, values: Floats, step: float) -> Margin | None:
    """Chooses thresholds, unless a Gaussian has a better held-out likelihood or the column is bounded."""
    numbers = np.round(values / step).astype(np.int64)
    numbers -= (first := int(numbers.min()))
    levels = step * np.arange(first, first + numbers.max() + 1)
    if not _is_bounded(column):
        # In order, so that neither the sample nor its folds depend on the order of the rows
        some = np.sort(numbers)[:: -(-len(numbers) // MOST_VALUES)]
        scores = _held_out_lattice(column, some, levels, step)
        if not clearly_best(scores[:, None], np.ones((2, 1), dtype=bool))[0]:
            return None
    counts = np.bincount(numbers).astype(np.float64)
    seen = counts > 0
    margin = _with_room(thresholds(column, levels[seen], step, counts[seen]), levels[seen])
    return reliable(margin, levels[seen], counts[seen])


def _held_out_lattice(column: Column, numbers: Integers, levels: Floats, step: float) -> Floats:
    """Returns log probabilities (2, N) of held-out values: under a Gaussian, and by thresholds.

    There are few distinct values, so the probability of each is computed once in each fold.
    """
    edges = torch.from_numpy(np.append(levels - step / 2, levels[-1] + step / 2))
    folds = fold_numbers(len(numbers))
    ends = []
    for fold in range(N_FOLDS):
        counts = np.bincount(numbers[folds != fold], minlength=len(levels)).astype(np.float64)
        seen = counts > 0
        gaussian = line(Link(), levels[seen], counts[seen])
        lattice = thresholds(column, levels[seen], step, counts[seen])
        ends.append(torch.stack([fit.edge_scores(edges) for fit in (gaussian, lattice)]))
    found = torch.stack(ends, dim=1)  # (2, F, L + 1)
    probabilities: Floats = log_mass(found[..., :-1], found[..., 1:]).numpy()
    return probabilities[:, folds, numbers]


# Real numbers


def _real_margins(columns: Sequence[Column], values: Sequence[Floats]) -> list[Margin | None]:
    """Returns the margins of columns of real numbers; samples of one size are compared together."""
    ordered = [np.sort(x) for x in values]
    atoms = [_find_atoms(x) for x in ordered]
    margins: list[Margin | None] = [None] * len(columns)
    groups: dict[int, list[int]] = {}
    for i, column in enumerate(columns):
        if _is_bounded(column) or len(atoms[i]) or not _looks_normal(ordered[i]):
            size = int(SAMPLES[np.searchsorted(SAMPLES, len(ordered[i]), side="right") - 1])
            groups.setdefault(size, []).append(i)
    for size, group in groups.items():
        samples = np.stack([_sample(ordered[i], size, columns[i].code_step) for i in group])
        bounds = [_bounded_link(columns[i], ordered[i]) if _is_bounded(columns[i]) else None for i in group]
        choices = compare_margins(samples, bounds, [len(atoms[i]) > 0 for i in group])
        for i, choice in zip(group, choices, strict=True):
            margins[i] = _chosen_margin(columns[i], ordered[i], atoms[i], choice)
    return margins


def _chosen_margin(column: Column, ordered: Floats, atoms: Floats, choice: Choice) -> Margin | None:
    if choice.simplest and not _is_bounded(column):
        return None
    if choice.line is not None:
        margin = line(choice.line, ordered)
    else:
        margin = spline(choice.best, spread_ties(ordered, column.code_step, atoms), atoms)
    return reliable(_with_room(margin, ordered), ordered)


def _sample(ordered: Floats, size: int, step: float | None) -> Floats:
    """Returns an evenly spaced subsample of ordered values; integers are spread over their intervals."""
    ranks = ((np.arange(size) + 0.5) * (len(ordered) / size)).astype(np.int64)
    return spread_ties(ordered[ranks], step)


def _with_room(margin: Margin, values: Floats) -> Margin:
    """Returns the margin with limits that keep imputed values near the range of the observed values."""
    low, high = float(values.min()), float(values.max())
    room = ROOM * high - ROOM * low
    least = max(low - room, low / 2) if margin.link.kind == "power" else low - room  # so never 0
    return margin.adjusted(least=least, greatest=high + room)


def _find_atoms(ordered: Floats) -> Floats:
    """Returns the values that make up a large part of the column (atoms)."""
    enough = max(ATOM_COUNT, ceil(ATOM_SHARE * len(ordered)))
    repeated = ordered[enough - 1 :] == ordered[: len(ordered) - enough + 1]
    return np.unique(ordered[enough - 1 :][repeated])


def _looks_normal(values: Floats) -> bool:
    """Returns whether skewness, kurtosis and distribution function are compatible with a normal."""
    n, spread = len(values), values.std()
    if not 0 < spread < inf:
        return True  # nothing to transform, or too large to be squared
    z = (values - values.mean()) / spread
    square = z * z
    skewness, kurtosis = (square * z).mean(), (square * square).mean()
    if abs(skewness) > NOT_NORMAL * sqrt(6 / n) or abs(kurtosis - 3) > NOT_NORMAL * sqrt(24 / n):
        return False
    levels = (np.arange(n) + 0.5) / n
    distance = np.abs(ndtr(z) - levels).max()
    return bool(distance < 1.0 / sqrt(n))


# Bounds and limits


def _bounded_link(column: Column, values: Floats) -> Link:
    """Returns the link of the bounds; a bound that values touch is moved outwards a little.

    A bound that is very far from the values has no influence: the link would be a line, computed inexactly.
    """
    low, high = column.firm_bounds()
    step = column.code_step or 0.0
    inside = np.clip(values, low, high)
    scale = float(inside.std()) or 1.0
    low = low if inside.min() - low < FAR * scale else -inf
    high = high if high - inside.max() < FAR * scale else inf
    if low == -inf and high == inf:
        return Link()
    if low > -inf:
        low -= step / 2 if step else TOUCH * scale * (inside.min() <= low)
    if high < inf:
        high += step / 2 if step else TOUCH * scale * (inside.max() >= high)
    if low > -inf and high < inf:
        return Link("between", low, high)
    return Link("above", low, scale) if low > -inf else Link("below", high, scale)


def _inside(margin: Margin, column: Column, values: Floats) -> Margin:
    """Returns a margin whose imputed values follow the distribution of the values within the bounds."""
    low, high = column.firm_bounds()
    inside = values[~_is_outside(column, values)]
    if not len(inside):
        ends = [end for end in (low, high) if abs(end) < inf]
        inside = np.linspace(ends[0], ends[-1], N_BOUND_KNOTS)
    shares = (np.arange(N_BOUND_KNOTS) + 0.5) / N_BOUND_KNOTS
    unlimited, first = np.unique(np.quantile(values, shares), return_index=True)
    limited = np.quantile(inside, shares)[first]
    return replace(margin, unlimited=torch.from_numpy(unlimited), limited=torch.from_numpy(limited))


def _censored_margin(column: Column, values: Floats, censored: Booleans) -> Margin:
    """Returns a margin in which the tail of the uncensored values continues beyond the detection limits."""
    limits = {
        name: limit
        for name in ("censored_below", "censored_above")
        if (limit := getattr(column, name)) is not None
    }
    known = np.sort(values[~censored])
    if len(known) < FEWEST_KNOWN or known[0] == known[-1]:
        reached = [limit for limit in limits.values() if values.min() < limit < values.max()]
        ends = np.array([*reached, *known, values.min(), values.max()])
        return reliable(replace(line(Link(), ends), **limits), values)
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
        margin = through(links[best], centre, slope)
    else:
        margin = spline(links[best], known, below=below, above=above)
    return reliable(_with_room(replace(margin, **limits), values), values)
