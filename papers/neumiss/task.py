"""The data sets of the NeuMiss papers: training rows, test rows, and the score of the Bayes predictor."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from papers.claims import Setting
from papers.problems.gaussian import GaussianProblem
from papers.problems.problem import Sample

GAP = "R2 - Bayes"
N_TEST = N_VALIDATION = 10_000
CHUNKS = (30_000, 10_000, 80_000)  # the paper draws its rows in these: test rows are the same for all n


@dataclass(frozen=True)
class Task:
    """A data set of a problem, and the R2 of the best prediction on its test rows.

    Attributes
    ----------
    problem : GaussianProblem
        Where the rows are from.
    train, validation, test : Sample
        The paper's rows for each purpose.
    bayes_r2 : float
        Of the best prediction, on the test rows.
    bayes_error : float
        The Monte Carlo error of the best prediction, as a share of the variance of the target; ``bayes_r2``
        is too low by this amount on average. It is 0 if the best prediction has a closed form.
    effective : float
        The smallest relative effective sample size over the test rows; 1 if the prediction has a closed form.
    """

    problem: GaussianProblem
    train: Sample
    validation: Sample
    test: Sample
    bayes_r2: float
    bayes_error: float = 0.0
    effective: float = 1.0


def make_task(setting: Setting, seed: int) -> Task:
    """Returns the data set of the paper with this seed (for MAR, with a mechanism that does not change).

    The setting has ``mechanism``, ``n`` and ``d``, and may have ``link`` and ``latent``, the
    share of latent factors.
    """
    problem = GaussianProblem.draw(
        setting["d"],
        setting["mechanism"],
        setting.get("link", "linear"),
        latent_share=setting.get("latent", 0.5),
        random_state=seed,
    )
    generator = np.random.RandomState(seed)
    start = N_TEST + N_VALIDATION
    parts: list[Sample] = []
    for size in CHUNKS:
        if sum(len(part.X) for part in parts) < start + setting["n"]:
            parts.append(problem.sample(size, generator))
    X, y, observed = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    rows = Sample(X, y, observed)
    test = rows.take(slice(N_TEST))
    best = problem.estimate_bayes(test.incomplete)
    return Task(
        problem,
        train=rows.take(slice(start, start + setting["n"])),
        validation=rows.take(slice(N_TEST, start)),
        test=test,
        bayes_r2=r_squared(test.y, best.mean),
        bayes_error=float(np.mean(best.standard_error**2) / np.var(test.y)),
        effective=float(best.effective.min()),
    )


def score(model: Any, task: Task) -> dict[str, float]:
    """Fits a model to the training rows; returns the gap to the Bayes rate, and that rate, on test rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the paper's baseline, with its 10 rounds
        model.fit(task.train.incomplete, task.train.y)
    return gap(task, model.predict(task.test.incomplete))


def gap(task: Task, predicted: npt.NDArray[np.float64]) -> dict[str, float]:
    """Returns the gap of predictions of the test rows to the Bayes rate, and that rate."""
    return {GAP: r_squared(task.test.y, predicted) - task.bayes_r2, "Bayes R2": task.bayes_r2}


def r_squared(target: npt.NDArray[np.float64], predicted: npt.NDArray[np.float64]) -> float:
    """Returns the share of the variance of the target that a prediction explains."""
    return float(1 - np.mean((target - predicted) ** 2) / np.var(target))
