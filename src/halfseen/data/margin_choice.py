r"""Which margin a column has: chosen by the likelihood of held-out values, the simpler one if in doubt."""

from dataclasses import replace
from math import inf, log, pi, sqrt

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtr, ndtri

from halfseen.data.columns import Column
from halfseen.data.frames import Floats
from halfseen.data.links import Link
from halfseen.data.margin_fits import (
    fit_exponent,
    knots_of,
    line,
    reliable,
    spline,
    spread_ties,
    tails_of,
    thresholds,
    through,
)
from halfseen.data.margins import NARROWEST, Margin, log_mass

LARGEST = 1e100  # numbers beyond stay as they are
FEWEST_VALUES = 50  # with fewer, a column is Gaussian unless it has bounds or limits
MOST_VALUES = 2_000  # on which a choice is based
MOST_LEVELS = 40  # whole numbers that are thresholds; with more they are nearly continuous
ATOM_SHARE, ATOM_COUNT = 0.05, 10  # of the values, that one value needs to be an atom
N_FOLDS = 3
LOWEST = -1e3  # log density of a held-out value
GAIN = 0.01  # in nats per value that a less simple margin must gain at least, beside half a standard error
NOT_NORMAL = 4.0  # standard errors of skewness or kurtosis
TOUCH = 0.03  # of a scale: how far a bound that values touch is moved outwards
ROOM = 0.25  # of the range of values, by which answers may go beyond it
FEWEST_KNOWN = 10  # values that are not censored, to choose a link from
LINEAR = 0.995  # correlation of values with scores from which they are on a line
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
    low, high = values.min(), values.max()
    if len(values) < FEWEST_VALUES or not ((values > low) & (values < high)).any():
        return bounded_margin(column, values)
    step = column.code_step
    if step and (high - low) / step < MOST_LEVELS:
        return _lattice_margin(column, values, step)
    return _real_margin(column, values)


def bounded_margin(column: Column, values: Floats) -> Margin | None:
    """Returns the smooth map that keeps a column within its firm bounds and is no more; None without."""
    if not len(values) or not _is_bounded(column) or not _is_ordinary(values):
        return None
    if _is_outside(column, values).any():
        return _inside(Margin(), column, values)
    return line(_bounded_link(column, values), values)


def _is_ordinary(values: Floats) -> bool:
    """Returns whether squares neither overflow nor vanish."""
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
    """Chooses thresholds unless held-out values prefer a Gaussian, or a column is bounded."""
    if not _is_bounded(column) and not _best(_held_out_lattice(column, _some(values), step)):
        return None
    return reliable(thresholds(column, values, step), values)


def _held_out_lattice(column: Column, values: Floats, step: float) -> Floats:
    """Returns log probabilities (2, N) of held-out values: under a Gaussian, and by thresholds.

    Values are few and each occurs often, so probabilities are those of values, found once in each fold.
    """
    numbers = np.round(values / step).astype(np.int64)
    numbers -= (first := int(numbers.min()))
    levels = step * np.arange(first, first + numbers.max() + 1)
    edges = np.append(levels - step / 2, levels[-1] + step / 2)
    folds = _folds(len(values))
    ends = np.empty((2, N_FOLDS, len(edges)))
    for fold in range(N_FOLDS):
        counts = np.bincount(numbers[folds != fold], minlength=len(levels)).astype(np.float64)
        seen = counts > 0
        gaussian = line(Link(), levels[seen], counts[seen])
        lattice = thresholds(column, levels[seen], step, counts[seen])
        ends[:, fold] = [fit.edge_scores(torch.from_numpy(edges)).numpy() for fit in (gaussian, lattice)]
    found = torch.from_numpy(ends)
    probabilities: Floats = log_mass(found[..., :-1], found[..., 1:]).numpy()
    return probabilities[:, folds, numbers]


# Real numbers


def _real_margin(column: Column, values: Floats) -> Margin | None:
    bounded, atoms = _is_bounded(column), _find_atoms(values)
    if not bounded and not len(atoms) and _looks_normal(values):
        return None
    some = spread_ties(_some(values), column.code_step)
    links = [_bounded_link(column, values)] if bounded else _links(some)
    x = torch.from_numpy(some)
    places = np.stack([link.forward(x).numpy() for link in links])
    slopes = np.stack([link.log_slope(x).numpy() for link in links])
    with np.errstate(over="ignore"):  # of values that are too far from the rest to be squared
        best = int(np.argmin(np.log(places.std(axis=1).clip(NARROWEST)) - slopes.mean(axis=1)))
        chosen = len(links) if len(atoms) else _best(_held_out(places, slopes, best))
    if chosen == 0 and not bounded:
        return None
    if chosen < len(links):
        margin = line(links[chosen], values)
    else:
        margin = spline(links[best], spread_ties(values, column.code_step, atoms), atoms)
    return reliable(_with_room(margin, values), values)


def _links(values: Floats) -> list[Link]:
    """Returns the links that values may have, the simplest first."""
    bent = fit_exponent(Link("yeo-johnson", float(values.mean()), float(values.std())), values)
    if values[0] <= 0:
        return [Link(), bent]
    return [Link(), Link("log"), fit_exponent(Link("power", second=float(np.median(values))), values), bent]


def _held_out(places: Floats, slopes: Floats, best: int) -> Floats:
    """Returns log densities (L + 1, N) of held-out values: of lines past each link, and of a spline past one.

    Shapes
    ------
    places, slopes : (L, N), of ordered values past each link, and the log slopes of the links there.
    """
    scores = np.concatenate([slopes, slopes[best : best + 1]])
    folds = _folds(places.shape[1])
    for fold in range(N_FOLDS):
        test = folds == fold
        train = places[:, ~test]
        centre, spread = train.mean(axis=1), train.std(axis=1).clip(NARROWEST)
        z = (places[:, test] - centre[:, None]) / spread[:, None]
        scores[:-1, test] += _log_normal(z) - np.log(spread)[:, None]
        scores[-1, test] += _spline_density(train[best], places[best, test])
    return scores


def _spline_density(train: Floats, test: Floats) -> Floats:
    """Returns the log density of places by the normal scores of others, which are in order."""
    z = ndtri((np.arange(len(train)) + 0.5) / len(train))
    knots = knots_of(z)
    places = np.interp(knots, z, train)
    keep = np.r_[True, np.diff(places) > 0]
    knots, places = knots[keep], places[keep]
    tails = tails_of(train, z, places, knots)
    below, above = np.minimum(test - places[0], 0) / tails[0], np.maximum(test - places[-1], 0) / tails[1]
    rises = np.r_[1 / tails[0], np.diff(knots) / np.diff(places), 1 / tails[1]]
    rise = rises[np.searchsorted(places, test, side="right")]
    density: Floats = _log_normal(np.interp(test, places, knots) + below + above) + np.log(rise)
    return density


def _log_normal(z: Floats) -> Floats:
    found: Floats = -0.5 * z**2 - 0.5 * log(2 * pi)
    return found


def _some(values: Floats) -> Floats:
    """Returns the values, or a subsample on which a choice is based."""
    if len(values) <= MOST_VALUES:
        return values
    return np.random.default_rng(0).choice(values, MOST_VALUES, replace=False)


def _folds(n: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(0).permutation(n) % N_FOLDS


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
    """Returns whether skewness, kurtosis and the distance of distribution functions allow a normal."""
    n, spread = len(values), values.std()
    if not 0 < spread < inf:
        return True  # nothing that could be bent, or too large to be squared
    z = (values - values.mean()) / spread
    square = z * z
    skewness, kurtosis = (square * z).mean(), (square * square).mean()
    if abs(skewness) > NOT_NORMAL * sqrt(6 / n) or abs(kurtosis - 3) > NOT_NORMAL * sqrt(24 / n):
        return False
    levels = (np.arange(n) + 0.5) / n
    distance = np.abs(ndtr(np.sort(z)) - levels).max()
    return bool(distance < 1.0 / sqrt(n))


# The choice


def _best(scores: Floats) -> int:
    """Returns which fit (F) has the best held-out likelihoods (F, N); a later one must be clearly better."""
    scores, best = scores.clip(LOWEST), 0
    for i in range(1, len(scores)):
        gain = scores[i] - scores[best]
        if gain.mean() > GAIN + 0.5 * gain.std() / sqrt(len(gain)):
            best = i
    return best


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
