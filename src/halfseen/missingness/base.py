"""The base class of mechanisms, calibrated once with `fit`, then applied to training and test tables.

Below the public methods, a table is a pair of tensors of shape (N, D): numbers ``x``, and ``present``, which
is True for the values that were not missing before. A value that was missing before stays missing: its factor
in `log_prob` is 1, and rates are fractions of the other values. Mechanisms can be combined: several for the
same columns, or different ones for different columns.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from halfseen._arrays import Booleans, Floats
from halfseen._random import seed_from, torch_generator
from halfseen.errors import SchemaError
from halfseen.missingness.reading import Coder, Columns, OpenTable, Positions, check_not_extreme

Rate = float | Sequence[float]


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless `value` is a finite number between `low` and `high`, both included."""
    number: Any = value if not isinstance(value, bool | np.bool_) else None
    if not isinstance(number, Real) or not np.isfinite(float(value)) or not low <= float(value) <= high:
        raise ValueError(f"{name} must be a number{_range(low, high)}, got {value!r}.")


def check_numbers(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless `value` is such a number, or a flat sequence of them."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        check_number(name, value, low, high)
        return
    for i, one in enumerate(value):
        check_number(f"{name}[{i}]", one, low, high)


def check_count(name: str, value: Any, low: int = 1) -> None:
    """Raises unless `value` is an integer of at least `low`."""
    number: Any = value if not isinstance(value, bool) else None
    if not isinstance(number, Integral) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_rate(value: Any) -> None:
    """Raises unless `value` is a rate between 0 and 1, or one rate for each column."""
    check_numbers("rate", value, 0.0, 1.0)


def per_column(name: str, value: Any, n_columns: int) -> Floats:
    """Returns one number for each column, from one number for all of them or one for each."""
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.ndim > 1 or (numbers.ndim == 1 and len(numbers) != n_columns):
        raise ValueError(f"{name} must be one number, or {n_columns} (one per column), got {value!r}.")
    return np.array(np.broadcast_to(numbers, (n_columns,)))


def _range(low: float, high: float) -> str:
    if np.isfinite(low) and np.isfinite(high):
        return f" between {low:g} and {high:g}"
    if np.isfinite(low):
        return f" of at least {low:g}"
    return f" of at most {high:g}" if np.isfinite(high) else ""


class Mechanism(ABC):
    """Base class of all missingness mechanisms.

    A concrete mechanism is a dataclass of its parameters. It defines in which columns values may be removed,
    which columns it reads, how it is calibrated, and how a mask is drawn.

    Attributes
    ----------
    columns_ : array of int
        The positions of the columns in which values may be removed.
    expected_rate_ : array of shape (D,)
        The expected fraction of removed values in each column of the fitted table; 0 for other columns.
    """

    _squares: ClassVar[bool] = False  # whether it computes with squares of values, not only with their order

    columns: Columns | None
    columns_: Positions
    expected_rate_: Floats
    _coder: Coder
    _fitted: bool = False

    # ------------------------------------------------------------------------------------- for users

    def fit(self, X: Any) -> Self:
        """Calibrates the mechanism on a table.

        Parameters
        ----------
        X : frame, array-like or tensor of shape (N, D)
            The table, which may have missing values.

        Returns
        -------
        Self
        """
        self._fitted = False
        table = OpenTable(X)
        if table.n_rows == 0 or table.n_features == 0:
            raise SchemaError(
                f"X has shape ({table.n_rows}, {table.n_features}): there is nothing to calibrate on."
            )
        self.columns_ = self._choose_columns(table)
        self._coder = Coder(table, self._reads(table))
        self._settle_unreadable(table)
        x, present = self._read(table)
        for j in self._coder.needed if self._squares else ():
            check_not_extreme(x[:, j].detach(), table.names[j])
        with torch.no_grad():
            self._calibrate(x.detach().double().cpu(), present.cpu())
            self.expected_rate_ = self._find_expected_rate(x, present)
        self._fitted = True
        return self

    def sample(self, X: Any, random_state: Any = None) -> Any:
        """Draws a mask for a table.

        Parameters
        ----------
        X : frame, array-like or tensor of shape (N, D)
            A table with the columns of the fitted table.
        random_state : None, int or numpy generator, default=None
            Pass an integer for a reproducible mask.

        Returns
        -------
        observed : boolean array of shape (N, D), a tensor if `X` is one
            True for values that stay observed. Values that are missing in `X` are False.
        """
        table = self._open(X)
        hidden = self._hide(table, torch_generator(seed_from(random_state)))
        return table.wrap(self._present(table) & ~hidden)

    def amputate(self, X: Any, random_state: Any = None) -> Any:
        """Returns a copy of the table from which values are removed.

        Parameters
        ----------
        X : frame, array-like or tensor of shape (N, D)
            A table with the columns of the fitted table. It is not modified.
        random_state : None, int or numpy generator, default=None
            As in `sample`, which draws the same mask for the same seed.

        Returns
        -------
        same type as `X`
            Removed values are NaN in arrays; arrays of integers or booleans become float64. They are null in
            frames, which keep their dtypes, except that numpy dtypes of pandas without a null become nullable
            in the columns of the mechanism: ``int64`` becomes ``Int64``, and ``bool`` becomes ``boolean``.
        """
        table = self._open(X)
        hidden = self._hide(table, torch_generator(seed_from(random_state)))
        return table.with_missing(hidden, np.flatnonzero(self._affected()))

    def log_prob(self, observed: Any, X: Any) -> Any:
        r"""Returns :math:`\log p(\text{observed} \mid x)` of each row.

        Parameters
        ----------
        observed : boolean array or tensor of shape (*, D)
            True for observed values.
        X : frame, array-like or tensor of shape (*, D)
            The complete values. If a value is missing in `X` itself, it must not be observed; it contributes
            nothing, and where another value depends on it, the mean of its column is used.

        Returns
        -------
        array of shape (*), a tensor if `X` is one
            Differentiable with respect to `X` if it is a tensor. Minus infinity for an impossible mask.
        """
        table = self._open(X, batched=True)
        seen = self._check_observed(observed, table)
        present = self._present(table)
        outside = (~seen & present & ~torch.from_numpy(self._affected()).to(seen.device)).any(dim=1)
        return table.wrap(torch.where(outside, -torch.inf, self._row_log_prob(table, seen)))

    def probability(self, X: Any) -> Any:
        """Returns the probability that each value is removed, given its complete row.

        Parameters
        ----------
        X : frame, array-like or tensor of shape (*, D)
            The values. The probability is 0 for values that are already missing.

        Returns
        -------
        array of shape (*, D), a tensor if `X` is one
        """
        table = self._open(X, batched=True)
        return table.wrap(self._cell_probability(table))

    # ------------------------------------------------------------------------------- for whole tables

    def _hide(self, table: OpenTable, generator: torch.Generator) -> Tensor:
        x, present = self._read(table)
        with torch.no_grad():
            return self._draw(x, present, generator) & present

    def _row_log_prob(self, table: OpenTable, observed: Tensor) -> Tensor:
        """Returns the log probability of the mask in the columns of the mechanism, (N,)."""
        x, present = self._read(table)
        return self._log_prob(x, observed, present)

    def _cell_probability(self, table: OpenTable) -> Tensor:
        x, present = self._read(table)
        return torch.where(present, self._marginal(x, present), 0.0)

    def _affected(self) -> Booleans:
        affected = np.zeros(self._coder.n_features, dtype=bool)
        affected[self.columns_] = True
        return affected

    # --------------------------------------------------------------------------- for concrete mechanisms

    def _choose_columns(self, table: OpenTable) -> Positions:
        return np.arange(table.n_features) if self.columns is None else table.positions(self.columns)

    def _reads(self, table: OpenTable) -> Positions:
        """Returns the columns whose values the mechanism reads; by default those of `columns_`."""
        return self.columns_

    def _prepare(self, x: Tensor, present: Tensor) -> Tensor:
        """Returns numbers without NaN: missing values are replaced by the mean of their column."""
        return torch.where(x.isnan(), like(x, self._coder.fill), x)

    @abstractmethod
    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        """Learns the calibration from the fitted table, (N, D)."""

    @abstractmethod
    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        """Returns which values are removed, (N, D)."""

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log_prob: it is not known in closed form.")

    def _marginal(self, x: Tensor, present: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no probability in closed form.")

    def _find_expected_rate(self, x: Tensor, present: Tensor) -> Floats:
        return mean_of_cells(self._marginal(x, present), present)

    # ------------------------------------------------------------------------------------- inside

    def _open(self, X: Any, *, batched: bool = False) -> OpenTable:
        self._check_fitted()
        table = OpenTable(X, batched=batched)
        self._coder.check(table)
        return table

    def _check_fitted(self) -> None:
        if not self._fitted:
            raise ValueError(f"This {type(self).__name__} is not calibrated yet; call fit(X) first.")

    def _present(self, table: OpenTable) -> Tensor:
        return table.present()

    def _read(self, table: OpenTable) -> tuple[Tensor, Tensor]:
        present = table.present()
        return self._prepare(self._coder.codes(table), present), present

    def _settle_unreadable(self, table: OpenTable) -> None:
        """Leaves out text without an order, or raises an error if the user requested it."""
        lost = [j for j in self.columns_.tolist() if j in self._coder.unreadable]
        if lost and (self.columns is not None or len(lost) == len(self.columns_)):
            raise SchemaError(
                f"Column {table.names[lost[0]]!r} is text with a different value in nearly every row, so "
                f"{type(self).__name__} cannot order it. Leave it out of columns."
            )
        self.columns_ = np.array([j for j in self.columns_.tolist() if j not in lost], dtype=np.int64)

    def _check_observed(self, observed: Any, table: OpenTable) -> Tensor:
        seen = observed if isinstance(observed, Tensor) else torch.from_numpy(np.array(observed))
        if seen.dtype != torch.bool:
            raise ValueError(f"observed must be boolean (True for observed values), got {seen.dtype}.")
        wanted = (*table.batch, table.n_features)
        if tuple(seen.shape) != wanted:
            raise ValueError(f"observed must have the shape of X, {wanted}, got {tuple(seen.shape)}.")
        seen = seen.reshape(-1, table.n_features)
        wrong = (seen & ~self._present(table)).nonzero()
        if len(wrong):
            row, j = wrong[0].tolist()
            raise ValueError(
                f"observed is True in row {row} of column {table.names[j]!r}, where X is missing."
            )
        return seen


class CellMechanism(Mechanism):
    r"""Base class of mechanisms that decide about each value independently, given the row.

    .. math:: p(m \mid x) = \prod_j p(m_j \mid x)
    """

    @abstractmethod
    def _cell_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """Returns the log probability of each mask entry, (N, A), for the A columns of `columns_`."""

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        p = self._marginal(x, present)
        noise = torch.rand(p.shape, generator=generator, dtype=torch.float64).to(p.device)
        return noise < p

    def _marginal(self, x: Tensor, present: Tensor) -> Tensor:
        hidden = torch.zeros(len(x), len(self.columns_), dtype=torch.bool, device=x.device)
        return self._spread(self._cell_log_prob(x, hidden).exp(), x)

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        return self._cells(x, observed, present).sum(dim=1)

    def _cells(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        """Returns the log factors of the mask entries, (N, A); 0 for values that were missing before."""
        where = torch.from_numpy(self.columns_).to(x.device)
        return torch.where(present[:, where], self._cell_log_prob(x, observed[:, where]), 0.0)

    def _spread(self, cells: Tensor, x: Tensor) -> Tensor:
        """Returns an array over all columns, with the given entries in `columns_` and zeros elsewhere."""
        spread = torch.zeros(x.shape, dtype=cells.dtype, device=x.device)
        return spread.index_copy(1, torch.from_numpy(self.columns_).to(x.device), cells)


def log_bernoulli(p: Tensor, observed: Tensor) -> Tensor:
    """Returns the log probability of a mask entry, given the probability `p` that the value is removed."""
    return torch.where(observed, torch.log1p(-p), torch.log(p))


def mean_of_cells(p: Tensor, present: Tensor) -> Floats:
    """Returns the mean of the values of each column, and 0 for columns without values."""
    total = torch.where(present, p, 0.0).double().sum(dim=0)
    mean: Floats = (total / present.sum(dim=0).clamp(min=1)).detach().cpu().numpy()
    return mean


def like(x: Tensor, values: Any) -> Tensor:
    """Returns numbers as a tensor with the dtype and device of `x`."""
    return torch.as_tensor(values, dtype=x.dtype, device=x.device)


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

    def _expected_rate(self, table: OpenTable) -> Floats:
        if not self._overlaps():
            total: Floats = np.sum([one.expected_rate_.ravel() for one in self.mechanisms_], axis=0)
            return total
        return mean_of_cells(self._cell_probability(table), table.present())

    def _affected(self) -> Booleans:
        affected: Booleans = np.any([one._affected() for one in self.mechanisms_], axis=0)
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
