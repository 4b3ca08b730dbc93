"""What is recorded of the cycles of chained equations, and whether the chains agree."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ChainTrace:
    """The means and standard deviations of the completed columns after every cycle.

    Attributes
    ----------
    names : tuple of str
        The columns that have missing values.
    mean, std : ndarray of shape (n_cycles, n_chains, n_columns)
        Of their codes: numbers, or positions of levels.
    """

    names: tuple[str, ...]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    of: ClassVar[str] = "the completed column"

    @property
    def kept(self) -> list[int]:
        """The cycles whose parameters are kept: the last one."""
        return [len(self.mean) - 1]

    def r_hat(self) -> dict[str, float]:
        r"""Returns the potential scale reduction of the mean of each column.

        .. math:: \hat{R}^2 = \frac{T - 1}{T} + \frac{B}{W}

        with the variance W within chains and the variance B of the means of chains, over the last T cycles,
        half of all. Values near 1 mean that chains cannot be told apart.
        """
        half = self.mean[len(self.mean) // 2 :]
        largest = np.abs(half).max(axis=(0, 1))
        half = half / np.where(largest > 0, largest, 1.0)  # squares of large numbers would overflow
        n_cycles, n_chains = half.shape[:2]
        if n_cycles < 2 or n_chains < 2:
            return dict.fromkeys(self.names, float("nan"))
        within = half.var(axis=0, ddof=1).mean(axis=0)
        between = half.mean(axis=0).var(axis=0, ddof=1)
        ratio = np.divide(between, within, out=np.zeros_like(within), where=within > 0)
        values = np.sqrt((n_cycles - 1) / n_cycles + ratio)
        return dict(zip(self.names, values.tolist(), strict=True))
