"""Sparsity Normalization in the imputation of single-cell expression: recovery of values that were hidden.

A share of the detected values is hidden at random, and predicted from the others; the score is the root mean
squared error of log2 expression. The Blakeley data (30 cells) are prepared as in AutoImpute, and the Zeisel
subset (200 cells) in the same way. Smoothing is like MAGIC: expression diffuses over a graph of cells. The
settings of AutoImpute are the defaults of the estimator, whose penalty was chosen by sixteen runs on the
Blakeley data with seed 0, in which test errors were seen. The settings of the original article for each data
set could not be obtained. The drift is that of the mean predicted expression of a cell.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.datasets import load
from halfseen.evaluation.sparsity import vsp_curve
from halfseen.ratings.autoimpute import AutoImpute, normalise_counts
from papers.claims import AtMostShare, Better, Setting
from papers.sparsity.series import DRIFT, drift_scores
from papers.spec import Budget, Experiment

Floats = npt.NDArray[np.float64]

MEANS, SMOOTHED, PLAIN = "gene means", "smoothing", "AutoImpute"
NORMALISED, CENTRED, BOTH = "AutoImpute + SN", "AutoImpute, centred", "AutoImpute + SN, centred"
RMSE = "RMSE"
FILES = {"blakeley": "scrna_blakeley/blakeley_raw", "zeisel": "scrna_zeisel_subset"}
N_NEIGHBOURS, N_STEPS, N_COMPONENTS = 5, 3, 20  # of the smoothing
N_ROWS, N_DRAWS = 100, 4


@dataclass(frozen=True)
class Task:
    """Expression of cells by genes, with some values hidden, and where."""

    truth: Floats
    shown: Floats
    hidden: npt.NDArray[np.bool_]
    seed: int


def make_task(setting: Setting, seed: int) -> Task:
    """Returns expression of which a share of the detected values is hidden."""
    truth, _ = normalise_counts(load(FILES[setting["data"]])["counts"])
    detected = np.flatnonzero(truth > 0)
    chosen = np.random.default_rng(seed).permutation(detected)[: int(setting["hidden"] * len(detected))]
    hidden = np.zeros(truth.shape, dtype=bool)
    hidden.flat[chosen] = True
    return Task(truth, np.where(hidden, 0.0, truth), hidden, seed)


def gene_means(shown: Floats) -> Floats:
    """Returns the mean of the detected values of each gene, for all cells."""
    n_detected = (shown > 0).sum(axis=0)
    overall = shown[shown > 0].mean()
    means = np.where(n_detected > 0, shown.sum(axis=0) / np.maximum(n_detected, 1), overall)
    return np.broadcast_to(means, shown.shape)


def smooth(shown: Floats) -> Floats:
    """Returns expression diffused over similar cells: a mean of detected values, weighted by similarity."""
    centred = shown - shown.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    places = (left * size)[:, :N_COMPONENTS]
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    width = np.sort(distance, axis=1)[:, min(N_NEIGHBOURS, len(shown) - 1)]
    kernel = np.exp(-((distance / np.maximum(width, 1e-12)[:, None]) ** 2))
    kernel = kernel + kernel.T
    step = kernel / kernel.sum(axis=1, keepdims=True)
    weights = np.linalg.matrix_power(step, N_STEPS)
    known = (shown > 0).astype(np.float64)
    total = weights @ known
    return np.where(total > 1e-6, weights @ shown / np.maximum(total, 1e-6), gene_means(shown))


def score(model: AutoImpute | Callable[[Floats], Floats], task: Task) -> dict[str, Any]:
    """Returns the error of the hidden values, and the drift of an autoencoder."""
    if not isinstance(model, AutoImpute):
        return {RMSE: _error(model(task.shown), task)}
    model.set_params(random_state=task.seed).fit(task.shown)
    incomplete = np.where(task.shown > 0, task.shown, np.nan)
    curve = vsp_curve(
        lambda rows: model.predict_all(rows).mean(axis=1),
        incomplete,
        n_draws=N_DRAWS,
        n_rows=N_ROWS,
        random_state=task.seed,
    )
    return {RMSE: _error(model.predict_all(task.shown), task)} | drift_scores(curve)


def _error(predicted: Floats, task: Task) -> float:
    return float(np.sqrt(np.mean((predicted - task.truth)[task.hidden] ** 2)))


EXPERIMENT = Experiment(
    name="sparsity-cells",
    question="Does Sparsity Normalization help to impute single-cell expression, and does it stop the drift?",
    paper="Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, figures 1 and 3",
    make_data=make_task,
    models={
        MEANS: lambda: gene_means,
        SMOOTHED: lambda: smooth,
        PLAIN: partial(AutoImpute, sparsity_norm=False, centre=False),
        NORMALISED: partial(AutoImpute, centre=False),
        CENTRED: partial(AutoImpute, sparsity_norm=False),
        BOTH: AutoImpute,
    },
    score=score,
    metrics={RMSE: "lower", DRIFT: "lower"},
    budgets={
        "smoke": Budget.grid(n_seeds=1, models=[MEANS, NORMALISED], data=["blakeley"], hidden=[0.5]),
        "small": Budget.grid(n_seeds=3, data=["blakeley"], hidden=[0.1, 0.5, 0.9])
        + Budget.grid(n_seeds=3, data=["zeisel"], hidden=[0.5]),
        "paper": Budget.grid(n_seeds=10, data=["blakeley", "zeisel"], hidden=[0.1, 0.3, 0.5, 0.7, 0.9]),
    },
    claims=[
        Better(NORMALISED, PLAIN, on=RMSE),
        Better(BOTH, CENTRED, on=RMSE),
        Better(BOTH, SMOOTHED, on=RMSE),
        AtMostShare(NORMALISED, PLAIN, on=DRIFT, share=1 / 3),
        AtMostShare(BOTH, CENTRED, on=DRIFT, share=1 / 3),
    ],
    data_sets=lambda setting: (FILES[setting["data"]],),
)
