"""Regression with missing inputs, at random or not: NeuMiss, other methods and the Bayes rate.

The data, sizes and mechanisms are those of the figures 4 and 6 of the first NeuMiss paper; bowl, wave and
break are those of the second, with 50 features and 30% or (in scale paper) also 70% as many factors. What
is scored is the test R2 minus that of the best possible prediction on the same rows. For probit
self-masking, where the paper has no such reference, it is exact up to an error of sampling that is
stored with each run. Of the second paper there are no published numbers.

Three things differ from the paper. The mechanism of MAR is drawn once, where the paper's changes with n. The
trained network of 2020 has our training recipe, because the paper's takes minutes for each depth; the paper's
validation rows stop it and choose its depth. No other model sees these rows.

The perceptron of the paper is the best of 12 widths on validation rows ("MLP, best of widths"); stored runs
have also one of ten units for each feature, which is not the paper's.

How the claims came about: the bounds of NeuMissRegressor are those of the acceptance table of the issue that
asked for it. Pilot runs with one or two seeds of each cell had been seen when they were declared here, so
they are not blind predictions. The claims about the trained network are what the figures 4 and 6 show; they
were written after the runs of the scale "small" that are stored, of which all but the perceptron of the best
width had been seen, and before any others. Under MAR three seeds of that perceptron did not decide; two
more were then run, which are all that the stored networks have.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from halfseen.gaussian.regressor import GaussianRegressor
from halfseen.neumiss.likelihood import NeuMissRegressor
from halfseen.words import Missingness
from papers.claims import AsPublished, AtLeast, Better, Published, Setting
from papers.neumiss.networks import TrainedNeuMiss
from papers.neumiss.published import published_gap
from papers.neumiss.rivals import BestWidthMLP, ChainedOracles, MaskMLP, Oracle
from papers.neumiss.task import GAP, Task, gap, make_task
from papers.neumiss.task import score as fit_and_score
from papers.spec import Budget, Experiment

NEUMISS, GAUSSIAN, CHAINED = "NeuMissRegressor", "GaussianRegressor", "IterativeImputer + linear"
MLP_BEST = "MLP, best of widths"
MLP, TREES, NETWORK, ORACLES = "MLP on x and mask", "HistGradientBoosting", "NeuMiss 2020", "chained oracles"

MAR, GAUSSIAN_MASK, PROBIT = ("mcar", "mar"), Missingness.GAUSSIAN.value, Missingness.PROBIT.value
MECHANISMS = (*MAR, GAUSSIAN_MASK, PROBIT)
CURVES = ("bowl", "wave", "break")
FITTED = (NEUMISS, GAUSSIAN, CHAINED, MLP, TREES, NETWORK)
WIDTHS = (1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 100)  # of perceptrons, over the number of features
DEPTHS = (0, 1, 2, 3, 5)  # of the trained network; beyond, the paper's own choice goes at n = 100,000 only

COUNTERPARTS = {
    NEUMISS: "NeuMiss",
    NETWORK: "NeuMiss",
    GAUSSIAN: "EM",
    CHAINED: "MICE + linear",
    MLP: "MLP",
    MLP_BEST: "MLP",
}
NEAR = 0.005  # how far from the paper's number counts as reached; a guess
OTHERS = {NEUMISS: "the published network", MLP: "the best of 12 widths"}
BOUNDS: Mapping[tuple[str, int, int], float] = {  # the acceptance table: mechanism, n, d
    **{(mechanism, 10_000, 10): -0.002 for mechanism in MAR},
    **{(mechanism, 10_000, 20): -0.003 for mechanism in MAR},
    **{(mechanism, 20_000, 50): -0.006 for mechanism in MAR},
    (GAUSSIAN_MASK, 10_000, 10): -0.003,
    (GAUSSIAN_MASK, 10_000, 20): -0.004,
    (GAUSSIAN_MASK, 20_000, 50): -0.006,
    (PROBIT, 10_000, 10): -0.010,
}


def score(model: Any, task: Task) -> dict[str, float]:
    """Fits a model, unless it knows the truth; returns its gap to the Bayes rate and what else is known."""
    found: dict[str, float] = {}
    if isinstance(model, Oracle):
        found |= gap(task, model.answer(task))
    elif isinstance(model, TrainedNeuMiss):
        model.fit(task.train.incomplete, task.train.y, (task.validation.incomplete, task.validation.y))
        found |= gap(task, model.predict(task.test.incomplete))
        found |= {"depth": model.depth_, "diverged depths": len(model.failed_depths_)}
        found |= {"learning rate halved": model.n_backoffs_, "epochs": sum(model.epochs_.values())}
    elif isinstance(model, BestWidthMLP):
        model.fit(task.train.incomplete, task.train.y, (task.validation.incomplete, task.validation.y))
        found |= gap(task, model.predict(task.test.incomplete)) | {"width": model.width_factor_}
    else:
        found |= fit_and_score(model, task)
    if task.bayes_error > 0:
        found |= {"Bayes R2 too low by": task.bayes_error, "least effective share": task.effective}
    return found


def published(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns the paper's number for the counterpart of a model.

    `NeuMissRegressor` is not the published network, which is its counterpart as a bar to reach only; and the
    perceptron of one width is none of the paper's, which are the best of twelve.
    """
    number = published_gap(setting, COUNTERPARTS[model]) if model in COUNTERPARTS else None
    return number if number is None or model not in OTHERS else replace(number, other=OTHERS[model])


def _cells(*sizes: tuple[int, int]) -> tuple[Setting, ...]:
    """Returns the linear settings of all mechanisms with these numbers of rows and features."""
    return tuple(
        {"mechanism": mechanism, "n": n, "d": d, "link": "linear", "latent": 0.5}
        for n, d in sizes
        for mechanism in MECHANISMS
    )


def _curves(n_seeds: int, models: tuple[str, ...], n: list[int], latent: list[float]) -> Budget:
    """Returns the settings of the second paper."""
    mechanisms = ["mcar", GAUSSIAN_MASK]
    return Budget.grid(n_seeds, models=models, mechanism=mechanisms, n=n, d=[50], link=CURVES, latent=latent)


def _bound(place: tuple[str, int, int], bound: float) -> AtLeast:
    mechanism, n, d = place
    return AtLeast(NEUMISS, GAP, bound, {"mechanism": mechanism, "n": n, "d": d, "link": "linear"})


_SMOKE_CURVE: Setting = {"mechanism": "mcar", "n": 10_000, "d": 10, "link": "bowl", "latent": 0.5}

EXPERIMENT = Experiment(
    name="neumiss",
    question="How close to the Bayes rate does NeuMiss predict if inputs are missing, at random or not?",
    paper="Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks",
    make_data=make_task,
    models={
        NEUMISS: lambda: NeuMissRegressor(random_state=0),
        GAUSSIAN: lambda: GaussianRegressor(random_state=0),
        CHAINED: lambda: make_pipeline(IterativeImputer(random_state=0), LinearRegression()),
        MLP: lambda: MaskMLP(width_factor=10),
        MLP_BEST: lambda: BestWidthMLP(WIDTHS),
        TREES: lambda: HistGradientBoostingRegressor(max_iter=500, early_stopping=True, random_state=0),
        NETWORK: lambda: TrainedNeuMiss("2020", depth=DEPTHS),
        ORACLES: ChainedOracles,
    },
    score=score,
    metrics={GAP: "higher"},
    budgets={
        "smoke": Budget(_cells((10_000, 10)), 1, FITTED)
        + Budget((_SMOKE_CURVE,), 1, (NEUMISS, TREES, ORACLES)),
        "small": Budget(_cells((10_000, 10), (10_000, 20)), 5, FITTED)
        + Budget(_cells((20_000, 50)), 5, (NEUMISS, GAUSSIAN, TREES))
        + _curves(2, (NEUMISS, TREES, ORACLES), n=[20_000], latent=[0.3])
        + Budget(_cells((10_000, 10)), 5, (MLP_BEST,)),
        "paper": Budget(
            _cells(*((n, d) for n in (10_000, 20_000, 100_000) for d in (10, 20, 50))),
            20,
            (*FITTED, MLP_BEST),
        )
        + _curves(20, (*FITTED, ORACLES), n=[20_000, 100_000], latent=[0.3, 0.7]),
    },
    claims=[
        *(_bound(place, bound) for place, bound in BOUNDS.items()),
        AsPublished(NEUMISS, on=GAP, where={"mechanism": (*MAR, GAUSSIAN_MASK)}),
        *(
            Better(NEUMISS, other, on=GAP, where={"link": "linear"})
            for other in (CHAINED, MLP, TREES, NETWORK)
        ),
        *(Better(NEUMISS, other, on=GAP, where={"link": CURVES}) for other in (TREES, ORACLES)),
        *(
            Better(NETWORK, other, on=GAP, where={"mechanism": mechanism, "link": "linear"})
            for mechanism in MECHANISMS
            for other in (CHAINED, MLP_BEST)
        ),
        *(
            AsPublished(model, on=GAP, by=NEAR, where={"mechanism": (*MAR, GAUSSIAN_MASK)})
            for model in (NETWORK, MLP_BEST)
        ),
    ],
    numbers=published,
)
