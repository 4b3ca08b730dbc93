r"""From the codes of a completed table to the inputs of regressions, and from predictions back to codes.

A number enters regressions as its score under its margin and, if the two differ, also as its standardised
value: an analysis of the completed tables usually has the value itself, and a regression that knows only the
score would not be compatible with it. A number that is often zero, or at another end of its values, enters
by an indicator of this value as well. A column with levels enters as indicators. A column with few ordered
levels enters as indicators too, if there are enough rows, otherwise as one number. Which of score and value
predict a column is chosen for each regression.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from halfseen._arrays import Floats
from halfseen.chained.regressions import EDGE, Noise, draw_between
from halfseen.data.features import Block, FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.margin_choice import ATOM_COUNT, ATOM_SHARE, FEWEST_VALUES, choose_margins
from halfseen.data.margin_fits import line
from halfseen.data.margins import Link, Margin
from halfseen.data.schema import Column

MOST_ORDERED = 10  # levels of a proportional-odds regression; more are modelled by a score with thresholds
ROWS_PER_INPUT = 20  # needed for indicators of ordered levels; a rule of thumb for regressions
FARTHEST = 1e4  # standard deviations at which an input is cut off, so that cross-products keep their digits
ALIKE = 0.99  # correlation of scores and values from which on one of the two suffices
LARGEST = 1e150  # of the numbers with a spike: the squares of larger ones overflow
MOST_LIKE = 2.0  # ratio of the frequencies of a spike and of any other whole number at least; a guess


class Role(StrEnum):
    """How a column is regressed on the others."""

    NUMBER = "number"  # a linear regression of its scores
    ORDERED = "ordered"  # a proportional-odds regression
    LEVELS = "levels"  # a multinomial logistic regression


class Prediction(NamedTuple):
    """The distribution of a cell given the others, as a regression predicts it.

    Shapes
    ------
    first : (S, R), means of scores, or (S, R, K), probabilities of levels.
    spread : deviations of scores; of levels, the probabilities again.
    spike : (S, R), the probability of the spike of a two-part model, to which scores do not belong.
    """

    first: Tensor
    spread: Tensor
    spike: Tensor | None = None


@dataclass(frozen=True)
class Spike:
    """A frequent value at an end of a column, such as zero, that has a probability of its own.

    The other values are a number whose margin is limited to `least` and `greatest`, beside the spike.
    """

    value: float
    least: float
    greatest: float

    @classmethod
    def find(cls, column: Column, x: Floats) -> "Spike | None":
        """Finds the most frequent end of the observed codes (N) of a number, if it is frequent enough."""
        if column.levels is not None or column.codes is not None or column.is_censored(x).any() or not len(x):
            return None
        low, high = column.firm_bounds()
        if x.min() < low or x.max() > high or np.abs(x).max() > LARGEST:
            return None  # the margin maps values into the bounds, or cannot be computed
        least = max(ATOM_COUNT, ATOM_SHARE * len(x))
        ends = sorted((float((x == end).sum()), end) for end in (float(x.min()), float(x.max())))
        count, value = ends[-1]
        others = x[x != value]
        if count < least or len(others) < FEWEST_VALUES:
            return None
        step = column.code_step
        if step and count < MOST_LIKE * np.unique(others, return_counts=True)[1].max():
            return None  # a usual frequency of a count
        gap = step or float(np.abs(others - value).min()) / 2
        return cls(value, value + gap, inf) if value < others[0] else cls(value, -inf, value - gap)

    @classmethod
    def of_table(cls, columns: Sequence[Column], codes: Incomplete, without: set[str]) -> "dict[int, Spike]":
        """Finds the spikes of numbers of a table (N, C), by position; columns in `without` have none."""
        found = dict[int, Spike]()
        for c, column in enumerate(columns):
            if column.name not in without and column.derived is None:
                spike = cls.find(column, codes.x[codes.observed[:, c], c].numpy())
                if spike is not None:
                    found[c] = spike
        return found

    def is_at(self, codes: Tensor) -> Tensor:
        """Returns which codes (*) are the spike."""
        return codes == self.value

    def left_share(self, probability: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Returns which quantile of the other values a quantile (N) of all is, and where it is the spike.

        `share` (N) is the probability of the spike, which is below or above all other values.
        """
        is_below = self.value < self.least
        chosen = probability <= share if is_below else probability > 1 - share
        left = (probability - share * is_below) / (1 - share).clamp(min=EDGE)
        return left.clamp(EDGE, 1 - EDGE), chosen

    def beside(self, margin: Margin | None, others: Floats) -> Margin:
        """Returns the margin of the other values, which does not reach the spike."""
        margin = line(Link(), others) if margin is None else margin
        least, greatest = max(margin.least, self.least), min(margin.greatest, self.greatest)
        return margin.adjusted(least=least, greatest=greatest)


def _without_spikes(codes: Incomplete, spikes: Mapping[int, Spike]) -> Incomplete:
    """Returns a table (N, C) in which spikes are missing, for the margins of the other values."""
    observed = codes.observed.clone()
    for c, spike in spikes.items():
        observed[:, c] &= ~spike.is_at(codes.x[:, c])
    return Incomplete(codes.x, observed)


@dataclass(frozen=True)
class InputColumn:
    """The inputs that a column of the table provides."""

    position: int  # of the column among the modelled ones
    role: Role  # how the column itself is regressed
    # The positions of its inputs; position 0 is the constant.
    start: int
    stop: int
    feature: int  # the position of a number among the features of the `FeatureMap`, -1 for levels
    block: Block | None  # the groups of levels
    values: Tensor  # (K), the codes of ordered levels, ascending
    as_indicators: bool  # whether ordered levels enter as indicators
    with_value: bool  # whether a number enters by its value as well as by its score
    # (width), the standardisation of the inputs that are not features of the `FeatureMap`.
    loc: Tensor
    scale: Tensor
    spike: Spike | None = None  # the value of a number that has an indicator of its own; its score is 0

    @property
    def n_levels(self) -> int:
        """The number of levels, or of groups of levels, that are predicted."""
        return len(self.values) if self.block is None else self.block.n_groups

    def level_of(self, codes: Tensor) -> Tensor:
        """Returns the ordered level, or the group of levels, of codes."""
        if self.block is not None:
            return self.block.group[codes.long()]
        if len(self.values) == 1:
            return torch.zeros_like(codes, dtype=torch.int64)
        middles = (self.values[:-1] + self.values[1:]) / 2
        return torch.searchsorted(middles, codes.contiguous())

    def is_spike(self, codes: Tensor) -> Tensor:
        """Returns which codes (*) of a number have no score, because they are the spike."""
        return torch.zeros_like(codes, dtype=torch.bool) if self.spike is None else self.spike.is_at(codes)

    def with_spike(self, codes: Tensor, chosen: Tensor | None) -> Tensor:
        """Returns codes (*) of a number with the spike where it was chosen (*)."""
        if self.spike is None or chosen is None:
            return codes
        return torch.where(chosen, self.spike.value, codes)

    def draw_level(self, probabilities: Tensor, uniforms: Tensor) -> Tensor:
        """Returns codes (*) of levels drawn by uniforms (*) from probabilities (*, K)."""
        if self.block is not None:
            return self.block.draw(probabilities, uniforms).to(torch.float64)
        reached = uniforms.unsqueeze(-1) >= probabilities.cumsum(dim=-1)[..., :-1]
        return self.values[reached.sum(dim=-1)]


@dataclass(frozen=True)
class Inputs:
    """The inputs of regressions: a constant, then those of each column."""

    columns: tuple[InputColumn, ...]  # one for each modelled column
    features: FeatureMap  # the margins of numbers and the groups of levels

    @property
    def spikes(self) -> dict[int, Spike]:
        """The spikes of numbers, by position of the column."""
        return {one.position: one.spike for one in self.columns if one.spike is not None}

    def without_spikes(self, codes: Incomplete) -> Incomplete:
        """Returns a table (N, C) in which spikes are missing, for the margins of the other values."""
        return _without_spikes(codes, self.spikes)

    @property
    def width(self) -> int:
        """The number of inputs, with the constant."""
        return self.columns[-1].stop

    @classmethod
    def fit(
        cls,
        columns: Sequence[Column],
        features: FeatureMap,
        codes: Incomplete,
        spikes: Mapping[int, Spike] | None = None,
    ) -> "Inputs":
        """Chooses the inputs of a table (N, C), whose features know the spikes."""
        bare = [_bare(c, column, features) for c, column in enumerate(columns)]
        bare = [replace(one, spike=(spikes or {}).get(one.position)) for one in bare]
        widest = 1 + sum(max(2, one.n_levels - 1) for one in bare)
        found, start = list[InputColumn](), 1
        for one in bare:
            x = codes.x[codes.observed[:, one.position], one.position]
            if one.role == Role.ORDERED:
                # Numbers with few values stay numbers: rare large ones have no rows of their own
                named = columns[one.position].levels is not None
                one = replace(one, as_indicators=named and len(codes) >= ROWS_PER_INPUT * widest)
            elif one.role == Role.NUMBER:
                margin = features.margins[one.feature] if features.margins else None
                whole = margin is None or not margin.is_censored  # the values of censored cells are not known
                rest = x[~one.is_spike(x)]
                score = features.encode_number(one.feature, rest)
                one = replace(one, with_value=whole and _differs(score, rest))
            raw = _raw(one, x)
            scaler = Standardizer.fit(Incomplete(raw, torch.ones_like(raw, dtype=torch.bool)))
            found.append(_placed(one, start, scaler.loc, scaler.scale))
            start = found[-1].stop
        return cls(tuple(found), features)

    def encode(self, column: InputColumn, codes: Tensor) -> Tensor:
        """Returns the inputs (*, width) of codes (*) of a column."""
        if column.role == Role.LEVELS:
            assert column.block is not None
            return self.features.indicators(codes, column.block)
        other = ((_raw(column, codes) - column.loc) / column.scale).clamp(-FARTHEST, FARTHEST)
        if column.role == Role.ORDERED:
            return other
        score = self.features.encode_number(column.feature, codes.flatten()).reshape(codes.shape)
        score = torch.where(column.is_spike(codes), 0.0, score)
        return torch.cat([score.clamp(-FARTHEST, FARTHEST).unsqueeze(-1), other], dim=-1)

    def design(self, codes: Tensor) -> Tensor:
        """Returns the design matrix (*, N, P) of completed codes (*, N, C)."""
        found = codes.new_ones(*codes.shape[:-1], self.width)
        for column in self.columns:
            found[..., column.start : column.stop] = self.encode(column, codes[..., column.position])
        return found

    def others(self, position: int) -> Tensor:
        """Returns the positions of the inputs that do not belong to a column."""
        column = self.columns[position]
        every = torch.arange(self.width)
        return every[(every < column.start) | (every >= column.stop)]

    def state(self) -> dict[str, Tensor]:
        """Returns the learned tensors, without the groups of levels."""
        flags = [[column.as_indicators, column.with_value] for column in self.columns]
        loc = torch.cat([column.loc for column in self.columns])
        scale = torch.cat([column.scale for column in self.columns])
        scaler = self.features.scaler
        spikes = {
            f"inputs.spike.{column.position}": torch.tensor(
                [spike.value, spike.least, spike.greatest], dtype=torch.float64
            ).nan_to_num()
            for column in self.columns
            if (spike := column.spike) is not None
        }
        return (
            spikes
            | {
                "inputs.flags": torch.tensor(flags),
                "inputs.loc": loc,
                "inputs.scale": scale,
                "inputs.feature_loc": scaler.loc,
                "inputs.feature_scale": scaler.scale,
            }
            | self.features.margin_state("inputs.margin")
        )

    @classmethod
    def from_state(
        cls, columns: Sequence[Column], features: FeatureMap, state: Mapping[str, Tensor]
    ) -> "Inputs":
        """Rebuilds the inputs from the columns, features with the same groups and what `state` returned."""
        features = features.with_margins(state, "inputs.margin")
        own = Standardizer.checked(state["inputs.feature_loc"], state["inputs.feature_scale"])
        if own.loc.shape != features.scaler.loc.shape:
            raise ValueError("The scales of the features of chained equations do not fit the columns.")
        features = replace(features, scaler=own)
        flags = state["inputs.flags"]
        if flags.shape != (len(columns), 2) or flags.dtype != torch.bool:
            raise ValueError("The inputs of chained equations do not fit the columns.")
        scaler = Standardizer.checked(state["inputs.loc"], state["inputs.scale"])
        found, start, used = list[InputColumn](), 1, 0
        for c, column in enumerate(columns):
            as_indicators, with_value = (bool(flag) for flag in flags[c])
            one = replace(_bare(c, column, features), as_indicators=as_indicators, with_value=with_value)
            if f"inputs.spike.{c}" in state:
                one = replace(one, spike=_spike_from(one, state[f"inputs.spike.{c}"]))
            width = _raw_width(one)
            part = slice(used, used + width)
            one = _placed(one, start, scaler.loc[part], scaler.scale[part])
            found.append(one)
            start, used = one.stop, used + width
        if used != len(scaler.loc):
            raise ValueError(f"There are {used} inputs of chained equations and {len(scaler.loc)} scales.")
        return cls(tuple(found), features)


def choose_features(
    columns: Sequence[Column],
    features: FeatureMap,
    codes: Incomplete,
    free: Sequence[int] = (),
    logarithms: Sequence[int] = (),
    spikes: Mapping[int, Spike] | None = None,
) -> FeatureMap:
    """Returns features in which every number has the margin that fits its values best.

    A joint Gaussian leaves numbers untransformed that depend linearly on others. Regressions need not: they
    know both the scores and the values of other columns.

    Parameters
    ----------
    columns : sequence of Column
        The modelled columns.
    features : FeatureMap
        Of the same columns.
    codes : Incomplete
        The table (N, C).
    free : sequence of int
        The positions of columns whose scores are not limited near the observed values, because values that
        are missing through an outcome lie beyond them. The limits of the column hold (`Column.constrain`).
    logarithms : sequence of int
        The positions of columns of positive numbers whose margins are log-normal.
    spikes : mapping of int to Spike, optional
        The values that are left out of the margins of columns.
    """
    spikes = spikes or {}
    codes = _without_spikes(codes, spikes)
    numeric = (columns[c] for c in features.numeric)
    several = [choose_margins([*islice(numeric, len(x))], x) for x in features.observed_numbers(codes)]
    margins = list(chain.from_iterable(several))
    for i, c in enumerate(features.numeric):
        if c in logarithms:
            margins[i] = line(Link("log"), codes.x[codes.observed[:, c], c].numpy())
        margins[i] = _unlimited(margins[i]) if c in free else margins[i]
        if c in spikes:
            margins[i] = spikes[c].beside(margins[i], codes.x[codes.observed[:, c], c].numpy())
    plain = FeatureMap.fit(columns, codes, all_indicators=False)
    plain = replace(plain, blocks=features.blocks)
    return plain.with_chosen(margins, codes, plain.encode(codes))[0]


def _unlimited(margin: Margin | None) -> Margin | None:
    """Returns a margin of real numbers whose values are not limited near the observed ones."""
    if margin is None or margin.half or len(margin.unlimited):
        return margin
    return margin.adjusted(least=-inf, greatest=inf)


def reach(column: Column, place: InputColumn, features: FeatureMap, x: Tensor, scores: Tensor) -> Tensor:
    """Returns the codes (K) of scores (K) if values may lie as far in a tail as those of an analysis.

    Observed values x (N) that are selected by an outcome say little about how far the others reach.
    """
    margins = list(features.margins)
    if margins:
        margins[place.feature] = _unlimited(margins[place.feature])
        if place.spike is not None:
            margins[place.feature] = place.spike.beside(margins[place.feature], x.numpy())
    free = replace(features, margins=tuple(margins))
    return decode_scores(widen_range(column, x, place.spike), place, scores[None], [free])[0]


def widen_range(column: Column, x: Tensor, spike: Spike | None = None) -> Column:
    """Returns a column of positive numbers whose imputed values may lie further beyond the observed ones (N).

    Beside a spike at zero, the other numbers are positive.

    Imputed values are at most one observed range above the greatest value. Where large values are missing
    through an outcome, this cuts the tail of a skewed column off, which biases its coefficient away from
    zero. On a logarithmic scale, they may be twice as far above the greatest value as that is from the
    median: a guess, as a bound that values which belong to the greatest outcomes hardly reach. The user is
    not warned of values within it, because the outcome implies them.
    """
    positive = column.kind == "positive"
    if spike is not None:
        positive = column.kind == "continuous" and spike.value == 0 and spike.least > 0
        x = x[~spike.is_at(x)]
    if not positive or not column.extrapolated or column.greatest is None or not len(x):
        return column
    farthest = float(x.max()) * float(x.max() / x.median()) ** 2
    return column if not farthest < inf else replace(column, greatest=max(column.greatest, farthest))


def _bare(position: int, column: Column, features: FeatureMap) -> InputColumn:
    """Returns what follows from the description of a column."""
    values = _ordered_values(column)
    feature = features.numeric.index(position) if position in features.numeric else -1
    block = next((block for block in features.blocks if block.column == position), None)
    role = Role.ORDERED if len(values) else Role.NUMBER if block is None else Role.LEVELS
    none = torch.empty(0, dtype=torch.float64)
    return InputColumn(position, role, 0, 0, feature, block, values, False, False, none, none)


def _ordered_values(column: Column) -> Tensor:
    """Returns the codes of the levels of a proportional-odds regression, none if it is not used."""
    if column.kind == "ordinal" and column.levels is not None:
        values = [float(level) for level in range(len(column.levels))]
    else:
        values = list(column.codes or ())
    return torch.tensor(values if 2 <= len(values) <= MOST_ORDERED else [], dtype=torch.float64)


def _spike_from(column: InputColumn, stored: Tensor) -> Spike:
    """Rebuilds a spike from what `Inputs.state` returned, and checks it."""
    largest = torch.finfo(torch.float64).max
    fits = column.role == Role.NUMBER and stored.shape == (3,) and stored.dtype == torch.float64
    if fits:
        value, least, greatest = torch.where(stored.abs() == largest, stored.sign() * inf, stored).tolist()
        if value < least < inf == greatest or -inf == least < greatest < value:
            return Spike(value, least, greatest)
    raise ValueError(f"The frequent value of column {column.position} does not fit the column.")


def _raw_width(column: InputColumn) -> int:
    """Returns the number of inputs that are not features of the `FeatureMap`."""
    if column.role == Role.ORDERED:
        return len(column.values) - 1 if column.as_indicators else 1
    return int(column.with_value) + (column.spike is not None)


def _raw(column: InputColumn, codes: Tensor) -> Tensor:
    """Returns the inputs (*, width) that are not features, before they are standardised."""
    if column.role == Role.ORDERED and column.as_indicators:
        levels = torch.arange(1, len(column.values))
        return (column.level_of(codes).unsqueeze(-1) == levels).to(torch.float64)
    parts = [codes] if column.with_value or column.role == Role.ORDERED else []
    parts += [] if column.spike is None else [column.is_spike(codes).to(torch.float64)]
    return torch.stack(parts, dim=-1) if parts else codes.unsqueeze(-1)[..., :0]


def _placed(column: InputColumn, start: int, loc: Tensor, scale: Tensor) -> InputColumn:
    """Returns the column with the positions of its inputs, and their standardisation."""
    block = column.block
    width = block.stop - block.start if block is not None else len(loc) + (column.role == Role.NUMBER)
    return replace(column, start=start, stop=start + width, loc=loc, scale=scale)


def _differs(score: Tensor, value: Tensor) -> bool:
    """Returns whether values are not nearly a linear function of scores."""
    score, value = score - score.mean(), value - value.mean()
    size = float((score.square().sum() * value.square().sum()).sqrt())
    return size > 0 and bool(torch.isfinite(torch.tensor(size))) and float(score @ value) < ALIKE * size


def decode_scores(
    column: Column, place: InputColumn, scores: Tensor, margins: Sequence[FeatureMap]
) -> Tensor:
    """Returns codes (S, R) that may be imputed, from scores (S, R) under the margins of each chain."""
    if _is_plain(place, margins):
        codes = margins[0].decode_number(place.feature, scores)
    else:
        each = zip(margins, scores, strict=True)
        codes = torch.stack([one.decode_number(place.feature, z) for one, z in each])
    return torch.from_numpy(column.constrain(codes.numpy()))


def score_codes(place: InputColumn, codes: Tensor, margins: Sequence[FeatureMap]) -> Tensor:
    """Returns scores (S, R) of the codes (S, R) of a number, under the margins of each chain."""
    if _is_plain(place, margins):
        return margins[0].encode_number(place.feature, codes)
    each = zip(margins, codes, strict=True)
    scores = torch.stack([one.encode_number(place.feature, x) for one, x in each])
    return torch.where(place.is_spike(codes), 0.0, scores)


def score_intervals(
    place: InputColumn, codes: Tensor, margins: Sequence[FeatureMap]
) -> tuple[Tensor, Tensor]:
    """Returns the ends (S, R) of the intervals of scores of the codes (S, R) of a number, equal if exact."""
    each = [one.score_interval(place.feature, x) for one, x in zip(margins, codes, strict=True)]
    return torch.stack([low for low, _ in each]), torch.stack([high for _, high in each])


class ScoreTargets:
    """The scores of a number in every chain: exact, or drawn if only an interval of them is known.

    Parameters
    ----------
    margins : sequence of FeatureMap
        The features of each chain, with its margins.
    column : InputColumn
        The column.
    x : Tensor
        (N), the codes.
    observed : Tensor
        (N)
    """

    def __init__(
        self, margins: Sequence[FeatureMap], column: InputColumn, x: Tensor, observed: Tensor
    ) -> None:
        self.scores = torch.zeros(len(margins), len(x), dtype=torch.float64)
        known = (observed & ~column.is_spike(x)).nonzero().squeeze(1)
        low, high = self.scores[:, known], self.scores[:, known]
        for s, features in enumerate(margins):
            low[s], high[s] = features.score_interval(column.feature, x[known])
        wide = (high > low).any(dim=0)
        self.rows = known[wide]
        self.low, self.high = low[:, wide], high[:, wide]
        self.scores[:, known] = torch.where(wide, 0.0, low)
        centre = self.scores.new_zeros(len(margins), len(self.rows))
        half = torch.full_like(centre, 0.5)
        self.scores[:, self.rows] = draw_between(centre, torch.ones_like(half), self.low, self.high, half)

    def redraw(self, mean: Tensor, scale: Tensor, noise: Noise) -> None:
        """Draws the scores that are known by an interval, given their regression (S, N)."""
        if len(self.rows):
            uniforms = noise.uniforms(len(self.rows))
            at = mean[:, self.rows]
            self.scores[:, self.rows] = draw_between(at, scale[:, None], self.low, self.high, uniforms)


def _is_plain(place: InputColumn, margins: Sequence[FeatureMap]) -> bool:
    """Returns whether a number has no margin, so that its scale is the same in every chain."""
    return all(not one.margins or one.margins[place.feature] is None for one in margins)
