"""Completion of tables by chained equations whose parameters were drawn in `fit`.

A draw takes the parameters of one chain, starts from a draw of the joint Gaussian and repeats the cycle of
the regressions, with noise that is determined by the row. Rows of new tables are completed as those of `fit`
are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.special import ndtri

from halfseen._random import Keys, keys_of_draw, row_uniforms
from halfseen.base.completion import LevelProbabilities, central, enclosing
from halfseen.chained.analysis import N_UNIFORMS, CompatibleModel, OutcomeDraw
from halfseen.chained.blocks import check_covariance, draw_missing, followers, led_blocks
from halfseen.chained.chain import NO_CONSTRAINTS, NOT_PASSIVE, Passive
from halfseen.chained.constraints import Constraints, draw_within
from halfseen.chained.effects import EffectDraw
from halfseen.chained.equations import Average, Conditionals, Equation, Parameters
from halfseen.chained.formula import FAMILIES, SubstantiveModel
from halfseen.chained.grouped import GroupModel
from halfseen.chained.inputs import InputColumn, Inputs, Prediction, Role, decode_scores, score_codes
from halfseen.chained.methods import draw_by_method, method_from_state, method_state, spread_of_draws
from halfseen.chained.regressions import EDGE
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import Margin
from halfseen.data.schema import Column
from halfseen.gaussian.tabular import TabularGaussian

CELL_STREAM = 1 << 24  # beyond the streams of noise of the joint Gaussian
POINT_KEY = 0x9E3779B97F4A7C15  # of the draws behind `point`, which have the same noise in every row
POINT_CYCLES = 5  # further cycles, over which the conditional distributions are averaged
POINT_DRAWS = 100  # conditional distributions at least that are averaged; chosen: 0.1 of a standard deviation


@dataclass(frozen=True)
class TabularChain:
    """Regressions of each column on the others, with several draws of their parameters.

    Valid under MAR.
    """

    columns: Sequence[Column]  # the C modelled columns
    inputs: Inputs  # of the regressions
    equations: Sequence[Equation]  # one for each column
    parameters: Sequence[Parameters]  # of each column, in M chains
    margins: Sequence[FeatureMap]  # the features of each chain, with its margins
    start: TabularGaussian  # the joint distribution from which cycles start
    order: Sequence[int]  # the columns in the order of a cycle
    n_cycles: int  # the number of cycles of a draw
    compatible: CompatibleModel | None = None  # the analysis with which draws are compatible
    outcome: OutcomeDraw | None = None  # the parameters of the analysis in every chain
    groups: GroupModel | None = None  # the groups of rows, if regressions have effects of groups
    constraints: Constraints = NO_CONSTRAINTS  # the order constraints that completed rows obey
    passive: Passive = NOT_PASSIVE  # the derived columns, which are computed
    blocks: Sequence[tuple[int, ...]] = ()  # the columns that are drawn together

    def with_parameters(
        self,
        parameters: Sequence[Parameters],
        outcome: OutcomeDraw | None = None,
        groups: GroupModel | None = None,
    ) -> "TabularChain":
        """Returns the model with the parameters of each column, of the analysis and of groups."""
        return replace(self, parameters=parameters, outcome=outcome, groups=groups)

    def with_blocks(self, blocks: Sequence[tuple[int, ...]]) -> "TabularChain":
        """Returns the model with columns that are drawn together, after a check of what it needs for that."""
        for block in blocks:
            for c in block:
                check_covariance(
                    self.parameters[c].covariance, self.n_chains, len(block), self.columns[c].name
                )
        return replace(self, blocks=blocks)

    @property
    def n_chains(self) -> int:
        """The number of draws of the parameters."""
        return len(self.margins)

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C); draw s uses the parameters of chain s."""
        return self._completed(codes, keys, n_draws)

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by expected numbers and most probable levels."""
        found = self.conditionals(codes)
        result = codes.x.clone()
        for column in self.inputs.columns:
            result[:, column.position] = self._centre(column, found)
        return self.constraints.enforce(codes, torch.where(codes.observed, codes.x, result))

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of numbers and ordered levels; most probable levels for categories."""
        found = self.conditionals(codes)
        return torch.stack(
            [torch.where(codes.observed, codes.x, self._quantile(found, codes, p)) for p in probabilities]
        )

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of central intervals; most probable levels for categories."""
        found, point = self.conditionals(codes), codes.x.clone()
        ends = torch.stack([self._quantile(found, codes, p) for p in central(level)])
        for column in self.inputs.columns:
            c = column.position
            point[:, c] = self._centre(column, found)
            margin = self._margin(column)
            whole = column.role == Role.NUMBER and column.spike is None
            if whole and margin is not None and margin.by_interval:
                ends[:, :, c] = torch.stack(margin.ends(*self._moments(column, found), level))
        return torch.where(codes.observed, codes.x, enclosing(ends, point, level))

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        found = self.conditionals(codes)
        result = {}
        for column in self.inputs.columns:
            c, levels = column.position, self.columns[column.position].levels
            if levels is None:
                continue
            if column.block is not None:
                observed = torch.where(codes.observed[:, c], codes.x[:, c], -1.0).long()
                result[c] = LevelProbabilities(found.levels[c], column.block, observed)
            else:
                shares = found.levels[c] if c in found.levels else self._by_threshold(column, found)
                result[c] = LevelProbabilities.of_levels(shares, codes, c)
        return result

    def conditionals(self, codes: Incomplete) -> Conditionals:
        """Returns the distribution of each missing cell given the observed cells of its row.

        It is the average of the distributions given all other cells, over further cycles of every chain. The
        noise of these cycles is the same in every row.
        """
        found = Average.over(codes, self.inputs.columns)
        n_draws = draws_of_point(self.n_chains)
        keys = np.full(len(codes), POINT_KEY, dtype=np.uint64)
        self._completed(codes, keys, n_draws, found)
        return found.result()

    def _completed(
        self, codes: Incomplete, keys: Keys, n_draws: int, average: Average | None = None
    ) -> Tensor:
        """Returns completed codes (S, N, C) after all cycles, or averages their conditional distributions."""
        completed = self.start.draws(codes, keys, n_draws)
        constrain_draws(self.columns, codes, completed)
        if n_draws == 0 or bool(codes.observed.all()):
            return completed
        which = torch.arange(n_draws) % self.n_chains
        settled = self._settle(codes, completed, which, average)
        self.passive.fill(codes, completed)
        design = self.inputs.design(completed)
        of_draws = np.stack([keys_of_draw(keys, s) for s in range(n_draws)])
        # Rows with one missing cell need one cycle only, unless its draw depends on its value before.
        several, constrained = (~codes.observed).sum(dim=1) > 1, self.constraints.columns
        n_cycles = self.n_cycles + (0 if average is None else POINT_CYCLES)
        blocks = led_blocks(self.blocks, self.order)
        skipped = followers(blocks) | set(self.passive.formulas)
        for cycle in range(n_cycles):
            last = cycle == n_cycles - 1
            for c in self.order:
                if c in skipped:
                    continue
                if c in blocks:
                    rows = (~codes.observed[:, blocks[c]].all(dim=1) & (several | last)).nonzero().squeeze(1)
                    stream = CELL_STREAM + cycle * len(self.columns) + c
                    normals = ndtri(self._noise(of_draws, rows, len(blocks[c]), stream))
                    added = average if cycle >= self.n_cycles else None
                    self._visit_block(blocks[c], codes, rows, which, normals, completed, design, added)
                    continue
                visited = several | last | self._is_compatible(c) | (c in constrained)
                rows = (~codes.observed[:, c] & visited & ~settled[:, c]).nonzero().squeeze(1)
                if len(rows) == 0:
                    continue
                n_uniforms = N_UNIFORMS if self._is_compatible(c) else 1
                stream = CELL_STREAM + cycle * len(self.columns) + c
                uniforms = self._noise(of_draws, rows, n_uniforms, stream)
                if self.parameters[c].own is not None:
                    drawn, predicted = self._draw_by_method(c, design[:, rows], which, uniforms[..., 0])
                else:
                    of_groups = self._added(c, rows, completed, which, None if average else of_draws)
                    predicted = self._predict(c, design[:, rows], which, of_groups)
                    offset = self._offset(c, rows, completed, which, of_draws)
                    drawn, predicted = self._draw(c, completed[:, rows], predicted, which, uniforms, offset)
                if average is not None and cycle >= self.n_cycles:
                    average.add(self.inputs.columns[c], rows, predicted)
                self._replace(c, rows, drawn, codes, completed, design)
        return completed

    @staticmethod
    def _noise(of_draws: Keys, rows: Tensor, n_uniforms: int, stream: int) -> Tensor:
        """Returns uniforms (S, R, U) of some rows."""
        found = row_uniforms(of_draws[:, rows.numpy()].reshape(-1), 0, n_uniforms, stream)
        return torch.from_numpy(found).reshape(len(of_draws), len(rows), n_uniforms)

    def _visit_block(
        self,
        block: tuple[int, ...],
        codes: Incomplete,
        rows: Tensor,
        which: Tensor,
        normals: Tensor,
        completed: Tensor,
        design: Tensor,
        average: Average | None,
    ) -> None:
        """Draws the missing cells of a block in some rows together, by normals (S, R, B)."""
        known = codes.observed[rows][:, block]
        margins = [self.margins[s] for s in which.tolist()]
        columns = [self.inputs.columns[c] for c in block]
        each = [self._predict(c, design[:, rows], which, None)[0] for c in block]
        scores = [score_codes(one, completed[:, rows, one.position], margins) for one in columns]
        covariance = self.parameters[block[0]].covariance
        assert covariance is not None
        found, mean, spread = draw_missing(
            torch.stack(each, dim=-1), covariance[which], torch.stack(scores, dim=-1), known, normals
        )
        for j, (c, column) in enumerate(zip(block, columns, strict=True)):
            missing = ~known[:, j]
            if average is not None:
                of_cells = Prediction(mean[:, missing, j], spread[:, missing, j])
                average.add(column, rows[missing], of_cells)
            drawn = decode_scores(self.columns[c], column, found[:, missing, j], margins)
            self._replace(c, rows[missing], drawn, codes, completed, design)

    def _replace(
        self, c: int, rows: Tensor, drawn: Tensor, codes: Incomplete, completed: Tensor, design: Tensor
    ) -> None:
        """Writes codes (S, R) of some rows of a column, and computes the columns that are derived from it."""
        self._put(c, rows, drawn, completed, design)
        for derived in self.passive.dependents(c):
            among = rows[~codes.observed[rows, derived]]
            self._put(derived, among, self.passive.values(derived, completed[:, among]), completed, design)

    def _put(self, c: int, rows: Tensor, drawn: Tensor, completed: Tensor, design: Tensor) -> None:
        """Writes codes (S, R) of some rows of a column into the completed codes and the design."""
        completed[:, rows, c] = drawn
        column = self.inputs.columns[c]
        design[:, rows, column.start : column.stop] = self.inputs.encode(column, drawn)

    def _settle(self, codes: Incomplete, completed: Tensor, which: Tensor, average: Average | None) -> Tensor:
        """Completes the cells that are known from other rows of their group, and returns where they are."""
        settled = torch.zeros_like(codes.observed)
        if self.groups is None:
            return settled
        for c, values in self.groups.upper.items():
            rows = (~codes.observed[:, c] & (self.groups.of_rows >= 0)).nonzero().squeeze(1)
            settled[rows, c] = True
            found = values[which][:, self.groups.of_rows[rows]]
            completed[:, rows, c] = found
            column = self.inputs.columns[c]
            if average is None or not len(rows):
                continue
            if column.role == Role.NUMBER:
                scores = score_codes(column, found, [self.margins[s] for s in which.tolist()])
                average.add(column, rows, Prediction(scores, torch.zeros_like(scores)))
            else:
                shares = torch.nn.functional.one_hot(column.level_of(found), column.n_levels).double()
                average.add(column, rows, Prediction(shares, shares))
        return settled

    def _added(
        self, c: int, rows: Tensor, completed: Tensor, which: Tensor, of_draws: Keys | None
    ) -> tuple[Tensor, Tensor] | None:
        """Returns what `EffectDraw.offsets` does for some rows; None if the regression has no effects."""
        effects = self.parameters[c].effects
        if self.groups is None or effects is None:
            return None
        return self.groups.added(c, effects.of(which), rows, completed[:, rows], of_draws)

    def _offset(
        self, c: int, rows: Tensor, completed: Tensor, which: Tensor, of_draws: Keys
    ) -> Tensor | None:
        """Returns the effects (S, R) of groups on the outcome of an analysis that concerns a column."""
        if self.groups is None or self.outcome is None or not self._is_compatible(c):
            return None
        effects = self.outcome.effects
        assert effects is not None
        stream = len(self.columns)  # beyond those of the regressions
        return self.groups.added(stream, effects.of(which), rows, completed[:, rows], of_draws)[0][..., 0]

    def _predict(
        self, c: int, design: Tensor, which: Tensor, added: tuple[Tensor, Tensor] | None
    ) -> Prediction:
        """Returns what `Parameters.predict` does, of rows (S, R, P) by the parameters of chains (S)."""
        equation, every = self.equations[c], self.parameters[c]
        return every.of(which).predict(equation, design[:, :, equation.inputs], added)

    def _is_compatible(self, c: int) -> bool:
        return self.compatible is not None and self.compatible.concerns(c)

    def _draw(
        self,
        c: int,
        cells: Tensor,
        predicted: Prediction,
        which: Tensor,
        uniforms: Tensor,
        offset: Tensor | None,
    ) -> tuple[Tensor, Prediction]:
        """Returns codes (S, R) of a column, drawn by uniforms (S, R, U), and their prediction."""
        column = self.inputs.columns[c]
        margins = [self.margins[s] for s in which.tolist()]
        if self._is_compatible(c):
            assert self.compatible is not None
            assert self.outcome is not None
            given = self.outcome.of(which)
            drawn, predicted, _ = self.compatible.draw_cells(
                c, cells, predicted, None, given, margins, uniforms, offset
            )
            return drawn, predicted
        first, spread, spike = predicted
        limits = self.constraints.bounds(c, cells)
        if limits is not None:
            drawn = draw_within(self.columns[c], column, predicted, limits, margins, uniforms[..., 0])
            return drawn, self._as_distribution(c, drawn, which)  # that of the draws, which are many
        if column.role != Role.NUMBER:
            return column.draw_level(first, uniforms[..., 0]), predicted
        chance, chosen = uniforms[..., 0], None
        if spike is not None:  # one number decides whether it is the spike, and which value it is otherwise
            chosen = chance < spike
            chance = ((chance - spike) / (1 - spike)).clamp(EDGE, 1 - EDGE)
        codes = decode_scores(self.columns[c], column, first + spread * ndtri(chance), margins)
        return column.with_spike(codes, chosen), predicted

    def _draw_by_method(
        self, c: int, design: Tensor, which: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Prediction]:
        """Does what `_draw` does for a column that has a method of its own, from a design (S, R, P)."""
        own = self.parameters[c].of(which).own
        assert own is not None
        drawn = draw_by_method(own, self.columns[c], design[:, :, self.equations[c].inputs], uniforms)
        return drawn, self._as_distribution(c, drawn, which)

    def _as_distribution(self, c: int, drawn: Tensor, which: Tensor) -> Prediction:
        column, margins = self.inputs.columns[c], [self.margins[s] for s in which.tolist()]
        return spread_of_draws(column, drawn, lambda codes: score_codes(column, codes, margins))

    def _margin(self, column: InputColumn) -> Margin | None:
        margins = self.inputs.features.margins
        return margins[column.feature] if margins and column.role == Role.NUMBER else None

    def _moments(self, column: InputColumn, found: Conditionals) -> tuple[Tensor, Tensor]:
        """Returns mean and deviation (N) of the scores of a number, before they are standardised."""
        scaler, c = self.inputs.features.scaler, column.position
        loc, scale = scaler.loc[column.feature], scaler.scale[column.feature]
        return found.mean[:, c] * scale + loc, found.variance[:, c].sqrt() * scale

    def _centre(self, column: InputColumn, found: Conditionals) -> Tensor:
        """Returns the expected numbers, or the most probable levels (N), of a column."""
        c = column.position
        if column.block is not None:
            return column.block.likeliest(found.levels[c]).to(torch.float64)
        if column.role == Role.ORDERED:
            if self.columns[c].levels is not None:
                return column.values[found.levels[c].argmax(dim=1)]
            return found.levels[c] @ column.values
        if self.columns[c].levels is not None:
            return self._by_threshold(column, found).argmax(dim=1).to(torch.float64)
        margin, moments = self._margin(column), self._moments(column, found)
        centre = moments[0] if margin is None else margin.mean(*moments)
        if column.spike is None:
            return centre
        share = found.spikes[c]
        return share * column.spike.value + (1 - share) * centre

    def _quantile(self, found: Conditionals, codes: Incomplete, probability: float) -> Tensor:
        """Returns one quantile (N, C) of every cell."""
        result = codes.x.clone()
        for column in self.inputs.columns:
            c = column.position
            if column.block is not None:
                result[:, c] = self._centre(column, found)
            elif column.role == Role.ORDERED:
                reached = found.levels[c].cumsum(dim=1)[:, :-1] < probability
                result[:, c] = column.values[reached.sum(dim=1)]
            else:
                share, chosen = torch.full_like(result[:, c], probability), None
                if column.spike is not None:
                    share, chosen = column.spike.left_share(share, found.spikes[c])
                score = found.mean[:, c] + found.variance[:, c].sqrt() * ndtri(share)
                number = self.inputs.features.decode_number(column.feature, score)
                result[:, c] = column.with_spike(number, chosen)
        return result

    def _by_threshold(self, column: InputColumn, found: Conditionals) -> Tensor:
        """Returns the probability (N, L) of the levels of an ordinal column that is modelled by a score."""
        c = column.position
        n_features = self.inputs.features.n_features
        mean, variance = (found.mean.new_zeros(len(found.mean), n_features) for _ in range(2))
        mean[:, column.feature], variance[:, column.feature] = found.mean[:, c], found.variance[:, c]
        return self.start.ordinal_probabilities(mean, variance, c)

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        state = self.start.state() | self.inputs.state()
        state |= {"chain.order": torch.tensor(self.order), "chain.cycles": torch.tensor([self.n_cycles])}
        for equation, drawn in zip(self.equations, self.parameters, strict=True):
            name = f"chain.{equation.column.position}"
            state |= {f"{name}.inputs": equation.inputs, f"{name}.coefficients": drawn.coefficients}
            if drawn.scale is not None:
                state[f"{name}.scale"] = drawn.scale
            if drawn.effects is not None:
                state |= {f"{name}.{field}": tensor for field, tensor in vars(drawn.effects).items()}
            if drawn.covariance is not None:
                state[f"{name}.together"] = drawn.covariance
            if drawn.spike is not None:
                state[f"{name}.spike"] = drawn.spike
            if drawn.own is not None:
                state |= {f"{name}.method.{field}": one for field, one in method_state(drawn.own).items()}
        for s, features in enumerate(self.margins):
            state |= features.margin_state(f"chain.{s}.margin")
        if self.outcome is not None:
            state |= self.outcome.state()
        if self.compatible is not None and self.compatible.analysis.found:
            analysis = self.compatible.analysis
            state["chain.outcome"] = torch.tensor([analysis.outcome, FAMILIES.index(analysis.family)])
        return state

    @classmethod
    def from_state(
        cls,
        columns: Sequence[Column],
        state: Mapping[str, Tensor],
        analysis: SubstantiveModel | None = None,
        methods: Mapping[str, str] | None = None,
    ) -> "TabularChain":
        """Rebuilds the model from its columns, the analysis, methods and what `state` returned."""
        start = TabularGaussian.from_state(columns, state)
        inputs = Inputs.from_state(columns, start.features, state)
        equations, parameters = [], []
        for column in inputs.columns:
            name = f"chain.{column.position}"
            places = state[f"{name}.inputs"]
            equations.append(Equation(column, places, torch.empty(0, dtype=torch.float64)))
            effects = None
            if f"{name}.values" in state:
                effects = EffectDraw(state[f"{name}.values"], state[f"{name}.covariance"])
            coefficients, own = state[f"{name}.coefficients"], None
            method = (methods or {}).get(columns[column.position].name, "regression")
            if method != "regression":
                shape = (len(coefficients), len(places))
                own = method_from_state(method, state, f"{name}.method.", *shape)
            scale, covariance = state.get(f"{name}.scale"), state.get(f"{name}.together")
            spike = state.get(f"{name}.spike")
            parameters.append(Parameters(coefficients, scale, effects, own, covariance, spike))
            _check_equation(inputs, equations[-1], parameters[-1], len(parameters[0].coefficients))
        order, n_cycles = state["chain.order"], state["chain.cycles"]
        if order.dtype != torch.int64 or sorted(order.tolist()) != list(range(len(columns))):
            raise ValueError("The order of chained equations does not name each column once.")
        if n_cycles.shape != (1,) or n_cycles.dtype != torch.int64 or not 1 <= int(n_cycles) <= 10_000:
            raise ValueError("The number of cycles of chained equations is not a positive whole number.")
        margins = [
            inputs.features.with_margins(state, f"chain.{s}.margin")
            for s in range(len(parameters[0].coefficients))
        ]
        model = cls(columns, inputs, equations, parameters, margins, start, order.tolist(), int(n_cycles))
        if analysis is None and "chain.outcome" in state:
            analysis = SubstantiveModel.from_state(columns, state["chain.outcome"])
        if analysis is None:
            return model
        outcome = OutcomeDraw.from_state(state, analysis, model.n_chains)
        compatible = CompatibleModel(analysis, columns, inputs, (outcome.loc, outcome.unit))
        return replace(model, compatible=compatible, outcome=outcome)


def draws_of_point(n_chains: int) -> int:
    """Returns the number of draws behind `point`: as many from each chain, so that enough are averaged."""
    return n_chains * math.ceil(POINT_DRAWS / (POINT_CYCLES * n_chains))


def constrain_draws(columns: Sequence[Column], codes: Incomplete, drawn: Tensor) -> None:
    """Replaces drawn codes (S, N, C) by those that may be imputed; observed ones stay."""
    for c, column in enumerate(columns):
        rows = (~codes.observed[:, c]).nonzero().squeeze(1)
        if len(rows):
            drawn[:, rows, c] = torch.from_numpy(column.constrain(drawn[:, rows, c].numpy()))


def _check_equation(inputs: Inputs, equation: Equation, drawn: Parameters, n_chains: int) -> None:
    """Raises a ValueError unless the tensors of a regression fit each other and the inputs."""
    column, places = equation.column, equation.inputs
    own = range(column.start, column.stop)
    wrong = places.ndim != 1 or places.dtype != torch.int64 or len(places) == 0 or int(places[0]) != 0
    wrong = wrong or bool((torch.diff(places) <= 0).any()) or int(places[-1]) >= inputs.width
    wrong = wrong or any(place in own for place in places.tolist())
    n_free = {Role.NUMBER: 1, Role.LEVELS: column.n_levels - 1, Role.ORDERED: column.n_levels - 1}[
        column.role
    ]
    by_level = column.role != Role.ORDERED or drawn.effects is not None
    width = len(places) * n_free if by_level else n_free + len(places) - 1
    shape = (n_chains, width)
    if drawn.own is not None:
        shape = (n_chains, 0)
    wrong = wrong or n_chains < 1 or drawn.coefficients.shape != shape
    wrong = wrong or drawn.coefficients.dtype != torch.float64
    has_scale = column.role == Role.NUMBER and drawn.own is None
    wrong = wrong or (drawn.scale is None) == has_scale
    wrong = wrong or (drawn.spike is None) != (column.spike is None)
    if not wrong and drawn.spike is not None:
        wrong = drawn.spike.shape != (n_chains, len(places)) or drawn.spike.dtype != torch.float64
    if not wrong and drawn.scale is not None:
        wrong = drawn.scale.shape != (n_chains,) or not bool((drawn.scale >= 0).all())
    if not wrong and drawn.effects is not None:
        wrong = not drawn.effects.fits(n_chains, n_free)
    if wrong:
        raise ValueError(f"The regression of column {column.position} does not fit its inputs.")
