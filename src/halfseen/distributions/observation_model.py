r"""The likelihood :math:`p(x \mid z) = \prod_j p(x_j \mid z)` of all columns, from families of columns.

The families that are available depend on the kind of a column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from halfseen.data.columns import Column
from halfseen.data.features import Block, FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.pixels import n_shades
from halfseen.distributions.leaves import (
    GaussianLeaf,
    Leaf,
    LogNormalLeaf,
    NumericLeaf,
    SharedGaussianLeaf,
    StudentTLeaf,
)
from halfseen.distributions.leaves_counts import (
    CategoricalLeaf,
    NegativeBinomialLeaf,
    OrdinalLeaf,
    PoissonLeaf,
    ZeroInflatedPoissonLeaf,
)
from halfseen.distributions.leaves_pixels import BernoulliLeaf, DiscretisedLogisticLeaf

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


class ObservationModel(nn.Module):
    r"""Creates the likelihood of C columns, given as D features, from a network's P outputs.

    .. math:: \log p(x_o \mid z) = \sum_{j \in o} \log p(x_j \mid z)

    Columns are independent given :math:`z`, so missing ones are marginalised by leaving them out of the sum:
    `log_prob` returns the terms, and the caller masks them. The caller must replace missing values by
    `filler()`, at which every term and gradient is finite.

    Parameters
    ----------
    parts : sequence of Part
        The leaves; together they serve every column and every feature once.

    Notes
    -----
    Shapes: ``parameters`` :math:`(*, P)`, the outputs for each part in turn; ``x`` :math:`(*, D)`; ``noise``
    :math:`(*, M)`, uniforms. ``numeric`` are the positions of the columns of numbers, in order;
    ``columns`` are those of each part in turn;
    ``columns_of_features`` :math:`(D)` is the column of each feature; ``is_density`` :math:`(C)` is
    True for densities, per unit of the feature, and False for probabilities.

    Examples
    --------
    >>> from halfseen.distributions.leaves import GaussianLeaf
    >>> from halfseen.distributions.leaves_counts import CategoricalLeaf
    >>> parts = [Part(GaussianLeaf(1), columns=[1], features=[0]), Part(CategoricalLeaf([2]), [0], [1, 2])]
    >>> observation = ObservationModel(parts)
    >>> x = torch.tensor([0.0, 1.0, 0.0])  # a number, a block of two
    >>> observation.log_prob(observation.neutral_parameters(), x).exp()
    tensor([0.5000, 0.3989], dtype=torch.float64)
    """

    columns_of_features: Tensor
    is_density: Tensor
    _from_features: Tensor | None
    _to_features: Tensor | None
    _to_columns: Tensor | None
    _from_numbers: Tensor | None
    order_of_numbers: Tensor | None

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        _check_parts(parts)
        self.leaves = nn.ModuleList([part.leaf for part in parts])
        self.n_columns = sum(part.leaf.n_columns for part in parts)
        self.n_features = sum(part.leaf.width for part in parts)
        self.n_parameters = sum(part.leaf.n_parameters for part in parts)
        self.n_noise = sum(part.leaf.n_noise for part in parts)

        self.columns: tuple[int, ...] = tuple(c for part in parts for c in part.columns)
        columns = torch.tensor(self.columns)
        features = torch.tensor([f for part in parts for f in part.features])
        owners = torch.cat([torch.tensor(part.columns)[part.leaf.columns_of_features] for part in parts])
        density = torch.tensor([part.leaf.is_density for part in parts for _ in part.columns])
        numeric = [c for part in parts if isinstance(part.leaf, NumericLeaf) for c in part.columns]
        self.numeric: tuple[int, ...] = tuple(sorted(numeric))

        by_number = torch.tensor(numeric, dtype=torch.long).argsort()
        for name, index in {
            "columns_of_features": owners[features.argsort()],
            "is_density": density[columns.argsort()],
            "_from_features": _order(features),
            "_to_features": _order(features.argsort()),
            "_to_columns": _order(columns.argsort()),
            "_from_numbers": _order(by_number.argsort()),
            "order_of_numbers": _order(by_number),
        }.items():
            self.register_buffer(name, index, persistent=False)

    @classmethod
    def for_table(
        cls,
        columns: Sequence[Column],
        features: FeatureMap,
        batch: Incomplete | None = None,
        *,
        numeric: RealFamily = "gaussian",
        likelihoods: Mapping[str, str] | None = None,
    ) -> "ObservationModel":
        """Returns the likelihood of the columns of a table.

        Parameters
        ----------
        columns : sequence of Column
            The C columns of the table that are modelled.
        features : FeatureMap
            Their map to features (N, D), with all indicators.
        batch : Incomplete, optional
            The training features (N, D), for level frequencies and the moments of logarithms. Without them,
            levels are assumed to be equally frequent. They are not needed if weights are loaded afterwards.
        numeric : {"gaussian", "shared-gaussian", "student-t"}
            The family of columns of numbers.
        likelihoods : mapping, optional
            From the names of columns to other families, such as ``{"income": "log-normal", "visits":
            "negative-binomial", "grade": "categorical"}``.
        """
        if not features.all_indicators:
            raise ValueError("The features must have all indicators: fit them with all_indicators=True.")
        return cls(table_parts(columns, features, batch, numeric, likelihoods or {}))

    @classmethod
    def for_pixels(
        cls, n_pixels: int, family: PixelFamily, *, low: float = 0.0, n_bins: int = 256
    ) -> "ObservationModel":
        """Returns the likelihood of pixels of one family, one feature each.

        Parameters
        ----------
        n_pixels : int
            The number of pixels, times channels.
        family : {"gaussian", "shared-gaussian", "student-t", "bernoulli", "discretised-logistic"}
            The family of every pixel.
        low : float
            The value of black, for the last two families; that of white is 1.
        n_bins : int
            The number of shades of a discretised logistic.
        """
        leaf: Leaf
        if family == "bernoulli":
            leaf = BernoulliLeaf(n_pixels, low)
        elif family == "discretised-logistic":
            leaf = DiscretisedLogisticLeaf(n_pixels, low, 1.0, n_bins)
        else:
            leaf = real_leaf(family, n_pixels)
        return cls([Part(leaf, range(n_pixels), range(n_pixels))])

    def extended(self, leaf: Leaf) -> "ObservationModel":
        """Returns the likelihood of the same columns and, after them, of those of one more leaf."""
        parts, start = [], 0
        for own, features in zip(self._leaves, self.own_features(), strict=True):
            parts.append(Part(own, self.columns[start : start + own.n_columns], features.tolist()))
            start += own.n_columns
        columns = range(self.n_columns, self.n_columns + leaf.n_columns)
        added = range(self.n_features, self.n_features + leaf.width)
        return ObservationModel([*parts, Part(leaf, columns, added)])

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log density or probability (*, C) of each column."""
        pieces = _arranged(x, self._from_features).split([leaf.width for leaf in self._leaves], dim=-1)
        terms = [
            leaf.log_prob(part, piece)
            for leaf, part, piece in zip(self._leaves, self.split(parameters), pieces, strict=True)
        ]
        return _arranged(torch.cat(terms, dim=-1), self._to_columns)

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected features (*, D)."""
        parts = zip(self._leaves, self.split(parameters), strict=True)
        means = [leaf.mean(part) for leaf, part in parts]
        return _arranged(torch.cat(means, dim=-1), self._to_features)

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the features (*, D) at which the likelihood of each column is greatest."""
        parts = zip(self._leaves, self.split(parameters), strict=True)
        modes = [leaf.mode(part) for leaf, part in parts]
        return _arranged(torch.cat(modes, dim=-1), self._to_features)

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, D) of each feature."""
        parts = zip(self._leaves, self.split(parameters), strict=True)
        variances = [leaf.variance(part) for leaf, part in parts]
        return _arranged(torch.cat(variances, dim=-1), self._to_features)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns features (*, D) drawn exactly, without a gradient."""
        parts = zip(self._leaves, self.split(parameters), self._noises(noise), strict=True)
        drawn = [leaf.sample(part, piece) for leaf, part, piece in parts]
        return _arranged(torch.cat(drawn, dim=-1), self._to_features)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns features (*, D) drawn, or relaxed where there are levels, with a gradient."""
        parts = zip(self._leaves, self.split(parameters), self._noises(noise), strict=True)
        drawn = [leaf.rsample(part, piece) for leaf, part, piece in parts]
        return _arranged(torch.cat(drawn, dim=-1), self._to_features)

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability of features not above `x`, (*, n_numeric), of the columns `numeric`."""
        x = _arranged(x, self._from_numbers)
        below, start = [], 0
        for leaf, part in zip(self._leaves, self.split(parameters), strict=True):
            if isinstance(leaf, NumericLeaf):
                below.append(leaf.cdf(part, x[..., start : start + leaf.n_columns]))
                start += leaf.n_columns
        return _arranged(torch.cat(below, dim=-1), self.order_of_numbers) if below else x

    def inflated(self, parameters: Tensor, factors: Sequence[float]) -> Tensor:
        """Returns parameters (*, P) of numbers that are wider, where their family has a scale.

        There is a factor for each of the columns `numeric`; none at all changes nothing.
        """
        if all(factor == 1.0 for factor in factors):
            return parameters
        given = _arranged(torch.tensor(factors, dtype=parameters.dtype), self._from_numbers)
        parts, start = [], 0
        for leaf, part in zip(self._leaves, self.split(parameters), strict=True):
            if isinstance(leaf, NumericLeaf):
                part = leaf.inflated(part, given[start : start + leaf.n_columns])
                start += leaf.n_columns
            parts.append(part)
        return torch.cat(parts, dim=-1)

    def split(self, parameters: Tensor) -> tuple[Tensor, ...]:
        """Returns the outputs for each leaf."""
        return tuple(torch.split(parameters, [leaf.n_parameters for leaf in self._leaves], dim=-1))

    def own_features(self) -> list[Tensor]:
        """Returns the positions of the features of each leaf, in its order."""
        order = torch.arange(self.n_features) if self._from_features is None else self._from_features
        return list(order.split([leaf.width for leaf in self._leaves]))

    def observed_columns(self, observed: Tensor) -> Tensor:
        """Returns which columns (*, C) are observed, given which features (*, D) are."""
        blank = observed.new_zeros(*observed.shape[:-1], self.n_columns)
        return blank.index_copy(-1, self.columns_of_features, observed)

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (P), float64, of the marginal distribution of each column.

        As the last bias of a network, they initialise it to independent columns.
        """
        return torch.cat([leaf.neutral_parameters() for leaf in self._leaves])

    def filler(self) -> Tensor:
        """Returns features (D), float64, to put under the mask."""
        return _arranged(torch.cat([leaf.filler() for leaf in self._leaves]), self._to_features)

    @property
    def _leaves(self) -> list[Leaf]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Leaf)]  # for the type checker

    def _noises(self, noise: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.split(noise, [leaf.n_noise for leaf in self._leaves], dim=-1))


def _check_parts(parts: Sequence[Part]) -> None:
    for noun in ("columns", "features"):
        given = [index for part in parts for index in getattr(part, noun)]
        if not given or sorted(given) != list(range(len(given))):
            raise ValueError(f"The parts must serve all {noun} from 0 on once, got {given}.")
    for part in parts:
        if (len(part.columns), len(part.features)) != (part.leaf.n_columns, part.leaf.width):
            raise ValueError(
                f"A leaf of {part.leaf.n_columns} columns and {part.leaf.width} features cannot serve "
                f"{len(part.columns)} columns and {len(part.features)} features."
            )


def _order(index: Tensor) -> Tensor | None:
    """Returns an order of positions, None if they are in order already."""
    return None if torch.equal(index, torch.arange(len(index))) else index


def _arranged(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.index_select(-1, order)


def pixel_observation_model(columns: Sequence[Column], numeric: RealFamily) -> ObservationModel:
    """Returns the likelihood of pixels as `pixel_features` maps them: of two values, shades, or numbers."""
    size, shades = len(columns), n_shades(columns[0])
    if shades is None:
        return ObservationModel.for_pixels(size, numeric)
    if columns[0].levels is not None:
        return ObservationModel.for_pixels(size, "bernoulli", low=-1.0)
    return ObservationModel.for_pixels(size, "discretised-logistic", low=-1.0, n_bins=shades)
