r"""Rows grouped by their missingness pattern, so that each pattern is factorised once.

Conditioning a Gaussian on the observed part of a row needs one small inverse per *pattern*: of the
covariance of the observed features, or of the precision of the missing ones, whichever is smaller.
A plan lists the distinct patterns, chooses the smaller side for each, and packs patterns of similar size and
similar number of rows into buckets of one shape, so that a bucket needs only a few batched operations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MANY_PATTERNS = 2000  # from this number on, padding costs more than another bucket
BUCKET_BYTES = 6 * 2**20  # working memory of a bucket, small enough for the cache
BUCKET_WORK = 200_000  # bytes of padding that cost as much time as another bucket


@dataclass(frozen=True)
class Bucket:
    r"""Patterns of similar size: P patterns of up to R rows each, with up to Q features on the chosen side.

    Shapes
    ------
    features : :math:`(P, Q)`, positions of features; padding is the extra position D.
    rows : :math:`(P, R)`, positions of rows; padding is the extra position N.
    """

    by_observed: bool  # the side: covariance of the observed, or precision of the missing features
    features: Tensor
    rows: Tensor

    def cells(self, width: int) -> Tensor:
        """Returns where (P Q Q) the blocks of the patterns are in a flat matrix (D + 1, D + 1)."""
        return (self.features[:, :, None] * width + self.features[:, None, :]).flatten()

    def blocks(self, matrix: Tensor) -> Tensor:
        """Returns the blocks (P, Q, Q) of a matrix (D + 1, D + 1): the features of each pattern."""
        size = self.features.shape[1]
        return matrix.flatten().index_select(0, self.cells(len(matrix))).view(-1, size, size)

    def summed(self, blocks: Tensor, width: int) -> Tensor:
        """Returns the sum, as a flat matrix (D + 1, D + 1), of blocks (P, Q, Q) put where they belong."""
        return blocks.new_zeros(width**2).scatter_add_(0, self.cells(width), blocks.flatten())


def plan_buckets(observed: Tensor, *, missing_side: bool = False, by_row: bool = False) -> Iterator[Bucket]:
    """Yields the buckets of all rows that have both observed and missing features.

    Rows without missing or without observed features need no inverse and are in no bucket. With
    `missing_side`, every pattern uses the precision of its missing features, and rows without observed
    features are in a bucket too. With `by_row`, each row is a separate pattern.

    Examples
    --------
    >>> observed = torch.tensor([[True, False, True], [True, True, True], [True, False, True]])
    >>> [bucket] = plan_buckets(observed)
    >>> bucket.by_observed, bucket.features.tolist(), bucket.rows.tolist()
    (False, [[1]], [[0, 2]])
    """
    n_rows, n_features = observed.shape
    partial = (observed.any(dim=1) | missing_side) & ~observed.all(dim=1)
    candidates = partial.nonzero().squeeze(1)
    if by_row:
        patterns, of_row = observed[candidates], torch.arange(len(candidates))
        counts = torch.ones_like(of_row)
    else:
        patterns, of_row, counts = distinct_patterns(observed[candidates])
    order = candidates[torch.argsort(of_row, stable=True)]
    starts = counts.cumsum(0) - counts

    n_observed = patterns.sum(dim=1)
    by_observed = (n_observed * 2 <= n_features) & (not missing_side)
    steps = 4 if len(patterns) >= MANY_PATTERNS else 1
    sizes = _round_up(torch.where(by_observed, n_observed, n_features - n_observed), steps)
    lengths = _round_up(counts, 1)
    for chosen in _alike(torch.stack([by_observed.long(), lengths, sizes], dim=1)):
        side, length = bool(by_observed[chosen[0]]), int(counts[chosen].max())
        wanted = patterns[chosen] if side else ~patterns[chosen]
        slots = torch.arange(length)
        rows = order[(starts[chosen, None] + slots).clamp(max=len(order) - 1)]
        yield Bucket(
            by_observed=side,
            features=_positions(wanted, int(wanted.sum(dim=1).max())),
            rows=torch.where(slots < counts[chosen, None], rows, n_rows),
        )


def distinct_patterns(observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the distinct rows, which of them each row is, and how often each occurs."""
    n_rows = len(observed)
    of_row = torch.zeros(n_rows, dtype=torch.int64)
    counts = torch.tensor([n_rows])
    for number, word in enumerate(_words(observed)):  # sorting numbers is fast
        if number:
            values, of_word = torch.unique(word, return_inverse=True)
            word = of_row * len(values) + of_word  # below n_rows squared
        _, of_row, counts = torch.unique(word, return_inverse=True, return_counts=True)
    example = torch.zeros(len(counts), dtype=torch.int64).scatter_(0, of_row, torch.arange(n_rows))
    return observed[example], of_row, counts


def _words(observed: Tensor) -> Tensor:
    """Returns the rows as bits of whole numbers (W, N), 64 features in each; at least one number."""
    packed = np.packbits(observed.numpy(), axis=1)
    n_bytes = 8 * max(1, -(-packed.shape[1] // 8))
    whole = np.pad(packed, ((0, 0), (0, n_bytes - packed.shape[1]))).view(np.int64)
    return torch.from_numpy(np.ascontiguousarray(whole.T))


def _round_up(sizes: Tensor, steps: int) -> Tensor:
    """Rounds up to this many steps per octave, a power of two, so that few shapes occur."""
    octave = torch.log2(sizes.double()).ceil().long()
    step = (2**octave // (2 * steps)).clamp(min=1)
    return -(-sizes // step) * step


def _alike(keys: Tensor) -> Iterator[Tensor]:
    """Yields groups of patterns with similar (side, length, size), each within the memory of a bucket.

    Patterns with equal keys are in one group; so are those with neighbouring keys, if padding costs less time
    than another bucket.
    """
    if len(keys) == 0:
        return
    side, length, size = keys.unbind(dim=1)
    key = (side * (size.max() + 1) + size) * (length.max() + 1) + length  # one number sorts faster than three
    _, kind_of, counts = torch.unique(key, return_inverse=True, return_counts=True)
    order = torch.argsort(kind_of, stable=True)
    shapes = keys[order[counts.cumsum(0) - 1]].tolist()
    for n_patterns, rows, features in _merged(shapes, counts.tolist()):
        group, order = order[:n_patterns], order[n_patterns:]
        yield from group.split(max(1, BUCKET_BYTES // _work(rows, features)))


def _merged(shapes: list[list[int]], counts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yields patterns, rows and features of groups of neighbouring shapes (side, rows, features)."""
    last_side, total, most_rows, most_features = -1, 0, 0, 0
    for (side, rows, features), count in zip(shapes, counts, strict=True):
        longest, widest = max(rows, most_rows), max(features, most_features)
        apart = total * _work(most_rows, most_features) + count * _work(rows, features)
        if side == last_side and (total + count) * _work(longest, widest) <= apart + BUCKET_WORK:
            total, most_rows, most_features = total + count, longest, widest
        else:
            if total:
                yield total, most_rows, most_features
            last_side, total, most_rows, most_features = side, count, rows, features
    yield total, most_rows, most_features


def _work(rows: int, features: int) -> int:
    """Returns the bytes of working memory of one pattern in a bucket of this shape."""
    return 8 * features * (4 * features + 3 * rows)


def _positions(wanted: Tensor, size: int) -> Tensor:
    """Lists the True positions of each row, padded by the number of columns; in memory of its own."""
    n_features = wanted.shape[1]
    index = torch.where(wanted, torch.arange(n_features), n_features)
    return index.sort(dim=1).values[:, :size].contiguous()
