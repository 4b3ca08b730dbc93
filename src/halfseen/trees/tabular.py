r"""Chained boosted trees over the columns of a mixed table, started from a Gaussian.

A Gaussian completes a row. Then every missing cell is predicted again from the completed rest of its row, by
the trees of its column (`halfseen.trees.heads`). This is repeated for a few rounds, each with its own
trees. The trees of the last round give the marginal distribution of each missing cell.

Joint draws follow the chain rule. Levels are drawn one after the other, and each is then treated as observed.
Finally, all missing numbers are drawn together: the marginal distribution of each is given by the trees, and
their dependence is that of the Gaussian given the observed cells (its conditional copula).

A column may be limited to some predictors. These are then the inputs of its trees, and its initial prediction
is that of the Gaussian given the observed cells of these columns only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.special import ndtr

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._random import Keys, row_uniforms
from halfseen.base.completion import LevelProbabilities, central, enclosing
from halfseen.data.features import Block
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.gaussian.tabular import TabularGaussian
from halfseen.trees.forest import Forest
from halfseen.trees.heads import Head, LevelHead, NumberHead, predict_cell

Round = Mapping[int, Head]

LEVEL_STREAM = 1 << 16  # stream of noise that chooses levels, one for each column
GRID = 2.0**-24  # the inputs of trees are rounded to multiples of this
MAX_LEVELS = 40  # ordered columns with more levels are not predicted by trees


@dataclass
class Basis:
    """The inputs of trees: completed rows, with the prediction for each missing cell.

    Shapes
    ------
    values : (N, C), numbers, positions of ordered levels, and groups of levels
    spread : (N, C), the standard deviation of the score of a missing number
    probabilities : by column with levels, (N, G)
    seen : (N), the share of the cells of a row that are not missing
    scale : (C), by which trees see the values divided
    seen_predictors : (N), by limited column, the share of its predictors that are not missing
    """

    values: Floats
    spread: Floats
    probabilities: dict[int, Floats]
    seen: Floats
    scale: Floats
    seen_predictors: dict[int, Floats] = field(default_factory=dict)

    def inputs(self, head_column: int, predictors: Integers, rows: Integers) -> Floats:
        """Returns the inputs (R, D) of the trees of a column, for some rows."""
        others = self._scaled(rows, predictors)
        if head_column in self.probabilities:
            own = self.probabilities[head_column][rows]
        else:
            mean = self._scaled(rows, np.array([head_column]))
            own = np.concatenate([mean, self.spread[rows, head_column, None]], axis=1)
        seen = self.seen_predictors.get(head_column, self.seen)
        inputs = np.concatenate([others, seen[rows, None], own], axis=1)
        rounded: Floats = np.round(inputs / GRID) * GRID
        return rounded

    def _scaled(self, rows: Integers, columns: Integers) -> Floats:
        found: Floats = self.values[rows][:, columns] / self.scale[columns]
        return found

    def copy(self) -> "Basis":
        """Returns rows that can be updated."""
        found = {c: array.copy() for c, array in self.probabilities.items()}
        return replace(self, values=self.values.copy(), probabilities=found)

    def update(self, column: int, rows: Integers, found: Floats) -> None:
        """Replaces the predictions for the cells of a column: locations (R), or probabilities (R, G)."""
        if column in self.probabilities:
            self.probabilities[column][rows] = found
            self.values[rows, column] = found.argmax(axis=1)
        else:
            self.values[rows, column] = found * self.scale[column]


@dataclass(frozen=True)
class TabularTrees:
    r"""Chained trees over the codes of a table. Valid under MAR.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    gaussian : TabularGaussian
        The start of the chain, and the dependence between the missing numbers of a row.
    rounds : sequence of mappings
        The heads of each round by column. A column without a head is left to the Gaussian.
    scale : array of shape (C,)
        The divisors of numbers in the inputs of trees. These inputs are also rounded, so that rounding errors
        cannot move a row to the other side of a threshold.
    limits : mapping of int to array of int
        The columns that may predict a column, for those that are limited.
    """

    columns: Sequence[Column]
    gaussian: TabularGaussian
    rounds: Sequence[Round]
    scale: Floats
    limits: Mapping[int, Integers] = field(default_factory=dict)

    @property
    def left_to_gaussian(self) -> list[int]:
        """The columns that no tree predicts, so that their distributions are those of the Gaussian."""
        grown = {
            c
            for heads in self.rounds
            for c, head in heads.items()
            if isinstance(head, NumberHead) or len(head.classes)
        }
        return [c for c in range(len(self.columns)) if c not in grown]

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        return self._point_of(
            self._refined(self.start(codes), ~codes.observed.numpy(), len(self.rounds)), codes
        )

    def _point_of(self, basis: Basis, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by the predictions of the last round."""
        result = torch.from_numpy(basis.values.copy())
        for c, block in self.blocks.items():
            result[:, c] = block.likeliest(torch.from_numpy(basis.probabilities[c])).double()
        return torch.where(codes.observed, codes.x, result)

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        basis = self._refined(self.start(codes), ~codes.observed.numpy(), len(self.rounds))
        levels = {c: torch.where(codes.observed[:, c], codes.x[:, c], -1.0).long() for c in self.blocks}
        return {
            c: LevelProbabilities(torch.from_numpy(basis.probabilities[c]), block, levels[c])
            for c, block in self.blocks.items()
        }

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of each number by itself; most probable levels otherwise."""
        found, point = self._with_heads(
            codes, probabilities, lambda rows: self.gaussian.quantiles(rows, probabilities)
        )
        return self._with_levels(codes, found, point)

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of central intervals of numbers; most probable levels otherwise."""
        found, point = self._with_heads(
            codes, central(level), lambda rows: self.gaussian.interval(rows, level)
        )
        return self._with_levels(codes, enclosing(found, point, level), point)

    def _with_heads(
        self,
        codes: Incomplete,
        probabilities: Sequence[float],
        by_gaussian: Callable[[Incomplete], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Returns quantiles (Q, N, C) of missing numbers by the trees, and the completed codes (N, C).

        Quantiles are those `by_gaussian` where there are no trees.
        """
        asked = np.asarray(probabilities)[:, None]
        missing = ~codes.observed.numpy()
        if all(c in self._last or not missing[:, c].any() for c in self.gaussian.features.numeric):
            result = codes.x.expand(len(asked), -1, -1).clone()
        else:
            result = by_gaussian(codes)
            for columns, shown in self._limited(codes):
                result[..., columns] = by_gaussian(shown)[..., columns]
        basis = self._refined(self.start(codes), missing, len(self.rounds) - 1)
        for c, head in self._last.items():
            rows = np.flatnonzero(missing[:, c])
            if isinstance(head, NumberHead) and len(rows):
                found = head.quantiles(basis.inputs(c, head.predictors, rows), asked, self.scale[c])
                result[:, torch.from_numpy(rows), c] = torch.from_numpy(found)
        return result, self._point_of(refine(basis, self._last, missing), codes)

    def _with_levels(self, codes: Incomplete, numbers: Tensor, point: Tensor) -> Tensor:
        """Returns (Q, N, C) with the numbers given, and with the most probable levels (N, C) of the point."""
        levels = list(self.blocks)
        numbers[..., levels] = point[:, levels]
        return torch.where(codes.observed, codes.x, numbers)

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C) drawn jointly."""
        values = codes.x.expand(n_draws, -1, -1).clone()
        observed = codes.observed.clone()
        for c, block in self.blocks.items():
            rows = (~codes.observed[:, c]).nonzero().squeeze(1)
            if len(rows) and n_draws:
                own = keys[rows.numpy()]
                uniforms = [row_uniforms(own, s, 1, LEVEL_STREAM + c)[:, 0] for s in range(n_draws)]
                groups = self._level_given(values[:, rows], observed[rows], c)  # (S, R, G)
                values[:, rows, c] = block.draw(groups, torch.from_numpy(np.stack(uniforms))).double()
                observed[rows, c] = True
        drawn = (observed != codes.observed).any(dim=1)  # rows whose draws differ in levels
        for differ in (drawn, ~drawn):
            rows = (differ & ~observed.all(dim=1)).nonzero().squeeze(1)
            if len(rows) and n_draws:
                some = values[:, rows]
                self._draw_numbers(some, observed[rows], keys[rows.numpy()], shared=differ is not drawn)
                values[:, rows] = some
        return torch.where(codes.observed, codes.x, values)

    @classmethod
    def without_trees(
        cls,
        columns: Sequence[Column],
        codes: Incomplete,
        gaussian: TabularGaussian,
        limits: Mapping[int, Integers],
    ) -> "TabularTrees":
        """Returns the Gaussian by itself, with the scales of the codes (N, C) that it was fitted to."""
        scale = np.ones(len(columns))
        for c, column in enumerate(columns):
            if column.levels is None:
                x = codes.x[codes.observed[:, c], c].numpy()
                largest = np.abs(x).max(initial=0.0) or 1.0
                spread = float((x / largest).std()) * largest
                scale[c] = spread if spread > 0 else largest
        return cls(columns, gaussian, (), scale, limits)

    def start(self, codes: Incomplete) -> Basis:
        """Returns rows as the Gaussian completes them."""
        return self._as_basis(codes, *self.gaussian.scores(self.gaussian.features.encode(codes)))

    @cached_property
    def blocks(self) -> dict[int, Block]:
        """The groups of levels of each column that has levels; ordered levels are groups by themselves."""
        found = {block.column: block for block in self.gaussian.features.blocks}
        for c in self.gaussian.features.ordinal:
            n_levels = len(self.columns[c].levels or ())
            alone = torch.arange(n_levels)
            found[c] = Block(c, 0, n_levels, alone, torch.ones(n_levels, dtype=torch.float64))
        return dict(sorted(found.items()))

    @property
    def _last(self) -> Round:
        return self.rounds[-1] if self.rounds else {}

    def _limited(self, codes: Incomplete) -> Iterator[tuple[list[int], Incomplete]]:
        """Yields the columns that are limited to the same predictors, and what is seen of these."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for c, predictors in self.limits.items():
            groups.setdefault(tuple(predictors.tolist()), []).append(c)
        for several, columns in groups.items():
            allowed = torch.zeros(codes.x.shape[1], dtype=torch.bool)
            allowed[list(several)] = True
            yield columns, Incomplete(codes.x, codes.observed & allowed)

    def _as_basis(self, codes: Incomplete, mean: Tensor, variance: Tensor) -> Basis:
        """Returns rows completed by the mean and variance (N, D) of their features; limited columns apart."""
        basis = self._all_given(codes, mean, variance)
        for columns, shown in self._limited(codes):
            own = self._all_given(shown, *self.gaussian.scores(self.gaussian.features.encode(shown)))
            n_predictors = max(1, len(self.limits[columns[0]]))
            for c in columns:
                rows = np.flatnonzero(~codes.observed[:, c].numpy())
                basis.values[rows, c], basis.spread[rows, c] = own.values[rows, c], own.spread[rows, c]
                basis.seen_predictors[c] = shown.observed.double().sum(dim=1).numpy() / n_predictors
                if c in basis.probabilities:
                    basis.probabilities[c][rows] = own.probabilities[c][rows]
        return basis

    def _all_given(self, codes: Incomplete, mean: Tensor, variance: Tensor) -> Basis:
        """Returns rows completed by the mean and variance (N, D) of their features."""
        features = self.gaussian.features
        numeric = list(features.numeric)
        values, spread = codes.x.clone(), torch.zeros_like(codes.x)
        values[:, numeric] = features.mean_numbers(mean, variance, ~codes.observed)
        spread[:, numeric] = variance[:, : len(numeric)].sqrt()
        values = torch.where(codes.observed, codes.x, values)
        probabilities = {}
        for c, block in self.blocks.items():
            if c in features.ordinal:
                found = self.gaussian.ordinal_probabilities(mean, variance, c)
            else:
                found = features.group_probabilities(mean, block)
            seen = codes.observed[:, c]
            group = block.group[torch.where(seen, codes.x[:, c], 0.0).long()]
            values[:, c] = torch.where(seen, group, found.argmax(dim=1)).double()
            probabilities[c] = found.numpy()
        share = codes.observed.double().mean(dim=1).numpy()
        return Basis(values.numpy(), spread.numpy(), probabilities, share, self.scale)

    def _refined(self, basis: Basis, missing: Booleans, n_rounds: int) -> Basis:
        """Returns rows after the first rounds; all columns of a round see the rows before it."""
        for heads in self.rounds[: max(0, n_rounds)]:
            basis = refine(basis, heads, missing)
        return basis

    def _level_given(self, values: Tensor, observed: Tensor, column: int) -> Tensor:
        """Returns the probabilities (S, R, G) of a missing level given the cells that are seen or drawn."""
        n_draws, head = len(values), self._last.get(column)
        _, _, mean, variance = self._scores_of_draws(values, observed)
        basis = self._basis_of_draws(values, observed, mean, variance)
        if head is None:
            found = basis.probabilities[column]
        else:
            missing = ~observed.repeat(n_draws, 1).numpy()
            basis = self._refined(basis, missing, len(self.rounds) - 1)
            found = predict_cell(head, basis.inputs(column, head.predictors, np.arange(len(basis.values))))
        return torch.from_numpy(found).reshape(n_draws, len(observed), -1)

    def _draw_numbers(self, values: Tensor, observed: Tensor, keys: Keys, *, shared: bool) -> None:
        """Replaces missing numbers of values (S, N, C) by joint draws; `shared` if all draws see the same."""
        features, n_draws = self.gaussian.features, len(values)
        given = values[:1].clone() if shared else values.clone()
        x, shown, mean, variance = self._scores_of_draws(given, observed)
        drawn = self.gaussian.complete_scores(x[0] if shared else x, shown, keys, range(n_draws))
        normals = (drawn - mean) / variance.clamp(min=1e-300).sqrt()
        uniforms = ndtr(normals)
        missing = ~observed.repeat(len(given), 1).numpy()
        basis = self._basis_of_draws(given, observed, mean, variance)
        basis = self._refined(basis, missing, len(self.rounds) - 1)
        for i, c in enumerate(features.numeric):
            head, rows = self._last.get(c), (~observed[:, c]).nonzero().squeeze(1)
            if isinstance(head, NumberHead):
                inputs = basis.inputs(c, head.predictors, np.flatnonzero(missing[:, c]))
                asked = uniforms[:, rows, i].reshape(n_draws // len(given), -1).numpy()
                found = torch.from_numpy(head.quantiles(inputs, asked, self.scale[c]))
                values[:, rows, c] = found.reshape(n_draws, -1)
            elif c in self.limits:
                for s in range(n_draws):
                    one = Incomplete(given[0 if shared else s], observed)
                    values[s, rows, c] = self._given_predictors(one, c, normals[s])[rows, i]
            else:
                values[:, rows, c] = features.numbers(drawn)[:, rows, i]

    def _given_predictors(self, codes: Incomplete, column: int, normals: Tensor) -> Tensor:
        """Returns numbers (N, n_numeric) of normals (N, D), given the predictors of a column."""
        features = self.gaussian.features
        shown = next(shown for columns, shown in self._limited(codes) if column in columns)
        mean, variance = self.gaussian.scores(features.encode(shown))
        return features.numbers(mean + normals * variance.sqrt())

    def _scores_of_draws(self, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the features (S, R, D) of draws (S, R, C) that share what is seen (R, C), and moments.

        These are the mask of the features (R, D), their mean (S, R, D) given what is seen, and their variance
        (R, D), which is the same in all draws.
        """
        n_draws = len(values)
        flat = Incomplete(values.flatten(0, 1), observed.repeat(n_draws, 1))
        rows = self.gaussian.features.encode(flat)
        x, shown = rows.x.unflatten(0, (n_draws, -1)), rows.observed[: len(observed)]
        variance = self.gaussian.scores(Incomplete(x[0], shown))[1]
        return x, shown, self.gaussian.gaussian.complete(x, shown), variance

    def _basis_of_draws(self, values: Tensor, observed: Tensor, mean: Tensor, variance: Tensor) -> Basis:
        """Returns the rows of draws (S, R, C) that share what is seen (R, C), one draw after the other."""
        flat = Incomplete(values.flatten(0, 1), observed.repeat(len(values), 1))
        return self._as_basis(flat, mean.flatten(0, 1), variance.repeat(len(values), 1))

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        tensors = {f"gaussian.{name}": tensor for name, tensor in self.gaussian.state().items()}
        tensors["scale"] = torch.from_numpy(self.scale)
        for c, predictors in self.limits.items():
            tensors[f"predictors.{c}"] = torch.from_numpy(predictors)
        heads = [(r, head) for r, heads in enumerate(self.rounds) for head in heads.values()]
        tensors["rounds"] = torch.tensor([[r, head.column] for r, head in heads]).reshape(-1, 2)
        forests = [forest for _, head in heads for forest in head.forests]
        tensors["n_trees"] = torch.tensor([forest.n_trees for forest in forests], dtype=torch.int64)
        tensors |= {f"trees.{name}": tensor for name, tensor in Forest.joined(forests).state().items()}
        for r, head in heads:
            for name, array in head.arrays().items():
                tensors[f"head.{r}.{head.column}.{name}"] = torch.from_numpy(np.ascontiguousarray(array))
        return tensors

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularTrees":
        """Rebuilds the model from its columns and what `state` returned."""
        gaussian = TabularGaussian.from_state(columns, _within(state, "gaussian."))
        scale = state["scale"].numpy()
        if scale.shape != (len(columns),) or scale.dtype != np.float64 or (scale <= 0).any():
            raise ValueError("The scales of the inputs of trees do not fit the columns.")
        model = cls(columns, gaussian, (), scale, _read_limits(state, len(columns)))
        forest = Forest.from_state(_within(state, "trees."))
        edges = np.cumsum([0, *state["n_trees"].tolist()])
        if (np.diff(edges) < 0).any() or edges[-1] != forest.n_trees:
            raise ValueError("The trees are not those of the columns.")
        rounds: list[dict[int, Head]] = []
        done = 0
        for r, c in state["rounds"].tolist():
            if r not in (len(rounds) - 1, len(rounds)) or not 0 <= c < len(columns):
                raise ValueError(f"Round {r} of column {c} is out of order.")
            rounds += [{}] if r == len(rounds) else []
            n_forests = 1 if c in model.blocks else 2
            parts = [forest.trees(edges[f], edges[f + 1]) for f in range(done, done + n_forests)]
            done += n_forests
            arrays = {name: t.numpy() for name, t in _within(state, f"head.{r}.{c}.").items()}
            if c in model.blocks:
                n_groups = model.blocks[c].n_groups
                rounds[r][c] = LevelHead.rebuilt(c, len(columns), n_groups, arrays, parts)
            else:
                rounds[r][c] = NumberHead.rebuilt(c, len(columns), arrays, parts)
        return replace(model, rounds=tuple(rounds))


def refine(basis: Basis, heads: Round, missing: Booleans) -> Basis:
    """Returns rows whose missing cells (N, C) are predicted again by the trees of a round."""
    refined = basis.copy()
    for c, head in heads.items():
        rows = np.flatnonzero(missing[:, c])
        if len(rows):
            refined.update(c, rows, predict_cell(head, basis.inputs(c, head.predictors, rows)))
    return refined


def _read_limits(state: Mapping[str, Tensor], n_columns: int) -> dict[int, Integers]:
    """Returns the predictors of limited columns, from their positions among the columns."""
    limits = {}
    for name, tensor in _within(state, "predictors.").items():
        predictors = tensor.numpy()
        known = predictors.dtype == np.int64 and predictors.ndim == 1 and name.isdecimal()
        if not known or int(name) >= n_columns or not np.isin(predictors, np.arange(n_columns)).all():
            raise ValueError(f"The predictors of column {name} are not columns.")
        limits[int(name)] = predictors
    return limits


def _within(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
