"""Sparsity Normalization in masked autoregressive networks (MADE), on binarised MNIST.

Pixels are binarised once, by uniform numbers of a fixed seed; 60,000 images are for training, a sixth of them
held out for the choice of the epoch, and 10,000 for the test. There is one hidden layer of 500 units; batches
have 100 images, and the learning rate of 0.005 (figure 5) or, at scale paper, 0.001 (figure 8) falls to zero
along a cosine over the epochs of the setting. The score is the mean negative log-likelihood of a test image
in nats; that of the published normalisation of inputs ("w/ SN"), and of inputs and masks ("w/ SN (all)"), is
printed only at the largest scale, because it is not a likelihood: each output sees its own pixel. Numbers on
other binarisations of MNIST differ by some tenths of a nat.
"""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.datasets import load
from halfseen.errors import HalfseenWarning
from halfseen.sparsity.made import MADE
from papers.claims import AtLeast, Better, Setting
from papers.spec import Budget, Experiment

PLAIN, MASK, CAUSAL = "MADE", "MADE + SN of masks", "MADE + causal SN"
LEAKY, ALL = "MADE + SN of inputs (no likelihood)", "MADE + SN of inputs and masks (no likelihood)"
LOWER_RATE = {"rate": 0.001}  # figure 8
NLL = "negative log-likelihood"
GOAL = 96.0
BINARISATION_SEED = 0
_ONE = {"orderings": 1}


@dataclass(frozen=True)
class Task:
    """Binary images for training and for the test, and how models are trained."""

    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]
    orderings: int
    epochs: int
    seed: int
    rate: float = 0.005


def make_task(setting: Setting, seed: int) -> Task:
    """Returns binarised images; the seed is that of the models."""
    arrays = load("mnist")
    rng = np.random.default_rng(BINARISATION_SEED)
    train, test = (_binarise(arrays[name], rng) for name in ("x_train", "x_test"))
    kept = slice(setting["images"])
    rate = setting.get("rate", Task.rate)
    return Task(train[kept], test[kept], setting["orderings"], setting["epochs"], seed, rate)


def _binarise(images: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    return rng.random(images.shape, dtype=np.float32) < images / np.float32(255)


def score(model: MADE, task: Task) -> dict[str, Any]:
    """Fits a model and returns the mean negative log-likelihood of the test images."""
    model.set_params(
        n_orderings=task.orderings, max_epochs=task.epochs, learning_rate=task.rate, random_state=task.seed
    )
    with warnings.catch_warnings():
        if model.normalisation in ("input", "all"):
            warnings.simplefilter("ignore", HalfseenWarning)  # its name says what it is
        model.fit(task.train)
    return {NLL: -model.score(task.test)}


_MADE = partial(MADE, validation_fraction=1 / 6)

EXPERIMENT = Experiment(
    name="sparsity-made",
    question="Do valid forms of Sparsity Normalization improve the likelihood of MADE?",
    paper="Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, figure 5",
    make_data=make_task,
    models={
        PLAIN: _MADE,
        MASK: partial(_MADE, normalisation="mask"),
        CAUSAL: partial(_MADE, normalisation="causal"),
        LEAKY: partial(_MADE, normalisation="input"),
        ALL: partial(_MADE, normalisation="all"),
    },
    score=score,
    metrics={NLL: "lower"},
    budgets={
        "smoke": Budget.grid(n_seeds=1, models=[CAUSAL], orderings=[1], images=[1000], epochs=[1]),
        "small": Budget.grid(
            n_seeds=1, models=[PLAIN, MASK, CAUSAL], orderings=[1], images=[60_000], epochs=[20]
        ),
        "paper": Budget.grid(n_seeds=5, orderings=[1, 4, 16], images=[60_000], epochs=[100])
        + Budget.grid(n_seeds=5, orderings=[1, 4, 16], images=[60_000], epochs=[100], rate=[0.001]),
    },
    claims=[
        AtLeast(PLAIN, on=NLL, bound=GOAL, where=_ONE),
        Better(MASK, PLAIN, on=NLL),
        Better(CAUSAL, PLAIN, on=NLL),
        *(Better(model, PLAIN, on=NLL, where=LOWER_RATE) for model in (MASK, CAUSAL)),
    ],
    data_sets=lambda setting: ("mnist",),
)
