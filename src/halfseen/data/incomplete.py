r"""The input of every model: a pair of values and a mask that states which of them were observed.

Shapes everywhere: ``*`` batch, ``N`` rows, ``D`` features, ``K`` components, ``L`` latent, ``S`` draws.
The feature axis is last, the draws axis first, the component axis just before features.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.data.masked import unmask


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
