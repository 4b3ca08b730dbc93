"""NeuMiss beside the published network trained as its authors do, and beside the Bayes classifier.

Data are those of the paper with seed 0. The authors' recipe trains one depth; choosing a depth as the paper
does takes ten times as long. A run counts as diverged if training met a value that is not finite, also where
it recovered, or if the squared error of test rows is more than twice the variance of the target. Times of one
machine differ from run to run; read the ratios. A small fit before the clock starts loads what torch loads at
its first optimiser, a second or more that every process pays once. Classes are those of a probit or logistic
of a linear score, 20,000 rows, 20 features, half missing. Writes results/neumiss.json. Run with `make bench`;
`--quick` trains the authors' way for 2 epochs, makes 10 runs in place of 100, classifies with one seed, and
stores nothing.
"""

import os
import sys
import time
import warnings

import numpy as np
from harness import find_commit, print_results, store
from sklearn.base import clone
from sklearn.metrics import log_loss

from halfseen.errors import HalfseenWarning, TrainingError
from halfseen.evaluation.scores import expected_calibration_error
from halfseen.neumiss.likelihood import NeuMissClassifier, NeuMissRegressor
from papers.neumiss.networks import AUTHORS_EPOCHS, TrainedNeuMiss
from papers.neumiss.task import GAP, Task, gap, make_task
from papers.problems.classification import GaussianClassificationProblem

DEPTH = 3  # of the network that is trained the authors' way
RUNS = {"n_seeds": 5, "depths": range(1, 21)}
QUICK_RUNS = {"n_seeds": 1, "depths": range(2, 21, 2)}
FEW_EPOCHS = 5


def task_of(n: int, d: int, mechanism: str = "mcar", seed: int = 0) -> Task:
    """The paper's data set with this seed."""
    return make_task({"mechanism": mechanism, "n": n, "d": d}, seed)


def score_model(model, task: Task) -> dict[str, float]:
    """Seconds to fit, and the gap to the Bayes rate on the test rows."""
    began, worked = time.perf_counter(), time.process_time()
    model.fit(task.train.incomplete, task.train.y)
    return {
        "fit_seconds": time.perf_counter() - began,
        "fit_cpu_seconds": time.process_time() - worked,  # the same however busy the machine is
        GAP: gap(task, model.predict(task.test.incomplete))[GAP],
    }


def diverged(model: TrainedNeuMiss, task: Task) -> bool:
    """Whether training met a value that is not finite, or ended far from any sense."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HalfseenWarning)  # of a return to good weights, counted below
            model.fit(task.train.incomplete, task.train.y)
        predicted = model.predict(task.test.incomplete)
    except TrainingError:
        return True
    senseless = not np.mean((predicted - task.test.y) ** 2) < 2 * np.var(task.test.y)
    return model.n_backoffs_ > 0 or bool(senseless)


def count_diverged(n_seeds: int, depths: range) -> dict[str, int]:
    """Runs that diverged, one for each seed and depth; ours takes two solvers in turn."""
    counts = {"runs": n_seeds * len(depths), "ours": 0, "NeuMiss 2020": 0, "NeuMiss 2020 with residuals": 0}
    for seed in range(n_seeds):
        task = task_of(2000, 50, seed=seed)
        for place, depth in enumerate(depths):
            solver = ("neumann", "chebyshev")[(seed + place) % 2]
            ours = TrainedNeuMiss("ours", depth, solver=solver, max_epochs=FEW_EPOCHS, random_state=seed)
            counts["ours"] += diverged(ours, task)
            theirs = TrainedNeuMiss("2020", depth, recipe="authors", max_epochs=FEW_EPOCHS, random_state=seed)
            counts["NeuMiss 2020"] += diverged(theirs, task)
            counts["NeuMiss 2020 with residuals"] += diverged(clone(theirs).set_params(residual=True), task)
    return counts


def classify(mechanism: str, link: str, n_seeds: int) -> dict[str, float]:
    """The mean log-loss beyond that of the Bayes classifier, and the mean calibration error."""
    gaps, errors = [], []
    for seed in range(n_seeds):
        problem = GaussianClassificationProblem.draw(20, mechanism, link, random_state=seed)
        rows = problem.sample(30_000, random_state=seed)
        test, train = rows.take(slice(10_000)), rows.take(slice(10_000, None))
        model = NeuMissClassifier(random_state=0).fit(train.incomplete, train.y)
        probabilities = model.predict_proba(test.incomplete)
        gaps.append(log_loss(test.y, probabilities) - problem.bayes_log_loss(test.incomplete, test.y))
        errors.append(expected_calibration_error(test.y, probabilities))
    return {"log-loss - Bayes": float(np.mean(gaps)), "calibration error": float(np.mean(errors))}


def main() -> None:
    """Runs both, prints the ratio, and stores everything unless it was quick."""
    quick = "--quick" in sys.argv
    epochs = 2 if quick else AUTHORS_EPOCHS
    narrow, wide = task_of(20_000, 20), task_of(20_000, 50)
    authors = TrainedNeuMiss("2020", DEPTH, recipe="authors", max_epochs=epochs)
    warm = task_of(200, 5)
    score_model(NeuMissRegressor(random_state=0), warm)
    score_model(TrainedNeuMiss("2020", 1, recipe="authors", max_epochs=1), warm)
    ours, theirs = score_model(NeuMissRegressor(random_state=0), narrow), score_model(authors, narrow)
    results = {
        "commit": find_commit(),
        "threads": os.cpu_count(),
        "data": "MCAR, 50% missing, n = 20,000, seed 0",
        "NeuMissRegressor, d = 20": ours,
        "NeuMissRegressor, d = 50": score_model(NeuMissRegressor(random_state=0), wide),
        f"NeuMiss 2020, depth {DEPTH}, authors' recipe, d = 20": theirs | {"epochs": authors.epochs_[DEPTH]},
        "times_faster": theirs["fit_seconds"] / ours["fit_seconds"],
        "diverged, d = 50, n = 2,000, depths 1 to 20": count_diverged(**(QUICK_RUNS if quick else RUNS)),
        "NeuMissClassifier, n = 20,000, d = 20": {
            f"{mechanism}, {link}": classify(mechanism, link, 1 if quick else 3)
            for mechanism in ("mcar", "self-masking-gaussian")
            for link in ("probit", "logistic")
        },
    }
    print_results(results)
    if quick:
        print(f"times_faster is for {epochs} of the authors' {AUTHORS_EPOCHS} epochs; nothing is stored.")
        return
    store("neumiss", results)


if __name__ == "__main__":
    main()
