"""Sample weights of imputers: how often each row counts."""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight

from halfseen.data.incomplete import Incomplete
from halfseen.data.masked import check_not_masked


def repeat_rows(codes: Incomplete, sample_weight: Any) -> Incomplete:
    """Returns rows repeated by their weights; all rows once if there are no weights.

    Examples
    --------
    >>> codes = Incomplete(torch.tensor([[1.0], [2.0]]), torch.ones(2, 1, dtype=torch.bool))
    >>> repeat_rows(codes, [0, 2]).x.ravel()
    tensor([2., 2.])
    """
    if sample_weight is None:
        return codes
    weights = _check_sample_weight(
        check_not_masked(sample_weight, "sample_weight"),
        np.empty((len(codes), 1)),
        dtype=np.float64,
        ensure_non_negative=True,
    )
    odd = np.flatnonzero(weights != np.round(weights))
    if len(odd):
        raise ValueError(
            f"sample_weight must hold whole numbers, the numbers of times that rows count, got "
            f"{weights[odd[0]]:g} in row {odd[0]}. Pass survey weights to the analysis: halfseen.pool(..., "
            "weights=...)."
        )
    if not weights.any():
        raise ValueError("sample_weight must not be zero for all rows.")
    return codes[torch.repeat_interleave(torch.arange(len(codes)), torch.from_numpy(weights).long())]
