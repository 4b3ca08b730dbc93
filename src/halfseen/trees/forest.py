r"""Boosted trees as arrays of nodes, and their predictions.

A tree is stored in preorder: the left child of node :math:`i` is :math:`i + 1`, so that the leaves of a tree
are numbered from left to right. Every tree has at most 64 leaves, and the leaves of a row in all trees are
found together. A word of 64 bits per tree has one bit per leaf; each comparison that sends the row to the
right clears the bits of the leaves on the left, and the lowest remaining bit is the leaf of the row. The
bits that are cleared by all comparisons with one feature depend on its value only through its rank among the
thresholds, so they are looked up in a table.

References
----------
Lucchese, Nardini, Orlando, Perego, Tonellotto & Venturini (2015), QuickScorer: a fast algorithm to rank
documents with additive ensembles of regression trees.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._arrays import Booleans, Floats, Integers

Words = npt.NDArray[np.uint64]

MAX_LEAVES = 64
CELLS_AT_ONCE = 1 << 18  # rows times trees: few enough for the cache of a processor
TREES_AT_ONCE = 256  # whose tables are made together: fewer take less memory and more calls; a guess
OF_NODES = ("feature", "threshold", "right", "value", "missing_left")  # arrays that are cut and joined alike
_ALL = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Forest:
    r"""A sequence of trees.

    A row goes to the left of a node if its feature is at most the threshold, or, at a categorical node, if
    its category is among those that go left. Missing values, and categories beyond
    the stored ones, go left if `missing_left` is True.

    Shapes
    ------
    feature, threshold, right, value, missing_left, split : :math:`(M)`, of all nodes of all trees.
        ``feature`` is -1 at leaves; ``right`` is the position of the right child in its tree; ``split`` is a
        row of ``goes_left``, or -1 at nodes that are not categorical.
    goes_left : :math:`(Q, V)`, the categories that go to the left at each categorical node
    starts : :math:`(T + 1)`, the first node of each tree, and the number of all nodes
    """

    feature: Integers
    threshold: Floats
    right: Integers
    value: Floats
    missing_left: Booleans
    split: Integers
    goes_left: Booleans
    starts: Integers

    @classmethod
    def empty(cls) -> "Forest":
        """Returns a forest without trees."""
        none, no, real = np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0)
        return cls(none, real, none, real, no, none, np.zeros((0, 1), bool), np.zeros(1, np.int64))

    @classmethod
    def joined(cls, forests: Sequence["Forest"]) -> "Forest":
        """Returns the trees of several forests with the same number of categories, one after the other."""
        forests = [forest for forest in forests if forest.n_trees]
        if not forests:
            return cls.empty()
        splits = np.cumsum([0, *(len(forest.goes_left) for forest in forests)])
        nodes = np.cumsum([0, *(len(forest.feature) for forest in forests)])
        moved = [np.where(one.split < 0, -1, one.split + n) for one, n in zip(forests, splits, strict=False)]
        return cls(
            **{name: np.concatenate([getattr(forest, name) for forest in forests]) for name in OF_NODES},
            split=np.concatenate(moved),
            goes_left=np.concatenate([forest.goes_left for forest in forests]),
            starts=np.concatenate(
                [[0], *(one.starts[1:] + n for one, n in zip(forests, nodes, strict=False))]
            ),
        )

    @property
    def n_trees(self) -> int:
        """The number of trees T."""
        return len(self.starts) - 1

    def trees(self, start: int, stop: int) -> "Forest":
        """Returns the trees of a range."""
        nodes = slice(self.starts[start], self.starts[stop])
        split = self.split[nodes]
        used = split[split >= 0]
        first, last = (used.min(), used.max() + 1) if len(used) else (0, 0)
        return Forest(
            **{name: getattr(self, name)[nodes] for name in OF_NODES},
            split=np.where(split < 0, -1, split - first),
            goes_left=self.goes_left[first:last],
            starts=self.starts[start : stop + 1] - self.starts[start],
        )

    def sums(self, X: Floats, n_outputs: int = 1) -> Floats:
        """Returns (N, K): sums of the leaves of rows (N, D), where tree t belongs to output t modulo K."""
        result = np.zeros((len(X), n_outputs))
        if self.n_trees:
            size = max(1, CELLS_AT_ONCE // self.n_trees)
            for start in range(0, len(X), size):
                leaves = self._values(X[start : start + size])
                result[start : start + size] = leaves.reshape(len(leaves), -1, n_outputs).sum(axis=1)
        return result

    def _values(self, X: Floats) -> Floats:
        """Returns the value (N, T) of the leaf in which each row ends in each tree."""
        return np.concatenate([block._values_of_block(X) for block in self._blocks], axis=1)

    @cached_property
    def _blocks(self) -> list["Forest"]:
        """The trees, some at a time: each table has a row for every threshold and a column for every tree."""
        if self.n_trees <= TREES_AT_ONCE:
            return [self]
        starts = range(0, self.n_trees, TREES_AT_ONCE)
        return [self.trees(start, min(start + TREES_AT_ONCE, self.n_trees)) for start in starts]

    def _values_of_block(self, X: Floats) -> Floats:
        left = np.full((len(X), self.n_trees), _ALL)
        for table in self._tables:
            left &= table.kept(X[:, table.feature])
        lowest = left & (~left + np.uint64(1))
        leaf = np.frexp(lowest.astype(np.float64))[1] - 1
        values, first = self._leaves
        found: Floats = values[first + leaf]
        return found

    @cached_property
    def _leaves(self) -> tuple[Floats, Integers]:
        """The values of all leaves, and the first leaf (T) of each tree."""
        is_leaf = self.feature < 0
        before = np.concatenate([[0], np.cumsum(is_leaf)])
        return self.value[is_leaf], before[self.starts[:-1]]

    @cached_property
    def _tables(self) -> list["_Table"]:
        return list(self._make_tables())

    def _make_tables(self) -> Iterator["_Table"]:
        is_leaf = self.feature < 0
        before = np.concatenate([[0], np.cumsum(is_leaf)])
        tree = np.repeat(np.arange(self.n_trees), np.diff(self.starts))
        first = before[self.starts[:-1]][tree]
        nodes = np.flatnonzero(~is_leaf)
        low = (before[nodes] - first[nodes]).astype(np.uint64)
        high = (before[self.starts[tree[nodes]] + self.right[nodes]] - first[nodes]).astype(np.uint64)
        kept = ~((np.uint64(1) << high) - (np.uint64(1) << low))  # all but the leaves on the left
        for feature in np.unique(self.feature[nodes]):
            mine = self.feature[nodes] == feature
            at, words, trees = nodes[mine], kept[mine], tree[nodes[mine]]
            if (self.split[at] >= 0).any():
                yield self._categorical_table(int(feature), at, words, trees)
            else:
                yield self._ordered_table(int(feature), at, words, trees)

    def _ordered_table(self, feature: int, at: Integers, words: Words, trees: Integers) -> "_Table":
        thresholds, rank = np.unique(self.threshold[at], return_inverse=True)
        rows = np.full((len(thresholds) + 2, self.n_trees), _ALL)
        np.bitwise_and.at(rows, (rank + 1, trees), words)
        rows[:-1] = np.bitwise_and.accumulate(rows[:-1], axis=0)
        rows[-1] = self._missing(at, words, trees)
        return _Table(feature, rows, thresholds)

    def _categorical_table(self, feature: int, at: Integers, words: Words, trees: Integers) -> "_Table":
        right = ~self.goes_left[self.split[at]]  # (M, V)
        rows = np.full((right.shape[1] + 1, self.n_trees), _ALL)
        node, category = np.nonzero(right)
        np.bitwise_and.at(rows, (category, trees[node]), words[node])
        rows[-1] = self._missing(at, words, trees)
        return _Table(feature, rows, None)

    def _missing(self, at: Integers, words: Words, trees: Integers) -> Words:
        row = np.full(self.n_trees, _ALL)
        right = ~self.missing_left[at]
        np.bitwise_and.at(row, trees[right], words[right])
        return row

    def state(self) -> dict[str, Tensor]:
        """Returns all arrays as tensors."""
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _ARRAYS}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "Forest":
        """Rebuilds a forest from what `state` returned; raises a ValueError if it is not one of trees."""
        arrays = {}
        for name, dtype in _ARRAYS.items():
            arrays[name] = state[name].numpy()
            if arrays[name].dtype != dtype:
                raise ValueError(f"{name!r} of the trees has the type {arrays[name].dtype}.")
        forest = cls(**arrays)
        forest._check()
        return forest

    def _check(self) -> None:
        """Raises a ValueError unless the arrays are those of trees in preorder."""
        n_nodes, starts = len(self.feature), self.starts
        same = all(getattr(self, name).shape == (n_nodes,) for name in list(_ARRAYS)[:6])
        fits = same and starts.ndim == 1 and len(starts) and starts[0] == 0 and starts[-1] == n_nodes
        if not fits or (np.diff(starts) < 1).any() or self.goes_left.ndim != 2:
            raise ValueError("The arrays of the trees do not fit together.")
        tree = np.repeat(np.arange(self.n_trees), np.diff(starts))
        is_leaf = self.feature < 0
        position, size = np.arange(n_nodes) - starts[tree], np.diff(starts)[tree]
        if ((self.right <= position + 1) | (self.right >= size))[~is_leaf].any():
            raise ValueError("A tree is not in preorder.")
        # In preorder a subtree ends where it has one leaf more than other nodes.
        depth = np.concatenate([[0], np.cumsum(np.where(is_leaf, -1, 1))])
        at = np.flatnonzero(~is_leaf)
        whole = depth[starts[1:]] - depth[starts[:-1]] == -1
        if not whole.all() or (depth[starts[tree[at]] + self.right[at]] != depth[at]).any():
            raise ValueError("A tree is not in preorder.")
        if np.bincount(tree[is_leaf], minlength=1).max(initial=0) > MAX_LEAVES:
            raise ValueError(f"A tree has more than {MAX_LEAVES} leaves.")
        if self.split.max(initial=-1) >= len(self.goes_left):
            raise ValueError("A categorical node has no categories.")


_ARRAYS = {
    "feature": np.int64,
    "threshold": np.float64,
    "right": np.int64,
    "value": np.float64,
    "missing_left": np.bool_,
    "split": np.int64,
    "goes_left": np.bool_,
    "starts": np.int64,
}


@dataclass(frozen=True)
class _Table:
    """The leaves that remain possible, by the rank of the value of a feature; the last row is for NaN.

    Shapes
    ------
    rows : (R, T)
    thresholds : (R - 2), None if the feature is a category, which is its own rank
    """

    feature: int
    rows: Words
    thresholds: Floats | None

    def kept(self, values: Floats) -> Words:
        missing, last = np.isnan(values), len(self.rows) - 1
        if self.thresholds is None:
            known = ~missing & (values >= 0) & (values < last)
            rank = np.where(known, values, last).astype(np.int64)
        else:
            rank = np.where(missing, last, np.searchsorted(self.thresholds, values))
        found: Words = self.rows[rank]
        return found
