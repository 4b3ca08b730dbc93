r"""Products of sparse rows with dense weights, with gradients that touch observed entries only."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.data.sparse import SparseRows


def sparse_linear(rows: SparseRows, weight: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Returns the product :math:`X W` of sparse rows (N, D) with weights (D, K).

    The cost is proportional to the number of observed entries, in the backward pass too. Other `values` may
    take the place of those of the rows; there is no gradient with respect to them.

    Examples
    --------
    >>> rows = SparseRows(torch.tensor([0, 1]).int(), torch.tensor([1]).int(), torch.tensor([2.0]), 3)
    >>> sparse_linear(rows, torch.eye(3))
    tensor([[0., 2., 0.]])
    """
    product: Tensor = _SparseLinear.apply(weight, rows, rows.values if values is None else values)  # type: ignore[no-untyped-call]
    return product


def sampled_product(pattern: SparseRows, left: Tensor, right: Tensor) -> Tensor:
    r"""Returns the entries of :math:`L R^\top` where a pattern (N, D) is observed, for (N, K) and (D, K).

    The dense product is never computed; gradients cost as much as two products of a sparse and a dense
    matrix.

    Examples
    --------
    >>> pattern = SparseRows(torch.tensor([0, 1]).int(), torch.tensor([1]).int(), torch.tensor([0.0]), 2)
    >>> sampled_product(pattern, torch.tensor([[1.0, 2.0]]), torch.tensor([[9.0, 9.0], [3.0, 4.0]]))
    tensor([11.])
    """
    product: Tensor = _SampledProduct.apply(left, right, pattern)  # type: ignore[no-untyped-call]
    return product


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, weight: Tensor, rows: SparseRows, values: Tensor) -> Tensor:
        context.rows, context.values = rows, values
        return _multiply(rows.starts, rows.columns, values, weight)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _multiply_transposed(context.rows, context.values, gradients[0]), None, None


class _SampledProduct(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, left: Tensor, right: Tensor, pattern: SparseRows) -> Tensor:
        context.save_for_backward(left, right)
        context.pattern = pattern
        starts, rows, order = pattern.transposition
        if left.device.type != "cpu":  # not all devices have products of sparse matrices
            return (left.index_select(0, pattern.rows) * right.index_select(0, pattern.columns)).sum(dim=1)
        # By columns, so that `left`, a batch of rows, stays in the cache while the larger `right` goes by.
        zeros = left.new_zeros(len(rows))
        found = torch.sparse.sampled_addmm(_matrix(starts, rows, zeros, len(pattern)), right, left.T)
        return torch.empty_like(zeros).scatter_(0, order, found.values())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right = context.saved_tensors
        pattern, errors = context.pattern, gradients[0]
        of_left = _multiply(pattern.starts, pattern.columns, errors, right)
        return of_left, _multiply_transposed(pattern, errors, left), None


def _multiply(starts: Tensor, columns: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Returns the product of a CSR matrix with a dense one: a weighted sum of rows of the latter."""
    # Detached, as for tensors with gradients it would prepare a backward pass of its own.
    return functional.embedding_bag(
        columns, dense.detach(), starts, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def _multiply_transposed(rows: SparseRows, values: Tensor, dense: Tensor) -> Tensor:
    starts, columns, order = rows.transposition  # which the rows keep, for all products with them
    return _multiply(starts, columns, values.index_select(0, order), dense)


def _matrix(starts: Tensor, columns: Tensor, values: Tensor, n_columns: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        shape = (len(starts) - 1, n_columns)
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)
