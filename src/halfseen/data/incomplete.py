r"""The input of every model: a pair of values and a mask that states which of them were observed.

Shapes everywhere: ``*`` batch, ``N`` rows, ``D`` features, ``K`` components, ``L`` latent, ``S`` draws.
The feature axis is last, the draws axis first, the component axis just before features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


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


@dataclass(frozen=True)
class Incomplete:
    r"""Incomplete values: ``x`` and the boolean ``observed`` of the same shape, True for observed values.

    The entries of ``x`` where ``observed`` is False have no meaning and are never read: every function fills
    them with ``torch.where`` before a computation, and masks the result with ``torch.where`` afterwards.

    Examples
    --------
    >>> batch = Incomplete.from_array(np.array([[1.0, np.nan], [3.0, 4.0]]))
    >>> batch.observed
    tensor([[ True, False],
            [ True,  True]])
    >>> batch.to_array()
    array([[ 1., nan],
           [ 3.,  4.]])
    """

    x: Tensor
    observed: Tensor

    def __post_init__(self) -> None:
        if self.observed.dtype != torch.bool:
            raise ValueError(
                f"observed must be boolean (True for observed values), got {self.observed.dtype}."
            )
        if self.x.shape != self.observed.shape:
            shapes = f"{tuple(self.x.shape)} and {tuple(self.observed.shape)}"
            raise ValueError(f"x and observed must have one shape, got {shapes}.")

    @classmethod
    def from_array(cls, array: npt.ArrayLike, dtype: torch.dtype = torch.float64) -> "Incomplete":
        """Splits an array with NaN; always copies, so the caller's memory is never shared."""
        values = np.array(unmask(array), dtype=np.float64, copy=True)
        observed = ~np.isnan(values)
        return cls(torch.from_numpy(np.where(observed, values, 0.0)).to(dtype), torch.from_numpy(observed))

    def to_array(self) -> npt.NDArray[np.float64]:
        """Returns a float64 array with NaN where values are missing."""
        array: npt.NDArray[np.float64] = torch.where(self.observed, self.x, torch.nan).double().numpy()
        return array

    def filled(self, value: float | Tensor = 0.0) -> Tensor:
        """Returns ``x`` with `value` (a number, or a tensor that broadcasts) for missing values."""
        return torch.where(self.observed, self.x, torch.as_tensor(value, dtype=self.x.dtype))

    def to(self, dtype: torch.dtype) -> "Incomplete":
        """Returns the pair with ``x`` in another floating type."""
        return Incomplete(self.x.to(dtype), self.observed)

    def chunks(self, n_rows: int) -> Iterator["Incomplete"]:
        """Yields consecutive pieces of at most `n_rows` rows."""
        for start in range(0, len(self), n_rows):
            yield self[start : start + n_rows]

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.x.shape[-1]

    def __len__(self) -> int:
        return self.x.shape[0]

    def __getitem__(self, rows: slice | Tensor) -> "Incomplete":
        return Incomplete(self.x[rows], self.observed[rows])
