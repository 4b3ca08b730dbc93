"""A classifier of sequences (n, T, d) with NaN: another kind of data, without the estimators of tables.

It shows the parts of an estimator of any kind of data: a boundary (`read_sequences`), a torch module, an
objective for the common training loop, targets, a model file, and a row of its family in
tests/conformance/registry.py.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.base.model_file import Saveable
from halfseen.base.parameters import all_or_nothing, check_whole
from halfseen.base.targets import Classes, read_classes, read_weights
from halfseen.data.incomplete import Standardizer
from halfseen.data.sequences import Sequences, read_sequences
from halfseen.nn.weights import load_module, module_state
from halfseen.training.loop import TrainingSettings, fit_module, split_rows
from halfseen.training.supervised import CrossEntropy, Labelled


class MaskedRecurrence(nn.Module):
    r"""Reads a sequence step by step, and returns logits from the state at its end.

    .. math:: h_t = \tanh(A [x_t \odot o_t, o_t] + B h_{t-1} + a), \qquad f = C h_T + c

    Valid under any missingness, because the mask is an input.

    Shapes
    ------
    sequences : :math:`N` sequences of :math:`(T, D)`; values that are not observed are never read.
    output : :math:`(N, K)`
    """

    def __init__(self, n_features: int, width: int, n_outputs: int) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.zeros(2 * n_features, width))
        self.recurrence = nn.Parameter(torch.zeros(width, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.output = nn.Parameter(torch.zeros(width, n_outputs))
        self.output_bias = nn.Parameter(torch.zeros(n_outputs))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws the matrices."""
        with torch.no_grad():
            for matrix in (self.input, self.recurrence, self.output):
                matrix.normal_(std=matrix.shape[0] ** -0.5, generator=generator)

    def forward(self, sequences: Sequences) -> Tensor:
        """Returns the logits of each sequence."""
        values, inside = sequences.values, sequences.inside
        inputs = torch.cat([values.filled(), values.observed.to(values.x.dtype)], dim=-1)  # (N, T, 2 D)
        state = inputs.new_zeros(len(sequences), len(self.bias))  # (N, W)
        for t in range(sequences.n_steps):
            new = torch.tanh(inputs[:, t] @ self.input + state @ self.recurrence + self.bias)
            state = torch.where(inside[:, t, None], new, state)
        return state @ self.output + self.output_bias


@dataclass(eq=False, repr=False)
class RecurrentClassifier(ClassifierMixin, Saveable, BaseEstimator):
    """Classifies sequences by a small recurrent network.

    Parameters
    ----------
    width : int, default=16
        Units of the network's state.
    max_epochs : int, default=50
        Maximum number of epochs.
    random_state : int, numpy generator or None, default=None
        Seeds held-out sequences, starts and batches.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 6, 2))
    >>> y = X[:, -1, 0] > 0
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = RecurrentClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True
    """

    _saved: ClassVar[tuple[str, ...]] = ("_plain_classes",)

    width: int = 16
    _: KW_ONLY
    max_epochs: int = 50
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any, lengths: Any = None) -> "RecurrentClassifier":
        """Trains the network; held-out sequences choose the epoch whose weights are kept.

        Parameters
        ----------
        X : array-like of shape (n_sequences, n_steps, n_features)
            Missing values are NaN.
        y : array-like of shape (n_sequences,)
            The classes.
        lengths : array-like of shape (n_sequences,), optional
            The number of steps of each sequence; all of them if not given.
        """
        check_whole("width", self.width, 1)
        check_whole("max_epochs", self.max_epochs, 0)
        sequences = read_sequences(X, lengths)
        self.n_features_in_, self.seed_ = sequences.n_features, seed_from(self.random_state)
        target, classes = read_classes(y, len(sequences), self)
        self._plain_classes = classes.to_plain()
        self._scaler = Standardizer.fit(sequences.steps)
        rows = Labelled(self._scaled(sequences), target, read_weights(None, len(sequences)))
        generator = torch_generator(self.seed_)
        train, held_out = split_rows(rows, 0.2, generator)
        module = MaskedRecurrence(self.n_features_in_, self.width, len(classes)).double()
        module.reset_parameters(generator)
        self.history_ = fit_module(
            module,
            CrossEntropy(),
            train,
            generator=generator,
            validation=held_out,
            settings=TrainingSettings(max_epochs=self.max_epochs, batch_size=32, learning_rate=1e-2),
        )
        self.module_ = module.requires_grad_(False)
        return self

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes, sorted."""
        return Classes.from_plain(self._plain_classes).labels

    @task_threads()
    @torch.no_grad()
    def predict_proba(self, X: Any, lengths: Any = None) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each sequence, in the order of ``classes_``."""
        check_is_fitted(self)
        sequences = self._scaled(read_sequences(X, lengths, n_features=self.n_features_in_))
        probabilities: npt.NDArray[np.float64] = self.module_(sequences).softmax(dim=1).numpy()
        return probabilities

    def predict(self, X: Any, lengths: Any = None) -> npt.NDArray[Any]:
        """Returns the most probable class of each sequence."""
        probabilities = self.predict_proba(X, lengths)
        classes: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return classes

    def _scaled(self, sequences: Sequences) -> Sequences:
        return sequences.with_values(self._scaler.forward(sequences.values.x))

    def _state(self) -> dict[str, Tensor]:
        scaler = {"scaler.loc": self._scaler.loc, "scaler.scale": self._scaler.scale}
        return scaler | module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._scaler = Standardizer(state["scaler.loc"], state["scaler.scale"])
        module = MaskedRecurrence(self.n_features_in_, self.width, len(self.classes_)).double()
        self.module_ = load_module(module, state)
