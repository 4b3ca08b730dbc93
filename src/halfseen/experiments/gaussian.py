"""Linear regression with holes in Gaussian inputs, beside the Bayes rate.

The protocol is that of the NeuMiss paper, and the paper's numbers are means over its 20 data sets, recomputed
from its published result files.

The claims below are not those declared at first. One of those, that the regressor beats imputation and
linear regression by 0.01, was not met in a first run, and rightly so: conditional means followed by a linear
fit reach the Bayes rate here too. It was withdrawn, and the claims that stand were written with that run
known; the margin of 0.0005 to the paper's EM in particular is not blind. GaussianImputer + linear is set
beside the paper's MICE + linear, a weak rival; the paper's EM is the strong one.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from halfseen.datasets.gaussian import GaussianProblem
from halfseen.datasets.problem import Sample
from halfseen.estimators.imputers import GaussianImputer
from halfseen.estimators.predictors import GaussianRegressor
from halfseen.experiments.claims import AsPublished, Better, Published, Setting, Within
from halfseen.experiments.spec import Budget, Experiment

GAP = "R2 - Bayes"
N_TEST = 10_000
N_SKIPPED = 10_000  # the paper's validation rows, which nothing here needs
CHUNKS = (
    30_000,
    10_000,
    80_000,
)  # the paper draws its rows in these, so that test rows are the same for all n

REGRESSOR, IMPUTER, CHAINED = "GaussianRegressor", "GaussianImputer + linear", "IterativeImputer + linear"

_EM = {  # mean and standard deviation over 20 data sets, of the column EM
    ("mcar", 10_000, 10): (-0.0002, 0.0003),
    ("mcar", 10_000, 20): (-0.0004, 0.0002),
    ("mcar", 20_000, 10): (-0.0002, 0.0002),
    ("mcar", 20_000, 20): (-0.0002, 0.0001),
    ("mcar", 100_000, 10): (-0.0000, 0.0001),
    ("mcar", 100_000, 20): (-0.0000, 0.0000),
    ("mar", 10_000, 10): (-0.0002, 0.0002),
    ("mar", 10_000, 20): (-0.0004, 0.0002),
    ("mar", 20_000, 10): (-0.0001, 0.0001),
    ("mar", 20_000, 20): (-0.0002, 0.0001),
    ("mar", 100_000, 10): (-0.0000, 0.0000),
    ("mar", 100_000, 20): (-0.0000, 0.0000),
}  # at 50 features the paper's EM is a failed run and left out of its figures

_CHAINED = {  # of the column MICE + linear regression
    ("mcar", 10_000, 10): (-0.0582, 0.0181),
    ("mcar", 10_000, 20): (-0.0799, 0.0206),
    ("mcar", 10_000, 50): (-0.1026, 0.0120),
    ("mcar", 20_000, 10): (-0.0580, 0.0154),
    ("mcar", 20_000, 20): (-0.0795, 0.0203),
    ("mcar", 20_000, 50): (-0.1007, 0.0160),
    ("mcar", 100_000, 10): (-0.0613, 0.0241),
    ("mcar", 100_000, 20): (-0.0760, 0.0160),
    ("mcar", 100_000, 50): (-0.1012, 0.0142),
    ("mar", 10_000, 10): (-0.0475, 0.0220),
    ("mar", 10_000, 20): (-0.0718, 0.0307),
    ("mar", 10_000, 50): (-0.0816, 0.0186),
    ("mar", 20_000, 10): (-0.0552, 0.0266),
    ("mar", 20_000, 20): (-0.0689, 0.0271),
    ("mar", 20_000, 50): (-0.0759, 0.0164),
    ("mar", 100_000, 10): (-0.0748, 0.0484),
    ("mar", 100_000, 20): (-0.0930, 0.0333),
    ("mar", 100_000, 50): (-0.0897, 0.0196),
}


@dataclass(frozen=True)
class Task:
    """Rows to learn from, rows to be judged by, and the best possible score on the latter."""

    train: Sample
    test: Sample
    bayes_r2: float


def make_task(setting: Setting, seed: int) -> Task:
    """Returns the data set of the paper with this seed (for MAR, with a mechanism that does not change)."""
    problem = GaussianProblem.draw(setting["d"], setting["mechanism"], random_state=seed)
    generator = np.random.RandomState(seed)
    start = N_TEST + N_SKIPPED
    parts: list[Sample] = []
    for size in CHUNKS:
        if sum(len(part.X) for part in parts) < start + setting["n"]:
            parts.append(problem.sample(size, generator))
    X, y, observed = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    rows = Sample(X, y, observed)
    test, train = rows.take(slice(N_TEST)), rows.take(slice(start, start + setting["n"]))
    return Task(train, test, problem.bayes_r2(test.incomplete, test.y))


def score(model: Any, task: Task) -> dict[str, float]:
    """Returns the gap to the Bayes rate, and that rate, on the test rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of the paper's baseline, with its 10 rounds
        model.fit(task.train.incomplete, task.train.y)
    predicted = model.predict(task.test.incomplete)
    r2 = 1 - np.mean((task.test.y - predicted) ** 2) / np.var(task.test.y)
    return {GAP: float(r2 - task.bayes_r2), "Bayes R2": task.bayes_r2}


def published(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns the paper's number for the counterpart of a model."""
    key = (setting["mechanism"], setting["n"], setting["d"])
    number, label = (_EM.get(key), "EM") if model == REGRESSOR else (_CHAINED.get(key), "MICE + linear")
    return None if number is None else Published(*number, label)


EXPERIMENT = Experiment(
    name="gaussian",
    question="How near the Bayes rate does a Gaussian, fitted to rows with holes, predict a linear target?",
    paper="Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks",
    make_data=make_task,
    models={
        REGRESSOR: lambda: GaussianRegressor(random_state=0),
        IMPUTER: lambda: make_pipeline(GaussianImputer(random_state=0), LinearRegression()),
        CHAINED: lambda: make_pipeline(IterativeImputer(random_state=0), LinearRegression()),
    },
    score=score,
    metrics={GAP: "higher"},
    budgets={
        "smoke": Budget.grid(n_seeds=2, mechanism=["mcar", "mar"], n=[10_000], d=[10]),
        "small": Budget.grid(n_seeds=5, mechanism=["mcar", "mar"], n=[10_000, 20_000], d=[10, 20]),
        "paper": Budget.grid(
            n_seeds=20, mechanism=["mcar", "mar"], n=[10_000, 20_000, 100_000], d=[10, 20, 50]
        ),
    },
    claims=[
        Within(REGRESSOR, on=GAP, of=0.0, by=0.002, where={"d": (10, 20)}),
        AsPublished(REGRESSOR, on=GAP, by=0.0005, where={"d": (10, 20)}),
        Within(REGRESSOR, on=GAP, of=0.0, by=0.02, where={"d": 50}),
        Within(IMPUTER, on=GAP, of=0.0, by=0.002, where={"d": (10, 20)}),
        AsPublished(IMPUTER, on=GAP),
        Better(REGRESSOR, CHAINED, on=GAP, by=0.01),
        Better(IMPUTER, CHAINED, on=GAP, by=0.01),
    ],
    numbers=published,
)
