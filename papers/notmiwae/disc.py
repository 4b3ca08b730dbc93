"""The images of the not-MIWAE report: bright pixels of a disc in the middle of digits are missing.

Whether a pixel is missing depends on its position *and* on its value. The report scaled pixels to [-1, 1]
and removed those of the disc with an absolute value above 0.5. This also removes the dark background, nearly
the whole disc, so that the mask is hardly informative about the values. Here only pixels above 0.5 on the
scale [0, 1] are removed. Errors are on the report's scale, [-1, 1], but refer to other pixels, so they are
not comparable; the report's mask is in `papers.notmiwae.report`. (The report has 0.9286 for MIWAE on flat
images with 783 latents, 0.9354 for nearest neighbours and 0.9452 for one round of chained equations.)
A method that knows only the direction of the
mechanism would impute white.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from halfseen.datasets.loaders import load
from halfseen.missingness import Disc
from papers.amputed_table import AmputedArray

DATA_SET = "mnist"
SHAPE = (28, 28)
RADIUS, THRESHOLD = 5.0, 0.5
SOFTNESS = 0.05  # of the threshold, where the mechanism is given: it must have a gradient


def hide_bright(X: npt.NDArray[np.float64]) -> AmputedArray:
    """Returns images (N, 784) of which the bright pixels of the disc are missing."""
    mechanism = Disc(radius=RADIUS, threshold=THRESHOLD, shape=SHAPE).fit(X)
    return AmputedArray(X, ~mechanism.sample(X))


def make_disc(n_images: int) -> AmputedArray:
    """Returns the first digits of MNIST."""
    images = load(DATA_SET)["x_train"][:n_images].reshape(n_images, -1)
    return hide_bright(images / 255.0)


def hidden_if_bright(x: torch.Tensor) -> torch.Tensor:
    """Returns the probability of pixels (N, 784) to be missing: the truth with a soft edge."""
    rows, columns = torch.meshgrid(*(torch.arange(side) for side in SHAPE), indexing="ij")
    centre = [(side - 1) / 2 for side in SHAPE]
    inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= RADIUS**2
    return torch.where(inside.flatten(), torch.sigmoid((x - THRESHOLD) / SOFTNESS), 0.0)


def disc_error(model: Any, task: AmputedArray) -> float:
    """Returns the root mean square error over missing pixels, on the scale [-1, 1]."""
    filled = np.asarray(model.fit(task.incomplete).transform(task.incomplete))
    return float(2 * np.sqrt(np.mean((filled - task.X)[task.missing] ** 2)))
