"""The base class of circuits for images: structure, training, drawn images and prototypes."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.data.incomplete import Incomplete
from halfseen.data.pixels import ImageLayout
from halfseen.estimators._circuit_fit import Algorithm, check_algorithm, fit_by_em, training_settings
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_number, check_training, check_whole
from halfseen.estimators._table import TableEstimator, rows_at_once
from halfseen.models.circuits.circuit import Circuit
from halfseen.models.circuits.initialisation import cluster_patches, random_weights
from halfseen.models.circuits.structure import Structure
from halfseen.models.image_circuit import ImageCircuit, Pixels, patch_likelihood, seen_through, shifted_grids
from halfseen.objectives.circuits import UNKNOWN, HybridLikelihood, LabelledRows
from halfseen.training.loop import fit_module
from halfseen.training.progress import Progress
from halfseen.training.schedule import Schedule

BLOCK = 4  # the side of the squares of pixels that training leaves out, in every second image
SHAPES = ("deep", "shallow")


class ImageCircuitEstimator(TableEstimator):
    """Reads images, builds the structure and trains the circuit, for the classifier and the density."""

    n_leaves: int
    n_channels: int | Sequence[int]
    structure: str
    patch: int
    max_dropped: float
    max_epochs: int
    batch_size: int
    learning_rate: float
    schedule: Schedule
    weight_decay: float
    patience: int
    validation_fraction: float
    callback: Callable[[Progress], None] | None
    shifts: int = 0  # of a density, whose grid stays
    pixels: Pixels = "gaussian"  # of a classifier
    algorithm: Algorithm = "gradient"  # of a classifier
    schema = None  # all columns are pixels

    @property
    def _takes_images(self) -> bool:
        return True

    @property
    def _channels(self) -> tuple[int, ...]:
        return tuple(np.atleast_1d(self.n_channels).tolist())

    def _check_parameters(self) -> None:
        for name in ("n_leaves", "patch", "batch_size"):
            check_whole(name, getattr(self, name), 1)
        check_whole("max_epochs", self.max_epochs, 0)
        for channels in self._channels:
            check_whole("n_channels", channels, 1)
        check_training(self)
        check_number("max_dropped", self.max_dropped, lambda v: 0 <= v <= 1, "between 0 and 1")
        check_algorithm(self)
        check_number("weight_decay", self.weight_decay, lambda v: 0 <= v < np.inf, "at least 0 and finite")
        if self.structure not in SHAPES:
            raise ValueError(f"structure must be 'deep' or 'shallow', got {self.structure!r}.")
        if self.pixels not in get_args(Pixels):
            raise ValueError(f"pixels must be 'gaussian' or 'discretised', got {self.pixels!r}.")

    def _structure(self, n_classes: int) -> Structure:
        planes, height, width = self.image_planes_
        for name in ("patch", "shifts"):
            if getattr(self, name) > max(height, width):
                raise ValueError(
                    f"{name} must be at most {max(height, width)}, the side of the images, got "
                    f"{getattr(self, name)!r}."
                )
        shape, channels = (planes, height + 2 * self.shifts, width + 2 * self.shifts), self._channels
        if self.structure == "shallow":
            return Structure.shallow_image(
                shape, self.n_leaves, channels[0], patch=self.patch, n_classes=n_classes
            )
        return Structure.image(shape, self.n_leaves, channels, patch=self.patch, n_classes=n_classes)

    def _train(
        self, rows: LabelledRows, n_classes: int, beta: float, generator: torch.Generator
    ) -> tuple[Circuit, LabelledRows | None]:
        """Returns a circuit trained on images (N, D) with classes, -1 where unknown, and held-out images."""
        structure = self._structure(n_classes)
        held_out = self.validation_fraction if self.algorithm == "gradient" else 0.0
        train, held = split_rows(rows, held_out, generator)
        circuit = Circuit(structure, patch_likelihood(self._modelled, structure, self.pixels)).float()
        counts = torch.bincount(train.target[train.target != UNKNOWN], minlength=n_classes) + 1.0
        circuit.log_prior.copy_((counts / counts.sum()).log())
        grids = shifted_grids(self.image_planes_, self.shifts)
        cluster_patches(circuit, seen_through(train.rows, grids[0]), generator)
        random_weights(circuit, generator)
        circuit.leaves.requires_grad_(False)
        if self.algorithm == "em":
            self.history_ = fit_by_em(circuit, train.rows, self.max_epochs, self.callback)
            return circuit.requires_grad_(False), None
        pixels, squares = torch.arange(train.rows.x.shape[1]), squares_of_pixels(self.image_planes_)
        self.history_ = fit_module(
            circuit,
            HybridLikelihood(beta, pixels, self.max_dropped, squares, grids, self.weight_decay),
            train,
            generator=generator,
            validation=held,
            settings=training_settings(self, len(train)),
            callback=self.callback,
        )
        return circuit.double().requires_grad_(False), held

    def _floats_per_image(self, structure: Structure) -> int:
        """Returns the size of the largest messages of an image, for planning memory."""
        per_leaf = (
            structure.n_leaves if self.pixels == "gaussian" else structure.n_leaves * len(structure.parts)
        )
        width, largest = structure.n_leaves, len(structure.regions) * per_leaf
        for level in structure.levels:
            largest = max(largest, level.n_regions * max(width, level.n_channels or 0))
            width = level.n_channels or width
        return largest

    @property
    def _image_model(self) -> ImageCircuit:
        """The fitted circuit with the map from pixels to features."""
        raise NotImplementedError

    def draw_images(self, n_images: int = 1, *, random_state: Any = None) -> npt.NDArray[np.float64]:
        """Draws new images from the model.

        Parameters
        ----------
        n_images : int, default=1
            The number of images.
        random_state : int, RandomState or None, default=None
            The seed; by default that of the estimator, so that each call returns the same images.

        Returns
        -------
        array of shape (n_images, H, W), or (n_images, H, W, C) for several channels
        """
        return self._draw(n_images, None, random_state)

    @task_threads()
    def _draw(self, n_images: int, of_class: int | None, random_state: Any) -> npt.NDArray[np.float64]:
        check_is_fitted(self)
        check_whole("n_images", n_images, 1)
        seed = self.seed_ if random_state is None else seed_from(random_state)
        circuit, generator = self._image_model.circuit, torch_generator(seed)
        size, parts = rows_at_once(self._floats_per_image(circuit.structure)), []
        for start in range(0, n_images, size):
            empty = torch.zeros(min(size, n_images - start), circuit.leaves.n_features, dtype=torch.float64)
            noise = torch.rand(len(empty), circuit.n_noise, generator=generator, dtype=torch.float64)
            nothing = Incomplete(empty, torch.zeros_like(empty, dtype=torch.bool))
            parts.append(circuit.conditional_draw(nothing, noise, of_class=of_class))
        return self._as_images(torch.cat(parts))

    def prototypes(self, level: int) -> npt.NDArray[np.float64]:
        """Returns images that show what the channels of a level represent.

        Every channel of a region is one value of a hidden variable. Image k shows, in each region of the
        level, the means of the most probable components below channel k.

        Parameters
        ----------
        level : int
            The number of the level from the bottom, from 0 on.

        Returns
        -------
        array of shape (n_channels, H, W), or (n_channels, H, W, C) for several channels of colour
        """
        check_is_fitted(self)
        circuit = self._image_model.circuit
        check_whole("level", level, 0)
        if level >= len(circuit.structure.levels):
            n_levels = len(circuit.structure.levels)
            raise ValueError(f"level must be below {n_levels}, the number of levels, got {level!r}.")
        return self._as_images(circuit.prototypes(level))

    def _as_images(self, features: Tensor) -> npt.NDArray[np.float64]:
        """Returns images (N, H, W[, C]) of pixel values from features (N, E) of the frame around them."""
        channels, height, width = self.image_planes_
        frame = features.unflatten(-1, (channels, height + 2 * self.shifts, width + 2 * self.shifts))
        inside = frame[..., self.shifts : self.shifts + height, self.shifts : self.shifts + width]
        codes = self._image_model.features.numbers(inside.flatten(start_dim=1).double())
        column = self._modelled[0]  # all pixels take the same values
        values = column.decode(column.constrain(codes.numpy().ravel())).astype(np.float64)
        return ImageLayout(self.image_planes_, 3 if channels == 1 else 4).restore(values.reshape(codes.shape))


def squares_of_pixels(planes: tuple[int, int, int]) -> Tensor:
    """Returns the square of pixels (C * H * W) that each pixel belongs to."""
    channels, height, width = planes
    across = -(-width // BLOCK)
    square = torch.arange(height)[:, None] // BLOCK * across + torch.arange(width) // BLOCK
    return square.expand(channels, -1, -1).flatten()
