"""Masked arrays of numpy: masked cells are missing, whatever values they contain."""

from typing import Any

import numpy as np


def unmask(X: Any) -> Any:
    """Returns a masked array as a plain array with NaN or NaT; any other object is returned unchanged.

    Integers and booleans become float64, because they cannot represent NaN.

    Examples
    --------
    >>> unmask(np.ma.array([1, 2, -999], mask=[False, False, True]))
    array([ 1.,  2., nan])
    """
    if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.stack([np.ma.asarray(row) for row in X])
    if not isinstance(X, np.ma.MaskedArray):
        return X
    cells, masked = np.array(np.ma.getdata(X)), np.ma.getmaskarray(X)
    if cells.dtype.kind in "biu":
        cells = cells.astype(np.float64)
    elif cells.dtype.kind in "SU":
        cells = cells.astype(object)
    if masked.any():
        cells[masked] = np.array("NaT", cells.dtype) if cells.dtype.kind in "mM" else np.nan
    return cells


def check_not_masked(values: Any, name: str) -> Any:
    """Returns targets or weights without their mask; raises if one of them is masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    n_masked = int(np.ma.getmaskarray(values).sum())
    if n_masked:
        raise ValueError(
            f"Input {name} contains NaN: {n_masked} of its {values.size} values are masked. Leave out the "
            "rows in which it is not known."
        )
    return np.array(np.ma.getdata(values))
