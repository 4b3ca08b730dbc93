r"""Moments of the rows of each missingness pattern: all that EM needs of a table with few patterns.

The log-likelihood of a Gaussian depends on the rows with one pattern only through their number, their sum and
their cross-products. These can be collected in one pass, block by block, and added in a fixed order; EM then
runs without the rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log, pi

import numpy as np
import torch
from torch import Tensor

from halfseen._threads import map_in_threads
from halfseen.data.incomplete import Incomplete, add_in_tree, blocks_of
from halfseen.gaussian.distribution import Gaussian, distinct_patterns, group_by_pattern, invert_many

ROWS_PER_PATTERN = 4.0
"""Rows for each pattern and feature from which moments are used. By counting operations, a step costs for a
pattern about as much as for 2 to 4 rows, times the number of features; the factor was not tuned."""
CHUNK_BYTES = 6 * 2**20  # working memory of a step for some patterns, as for buckets of rows


def moments_suffice(n_rows: int, n_patterns: int, n_features: int) -> bool:
    """Returns whether a table has so few patterns that EM runs on their moments.

    Examples
    --------
    >>> moments_suffice(1_000_000, 4096, 12), moments_suffice(20_000, 20_000, 50)
    (True, False)
    """
    return n_rows >= ROWS_PER_PATTERN * n_patterns * n_features


@dataclass(frozen=True)
class PatternMoments:
    r"""Number, sum and cross-products of the rows of each missingness pattern; both can be added.

    Rows may have weights, with which they count. Values are expected on a common scale about zero, such as
    standardised features, because cross-products are about zero.

    Shapes
    ------
    patterns : :math:`(P, D)`, boolean, all different, in a fixed order
    counts : :math:`(P)`
    sums : :math:`(P, D)`, zero where the pattern is missing
    products : :math:`(P, D, D)`, zero where either feature is missing
    n_rows : the number of rows, without weights

    Examples
    --------
    >>> batch = Incomplete(torch.ones(3, 2), torch.tensor([[True, False], [True, True], [True, False]]))
    >>> moments = PatternMoments.of(batch[:2]).add(PatternMoments.of(batch[2:]))
    >>> moments.patterns.tolist(), moments.counts.tolist()
    ([[True, False], [True, True]], [2.0, 1.0])
    """

    patterns: Tensor
    counts: Tensor
    sums: Tensor
    products: Tensor
    n_rows: int

    @classmethod
    def of(cls, block: Incomplete, weights: Tensor | None = None) -> "PatternMoments":
        """Returns the moments of the rows of one block."""
        patterns, order, n_each = group_by_pattern(block.observed)
        missing = ~block.observed.index_select(0, order)
        x = block.x.index_select(0, order).masked_fill_(missing, 0.0)  # (N, D)
        weight = None if weights is None else weights[order].to(x.dtype)
        weighted = x if weight is None else weight[:, None] * x
        n_features, sizes = block.n_features, n_each.tolist()
        starts = (n_each.cumsum(0) - n_each).numpy()
        sums = torch.from_numpy(np.add.reduceat(weighted.numpy(), starts, axis=0))
        products = x.new_empty(len(patterns), n_features, n_features)
        parts = zip(x.split(sizes), weighted.split(sizes), products, strict=True)
        for part, weighted_part, product in parts:  # many patterns, of few rows each
            torch.mm(part.T, weighted_part, out=product)
        if weight is None:
            counts = n_each.to(x.dtype)
        else:
            counts = torch.stack([part.sum() for part in weight.split(sizes)])
        return cls(patterns, counts, sums, products, len(block))

    @classmethod
    def of_table(cls, batch: Incomplete, weights: Tensor | None = None) -> "PatternMoments":
        """Returns the moments of a table: those of its blocks, added in a fixed order."""
        blocks = blocks_of(len(batch), batch.n_features)
        parts = (cls.of(batch[block], None if weights is None else weights[block]) for block in blocks)
        merged = add_in_tree(parts, cls.add)
        return cls.of(batch, weights) if merged is None else merged

    def add(self, other: "PatternMoments") -> "PatternMoments":
        """Returns the moments of the rows of both."""
        patterns, place, _ = distinct_patterns(torch.cat([self.patterns, other.patterns]))
        mine, theirs = place[: len(self.patterns)], place[len(self.patterns) :]

        def total(own: Tensor, added: Tensor) -> Tensor:
            result = own.new_zeros(len(patterns), *own.shape[1:])
            result[mine] = own
            result[theirs] += added
            return result

        return PatternMoments(
            patterns,
            total(self.counts, other.counts),
            total(self.sums, other.sums),
            total(self.products, other.products),
            self.n_rows + other.n_rows,
        )

    @property
    def n_features(self) -> int:
        """The number of features D."""
        return self.patterns.shape[1]

    @cached_property
    def total(self) -> float:
        """The number of rows, with their weights."""
        return float(self.counts.sum())

    @cached_property
    def n_observed(self) -> Tensor:
        """The number (D) of rows, with their weights, in which each feature is observed."""
        return self.counts @ self.patterns.to(self.counts.dtype)

    def pairwise(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns means (D), scatters (D, D) about them of rows that show both features, and their counts."""
        seen = self.patterns.to(self.counts.dtype)
        loc = self.sums.sum(dim=0) / self.n_observed.clamp(min=1)
        counts = seen.T @ (self.counts[:, None] * seen)
        sums = seen.T @ self.sums  # (D, D): of feature j over rows that show feature i
        along = loc[:, None] * sums
        scatter = self.products.sum(dim=0) - along - along.T + counts * torch.outer(loc, loc)
        return loc, scatter, counts

    def chunks(self) -> Iterator["PatternMoments"]:
        """Yields some patterns at a time, so that a step needs little memory."""
        size = max(1, CHUNK_BYTES // (48 * max(1, self.n_features) ** 2))
        for start in range(0, len(self.patterns), size):
            some = slice(start, start + size)
            yield PatternMoments(
                self.patterns[some], self.counts[some], self.sums[some], self.products[some], self.n_rows
            )


@dataclass(frozen=True)
class ExpectedMoments:
    """What an E-step knows of all rows: completed rows about the mean, and the log-likelihood.

    Shapes
    ------
    shift : :math:`(D)`, the sum of completed rows less the mean
    scatter : :math:`(D, D)`, the sum of their expected squares
    log_prob : the log-likelihood of all rows
    """

    shift: Tensor
    scatter: Tensor
    log_prob: float


def expected_moments(gaussian: Gaussian, moments: PatternMoments) -> ExpectedMoments:
    r"""Returns the E-step of EM from the moments of patterns.

    A centred row completed by its conditional mean is :math:`A_p (x_o - \mu_o)`, with a matrix :math:`A_p`
    for each pattern, so that sums of completed rows and of their squares follow from those of the rows.
    """

    def step(some: PatternMoments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        by_observed = 2 * some.patterns.sum(dim=1) <= some.n_features
        first = _one_side(gaussian, _chosen(some, by_observed), observed=True)
        second = _one_side(gaussian, _chosen(some, ~by_observed), observed=False)
        return (first[0] + second[0], first[1] + second[1], first[2] + second[2], first[3] + second[3])

    sums: tuple[Tensor, ...] | None = None
    for found in map_in_threads(step, list(moments.chunks())):
        sums = found if sums is None else tuple(a + b for a, b in zip(sums, found, strict=True))
    assert sums is not None  # there is at least one row
    shift, scatter, covariance, log_dets = sums
    distance = (gaussian.precision * scatter).sum()
    n_cells = moments.n_observed.sum()
    log_prob = float(-0.5 * (n_cells * log(2 * pi) + log_dets + distance))
    return ExpectedMoments(shift, scatter + covariance, log_prob)


def _chosen(moments: PatternMoments, which: Tensor) -> PatternMoments:
    return PatternMoments(
        moments.patterns[which], moments.counts[which], moments.sums[which], moments.products[which],
        moments.n_rows,
    )  # fmt: skip


def _one_side(
    gaussian: Gaussian, some: PatternMoments, *, observed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns sums of completed rows, their squares, conditional covariances and log determinants.

    The inverse is that of the covariance of the observed features, or of the precision of the missing ones.
    """
    matrix = gaussian.covariance if observed else gaussian.precision
    wanted = some.patterns if observed else ~some.patterns
    both = wanted[:, :, None] & wanted[:, None, :]
    padding = (~wanted).to(matrix.dtype)
    block = torch.where(both, matrix, 0.0)
    block.diagonal(dim1=1, dim2=2).add_(padding)
    inverse, log_det = invert_many(block)
    inverse.diagonal(dim1=1, dim2=2).sub_(padding)
    seen = some.patterns.to(matrix.dtype)
    eye = torch.eye(some.n_features, dtype=matrix.dtype)
    if observed:
        completing = torch.where(some.patterns[:, :, None], eye, gaussian.covariance @ inverse)
    else:
        completing = seen[:, :, None] * eye - (inverse @ gaussian.precision) * seen[:, None, :]
        log_det = log_det + gaussian.log_det
    completing = completing * seen[:, None, :]  # (P, D, D), from observed cells to all
    loc = seen * gaussian.loc  # (P, D)
    shift = some.sums - some.counts[:, None] * loc
    cross = some.sums[:, :, None] * loc[:, None, :]
    about_zero = some.counts[:, None, None] * loc[:, :, None] * loc[:, None, :]
    squares = some.products - cross - cross.mT + about_zero
    scatter = (completing @ squares @ completing.mT).sum(dim=0)
    summed = (some.counts[:, None, None] * inverse).sum(dim=0)
    if observed:
        summed = some.counts.sum() * gaussian.covariance - gaussian.covariance @ summed @ gaussian.covariance
    return (completing @ shift[:, :, None]).sum(dim=(0, 2)), scatter, summed, (some.counts * log_det).sum()
