"""Completion of tables whose rows belong to groups: effects of known groups, and of groups that are new."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._random import Keys, content_keys, keys_of_draw, row_normals
from halfseen.base.completion import LevelProbabilities
from halfseen.chained.effects import EffectDraw
from halfseen.chained.formula import SubstantiveModel
from halfseen.data.columns import Column
from halfseen.data.frames import RawColumn
from halfseen.data.incomplete import Incomplete

if TYPE_CHECKING:
    from halfseen.chained.tabular import TabularChain

EFFECT_STREAM = 1 << 25  # of the noise of effects, beyond those of cells


@dataclass(frozen=True)
class GroupModel:
    """What a model of groups knows besides the effects of its regressions."""

    n_groups: int  # the number of groups of `fit`
    slope: int | None  # the position of the column whose slopes vary between groups
    # Its mean and standard deviation.
    loc: float
    unit: float
    # (S, G), the codes of the columns that are constant within groups, by position.
    upper: Mapping[int, Tensor]
    # (N), the groups of the rows that are completed; negative if a group is new.
    of_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def inputs(self, cells: Tensor) -> Tensor:
        """Returns the inputs (*, R, Q) that have effects, from completed codes (*, R, C)."""
        ones = torch.ones_like(cells[..., :1])
        if self.slope is None:
            return ones
        return torch.cat([ones, (cells[..., self.slope, None] - self.loc) / self.unit], dim=-1)

    def added(
        self, c: int, effects: EffectDraw, rows: Tensor, cells: Tensor, of_draws: Keys | None
    ) -> tuple[Tensor, Tensor]:
        """Returns what effects add to the regression of column c, and its variance (S, R, J).

        Parameters
        ----------
        c : int
            The position of the column.
        effects : EffectDraw
            Of the chains of the draws.
        rows : Tensor
            (R), the rows.
        cells : Tensor
            (S, R, C), their completed codes.
        of_draws : array of shape (S, N), optional
            The keys of all rows for each draw. Without them, effects of new groups are averaged.
        """
        group = self.of_rows[rows]
        if of_draws is None:
            return effects.offsets(group, self.inputs(cells), None)
        n_parts, n_effects = effects.values.shape[1], effects.values.shape[3]
        named = group < -1
        shared = (-group).numpy().astype(np.uint64)
        drawn = []
        for s, keys in enumerate(of_draws):
            own = np.where(named.numpy(), keys_of_draw(shared, s), keys[rows.numpy()])
            drawn.append(row_normals(own, 0, n_parts * n_effects, EFFECT_STREAM + c))
        normals = torch.from_numpy(np.stack(drawn)).unflatten(-1, (n_parts, n_effects))
        return effects.offsets(group, self.inputs(cells), normals)

    def state(self) -> dict[str, Tensor]:
        """Returns the learned tensors."""
        scale = torch.tensor([self.loc, self.unit], dtype=torch.float64)
        sizes = torch.tensor([self.n_groups])
        return {"groups.scale": scale, "groups.number": sizes} | {
            f"groups.upper.{c}": values for c, values in self.upper.items()
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], n_columns: int, n_chains: int, slope: int | None
    ) -> "GroupModel":
        """Rebuilds the model from what `state` returned; raises a ValueError if it does not fit."""
        scale, sizes = state["groups.scale"], state["groups.number"]
        upper = {c: state[f"groups.upper.{c}"] for c in range(n_columns) if f"groups.upper.{c}" in state}
        fits = scale.shape == (2,) and scale.dtype == torch.float64 and bool(scale[1] > 0)
        fits = fits and sizes.shape == (1,) and sizes.dtype == torch.int64 and int(sizes) > 0
        shape = (n_chains, int(sizes)) if fits else ()
        if not fits or any(one.shape != shape or one.dtype != torch.float64 for one in upper.values()):
            raise ValueError("The groups of chained equations do not fit each other.")
        return cls(int(sizes), slope, float(scale[0]), float(scale[1]), upper)


@dataclass(frozen=True)
class GroupedChain:
    """Chained equations with effects of groups: one column of the codes says which group a row belongs to.

    Codes from 0 are the groups of `fit`. Rows with the same negative code belong to the same new group. A row
    whose code is not observed is a new group of its own.
    """

    chain: "TabularChain"  # of the other columns
    position: int  # of the column of groups among all modelled columns

    def _split(self, codes: Incomplete) -> tuple["TabularChain", Incomplete]:
        """Returns the chain that knows the groups of rows, and the codes of the other columns."""
        model = self.chain.groups
        assert model is not None
        known = codes.observed[:, self.position]
        groups = torch.where(known, codes.x[:, self.position], -1.0).long()
        bound = replace(self.chain, groups=replace(model, of_rows=groups))
        return bound, drop_column(codes, self.position)

    def _joined(self, codes: Incomplete, found: Tensor) -> Tensor:
        """Returns the answer (*, N, C) with the groups as they are."""
        own = codes.filled()[:, self.position, None].expand(*found.shape[:-1], 1)
        return torch.cat([found[..., : self.position], own, found[..., self.position :]], dim=-1)

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C); draw s uses the parameters of chain s."""
        chain, rest = self._split(codes)
        return self._joined(codes, chain.draws(rest, keys, n_draws))

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by expected numbers and most probable levels."""
        chain, rest = self._split(codes)
        return self._joined(codes, chain.point(rest))

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of numbers and ordered levels; most probable levels for categories."""
        chain, rest = self._split(codes)
        return self._joined(codes, chain.quantiles(rest, probabilities))

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of central intervals; most probable levels for categories."""
        chain, rest = self._split(codes)
        return self._joined(codes, chain.interval(rest, level))

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels; groups are equally probable."""
        chain, rest = self._split(codes)
        assert chain.groups is not None
        found = {c + (c >= self.position): one for c, one in chain.level_probabilities(rest).items()}
        n_groups = chain.groups.n_groups
        known = Incomplete(codes.x, codes.observed & (codes.x >= 0))
        even = torch.full((len(codes), n_groups), 1 / n_groups, dtype=torch.float64)
        return found | {self.position: LevelProbabilities.of_levels(even, known, self.position)}

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        assert self.chain.groups is not None
        return self.chain.state() | self.chain.groups.state()


def name_new_groups(codes: Incomplete, position: int, raw: RawColumn, seed: int) -> Incomplete:
    """Returns codes in which groups that are not among the levels have negative codes, the same for a name.

    Parameters
    ----------
    codes : Incomplete
        (N, C), in which such groups are not observed.
    position : int
        Of the column of groups among the C columns.
    raw : RawColumn
        The column as it was read.
    seed : int
        Of the draws of effects.
    """
    new = ~codes.observed[:, position].numpy() & ~np.isnan(raw.values)
    if not new.any():
        return codes
    values = raw.values[new]
    if raw.labels:
        digests = [blake2b(str(raw.labels[int(v)]).encode(), digest_size=8).digest() for v in values]
        values = np.frombuffer(b"".join(digests), dtype="<u4").reshape(-1, 2).astype(np.float64)
    keys = content_keys(values.reshape(int(new.sum()), -1), seed)
    x, observed = codes.x.clone(), codes.observed.clone()
    x[torch.from_numpy(new), position] = torch.from_numpy(-2.0 - (keys >> np.uint64(13)).astype(np.float64))
    observed[torch.from_numpy(new), position] = True
    return Incomplete(x, observed)


def check_group_names(groups: Any, slopes: Any, names: Sequence[str]) -> None:
    """Raises a ValueError unless the columns of groups and of slopes are in the table."""
    for parameter, name in (("groups", groups), ("slopes", slopes)):
        if name is not None and (not isinstance(name, str) or name not in names):
            raise ValueError(
                f"{parameter} must be the name of a column, got {name!r}, which is not in the table."
            )
    if slopes is not None and (groups is None or groups == slopes):
        raise ValueError(
            f"slopes={slopes!r} needs groups, another column that says which rows belong together."
        )


def check_groups_of_analysis(
    analysis: SubstantiveModel, columns: Sequence[Column], incomplete: Sequence[bool], upper: Collection[int]
) -> None:
    """Raises a ValueError unless draws of an analysis can have effects of groups, and says what to do.

    Parameters
    ----------
    analysis, columns : SubstantiveModel, sequence of Column
        As of `CompatibleModel`.
    incomplete : sequence of bool
        Which columns have missing values.
    upper : collection of int
        The columns that are constant within groups.
    """
    why = None
    if analysis.family == "cox":
        why = "the Cox model of its outcome has no effects of groups"
    for c in (*analysis.outcomes, *analysis.covariates):
        if incomplete[c] and c in upper:
            why = f"column {columns[c].name!r} is constant within groups and has missing values"
    if why is not None:
        raise ValueError(
            f"The analysis {analysis.text!r} cannot be combined with groups, because {why}. If it has main "
            "effects only, leave out analysis: regressions with random effects suit it. If it has "
            "interactions or powers and groups are few and large, leave out groups and add C() of their "
            "column to the analysis, so that each group has a constant of its own."
        )


def check_groups(column: Column, missing: npt.NDArray[np.bool_]) -> None:
    """Raises a ValueError unless a column says for each row which group it belongs to."""
    if missing.any():
        raise ValueError(
            f"Column {column.name!r} groups rows, but is missing in row {int(missing.argmax())}: fill in its "
            "missing values, or leave out these rows."
        )
    if not column.modelled or len(column.levels or ()) < 2:
        raise ValueError(f"Column {column.name!r} groups rows, but all rows have one value.")
    if len(column.levels or ()) >= len(missing):
        raise ValueError(
            f"Column {column.name!r} groups rows, but each row has a value of its own: there is nothing to "
            "learn from other rows of a group."
        )


def check_slope(column: Column, codes: Incomplete, position: int) -> None:
    """Raises a ValueError unless a column, whose slopes vary between groups, is known in all rows."""
    missing = ~codes.observed[:, position]
    if bool(missing.any()):
        row = int(missing.to(torch.int8).argmax())
        raise ValueError(
            f"Column {column.name!r}, whose slopes vary between groups, is missing in row {row}: fill in its "
            "missing values first."
        )


def drop_column(codes: Incomplete, position: int) -> Incomplete:
    """Returns codes without one of their columns."""
    kept = [c for c in range(codes.n_features) if c != position]
    return Incomplete(codes.x[:, kept], codes.observed[:, kept])
