"""Classifiers of digits with missing pixels other than circuits: neighbours, and LeNet in its settings."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.supervised import Labelled

SIDE = 28
N_NEIGHBOURS = 5
AT_ONCE = 500  # images whose distances are in memory
SOME_SQUARES, WIDTHS, MOST_MISSING = 3, (7, 15), 0.99  # of masks in training

Images = npt.NDArray[np.float64]
Digits = npt.NDArray[np.int64]


class Classifier(Protocol):
    """Anything that names the digits of incomplete images."""

    def predict(self, images: Images) -> Digits:
        """Returns the digits (N) that images (N, 28, 28) show; missing pixels are NaN."""
        ...


class NearestObserved:
    """The nearest neighbours of an image by the distance over its observed pixels."""

    def fit(self, images: Images, digits: Digits) -> "NearestObserved":
        """Keeps the images."""
        kept = images.reshape(-1, SIDE * SIDE)
        self.images = torch.tensor(kept, dtype=torch.float32) / 255
        self.digits = torch.tensor(digits)
        return self

    def predict(self, images: Images) -> Digits:
        """Returns the digit that most of the neighbours show."""
        rows = Incomplete.from_array(images.reshape(len(images), -1) / 255)
        x, seen = rows.filled(0.0).float(), rows.observed.float()
        n_neighbours, squares = min(N_NEIGHBOURS, len(self.images)), self.images.square()
        votes = []
        for shades, mask in zip(x.split(AT_ONCE), seen.split(AT_ONCE), strict=True):
            distance = mask @ squares.T - 2 * shades @ self.images.T
            nearest = self.digits[distance.topk(n_neighbours, largest=False).indices]
            votes.append(nearest.mode(dim=1).values)
        chosen: Digits = torch.cat(votes).numpy()
        return chosen


@dataclass(frozen=True)
class Masks:
    """Masks for training: single pixels, squares, or either with equal probability.

    Parameters
    ----------
    rate : float, optional
        The rate of missing pixels; by default each image has its own, between 0 and 0.99.
    pixels, squares : bool
        Which of both may be missing. Images lose one to three squares of 7 to 15 pixels.
    """

    rate: float | None = None
    pixels: bool = True
    squares: bool = True

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns which pixels (N, 28, 28) are kept."""
        if not self.squares:
            return self._kept_pixels(n, generator)
        if not self.pixels:
            return _kept_squares(n, generator)
        by_pixel = torch.rand(n, 1, 1, generator=generator) < 0.5
        return torch.where(by_pixel, self._kept_pixels(n, generator), _kept_squares(n, generator))

    def _kept_pixels(self, n: int, generator: torch.Generator) -> Tensor:
        rates = MOST_MISSING * torch.rand(n, 1, 1, generator=generator)
        if self.rate is not None:
            rates = torch.full_like(rates, self.rate)
        return torch.rand(n, SIDE, SIDE, generator=generator) >= rates


def _kept_squares(n: int, generator: torch.Generator) -> Tensor:
    kept = torch.ones(n, SIDE, SIDE, dtype=torch.bool)
    count = torch.randint(1, SOME_SQUARES + 1, (n, 1, 1), generator=generator)
    place = torch.arange(SIDE)
    for number in range(SOME_SQUARES):
        width = torch.randint(WIDTHS[0], WIDTHS[1] + 1, (n, 1), generator=generator)
        corner = (torch.rand(n, 2, generator=generator) * (SIDE + 1 - width)).long()
        inside = [(place >= corner[:, [a]]) & (place < corner[:, [a]] + width) for a in (0, 1)]
        kept &= ~(inside[0][:, :, None] & inside[1][:, None, :] & (number < count))
    return kept


class MaskedCrossEntropy:
    """Computes the log-loss of images (N, C, 28, 28), of which parts are removed at random.

    Parameters
    ----------
    masks : Masks, optional
        What is removed; nothing by default.
    """

    def __init__(self, masks: Masks | None = None) -> None:
        self.masks = masks

    def draw_noise(self, batch: Labelled[Tensor], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which pixels (N, 28, 28) are kept; nothing if all are."""
        return () if self.masks is None else (self.masks.draw(len(batch), generator),)

    def __call__(self, module: nn.Module, batch: Labelled[Tensor], noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each image."""
        shown = batch.rows * noise[0].unsqueeze(1) if noise else batch.rows
        return functional.cross_entropy(module(shown), batch.target, reduction="none")


class LeNet:
    """LeNet on images and, if it is trained on masks, on their masks.

    Parameters
    ----------
    n_epochs : int
        Passes over the training images.
    masks : Masks, optional
        What is removed in training, anew in each pass. By default nothing is, and the network does not see
        which pixels are missing.
    sees_mask : bool
        Whether a network that is trained on masks has them as a second input.
    """

    def __init__(self, n_epochs: int, masks: Masks | None = None, sees_mask: bool = True) -> None:
        self.n_epochs = n_epochs
        self.masks = masks
        self.sees_mask = sees_mask

    def fit(self, images: Images, digits: Digits) -> "LeNet":
        """Trains the network."""
        x = self._inputs(images)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.network = _lenet(x.shape[1])
        fit_module(
            self.network,
            MaskedCrossEntropy(self.masks),
            Labelled(x, torch.tensor(digits), torch.ones(len(x))),
            generator=torch_generator(0),
            settings=TrainingSettings(
                max_epochs=self.n_epochs, batch_size=64, learning_rate=1e-3, schedule="cosine", compile=False
            ),
        )
        return self

    def _inputs(self, images: Images) -> Tensor:
        """Returns the input (N, 1, 28, 28), or (N, 2, 28, 28) with the mask; missing pixels are zero."""
        rows = Incomplete.from_array(images.reshape(len(images), -1))
        x = (rows.filled(0.0) / 255).float()
        planes = [x, rows.observed.float()] if self.masks is not None and self.sees_mask else [x]
        return torch.stack(planes, dim=1).unflatten(-1, (SIDE, SIDE))

    @torch.no_grad()
    def predict(self, images: Images) -> Digits:
        """Returns the most probable digits."""
        scores = [self.network(part) for part in self._inputs(images).split(1000)]
        chosen: Digits = torch.cat(scores).argmax(dim=1).numpy()
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


class Imputed:
    """A classifier of complete images after imputation.

    Parameters
    ----------
    classifier : Classifier
        Trained on complete images.
    imputer : object with a method transform, or array
        A fitted imputer of rows of pixels, or what missing pixels (28, 28) are replaced by.
    """

    def __init__(self, classifier: Classifier, imputer: Any) -> None:
        self.classifier = classifier
        self.imputer = imputer

    def predict(self, images: Images) -> Digits:
        """Returns the digits of the completed images."""
        if isinstance(self.imputer, np.ndarray):
            return self.classifier.predict(np.where(np.isnan(images), self.imputer, images))
        rows = self.imputer.transform(images.reshape(len(images), -1))
        return self.classifier.predict(np.asarray(rows, dtype=np.float64).reshape(images.shape))
