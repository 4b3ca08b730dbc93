"""MADE: an autoregressive density of binary rows and images."""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.data.masked import check_not_masked
from halfseen.errors import warn_user
from halfseen.estimators._documented import documented_by
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.estimators._table import rows_at_once
from halfseen.estimators._transaction import all_or_nothing
from halfseen.estimators.model_file import Saveable
from halfseen.nn.autoregressive import NORMALISATIONS, MaskedAutoregression, draw_degrees
from halfseen.nn.weights import load_module, module_state
from halfseen.objectives.autoregressive import OrderedLikelihood
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Progress

DESCRIPTIONS = {
    "width": ("int", "The number of hidden units."),
    "n_orderings": (
        "int",
        "The number of random orderings of the features. The density is the mean of the densities of all "
        "orderings, which share their weights; its cost grows with their number.",
    ),
    "normalisation": (
        '{None, "mask", "causal", "input"}',
        'Sparsity Normalization: of the connections (``"mask"``), or of what each hidden unit receives, by '
        'the number of ones that it sees (``"causal"``). ``"input"`` is the published normalisation by the '
        "number of all ones; with it scores are not log-likelihoods and nothing can be sampled, and `fit` "
        "warns.",
    ),
}


@documented_by(DESCRIPTIONS)
@dataclass(eq=False, repr=False)
class MADE(Saveable, DensityMixin, BaseEstimator):
    r"""Density of binary rows or images by a masked autoregressive network.

    .. math:: p(x) = \frac{1}{E} \sum_e \prod_d p_e(x_d \mid x_{\pi_e < \pi_e(d)})

    A network with one hidden layer returns the probability of each feature given those before it in an
    ordering. Rows must be complete, so no assumption about the missingness is made; for rows with missing
    values use `ConvAC` or `MixtureImputer`, whose ``score_samples`` integrate missing values out exactly.

    Attributes
    ----------
    module_ : MaskedAutoregression
        The trained torch module.
    history_ : History
        The mean negative log-likelihood of a row after each epoch, and why training stopped.

    References
    ----------
    Germain, Gregor, Murray & Larochelle (2015), MADE: masked autoencoder for distribution estimation. Yi,
    Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, section on MADE.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(rng.integers(2, size=(300, 2)), 2, axis=1)  # features in equal pairs
    >>> model = MADE(16, max_epochs=30, learning_rate=0.05, random_state=0).fit(X)
    >>> bool(model.score(X) > 3 * np.log(0.5))  # better than independent coins, which have 4 log 0.5
    True
    >>> model.sample(3, random_state=0).shape
    (3, 4)
    """

    _saved: ClassVar[tuple[str, ...]] = ("shape_",)

    width: int = 500
    _: KW_ONLY
    n_orderings: int = 1
    normalisation: str | None = None
    max_epochs: int = 30
    batch_size: int = 100
    learning_rate: float = 0.005
    patience: int = 5
    validation_fraction: float = 0.1
    callback: Callable[[Progress], None] | None = None
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any = None) -> "MADE":
        """Trains the network; held-out rows choose the epoch whose weights are kept.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, height, width)
            Zeros and ones, or booleans.
        y : Ignored
        """
        self._check_parameters()
        rows, self.shape_ = _read_binary(X)
        self.n_features_in_, self.seed_ = rows.shape[1], seed_from(self.random_state)
        generator = torch_generator(self.seed_)
        train, held = split_rows(rows, self.validation_fraction, generator)
        pairs = [draw_degrees(rows.shape[1], self.width, generator) for _ in range(self.n_orderings)]
        places, degrees = (torch.stack(parts) for parts in zip(*pairs, strict=True))
        module = MaskedAutoregression(places, degrees, self.normalisation)
        module.reset_parameters(generator)
        module.fit(train)
        self.history_ = fit_module(
            module,
            OrderedLikelihood(),
            train,
            generator=generator,
            validation=held,
            settings=TrainingSettings(
                max_epochs=self.max_epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                schedule="cosine",
                patience=self.patience,
                compile=False,  # an ordering is chosen by a number, which a compiled graph would fix
            ),
            callback=self.callback,
        )
        self.module_ = module.double().requires_grad_(False)
        if self.normalisation == "input":
            warn_user(
                "With normalisation='input' each output sees its own feature: the scores are not "
                "log-likelihoods. Use 'causal' or 'mask' for a density."
            )
        return self

    @task_threads()
    @torch.no_grad()
    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log-likelihood of each row, in nats."""
        check_is_fitted(self)
        rows, _ = _read_binary(X, tuple(self.shape_))
        size = rows_at_once(3 * (self.width + self.n_features_in_))
        starts = range(0, max(1, len(rows)), size)
        scores: npt.NDArray[np.float64] = torch.cat(
            [self.module_(rows[start : start + size]) for start in starts]
        ).numpy()
        return scores

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean log-likelihood of the rows, in nats."""
        return float(np.mean(self.score_samples(X)))

    @task_threads()
    def sample(self, n_samples: int = 1, random_state: Any = None) -> npt.NDArray[np.uint8]:
        """Returns rows, or images, that are drawn from the density."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        if self.normalisation == "input":
            raise ValueError("A model with normalisation='input' is not a density: nothing can be sampled.")
        generator = torch_generator(seed_from(random_state))
        chosen = torch.randint(self.n_orderings, (n_samples,), generator=generator)
        rows = torch.zeros(n_samples, self.n_features_in_, dtype=torch.uint8)
        for ordering in chosen.unique().tolist():
            mine = chosen == ordering
            rows[mine] = self.module_.sample(int(mine.sum()), ordering, generator)
        drawn: npt.NDArray[np.uint8] = rows.numpy().reshape(n_samples, *self.shape_)
        return drawn

    def _check_parameters(self) -> None:
        for name in ("width", "n_orderings", "batch_size"):
            check_whole(name, getattr(self, name), 1)
        check_whole("max_epochs", self.max_epochs, 0)
        check_training(self)
        if self.normalisation not in NORMALISATIONS:
            names = ", ".join(map(repr, NORMALISATIONS))
            raise ValueError(f"normalisation must be one of {names}, got {self.normalisation!r}.")

    def _state(self) -> dict[str, Tensor]:
        return module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._check_parameters()
        places, degrees = state["module.places"], state["module.degrees"]
        shapes = (self.n_orderings, self.n_features_in_), (self.n_orderings, self.width)
        if (places.shape, degrees.shape) != shapes or math.prod(self.shape_) != self.n_features_in_:
            raise ValueError(
                f"orderings of shape {tuple(places.shape)} do not fit {self.n_features_in_} features"
            )
        self.module_ = load_module(MaskedAutoregression(places, degrees, self.normalisation).double(), state)


def _read_binary(X: Any, shape: tuple[int, ...] | None = None) -> tuple[Tensor, list[int]]:
    """Returns rows (N, D) of zeros and ones and the shape of one; raises an error for other values."""
    array = np.asarray(check_not_masked(X, "X"))
    if array.dtype.kind not in "biufO" or array.ndim not in (2, 3):
        raise ValueError(
            "X must hold numbers and have the shape (n_samples, n_features) or (n_samples, height, width), "
            f"got the shape {array.shape} and dtype {array.dtype}."
        )
    if shape is None and 0 in array.shape:
        raise ValueError(f"X must have at least one row and feature, got the shape {array.shape}.")
    if shape is not None and array.shape[1:] != shape:
        raise ValueError(f"X has features of shape {array.shape[1:]}, but MADE was fitted to {shape}.")
    rows = array.reshape(len(array), math.prod(array.shape[1:])).astype(np.float64)
    wrong = np.argwhere((rows != 0) & (rows != 1))
    if len(wrong):
        i, j = wrong[0].tolist()
        raise ValueError(
            "X must hold zeros and ones, finite and none missing: row "
            f"{i} has {float(rows[i, j])!r} in feature {j}. For incomplete or other data use MixtureImputer."
        )
    return torch.from_numpy(rows.astype(np.uint8)), list(array.shape[1:])
