"""Derived columns within chained equations: they are computed whenever one of their inputs is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.data.relations import Formula
from halfseen.data.schema import Column


@dataclass(frozen=True)
class Passive:
    """The derived columns that predict others, with their formulas.

    Attributes
    ----------
    names : tuple of str
        Of the modelled columns.
    formulas : mapping of int to Formula
        By position of the derived column.
    """

    names: tuple[str, ...]
    formulas: Mapping[int, Formula]

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
