"""Convolutional arithmetic circuits: classification and density of images with any missing pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import TrainingParameters, check_number, check_training, check_whole
from halfseen.base.predictor import Steps, fit_predictor
from halfseen.base.table import ReadTable, TableEstimator, rows_at_once
from halfseen.base.targets import Fitted, WithClasses, read_partial_classes
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.evidence import EvidenceWeight, fit_evidence_weight, information_gain
from halfseen.circuits.fitting import (
    Algorithm,
    check_algorithm,
    documented_images,
    fit_by_em,
    training_settings,
)
from halfseen.circuits.images import (
    Averaging,
    ImageCircuit,
    Pixels,
    patch_likelihood,
    restore_image_circuit,
    seen_through,
    shift_average,
    shifted_grids,
)
from halfseen.circuits.initialisation import cluster_patches, random_weights
from halfseen.circuits.objectives import UNKNOWN, HybridLikelihood, LabelledRows
from halfseen.circuits.structure import NOTHING, Structure
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.pixels import ImageLayout, pixel_features
from halfseen.nn.weights import module_state
from halfseen.training.loop import Schedule, fit_module, split_rows
from halfseen.training.progress import History
from halfseen.training.supervised import Labelled

BLOCK = 4  # the side of the squares of pixels that training leaves out, in every second image
SHAPES = ("deep", "shallow")
GAUSSIAN: Pixels = "gaussian"
GRADIENT: Algorithm = "gradient"


@dataclass(eq=False, repr=False)
class ImageCircuitEstimator(TrainingParameters, TableEstimator):
    """Reads images, builds the structure and trains the circuit, for the classifier and the density."""

    n_leaves: int = 32
    n_channels: int | Sequence[int] = (64, 128, 256, 512)
    _: KW_ONLY
    structure: str = "deep"
    patch: int = 2
    max_dropped: float = 0.0
    max_epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 0.1
    schedule: Schedule = "cosine"
    weight_decay: float = 0.0
    patience: int = 5
    image_shape: Any = None

    schema: ClassVar[None] = None  # type: ignore[misc]  # no parameter: all columns are pixels

    # Not annotated, because these are no parameters of all subclasses.
    shifts = 0  # of a density, whose grid stays
    pixels = GAUSSIAN  # of a classifier
    algorithm = GRADIENT  # of a classifier

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, images=True, holds_out_rows=True, trains_in_epochs=True)

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
        self,
        train: LabelledRows,
        held: LabelledRows | None,
        structure: Structure,
        beta: float,
        generator: torch.Generator,
    ) -> tuple[Circuit, History]:
        """Returns a circuit trained on images (N, D) with classes, -1 where unknown, and its history."""
        circuit = Circuit(structure, patch_likelihood(self._modelled, structure, self.pixels)).float()
        known = train.target != UNKNOWN
        counts = torch.bincount(train.target[known], train.weight[known], len(circuit.log_prior)).float() + 1
        circuit.log_prior.copy_((counts / counts.sum()).log())
        grids = shifted_grids(self.image_planes_, self.shifts)
        cluster_patches(circuit, seen_through(train.rows, grids[0]), generator)
        random_weights(circuit, generator)
        circuit.leaves.requires_grad_(False)
        if self.algorithm == "em":
            history = fit_by_em(circuit, train.rows, self.max_epochs, self.callback)
            return circuit.requires_grad_(False), history
        pixels, squares = torch.arange(train.rows.x.shape[1]), squares_of_pixels(self.image_planes_)
        history = fit_module(
            circuit,
            HybridLikelihood(beta, pixels, self.max_dropped, squares, grids, self.weight_decay),
            train,
            generator=generator,
            validation=held,
            settings=training_settings(self, len(train), self.schedule),
            callback=self.callback,
        )
        return circuit.double().requires_grad_(False), history

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
        size, parts = rows_at_once(self.n_features_in_, self._floats_per_image(circuit.structure)), []
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


def series_as_images(X: Any, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Returns series as images (N, 1, T, d) of one row: pixels are steps, and colours are features.

    Parameters
    ----------
    X : array of shape (n_series, T, d), (n_series, T) if d is 1, or (n_series, T * d)
        Series; rows hold step after step.
    shape : (int, int)
        The number T of steps and d of features.

    Examples
    --------
    >>> series_as_images(np.zeros((5, 6)), (3, 2)).shape
    (5, 1, 3, 2)
    """
    n_steps, n_features = shape
    series = np.asarray(X, dtype=np.float64)
    if series.shape[1:] not in ((n_steps, n_features), (n_steps * n_features,)):
        raise ValueError(
            f"X must have the shape (n_series, {n_steps}, {n_features}) or "
            f"(n_series, {n_steps * n_features}), got {series.shape}."
        )
    return series.reshape(len(series), 1, n_steps, n_features)


def squares_of_pixels(planes: tuple[int, int, int]) -> Tensor:
    """Returns the square of pixels (C * H * W) that each pixel belongs to."""
    channels, height, width = planes
    across = -(-width // BLOCK)
    square = torch.arange(height)[:, None] // BLOCK * across + torch.arange(width) // BLOCK
    return square.expand(channels, -1, -1).flatten()


@documented_images
@dataclass(eq=False, repr=False)
class ConvACClassifier(WithClasses, ClassifierMixin, ImageCircuitEstimator):
    r"""Classification of images by a convolutional arithmetic circuit, exact for any missing pixels.

    .. math:: p(y \mid x_o) \propto \pi_y \sum_{d_1 \dots d_N} A^y_{d_1 \dots d_N}
              \prod_i p(x_{i,o} \mid \theta_{d_i})

    where the :math:`x_i` are patches, each a mixture of a few Gaussian components, and the tensor
    :math:`A^y` of each class is factorised by a network of sums and of products over 2 x 2 neighbours.
    Missing pixels are integrated out exactly in one pass, so a classifier that was trained on complete images
    can be used for every pattern of missing pixels. In training, pixels are removed at random and integrated
    out. With `shifts`, each batch is shifted at random in training, and the probabilities of a class are
    averaged over all shifts. Then the probabilities are calibrated: the log-likelihood of an image is
    multiplied by a weight that depends on the fraction of observed pixels. The weight is chosen on held-out
    images from which pixels are removed at random. Pixels are assumed to be missing at random (MAR).

    With `shape`, the inputs are series, and the circuit is one over time: products are over two neighbouring
    stretches, and missing steps, or single features of them, are integrated out.

    Attributes
    ----------
    circuit_ : Circuit
        The fitted circuit; ``print(circuit_.structure)`` shows its levels.
    evidence_weight_ : EvidenceWeight
        The weight of the log-likelihood of images, as `CircuitClassifier` has it of rows.
    history_ : History
        The loss after each epoch, and the reason why training stopped.

    References
    ----------
    Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models. The leaves are clusters of patches and
    are not trained, as in their code; the rate at which pixels are removed varies from image to image.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(200) % 2
    >>> X = np.round(2 * rng.random((200, 4, 4)) + 3 * (y[:, None, None] == (np.arange(4) < 2)))
    >>> model = ConvACClassifier(4, [4, 4], max_epochs=15, random_state=0).fit(X, y)
    >>> X[:, 1:] = np.nan  # only the first row of pixels is seen
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _: KW_ONLY
    shifts: int = 0
    averaging: Averaging = "geometric"
    beta: float = 8.0
    max_dropped: float = 0.9
    shape: Any = None
    class_weight: Any = None

    circuit_: Circuit = field(init=False)  # fitted attributes are no parameters
    evidence_weight_: EvidenceWeight = field(init=False)

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, information_gain=True)

    def _read(self, X: Any, *, reset: bool) -> ReadTable:
        return super()._read(X if self.shape is None else series_as_images(X, self.shape), reset=reset)

    def _as_images(self, features: Tensor) -> npt.NDArray[np.float64]:
        images = super()._as_images(features)
        return images if self.shape is None else images.reshape(len(images), *self.shape)

    def _check_shape(self) -> None:
        """Raises a ValueError if the shape of series is none, or does not go with other parameters."""
        if self.shape is None:
            return
        sizes = tuple(np.atleast_1d(np.asarray(self.shape, dtype=object)).tolist())
        if len(sizes) != 2:
            raise ValueError(f"shape must be (n_steps, n_features), got {self.shape!r}.")
        for name, size in zip(("shape[0]", "shape[1]"), sizes, strict=True):
            check_whole(name, size, 1)
        if self.image_shape is not None:
            raise ValueError("shape is of series and image_shape of images: give one of both.")
        if self.shifts:
            raise ValueError(f"shifts are of images: shifts must be 0 with shape, got {self.shifts!r}.")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ConvACClassifier":
        """Trains the circuit on images and their classes.

        Parameters
        ----------
        X : array of shape (n_images, H, W) or (n_images, H, W, C), or rows of pixels with `image_shape`
            Missing pixels are NaN. With `shape`, series of shape (n_series, T, d).
        y : array-like of shape (n_images,)
            The classes; None or NaN where they are not known.
        sample_weight : array-like of shape (n_images,), optional
            Relative weights of the images: doubling all weights changes nothing.
        """
        self._check_parameters()
        check_number("beta", self.beta, lambda v: 0 <= v < np.inf, "at least 0 and finite")
        check_whole("shifts", self.shifts, 0)
        self._check_shape()
        if self.averaging not in get_args(Averaging):
            raise ValueError(f"averaging must be 'geometric' or 'mixture', got {self.averaging!r}.")
        steps = Steps(features=self._encode_rows, learn=self._learn, calibrate=self._calibrate)
        return fit_predictor(self, steps, X, y, sample_weight)

    def _read_target(self, y: Any, n_rows: int, weights: Tensor) -> tuple[Tensor, Fitted]:
        return self._read_classes(*read_partial_classes(y, weights, self), weights)

    def _encode_rows(self, codes: Incomplete, target: Tensor, weights: Tensor) -> tuple[LabelledRows, Fitted]:
        features = pixel_features(self._modelled, codes)
        batch = features.encode(codes).to(torch.float32)
        return Labelled(batch, target, weights.float()), {"_features": features}

    def _learn(
        self, train: LabelledRows, held: LabelledRows | None, plan: None, generator: torch.Generator
    ) -> Fitted:
        structure = self._structure(len(self.classes_))
        circuit, history = self._train(train, held, structure, self.beta, generator)
        return {"circuit_": circuit, "history_": history}

    def _calibrate(
        self, train: LabelledRows, held: LabelledRows | None, generator: torch.Generator
    ) -> Fitted:
        pixels = torch.arange(self._features.n_features)
        squares = squares_of_pixels(self.image_planes_)
        prior = self.circuit_.log_prior
        weight = fit_evidence_weight(self._log_proba, prior, held, pixels, generator, blocks=squares)
        return {"evidence_weight_": weight}

    def _nothing_to_learn(self, n_rows: int) -> ValueError:
        return ValueError("All pixels of all images have the same value: there is nothing to learn from.")

    @task_threads()
    @torch.no_grad()
    def _logits(self, X: Any) -> Tensor:
        codes = self._read(X, reset=False).codes
        size, found = self._images_at_once, [torch.zeros(0, len(self.classes_), dtype=torch.float64)]
        for start in range(0, len(codes), size):
            batch = self._features.encode(codes[start : start + size])
            fraction = batch.observed.double().mean(dim=1)
            found.append(self.evidence_weight_(self._log_proba(batch), self.circuit_.log_prior, fraction))
        return torch.cat(found)

    @task_threads()
    @torch.no_grad()
    def information_gain(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the expected information gain about the class from observing each missing pixel.

        This is the mutual information between the class and the pixel, given the observed pixels of the
        image, in nats. The result has the layout of `X`, and is zero where a pixel is observed. The pixel
        with the largest value is the most informative one. The mutual information is exact for the circuit
        without shifts, before its probabilities are calibrated.

        Parameters
        ----------
        X : array of shape (n_images, H, W) or (n_images, H, W, C), or rows of pixels with `image_shape`
            Missing pixels are NaN.
        """
        read = self._read(X, reset=False)
        frame = shifted_grids(self.image_planes_, self.shifts)[0]
        inside = frame != NOTHING
        gain = torch.zeros(read.codes.x.shape, dtype=torch.float64)
        floats = self._floats_per_image(self.circuit_.structure) * len(self.classes_)
        size = rows_at_once(self.n_features_in_, floats)
        for start in range(0, len(gain), size):
            batch = self._features.encode(read.codes[start : start + size])
            found = information_gain(self.circuit_, seen_through(batch.to(torch.float64), frame))
            gain[start : start + size, frame[inside]] = found[:, inside]
        if self.shape is not None:
            images = ImageLayout(self.image_planes_, 4).restore(gain.numpy())
            return images.reshape(np.shape(X))
        return ImageLayout(self.image_planes_, np.ndim(X)).restore(gain.numpy())

    @property
    def _images_at_once(self) -> int:
        return rows_at_once(self.n_features_in_, self._floats_per_image(self.circuit_.structure))

    def _log_proba(self, batch: Incomplete) -> Tensor:
        """Returns the log probability (N, K) of each class, averaged over shifts, before calibration."""
        grids = shifted_grids(self.image_planes_, self.shifts)
        parts = batch.to(torch.float64).chunks(self._images_at_once)
        return torch.cat([shift_average(self.circuit_, part, grids, self.averaging) for part in parts])

    def draw_images(
        self, n_images: int = 1, *, label: Any = None, random_state: Any = None
    ) -> npt.NDArray[np.float64]:
        """Draws new images from the model, of one class or of all.

        Parameters
        ----------
        n_images : int, default=1
            The number of images.
        label : object, optional
            A class of ``classes_``; by default classes are drawn by their frequencies.
        random_state : int, RandomState or None, default=None
            The seed; by default that of the estimator, so that each call returns the same images.

        Returns
        -------
        array of shape (n_images, H, W), or (n_images, H, W, C) for several channels
        """
        check_is_fitted(self)
        known = list(self.classes_)
        if label is not None and label not in known:
            raise ValueError(f"label must be one of the classes {known}, got {label!r}.")
        return self._draw(n_images, None if label is None else known.index(label), random_state)

    @property
    def _image_model(self) -> ImageCircuit:
        return ImageCircuit(self._modelled, self._features, self.circuit_)

    def _state(self) -> dict[str, Tensor]:
        return self._features.state() | module_state(self.circuit_) | self.evidence_weight_.state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=True)
        structure = self._structure(len(self.classes_))
        self.circuit_ = restore_image_circuit(self._modelled, structure, self.pixels, state)
        self.evidence_weight_ = EvidenceWeight.from_state(state)


@documented_images
@dataclass(eq=False, repr=False)
class ConvAC(ImageCircuitEstimator, BaseImputer):
    r"""Density of images by a convolutional arithmetic circuit, exact for any missing pixels.

    .. math:: p(x_o) = \sum_{d_1 \dots d_N} A_{d_1 \dots d_N} \prod_i p(x_{i,o} \mid \theta_{d_i})

    `score_samples` is the exact log-likelihood of the observed pixels, and missing pixels are imputed
    from their exact conditional distribution: means, quantiles and joint draws. The model is that of
    `ConvACClassifier` with a single class. Pixels are assumed to be missing at random (MAR).

    Attributes
    ----------
    model_ : ImageCircuit
        The fitted model; ``print(model_.circuit.structure)`` shows its levels.
    history_ : History
        The loss after each epoch, and why training stopped.

    References
    ----------
    Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> shade = rng.integers(0, 4, size=(300, 1, 1))
    >>> X = np.broadcast_to(shade, (300, 4, 4)).astype(float)
    >>> model = ConvAC(4, [4, 4], max_epochs=15, random_state=0).fit(X)
    >>> partly = np.full((1, 4, 4), np.nan)
    >>> partly[0, 0] = 3.0  # one row of pixels
    >>> bool(model.transform(partly).mean() > 2.5)
    True
    """

    add_indicator: ClassVar[bool] = False  # type: ignore[misc]  # images have no columns for indicators

    _: KW_ONLY
    pixels: Pixels = "gaussian"
    algorithm: Algorithm = "gradient"

    def bits_per_dimension(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the mean bits (n_images) that the model needs for an observed pixel.

        It can be compared with that of other models if pixels are discretised. For Gaussian pixels it is
        computed from the density, in units in which neighbouring grey levels differ by one. It is NaN for an
        image without observed pixels.
        """
        n_observed = (~np.isnan(self._read(X, reset=False).codes.to_array())).sum(axis=1)
        bits = -self.score_samples(X) / np.log(2)
        return np.divide(bits, n_observed, out=np.full(len(bits), np.nan), where=n_observed > 0)

    @property
    def _image_model(self) -> ImageCircuit:
        if self.model_ is None:
            raise ValueError("All pixels of all images had the same value: there is no model to draw from.")
        model: ImageCircuit = self.model_
        return model

    @property
    def _width(self) -> int:
        return self._floats_per_image(self._structure(1))

    def _fit_model(self, codes: Incomplete) -> ImageCircuit:
        self._check_parameters()
        features = pixel_features(self._modelled, codes)
        batch = features.encode(codes).to(torch.float32)
        unknown = torch.full((len(batch),), UNKNOWN)
        rows = Labelled(batch, unknown, torch.ones(len(batch)))
        held_out = self.validation_fraction if self.algorithm == "gradient" else 0.0
        generator = torch_generator(self.seed_)
        train, held = split_rows(rows, held_out, generator)
        circuit, self.history_ = self._train(train, held, self._structure(1), 1.0, generator)
        return ImageCircuit(self._modelled, features, circuit)

    def _model_from_state(self, state: Mapping[str, Tensor]) -> ImageCircuit:
        return ImageCircuit.from_state(self._modelled, self._structure(1), self.pixels, state)
