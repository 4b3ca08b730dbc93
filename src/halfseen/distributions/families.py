r"""Families of likelihoods: the families available for each kind of column, and their leaves for a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from halfseen.data.columns import Column
from halfseen.data.features import Block, FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaf import Leaf
from halfseen.distributions.leaves import GaussianLeaf, LogNormalLeaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_counts import NegativeBinomialLeaf, PoissonLeaf, ZeroInflatedPoissonLeaf
from halfseen.distributions.leaves_levels import CategoricalLeaf, OrdinalLeaf

RealFamily = Literal["gaussian", "shared-gaussian", "student-t"]
PixelFamily = Literal["gaussian", "shared-gaussian", "student-t", "bernoulli", "discretised-logistic"]
KINDS_OF_FAMILY: dict[str, tuple[str, ...]] = {
    **{
        family: ("continuous", "positive", "count", "datetime", "duration") for family in get_args(RealFamily)
    },
    "log-normal": ("positive",),
    "poisson": ("count",),
    "negative-binomial": ("count",),
    "zero-inflated-poisson": ("count",),
    "categorical": ("binary", "categorical", "ordinal"),
    "ordinal": ("ordinal",),
}
"""The families of columns of a table, and the kinds of columns that each may serve."""

FAMILIES_OF_VALUES = ("log-normal", "poisson", "negative-binomial", "zero-inflated-poisson")
"""The families that describe the values of a column themselves, so that its margin must be the identity."""

MIN_TYPICAL = 1e-3  # minimum typical count
MIN_LOG_STD = 1e-3  # minimum standard deviation of logarithms, for nearly constant columns
ZEROS = (0.01, 0.99)  # range of the typical probability of a zero that is not from the Poisson part
SHAPES = (0.1, 100.0)  # range of the typical shape of the gamma distribution of rates
UNSEEN = 0.5  # pseudo-count of every group of levels, so that its log frequency is finite


@dataclass(frozen=True)
class Part:
    """One leaf, its columns, and the positions of their features, in the order of the leaf."""

    leaf: Leaf
    columns: Sequence[int]
    features: Sequence[int]


def table_parts(
    columns: Sequence[Column],
    features: FeatureMap,
    batch: Incomplete | None,
    numeric: RealFamily,
    likelihoods: Mapping[str, str],
) -> list[Part]:
    """Returns the leaves of the columns of a table; for the arguments see `ObservationModel.for_table`."""
    families = _families(columns, numeric, likelihoods)
    numbers = _Numbers.of(features, batch)
    parts = []
    for family in dict.fromkeys(families):
        chosen = [c for c in range(len(columns)) if families[c] == family]
        if family in ("categorical", "ordinal"):
            blocks = [block for block in features.blocks if block.column in chosen]
            parts.append(_level_part(family, blocks, batch))
        else:
            positions = [features.numeric.index(c) for c in chosen]
            parts.append(Part(_numeric_leaf(family, numbers.at(positions)), chosen, positions))
    return parts


@dataclass(frozen=True)
class _Numbers:
    """For each numeric column, the map from features to values, and the moments of log values."""

    loc: Tensor
    scale: Tensor
    log_mean: Tensor
    log_std: Tensor

    @classmethod
    def of(cls, features: FeatureMap, batch: Incomplete | None) -> "_Numbers":
        """Computes the moments of logs of observed positive values; approximates them without a batch."""
        n_numbers = len(features.numeric)
        loc, scale = features.scaler.loc[:n_numbers], features.scaler.scale[:n_numbers]
        if batch is None:
            centre = loc.clamp(min=1e-12)
            log_var = torch.log1p((scale / centre).square())
            return cls(loc, scale, centre.log() - log_var / 2, log_var.sqrt().clamp(min=MIN_LOG_STD))
        value = features.numbers(batch.filled())
        seen = batch.observed[:, :n_numbers] & (value > 0)
        log_value = torch.where(seen, value, 1.0).log()
        n_seen = seen.sum(dim=0).clamp(min=1)
        log_mean = log_value.sum(dim=0) / n_seen
        log_var = torch.where(seen, log_value - log_mean, 0.0).square().sum(dim=0) / n_seen
        return cls(loc, scale, log_mean, log_var.sqrt().clamp(min=MIN_LOG_STD))

    def at(self, positions: Sequence[int]) -> "_Numbers":
        index = list(positions)
        return _Numbers(self.loc[index], self.scale[index], self.log_mean[index], self.log_std[index])


def _families(columns: Sequence[Column], numeric: str, likelihoods: Mapping[str, str]) -> list[str]:
    """Returns the family of each column, after a check that it may serve it."""
    families = []
    for column in columns:
        usual = "ordinal" if column.kind == "ordinal" else "categorical"
        family = likelihoods.get(column.name, numeric if column.levels is None else usual)
        if column.kind not in KINDS_OF_FAMILY.get(family, ()):
            allowed = sorted(name for name, served in KINDS_OF_FAMILY.items() if column.kind in served)
            raise ValueError(
                f"Column {column.name!r} is {column.kind}, which the likelihood {family!r} cannot describe: "
                f"choose one of {', '.join(allowed)}."
            )
        no_order = family == "ordinal" and len(column.levels or ()) < 2
        families.append("categorical" if no_order else family)
    return families


def real_leaf(family: str, n_columns: int) -> Leaf:
    """Returns the leaf of columns of real numbers."""
    match family:
        case "gaussian":
            return GaussianLeaf(n_columns)
        case "shared-gaussian":
            return SharedGaussianLeaf(n_columns)
        case "student-t":
            return StudentTLeaf(n_columns)
    raise ValueError(f"There is no family {family!r} of numbers.")


def _numeric_leaf(family: str, numbers: _Numbers) -> Leaf:
    typical = numbers.loc.clamp(min=MIN_TYPICAL)
    excess = numbers.scale.square() - typical
    shape = torch.where(excess > 0, typical.square() / excess.abs(), torch.inf).clamp(*SHAPES)
    match family:
        case "log-normal":
            return LogNormalLeaf(numbers.loc, numbers.scale, numbers.log_mean, numbers.log_std)
        case "poisson":
            return PoissonLeaf(numbers.loc, numbers.scale, typical)
        case "negative-binomial":
            return NegativeBinomialLeaf(numbers.loc, numbers.scale, typical, shape)
        case "zero-inflated-poisson":  # from mean and variance: rate + 1 = mean + variance / mean
            rate = (typical + numbers.scale.square() / typical - 1.0).clamp(min=typical)
            zeros = (1.0 - typical / rate).clamp(*ZEROS)
            return ZeroInflatedPoissonLeaf(numbers.loc, numbers.scale, rate, zeros)
    return real_leaf(family, len(numbers.loc))


def _level_part(family: str, blocks: Sequence[Block], batch: Incomplete | None) -> Part:
    features = [feature for block in blocks for feature in range(block.start, block.stop)]
    shares = [_group_shares(block, batch) for block in blocks]
    leaf: Leaf
    if family == "categorical":
        leaf = CategoricalLeaf([len(share) for share in shares], torch.cat(shares))
    else:  # groups are in order of frequency, levels in their own
        by_level = [share[block.group] * block.share for share, block in zip(shares, blocks, strict=True)]
        leaf = OrdinalLeaf([block.group for block in blocks], by_level)
    return Part(leaf, [block.column for block in blocks], features)


def _group_shares(block: Block, batch: Incomplete | None) -> Tensor:
    """Returns the share of each group of levels, never zero."""
    if batch is None:
        return torch.full((block.n_groups,), 1 / block.n_groups, dtype=torch.float64)
    part = slice(block.start, block.stop)
    counts = UNSEEN + batch.filled()[:, part].sum(dim=0)
    return counts / counts.sum()
