"""Mechanisms for images: independent pixels, rectangles, quadrants and discs."""

from abc import abstractmethod
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfseen._arrays import Booleans, Floats
from halfseen.data.incomplete import unmask
from halfseen.errors import SchemaError
from halfseen.missingness.base import Mechanism, check_count, check_number, log_bernoulli
from halfseen.missingness.reading import OpenTable, Positions

# The base class of mechanisms for images.
#
# Images are arrays of shape (N, H, W) or (N, C, H, W), or flat arrays (N, H W) if the mechanism is given
# their `shape`. A pixel is removed in all channels, unless the mechanism depends on its value.


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

    def _affected(self) -> Booleans:
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


Range = int | tuple[int, int]


@dataclass(eq=False)
class IIDPixels(ImageMechanism):
    r"""Removes each pixel independently with the same probability (MCAR).

    .. math:: p(m) = \prod_{hw} r^{m_{hw}} (1 - r)^{1 - m_{hw}}

    Parameters
    ----------
    rate : float, default=0.5
        The fraction of removed pixels.
    shape : (int, int), optional
        Height and width of the images; required for flat images.

    Examples
    --------
    >>> X = np.zeros((100, 28, 28))
    >>> round(float(IIDPixels(rate=0.9).fit(X).sample(X, random_state=0).mean()), 2)
    0.1
    """

    rate: float = 0.5
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, 1.0)

    def _settle(self, table: ImageTable) -> None:
        pass

    def _expected_rate(self, table: ImageTable) -> Floats:
        return np.full(self.shape_, float(self.rate))

    def _pixels(self, n_rows: int, generator: torch.Generator) -> Tensor:
        return torch.rand(n_rows, *self.shape_, generator=generator, dtype=torch.float64) < self.rate

    def _log_pixels(self, hidden: Tensor, seen: Tensor) -> Tensor:
        rate = torch.tensor(self.rate, dtype=torch.float64, device=hidden.device)
        return torch.where(hidden | seen, log_bernoulli(rate, seen), 0.0).flatten(1).sum(dim=1)


@dataclass(eq=False)
class Rectangles(ImageMechanism):
    r"""Removes rectangles at random positions (MCAR).

    .. math:: p(m_{hw} = 1) = 1 - (1 - a_h b_w)^n

    for `n` rectangles of fixed size, where :math:`a_h` and :math:`b_w` are the fractions of vertical and
    horizontal positions that cover the pixel. The position of each rectangle is uniform over those within the
    image. Rectangles may overlap.

    Parameters
    ----------
    n : int or (int, int), default=1
        The number of rectangles. A pair (low, high) is an inclusive range from which each image draws
        uniformly.
    width : int or (int, int), default=7
        The width in pixels. A pair is an inclusive range from which each rectangle draws uniformly.
    height : int or (int, int), optional
        The height in pixels; by default equal to the width.
    shape : (int, int), optional
        Height and width of the images; required for flat images.

    References
    ----------
    Sharir, Tamari, Cohen & Shashua (2016), Tensorial mixture models: N in 1, 2, 3 squares of width 7, 11, 15.

    Examples
    --------
    >>> X = np.zeros((1, 4, 4))
    >>> Rectangles(n=1, width=3).fit(X).sample(X, random_state=0)[0].astype(int)
    array([[1, 0, 0, 0],
           [1, 0, 0, 0],
           [1, 0, 0, 0],
           [1, 1, 1, 1]])
    """

    n: Range = 1
    width: Range = 7
    height: Range | None = None
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _check_range("n", self.n, low=0)
        _check_range("width", self.width)
        if self.height is not None:
            _check_range("height", self.height)

    def _settle(self, table: ImageTable) -> None:
        for name, size, whole in (("height", self.height or self.width, 0), ("width", self.width, 1)):
            if _range(size)[1] > self.shape_[whole]:
                raise ValueError(f"{name} must fit into images of shape {self.shape_}, got {size!r}.")

    def _expected_rate(self, table: ImageTable) -> Floats:
        low, high = _range(self.width)
        squares = [(size, size) for size in range(low, high + 1)]
        if self.height is not None:
            tall = range(_range(self.height)[0], _range(self.height)[1] + 1)
            squares = [(h, w) for h in tall for w, _ in squares]
        rows, across = self.shape_
        one = np.mean([np.outer(_cover(rows, h), _cover(across, w)) for h, w in squares], axis=0)
        few, many = _range(self.n)
        rate: Floats = np.mean([1.0 - (1.0 - one) ** n for n in range(few, many + 1)], axis=0)
        return rate

    def _pixels(self, n_rows: int, generator: torch.Generator) -> Tensor:
        few, many = _range(self.n)
        count = _uniform(few, torch.full((n_rows,), many), generator)
        rows, across = (torch.arange(size) for size in self.shape_)
        hidden = torch.zeros(n_rows, *self.shape_, dtype=torch.bool)
        for i in range(many):
            width = _uniform(_range(self.width)[0], torch.full((n_rows,), _range(self.width)[1]), generator)
            height = width
            if self.height is not None:
                low, high = _range(self.height)
                height = _uniform(low, torch.full((n_rows,), high), generator)
            top = _uniform(0, self.shape_[0] - height, generator)[:, None]
            left = _uniform(0, self.shape_[1] - width, generator)[:, None]
            tall = (rows >= top) & (rows < top + height[:, None])  # (N, H)
            wide = (across >= left) & (across < left + width[:, None])  # (N, W)
            drawn = (i < count)[:, None, None]
            hidden |= tall[:, :, None] & wide[:, None, :] & drawn
        return hidden


@dataclass(eq=False)
class Quadrants(ImageMechanism):
    r"""Removes some of the four quarters of an image, chosen uniformly at random (MCAR).

    .. math:: p(m) = \binom{4}{n}^{-1} \quad \text{if } m \text{ is the union of } n \text{ quarters}

    Parameters
    ----------
    n : int, default=2
        The number of quarters that are removed, from 0 to 4. The image is divided at half its height and
        width, rounded down.
    shape : (int, int), optional
        Height and width of the images; required for flat images.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data: two of four.

    Examples
    --------
    >>> X = np.zeros((1, 2, 2))
    >>> Quadrants(n=3).fit(X).sample(X, random_state=0).sum()
    np.int64(1)
    """

    n: int = 2
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_count("n", self.n, 0)
        check_number("n", self.n, 0, 4)

    def _settle(self, table: ImageTable) -> None:
        if min(self.shape_) < 2:
            raise ValueError(f"Images of shape {self.shape_} have no quadrants.")

    def _expected_rate(self, table: ImageTable) -> Floats:
        return np.full(self.shape_, self.n / 4)

    def _quarters(self) -> Tensor:
        """Returns which quarter, 0 to 3, each pixel belongs to, (H, W)."""
        lower, right = (torch.arange(size) >= size // 2 for size in self.shape_)
        return 2 * lower.long()[:, None] + right.long()

    def _pixels(self, n_rows: int, generator: torch.Generator) -> Tensor:
        order = torch.rand(n_rows, 4, generator=generator, dtype=torch.float64).argsort(dim=1)
        return (order < self.n)[:, self._quarters()]

    def _log_pixels(self, hidden: Tensor, seen: Tensor) -> Tensor:
        inside = torch.nn.functional.one_hot(self._quarters(), 4).to(hidden.device).bool()  # (H, W, 4)
        some_hidden = (hidden[..., None] & inside).flatten(1, 2).any(dim=1)  # (N, 4)
        some_seen = (seen[..., None] & inside).flatten(1, 2).any(dim=1)
        unknown = 4 - some_hidden.sum(dim=1) - some_seen.sum(dim=1)  # quarters that X lacks
        short = self.n - some_hidden.sum(dim=1)
        ways = torch.tensor([[comb(free, k) for k in range(5)] for free in range(5)], dtype=torch.float64)
        possible = ~(some_hidden & some_seen).any(dim=1) & (short >= 0)
        count = ways.to(hidden.device)[unknown.clamp(min=0), short.clamp(min=0)]
        return torch.where(possible, count.log() - np.log(comb(4, self.n)), -torch.inf)


@dataclass(eq=False)
class Disc(ImageMechanism):
    r"""Removes the pixels of a disc (MCAR), or only those whose value exceeds a threshold (MNAR).

    .. math:: p(m_{hw} = 1 \mid x) = 1[(h - c_h)^2 + (w - c_w)^2 \le \rho^2]\; 1[x_{hw} > t]

    Parameters
    ----------
    radius : float, default=7.0
        The radius :math:`\rho` in pixels.
    threshold : float, optional
        The threshold :math:`t`. Without one, the whole disc is removed.
    absolute : bool, default=False
        Whether the threshold applies to :math:`|x|`, which also removes a dark background from images that
        are scaled to [-1, 1].
    centre : (float, float), optional
        Row and column of the centre; by default the middle of the image.
    shape : (int, int), optional
        Height and width of the images; required for flat images.

    Examples
    --------
    >>> X = np.ones((1, 3, 3))
    >>> Disc(radius=1).fit(X).sample(X)[0].astype(int)
    array([[1, 0, 1],
           [0, 0, 0],
           [1, 0, 1]])
    """

    radius: float = 7.0
    threshold: float | None = None
    absolute: bool = False
    centre: tuple[float, float] | None = None
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_number("radius", self.radius, 0.0)
        if self.threshold is not None:
            check_number("threshold", self.threshold)
        for i, place in enumerate(self.centre or ()):
            check_number(f"centre[{i}]", place)

    def _settle(self, table: ImageTable) -> None:
        down, across = self.centre or ((self.shape_[0] - 1) / 2, (self.shape_[1] - 1) / 2)
        rows, columns = np.indices(self.shape_)
        self.inside_ = (rows - down) ** 2 + (columns - across) ** 2 <= self.radius**2

    def _expected_rate(self, table: ImageTable) -> Floats:
        layers = (table.n_rows, self.n_channels_, *self.shape_)
        present = table.present().reshape(layers).double()
        hidden = self._hide(table, torch.Generator()).reshape(layers).double()
        rate: Floats = (hidden.sum(dim=(0, 1)) / present.sum(dim=(0, 1)).clamp(min=1)).cpu().numpy()
        return rate

    def _pixels(self, n_rows: int, generator: torch.Generator) -> Tensor:
        return torch.from_numpy(self.inside_).expand(n_rows, *self.shape_)

    def _hide(self, table: OpenTable, generator: torch.Generator) -> Tensor:
        hidden = super()._hide(table, generator)
        x = table.numbers()
        if self.threshold is None or x is None:
            return hidden
        return hidden & ((x.abs() if self.absolute else x) > self.threshold)

    def _cell_probability(self, table: OpenTable) -> Tensor:
        return self._hide(table, torch.Generator()).double()

    def _row_log_prob(self, table: OpenTable, observed: Tensor) -> Tensor:
        right = (observed == (table.present() & ~self._hide(table, torch.Generator()))).all(dim=1)
        return torch.where(right, 0.0, -torch.inf).double()


def _check_range(name: str, value: Any, low: int = 1) -> None:
    pair = value if isinstance(value, tuple | list) else (value, value)
    for end in pair:
        check_count(name, end, low)
    if len(pair) != 2 or pair[0] > pair[1]:
        raise ValueError(f"{name} must be a whole number or a pair low <= high, got {value!r}.")


def _range(value: Range) -> tuple[int, int]:
    return (value, value) if isinstance(value, int | np.integer) else (value[0], value[1])


def _uniform(low: int, high: Tensor, generator: torch.Generator) -> Tensor:
    """Draws integers between `low` and `high`, both included."""
    noise = torch.rand(high.shape, generator=generator, dtype=torch.float64)
    return low + (noise * (high - low + 1)).long()


def _cover(size: int, length: int) -> Floats:
    """Returns for each of `size` pixels the fraction of positions of a segment that cover it."""
    place = np.arange(size)
    first, last = np.maximum(0, place - length + 1), np.minimum(place, size - length)
    return (last - first + 1) / (size - length + 1)
