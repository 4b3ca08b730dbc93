"""Missing completely at random: single values, whole rows, or blocks of columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from halfseen.missingness.base import Mechanism, Rate, check_choice, check_count, check_rate, like, per_column
from halfseen.missingness.reading import Columns, OpenTable, Positions


@dataclass(eq=False)
class MCAR(Mechanism):
    r"""Removes values with a constant probability: missing completely at random (MCAR).

    .. math:: p(m \mid x) = \prod_b r_b^{m_b} (1 - r_b)^{1 - m_b}

    where :math:`b` runs over the units that are removed together: single values, all affected values of a
    row, or blocks of columns, such as a page of a questionnaire or a laboratory panel.

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of values that is removed: one number for all, or one per column (one per block with
        ``unit="blocks"``).
    unit : {"cells", "rows", "blocks"}, default="cells"
        The values that are removed together.
    columns : names or positions, optional
        The columns in which values may be removed; all by default.
    blocks : sequence of columns, optional
        Groups of names or positions for ``unit="blocks"``, used instead of `columns`. No column may be in two
        groups.

    References
    ----------
    Rubin (1976), Inference and missing data, Biometrika 63.

    Examples
    --------
    >>> X = np.zeros((100_000, 2))
    >>> observed = MCAR(rate=0.3).fit(X).sample(X, random_state=0)
    >>> observed.mean(axis=0).round(2)
    array([0.7, 0.7])
    """

    rate: Rate = 0.3
    unit: Literal["cells", "rows", "blocks"] = "cells"
    columns: Columns | None = None
    blocks: Sequence[Columns] | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_choice("unit", self.unit, ("cells", "rows", "blocks"))
        if (self.unit == "blocks") != (self.blocks is not None):
            raise ValueError(
                f"blocks must be given if and only if unit='blocks', got blocks={self.blocks!r}, "
                f"unit={self.unit!r}."
            )
        if self.blocks is not None and self.columns is not None:
            raise ValueError(f"Give either blocks or columns, not both; got columns={self.columns!r}.")

    def _choose_columns(self, table: OpenTable) -> Positions:
        if self.blocks is None:
            columns = super()._choose_columns(table)
            n_units = len(columns) if self.unit == "cells" else 1
            self.unit_of_column_ = np.arange(len(columns)) % max(1, n_units)
        else:
            groups = [table.positions(block, "blocks") for block in self.blocks]
            columns = np.concatenate([np.empty(0, dtype=np.int64), *groups])
            twice = [table.names[j] for j in columns.tolist() if columns.tolist().count(j) > 1]
            if twice:
                raise ValueError(f"blocks must not overlap, but {twice[0]!r} is in two of them.")
            n_units = len(groups)
            self.unit_of_column_ = np.repeat(np.arange(n_units), [len(group) for group in groups])
        self.rates_ = per_column("rate", self.rate, n_units)
        return columns

    def _reads(self, table: OpenTable) -> Positions:
        return np.empty(0, dtype=np.int64)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        pass  # a constant probability needs no calibration

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.rand(len(x), len(self.rates_), generator=generator, dtype=torch.float64)
        units = noise < torch.from_numpy(self.rates_)
        hidden = torch.zeros(x.shape, dtype=torch.bool)
        hidden[:, torch.from_numpy(self.columns_)] = units[:, torch.from_numpy(self.unit_of_column_)]
        return hidden.to(x.device)

    def _marginal(self, x: Tensor, present: Tensor) -> Tensor:
        p = np.zeros(x.shape[1])
        p[self.columns_] = self.rates_[self.unit_of_column_]
        return like(x, p).expand(x.shape)

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        where = torch.from_numpy(self.columns_).to(x.device)
        member = like(x, np.eye(len(self.rates_))[self.unit_of_column_])  # (A, B)
        n_hidden = (~observed & present)[:, where].to(x.dtype) @ member  # (N, B)
        n_seen = (observed & present)[:, where].to(x.dtype) @ member
        rates = like(x, self.rates_)
        log_p = torch.where(n_hidden > 0, torch.log(rates), torch.log1p(-rates))
        log_p = torch.where((n_hidden > 0) & (n_seen > 0), -torch.inf, log_p)
        return torch.where(n_hidden + n_seen > 0, log_p, 0.0).sum(dim=1)


@dataclass(eq=False)
class FeatureDeletion(Mechanism):
    r"""Removes `n` non-zero features of each row, chosen uniformly at random (MNAR).

    .. math:: p(m \mid x) = \binom{k}{\min(n, k)}^{-1}, \qquad k = \#\{j : x_j \ne 0\}

    if :math:`m` marks that many non-zero features. In a row with fewer, all of them are removed. If deleted
    features should be zero instead of missing, use ``np.where(observed, X, 0)``.

    Parameters
    ----------
    n : int, default=1
        The number of features that are removed in each row.
    columns : names or positions, optional
        The features that may be removed; all by default.

    References
    ----------
    Dekel & Shamir (2008), Learning to classify with missing and corrupted features.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 3.0, 0.0, 5.0]])
    >>> FeatureDeletion(n=2).fit(X).sample(X, random_state=0)
    array([[ True, False,  True, False]])
    """

    n: int = 1
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_count("n", self.n, 0)

    def _prepare(self, x: Tensor, present: Tensor) -> Tensor:
        return torch.where(present, x, 0.0)  # missing values cannot be deleted

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        pass  # the number is a parameter

    def _deletable(self, x: Tensor) -> Tensor:
        affected = torch.from_numpy(self._affected()).to(x.device)
        return (x != 0.0) & affected

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        noise = torch.where(self._deletable(x), noise, 2.0)
        n = min(self.n, x.shape[1])
        hidden = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        chosen = noise.topk(n, dim=1, largest=False).indices
        return hidden.scatter(1, chosen, True) & self._deletable(x)

    def _marginal(self, x: Tensor, present: Tensor) -> Tensor:
        deletable = self._deletable(x)
        share = (self.n / deletable.sum(dim=1, keepdim=True).clamp(min=1).to(x.dtype)).clamp(max=1.0)
        return torch.where(deletable, share, 0.0)

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        deletable, hidden = self._deletable(x), ~observed & present
        k = deletable.sum(dim=1)
        n = k.clamp(max=self.n)
        possible = (hidden.sum(dim=1) == n) & ~(hidden & ~deletable).any(dim=1)
        log_ways = _log_factorial(k, x) - _log_factorial(n, x) - _log_factorial(k - n, x)
        return torch.where(possible, -log_ways, -torch.inf)


def _log_factorial(k: Tensor, x: Tensor) -> Tensor:
    return torch.lgamma(k.to(x.dtype) + 1.0)
