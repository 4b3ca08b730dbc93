"""The structure of a circuit: the columns that its leaves read, and the groups of regions of each level."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Sharing = Literal["none", "place", "all"]
Groups = tuple[tuple[int, ...], ...]

NOTHING = -1
"""The place of a window that lies outside of the image: it is always missing."""


@dataclass(frozen=True)
class Level:
    r"""One step of a circuit: a sum in every region, then a product of the regions of every group.

    Parameters
    ----------
    n_channels : int or None
        The number of sums in each region. None for no sum at all: the product follows directly.
    groups : tuple of tuples of int
        The regions that are multiplied, channel by channel; each region belongs to one group. A group with a
        single region leaves it unchanged.
    sharing : {"none", "place", "all"}
        Which regions have the same sum weights: none; those at the same place of their groups; all. For
        ``"place"`` the regions must be in order of their place, so group :math:`g` of :math:`G` holds the
        regions :math:`g, g + G, g + 2G, \dots`
    """

    n_channels: int | None
    groups: Groups
    sharing: Sharing = "none"

    def __post_init__(self) -> None:
        if self.n_channels is not None and self.n_channels < 1:
            raise ValueError(f"n_channels must be at least 1, or None, got {self.n_channels!r}.")
        if self.sharing not in get_args(Sharing):
            raise ValueError(f"sharing must be one of {', '.join(get_args(Sharing))}, got {self.sharing!r}.")
        members = sorted(region for group in self.groups for region in group)
        if members != list(range(len(members))) or not all(self.groups):
            raise ValueError(f"Each region must belong to one group, got the groups {self.groups}.")
        if self.sharing == "place" and not self.in_order:
            raise ValueError("Weights shared by place need groups of one size, with regions in order.")

    @cached_property
    def n_regions(self) -> int:
        """The number of regions before the product."""
        return sum(len(group) for group in self.groups)

    @property
    def in_order(self) -> bool:
        """Whether groups have one size, and group g of G holds the regions g, g + G, g + 2G and so on."""
        n_groups, n_regions = len(self.groups), self.n_regions
        strided = [tuple(range(g, n_regions, n_groups)) for g in range(n_groups)]
        return n_regions % n_groups == 0 and list(self.groups) == strided

    @property
    def n_weight_sets(self) -> int:
        """The number of different sets of sum weights."""
        return {"none": self.n_regions, "place": len(self.groups[0]), "all": 1}[self.sharing]


@dataclass(frozen=True)
class Structure:
    """A circuit without its parameters; it is immutable, and printed as a table of its levels.

    The leaves read the columns through windows: patches of an image, or a single window with all columns
    of a table. The places of a window are divided into parts, and every part of every window is a *leaf*,
    with `n_leaves` mixture components. A region at the bottom is a leaf; the last level leaves one region for
    each tree, and every tree covers all columns. The root is one more sum over all channels of all trees, for
    each class.

    Parameters
    ----------
    windows : tuple of tuples of int
        The columns of each window, by place; -1 for a place outside the image.
    parts : tuple of int
        The part of the window that each place belongs to, from 0 on.
    regions : tuple of int
        The leaf of each region at the bottom: the number of its window times the number of parts, plus the
        number of its part. Trees may share leaves.
    n_leaves : int
        The number of components of every leaf.
    levels : tuple of Level
        From the bottom to the top.
    n_classes : int
        The number of sums at the root; 1 for a density.

    Examples
    --------
    >>> print(Structure.shallow(n_columns=4, n_leaves=3, n_channels=5))
    circuit over 4 columns, 1 tree, 1 class, 65 sum weights
      leaves    4 regions of 1 column, 3 components each
      level 1   4 regions, 5 sums in each, multiplied to 1 region
      root      1 sum of 5 channels
    """

    windows: tuple[tuple[int, ...], ...]
    parts: tuple[int, ...]
    regions: tuple[int, ...]
    n_leaves: int
    levels: tuple[Level, ...]
    n_classes: int = 1

    def __post_init__(self) -> None:
        for name in ("n_leaves", "n_classes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}.")
        scopes = [frozenset(self.scope(leaf)) for leaf in self.regions]
        for number, level in enumerate(self.levels, start=1):
            if level.n_regions != len(scopes):
                raise ValueError(f"Level {number} groups {level.n_regions} regions of {len(scopes)}.")
            merged = [frozenset().union(*(scopes[u] for u in group)) for group in level.groups]
            sizes = [sum(len(scopes[u]) for u in group) for group in level.groups]
            if [len(scope) for scope in merged] != sizes:
                raise ValueError(f"Level {number} multiplies regions that share columns.")
            scopes = merged
        if any(scope != frozenset(range(self.n_columns)) for scope in scopes):
            raise ValueError("Every region that the last level leaves must cover all columns.")

    @classmethod
    def mixture(cls, n_columns: int, n_components: int, *, n_classes: int = 1) -> "Structure":
        """Returns a mixture of independent columns: one product, one sum."""
        return cls(*_columns(n_columns), n_components, (Level(None, _together(n_columns)),), n_classes)

    @classmethod
    def shallow(cls, n_columns: int, n_leaves: int, n_channels: int, *, n_classes: int = 1) -> "Structure":
        """Returns a shallow circuit (CP) over columns: a sum for each column, one product, the root.

        It is a mixture of `n_channels` components within which columns are independent, each a mixture of the
        leaves of its column.
        """
        return cls(*_columns(n_columns), n_leaves, (Level(n_channels, _together(n_columns)),), n_classes)

    @classmethod
    def trees(
        cls,
        n_columns: int,
        pairings: Sequence[Sequence[Groups]],
        n_leaves: int,
        n_channels: Sequence[int],
        *,
        n_classes: int = 1,
    ) -> "Structure":
        """Returns a mixture of trees over columns that share their leaves.

        Parameters
        ----------
        n_columns : int
            The number of columns.
        pairings : sequence of sequences of groups
            For each tree, the groups of each level from the bottom, such as `pair_columns` returns; all trees
            have the same number of levels.
        n_leaves : int
            The components of the leaves of each column.
        n_channels : sequence of int
            The number of sums of the regions of each level.
        n_classes : int
            The number of classes.
        """
        if not pairings or {len(levels) for levels in pairings} != {len(n_channels)}:
            raise ValueError(f"Every tree needs {len(n_channels)} levels, as many as there are n_channels.")
        levels = []
        for channels, *of_trees in zip(n_channels, *pairings, strict=True):
            groups, start = [], 0
            for tree in of_trees:
                groups += [tuple(start + region for region in group) for group in tree]
                start += sum(len(group) for group in tree)
            levels.append(Level(channels, tuple(groups)))
        windows, parts, _ = _columns(n_columns)
        regions = tuple(range(n_columns)) * len(pairings)
        return cls(windows, parts, regions, n_leaves, tuple(levels), n_classes)

    @classmethod
    def image(
        cls,
        shape: tuple[int, ...],
        n_leaves: int,
        n_channels: Sequence[int],
        *,
        patch: int = 2,
        n_classes: int = 1,
        n_shared: int = 1,
    ) -> "Structure":
        """Returns a deep circuit (HT) over an image: 2 x 2 patches of patches, level by level.

        The image is surrounded by missing pixels so that the grid of patches halves at every level.

        Parameters
        ----------
        shape : (int, int) or (int, int, int)
            Height and width, or channels, height and width. Columns are the values in this order.
        n_leaves : int
            The components of the patches, the same at all positions.
        n_channels : sequence of int
            The number of sums of the regions of each level; the last number applies to all further levels.
        patch : int
            Height and width of a patch.
        n_classes : int
            The number of classes.
        n_shared : int
            The number of levels, from the bottom, whose weights are shared by place.
        """
        rows, columns = (_power_of_two(-(-side // patch)) for side in shape[-2:])
        windows, halvings = _grid(rows, columns)
        levels = []
        for number, groups in enumerate(halvings):
            sharing: Sharing = "place" if number < n_shared else "none"
            levels.append(Level(n_channels[min(number, len(n_channels) - 1)], groups, sharing))
        pixels = tuple(_patch(shape, patch, (rows, columns), position) for position in windows)
        parts = (0,) * len(pixels[0])
        return cls(pixels, parts, tuple(range(len(pixels))), n_leaves, tuple(levels), n_classes)

    @classmethod
    def shallow_image(
        cls, shape: tuple[int, ...], n_leaves: int, n_channels: int, *, patch: int = 2, n_classes: int = 1
    ) -> "Structure":
        """Returns a shallow circuit (CP) over the patches of an image; parameters as in `image`."""
        grid = tuple(-(-side // patch) for side in shape[-2:])
        windows = tuple(_patch(shape, patch, grid, place) for place in product(*map(range, grid)))
        levels = (Level(n_channels, _together(len(windows))),)
        parts = (0,) * len(windows[0])
        return cls(windows, parts, tuple(range(len(windows))), n_leaves, levels, n_classes)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return max(max(window) for window in self.windows) + 1

    @property
    def n_parts(self) -> int:
        """The number of parts of a window."""
        return max(self.parts) + 1

    @property
    def n_trees(self) -> int:
        """The number of trees that are mixed at the root."""
        return len(self.levels[-1].groups) if self.levels else len(self.regions)

    @property
    def top_channels(self) -> int:
        """The number of channels that every tree brings to the root."""
        sums = [level.n_channels for level in self.levels if level.n_channels is not None]
        return sums[-1] if sums else self.n_leaves

    @property
    def n_weights(self) -> int:
        """The number of sum weights of all levels and the root."""
        total, width = self.n_trees * self.top_channels * self.n_classes, self.n_leaves
        for level in self.levels:
            if level.n_channels is not None:
                total += level.n_weight_sets * width * level.n_channels
                width = level.n_channels
        return total

    def scope(self, leaf: int) -> tuple[int, ...]:
        """Returns the columns that a leaf reads."""
        window, part = divmod(leaf, self.n_parts)
        columns = zip(self.windows[window], self.parts, strict=True)
        return tuple(column for column, of in columns if of == part and column != NOTHING)

    def tree_of_regions(self) -> tuple[int, ...]:
        """Returns the tree of each region at the bottom."""
        trees = list(range(self.n_trees))
        for level in reversed(self.levels):
            below = [0] * level.n_regions
            for tree, group in zip(trees, level.groups, strict=True):
                for region in group:
                    below[region] = tree
            trees = below
        return tuple(trees)

    def __str__(self) -> str:
        widest = max(len(self.scope(leaf)) for leaf in self.regions)
        lines = [
            f"circuit over {_count(self.n_columns, 'column')}, {_count(self.n_trees, 'tree')}, "
            f"{_count(self.n_classes, 'class', 'classes')}, {self.n_weights:,} sum weights",
            f"  leaves    {_count(len(self.regions), 'region')} of {_count(widest, 'column')}, "
            f"{_count(self.n_leaves, 'component')} each",
        ]
        for number, level in enumerate(self.levels, start=1):
            sums = "" if level.n_channels is None else f", {_count(level.n_channels, 'sum')} in each"
            if level.n_channels is not None and level.sharing != "none":
                sums += f" ({_count(level.n_weight_sets, 'set')} of weights)"
            merged = _count(len(level.groups), "region")
            lines.append(
                f"  level {number:<3} {_count(level.n_regions, 'region')}{sums}, multiplied to {merged}"
            )
        lines.append(
            f"  root      {_count(self.n_classes, 'sum')} of "
            f"{_count(self.n_trees * self.top_channels, 'channel')}"
        )
        return "\n".join(lines)


def pair_columns(affinity: npt.NDArray[np.float64]) -> list[Groups]:
    """Returns groups of two, level by level until one region is left, most dependent regions first.

    On each level, the pair of regions with the largest mean affinity is joined first, then the next pair
    among the remaining regions; if their number is odd, one region is left unchanged. All trees over the
    same number of columns have the same number of levels. With a random symmetric matrix, the tree is
    random.

    Parameters
    ----------
    affinity : array of shape (C, C)
        How dependent each pair of columns is.

    Examples
    --------
    >>> affinity = np.array([[0, 1, 9], [1, 0, 2], [9, 2, 0.0]])
    >>> pair_columns(affinity)
    [((0, 2), (1,)), ((0, 1),)]
    """
    affinity = np.array(affinity, dtype=np.float64)
    levels: list[Groups] = []
    while len(affinity) > 1:
        groups = _pair(affinity)
        first = np.array([group[0] for group in groups])
        last = np.array([group[-1] for group in groups])  # equal to `first` for a region without a partner
        rows = (affinity[first] + affinity[last]) / 2
        affinity = (rows[:, first] + rows[:, last]) / 2
        levels.append(groups)
    return levels


def _pair(affinity: npt.NDArray[np.float64]) -> Groups:
    """Returns pairs of regions, the largest affinity first, and then the region that is left over."""
    first, second = np.triu_indices(len(affinity), k=1)
    order = np.argsort(-affinity[first, second], kind="stable")
    pairs, free = [], [True] * len(affinity)
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if free[i] and free[j]:
            free[i] = free[j] = False
            pairs.append((i, j))
    return (*pairs, *((region,) for region in np.flatnonzero(free).tolist()))


def join_last(levels: Sequence[Groups], n_columns: int, n_more: int) -> list[Groups]:
    """Returns the groups of a tree with further columns that join the others at its top.

    Examples
    --------
    >>> join_last([((0, 1),)], n_columns=2, n_more=1)
    [((0, 1), (2,)), ((0, 1),)]
    """
    joined, width = [], n_columns
    for groups in levels:
        joined.append((*groups, *((width + more,) for more in range(n_more))))
        width = len(groups)
    return [*joined, _together(width + n_more)]


def _columns(n_columns: int) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...], tuple[int, ...]]:
    """Returns one window with all columns, each a part and a region of its own."""
    everyone = tuple(range(n_columns))
    return (everyone,), everyone, everyone


def _together(n_regions: int) -> Groups:
    return (tuple(range(n_regions)),)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _grid(rows: int, columns: int) -> tuple[list[tuple[int, int]], list[Groups]]:
    """Returns the positions of a grid in the order that halving needs, and the groups of each halving."""
    positions, halvings = [(0, 0)], []
    height = width = 1
    while (height, width) != (rows, columns):
        down, across = 1 + (height < rows), 1 + (width < columns)
        n_groups = len(positions)
        positions = [
            (row * down + i, column * across + j)
            for i, j in product(range(down), range(across))
            for row, column in positions
        ]
        halvings.append(tuple(tuple(range(g, len(positions), n_groups)) for g in range(n_groups)))
        height, width = height * down, width * across
    return positions, halvings[::-1]


def _patch(
    shape: tuple[int, ...], patch: int, grid: tuple[int, ...], position: tuple[int, ...]
) -> tuple[int, ...]:
    """Returns the columns of the patch at a position of a grid that is centred on the image."""
    n_channels, height, width = (1, *shape)[-3:]
    offsets = [(patch * n - side) // 2 for n, side in zip(grid, (height, width), strict=True)]
    columns = []
    for i, j in product(range(patch), repeat=2):
        row, column = patch * position[0] + i - offsets[0], patch * position[1] + j - offsets[1]
        inside = 0 <= row < height and 0 <= column < width
        first = row * width + column
        columns += [first + plane * height * width if inside else NOTHING for plane in range(n_channels)]
    return tuple(columns)


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
