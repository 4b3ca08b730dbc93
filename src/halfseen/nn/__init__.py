"""Network layers for incomplete rows, to be used in your own PyTorch models.

The input of the layers is an `Incomplete`, a pair of values and a boolean mask that is True where a value
was observed. ``Incomplete.from_array(X)`` creates it from an array with NaN. Values where the mask is False
are never read, neither in the forward nor in the backward pass.
"""

from halfseen.data.incomplete import Incomplete
from halfseen.nn.sparsity import (
    CausalSparsityLinear,
    SNDropout,
    SparsityNorm,
    SparsityNormMLP,
    sn_dropout,
    sn_mask,
)

__all__ = [
    "CausalSparsityLinear",
    "Incomplete",
    "SNDropout",
    "SparsityNorm",
    "SparsityNormMLP",
    "sn_dropout",
    "sn_mask",
]
