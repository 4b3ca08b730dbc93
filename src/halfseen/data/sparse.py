"""Sparse rows, of which only the observed entries are stored."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor


@dataclass(frozen=True)
class SparseRows:
    r"""Rows of which the observed entries are stored, in the layout of a CSR matrix.

    Stored entries are observed, also if their value is zero. Rows stay sparse when they are indexed, so a
    rating matrix never becomes dense.

    Parameters
    ----------
    starts : Tensor of shape (N + 1,), int32
        Where the entries of each row begin.
    columns : Tensor of shape (number of entries,), int32
        The columns of the entries.
    values : Tensor of shape (number of entries,)
        The observed values.
    n_columns : int
        The number of columns :math:`D`.

    Examples
    --------
    >>> rows = SparseRows.from_scipy(scipy.sparse.csr_array([[0.0, 2.0], [3.0, 4.0], [0.0, 0.0]]))
    >>> rows.counts
    tensor([1, 2, 0], dtype=torch.int32)
    >>> rows[torch.tensor([1, 0])].values
    tensor([3., 4., 2.])
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    n_columns: int

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.csr_array, dtype: torch.dtype = torch.float32) -> "SparseRows":
        """Reads a CSR matrix, with its stored zeros; the memory is not shared."""
        return cls(
            torch.tensor(matrix.indptr, dtype=torch.int32),
            torch.tensor(matrix.indices, dtype=torch.int32),
            torch.tensor(matrix.data, dtype=dtype),
            matrix.shape[1],
        )

    @cached_property
    def counts(self) -> Tensor:
        """The number (N) of observed entries of each row."""
        return self.starts[1:] - self.starts[:-1]

    @cached_property
    def rows(self) -> Tensor:
        """The row of each entry, as int64."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.starts.device), self.counts)

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        """The same entries for scipy, whose rows are chosen by one pass over their entries."""
        layout = (self.values.numpy(), self.columns.numpy(), self.starts.numpy())
        return scipy.sparse.csr_array(layout, shape=(len(self), self.n_columns))

    @cached_property
    def transposition(self) -> tuple[Tensor, Tensor, Tensor]:
        """The layout of the transposed matrix: starts (D + 1), rows by column, and the order of entries."""
        if self.columns.device.type != "cpu":
            columns, places = self.columns.sort(stable=True)
            ends = torch.arange(self.n_columns + 1, device=columns.device, dtype=columns.dtype)
            starts = torch.searchsorted(columns, ends, out_int32=True)
            return starts, self.rows.index_select(0, places).to(torch.int32), places
        n_entries = len(self.values)
        order = np.arange(n_entries, dtype=np.int32)
        shape = (len(self), self.n_columns)
        layout = (order, self.columns.numpy(), self.starts.numpy())
        turned = scipy.sparse.csr_array(layout, shape=shape).tocsc()
        as_tensor = torch.from_numpy
        return (
            as_tensor(turned.indptr.astype(np.int32, copy=False)),
            as_tensor(turned.indices.astype(np.int32, copy=False)),
            as_tensor(turned.data).long(),
        )

    @classmethod
    def checked(cls, starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> "SparseRows":
        """Returns rows built from untrusted tensors; raises a ValueError if these are inconsistent."""
        n_rows, n_columns = shape
        is_layout = starts.dtype == columns.dtype == torch.int32 and values.dtype == torch.float32
        if not is_layout or starts.shape != (n_rows + 1,) or columns.shape != values.shape != ():
            raise ValueError(f"the entries do not describe {n_rows} sparse rows")
        if starts[0] != 0 or starts[-1] != len(values) or bool((starts.diff() < 0).any()):
            raise ValueError("the entries of the sparse rows do not follow each other")
        if len(values) and not 0 <= int(columns.min()) <= int(columns.max()) < n_columns:
            raise ValueError(f"a sparse row has an entry outside its {n_columns} columns")
        return cls(starts, columns, values, n_columns)

    def select(self, chosen: Tensor) -> "SparseRows":
        """Returns the rows with only those entries that a boolean tensor selects."""
        counts = self.starts.new_zeros(len(self)).index_add_(0, self.rows, chosen.int())
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=torch.int32)])
        return SparseRows(starts, self.columns[chosen], self.values[chosen], self.n_columns)

    def with_values(self, values: Tensor) -> "SparseRows":
        """Returns rows with the same observed entries and other values."""
        return SparseRows(self.starts, self.columns, values, self.n_columns)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: slice | Tensor) -> "SparseRows":
        if isinstance(rows, slice):
            first, last, step = rows.indices(len(self))
            if step != 1:
                return self[torch.arange(len(self))[rows]]
            if (first, last) == (0, len(self)):
                return self  # with what it has computed already
            starts = self.starts[first : max(first, last) + 1]
            part = slice(int(starts[0]), int(starts[-1]))
            return SparseRows(starts - starts[0], self.columns[part], self.values[part], self.n_columns)
        chosen = self._matrix[rows.numpy()]
        starts, columns, values = (
            torch.from_numpy(part) for part in (chosen.indptr, chosen.indices, chosen.data)
        )
        return SparseRows(starts.int(), columns.int(), values, self.n_columns)
