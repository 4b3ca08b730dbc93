"""Combinations of mechanisms: several for the same columns, or different ones for different columns."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.missingness.base import CellMechanism, Mechanism, mean_of_cells
from halfseen.missingness.reading import Coder, Columns, OpenTable


@dataclass(eq=False)
class Compose(Mechanism):
    r"""Applies several mechanisms to a table; a value stays observed if none of them removes it.

    .. math:: p(m_j = 0 \mid x) = \prod_k p_k(m_j = 0 \mid x)

    Each mechanism reads the original table and draws independently. If one of them is MNAR, so is the
    combination.

    Parameters
    ----------
    mechanisms : sequence of Mechanism
        The mechanisms. They are copied and fitted together.

    Attributes
    ----------
    mechanisms_ : list of Mechanism
        The fitted copies.

    Notes
    -----
    `log_prob` is defined if no two members share a column, or if all decide about each value independently.

    Examples
    --------
    >>> from halfseen.missingness import MCAR, Threshold
    >>> X = np.array([[1.0, 1.0], [2.0, 2.0], [6.0, 6.0]])
    >>> both = Compose([Threshold(columns=0), MCAR(rate=1.0, columns=1)]).fit(X)
    >>> both.sample(X, random_state=0)
    array([[ True, False],
           [ True, False],
           [False, False]])
    """

    mechanisms: Sequence[Mechanism]

    def __post_init__(self) -> None:
        for i, one in enumerate(self.mechanisms):
            if not isinstance(one, Mechanism):
                raise ValueError(f"mechanisms[{i}] must be a mechanism, got {one!r}.")
        if not self.mechanisms:
            raise ValueError("mechanisms must not be empty.")

    def fit(self, X: Any) -> Self:
        """Calibrates every member on a table, as in `Mechanism.fit`."""
        self._fitted = False
        table = OpenTable(X)
        self.mechanisms_ = [one.fit(X) for one in self._members(table)]
        self._coder = Coder(table, ())
        self.columns_ = np.flatnonzero(self._affected())
        with torch.no_grad():
            self.expected_rate_ = self._expected_rate(table)
        self._fitted = True
        return self

    def _members(self, table: OpenTable) -> list[Mechanism]:
        return [copy.deepcopy(one) for one in self.mechanisms]

    def _expected_rate(self, table: OpenTable) -> npt.NDArray[np.float64]:
        if not self._overlaps():
            total: npt.NDArray[np.float64] = np.sum(
                [one.expected_rate_.ravel() for one in self.mechanisms_], axis=0
            )
            return total
        return mean_of_cells(self._cell_probability(table), table.present())

    def _affected(self) -> npt.NDArray[np.bool_]:
        affected: npt.NDArray[np.bool_] = np.any([one._affected() for one in self.mechanisms_], axis=0)
        return affected

    def _overlaps(self) -> bool:
        return bool(np.sum([one._affected() for one in self.mechanisms_], axis=0).max() > 1)

    def _hide(self, table: OpenTable, generator: torch.Generator) -> Tensor:
        return torch.stack([one._hide(table, generator) for one in self.mechanisms_]).any(dim=0)

    def _cell_probability(self, table: OpenTable) -> Tensor:
        seen = [1.0 - one._cell_probability(table) for one in self.mechanisms_]
        return 1.0 - torch.stack(seen).prod(dim=0)

    def _row_log_prob(self, table: OpenTable, observed: Tensor) -> Tensor:
        if not self._overlaps():
            return torch.stack([one._row_log_prob(table, observed) for one in self.mechanisms_]).sum(dim=0)
        present = table.present()
        total = torch.zeros(present.shape, dtype=torch.float64, device=present.device)
        for one in self.mechanisms_:
            if not isinstance(one, CellMechanism):
                raise NotImplementedError(
                    f"Compose has no log_prob for these mechanisms: {type(one).__name__} shares columns with "
                    "others and "
                    "does not decide cell by cell."
                )
            x, _ = one._read(table)
            let_through = one._cells(x, torch.ones_like(observed), present)
            total = total.to(x.dtype) + one._spread(let_through, x)
        safe = torch.where(observed | ~present, -1.0, total)
        return torch.where(observed | ~present, total, torch.log(-torch.expm1(safe))).sum(dim=1)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        raise NotImplementedError  # the members are calibrated

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        raise NotImplementedError  # the members draw


@dataclass(eq=False)
class ByColumn(Compose):
    """Applies different mechanisms to different columns; columns without a mechanism stay complete.

    Parameters
    ----------
    mechanisms : mapping from columns to Mechanism
        Keys are names, positions or tuples of them; no column may occur twice. The mechanisms are copied, and
        their `columns` are set. They may read any column of the table.

    Examples
    --------
    >>> from halfseen.missingness import MCAR, QuantileCensoring
    >>> X = np.random.default_rng(0).normal(size=(10_000, 3))
    >>> mechanism = ByColumn({0: MCAR(rate=0.1), (1, 2): QuantileCensoring(rate=0.5)}).fit(X)
    >>> mechanism.expected_rate_.round(12)
    array([0.1, 0.5, 0.5])
    """

    mechanisms: Mapping[Any, Mechanism]  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if not isinstance(self.mechanisms, Mapping) or not self.mechanisms:
            raise ValueError(f"mechanisms must map columns to mechanisms, got {self.mechanisms!r}.")
        for key, one in self.mechanisms.items():
            if not isinstance(one, Mechanism) or "columns" not in getattr(one, "__dataclass_fields__", {}):
                raise ValueError(f"mechanisms[{key!r}] must be a mechanism for columns, got {one!r}.")

    def _members(self, table: OpenTable) -> list[Mechanism]:
        members = []
        taken: dict[int, Columns] = {}
        for key, one in self.mechanisms.items():
            columns: Columns = list(key) if isinstance(key, tuple | frozenset) else key
            for j in table.positions(columns, "mechanisms").tolist():
                if j in taken:
                    raise ValueError(
                        f"Column {table.names[j]!r} has two mechanisms: {taken[j]!r} and {key!r}."
                    )
                taken[j] = key
            member = copy.deepcopy(one)
            member.columns = columns
            members.append(member)
        return members
