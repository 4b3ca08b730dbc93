r"""The multivariate Gaussian with missing features: densities, conditionals and draws in closed form.

Conditioning a Gaussian on the observed part of a row needs one small inverse per *pattern* of missing values:
of the covariance of the observed features, or of the precision of the missing ones, whichever is smaller.
A plan lists the distinct patterns, chooses the smaller side for each, and packs patterns of similar size and
similar number of rows into buckets of one shape, so that a bucket needs only a few batched operations.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log, pi

import numpy as np
import torch
from torch import Tensor

from halfseen._threads import map_in_threads
from halfseen.data.incomplete import Incomplete

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
        patterns, order, counts = observed[candidates], candidates, torch.ones_like(candidates)
    else:
        patterns, order, counts = group_by_pattern(observed[candidates])
        order = candidates[order]
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


def group_by_pattern(observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the distinct rows, the positions of all rows in their order, and how often each occurs."""
    n_rows, n_features = observed.shape
    if not 0 < n_features <= 16 or not n_rows:
        patterns, of_row, counts = distinct_patterns(observed)
        return patterns, torch.argsort(of_row, stable=True), counts
    words = _words(observed)[0].numpy().astype(np.uint16)  # which numpy sorts by their digits
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = torch.from_numpy(np.diff(np.r_[starts, n_rows]))
    return observed[torch.from_numpy(order[starts])], torch.from_numpy(order), counts


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


PARALLEL_CELLS = 300_000  # smaller tables are processed faster by a single thread
MANY_MATRICES, SMALL_MATRIX = 64, 12  # minimum number and maximum size of matrices that are inverted together


@dataclass(frozen=True)
class Statistics:
    r"""The result of an E-step: completed values, summed conditional covariance and log densities.

    Shapes
    ------
    completed : :math:`(N, D)`, the conditional mean with the observed cells in place.
    covariance : :math:`(D, D)`, the (weighted) sum over rows of the conditional covariance.
    log_prob : :math:`(N)`, the log density of the observed cells.
    """

    completed: Tensor
    covariance: Tensor
    log_prob: Tensor


@dataclass(frozen=True)
class Gaussian:
    r"""A Gaussian over D features, any subset of which may be missing.

    .. math::
        x_m \mid x_o \sim \mathcal{N}\left(\mu_m + \Sigma_{mo} \Sigma_{oo}^{-1} (x_o - \mu_o),\;
        \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}\right)

    With :math:`\Lambda = \Sigma^{-1}` the same conditional has mean :math:`\mu_m - \Lambda_{mm}^{-1}
    \Lambda_{mo} (x_o - \mu_o)` and covariance :math:`\Lambda_{mm}^{-1}`. For each pattern, the form with the
    smaller inverse is used, and rows with the same pattern share it. Valid under MAR.

    Shapes
    ------
    loc : :math:`(D)`
    covariance : :math:`(D, D)`, positive definite.
    batch : :math:`(N, D)`; entries of `x` where `observed` is False are never read.

    References
    ----------
    Little & Rubin (2019), Statistical Analysis with Missing Data, chapter 11. Doucet (2010), A note on
    efficient conditional simulation of Gaussian distributions (Matheron's rule).

    Examples
    --------
    >>> gaussian = Gaussian(torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]]))
    >>> batch = Incomplete(torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]]))
    >>> gaussian.conditional_mean(batch)
    tensor([[1.0000, 0.8000]])
    """

    loc: Tensor
    covariance: Tensor

    @classmethod
    def checked(cls, loc: Tensor, covariance: Tensor) -> "Gaussian":
        """Returns the distribution; raises a ValueError unless the covariance is positive definite."""
        if loc.ndim != 1 or covariance.shape != (*loc.shape, *loc.shape) or covariance.dtype != loc.dtype:
            raise ValueError(
                f"A mean of shape {tuple(loc.shape)} and a covariance of shape {tuple(covariance.shape)} do "
                "not fit together."
            )
        found = cls(loc, covariance)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed) or not bool(factor.isfinite().all()) or not torch.allclose(covariance, covariance.T):
            raise ValueError("A covariance is not positive definite.")
        return found

    @property
    def variance(self) -> Tensor:
        """The variances (D)."""
        return self.covariance.diagonal()

    def covariance_of(self, features: Tensor) -> Tensor:
        """Returns the covariances (F, D) of some features with all."""
        return self.covariance[features]

    def without(self, noise: Tensor) -> "Gaussian":
        """Returns the distribution with independent noise of variances (D) subtracted."""
        return Gaussian(self.loc, self.covariance - noise.diag())

    def unconditional(self, normals: Tensor) -> Tensor:
        """Returns draws (*, N, D) about zero, a linear map of as many normals."""
        return normals @ self.cholesky.T

    @cached_property
    def cholesky(self) -> Tensor:
        """The lower factor of the covariance."""
        factor: Tensor = torch.linalg.cholesky(self.covariance)
        return factor

    @cached_property
    def precision(self) -> Tensor:
        """The inverse of the covariance."""
        return torch.cholesky_inverse(self.cholesky)

    @cached_property
    def log_det(self) -> Tensor:
        """The log determinant of the covariance."""
        return 2 * self.cholesky.diagonal().log().sum()

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells; 0 for a row without observed cells."""
        return self.statistics(batch, plan_buckets(batch.observed)).log_prob

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns (N, D): the mean of each missing cell given the observed ones, which stay exact."""
        return self.complete(batch.x, batch.observed)

    def complete(
        self,
        x: Tensor,
        observed: Tensor,
        normals: Tensor | None = None,
        buckets: Iterable[Bucket] | None = None,
    ) -> Tensor:
        r"""Returns rows (*, N, D) with the missing cells drawn given the observed ones, which stay exact.

        Matheron's rule: with :math:`y \sim \mathcal{N}(0, \Sigma)` unconditional,
        :math:`y_m + \mathrm{E}[\cdot \mid x_o - y_o]` is a draw from the conditional. Without `normals`
        y is zero, and the missing cells take their conditional mean.

        Shapes
        ------
        x, normals : :math:`(*, N, D)`; leading axes are draws that share the pattern of their row.
        observed : :math:`(N, D)`
        """
        return self._about(None if normals is None else self.unconditional(normals), x, observed, buckets)

    def _about(
        self, joint: Tensor | None, x: Tensor, observed: Tensor, buckets: Iterable[Bucket] | None
    ) -> Tensor:
        """Returns completed rows, which are their conditional means if there are no unconditional draws."""
        buckets = plan_buckets(observed) if buckets is None else buckets
        residual = x - self.loc
        if joint is None:
            completed = self._solve(residual.masked_fill_(~observed, 0.0), buckets)
        else:
            completed = self._solve((residual - joint).masked_fill_(~observed, 0.0), buckets).add_(joint)
        return torch.where(observed, x, completed.add_(self.loc))

    def conditional_variance(self, batch: Incomplete) -> Tensor:
        """Returns (N, D): the variance of each missing cell given the observed ones, 0 where observed."""
        return self.moments(batch)[1]

    def moments(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns the conditional mean and variance (N, D) of each cell."""
        variance = self.covariance.diagonal().expand(len(batch) + 1, -1)
        variance = torch.nn.functional.pad(variance, (0, 1))  # (N + 1, D + 1)
        wide = padded(self.covariance)

        def reduce(bucket: Bucket, inverse: Tensor, log_det: Tensor) -> None:
            if bucket.by_observed:
                cross = wide[bucket.features]  # (P, Q, D + 1)
                explained = ((inverse @ cross) * cross).sum(dim=1)  # (P, D + 1)
                variance[bucket.rows] = (wide.diagonal() - explained)[:, None, :]
            else:
                spread = inverse.diagonal(dim1=1, dim2=2)[:, None, :]  # (P, 1, Q)
                index = bucket.rows[:, :, None], bucket.features[:, None, :]
                variance[index] = spread.expand(-1, bucket.rows.shape[1], -1)

        completed = self._solve(self._centred(batch), plan_buckets(batch.observed), reduce)
        mean = torch.where(batch.observed, batch.x, completed.add_(self.loc))
        return mean, variance[:-1, :-1].clamp_(min=0.0).masked_fill_(batch.observed, 0.0)

    def statistics(
        self, batch: Incomplete, buckets: Iterable[Bucket], weights: Tensor | None = None
    ) -> Statistics:
        r"""Returns the E-step over all rows, which count by `weights` (N) if there are any.

        .. math::
            \log p(x_o) = -\tfrac12 \left(|o| \log 2\pi + \log |\Sigma_{oo}| + \tilde{x}^\top \Lambda
            \tilde{x}\right)

        where :math:`\tilde{x}` is the centred row completed by its conditional mean, and
        :math:`|\Sigma_{oo}| = |\Sigma| |\Lambda_{mm}|`.
        """
        n_rows, n_features = batch.x.shape
        nothing_seen = ~batch.observed.any(dim=1)
        log_dets = self.log_det.expand(n_rows).masked_fill(nothing_seen, 0.0)
        log_dets = torch.nn.functional.pad(log_dets, (0, 1))  # (N + 1)
        sums = {side: torch.zeros((n_features + 1) ** 2, dtype=batch.x.dtype) for side in (True, False)}
        weight = torch.ones(n_rows, dtype=batch.x.dtype) if weights is None else weights
        n_by_observed = float(weight[nothing_seen].sum())
        weight = torch.nn.functional.pad(weight, (0, 1))  # (N + 1), padding weighs nothing

        def measure(bucket: Bucket, inverse: Tensor, log_det: Tensor) -> Tensor:
            base = 0.0 if bucket.by_observed else self.log_det
            log_dets[bucket.rows] = (base + log_det)[:, None].expand(bucket.rows.shape)
            count = weight[bucket.rows].sum(dim=1)  # (P)
            return bucket.summed(inverse * count[:, None, None], n_features + 1)

        def add(bucket: Bucket, measured: Tensor) -> None:
            nonlocal n_by_observed
            sums[bucket.by_observed].add_(measured)
            n_by_observed += bucket.by_observed * float(weight[bucket.rows].sum())

        completed = self._solve(self._centred(batch), buckets, measure, add)
        seen, missing = (s.view(n_features + 1, -1)[:-1, :-1] for s in (sums[True], sums[False]))
        covariance = missing + n_by_observed * self.covariance - self.covariance @ seen @ self.covariance
        distance = without_overflow((completed @ self.precision).mul_(completed).sum(dim=1))
        n_observed = batch.observed.sum(dim=1).to(batch.x.dtype)
        log_prob = -0.5 * (n_observed * log(2 * pi) + log_dets[:-1] + distance)
        completed = torch.where(batch.observed, batch.x, completed + self.loc)
        return Statistics(completed, covariance, log_prob)

    def _centred(self, batch: Incomplete) -> Tensor:
        """Returns the distance (N, D) of the observed cells from the mean, 0 where cells are missing."""
        return (batch.x - self.loc).masked_fill_(~batch.observed, 0.0)

    def _solve(
        self,
        residual: Tensor,
        buckets: Iterable[Bucket],
        measure: Callable[[Bucket, Tensor, Tensor], Tensor | None] | None = None,
        add: Callable[[Bucket, Tensor], None] | None = None,
    ) -> Tensor:
        """Completes centred rows (*, N, D), zero where missing, by their conditional means, in place.

        `measure` is called with each bucket, its inverses (P, Q, Q) and log determinants (P), in any thread;
        `add` receives its results in the order of the buckets, so that sums do not depend on threads.
        """
        *leading, n_rows, n_features = residual.shape
        source = {True: residual, False: residual @ self.precision}
        matrices = {True: padded(self.covariance), False: padded(self.precision)}
        solved = residual.new_zeros(*leading, n_rows + 1, n_features + 1)
        by_observed = torch.zeros(n_rows + 1, dtype=torch.bool)

        def solve(bucket: Bucket) -> tuple[Bucket, Tensor | None]:
            inverse, log_det = _invert(bucket, matrices[bucket.by_observed])
            rows, features = bucket.rows[:, :, None], bucket.features[:, None, :]
            cells = rows.clamp(max=n_rows - 1), features.clamp(max=n_features - 1)  # padding meets zeros
            solved[..., rows, features] = source[bucket.by_observed][..., cells[0], cells[1]] @ inverse
            by_observed[bucket.rows] = bucket.by_observed
            return bucket, None if measure is None else measure(bucket, inverse, log_det)

        run = map_in_threads if residual.numel() >= PARALLEL_CELLS else map
        for bucket, measured in run(solve, buckets):
            if add is not None and measured is not None:
                add(bucket, measured)
        solved = solved[..., :-1, :-1]
        completed = residual.clone() if residual.requires_grad else residual  # gradients need what was solved
        completed -= solved
        rows = by_observed[:-1].nonzero().squeeze(1)
        if len(rows):
            completed[..., rows, :] = solved[..., rows, :] @ self.covariance
        return completed


def _invert(bucket: Bucket, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the inverses (P, Q, Q), zero in the padding, and log determinants (P) of blocks of a matrix."""
    padding = (bucket.features == len(matrix) - 1).to(matrix.dtype)
    block = bucket.blocks(matrix)
    block.diagonal(dim1=1, dim2=2).add_(padding)
    inverse, log_det = invert_many(block)
    inverse.diagonal(dim1=1, dim2=2).sub_(padding)  # which stands alone: its inverse is itself
    return inverse, log_det


def invert_many(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the inverses (P, Q, Q) and log determinants (P) of positive definite matrices.

    Many small matrices are inverted together by Gauss-Jordan elimination, which needs no pivoting because the
    matrices are positive definite. Others are inverted by their Cholesky factors.

    Raises
    ------
    torch.linalg.LinAlgError
        If a matrix is not positive definite.
    """
    n_matrices, size = matrices.shape[:2]
    if n_matrices < MANY_MATRICES or size > SMALL_MATRIX:
        factor = torch.linalg.cholesky(matrices)
        identity = torch.eye(size, dtype=matrices.dtype).expand_as(matrices)
        root = torch.linalg.solve_triangular(factor, identity, upper=False)
        return root.mT @ root, 2 * factor.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    rest = matrices.permute(1, 2, 0).clone(memory_format=torch.contiguous_format)  # (Q, Q, P)
    pivots = []
    for i in range(size):
        row = rest[i].clone()  # (Q, P)
        pivots.append(row[i].clone())
        row[i] = -1.0
        rest[i], rest[:, i] = 0.0, 0.0
        rest.addcmul_(row[:, None], (row / pivots[i])[None], value=-1.0)
    determinants = torch.stack(pivots)
    if not bool((determinants > 0).all()):
        raise torch.linalg.LinAlgError("A matrix is not positive definite.")  # type: ignore[attr-defined]
    return -rest.permute(2, 0, 1), determinants.log().sum(dim=0)


def padded(matrix: Tensor) -> Tensor:
    """Adds a row and a column of zeros, the target of padding indices."""
    return torch.nn.functional.pad(matrix, (0, 1, 0, 1))


def without_overflow(distance: Tensor) -> Tensor:
    """Returns squared distances, infinite where they are the difference of numbers that overflow."""
    return distance.nan_to_num(nan=torch.inf, posinf=torch.inf)
