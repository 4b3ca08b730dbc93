"""The regressions of chained equations: their inputs and priors, drawn parameters, and what they predict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.chained.blocks import limit_predictors
from halfseen.chained.effects import EffectDraw, sequential
from halfseen.chained.inputs import InputColumn, Inputs, Prediction, Role
from halfseen.chained.methods import Draw
from halfseen.chained.regressions import (
    CONSTANT_SCALE,
    CROWDED_ROWS,
    FEW_ROWS,
    FLAT,
    PRIOR_ROWS,
    PRIOR_SCALE,
    MultinomialModel,
    OrderedModel,
    are_few,
    choose_prior_rows,
    find_mode,
    multinomial,
    ordered,
)
from halfseen.data.incomplete import Incomplete

PRIOR_CANDIDATES = tuple(0.25 * 2.0**k for k in range(14))  # rows per coefficient; with fewer, draws are wild
TINY = 1e-300
MOST_COEFFICIENTS = 400  # of a multinomial regression, whose cost grows with their cube


@dataclass(frozen=True)
class Equation:
    """The regression of one column: its inputs and its prior.

    Shapes
    ------
    inputs : (P), positions in the design matrix, the constant first.
    prior : (P), precisions of the coefficients; in rows for a linear regression.
    mode : (1, Q), where the coefficients of a logistic regression start; None for numbers without a spike.
    spike_prior : (P), precisions of the logistic regression that predicts the spike of a number.
    """

    column: InputColumn
    inputs: Tensor
    prior: Tensor
    mode: Tensor | None = None
    spike_prior: Tensor | None = None

    def logistic_model(self, codes: Incomplete) -> MultinomialModel | OrderedModel:
        """Returns the regression of the observed levels of a table (N, C)."""
        c = self.column.position
        observed = codes.observed[:, c]
        levels = self.column.level_of(torch.where(observed, codes.x[:, c], 0.0))
        return self.logistic_model_of(torch.where(observed, levels, -1))

    def logistic_model_of(self, levels: Tensor) -> MultinomialModel | OrderedModel:
        """Returns the regression of levels (N) or (S, N)."""
        kind = MultinomialModel if self.column.role == Role.LEVELS else OrderedModel
        return kind(levels, self.column.n_levels, self.prior)

    def spike_model(self, codes: Tensor, known: Tensor) -> MultinomialModel:
        """Returns the logistic regression that predicts which codes (S, N) are the spike; `known` (N) are."""
        assert self.spike_prior is not None
        levels = torch.where(self.column.is_spike(codes), 0, 1)
        return MultinomialModel(torch.where(known, levels, -1), 2, self.spike_prior)


@dataclass(frozen=True)
class Parameters:
    """The parameters of one regression in every chain.

    Attributes
    ----------
    coefficients : Tensor
        (S, Q)
    scale : Tensor or None
        (S), the residual standard deviations of numbers.
    effects : EffectDraw or None
        Of groups. The coefficients of levels are then those of sequential regressions.
    own : tuple of functions or None
        What draws the column in each chain by a method of its own; there are no coefficients then.
    covariance : Tensor or None
        (S, B, B), of the residuals of all columns of its block.
    spike : Tensor or None
        (S, P), of the logistic regression that predicts the spike of a number.
    """

    coefficients: Tensor
    scale: Tensor | None = None
    effects: EffectDraw | None = None
    own: tuple[Draw, ...] | None = None
    covariance: Tensor | None = None
    spike: Tensor | None = None

    @classmethod
    def joined(cls, parts: Sequence["Parameters"]) -> "Parameters":
        """Returns the parameters of several groups of chains together."""
        scales = [part.scale for part in parts if part.scale is not None]
        effects = [part.effects for part in parts if part.effects is not None]
        own = tuple(draw for part in parts for draw in part.own or ())
        covariances = [part.covariance for part in parts if part.covariance is not None]
        spikes = [part.spike for part in parts if part.spike is not None]
        return cls(
            torch.cat([part.coefficients for part in parts]),
            torch.cat(scales) if scales else None,
            EffectDraw.joined(effects) if effects else None,
            own or None,
            torch.cat(covariances) if covariances else None,
            torch.cat(spikes) if spikes else None,
        )

    def of(self, which: Tensor) -> "Parameters":
        """Returns the parameters of some chains."""
        scale = None if self.scale is None else self.scale[which]
        effects = None if self.effects is None else self.effects.of(which)
        own = None if self.own is None else tuple(self.own[s] for s in which.tolist())
        covariance = None if self.covariance is None else self.covariance[which]
        spike = None if self.spike is None else self.spike[which]
        return Parameters(self.coefficients[which], scale, effects, own, covariance, spike)

    def predict(
        self, equation: Equation, design: Tensor, added: tuple[Tensor, Tensor] | None = None
    ) -> Prediction:
        """Returns the distributions of cells.

        `design` (S, R, P) has the inputs of the equation, and `added` what `EffectDraw.offsets` returns.
        """
        if added is not None:
            by_part = self.coefficients.unflatten(1, (-1, design.shape[-1]))  # (S, J, P)
            index, variance = design @ by_part.mT + added[0], added[1]  # (S, R, J)
            if self.scale is None:
                shares = sequential(index / (1 + variance).sqrt())
                return Prediction(shares, shares)
            return Prediction(index[..., 0], (self.scale[:, None].square() + variance[..., 0]).sqrt())
        if self.scale is not None:
            mean = (design @ self.coefficients.unsqueeze(-1)).squeeze(-1)
            spike = None
            if self.spike is not None:
                spike = torch.sigmoid(design @ self.spike.unsqueeze(-1)).squeeze(-1)
            return Prediction(mean, self.scale[:, None].expand_as(mean), spike)
        predict = multinomial if equation.column.role == Role.LEVELS else ordered
        shares = predict(design, self.coefficients)
        return Prediction(shares, shares)


@dataclass(frozen=True)
class Conditionals:
    """The distribution of each missing cell given the others, averaged over the draws of the others."""

    # (N, C), of the scores of numbers.
    mean: Tensor
    variance: Tensor
    # (N, K), the probabilities of ordered levels or groups of levels, by position of the column.
    levels: dict[int, Tensor]
    # (N), the probabilities of the spikes of numbers; means and variances are those of the other values.
    spikes: dict[int, Tensor]


@dataclass(frozen=True)
class Average:
    """Sums of conditional distributions: of means, of squared means plus variances, of probabilities.

    Those of scores are weighted by the probability that a value is not the spike.
    """

    columns: Sequence[InputColumn]
    counts: Tensor
    means: Tensor
    squares: Tensor
    levels: dict[int, Tensor]
    spikes: dict[int, Tensor]

    @classmethod
    def over(cls, codes: Incomplete, columns: Sequence[InputColumn]) -> "Average":
        """Returns sums that are zero."""
        levels = {
            column.position: codes.x.new_zeros(len(codes), column.n_levels)
            for column in columns
            if column.role != Role.NUMBER
        }
        spikes = {one.position: codes.x.new_zeros(len(codes)) for one in columns if one.spike is not None}
        counts, means, squares = (torch.zeros_like(codes.x) for _ in range(3))
        return cls(columns, counts, means, squares, levels, spikes)

    def add(self, column: InputColumn, rows: Tensor, found: Prediction) -> None:
        """Adds the distributions of some rows in several chains."""
        c, (first, spread, spike) = column.position, found
        weight = 1.0 if spike is None else 1 - spike
        self.counts[rows, c] += len(first) if spike is None else (1 - spike).sum(dim=0)
        if column.role == Role.NUMBER:
            self.means[rows, c] += (weight * first).sum(dim=0)
            self.squares[rows, c] += (weight * (first.square() + spread.square())).sum(dim=0)
        else:
            self.levels[c][rows] += first.sum(dim=0)
        if spike is not None:
            self.spikes[c][rows] += spike.sum(dim=0)

    def result(self) -> Conditionals:
        """Returns the averages; those of observed cells are arbitrary."""
        counts = torch.where(self.counts > 0, self.counts, 1.0)
        mean = self.means / counts
        variance = (self.squares / counts - mean.square()).clamp(min=0.0)
        levels = {
            c: torch.where(self.counts[:, c, None] > 0, sums / counts[:, c, None], 1 / sums.shape[1])
            for c, sums in self.levels.items()
        }
        spikes = {c: sums / (sums + self.counts[:, c]).clamp(min=TINY) for c, sums in self.spikes.items()}
        return Conditionals(mean, variance, levels, spikes)


def plan_equations(
    inputs: Inputs,
    codes: Incomplete,
    limits: Mapping[int, npt.NDArray[np.int64]],
    most_columns: int,
    blocks: Sequence[tuple[int, ...]] = (),
) -> tuple[Equation, ...]:
    """Returns the regression of each column, with the inputs of the columns most correlated with it.

    Parameters
    ----------
    inputs : Inputs
        Of all columns.
    codes : Incomplete
        The table (N, C).
    limits : mapping of int to array
        The positions of the columns that may predict a column, where the user has named them.
    most_columns : int
        The number of columns that predict a column at most.
    blocks : sequence of tuple of int
        The columns that are drawn together. Their regressions have the inputs that any of them would have,
        and the strongest of their priors.
    """
    limits = dict(limits)
    limit_predictors(blocks, limits, codes.n_features)
    guess = _mean_design(inputs, codes)  # (N, P), 0 where a cell is missing
    found = []
    for column in inputs.columns:
        observed = codes.observed[:, column.position]
        rows = guess[observed]
        own = rows[:, column.start : column.stop]
        strength = (own.mT @ rows).abs().amax(dim=0) / max(1, len(rows))
        allowed = limits.get(column.position)
        chosen = _choose_columns(inputs, column, strength, allowed, most_columns)
        places = torch.tensor([0, *(place for one in chosen for place in _places(one, own, rows))])
        of_column = codes.x[observed, column.position]
        prior = _prior(column, places, rows, own, of_column)
        equation = Equation(column, places, prior)
        if column.spike is not None:
            at, known = column.is_spike(of_column), codes.observed[None, :, column.position]
            prior = _prior(column, places, rows[~at], own[~at], of_column[~at])
            of_spike = _logistic_prior(len(places), int(torch.minimum(at.sum(), (~at).sum())))
            equation = Equation(column, places, prior, None, of_spike)
            model = equation.spike_model(codes.x[None, :, column.position], known)
            equation = replace(equation, mode=find_mode(model, guess[None][:, :, places]))
        elif column.role != Role.NUMBER:
            mode = find_mode(equation.logistic_model(codes), guess[None][:, :, places])
            equation = replace(equation, mode=mode)
        found.append(equation)
    for block in blocks:
        places = torch.cat([found[c].inputs for c in block]).unique()
        strongest = max((found[c].prior for c in block), key=lambda prior: float(prior.max()))
        prior = strongest.max().repeat(len(places))
        prior[0] = FLAT
        for c in block:
            found[c] = replace(found[c], inputs=places, prior=prior)
    return tuple(found)


def _mean_design(inputs: Inputs, codes: Incomplete) -> Tensor:
    """Returns the design (N, P) with 0, the mean of an input, where a cell is missing."""
    some = [codes.x[codes.observed[:, c.position], c.position][:1] for c in inputs.columns]
    stand_in = torch.cat([one if len(one) else one.new_zeros(1) for one in some])
    found = inputs.design(torch.where(codes.observed, codes.x, stand_in))
    for column in inputs.columns:
        found[~codes.observed[:, column.position], column.start : column.stop] = 0.0
    return found


def _choose_columns(
    inputs: Inputs, column: InputColumn, strength: Tensor, allowed: npt.NDArray[np.int64] | None, most: int
) -> list[InputColumn]:
    """Returns the columns that predict a column, in their order in the table."""
    every = [one for one in inputs.columns if one.position != column.position]
    if allowed is not None:
        every = [one for one in every if one.position in allowed.tolist()]
    ranked = sorted(every, key=lambda one: (-float(strength[one.start : one.stop].max()), one.position))
    chosen, width = list[InputColumn](), 1
    n_equations = column.n_levels - 1 if column.role == Role.LEVELS else 1
    for one in ranked[:most]:
        width += one.stop - one.start
        if n_equations > 1 and width * n_equations > MOST_COEFFICIENTS and chosen:
            break
        chosen.append(one)
    return sorted(chosen, key=lambda one: one.position)


def _places(column: InputColumn, target: Tensor, rows: Tensor) -> list[int]:
    """Returns the inputs of a column that predict a target (N, W): its score, its value, or both.

    Both are used only if the Bayesian information criterion is in favour, because their difference
    extrapolates badly to rows in which the target is missing. The indicator of a spike is always used.
    """
    every = [*range(column.start, column.stop)]
    if not column.with_value:
        return every
    (first, second), rest = every[:2], every[2:]
    choices = ([first], [second], [first, second])
    losses = [_unexplained(target, rows[:, :1], *rows[:, [*some, *rest]].T) for some in choices]
    one = [second if losses[1] < losses[0] else first, *rest]
    gain = len(rows) * (min(losses[:2]) / max(losses[2], 1e-12))
    needed = len(rows) * math.exp(math.log(max(2, len(rows))) / max(1, len(rows)))
    return every if gain > needed else one


def _unexplained(target: Tensor, constant: Tensor, *inputs: Tensor) -> float:
    """Returns the largest share (of the columns of a target) that inputs explain, subtracted from 1."""
    design = torch.stack([constant[:, 0], *inputs], dim=1)
    gram = design.mT @ design + 1e-9 * len(design) * torch.eye(design.shape[1], dtype=torch.float64)
    fitted = design @ torch.linalg.solve(gram, design.mT @ target)
    total = (target - target.mean(dim=0)).square().sum(dim=0).clamp(min=1e-12)
    return float(((target - fitted).square().sum(dim=0) / total).min())


def _prior(column: InputColumn, places: Tensor, rows: Tensor, own: Tensor, codes: Tensor) -> Tensor:
    """Returns the precisions (P) of the coefficients of a column."""
    width, n_rows = len(places), len(rows)
    found = torch.ones(width, dtype=torch.float64)
    few = are_few(n_rows, width) and width > 1
    if column.role == Role.NUMBER:
        rows_of_prior = max(PRIOR_ROWS, CROWDED_ROWS * width / max(1, n_rows))
        if few:
            candidates = [width * rows_each for rows_each in PRIOR_CANDIDATES]
            rows_of_prior = choose_prior_rows(rows[:, places[1:]], own[:, 0], candidates)
        found *= rows_of_prior
        found[0] = FLAT
        return found
    counts = torch.bincount(column.level_of(codes), minlength=column.n_levels)
    return _logistic_prior(width, int(counts.sort(descending=True).values[1:2].sum()))


def _logistic_prior(width: int, n_rows: int) -> Tensor:
    """Returns the precisions (P) of logistic coefficients, given the rows of the second most frequent level.

    With few of them, the log odds of all inputs together must not vary more than those of one.
    """
    crowded = max(1.0, FEW_ROWS * width / max(1.0, float(n_rows)))
    found = torch.full((width,), crowded / PRIOR_SCALE**2, dtype=torch.float64)
    found[0] = 1 / CONSTANT_SCALE**2
    return found


def order_visits(asked: Any, names: Sequence[str], n_missing: Sequence[int]) -> list[int]:
    """Returns the columns in the order of a cycle: those that the user names, then by missing values.

    Parameters
    ----------
    asked : list of str, or None
        What the user passed.
    names : sequence of str
        The names of the modelled columns.
    n_missing : sequence of int
        How many of their values are missing.
    """
    asked = [] if asked is None else asked
    if isinstance(asked, str) or not isinstance(asked, Sequence):
        raise ValueError(f"visit_order must be a list of column names, got {asked!r}.")
    stray = next((name for name in asked if name not in names), None)
    if stray is not None:
        raise ValueError(f"visit_order refers to column {stray!r}, which is not a modelled column.")
    if len(set(asked)) < len(asked):
        twice = next(name for name in asked if list(asked).count(name) > 1)
        raise ValueError(f"visit_order names column {twice!r} twice.")
    places = [names.index(name) for name in asked]
    rest = sorted(set(range(len(names))) - set(places), key=lambda c: (n_missing[c], c))
    return [*places, *rest]
