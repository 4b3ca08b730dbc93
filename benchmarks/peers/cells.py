"""AutoImpute beside scVI: recovery of counts of single cells that were set to zero.

    pip install -c constraints.txt scvi-tools
    python benchmarks/peers/cells.py

The protocol is the published one of scVI: a tenth of the counts above zero, chosen at random, becomes zero,
and the score is the median distance of the imputed from the true counts there. Because half of these counts
are small, the root mean squared error of log2 counts per cell of median size, which is the score of
AutoImpute, stands beside it. All methods see the same counts of the 1,000 most variable genes, which are
those of the complete data. scVI has its default settings; its imputed counts are its mean expression times
the size of the cell that it infers. AutoImpute has its default settings; its imputed log expression is
transformed back and multiplied by the size of the cell. Gene means and smoothing are those of
`python -m papers sparsity-cells`. scVI was made for thousands of cells, which are not at hand here: the
data have 30 and 200. results/cells.json and the table in docs/guide/sparsity.md are written.
"""

import logging
import sys
import warnings
from pathlib import Path
from statistics import fmean

import anndata
import numpy as np
import scvi
import torch

from halfseen.datasets import load
from halfseen.ratings import AutoImpute
from halfseen.ratings.autoimpute import normalise_counts
from papers.sparsity.cells import FILES, gene_means, smooth

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness import ROOT, find_commit, store_with_table

PAGE = ROOT / "docs" / "guide" / "sparsity.md"
HIDDEN, N_SEEDS = 0.1, 3
MEDIAN, RMSE = "median absolute error of counts", "RMSE of log2 expression"


def hide(counts, seed):
    """Which counts above zero become zero."""
    detected = np.flatnonzero(counts > 0)
    chosen = np.random.default_rng(seed).permutation(detected)[: int(HIDDEN * len(detected))]
    hidden = np.zeros(counts.shape, dtype=bool)
    hidden.flat[chosen] = True
    return hidden


def impute_with_scvi(shown, seed):
    """The mean counts by scVI, with its default settings."""
    scvi.settings.seed = seed
    data = anndata.AnnData(shown.astype(np.float32))
    scvi.model.SCVI.setup_anndata(data)
    model = scvi.model.SCVI(data)
    model.train(accelerator="cpu", enable_progress_bar=False, logger=False, enable_checkpointing=False)
    return np.asarray(model.get_normalized_expression(library_size="latent", return_numpy=True))


def on_log_scale(impute):
    """Imputation of counts by a method for log expression."""

    def impute_counts(shown, seed):
        size = find_size(shown)
        return (2.0 ** impute(to_log(shown, size), seed) - 1.0) * size

    return impute_counts


def find_size(shown):
    """The total of each cell, relative to the median."""
    totals = shown.sum(axis=1, keepdims=True)
    return totals / np.median(totals)


def to_log(counts, size):
    """Log expression per cell of median size."""
    return np.log2(np.maximum(counts, 0.0) / size + 1.0)


METHODS = {
    "gene means": on_log_scale(lambda shown, seed: gene_means(shown)),
    "smoothing": on_log_scale(lambda shown, seed: smooth(shown)),
    "AutoImpute": on_log_scale(
        lambda shown, seed: AutoImpute(random_state=seed).fit(shown).predict_all(shown)
    ),
    "scVI": impute_with_scvi,
}


def measure(counts, method, seed):
    """Errors of a method."""
    hidden = hide(counts, seed)
    shown = np.where(hidden, 0.0, counts)
    imputed = METHODS[method](shown, seed)
    size = find_size(shown)
    errors = (to_log(imputed, size) - to_log(counts, size))[hidden]
    return {
        MEDIAN: float(np.median(np.abs(imputed - counts)[hidden])),
        RMSE: float(np.sqrt(np.mean(errors**2))),
    }


def make_table(results):
    """A line for each method on each data set: means over runs."""
    lines = [f"| | {MEDIAN} | {RMSE} |", "| --- | --- | --- |"]
    for line in results["lines"]:
        median, error = (fmean(run[score] for run in line["runs"]) for score in (MEDIAN, RMSE))
        lines.append(f"| {line['data']}, {line['method']} | {median:.3g} | {error:.3f} |")
    said = (
        f"Each number is the mean of {N_SEEDS} runs, with {results['scvi']}. The results were produced by "
        f"`python benchmarks/peers/cells.py` at commit {results['commit']}."
    )
    return "\n".join([*lines, "", said])


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of other packages, on few cells and on settings of trainers
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    results = {"commit": find_commit(), "scvi": f"scvi-tools {scvi.__version__}", "lines": []}
    for data, file in FILES.items():
        counts = np.asarray(load(file)["counts"], dtype=np.float64)
        counts = counts[:, normalise_counts(counts)[1]]
        for method in METHODS:
            runs = [measure(counts, method, seed) for seed in range(N_SEEDS)]
            results["lines"].append({"data": data, "method": method, "runs": runs})
            print(data, method, runs, flush=True)
    store_with_table("cells", results, PAGE, make_table(results))


if __name__ == "__main__":
    main()
