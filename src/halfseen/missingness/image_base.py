r"""The base class of mechanisms for images.

Images are arrays of shape (N, H, W) or (N, C, H, W), or flat arrays (N, H W) if the mechanism is given their
`shape`. A pixel is removed in all channels, unless the mechanism depends on its value.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.data.masked import unmask
from halfseen.errors import SchemaError
from halfseen.missingness.base import Mechanism
from halfseen.missingness.parameters import check_count
from halfseen.missingness.reading import OpenTable, Positions

Floats = npt.NDArray[np.float64]


class ImageTable(OpenTable):
    """Images as a table with one row per image and one column per pixel and channel."""

    def __init__(self, X: Any, shape: tuple[int, int] | None) -> None:
        if not isinstance(X, Tensor):
            X = np.asarray(unmask(X))
        if X.ndim not in (2, 3, 4) or (X.ndim == 2 and shape is None):
            raise ValueError(
                f"Images must be (N, H, W), (N, C, H, W) or (N, H W) with a shape, got {X.shape}."
            )
        found = tuple(int(size) for size in X.shape[-2:]) if X.ndim > 2 else tuple(shape or ())
        if (shape is not None and found != tuple(shape)) or (X.ndim == 2 and X.shape[1] != np.prod(found)):
            raise ValueError(
                f"Images of shape {shape} were expected, got an array of shape {tuple(X.shape)}."
            )
        self.grid = (found[0], found[1])
        self.n_channels = int(X.shape[1]) if X.ndim == 4 else 1
        self.shape = tuple(X.shape)
        super().__init__(X.reshape(X.shape[0], self.n_channels * self.grid[0] * self.grid[1]))

    def wrap(self, result: Tensor) -> Any:
        """Returns a result in the caller's library and in the shape of the images."""
        wrapped = super().wrap(result)
        return wrapped.reshape(self.shape) if result.shape[1:] else wrapped

    def with_missing(self, hidden: Tensor, affected: Positions) -> Any:
        """Returns copies of the images in which some pixels are missing."""
        return super().with_missing(hidden, affected).reshape(self.shape)


class ImageMechanism(Mechanism):
    """Base class of mechanisms for images; `expected_rate_` has the shape of one image, (H, W)."""

    shape: tuple[int, int] | None
    columns = None

    def fit(self, X: Any) -> Any:
        """Reads the size of the images.

        Parameters
        ----------
        X : array-like or tensor
            The images, of shape (N, H, W), (N, C, H, W) or flat.

        Returns
        -------
        Self
        """
        self._fitted = False
        if self.shape is not None:
            for i, size in enumerate(self.shape):
                check_count(f"shape[{i}]", size)
        table = ImageTable(X, self.shape)
        self.shape_, self.n_channels_ = table.grid, table.n_channels
        self.columns_ = np.arange(table.n_features)
        self._settle(table)
        self.expected_rate_ = self._expected_rate(table)
        self._fitted = True
        return self

    @abstractmethod
    def _settle(self, table: ImageTable) -> None:
        """Checks the parameters against the size of the images."""

    @abstractmethod
    def _expected_rate(self, table: ImageTable) -> Floats:
        """Returns the expected fraction of images in which each pixel is removed, (H, W)."""

    @abstractmethod
    def _pixels(self, n_rows: int, generator: torch.Generator) -> Tensor:
        """Returns which pixels are removed, (N, H, W)."""

    def _log_pixels(self, hidden: Tensor, seen: Tensor) -> Tensor:
        """Returns the log probability of masks; `hidden` and `seen`, (N, H, W), exclude missing pixels."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob: it is not known in closed form.")

    def _open(self, X: Any, *, batched: bool = False) -> OpenTable:
        self._check_fitted()
        table = ImageTable(X, self.shape_)
        if table.n_channels != self.n_channels_:
            raise SchemaError(f"X has {table.n_channels} channels; in fit it had {self.n_channels_}.")
        return table

    def _affected(self) -> npt.NDArray[np.bool_]:
        return np.ones(len(self.columns_), dtype=bool)

    def _check_observed(self, observed: Any, table: OpenTable) -> Tensor:
        assert isinstance(table, ImageTable)
        if tuple(np.shape(observed)) != table.shape:
            raise ValueError(
                f"observed must have the shape of X, {table.shape}, got {tuple(np.shape(observed))}."
            )
        return super()._check_observed(observed.reshape(table.n_rows, table.n_features), table)

    def _hide(self, table: OpenTable, generator: torch.Generator) -> Tensor:
        pixels = self._pixels(table.n_rows, generator)[:, None]  # (N, 1, H, W)
        hidden = pixels.expand(-1, self.n_channels_, -1, -1).reshape(table.n_rows, table.n_features)
        present = table.present()
        return hidden.to(present.device) & present

    def _cell_probability(self, table: OpenTable) -> Tensor:
        rate = torch.from_numpy(np.tile(self.expected_rate_.ravel(), self.n_channels_))
        present = table.present()
        return torch.where(present, rate.to(present.device).expand(present.shape), 0.0)

    def _row_log_prob(self, table: OpenTable, observed: Tensor) -> Tensor:
        layers = (table.n_rows, self.n_channels_, *self.shape_)
        present = table.present().reshape(layers)
        shown = observed.reshape(layers)
        hidden, seen = (~shown & present).any(dim=1), (shown & present).any(dim=1)
        torn = (hidden & seen).flatten(1).any(dim=1)  # removed in one channel, observed in another
        return torch.where(torn, -torch.inf, self._log_pixels(hidden, seen).double())

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        raise NotImplementedError  # `fit` only reads the size

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        raise NotImplementedError  # `_pixels` draws
