r"""Chained equations with proper conditional models: cycles over the columns, in several chains at once.

A cycle visits the incomplete columns. For each of them it draws the parameters of its regression on all other
columns, from their posterior given the rows in which it is observed, and then its missing cells. The cycles
start from a draw of the joint Gaussian, so that few of them are needed.

References
----------
van Buuren & Groothuis-Oudshoorn (2011), mice: Multivariate Imputation by Chained Equations in R; Albert &
Chib (1993), for the scores of values that are known to lie in an interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.chained.analysis import N_UNIFORMS, CompatibleModel, OutcomeDraw
from halfseen.chained.blocks import (
    draw_missing,
    draw_regression,
    followers,
    given_others,
    led_blocks,
)
from halfseen.chained.constraints import Constraints, draw_codes, draw_within
from halfseen.chained.effects import (
    FIRST_SWEEPS,
    SWEEPS,
    EffectDraw,
    GroupedRows,
    LevelRegressions,
    MixedRegression,
    RowGroups,
    cross_products,
)
from halfseen.chained.equations import Equation, Parameters
from halfseen.chained.inputs import Inputs, Prediction, Role, ScoreTargets, decode_scores, score_codes
from halfseen.chained.methods import Method, draw_by_method, fit_method
from halfseen.chained.regressions import (
    EDGE,
    ENOUGH_ROWS,
    LogisticPosterior,
    MultinomialModel,
    Noise,
    OrderedModel,
    draw_linear,
    expected,
    follow_mode,
)
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.relations import Formula
from halfseen.data.schema import Column
from halfseen.gaussian.data_augmentation import Trace

FRESH_CYCLES = 1  # in which the second derivatives of logistic regressions are computed, as in the last one


@dataclass(frozen=True)
class Passive:
    """The derived columns that predict others, with their formulas."""

    names: tuple[str, ...]  # of the modelled columns
    formulas: Mapping[int, Formula]  # by position of the derived column

    @classmethod
    def of(cls, columns: Sequence[Column]) -> "Passive":
        """Finds the derived columns among the modelled ones; their inputs are numbers and are modelled."""
        names = tuple(column.name for column in columns)
        formulas = {c: Formula.parse(one.derived) for c, one in enumerate(columns) if one.derived is not None}
        known = {c: one for c, one in formulas.items() if set(one.inputs) <= set(names)}
        return cls(names, known)

    def inputs(self, derived: int) -> list[int]:
        """Returns the positions of the columns from which a derived column is computed."""
        return [self.names.index(name) for name in self.formulas[derived].inputs]

    def dependents(self, c: int) -> list[int]:
        """Returns the derived columns that are computed from column c."""
        return [derived for derived in self.formulas if c in self.inputs(derived)]

    def values(self, derived: int, cells: Tensor) -> Tensor:
        """Returns a derived column (*), from completed codes (*, C); undefined values stay as they were."""
        numbers = {self.names[c]: cells[..., c].numpy() for c in self.inputs(derived)}
        found = np.broadcast_to(self.formulas[derived].evaluate(numbers), cells.shape[:-1])
        return torch.from_numpy(np.where(np.isnan(found), cells[..., derived].numpy(), found))

    def limit(self, limits: dict[int, npt.NDArray[np.int64]], n_columns: int) -> None:
        """Removes derived columns from the predictors of their inputs, which would predict themselves."""
        for derived in self.formulas:
            for c in self.inputs(derived):
                allowed = limits.get(c, np.arange(n_columns))
                limits[c] = allowed[allowed != derived]

    def fill(self, codes: Incomplete, completed: Tensor) -> None:
        """Computes all missing cells of derived columns of completed codes (S, N, C)."""
        for derived in self.formulas:
            rows = (~codes.observed[:, derived]).nonzero().squeeze(1)
            completed[:, rows, derived] = self.values(derived, completed[:, rows])


NO_CONSTRAINTS, NOT_PASSIVE = Constraints(()), Passive((), {})


class Chains:
    """Several chains over the same table.

    Parameters
    ----------
    columns, inputs, equations : sequence of Column, Inputs, sequence of Equation
        As of `TabularChain`.
    codes : Incomplete
        The table (N, C).
    start : Tensor
        (S, N, C), completed codes of each chain.
    margins : sequence of FeatureMap
        The features of each chain, with its margins.
    noise : Noise
        The random numbers of each chain.
    compatible : CompatibleModel, optional
        The analysis with which draws are to be compatible.
    groups : RowGroups, optional
        The groups of rows whose effects the regressions have.
    constraints : Constraints
        The order constraints that draws obey.
    passive : Passive
        The derived columns, which are computed.
    order : sequence of int, optional
        The columns in the order of a cycle; by default those with the fewest missing values come first.
    methods : mapping of int to function
        The columns that have methods of their own, by position.
    blocks : sequence of tuple of int
        The columns that are drawn together.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        inputs: Inputs,
        equations: Sequence[Equation],
        codes: Incomplete,
        start: Tensor,
        margins: Sequence[FeatureMap],
        noise: Noise,
        compatible: CompatibleModel | None = None,
        groups: RowGroups | None = None,
        constraints: Constraints = NO_CONSTRAINTS,
        passive: Passive = NOT_PASSIVE,
        order: Sequence[int] | None = None,
        methods: Mapping[int, Method] | None = None,
        blocks: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self.methods = methods or {}
        self.compatible, self.groups, self.constraints = compatible, groups, constraints
        self.passive = passive
        self.columns, self.inputs, self.equations = columns, inputs, equations
        self.codes, self.completed, self.margins, self.noise = codes, start, margins, noise
        self.design = inputs.design(start)
        self.gram = self.design.mT @ self.design
        self.missing = [(~codes.observed[:, c]).nonzero().squeeze(1) for c in range(codes.n_features)]
        n_missing = [len(rows) for rows in self.missing]
        every = sorted(range(len(columns)), key=lambda c: n_missing[c]) if order is None else order
        self.blocks = led_blocks(blocks, every)
        last = followers(self.blocks)
        self.order = [c for c in every if c not in passive.formulas and c not in last and self._is_visited(c)]
        self.targets: dict[int, ScoreTargets] = {}
        self.posteriors: dict[int, LogisticPosterior] = {}
        self.coefficients: dict[int, Tensor] = {}  # of logistic regressions, as drawn last
        self.mixed: dict[int, MixedRegression] = {}
        self.of_levels: dict[int, LevelRegressions] = {}
        self.upper: dict[int, Tensor] = {}  # (S, G), the codes of columns that are constant within groups

    def run(self, n_cycles: int, tell: Callable[[Tensor], None]) -> list[Parameters]:
        """Runs the cycles, and returns a draw of the parameters of every column at the end.

        `tell` is called after each cycle with the means and deviations (2, S, C) of the completed columns.
        """
        found: dict[int, Parameters] = {}
        for cycle in range(n_cycles):
            refresh = cycle < FRESH_CYCLES or cycle == n_cycles - 1
            for c in self.order:
                if c in self.blocks:
                    found |= self._visit_block(self.blocks[c])
                else:
                    found[c] = self._visit(c, refresh=refresh)
            tell(self._moments())
        for block in self.blocks.values():
            if block[0] not in found:
                found |= self._visit_block(block)
        for c in range(len(self.columns)):
            if c not in found:
                found[c] = self._visit(c, refresh=True, keep=c not in self.passive.formulas)
        return [found[c] for c in range(len(self.columns))]

    def _moments(self) -> Tensor:
        """Returns means and deviations (2, S, C) of the completed columns."""
        unit = self.completed.abs().amax(dim=(0, 1))
        unit = torch.where(unit > 0, unit, 1.0)  # sums of numbers near the largest float would overflow
        scaled = self.completed / unit
        return torch.stack([scaled.mean(dim=1), scaled.std(dim=1, unbiased=False)]) * unit

    def _visit(self, c: int, *, refresh: bool, keep: bool = True) -> Parameters:
        """Draws the parameters of the regression of a column, and then its missing cells."""
        without = self.design[:, self.missing[c]]  # (S, R, P), the rows in which the column is missing
        if c in self.methods:
            return self._visit_by_method(c, without)
        if self.groups is not None:
            return self._visit_grouped(c, self.groups, without, refresh=refresh, keep=keep)
        # A model of a covariate without the outcome is not that of the rows in which it is observed, if its
        # values are missing through the outcome: it is fitted to all rows, with the values drawn before.
        every = self._is_covariate(c)
        if self.equations[c].column.spike is not None:
            drawn = self._draw_two_parts(c, refresh=refresh, every=every)
        elif self.equations[c].column.role == Role.NUMBER:
            drawn = self._draw_linear(c, without, every=every)
        else:
            drawn = self._draw_logistic(c, refresh=refresh, every=every)
        if len(self.missing[c]) and keep:
            self._draw_cells(c, drawn, without)
        return drawn

    def _is_covariate(self, c: int) -> bool:
        return self.compatible is not None and self.compatible.is_covariate(c)

    def _is_visited(self, c: int) -> bool:
        """Returns whether a column, or another one of the block that it leads, has missing cells."""
        return any(len(self.missing[k]) for k in self.blocks.get(c, (c,)))

    def _visit_block(self, block: tuple[int, ...]) -> dict[int, Parameters]:
        """Does what `_visit` does for all columns of a block, which are drawn together."""
        equation, known = self.equations[block[0]], self.codes.observed[:, list(block)]
        targets, places, rows = [self._target(c) for c in block], equation.inputs, known.any(dim=1)
        unused = self.design[:, ~rows][..., places]
        gram = self.gram[:, places][:, :, places] - unused.mT @ unused
        scores = torch.stack([target.scores for target in targets], dim=-1)  # (S, N, B)
        drawn = draw_regression(gram, self.design, places, scores, rows, equation.prior, self.noise)
        mean = torch.stack(
            [expected(self.design, places, one) for one in drawn.coefficients.unbind(-1)], dim=-1
        )
        for j, target in enumerate(targets):
            if len(target.rows):
                target.redraw(*given_others(mean, drawn.covariance, scores, j), self.noise)
                scores[..., j] = target.scores
        some = (~known.all(dim=1)).nonzero().squeeze(1)
        normals = self.noise.normals(len(some), len(block))
        found = draw_missing(mean[:, some], drawn.covariance, scores[:, some], known[some], normals)[0]
        for j, (c, target) in enumerate(zip(block, targets, strict=True)):
            if len(self.missing[c]):
                target.scores[:, self.missing[c]] = found[:, ~known[some, j], j]
                codes = decode_scores(
                    self.columns[c], self.equations[c].column, found[:, ~known[some, j], j], self.margins
                )
                self._keep(c, codes, self.design[:, self.missing[c]])
        scale = drawn.covariance.diagonal(dim1=1, dim2=2).sqrt()
        return {
            c: Parameters(drawn.coefficients[..., j], scale[:, j], covariance=drawn.covariance)
            for j, c in enumerate(block)
        }

    def _visit_by_method(self, c: int, without: Tensor) -> Parameters:
        """Does what `_visit` does for a column that has a method of its own."""
        known, places = self.codes.observed[:, c], self.equations[c].inputs
        rows = known.nonzero().squeeze(1)
        design = self.design[:, rows[:, None], places]
        own = fit_method(self.methods[c], design, self.codes.x[rows, c], self.noise)
        if len(self.missing[c]):
            uniforms = self.noise.uniforms(len(self.missing[c]))
            self._keep(c, draw_by_method(own, self.columns[c], without[:, :, places], uniforms), without)
        return Parameters(self.design.new_empty(len(self.design), 0), own=own)

    def _target(self, c: int) -> ScoreTargets:
        """Returns the scores of a number."""
        if c not in self.targets:
            column = self.equations[c].column
            target = ScoreTargets(self.margins, column, self.codes.x[:, c], self.codes.observed[:, c])
            before = self.completed[:, self.missing[c], c]
            target.scores[:, self.missing[c]] = score_codes(column, before, self.margins)
            self.targets[c] = target
        return self.targets[c]

    def _visit_grouped(
        self, c: int, groups: RowGroups, without: Tensor, *, refresh: bool, keep: bool
    ) -> Parameters:
        """Does what `_visit` does, with effects of groups, or for a column that is constant within groups."""
        if c in groups.upper:
            drawn, self.upper[c] = self._draw_upper(c, groups, refresh=refresh)
            values = self.upper[c][:, groups.rows.group[self.missing[c]]]
        else:
            number = self.equations[c].column.role == Role.NUMBER
            drawn = self._draw_mixed(c, groups.rows, without) if number else self._draw_levels(c, groups.rows)
            keep = keep and len(self.missing[c]) > 0
            values = self._draw_in_groups(c, drawn, groups.rows, without) if keep else without[..., 0]
        if len(self.missing[c]) and keep:
            self._keep(c, values, without)
        return drawn

    def _draw_upper(self, c: int, groups: RowGroups, *, refresh: bool) -> tuple[Parameters, Tensor]:
        """Draws the regression of a column that is constant within groups, and its codes (S, G)."""
        equation, known = self.equations[c], groups.table.observed[:, c]
        design, places = groups.rows.means(self.design), equation.inputs
        if equation.column.role == Role.NUMBER:
            if c not in self.targets:
                self.targets[c] = ScoreTargets(self.margins, equation.column, groups.table.x[:, c], known)
            target, rows = self.targets[c], design[:, known][..., places]
            found = draw_linear(
                rows.mT @ rows, design, places, target.scores, known, equation.prior, self.noise
            )
            target.redraw(expected(design, places, found.coefficients), found.scale, self.noise)
            drawn = Parameters(found.coefficients, found.scale)
        else:
            drawn = self._draw_posterior(c, equation.logistic_model(groups.table), design, refresh=refresh)
        predicted = drawn.predict(equation, design[..., places])
        values = draw_codes(self.columns[c], equation.column, predicted, self.margins, self.noise)
        return drawn, torch.where(known, groups.table.x[:, c], values)

    def _draw_mixed(self, c: int, rows: GroupedRows, without: Tensor) -> Parameters:
        """Draws the parameters of a number with effects of groups, and its scores that are not exact."""
        target, equation = self._target(c), self.equations[c]
        places, n_sweeps = equation.inputs, SWEEPS
        every = self._is_covariate(c)  # as in `_visit`
        if c not in self.mixed:
            known, n_sweeps = self.codes.observed[None, :, c] | every, FIRST_SWEEPS
            self.mixed[c] = MixedRegression(rows, known, equation.prior, len(self.design), latent=False)
        part, unused = self.mixed[c], without[:, :, places]
        gram = self.gram[:, places][:, :, places]
        gram = gram if every else gram - unused.mT @ unused
        products = cross_products(gram, self.design, places, rows, part.rows)
        for _ in range(n_sweeps):
            part.sweep(products, self.design, places, target.scores, self.noise)
            if len(target.rows):
                target.redraw(part.mean(self.design, places), part.variance.sqrt(), self.noise)
        effects = EffectDraw(part.effects.unsqueeze(1), part.covariance.unsqueeze(1))
        return Parameters(part.coefficients, part.variance.sqrt(), effects)

    def _draw_levels(self, c: int, rows: GroupedRows) -> Parameters:
        """Draws the parameters of the sequential regressions of levels with effects of groups."""
        equation, n_sweeps = self.equations[c], SWEEPS
        column, known = equation.column, self.codes.observed[None, :, c] | self._is_covariate(c)
        levels = torch.where(known, column.level_of(self.completed[..., c]), -1)
        if c not in self.of_levels:
            n_sweeps, n_chains = FIRST_SWEEPS, len(self.design)
            self.of_levels[c] = LevelRegressions(rows, column.n_levels, equation.prior, n_chains)
        self.of_levels[c].sweep(levels, self.design, equation.inputs, n_sweeps, self.noise)
        return Parameters(self.of_levels[c].drawn()[0], None, self.of_levels[c].drawn()[1])

    def _draw_in_groups(self, c: int, parameters: Parameters, rows: GroupedRows, without: Tensor) -> Tensor:
        """Returns the missing cells (S, R) of a column, given the effects of its groups."""
        assert parameters.effects is not None
        missing, equation = self.missing[c], self.equations[c]
        inputs = rows.inputs[missing].expand(len(without), -1, -1)
        added = parameters.effects.offsets(rows.group[missing], inputs, None)
        predicted = parameters.predict(equation, without[:, :, equation.inputs], added)
        if self.compatible is not None and self.compatible.concerns(c):
            return self._draw_compatible(c, predicted)
        return self._draw_codes(c, predicted)

    def _draw_codes(self, c: int, predicted: Prediction) -> Tensor:
        """Returns the missing cells (S, R) of a column, within its constraints."""
        column, place = self.columns[c], self.equations[c].column
        if c not in self.constraints.columns:
            return draw_codes(column, place, predicted, self.margins, self.noise)
        limits = self.constraints.bounds(c, self.completed[:, self.missing[c]])
        assert limits is not None
        uniforms = self.noise.uniforms(len(self.missing[c])).clamp(EDGE, 1 - EDGE)
        return draw_within(column, place, predicted, limits, self.margins, uniforms)

    def _draw_linear(self, c: int, without: Tensor, *, every: bool) -> Parameters:
        equation, observed = self.equations[c], self.codes.observed[:, c]
        target, places = self._target(c), equation.inputs
        gram = self.gram[:, places][:, :, places]
        if every:
            observed = torch.ones_like(observed)
        else:
            unused = without[:, :, places]
            gram = gram - unused.mT @ unused
        drawn = draw_linear(gram, self.design, places, target.scores, observed, equation.prior, self.noise)
        if len(target.rows):
            target.redraw(expected(self.design, places, drawn.coefficients), drawn.scale, self.noise)
        return Parameters(drawn.coefficients, drawn.scale)

    def _draw_two_parts(self, c: int, *, refresh: bool, every: bool) -> Parameters:
        """Draws a logistic regression of the spike of a number, and a linear one of its other scores."""
        equation, known = self.equations[c], self.codes.observed[:, c] | every
        target, places, codes = self._target(c), equation.inputs, self.completed[..., c]
        model = equation.spike_model(codes, known)
        of_spike = self._draw_posterior(c, model, self.design, refresh=refresh).coefficients
        rows = known & ~equation.column.is_spike(codes)  # (S, N)
        some = self.design[:, :, places]
        gram = (some * rows.unsqueeze(-1)).mT @ some
        drawn = draw_linear(gram, self.design, places, target.scores, rows, equation.prior, self.noise)
        target.redraw(expected(self.design, places, drawn.coefficients), drawn.scale, self.noise)
        return Parameters(drawn.coefficients, drawn.scale, spike=of_spike)

    def _draw_logistic(self, c: int, *, refresh: bool, every: bool) -> Parameters:
        equation = self.equations[c]
        model = equation.logistic_model(self.codes)
        if every:
            model = equation.logistic_model_of(equation.column.level_of(self.completed[..., c]))
        return self._draw_posterior(c, model, self.design, refresh=refresh)

    def _draw_posterior(
        self, c: int, model: MultinomialModel | OrderedModel, design: Tensor, *, refresh: bool
    ) -> Parameters:
        """Draws the parameters of a logistic regression of levels on a design (S, N, D)."""
        equation, before = self.equations[c], self.posteriors.get(c)
        if before is None:
            assert equation.mode is not None
            before, refresh = LogisticPosterior(equation.mode, equation.mode), True
        inputs = design[..., equation.inputs]
        posterior = self.posteriors[c] = follow_mode(model, inputs, before, refresh=refresh)
        if model.n_rows < ENOUGH_ROWS * posterior.mode.shape[1]:
            current = self.coefficients.get(c)
            self.coefficients[c] = posterior.choose(model, inputs, current, self.noise)
        else:
            self.coefficients[c] = posterior.draw(self.noise)
        return Parameters(self.coefficients[c])

    def _draw_cells(self, c: int, parameters: Parameters, without: Tensor) -> None:
        equation, scale = self.equations[c], parameters.scale
        if scale is None or parameters.spike is not None:
            predicted = parameters.predict(equation, without[:, :, equation.inputs])
        else:  # the same, without a copy of the inputs
            mean = expected(without, equation.inputs, parameters.coefficients)
            predicted = Prediction(mean, scale[:, None].expand_as(mean))
        if self.compatible is not None and self.compatible.concerns(c):
            drawn = self._draw_compatible(c, predicted)
        else:
            drawn = self._draw_codes(c, predicted)
        self._keep(c, drawn, without)

    def _keep(self, c: int, drawn: Tensor, without: Tensor) -> None:
        """Replaces the missing cells of a column by those that were drawn (S, R)."""
        rows, equation = self.missing[c], self.equations[c]
        self.completed[:, rows, c] = drawn
        part = slice(equation.column.start, equation.column.stop)
        new = self.inputs.encode(equation.column, drawn)
        # Only cross-products with the inputs of this column change, and only by the rows that were drawn.
        changed = self.gram[:, :, part] + without.mT @ (new - without[:, :, part])
        self.design[:, rows, part] = new
        own = self.design[:, :, part]
        changed[:, part] = own.mT @ own
        self.gram[:, :, part], self.gram[:, part] = changed, changed.mT
        for derived in self.passive.dependents(c):
            among = self.missing[derived]
            if len(among):
                self._keep(
                    derived, self.passive.values(derived, self.completed[:, among]), self.design[:, among]
                )

    def _draw_compatible(self, c: int, predicted: Prediction) -> Tensor:
        """Returns the missing cells (S, R) of a column of the analysis, given its other columns."""
        assert self.compatible is not None
        rows = self.missing[c]
        parameters = self.compatible.draw_parameters(self.completed, self.noise)
        before = self.targets[c].scores[:, rows] if c in self.targets else None
        uniforms, offset = self.noise.uniforms(len(rows), N_UNIFORMS).clamp(EDGE, 1 - EDGE), None
        if self.groups is not None and parameters.effects is not None:
            grouping = self.groups.rows
            inputs = grouping.inputs[rows].expand(len(self.design), -1, -1)
            offset = parameters.effects.offsets(grouping.group[rows], inputs, None)[0][..., 0]
        drawn, _, scores = self.compatible.draw_cells(
            c, self.completed[:, rows], predicted, before, parameters, self.margins, uniforms, offset
        )
        if scores is not None and c in self.targets:
            self.targets[c].scores[:, rows] = scores
        return drawn


@dataclass(frozen=True)
class ChainRun:
    """What chains have found."""

    parameters: list[Parameters]  # of each column
    outcome: OutcomeDraw | None  # of the analysis
    steps: Tensor  # (T, 2, S, C), moments of the columns after each cycle
    upper: dict[int, Tensor]  # (S, G), the codes of columns that are constant within groups

    @classmethod
    def joined(cls, parts: Sequence["ChainRun"]) -> "ChainRun":
        """Returns what several groups of chains have found together."""
        columns = zip(*(part.parameters for part in parts), strict=True)
        outcomes = [part.outcome for part in parts if part.outcome is not None]
        return cls(
            [Parameters.joined(several) for several in columns],
            OutcomeDraw.joined(outcomes) if outcomes else None,
            torch.cat([part.steps for part in parts], dim=2),
            {c: torch.cat([part.upper[c] for part in parts]) for c in parts[0].upper},
        )


@dataclass(frozen=True)
class ChainTrace(Trace):
    """The means and standard deviations of the completed columns after every cycle.

    Attributes
    ----------
    names : tuple of str
        The columns that have missing values.
    mean, std : ndarray of shape (n_cycles, n_chains, n_columns)
        Of their codes: numbers, or positions of levels.
    """

    of: ClassVar[str] = "the completed column"

    @property
    def kept(self) -> list[int]:
        """The cycles whose parameters are kept: the last one."""
        return [len(self.mean) - 1]

    def r_hat(self) -> dict[str, float]:
        r"""Returns the potential scale reduction of the mean of each column.

        .. math:: \hat{R}^2 = \frac{T - 1}{T} + \frac{B}{W}

        with the variance W within chains and the variance B of the means of chains, over the last T cycles,
        half of all. Values near 1 mean that chains cannot be told apart.
        """
        half = self.mean[len(self.mean) // 2 :]
        largest = np.abs(half).max(axis=(0, 1))
        half = half / np.where(largest > 0, largest, 1.0)  # squares of large numbers would overflow
        n_cycles, n_chains = half.shape[:2]
        if n_cycles < 2 or n_chains < 2:
            return dict.fromkeys(self.names, float("nan"))
        within = half.var(axis=0, ddof=1).mean(axis=0)
        between = half.mean(axis=0).var(axis=0, ddof=1)
        ratio = np.divide(between, within, out=np.zeros_like(within), where=within > 0)
        values = np.sqrt((n_cycles - 1) / n_cycles + ratio)
        return dict(zip(self.names, values.tolist(), strict=True))
