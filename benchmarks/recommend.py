"""The cost of an epoch of AutoRec at the sizes of MovieLens, beside dense loops with a mask.

    python benchmarks/recommend.py [--threads 1] [--size ml-1m] [--batch 128]
    python benchmarks/recommend.py --size ml-10m --no-dense --threads 2

Ratings are synthetic, with a popularity of items and an activity of users that fall as in such data. All
loops make the same steps: the same batches of rows, the same network, the same penalty and Adam. The dense
loop is the one usually written, with ``torch.optim.Adam`` as it is by default; "dense, fused" has its fused
implementation. Times are CPU seconds of the process, which other programs on the machine disturb less; the
loops are timed in turns. The last line is the time of recommendations for one user, in a fitted model.
"""

import argparse
import resource
import time

import numpy as np
import scipy.sparse as sp
import torch

from halfseen import AutoRec
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


def dense_stepper(matrix, mean_count, **options):
    """A step of the dense loop."""
    n_rows, n_columns = matrix.shape
    x = torch.from_numpy(matrix.toarray())
    mask = (x != 0).float()
    model = DenseAutoencoder(n_columns, mean_count)
    weights, biases = [model.encoder, model.decoder], [model.hidden_bias, model.output_bias]
    groups = [{"params": weights, "weight_decay": PENALTY / n_rows}, {"params": biases}]
    adam = torch.optim.Adam(groups, lr=RATE, **options)

    def step(rows):
        adam.zero_grad()
        batch, seen = x[rows], mask[rows]
        loss = ((model(batch, seen) - batch) * seen).square().sum() / len(batch)
        loss.backward()
        adam.step()

    return step


def sparse_stepper(matrix, mean_count):
    """A step of the library."""
    rows = SparseRows.from_scipy(matrix)
    model = SparseAutoencoder(rows.n_columns, N_HIDDEN, mean_count=mean_count)
    model.reset_parameters(rows, torch.Generator().manual_seed(0))
    penalties = dict.fromkeys(("encoder", "decoder"), PENALTY / len(rows))
    optimiser = Optimiser(model, RatingError(), penalties=penalties)
    rated = RatedRows(rows, rows)
    return lambda chosen: optimiser.step(rated[chosen], (), RATE)


def epoch(step, n_rows, batch_size, generator):
    """CPU seconds of one pass."""
    began = time.process_time()
    for rows in torch.randperm(n_rows, generator=generator).split(batch_size):
        step(rows)
    return time.process_time() - began


def time_epochs(matrix, options):
    """The fewest CPU seconds of an epoch, by loop; the first epoch is not counted."""
    counts = np.diff(matrix.indptr)
    mean_count = float(counts[counts > 0].mean())
    loops = {"sparse": sparse_stepper(matrix, mean_count)}
    if not options.no_dense:
        loops["dense"] = dense_stepper(matrix, mean_count)
        loops["dense, fused"] = dense_stepper(matrix, mean_count, fused=True)
    generator = torch.Generator().manual_seed(0)
    times = {name: [] for name in loops}
    for _ in range(options.repeats + 1):
        for name, step in loops.items():
            times[name].append(epoch(step, matrix.shape[0], options.batch, generator))
    return {name: min(found[1:]) for name, found in times.items()}


def time_recommendation(matrix, n_calls=20):
    """The median wall-clock milliseconds of recommendations for one user, in a model that is not trained."""
    model = AutoRec(max_epochs=0, validation_fraction=0.0, random_state=0).fit(matrix.T.tocsr())
    times = []
    for user in range(n_calls):
        began = time.perf_counter()
        model.recommend(user, k=10)
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, default="ml-1m")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-dense", action="store_true", help="leave out the dense loops")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    matrix = make_ratings(*SIZES[options.size])
    print(f"{options.size}: {matrix.shape[0]:,} rows, {matrix.shape[1]:,} columns, {matrix.nnz:,} ratings")
    seconds = time_epochs(matrix, options)
    for name, found in seconds.items():
        print(f"{name:>12}: {found:.3f} CPU s an epoch, {found / seconds['sparse']:.1f} times sparse")
    print(f"{'recommend':>12}: {time_recommendation(matrix):.1f} ms")
    print(f"{'peak':>12}: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
