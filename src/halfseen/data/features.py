r"""Conversion between the codes of a table and real features for models on :math:`\mathbb{R}^D`.

A numeric or ordinal column becomes one standardised feature: its value, or its score under a margin. A binary
or categorical column becomes a block of indicators, which are observed or missing together. Rare levels share
one indicator; its probability is divided among them by their training frequencies, so that every level has
a positive probability.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

from halfseen._arrays import Floats
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.margins import Margin
from halfseen.data.schema import Column

CELLS_AT_ONCE = 2**20  # of which there are several copies at a time
MAX_INDICATORS = 30  # per column; the most frequent levels have one each, the rest share one
MIN_COUNT = 5  # a level seen fewer times has no indicator of its own
PROBABILITY_FLOOR = 1e-6  # a linear model may give a level a negative share

MarginChoice = Callable[[Column, Floats], Margin | None]


@dataclass(frozen=True)
class Block:
    r"""The indicators of one column: their positions, the indicator of each level, and its share in it.

    Shapes
    ------
    group : :math:`(L)`, the indicator of each level.
    share : :math:`(L)`, the share of each level in its group; shares of a group sum to 1.
    """

    column: int
    start: int
    stop: int
    group: Tensor
    share: Tensor

    @cached_property
    def n_groups(self) -> int:
        """The number of groups of levels."""
        return int(self.group.max()) + 1

    @cached_property
    def leaders(self) -> Tensor:
        """The level (G) with the greatest share of each group, in the order of levels."""
        heaviest_first = torch.argsort(self.share, descending=True, stable=True)
        by_group = heaviest_first[torch.argsort(self.group[heaviest_first], stable=True)]
        starts = torch.searchsorted(self.group[by_group], torch.arange(self.n_groups))
        return by_group[starts].sort().values

    def of_leaders(self, groups: Tensor) -> Tensor:
        """Returns the probability (*, G) of the leaders, from that of the groups (*, G)."""
        return groups[..., self.group[self.leaders]] * self.share[self.leaders]

    def likeliest(self, groups: Tensor) -> Tensor:
        """Returns the most probable level (*), from the probability (*, G) of the groups."""
        return self.leaders[self.of_leaders(groups).argmax(dim=-1)]

    def draw(self, groups: Tensor, uniforms: Tensor) -> Tensor:
        """Returns levels (*) drawn by uniforms (*): first a group (*, G), then a level within it."""
        cumulated = groups.cumsum(dim=-1)
        reached = uniforms * cumulated[..., -1]
        chosen = (reached.unsqueeze(-1) >= cumulated).sum(dim=-1).clamp(max=self.n_groups - 1)
        weight = groups.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        within = (reached - cumulated.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)) / weight + 1.0
        ordered, edges, last = self._within_groups
        position = torch.searchsorted(edges, chosen + within.clamp(0.0, 1.0), right=True)
        return ordered[torch.minimum(position, last[chosen])]

    @cached_property
    def _within_groups(self) -> tuple[Tensor, Tensor, Tensor]:
        """The levels (L) sorted by group, group number plus cumulative share, and the end of each group."""
        ordered = torch.argsort(self.group, stable=True)
        group = self.group[ordered]
        last = torch.searchsorted(group, torch.arange(self.n_groups), right=True) - 1
        cumulated = self.share[ordered].cumsum(dim=0)
        before = torch.cat([cumulated.new_zeros(1), cumulated[last[:-1]]])
        return ordered, group + cumulated - before[group], last


@dataclass(frozen=True)
class FeatureMap:
    r"""The two-way map between codes (N, C) and standardised features (N, D).

    Numeric columns come first, one feature each, then the blocks. With `all_indicators` (for mixtures),
    every column with levels is a block with one indicator for each group. Otherwise (for a Gaussian, which
    needs full rank), a block leaves out its last group, which is determined by the others, and an ordinal
    column is treated as a number. The feature of a numeric column is its standardised value or, with a
    margin, the standardised score of its value.
    """

    numeric: tuple[int, ...]
    ordinal: tuple[int, ...]
    blocks: tuple[Block, ...]
    scaler: Standardizer
    all_indicators: bool
    margins: tuple[Margin | None, ...] = ()

    @classmethod
    def fit(
        cls,
        columns: Sequence[Column],
        codes: Incomplete,
        *,
        all_indicators: bool,
        choose: MarginChoice | None = None,
    ) -> "FeatureMap":
        """Learns level groups, margins and scales from the observed training codes (N, C).

        `choose` returns the margin of a numeric column with the given observed codes.
        """
        return cls.fit_encoded(columns, codes, all_indicators=all_indicators, choose=choose)[0]

    @classmethod
    def fit_encoded(
        cls,
        columns: Sequence[Column],
        codes: Incomplete,
        *,
        all_indicators: bool,
        choose: MarginChoice | None = None,
    ) -> tuple["FeatureMap", Incomplete]:
        """Returns what `fit` learns, and the features of the codes."""
        groups = {}
        for c, column in enumerate(columns):
            if column.levels is not None and (all_indicators or column.kind != "ordinal"):
                seen = codes.x[codes.observed[:, c], c].long()
                groups[c] = _group_levels(torch.bincount(seen, minlength=len(column.levels)))
        identity = Standardizer(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
        features = cls._arranged(columns, groups, identity, all_indicators)
        raw = features._indicate(codes)
        scaler = Standardizer.fit(raw)
        if all_indicators:  # indicators stay 0 and 1
            is_number = torch.arange(len(scaler.loc)) < len(features.numeric)
            scaler = Standardizer(
                torch.where(is_number, scaler.loc, 0.0), torch.where(is_number, scaler.scale, 1.0)
            )
        features = replace(features, scaler=scaler)
        batch = scaler.overwrite(raw)
        if choose is None:
            return features, batch
        known = chain.from_iterable(features.observed_numbers(codes))
        margins = [choose(columns[c], x) for c, x in zip(features.numeric, known, strict=True)]
        return features.with_chosen(margins, codes, batch)

    def observed_numbers(self, codes: Incomplete) -> Iterator[list[Floats]]:
        """Yields the observed codes of numeric columns, of a few columns at a time in a long table."""
        size = max(1, CELLS_AT_ONCE // max(1, len(codes)))
        for start in range(0, len(self.numeric), size):
            some = self.numeric[start : start + size]
            yield [codes.x[codes.observed[:, c], c].numpy() for c in some]

    def with_chosen(
        self, margins: Sequence[Margin | None], codes: Incomplete, batch: Incomplete
    ) -> tuple["FeatureMap", Incomplete]:
        """Returns the map with these margins, and the features by it.

        `batch` was encoded without them. Its values are overwritten.
        """
        transformed = [i for i, margin in enumerate(margins) if margin is not None]
        if not transformed:
            return self, batch
        x, loc, scale = batch.x, self.scaler.loc.clone(), self.scaler.scale.clone()
        at_once = max(1, CELLS_AT_ONCE // max(1, len(codes)))
        for some in (transformed[start : start + at_once] for start in range(0, len(transformed), at_once)):
            observed = batch.observed[:, some]
            scores = torch.where(observed, codes.x[:, [self.numeric[i] for i in some]], 0.0).T.contiguous()
            for row, i in enumerate(some):
                margin = margins[i]
                assert margin is not None
                scores[row] = margin.forward(scores[row])
            scored = Incomplete(scores.T.contiguous(), observed)
            scaler = Standardizer.fit(scored)
            x[:, some] = scaler.forward(scored.filled())
            loc[some], scale[some] = scaler.loc, scaler.scale
        features = replace(self, margins=tuple(margins), scaler=Standardizer(loc, scale))
        return features, batch

    @classmethod
    def from_state(
        cls, columns: Sequence[Column], state: Mapping[str, Tensor], *, all_indicators: bool
    ) -> "FeatureMap":
        """Rebuilds the map from the columns and what `state` returned."""
        groups = {
            c: (state[f"features.group.{c}"], state[f"features.share.{c}"])
            for c in range(len(columns))
            if f"features.group.{c}" in state
        }
        for c, (group, share) in groups.items():
            _check_groups(columns[c], group, share)
        scaler = Standardizer.checked(state["features.loc"], state["features.scale"])
        features = cls._arranged(columns, groups, scaler, all_indicators)
        if scaler.loc.shape != (features.n_features,):
            raise ValueError(f"There are {features.n_features} features and {scaler.loc.numel()} scales.")
        return features.with_margins(state, "features.margin")

    @classmethod
    def _arranged(
        cls,
        columns: Sequence[Column],
        groups: Mapping[int, tuple[Tensor, Tensor]],
        scaler: Standardizer,
        all_indicators: bool,
    ) -> "FeatureMap":
        numeric = tuple(c for c in range(len(columns)) if c not in groups)
        ordinal = tuple(c for c in numeric if columns[c].levels is not None)
        blocks, start = [], len(numeric)
        for c, (group, share) in groups.items():
            stop = start + int(group.max()) + 1 - (not all_indicators)
            blocks.append(Block(c, start, stop, group, share))
            start = stop
        return cls(numeric, ordinal, tuple(blocks), scaler, all_indicators)

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.blocks[-1].stop if self.blocks else len(self.numeric)

    def encode(self, codes: Incomplete) -> Incomplete:
        """Returns the standardised features of codes."""
        return self.scaler.overwrite(self._indicate(codes))

    def numbers(self, features: Tensor) -> Tensor:
        """Returns the numeric and ordinal codes (*, n_numeric) of features, without rounding."""
        numbers = self.scaler.inverse(features)[..., : len(self.numeric)]
        for i, margin in self.transformed():
            numbers[..., i] = margin.inverse(numbers[..., i])
        return numbers

    def mean_numbers(self, mean: Tensor, variance: Tensor, wanted: Tensor) -> Tensor:
        """Returns the expected codes (N, n_numeric) if features are normal with these means and variances.

        Codes that are not `wanted` (N, C), because they are known, have arbitrary values.
        """
        loc, scale = self.scaler.loc, self.scaler.scale
        numbers = self.scaler.inverse(mean)[..., : len(self.numeric)]
        for i, margin in self.transformed():
            rows = wanted[:, self.numeric[i]].nonzero().squeeze(1)
            centre, spread = mean[rows, i] * scale[i] + loc[i], variance[rows, i].sqrt() * scale[i]
            numbers[rows, i] = margin.mean(centre, spread)
        return numbers

    def score(self, feature: int, x: Tensor) -> Tensor:
        """Returns the features of values (*) of a numeric column, for example of thresholds."""
        margin = self.margins[feature] if self.margins else None
        place = x if margin is None else margin.score(x)
        return (place - self.scaler.loc[feature]) / self.scaler.scale[feature]

    def encode_number(self, feature: int, x: Tensor) -> Tensor:
        """Returns the feature (N) of each value (N) of a numeric column, as `encode` does."""
        margin = self.margins[feature] if self.margins else None
        place = x if margin is None else margin.forward(x.contiguous())
        return (place - self.scaler.loc[feature]) / self.scaler.scale[feature]

    def decode_number(self, feature: int, x: Tensor) -> Tensor:
        """Returns the codes (N) of a numeric column whose feature has these values (N)."""
        place = x * self.scaler.scale[feature] + self.scaler.loc[feature]
        margin = self.margins[feature] if self.margins else None
        return place if margin is None else margin.inverse(place)

    def score_interval(self, feature: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the least and greatest feature of each value (N), equal where there is only one."""
        margin = self.margins[feature] if self.margins else None
        ends = (x, x) if margin is None else margin.interval(x.contiguous())
        low, high = ((end - self.scaler.loc[feature]) / self.scaler.scale[feature] for end in ends)
        return low, high

    def half_widths(self, steps: Tensor) -> Tensor:
        """Returns half a step of the codes (n_numeric) in units of features, near the middle of a column."""
        halves = 0.5 * steps / self.number_scales()
        middle = self.numbers(torch.zeros(self.n_features, dtype=torch.float64))
        for i, _ in self.transformed():
            ends = self.score(i, middle[i] + 0.5 * steps[i] * torch.tensor([-1.0, 1.0], dtype=torch.float64))
            halves[i] = 0.5 * (ends[1] - ends[0])
        return halves

    def transformed(self) -> list[tuple[int, Margin]]:
        """Returns the features with a margin, and their margins."""
        return [(i, margin) for i, margin in enumerate(self.margins) if margin is not None]

    def noise(self) -> Tensor:
        """Returns (D): the noise variance of observed features around their latent scores."""
        noise = torch.zeros(self.n_features, dtype=torch.float64)
        for i, margin in self.transformed():
            noise[i] = margin.noise / self.scaler.scale[i] ** 2
        return noise

    def number_scales(self) -> Tensor:
        """Returns the scale (n_numeric) of the numeric and ordinal columns."""
        return self.scaler.scale[: len(self.numeric)]

    def level_probabilities(self, features: Tensor, block: Block) -> Tensor:
        """Returns the probability (*, L) of each level, from the expected indicators in features (*, D)."""
        return self.group_probabilities(features, block)[..., block.group] * block.share

    def group_probabilities(self, features: Tensor, block: Block) -> Tensor:
        """Returns the probability (*, G) of each group of levels; the number of groups is small."""
        part = slice(block.start, block.stop)
        expected = features[..., part] * self.scaler.scale[part] + self.scaler.loc[part]
        if not self.all_indicators:
            expected = torch.cat([expected, 1 - expected.sum(dim=-1, keepdim=True)], dim=-1)
        expected = expected.clamp(min=PROBABILITY_FLOOR)
        return expected / expected.sum(dim=-1, keepdim=True)

    def indicators(self, levels: Tensor, block: Block) -> Tensor:
        """Returns the standardised indicators (*, width) of level codes (*)."""
        part = slice(block.start, block.stop)
        groups = torch.arange(block.stop - block.start)
        raw = (block.group[levels.long()].unsqueeze(-1) == groups).to(torch.float64)
        return (raw - self.scaler.loc[part]) / self.scaler.scale[part]

    def log_jacobian(self, codes: Incomplete) -> Tensor:
        """Returns (N): the term that turns log densities of features into those of observed numeric codes."""
        observed = codes.observed[:, list(self.numeric)]
        slopes = -self.number_scales().log().expand(observed.shape).clone()
        for i, margin in self.transformed():
            slopes[:, i] += margin.log_slope(torch.where(observed[:, i], codes.x[:, self.numeric[i]], 0.0))
        return torch.where(observed, slopes, 0.0).sum(dim=1)

    def state(self) -> dict[str, Tensor]:
        """Returns the learned tensors."""
        tensors = {"features.loc": self.scaler.loc, "features.scale": self.scaler.scale}
        for block in self.blocks:
            tensors[f"features.group.{block.column}"] = block.group
            tensors[f"features.share.{block.column}"] = block.share
        return tensors | self.margin_state("features.margin")

    def margin_state(self, prefix: str) -> dict[str, Tensor]:
        """Returns the tensors of the margins, under names that start with a prefix."""
        return {
            f"{prefix}.{self.numeric[i]}.{name}": tensor
            for i, margin in self.transformed()
            for name, tensor in margin.state().items()
        }

    def with_margins(self, state: Mapping[str, Tensor], prefix: str) -> "FeatureMap":
        """Returns the map with the margins that `margin_state` wrote into a state."""
        margins = tuple(_margin_from(state, f"{prefix}.{c}.") for c in self.numeric)
        return replace(self, margins=margins if any(margins) else ())

    def _indicate(self, codes: Incomplete) -> Incomplete:
        """Returns features that are not standardised, in memory of their own; some rows at a time."""
        size = max(1, CELLS_AT_ONCE // max(1, self.n_features))
        if len(codes) <= size:
            return self._indicate_together(codes)
        x = torch.empty(len(codes), self.n_features, dtype=torch.float64)
        observed = torch.empty(x.shape, dtype=torch.bool)
        for start in range(0, len(codes), size):
            part = self._indicate_together(codes[start : start + size])
            x[start : start + size], observed[start : start + size] = part.x, part.observed
        return Incomplete(x, observed)

    def _indicate_together(self, codes: Incomplete) -> Incomplete:
        shown = codes.observed[:, list(self.numeric)]
        numbers = codes.x[:, list(self.numeric)].masked_fill_(~shown, 0.0)
        for i, margin in self.transformed():
            numbers[:, i] = margin.forward(numbers[:, i].contiguous())
        if not self.blocks:
            return Incomplete(numbers, shown)
        x, observed = [numbers], [shown]
        for block in self.blocks:
            seen = codes.observed[:, block.column]
            groups = torch.arange(block.stop - block.start)
            group = block.group[torch.where(seen, codes.x[:, block.column], 0.0).long()]
            x.append((group[:, None] == groups).to(torch.float64))
            observed.append(seen[:, None].expand(-1, len(groups)))
        return Incomplete(torch.cat(x, dim=1), torch.cat(observed, dim=1))


def _check_groups(column: Column, group: Tensor, share: Tensor) -> None:
    """Raises unless each level of a column has a group, and a share of it."""
    n_levels = len(column.levels or ())
    fits = group.shape == share.shape == (n_levels,) and group.dtype == torch.int64
    if not n_levels or not fits or group.min() < 0 or group.max() >= n_levels:
        raise ValueError(f"The groups of levels of column {column.name!r} do not fit its {n_levels} levels.")
    total = torch.zeros(n_levels, dtype=torch.float64).index_add_(0, group, share.double())
    if bool((share <= 0).any()) or not torch.allclose(total[group], torch.ones(n_levels).double()):
        raise ValueError(f"The shares of levels of column {column.name!r} are not those of their groups.")


def _margin_from(state: Mapping[str, Tensor], prefix: str) -> Margin | None:
    if f"{prefix}settings" not in state:
        return None
    return Margin.from_state({name: state[prefix + name] for name in ("settings", "knots", "answers")})


def _group_levels(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Assigns each frequent level its own group, and all other levels one common group.

    Returns the group (L) of each level and its share (L) in the group; levels that were never observed have
    half a count.
    """
    weights = counts.to(torch.float64).clamp(min=0.5)
    ranked = torch.argsort(counts, descending=True, stable=True)
    frequent = ranked[(counts[ranked] >= MIN_COUNT)][:MAX_INDICATORS]
    if len(counts) <= 3 or len(frequent) == 0:  # nothing to gain by merging
        frequent = ranked[:MAX_INDICATORS]
    group = torch.full((len(counts),), len(frequent), dtype=torch.int64)
    group[frequent] = torch.arange(len(frequent))
    total = torch.zeros(int(group.max()) + 1, dtype=torch.float64).index_add_(0, group, weights)
    return group, weights / total[group]
