"""The cost of an epoch of AutoRec at the sizes of MovieLens 1M and 10M, beside dense loops with a mask.

    python benchmarks/recommend.py
    python benchmarks/recommend.py --size ml-1m [--threads 1] [--batch auto|128|all] [--no-dense]

Ratings are synthetic, with a popularity of items and an activity of users that fall as in such data. All
loops make the same steps, from the same start: the same batches of rows, the same network, the same penalty
and Adam; so their errors are the same, and are printed. Only "subsets", the default of AutoRec, differs:
in each step it reads a random part of the ratings of a row. The dense loop is the one usually written: a
``DataLoader`` of rows with zeros and their masks, the penalty as a term of the loss, and
``torch.optim.Adam``. The other dense loops are faster: "dense, indexed" takes batches out of the two tensors
itself, "dense, decay" moreover hands the penalty to Adam as its weight decay, and "dense, fused" moreover
uses the fused implementation of Adam. Seconds are CPU
seconds of the process, which other programs on the machine disturb less, and the loops are timed in turns;
wall-clock seconds are beside them. The last line is the time of recommendations for one user, in a fitted
model. Without ``--size`` each setting is measured in a process of its own, with one thread: MovieLens 1M with
the batches that are the default of AutoRec (464 rows), with batches of 128 rows, and with all rows in each
step, as in the paper; and MovieLens 10M without dense loops. results/recommend.json and the table in
docs/guide/sparsity.md are written. Run with `make bench`.

With batches of 128 rows much of the time of AutoRec is that of Adam, which updates all weights after each
batch, whatever the batch has observed; with all rows in a step hardly any is.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from copy import deepcopy
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from harness import ROOT, find_commit, store_with_table
from torch.utils.data import DataLoader, TensorDataset

from halfseen.ratings import AutoRec
from halfseen.ratings.autorec import SparseAutoencoder
from halfseen.ratings.network import find_batch_size
from halfseen.ratings.recommender import PartialRatingError, RatedRows, RatingError
from halfseen.ratings.table import SparseRows
from halfseen.training.step import Optimiser

SIZES = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-10m": (69_878, 10_677, 10_000_054),
}
N_HIDDEN, PENALTY, RATE = 500, 60.0, 1e-3
PAGE = ROOT / "docs" / "guide" / "sparsity.md"


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
    """The network on dense rows, as it is usually written, with the weights of a sparse one."""

    def __init__(self, start, mean_count):
        super().__init__()
        for name, weight in start.named_parameters():
            self.register_parameter(name, torch.nn.Parameter(weight.detach().clone()))
        self.mean_count = mean_count

    def forward(self, x, mask):
        scaled = x * (self.mean_count / mask.sum(dim=1, keepdim=True).clamp(min=1))
        hidden = torch.sigmoid(scaled @ self.encoder + self.hidden_bias)
        return hidden @ self.decoder.T + self.output_bias


class DenseLoop:
    """The steps of a dense loop; the penalty is a term of the loss, or the weight decay of Adam."""

    def __init__(self, matrix, start, mean_count, *, decay=False, fused=None):
        self.x = torch.from_numpy(matrix.toarray())
        self.mask = (self.x != 0).float()
        self.model = DenseAutoencoder(start, mean_count)
        self.penalty = 0.0 if decay else PENALTY / len(self.x)
        self.weights = [self.model.encoder, self.model.decoder]
        biases = [self.model.hidden_bias, self.model.output_bias]
        groups = [{"params": self.weights, "weight_decay": decay * PENALTY / len(self.x)}, {"params": biases}]
        self.adam = torch.optim.Adam(groups, lr=RATE, fused=fused)

    def epoch(self, batches):
        for rows in batches:
            self.step(self.x[rows], self.mask[rows])

    def step(self, batch, seen):
        self.adam.zero_grad()
        loss = ((self.model(batch, seen) - batch) * seen).square().sum() / len(batch)
        if self.penalty:
            loss = loss + self.penalty / 2 * sum(weight.square().sum() for weight in self.weights)
        loss.backward()
        self.adam.step()

    @torch.no_grad()
    def error(self):
        total = 0.0
        for rows in torch.arange(len(self.x)).split(512):
            batch, seen = self.x[rows], self.mask[rows]
            total += float(((self.model(batch, seen) - batch) * seen).square().sum())
        return (total / float(self.mask.sum())) ** 0.5


class DenseLoaderLoop(DenseLoop):
    """The steps of a dense loop whose batches come from a DataLoader."""

    def epoch(self, batches):
        rows = TensorDataset(self.x, self.mask)
        for batch, seen in DataLoader(rows, batch_sampler=[part.tolist() for part in batches]):
            self.step(batch, seen)


class SparseLoop:
    """The steps of the library, which by default reads random parts of the ratings of rows."""

    def __init__(self, rows, start, objective):
        self.model = deepcopy(start)
        self.rated = RatedRows(rows, rows)
        self.objective, self.generator = objective, torch.Generator().manual_seed(0)
        penalties = dict.fromkeys(("encoder", "decoder"), PENALTY / len(rows))
        self.optimiser = Optimiser(self.model, objective, penalties=penalties)

    def epoch(self, batches):
        shuffled = self.rated[torch.cat(batches)]  # and then sliced, as in the library's training
        ends = np.cumsum([len(rows) for rows in batches]).tolist()
        for first, last in pairwise([0, *ends]):
            batch = shuffled[first:last]
            self.optimiser.step(batch, self.objective.draw_noise(batch, self.generator), RATE)

    @torch.no_grad()
    def error(self):
        parts = (self.rated[rows] for rows in torch.arange(len(self.rated)).split(512))
        total = sum(float(RatingError()(self.model, part, ()).sum()) for part in parts)
        return (total / len(self.rated.inputs.values)) ** 0.5


def make_loops(matrix, dense):
    """All loops, from one start."""
    counts = np.diff(matrix.indptr)
    mean_count = float(counts[counts > 0].mean())
    rows = SparseRows.from_scipy(matrix)
    start = SparseAutoencoder(rows.n_columns, N_HIDDEN, mean_count=mean_count)
    start.reset_parameters(rows, torch.Generator().manual_seed(0))
    loops = {}
    if dense:
        loops["dense"] = DenseLoaderLoop(matrix, start, mean_count)
        loops["dense, indexed"] = DenseLoop(matrix, start, mean_count)
        loops["dense, decay"] = DenseLoop(matrix, start, mean_count, decay=True)
        loops["dense, fused"] = DenseLoop(matrix, start, mean_count, decay=True, fused=True)
    sparse = {
        "sparse": SparseLoop(rows, start, RatingError()),
        "sparse, subsets": SparseLoop(rows, start, PartialRatingError()),
    }
    return sparse | loops


def epoch(loop, batches):
    """CPU and wall-clock seconds of one pass."""
    began = time.process_time(), time.perf_counter()
    loop.epoch(batches)
    return time.process_time() - began[0], time.perf_counter() - began[1]


def find_batch(matrix, options):
    """The number of rows in a step."""
    n_rows = matrix.shape[0]
    named = {"all": n_rows, "auto": find_batch_size(n_rows, AutoRec._largest_batch)}
    return named[options.batch] if options.batch in named else int(options.batch)


def time_epochs(matrix, options):
    """The fewest seconds of an epoch and the final error, by loop; the first epoch is not counted."""
    loops = make_loops(matrix, dense=not options.no_dense)
    generator = torch.Generator().manual_seed(0)
    times = {name: [] for name in loops}
    for _ in range(options.repeats + 1):
        batches = torch.randperm(matrix.shape[0], generator=generator).split(find_batch(matrix, options))
        for name, loop in loops.items():
            times[name].append(epoch(loop, batches))
    found = {}
    for name, loop in loops.items():
        cpu, wall = (min(values) for values in zip(*times[name][1:], strict=True))
        found[name] = {"cpu_seconds": cpu, "seconds": wall, "rmse": loop.error()}
    return found


def time_recommendation(matrix, n_calls=20):
    """The median wall-clock milliseconds of recommendations for one user, in a model that is not trained."""
    model = AutoRec(max_epochs=0, validation_fraction=0.0, random_state=0).fit(matrix.T.tocsr())
    times = []
    for user in range(n_calls):
        began = time.perf_counter()
        model.recommend(user, k=10)
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times))


def measure(options):
    """What one size costs."""
    torch.set_num_threads(options.threads)
    matrix = make_ratings(*SIZES[options.size])
    loops = time_epochs(matrix, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "size": options.size,
        "rows": matrix.shape[0],
        "columns": matrix.shape[1],
        "ratings": matrix.nnz,
        "threads": options.threads,
        "batch": find_batch(matrix, options),
        "loops": loops,
        "peak_gib": peak,
        "recommend_ms": time_recommendation(matrix),
    }


def show(found):
    """Prints the costs of a size."""
    print(
        "{size}: {rows:,} rows, {columns:,} columns, {ratings:,} ratings, batches of {batch:,}".format(
            **found
        )
    )
    least = found["loops"]["sparse"]["cpu_seconds"]
    for name, loop in found["loops"].items():
        times = f"{loop['cpu_seconds']:.3f} CPU s, {loop['seconds']:.3f} s an epoch"
        print(f"{name:>15}: {times}, {loop['cpu_seconds'] / least:.1f} times sparse, RMSE {loop['rmse']:.4f}")
    print(f"{'recommend':>15}: {found['recommend_ms']:.1f} ms")
    print(f"{'peak':>15}: {found['peak_gib']:.2f} GiB, all loops together")


def make_table(results):
    """A line for each loop of each size, and one for recommendations."""
    lines = [
        "| | processor time of an epoch (s) | times that of AutoRec | training RMSE | peak memory (GiB) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for found in results["sizes"]:
        least = found["loops"]["sparse"]["cpu_seconds"]
        for name, loop in found["loops"].items():
            cpu = loop["cpu_seconds"]
            peak = "" if "dense" in found["loops"] else f"{found['peak_gib']:.2f}"
            batch = "all rows" if found["batch"] == found["rows"] else f"batches of {found['batch']}"
            label = f"{found['size']}, {batch}, {name.replace('sparse', 'AutoRec')}"
            lines.append(f"| {label} | {cpu:.2f} | {cpu / least:.1f} | {loop['rmse']:.4f} | {peak} |")
    each = {found["size"]: found["recommend_ms"] for found in results["sizes"]}
    times = " and ".join(f"{ms:.0f} ms at the size of {size}" for size, ms in each.items())
    said = (
        f"Recommending items to one user takes {times}. All times are those of one thread. The results were "
        f"produced by `python benchmarks/recommend.py` at commit {results['commit']}."
    )
    return "\n".join([*lines, "", said])


def measure_all():
    """Measures each setting in a process of its own and stores the results."""
    settings = [["ml-1m", "--batch", batch] for batch in ("auto", "128", "all")]
    settings.append(["ml-10m", "--no-dense", "--repeats", "1"])
    results = {"commit": find_commit(), "sizes": []}
    for setting in settings:
        command = [sys.executable, __file__, "--json", "--size", *setting]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        results["sizes"].append(json.loads(found))
        show(results["sizes"][-1])
        store_with_table("recommend", results, PAGE, make_table(results))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, help="one size only; nothing is written")
    parser.add_argument("--batch", default="auto", help="rows in a step, all, or auto (that of AutoRec)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-dense", action="store_true", help="leave out the dense loops")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    if options.size is None:
        measure_all()
        return
    found = measure(options)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
