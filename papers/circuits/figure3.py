"""Networks that are trained on one rate of missing pixels and tested on others: figure 3 of the paper.

LeNet reads images whose missing pixels are zero, without the mask, as in the paper. It is trained on images
of which each pixel is missing with one probability, anew in each pass; on rates that are drawn for each
image; or on one to three squares of 7 to 15 pixels. Every network is tested at six rates, as in figure 3a,
and with squares of three kinds missing, from few to many pixels, as in figure 3b, whose numbers cannot be
read. The 48 accuracies are those of the paper, whose figure 3a is a table; they stand beside ours at the
scale "paper" only, where networks see all 60,000 images. Its networks have the architecture that comes with
Caffe, as ours do, and its solver, which ours do not: Adam and a cosine schedule are in its place. At the
scale "small" 10,000 images train for three epochs, and 2,000 test.

The claims are what the paper concludes: a network does best at the rates that it was trained on, and with
squares missing if it was trained on squares. They were written before any run of this experiment; similar
networks that also see the mask are part of ``convac-mnist``, whose results were known.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from halfseen.datasets.loaders import load
from halfseen.missingness.images import IIDPixels, ImageMechanism, Rectangles
from papers.circuits.mnist import of_squares
from papers.circuits.rivals import Digits, Images, LeNet, Masks
from papers.claims import Better, Published, Setting
from papers.spec import Budget, Experiment

DATA_SET = "mnist"
RATES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TEST_SQUARES = ((1, 7), (2, 11), (3, 15))  # how many, and of how many pixels each side
ANY_RATE, SQUARES = "trained on all rates", "trained on squares"
_TABLE = """
25%    98.9 97.8 78.9 32.4 17.6 11.0
50%    99.1 98.6 94.6 68.1 37.9 12.9
75%    98.9 98.7 97.2 83.9 56.4 16.7
90%    97.6 97.5 96.7 89.0 71.0 21.3
95%    95.7 95.6 94.8 88.3 74.0 30.5
99%    87.3 86.7 85.0 78.2 66.2 31.3
rates  98.7 98.4 97.0 87.6 70.6 29.6
rects  98.2 95.7 83.2 54.7 35.8 17.5
"""  # by the rate in training; accuracies in percent at the rates of the test


def trained_at(rate: float) -> str:
    """Returns the name of a network."""
    return f"trained at {rate:.0%}"


def rate_metric(rate: float) -> str:
    """Returns the name of a metric."""
    return f"accuracy, {rate:.0%} missing"


METRICS = (*map(rate_metric, RATES), *(of_squares(*squares) for squares in TEST_SQUARES))
"""The accuracies of every network, by what is missing in the test."""

MASKS = {trained_at(rate): Masks(rate, squares=False) for rate in RATES} | {
    ANY_RATE: Masks(squares=False),
    SQUARES: Masks(pixels=False),
}
TABLE = {
    (model, rate_metric(rate)): float(number) / 100
    for model, line in zip(MASKS, _TABLE.strip().splitlines(), strict=True)
    for rate, number in zip(RATES, line.split()[1:], strict=True)
}


@dataclass(frozen=True)
class Task:
    """Training images (N, 28, 28), test images with missing pixels by metric, and for how long to train."""

    train: Images
    train_digits: Digits
    test: dict[str, Images]
    test_digits: Digits
    epochs: int
    seed: int


def make_task(setting: Setting, seed: int) -> Task:
    """Returns some of the training and of the test images, all of them if there are as many, and masks."""
    digits = load(DATA_SET)
    rng = np.random.default_rng(seed)
    train = rng.permutation(len(digits["y_train"]))[: setting["images"]]
    test = rng.permutation(len(digits["y_test"]))[: setting["tested"]]
    shown = digits["x_test"][test].astype(np.float64)
    masks: list[ImageMechanism] = [IIDPixels(rate=rate) for rate in RATES]
    masks += [Rectangles(n=n, width=width) for n, width in TEST_SQUARES]
    masked = {
        metric: mask.fit(shown).amputate(shown, random_state=seed)
        for metric, mask in zip(METRICS, masks, strict=True)
    }
    images = digits["x_train"][train].astype(np.float64)
    labels = (digits[f"y_{part}"][rows].astype(np.int64) for part, rows in (("train", train), ("test", test)))
    return Task(images, next(labels), masked, next(labels), setting["epochs"], seed)


def score(masks: Masks, task: Task) -> dict[str, Any]:
    """Trains a network on masks of a kind and returns its accuracies."""
    model = LeNet(task.epochs, masks, sees_mask=False).fit(task.train, task.train_digits)
    return {
        metric: float(np.mean(model.predict(images) == task.test_digits))
        for metric, images in task.test.items()
    }


def published(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns the paper's accuracy, if it has one."""
    if (model, metric) not in TABLE:
        return None
    other = "" if setting["images"] == 60_000 else "trained on 60,000 images"
    return Published(TABLE[model, metric], label="figure 3a", other=other)


_TRAINED: Setting = {"images": (10_000, 60_000)}

EXPERIMENT = Experiment(
    name="convac-figure3",
    question="Does a network that is trained at one rate of missing pixels classify at other rates?",
    paper="Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models, figure 3a",
    make_data=make_task,
    data_sets=lambda setting: (DATA_SET,),
    models={name: partial(lambda masks: masks, masks) for name, masks in MASKS.items()},
    score=score,
    metrics=dict.fromkeys(METRICS, "higher"),
    budgets={
        "smoke": Budget.grid(1, models=[trained_at(0.25), SQUARES], images=[200], tested=[200], epochs=[1]),
        "small": Budget.grid(3, images=[10_000], tested=[2_000], epochs=[3]),
        "paper": Budget.grid(3, images=[60_000], tested=[10_000], epochs=[20]),
    },
    claims=[
        *(
            Better(trained_at(high), trained_at(0.25), on=rate_metric(high), where=_TRAINED)
            for high in (0.75, 0.9, 0.95, 0.99)
        ),
        *(
            Better(trained_at(0.25), trained_at(high), on=rate_metric(0.25), where=_TRAINED)
            for high in (0.9, 0.95, 0.99)
        ),
        Better(ANY_RATE, trained_at(0.25), on=rate_metric(0.9), where=_TRAINED),
        Better(trained_at(0.9), SQUARES, on=rate_metric(0.9), where=_TRAINED),
        *(Better(SQUARES, ANY_RATE, on=of_squares(*squares), where=_TRAINED) for squares in TEST_SQUARES),
    ],
    numbers=published,
)
