r"""Products of sparse rows with dense weights, with gradients that touch observed entries only."""

import warnings
from typing import Any

import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows

CACHE = 3 * 2**19  # bytes of weights that stay in a core's cache while rows go by
FEW = 4  # entries per row of the weights below which cutting the weights costs more than it saves


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

    The dense product is never made; gradients cost as much as two products of a sparse with a dense matrix.

    Examples
    --------
    >>> pattern = SparseRows(torch.tensor([0, 1]).int(), torch.tensor([1]).int(), torch.tensor([0.0]), 2)
    >>> sampled_product(pattern, torch.tensor([[1.0, 2.0]]), torch.tensor([[9.0, 9.0], [3.0, 4.0]]))
    tensor([11.])
    """
    product: Tensor = _SampledProduct.apply(left, right, pattern)  # type: ignore[no-untyped-call]
    return product


def half_squares(weight: Tensor) -> Tensor:
    r"""Returns :math:`\tfrac12 \lVert W \rVert^2`, with a gradient that is made in one pass over the weights.

    Examples
    --------
    >>> half_squares(torch.tensor([[1.0, 2.0]]))
    tensor(2.5000)
    """
    total: Tensor = _HalfSquares.apply(weight)  # type: ignore[no-untyped-call]
    return total


class _HalfSquares(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, weight: Tensor) -> Tensor:
        context.save_for_backward(weight)
        return 0.5 * torch.dot(weight.flatten(), weight.flatten())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        (weight,) = context.saved_tensors
        scaled: Tensor = weight * gradients[0]
        return scaled


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, weight: Tensor, rows: SparseRows, values: Tensor) -> Tensor:
        context.rows, context.values = rows, values
        return _multiply(rows.with_values(values), weight)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _multiply_transposed(context.rows, context.values, gradients[0]), None, None


class _SampledProduct(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, left: Tensor, right: Tensor, pattern: SparseRows) -> Tensor:
        context.save_for_backward(left, right)
        context.pattern = pattern
        found = _matrix(pattern.with_values(left.new_zeros(len(pattern.values))))
        for part in _parts(right):
            one, other = left[:, part].contiguous(), right[:, part].contiguous()
            found = torch.sparse.sampled_addmm(found, one, other.T)
        return found.values()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right = context.saved_tensors
        errors: Tensor = gradients[0]
        of_left = _multiply(context.pattern.with_values(errors), right)
        return of_left, _multiply_transposed(context.pattern, errors, left), None


def _multiply(rows: SparseRows, dense: Tensor) -> Tensor:
    matrix = _matrix(rows)
    parts = _parts(dense)
    if len(parts) == 1 or len(rows.values) < FEW * len(dense):
        return matrix @ dense
    return torch.cat([matrix @ dense[:, part].contiguous() for part in parts], dim=1)


def _multiply_transposed(rows: SparseRows, values: Tensor, dense: Tensor) -> Tensor:
    starts, columns, order = rows.transposition  # which the rows keep, for all products with them
    return _multiply(SparseRows(starts, columns, values[order], len(rows)), dense)


def _matrix(rows: SparseRows) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        shape = (len(rows), rows.n_columns)
        return torch.sparse_csr_tensor(rows.starts, rows.columns, rows.values, shape, check_invariants=False)


def _parts(dense: Tensor) -> list[slice]:
    """Cuts the columns of a matrix so that each part fits in the cache of a processor core."""
    n_rows, n_columns = dense.shape
    if n_rows * n_columns * dense.element_size() <= 3 * CACHE:
        return [slice(None)]  # most of it stays in the cache anyway, and parts must be put together
    width = max(32, CACHE // max(1, n_rows * dense.element_size()) // 16 * 16)
    return [slice(start, start + width) for start in range(0, n_columns, width)]
