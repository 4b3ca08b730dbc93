r"""Margins: transformations of a numeric column to scores that are approximately standard normal, and back.

A value has a single score z, or an interval of scores. The latter holds for integers, ordered levels,
frequent single values (atoms), and values that are known only to lie beyond a detection limit. Such a value
enters a Gaussian model as its expected score :math:`\mathrm{E}[z \mid \text{interval}]`, divided by the
reliability

.. math:: r = \operatorname{Var} \mathrm{E}[z \mid \text{interval}] \le 1 .

The quotient equals z plus uncorrelated noise of variance :math:`(1 - r) / r`. Its covariances with other
columns are therefore those of z, and only its variance must be corrected for the noise.

Links are smooth, strictly increasing maps between the values of a column and the real line.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, log, pi, sqrt
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.special import log_ndtr, ndtr

LinkKind = Literal["identity", "log", "yeo-johnson", "above", "below", "between", "power"]
LINKS: tuple[str, ...] = get_args(LinkKind)
# These guards follow from the range and the precision of doubles; they do not depend on the data.
NEAREST = 1e-12  # minimum distance from a bound, relative to the scale
LARGEST_RATIO = 1e100  # squares of larger ratios might overflow
LARGEST_LOG = 709.0  # logarithm of the largest number that a float can represent
EXACT_POWER = 1e-8  # a Yeo-Johnson power nearer to 0 or 2 than this is the logarithm


@dataclass(frozen=True)
class Link:
    r"""One map and its parameters.

    ``identity``: :math:`u = x`; ``log``: :math:`u = \log x`; ``yeo-johnson``: of
    :math:`(x - \text{first}) / \text{second}` with the power `third` between 0 and 2, where it covers the
    real line; ``above`` and ``below`` a bound `first`: the inverse of a softplus with the scale `second`,
    which is the identity far from the bound; ``between`` `first` and `second`: the logit; ``power`` (Box-Cox)
    of :math:`x / \text{second}` with the positive exponent `third`, for positive values.

    Examples
    --------
    >>> link = Link("between", 0.0, 100.0)
    >>> link.inverse(link.forward(torch.tensor([1.0, 50.0, 99.0]))).round().tolist()
    [1.0, 50.0, 99.0]
    """

    kind: LinkKind = "identity"
    first: float = 0.0
    second: float = 1.0
    third: float = 1.0

    def check(self) -> None:
        """Raises a ValueError unless the parameters are those of an increasing map."""
        holds = abs(self.first) < inf and abs(self.second) < inf
        match self.kind:
            case "yeo-johnson":
                holds = holds and self.second > 0 and 0 <= self.third <= 2
            case "power":
                holds = holds and self.second > 0 and 0 < self.third < inf
            case "above" | "below":
                holds = holds and self.second > 0
            case "between":
                holds = holds and self.first < self.second
        if not holds:
            raise ValueError(f"The link function {self} of a margin is not an increasing map.")

    def forward(self, x: Tensor) -> Tensor:
        """Returns the images of values on the real line; values beyond a bound are moved next to it."""
        match self.kind:
            case "identity":
                return x
            case "log":
                return x.clamp(min=torch.finfo(x.dtype).tiny).log()
            case "yeo-johnson":
                return _yeo_johnson(
                    ((x - self.first) / self.second).clamp(-LARGEST_RATIO, LARGEST_RATIO), self.third
                )
            case "above":
                return _inverse_softplus((x - self.first) / self.second)
            case "below":
                return -_inverse_softplus((self.first - x) / self.second)
            case "power":
                return ((x / self.second).clamp(0.0, LARGEST_RATIO) ** self.third - 1) / self.third
        return torch.logit(((x - self.first) / (self.second - self.first)).clamp(NEAREST, 1 - NEAREST))

    def inverse(self, u: Tensor) -> Tensor:
        """Returns the values whose images on the real line are given."""
        match self.kind:
            case "identity":
                return u
            case "log":
                return u.clamp(max=LARGEST_LOG).exp()
            case "yeo-johnson":
                x = _undo_yeo_johnson(u, self.third) * self.second + self.first
                return x.nan_to_num(posinf=torch.finfo(u.dtype).max, neginf=torch.finfo(u.dtype).min)
            case "above":
                return self.first + self.second * torch.nn.functional.softplus(u)
            case "below":
                return self.first - self.second * torch.nn.functional.softplus(-u)
            case "power":
                x = self.second * (1 + self.third * u).clamp(min=0.0) ** (1 / self.third)
                return x.clamp(max=torch.finfo(u.dtype).max)
        return self.first + (self.second - self.first) * torch.sigmoid(u)

    def log_slope(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\log du / dx`."""
        match self.kind:
            case "identity":
                return torch.zeros_like(x)
            case "log":
                return -self.forward(x)
            case "yeo-johnson":
                y = ((x - self.first) / self.second).clamp(-LARGEST_RATIO, LARGEST_RATIO)
                power = torch.where(y >= 0, self.third - 1, 1 - self.third)
                return power * y.abs().log1p() - _log(self.second)
            case "above":
                return -_log_sigmoid_of_softplus((x - self.first) / self.second) - _log(self.second)
            case "below":
                return -_log_sigmoid_of_softplus((self.first - x) / self.second) - _log(self.second)
            case "power":
                y = (x / self.second).clamp(torch.finfo(x.dtype).tiny, LARGEST_RATIO)
                return (self.third - 1) * y.log() - _log(self.second)
        share = ((x - self.first) / (self.second - self.first)).clamp(NEAREST, 1 - NEAREST)
        return -share.log() - (-share).log1p() - _log(self.second - self.first)


def _log(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float64).log())


def inverse_softplus(y: Tensor) -> Tensor:
    """Returns the t with log(1 + exp(t)) = y, for y > 0.

    Examples
    --------
    >>> inverse_softplus(torch.nn.functional.softplus(torch.tensor([-3.0, 0.5, 40.0])))
    tensor([-3.0000,  0.5000, 40.0000])
    """
    return y + torch.log(-torch.expm1(-y))


def _inverse_softplus(t: Tensor) -> Tensor:
    return inverse_softplus(t.clamp(min=NEAREST))


def _log_sigmoid_of_softplus(t: Tensor) -> Tensor:
    r"""Returns :math:`\log dt/du` where t is the softplus of u: :math:`\log(1 - e^{-t})`."""
    return (-torch.expm1(-t.clamp(min=NEAREST))).log()


def _yeo_johnson(y: Tensor, power: float) -> Tensor:
    return torch.where(y >= 0, _box_cox(y.clamp(min=0), power), -_box_cox((-y).clamp(min=0), 2 - power))


def _undo_yeo_johnson(u: Tensor, power: float) -> Tensor:
    up, down = u.clamp(min=0), (-u).clamp(min=0)
    return torch.where(u >= 0, _undo_box_cox(up, power), -_undo_box_cox(down, 2 - power))


def _box_cox(y: Tensor, power: float) -> Tensor:
    """Returns ((1 + y)^power - 1) / power for y of at least 0, without loss of digits for small y."""
    if power < EXACT_POWER:
        return y.log1p()
    return torch.expm1(power * y.log1p()) / power


def _undo_box_cox(u: Tensor, power: float) -> Tensor:
    if power < EXACT_POWER:
        return torch.expm1(u.clamp(max=LARGEST_LOG))
    return torch.expm1((power * u).log1p() / power)


# Nodes of quadrature under a standard normal, and weights that are divided by their sum where they are used.
NODES, WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(32))
INNER = WEIGHTS > 1e-9 * WEIGHTS.sum()  # nodes that matter to a mean
INNER_NODES, INNER_SHARES = NODES[INNER], WEIGHTS[INNER] / WEIGHTS[INNER].sum()
# The other numbers are guesses, except those that follow from the precision of doubles: no measurement chose
# them. `NO_SCORE_BELOW` has a probability of 1e-16, below the distance of neighbouring doubles at 1.
AT_ONCE = 8_192  # values whose nodes are in memory together
TAIL_LEVELS = 10  # whole numbers beyond the observed ones that count in a mean
NARROWEST = 1e-250  # probability of an interval
LOWEST_LOG_MASS = -500.0  # log probability of an interval, beyond which its nearest end will do
NARROW = 1e-6  # intervals of scores: where they lie matters, not how they are filled
NO_SCORE_BELOW = -8.2  # a standard normal is never there
STEEP = 1e-6  # an interval of scores narrower than this is a jump
LARGEST_STEP = 2**53  # whole numbers up to it are exact
MOST_STEPS = 2**24  # values of a lattice, which are in memory for a mean; no column was seen to have as many
MAPS = ("has_atoms", "_forward", "_backward", "_atom_moments", "_flat")  # that follow from links and knots
FIELDS = ("half", "low", "high", "censored_below", "censored_above", "reliability", "least", "greatest")


class PiecewiseLinear:
    r"""The map with knots (start, end), and slopes outside.

    Parameters
    ----------
    start, end : Tensor
        (K), in increasing order. If a start occurs twice, its value is the first or the last of its ends.
    tails : pair of float
        The slopes before the first knot and after the last.
    """

    def __init__(self, start: Tensor, end: Tensor, tails: tuple[float, float] = (0.0, 0.0)) -> None:
        self.start = start
        run = torch.diff(start)
        inner = torch.where(run > 0, torch.diff(end) / torch.where(run > 0, run, 1.0), 0.0)
        first, last = (torch.full((1,), tail, dtype=end.dtype) for tail in tails)
        steepest = torch.finfo(end.dtype).max  # runs may be next to nothing
        self.slopes = torch.cat([first, inner, last]).clamp(max=steepest)  # (K + 1)
        self.starts, self.ends = torch.cat([start[:1], start]), torch.cat([end[:1], end])

    def __call__(self, x: Tensor, *, last: bool = False) -> Tensor:
        """Returns the values at x."""
        return self.along(self.segment(x, last=last), x)

    def segment(self, x: Tensor, *, last: bool = False) -> Tensor:
        """Returns where x lies: 0 before the first knot, K after the last."""
        return torch.searchsorted(self.start, x.contiguous(), right=last)

    def along(self, segment: Tensor, x: Tensor) -> Tensor:
        """Returns the values at x, whose segments are known."""
        return self.ends[segment] + self.slopes[segment] * (x - self.starts[segment])


IDENTITY = Link()


def _none() -> Tensor:
    return torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class Margin:
    r"""A map from values x to scores z: a link, a piecewise-linear map, and optionally a lattice of values.

    Parameters
    ----------
    link : Link
        From values to the real line: u.
    places, scores, exact : Tensor
        (K), knots of the map between u and z, in increasing order, and the values x there. If a place occurs
        twice, its value has all scores between the two knots. Without knots, z equals u. Beyond the outer
        knots the map is linear, with the slopes `tails` (2), of u with respect to z.
    half : float
        Half the distance between neighbouring values, if each stands for the interval around it; else 0.
    low, high : float
        The smallest and largest value of the lattice.
    censored_below, censored_above : float
        Detection limits: values beyond them are censored.
    least, greatest : float
        Imputed values are limited to this range.
    reliability : float
        The fraction r of the variance of the scores that the values explain.
    unlimited, limited : Tensor
        (Q), knots of an increasing map from imputed values to values within the bounds of the column.
    """

    link: Link = IDENTITY
    places: Tensor = field(default_factory=_none)
    scores: Tensor = field(default_factory=_none)
    exact: Tensor = field(default_factory=_none)
    tails: tuple[float, float] = (1.0, 1.0)
    half: float = 0.0
    low: float = -inf
    high: float = inf
    censored_below: float = -inf
    censored_above: float = inf
    reliability: float = 1.0
    least: float = -inf
    greatest: float = inf
    unlimited: Tensor = field(default_factory=_none)
    limited: Tensor = field(default_factory=_none)

    def adjusted(self, **settings: float) -> "Margin":
        """Returns the margin with other limits or another reliability, which do not affect its maps."""
        margin = replace(self, **settings)  # type: ignore[arg-type]
        margin.__dict__.update({name: self.__dict__[name] for name in MAPS if name in self.__dict__})
        return margin

    @cached_property
    def has_atoms(self) -> bool:
        """Whether some values that are not on a lattice have intervals of scores."""
        return not self.half and bool((torch.diff(self.places) == 0).any())

    @property
    def is_censored(self) -> bool:
        """Whether there is a detection limit."""
        return self.censored_below > -inf or self.censored_above < inf

    @cached_property
    def _forward(self) -> "PiecewiseLinear":
        before, after = (1 / tail if tail > 0 else inf for tail in self.tails)
        return PiecewiseLinear(self.places, self.scores, (before, after))

    @cached_property
    def _backward(self) -> "PiecewiseLinear":
        return PiecewiseLinear(self.scores, self.places, self.tails)

    @property
    def noise(self) -> float:
        """The noise variance of the score of a value around its z."""
        return (1 - self.reliability) / self.reliability

    @property
    def by_interval(self) -> bool:
        """Whether some values correspond to intervals of scores."""
        return self.reliability < 1

    def interval(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the least and greatest score of each value; they are equal where a value has one score."""
        if self.half:
            below = torch.where(x - self.half <= self.low, -inf, self.score(x - self.half))
            above = torch.where(x + self.half >= self.high, inf, self.score(x + self.half))
        elif self.has_atoms:
            place = self.link.forward(x)
            below, above = self._forward(place), self._forward(place, last=True)
            above = torch.where(above - below < NARROW, below, above)
        else:
            below = above = self.score(x)
        if not self.is_censored:
            return below, above
        limits = torch.tensor([self.censored_below, self.censored_above], dtype=x.dtype)
        cut = self.score(limits.clamp(torch.finfo(x.dtype).min, torch.finfo(x.dtype).max))
        censored = x < self.censored_below
        below, above = torch.where(censored, -inf, below), torch.where(censored, cut[0], above)
        censored = x > self.censored_above
        return torch.where(censored, cut[1], below), torch.where(censored, inf, above)

    def edge_scores(self, x: Tensor) -> Tensor:
        """Returns the scores of the edges between lattice values, infinite at the ends of the lattice."""
        closed = torch.where(x <= self.low, -inf, self.score(x))
        return torch.where(x >= self.high, inf, closed)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scores of values, as models use them."""
        if not self.by_interval:
            return self.score(x)
        if self.half:
            levels, which = _distinct(x, 2 * self.half)
            below, above = self.interval(levels)
            expected: Tensor = (truncated_moments(below, above)[0] / self.reliability)[which]
            return expected
        if self.is_censored:
            below, above = self.interval(x)
            wide = above > below
            scores = below.clone()
            scores[wide] = truncated_moments(below[wide], above[wide])[0]
            return scores / self.reliability
        place = self.link.forward(x)
        first, last = self._forward.segment(place), self._forward.segment(place, last=True)
        one = self._forward.along(first, place)
        return torch.where(last - first > 1, self._atom_moments[0][first], one) / self.reliability

    def atom_variance(self) -> float:
        """Returns the mean variance of the scores of values, which is 0 for values that are not atoms."""
        atoms = (torch.diff(self.places) == 0).nonzero().squeeze(1)
        ends = self.scores[atoms] - STEEP / 2, self.scores[atoms + 1] + STEEP / 2
        mass = log_mass(*ends).exp()
        return float(mass @ self._atom_moments[1][atoms])

    @cached_property
    def _atom_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance (K + 1) of the scores of atoms, at their first knots; 0 at other knots."""
        moments = torch.zeros(2, len(self.scores) + 1, dtype=self.scores.dtype)
        atoms = (torch.diff(self.places) == 0).nonzero().squeeze(1)
        moments[:, atoms] = torch.stack(truncated_moments(self.scores[atoms], self.scores[atoms + 1]))
        return moments[0], moments[1]

    def inverse(self, z: Tensor) -> Tensor:
        """Returns the values at scores."""
        x = self._value(z).clamp(self.least, self.greatest)
        if self.half:
            step = 2 * self.half
            x = (torch.round(x / step) * step).clamp(self.low + self.half, self.high - self.half)
        return PiecewiseLinear(self.unlimited, self.limited)(x) if len(self.unlimited) else x

    def log_slope(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\log dz/dx` at values with one score each."""
        slope = self.link.log_slope(x)
        if not len(self.places):
            return slope
        place = self.link.forward(x)
        i = torch.searchsorted(self.places, place, right=True)
        rise = torch.diff(self.scores) / torch.diff(self.places)
        ends = 1 / torch.tensor(self.tails, dtype=x.dtype)
        return slope + torch.cat([ends[:1], rise, ends[1:]])[i].log()

    def log_density(self, x: Tensor) -> Tensor:
        """Returns the log density of values with standard normal scores; the log mass of intervals."""
        below, above = self.interval(x)
        spread = above > below
        density = -0.5 * below.square() - 0.5 * log(2 * pi) + self.log_slope(x)
        return torch.where(spread, log_mass(below, above), density)

    def mean(self, mean: Tensor, std: Tensor) -> Tensor:
        """Returns the expected value where scores are normal with the given means and deviations (N).

        By quadrature, with jumps of the value taken exactly.
        """
        parts = zip(mean.split(AT_ONCE), std.split(AT_ONCE), strict=True)
        return torch.cat([self._mean(*part) for part in parts])

    def _mean(self, mean: Tensor, std: Tensor) -> Tensor:
        if self.half and not len(self.unlimited):
            levels, edges = self._lattice()
            reached = torch.erf((mean.unsqueeze(-1) - edges) / (sqrt(2) * std.unsqueeze(-1)).clamp(min=1e-9))
            expected: Tensor = levels[0] + self.half * (len(edges) + reached.sum(dim=-1))
            return expected
        nodes = mean.unsqueeze(-1) + std.unsqueeze(-1) * INNER_NODES
        total: Tensor = self.inverse(nodes) @ INNER_SHARES
        for edge, height in zip(*self._jumps, strict=True):
            passed = (nodes > edge).to(nodes.dtype) @ INNER_SHARES
            total = total + height * (ndtr((mean - edge) / std.clamp(min=1e-9)) - passed)
        return total

    def ends(self, mean: Tensor, std: Tensor, level: float) -> tuple[Tensor, Tensor]:
        """Returns the ends, included, of intervals with probability `level` if scores are normal.

        A value with a positive probability belongs to the interval if more than half of its probability does;
        a surplus or deficit of probability at the lower end is compensated at the upper end.
        """
        tail = (1 - level) / 2
        low, below, above = self._around(mean, std, torch.full_like(mean, tail))
        left_out = (above > below) & (below + above < 2 * tail)
        low = torch.where(left_out, self._beside(low, 1), low)
        reached = (level + torch.where(left_out, above, below)).clamp(max=1 - tail / 2)
        reached = torch.where(above > below, reached, 1 - tail)
        high, below, above = self._around(mean, std, reached)
        high = torch.where((above > below) & (below + above > 2 * reached), self._beside(high, -1), high)
        return low, torch.maximum(low, high)

    def _around(self, mean: Tensor, std: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the values at quantiles, and the probabilities of values below and up to them."""
        value = self.inverse(mean + std * torch.special.ndtri(share))
        below, above = (ndtr((end - mean) / std.clamp(min=1e-9)) for end in self.interval(value))
        return value, below, above

    def _beside(self, x: Tensor, side: int) -> Tensor:
        """Returns the next larger, or smaller, value of one that has an interval of scores."""
        end = self.interval(x)[1 if side > 0 else 0].clamp(NO_SCORE_BELOW, -NO_SCORE_BELOW)
        return self.inverse(end + 2 * side * STEEP)

    def state(self) -> dict[str, Tensor]:
        """Returns everything as tensors."""
        link = [float(LINKS.index(self.link.kind)), self.link.first, self.link.second, self.link.third]
        settings = [*link, *self.tails, *(getattr(self, name) for name in FIELDS)]
        return {
            "settings": torch.tensor(settings, dtype=torch.float64).nan_to_num(),  # files hold finite numbers
            "knots": torch.stack([self.places, self.scores, self.exact]),
            "answers": torch.stack([self.unlimited, self.limited]),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Margin":
        """Rebuilds a margin from what `state` returned."""
        largest = torch.finfo(torch.float64).max
        stored = state["settings"].to(torch.float64)
        settings = torch.where(stored.abs() == largest, stored.sign() * inf, stored).tolist()
        knots, limits = state["knots"], state["answers"]
        if knots.dtype != torch.float64 or limits.dtype != torch.float64:
            raise ValueError(f"The knots of a margin have the type {knots.dtype} or {limits.dtype}.")
        if len(settings) != 6 + len(FIELDS) or knots.shape[:-1] != (3,) or limits.shape[:-1] != (2,):
            raise ValueError("The tensors of a margin do not fit together.")
        kind, first, second, third, *rest = settings
        if kind not in range(len(LINKS)):
            raise ValueError(f"A margin has an unknown link function: {kind!r}.")
        link = Link(LINKS[int(kind)], first, second, third)  # type: ignore[arg-type]
        fields = dict(zip(FIELDS, rest[2:], strict=True))
        tails = (rest[0], rest[1])
        places, scores, exact = knots
        link.check()
        margin = cls(link, places, scores, exact, tails, unlimited=limits[0], limited=limits[1], **fields)
        margin._check()
        return margin

    def _check(self) -> None:
        """Raises a ValueError unless the maps increase and the limits are possible ones."""
        knots = (self.places, self.scores, self.unlimited, self.limited)
        falls = any(bool((torch.diff(one) < 0).any()) for one in knots)
        if falls or not all(0 < slope < inf for slope in self.tails):
            raise ValueError("A margin does not increase.")
        ordered = self.low <= self.high and self.least <= self.greatest
        if not ordered or not 0 < self.reliability <= 1 or not 0 <= self.half < inf:
            raise ValueError("The limits of a margin contradict each other.")
        if self.half:
            ends = self._value(self.scores[[0, -1]]) / (2 * self.half)
            if not ends.abs().max() < LARGEST_STEP or ends[1] - ends[0] > MOST_STEPS:
                raise ValueError(f"A margin has more than {MOST_STEPS} values.")

    def score(self, x: Tensor) -> Tensor:
        """Returns the score of values; the smallest score of values that have an interval."""
        place = self.link.forward(x)
        return self._forward(place) if len(self.places) else place

    def _value(self, z: Tensor) -> Tensor:
        """Returns the values at scores, before rounding."""
        if not len(self.places):
            return self.link.inverse(z)
        segment = self._backward.segment(z)
        x = self.link.inverse(self._backward.along(segment, z))
        if not self.has_atoms:
            return x
        flat, atoms = self._flat
        return torch.where(flat[segment], atoms[segment], x)  # as they were, whatever the link rounds

    @cached_property
    def _flat(self) -> tuple[Tensor, Tensor]:
        """Whether segments (K + 1) of scores are those of an atom, and which value it is."""
        flat = torch.nn.functional.pad(torch.diff(self.places) == 0, (1, 1))
        return flat, torch.cat([self.exact[:1], self.exact])

    def _lattice(self) -> tuple[Tensor, Tensor]:
        """Returns the lattice values (L) with relevant probability, and the scores (L - 1) between them."""
        step = 2 * self.half
        ends = self._value(torch.stack([self.scores[0], self.scores[-1]]))
        low = max(float(ends[0]) - TAIL_LEVELS * step, self.low + self.half)
        high = min(float(ends[1]) + TAIL_LEVELS * step, self.high - self.half)
        levels = torch.arange(round(low / step), round(high / step) + 1, dtype=torch.float64) * step
        return levels, self.score(levels[:-1] + self.half)

    @cached_property
    def _jumps(self) -> tuple[list[float], list[float]]:
        """The scores at which the value jumps, and the heights of the jumps."""
        steep = (torch.diff(self.scores) <= 1.5 * STEEP) & (torch.diff(self.places) > 0)
        if not bool(steep.any()):
            return [], []
        heights = torch.diff(self.inverse(self.scores))
        return self.scores[:-1][steep].tolist(), heights[steep].tolist()


def _distinct(x: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Returns the distinct values of x and the index of each element; fast if x are integer steps."""
    numbers = torch.round(x / step)
    first, last = (float(end) for end in numbers.aminmax()) if len(x) else (0.0, 0.0)
    if last - first < len(x):
        levels = torch.arange(first, last + 1, dtype=x.dtype) * step
        which = (numbers - first).long()
        if torch.equal(levels[which], x):
            return levels, which
    levels, which = x.unique(return_inverse=True)
    return levels, which


def truncated_moments(below: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean and variance of a standard normal between two scores, either of which may be infinite."""
    flipped = below > 0  # probabilities are small differences of numbers near 1 on that side
    low, high = torch.where(flipped, -above, below), torch.where(flipped, -below, above)
    mass = log_mass(low, high)
    ends = [torch.exp(-0.5 * end.square() - 0.5 * log(2 * pi) - mass) for end in (low, high)]
    mean = ends[0] - ends[1]
    weighted = [end.nan_to_num(posinf=0.0, neginf=0.0) * p for end, p in zip((low, high), ends, strict=True)]
    variance = (1 + weighted[0] - weighted[1] - mean.square()).clamp(0.0, 1.0)
    narrow, remote = high - low < NARROW, mass < LOWEST_LOG_MASS
    nearest = torch.where(high.isinf(), low, high)
    mean = torch.where(narrow, 0.5 * (low + high), torch.where(remote, nearest, mean)).clamp(low, high)
    return torch.where(flipped, -mean, mean), torch.where(narrow | remote, 0.0, variance)


def log_mass(below: Tensor, above: Tensor) -> Tensor:
    """Returns the log probability of a standard normal between two scores."""
    flipped = below > 0
    low, high = torch.where(flipped, -above, below), torch.where(flipped, -below, above)
    upper, lower = log_ndtr(high), log_ndtr(low)
    share: Tensor = (-torch.expm1((lower - upper).nan_to_num(nan=-inf, neginf=-inf))).clamp(min=NARROWEST)
    mass: Tensor = upper + share.log()
    return mass
