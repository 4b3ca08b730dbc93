"""The cost of an epoch of AutoRec at the size of MovieLens 1M, beside the dense loop with a mask.

    python benchmarks/recommend.py [--threads 1] [--size ml-1m]

Ratings are synthetic, with a popularity of items and an activity of users that fall as in such data. Both
loops make the same steps: the same batches of rows, the same network and the same fused AdamW. Times are
CPU seconds of the process, which other programs on the machine disturb less; both loops are timed in turns.
"""

import argparse
import resource
import time

import numpy as np
import scipy.sparse as sp
import torch

from halfseen.data.sparse import SparseRows
from halfseen.models.autorec import SparseAutoencoder
from halfseen.objectives.ratings import RatedRows, RatingError
from halfseen.training.step import Optimiser

SIZES = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-10m": (69_878, 10_677, 10_000_054),
}
N_HIDDEN, PENALTY, RATE = 500, 60.0, 1e-3


def make_ratings(n_users, n_items, n_ratings, seed=0):
    """Rows of items; the chance of a pair falls with the ranks of user and item."""
    rng = np.random.default_rng(seed)
    shares = [1 / (np.arange(n) + n / 10) for n in (n_users, n_items)]
    users, items = (
        rng.choice(len(share), size=int(1.6 * n_ratings), p=share / share.sum()).astype(np.int64)
        for share in shares
    )
    pairs = rng.permutation(np.unique(items * n_users + users))[:n_ratings]
    values = rng.integers(1, 6, size=len(pairs)).astype(np.float32)
    return sp.csr_array((values, (pairs // n_users, pairs % n_users)), shape=(n_items, n_users))


class DenseAutoencoder(torch.nn.Module):
    """The network on dense rows, as it is usually written."""

    def __init__(self, n_columns, mean_count):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.encoder = torch.nn.Parameter(0.03 * torch.randn(n_columns, N_HIDDEN, generator=generator))
        self.decoder = torch.nn.Parameter(0.03 * torch.randn(n_columns, N_HIDDEN, generator=generator))
        self.hidden_bias = torch.nn.Parameter(torch.zeros(N_HIDDEN))
        self.output_bias = torch.nn.Parameter(torch.full((n_columns,), 3.5))
        self.mean_count = mean_count

    def forward(self, x, mask):
        scaled = x * (self.mean_count / mask.sum(dim=1, keepdim=True).clamp(min=1))
        hidden = torch.sigmoid(scaled @ self.encoder + self.hidden_bias)
        return hidden @ self.decoder.T + self.output_bias


class DenseRows:
    """Dense ratings with a mask."""

    def __init__(self, x, mask):
        self.x, self.mask = x, mask

    def __len__(self):
        return len(self.x)

    def __getitem__(self, rows):
        return DenseRows(self.x[rows], self.mask[rows])


class DenseError:
    """The squared error of observed entries with the penalty."""

    def __init__(self, n_rows):
        self.n_rows = n_rows

    def __call__(self, module, batch, noise):
        error = ((module(batch.x, batch.mask) - batch.x) * batch.mask).square().sum(dim=1)
        squares = module.encoder.square().sum() + module.decoder.square().sum()
        return error + 0.5 * PENALTY / self.n_rows * squares


def epoch(optimiser, rows, batch_size, generator):
    """CPU seconds of one pass."""
    began = time.process_time()
    rows = rows[torch.randperm(len(rows), generator=generator)]
    for start in range(0, len(rows), batch_size):
        optimiser.step(rows[start : start + batch_size], (), RATE)
    return time.process_time() - began


def make_loops(matrix, with_dense):
    """An optimiser and its rows, for each of the loops."""
    sparse = SparseRows.from_scipy(matrix)
    n_rows, n_columns = matrix.shape
    mean_count = float(sparse.counts[sparse.counts > 0].double().mean())
    model = SparseAutoencoder(n_columns, N_HIDDEN, mean_count=mean_count)
    model.reset_parameters(sparse, torch.Generator().manual_seed(0))
    loops = {"sparse": (Optimiser(model, RatingError(PENALTY, n_rows)), RatedRows(sparse, sparse))}
    if with_dense:
        x = torch.from_numpy(matrix.toarray())
        mask = torch.zeros_like(x)
        mask[sparse.rows, sparse.columns.long()] = 1.0
        dense = DenseAutoencoder(n_columns, mean_count)
        loops["dense"] = (Optimiser(dense, DenseError(n_rows)), DenseRows(x, mask))
    return loops


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, default="ml-1m")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-dense", action="store_true", help="leave out the dense loop")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    matrix = make_ratings(*SIZES[options.size])
    loops = make_loops(matrix, not options.no_dense)
    generator = torch.Generator().manual_seed(0)
    times = {name: [] for name in loops}
    for _ in range(options.repeats + 1):
        for name, (optimiser, rows) in loops.items():
            times[name].append(epoch(optimiser, rows, options.batch, generator))
    best = {name: min(found[1:]) for name, found in times.items()}
    print(f"{options.size}: {matrix.shape[0]:,} rows, {matrix.shape[1]:,} columns, {matrix.nnz:,} ratings")
    for name, seconds in best.items():
        print(f"{name:>8}: {seconds:.3f} CPU s an epoch")
    if "dense" in best:
        print(f"   ratio: {best['dense'] / best['sparse']:.1f}")
    print(f"    peak: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
