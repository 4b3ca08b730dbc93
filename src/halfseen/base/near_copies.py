"""A warning about columns that are nearly copies of each other, for models that cannot represent them."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Protocol

import torch
from torch import Tensor

from halfseen.base.completion import TabularCompletion, central
from halfseen.data.columns import Column
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.errors import warn_user

MIN_COMMON = 20  # rows that have both values: with fewer, a high correlation may be chance
MOST_ROWS = 10_000  # rows from which correlations are computed, evenly distributed over the table
MOST_PAIRS, CHECKED_ROWS = (
    5,
    100,
)  # pairs of the highest correlations, and rows, whose intervals are computed
LEVEL = 0.9  # of these intervals
TOO_WIDE = 1.5  # ratio of spreads; chosen so that the error of a fit to few rows does not count
AT_ONCE = 2**22  # correlations in memory at a time


class FeatureModel(TabularCompletion, Protocol):
    """A model of the codes of a table that are mapped to features."""

    @property
    def features(self) -> FeatureMap:
        """From codes (N, C) to features (N, D)."""
        ...


def warn_of_near_copies(
    columns: Sequence[Column],
    model: FeatureModel,
    codes: Incomplete,
    method: str,
    narrowest: float,
    exact: float = 0.0,
) -> None:
    """Warns, once, if intervals of a number given a near-copy of it are far wider than the residual.

    Near-copies are numbers that vary, given another, less than `narrowest` times their standard deviation;
    those that vary less than `exact` do not matter. Not every model draws them too widely: a table of two
    narrow clusters has such pairs as well. Therefore the intervals of some observed values are computed.
    """
    found = sorted(find_near_copies(model.features, codes, narrowest, exact), key=lambda one: -abs(one[0]))
    pairs = [pair for pair in found[:MOST_PAIRS] if is_too_wide(model, codes, *pair)]
    if not pairs:
        return
    correlation, one, other = pairs[0]
    shown = f"{correlation:.7f}".rstrip("0") if abs(correlation) < 1 - 5e-8 else f"{correlation:.0f}"
    more = " There are other such pairs." if len(pairs) > 1 else ""
    warn_user(
        f"Columns {columns[one].name!r} and {columns[other].name!r} are nearly copies of each other "
        f"(correlation {shown}).{more} {method} does not represent such a dependence: draws and intervals of "
        "one given the other are too wide. Use GaussianImputer, TreeImputer or AutoImputer, or drop a column."
    )


def is_too_wide(model: FeatureModel, codes: Incomplete, correlation: float, one: int, other: int) -> bool:
    """Whether intervals of a column given a near-copy of it are far wider than its linear residual."""
    both = (codes.observed[:, one] & codes.observed[:, other]).nonzero().squeeze(1)
    rows = codes[both[:: -(-len(both) // CHECKED_ROWS)]]
    shown = rows.observed.clone()
    shown[:, other] = False
    place = model.features.numeric.index(other)
    every = torch.ones_like(shown)
    ends = model.quantiles(Incomplete(rows.x, shown), central(LEVEL))
    low, high = (model.features.encode(Incomplete(end, every)).x[:, place] for end in ends)
    spread = float((high - low).median()) / (2 * NormalDist().inv_cdf((1 + LEVEL) / 2))
    deviation = float(model.features.encode(rows).x[:, place].std())
    return spread > TOO_WIDE * deviation * max(0.0, 1 - correlation**2) ** 0.5


def find_near_copies(
    features: FeatureMap, codes: Incomplete, narrowest: float, exact: float = 0.0
) -> list[tuple[float, int, int]]:
    """Returns the correlations and the positions of pairs of columns of numbers that are nearly copies.

    A column that has only few values is none, because draws of it are moved to its values.
    """
    rows = features.encode(codes[:: -(-len(codes) // MOST_ROWS)])
    n_numbers = len(features.numeric)
    fine = [i for i in range(n_numbers) if _step(rows.x[rows.observed[:, i], i]) < 2 * narrowest]
    if len(fine) < 2:
        return []
    seen = rows.observed[:, fine].double()
    x = torch.where(rows.observed[:, fine], rows.x[:, fine].double(), 0.0)
    found = []
    size = max(1, AT_ONCE // len(fine))
    for start in range(0, len(fine), size):
        r, common = _correlations(x, seen, slice(start, start + size))
        residual = (1 - r.square()).clamp(min=0.0).sqrt()
        near = (common >= MIN_COMMON) & (residual < narrowest) & (residual >= exact)
        for i, j in near.triu(diagonal=start + 1).nonzero().tolist():
            one, other = features.numeric[fine[start + i]], features.numeric[fine[j]]
            found.append((float(r[i, j]), one, other))
    return found


def _step(values: Tensor) -> float:
    """Returns the smallest difference between values; of fewer than two, infinity."""
    steps = values.unique().diff()
    return float(steps.min()) if len(steps) else torch.inf


def _correlations(x: Tensor, seen: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Returns the correlations (P, D) of part of the features with all, and numbers of common rows (P, D)."""
    own, own_seen = x[:, part].mT, seen[:, part].mT
    common = own_seen @ seen
    count = common.clamp(min=1)
    mean, mean_other = own @ seen / count, own_seen @ x / count
    variance = own.square() @ seen / count - mean.square()
    variance_other = own_seen @ x.square() / count - mean_other.square()
    covariance = own @ x / count - mean * mean_other
    return covariance / (variance * variance_other).clamp(min=1e-24).sqrt(), common
