"""Classification of sequences with missing values by recurrent networks.

Inputs of the networks are divided by Sparsity Normalization, so that their size does not depend on how many
values are missing.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.base.model_file import Saveable
from halfseen.base.parameters import (
    Descriptions,
    TrainingParameters,
    all_or_nothing,
    check_number,
    check_training,
    check_whole,
    documented_by,
    finite_answer,
)
from halfseen.base.table import rows_at_once
from halfseen.base.targets import Classes, WithClasses, read_class_weights, read_classes
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.sequences import Sequences, read_sequences
from halfseen.nn.residual import empty_linear, reset_layers
from halfseen.nn.sparsity import SparsityNorm
from halfseen.nn.weights import load_module, module_state, module_weights
from halfseen.training.logistic import BLEND_ROWS, SHYEST, fit_scaling, minimise
from halfseen.training.loop import SMALLEST_SPLIT, TrainingSettings, fit_module
from halfseen.training.supervised import CrossEntropy, Labelled, RankingLoss, WithSubsets

Cell = Literal["lstm", "gru"]
CELLS: tuple[Cell, ...] = ("lstm", "gru")
COUNTED: dict[str, int | tuple[int, int]] = {"sequence": (-2, -1), "step": -1}
"""What observed values are counted over, and the dimensions that this means."""


def time_gaps(observed: Tensor) -> Tensor:
    r"""Returns for each step and feature the number of steps since the feature was last observed.

    Before the first observation, it is the number of steps since the step before the first one.

    Shapes
    ------
    observed : boolean :math:`(N, T, D)`; output : whole numbers :math:`(N, T, D)`, 0 where observed.

    Examples
    --------
    >>> time_gaps(torch.tensor([[[False], [True], [False], [False]]]))[..., 0]
    tensor([[1, 0, 1, 2]])
    """
    step = torch.arange(observed.shape[1], device=observed.device)[:, None]  # (T, 1)
    last = torch.where(observed, step, -1).cummax(dim=1).values
    return step - last


class SequenceNetwork(nn.Module):
    r"""Creates a recurrent network that reads sequences with missing values and returns logits at their end.

    .. math:: h_t = \mathrm{cell}([s \, (m_t \odot x_t), m_t, \log(1 + g_t)], h_{t-1}), \qquad
              f = C h_T + c

    where :math:`m_t` marks observed values, :math:`s` is the factor of `SparsityNorm` and :math:`g_t` are the
    gaps of `time_gaps`. The mask and the gaps are inputs only if they are requested. The biases of the gates
    are initialised so that the memory of units ranges from one step to `memory` steps.

    Parameters
    ----------
    n_features, width, n_outputs : int
        The number of features, of units of the state, and of logits.
    cell : {"lstm", "gru"}
        The recurrent cell.
    count_over : {"sequence", "step"}
        Whether the normalisation counts the observed values of the whole sequence or of each step.
    alpha : float
        The exponent of the normalisation; 0 for none.
    mask_inputs, gap_inputs : bool
        Whether the mask and the gaps are inputs.

    Shapes
    ------
    sequences : :math:`N` sequences of :math:`(T, D)`; output : :math:`(N, K)`

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, experiment on PhysioNet. Che et al.
    (2018), Recurrent neural networks for multivariate time series with missing values (time gaps). Tallec &
    Ollivier (2018), Can recurrent neural networks warp time? (start of the gates).

    Examples
    --------
    >>> from halfseen.data.sequences import read_sequences
    >>> sequences = read_sequences([[[1.0], [float("nan")], [2.0]], [[3.0], [4.0], [5.0]]], lengths=[3, 2])
    >>> network = SequenceNetwork(1, 4, 2).double()
    >>> network.reset_parameters(torch.Generator().manual_seed(0), memory=3)
    >>> network(sequences).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        n_features: int,
        width: int,
        n_outputs: int,
        *,
        cell: str = "lstm",
        count_over: str = "sequence",
        alpha: float = 1.0,
        mask_inputs: bool = False,
        gap_inputs: bool = False,
    ) -> None:
        super().__init__()
        self.mask_inputs, self.gap_inputs = mask_inputs, gap_inputs
        n_inputs = n_features * (1 + mask_inputs + gap_inputs)
        self.norm = SparsityNorm(1.0, alpha=alpha, dim=COUNTED[count_over])
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        # On "meta" no numbers are drawn: the constructor of PyTorch moves the global generator.
        self.cell = kind(n_inputs, width, batch_first=True, device="meta").to_empty(device="cpu")
        self.output = empty_linear(width, n_outputs)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator, memory: int) -> None:
        """Draws the weights; the memory of units ranges up to `memory` steps."""
        reset_layers(self, generator)
        width = self.cell.hidden_size
        bound = 1 / math.sqrt(width)
        for name, parameter in self.cell.named_parameters():
            if name.startswith("weight"):
                parameter.uniform_(-bound, bound, generator=generator)
            else:
                parameter.zero_()
        spans = 1 + (max(memory, 3) - 2) * torch.rand(width, generator=generator, dtype=torch.float64)
        bias = dict(self.cell.named_parameters())["bias_ih_l0"]
        bias[width : 2 * width] = spans.log()  # of the gate that keeps the state, in both cells
        if isinstance(self.cell, nn.LSTM):
            bias[:width] = -spans.log()

    def forward(self, sequences: Sequences) -> Tensor:
        """Returns the logits of each sequence."""
        states, _ = self.cell(self._inputs(sequences.values))  # (N, T, W)
        last = states[torch.arange(len(sequences), device=states.device), sequences.lengths - 1]
        logits: Tensor = self.output(last)
        return logits

    def _inputs(self, values: Incomplete) -> Tensor:
        parts = [self.norm(values)]
        if self.mask_inputs:
            parts.append(values.observed.to(values.x.dtype))
        if self.gap_inputs:
            parts.append(time_gaps(values.observed).to(values.x.dtype).log1p())
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]


QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.98)  # quantiles of the counts at which the knots are placed


@dataclass(frozen=True)
class CountScaling:
    r"""Rescales logits, by a factor and offsets that may depend on the number of observed values.

    .. math:: a(c) \, t + b(c)

    for logits :math:`t` of a row with :math:`c` observed values, where :math:`a` and :math:`b` are linear in
    :math:`\log(1 + c)` between knots, and constant beyond the first and the last.

    Shapes
    ------
    knots : :math:`(J)`, values of :math:`\log(1 + c)`, increasing; factors : :math:`(J)`; offsets :
    :math:`(J, K)`

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    >>> scaling = CountScaling(torch.tensor([1.0, 3.0]).log(), torch.tensor([1.0, 2.0]), torch.zeros(2, 2))
    >>> scaling(logits, torch.tensor([0, 2]))  # rows without values, and rows with two
    tensor([[0., 1.],
            [0., 2.]])
    """

    knots: Tensor
    factors: Tensor
    offsets: Tensor

    def __call__(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Returns the rescaled logits (N, K) of rows with these numbers (N) of observed values."""
        basis = hat_functions(self.knots, counts.to(self.knots.dtype).log1p())
        return (basis @ self.factors).unsqueeze(-1) * logits + basis @ self.offsets


def hat_functions(knots: Tensor, x: Tensor) -> Tensor:
    """Returns weights (N, J) of the knots (J), with which numbers (N) are interpolated between them.

    Examples
    --------
    >>> hat_functions(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([-1.0, 0.5, 2.5]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.2500, 0.7500]])
    """
    one_at_each = torch.eye(len(knots), dtype=knots.dtype)
    if len(knots) == 1:
        return one_at_each.expand(len(x), 1)
    inside = x.clamp(knots[0], knots[-1])
    left = (torch.searchsorted(knots, inside, right=True) - 1).clamp(0, len(knots) - 2)
    share = ((inside - knots[left]) / (knots[left + 1] - knots[left])).unsqueeze(-1)
    return (1 - share) * one_at_each[left] + share * one_at_each[left + 1]


def fit_constant_scaling(logits: Tensor, target: Tensor) -> CountScaling:
    """Returns the scaling of logits (N, K) that predicts the classes (N) best and ignores counts."""
    even = torch.ones(len(target), dtype=logits.dtype)
    factor, offsets = fit_scaling(logits, target, weights=even)
    return CountScaling(logits.new_zeros(1), logits.new_tensor([factor]), offsets.unsqueeze(0))


def fit_count_scaling(logits: Tensor, counts: Tensor, target: Tensor) -> CountScaling:
    """Returns the scaling of logits (N, K), given counts (N), that predicts the classes (N) best.

    The knots are quantiles of the counts. The log-loss is minimised with a small penalty at each knot, as in
    `fit_scaling`, towards leaving logits as they are.
    """
    places = counts.to(logits.dtype).log1p()
    knots = places.quantile(places.new_tensor(QUANTILES)).unique()
    basis = hat_functions(knots, places)
    n_knots, n_classes = len(knots), logits.shape[1]
    neutral = torch.cat([logits.new_ones(n_knots), logits.new_zeros(n_knots * n_classes)])

    def split(point: Tensor) -> tuple[Tensor, Tensor]:
        return point[:n_knots], point[n_knots:].view(n_knots, n_classes)

    def loss(point: Tensor) -> Tensor:
        factors, offsets = split(point)
        scaled = (basis @ factors).unsqueeze(-1) * logits + basis @ offsets
        fit = functional.cross_entropy(scaled, target, reduction="sum")
        return (fit + 0.5 * BLEND_ROWS * (point - neutral).square().sum()) / len(target)

    bounds: list[tuple[float | None, float | None]] = [(SHYEST, None)] * n_knots
    bounds += [(None, None)] * (n_knots * n_classes)
    return CountScaling(knots, *split(minimise(loss, neutral, bounds)))


MONITORS = ("auroc", "log-loss")
CLIPPED = 0.001  # the share of a feature's observed values that is clipped at each end
GRADIENT_CLIP = 1.0
N_PARTS = 4  # random parts of each held-out sequence, beside the whole, for the calibration
MIN_IMPROVEMENT = 1e-4

DESCRIPTIONS: Descriptions = {
    "width": "Units of the network's state.",
    "cell": ('{"lstm", "gru"}', "The recurrent cell."),
    "count_over": (
        '{"sequence", "step"}',
        "Whether the normalisation counts the observed values of the whole sequence or of each step.",
    ),
    "alpha": (
        "The exponent of the normalisation: 1 is the published one, 1/2 keeps the variance of standardised "
        "inputs constant, 0 fills missing values with zeros only."
    ),
    "mask_inputs": "Whether the mask of observed values is an input of the network.",
    "time_gaps": (
        "Whether the number of steps since each feature was last observed is an input. Steps are assumed to "
        "be equally spaced."
    ),
    "subsets": (
        "Whether each training step uses a random part of the observed values of each sequence, from none to "
        "all, and probabilities are calibrated on random parts of held-out sequences, by the "
        "number of observed values. They are then right on average however few values are known."
    ),
    "class_weight": (
        'dict, "balanced" or None',
        "Weights of classes in the training and in the decisions of `predict`. Probabilities are calibrated "
        "on held-out sequences and do not depend on them.",
    ),
    "monitor": (
        '{"auroc", "log-loss"}',
        "The score of held-out sequences that chooses the epoch whose weights are kept. With more than two "
        "classes the AUROC is the mean of those of each class against the others.",
    ),
    "batch_size": "Sequences per training step.",
    "learning_rate": "The learning rate.",
    "patience": "Training stops after this many epochs without an improvement on held-out sequences.",
    "validation_fraction": (
        "The fraction of the sequences of each class that is held out if `fit` is given no validation data. "
        "Of fewer than 50 sequences none is held out."
    ),
}


@documented_by(DESCRIPTIONS)
@dataclass(eq=False, repr=False)
class SequenceClassifier(TrainingParameters, WithClasses, ClassifierMixin, Saveable, BaseEstimator):
    r"""Classification of sequences with missing values by a recurrent network.

    .. math:: h_t = \mathrm{cell}\left(\left(K / c\right)^{\alpha} (m_t \odot x_t), h_{t-1}\right), \qquad
              p(y) = \mathrm{softmax}(C h_T + b)_y

    where :math:`x_t` are the standardised features of step :math:`t`, :math:`m_t` marks the observed ones,
    :math:`c` is their number in the sequence (or step) and :math:`K` its mean in training. Features are
    clipped at the 0.1% and 99.9% quantiles of the training data before they are standardised. Values are
    assumed to be missing completely at random (MCAR); with `mask_inputs` or `time_gaps` the network can also
    learn from what is missing. A sequence without any observed value is classified by the output of the
    network for zeros.

    Attributes
    ----------
    module_ : SequenceNetwork
        The trained torch module, on standardised features.
    history_ : History
        The training loss and the score that is monitored (lower is better, so 1 - AUROC) of each epoch.

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training
    neural networks, experiment on PhysioNet.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 6, 2))
    >>> y = X[:, :, 0].sum(axis=1) > 0
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = SequenceClassifier(8, learning_rate=0.03, max_epochs=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8)
    True

    Data in the convention of PyPOTS, a dict for training and one for validation:

    >>> model = SequenceClassifier(4, max_epochs=1, random_state=0)
    >>> model.fit({"X": X[:150], "y": y[:150]}, {"X": X[150:], "y": y[150:]}).predict_proba({"X": X}).shape
    (200, 2)
    """

    width: int = 64
    _: KW_ONLY
    cell: str = "lstm"
    count_over: str = "sequence"
    alpha: float = 0.5
    mask_inputs: bool = False
    time_gaps: bool = False
    subsets: bool = False
    class_weight: Any = None
    monitor: str = "auroc"
    max_epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    patience: int = 10
    validation_fraction: float = 0.2
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(
        self, X: Any, y: Any = None, lengths: Any = None, *, validation: Mapping[str, Any] | None = None
    ) -> "SequenceClassifier":
        """Trains the network; held-out sequences choose the epoch whose weights are kept.

        Parameters
        ----------
        X : array-like of shape (n_sequences, n_steps, n_features), or dict
            Missing values are NaN. A dict holds ``"X"``, ``"y"`` and, if needed, ``"lengths"``; the second
            argument may then be the dict for validation, as in PyPOTS.
        y : array-like of shape (n_sequences,)
            The classes.
        lengths : array-like of shape (n_sequences,), optional
            The number of steps of each sequence; all of them if not given.
        validation : dict, optional
            Held-out sequences: ``"X"``, ``"y"`` and, if needed, ``"lengths"``. By default some of the
            sequences are held out.
        """
        self._check_parameters()
        if isinstance(X, Mapping) and isinstance(y, Mapping):
            y, validation = None, y
        X, y, lengths = _unpack(X, y, lengths)
        sequences = read_sequences(X, lengths)
        self.n_features_in_, self.seed_ = sequences.n_features, seed_from(self.random_state)
        target, classes = read_classes(y, len(sequences), self)
        self._plain_classes = classes.to_plain()
        generator = torch_generator(self.seed_)
        given = None if validation is None else self._read_validation(validation, classes)
        train, held = self._split(_labelled(sequences, target), given, generator)
        self._class_weights = read_class_weights(self.class_weight, classes.labels, train.target)
        self._low, self._high, self._scaler = _fit_scaling(train.rows)
        judged = None if held is None else self._weighted(held)
        self.module_ = self._train(self._weighted(train), judged, generator)
        self._calibrate(train if held is None else held, generator)
        return self

    def _train(
        self, train: Labelled[Sequences], held: Labelled[Sequences] | None, generator: torch.Generator
    ) -> SequenceNetwork:
        module = self._build()
        module.reset_parameters(generator, memory=train.rows.n_steps)
        module.norm.fit(train.rows.values.observed)
        objective: Any = WithSubsets(CrossEntropy()) if self.subsets else CrossEntropy()
        self.history_ = fit_module(
            module,
            objective,
            train,
            generator=generator,
            validation=held,
            criterion=RankingLoss(self.batch_size) if self.monitor == "auroc" else None,
            settings=TrainingSettings.of(
                self,
                weight_decay=self.weight_decay,
                gradient_clip=GRADIENT_CLIP,
                min_improvement=MIN_IMPROVEMENT,
                compile=False,  # every step of a sequence would be compiled
            ),
            callback=self.callback,
        )
        # In double precision a prediction does not depend on its batch.
        return module.double().requires_grad_(False)

    @finite_answer
    def predict_proba(self, X: Any, lengths: Any = None) -> npt.NDArray[np.float64]:
        """Returns the probability of each class for each sequence, in the order of ``classes_``."""
        probabilities: npt.NDArray[np.float64] = self._logits(X, lengths).softmax(dim=1).numpy()
        return probabilities

    def predict(self, X: Any, lengths: Any = None) -> npt.NDArray[Any]:
        """Returns the class of each sequence whose probability, times its weight, is largest."""
        scores = self._logits(X, lengths) + self._class_weights.log()
        return self._labels_of(scores.numpy())

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, lengths: Any = None) -> float:
        """Returns the share of sequences whose class is predicted correctly."""
        X, y, lengths = _unpack(X, y, lengths)
        hits = self.predict(X, lengths) == np.asarray(y)
        return float(np.average(hits, weights=sample_weight))

    @task_threads()
    @torch.no_grad()
    def _logits(self, X: Any, lengths: Any = None) -> Tensor:
        check_is_fitted(self)
        X, _, lengths = _unpack(X, None, lengths)
        sequences = read_sequences(X, lengths, n_features=self.n_features_in_)
        return self._scaling(self._outputs(sequences), sequences.counts)

    def _outputs(self, sequences: Sequences) -> Tensor:
        """Returns the outputs of the network in chunks, before they are calibrated."""
        numbers = sequences.n_steps * (3 * self.n_features_in_ + 5 * self.width)
        size = rows_at_once(self.n_features_in_, numbers)
        starts = range(0, max(1, len(sequences)), size)
        return torch.cat([self.module_(self._scaled(sequences[start : start + size])) for start in starts])

    @torch.no_grad()
    def _calibrate(self, rows: Labelled[Sequences], generator: torch.Generator) -> None:
        """Fits the scaling of logits; with `subsets` on random parts of the sequences, by their counts."""
        outputs = self._outputs(rows.rows)
        if not self.subsets:
            self._scaling = fit_constant_scaling(outputs, rows.target)
            return
        parts = [rows.rows.shown(*WithSubsets.draw(rows.rows, generator)) for _ in range(N_PARTS)]
        logits = torch.cat([outputs, *map(self._outputs, parts)])
        counts = torch.cat([part.counts for part in (rows.rows, *parts)])
        self._scaling = fit_count_scaling(logits, counts, rows.target.repeat(1 + N_PARTS))

    def _split(
        self, rows: Labelled[Sequences], given: Labelled[Sequences] | None, generator: torch.Generator
    ) -> tuple[Labelled[Sequences], Labelled[Sequences] | None]:
        """Returns sequences to train on and held-out ones: those given, or a share of each class."""
        if given is not None or len(rows) < SMALLEST_SPLIT or not self.validation_fraction:
            return rows, given
        order = torch.randperm(len(rows), generator=generator)
        sizes = torch.bincount(rows.target)
        n_held = torch.minimum((self.validation_fraction * sizes).ceil().long(), sizes - 1)
        is_class = torch.nn.functional.one_hot(rows.target[order])
        place = ((is_class.cumsum(dim=0) - 1) * is_class).sum(dim=1)  # of a sequence within its class
        held = place < n_held[rows.target[order]]
        return rows[order[~held]], rows[order[held]]

    def _read_validation(self, content: Mapping[str, Any], classes: Classes) -> Labelled[Sequences]:
        X, y, lengths = _unpack(content, None, None)
        sequences = read_sequences(X, lengths, n_features=self.n_features_in_)
        labels = np.asarray(y)
        if labels.shape != (len(sequences),) or not len(sequences):
            raise ValueError(
                f"validation['y'] must have one class for each of the {len(sequences)} sequences of "
                f"validation['X'], got the shape {labels.shape}."
            )
        unknown = ~np.isin(labels, classes.labels)
        if unknown.any():
            raise ValueError(
                f"validation['y'] has the class {labels[unknown].tolist()[0]!r}, which is not in y."
            )
        return _labelled(sequences, torch.from_numpy(np.searchsorted(classes.labels, labels)))

    def _weighted(self, rows: Labelled[Sequences]) -> Labelled[Sequences]:
        """Returns standardised sequences in single precision, with the weights of their classes."""
        scaled = self._scaled(rows.rows).to(torch.float32)
        return Labelled(scaled, rows.target, self._class_weights[rows.target].float())

    def _scaled(self, sequences: Sequences) -> Sequences:
        clipped = torch.clamp(sequences.values.x, self._low, self._high)
        return sequences.with_values(self._scaler.forward(clipped))

    def _build(self) -> SequenceNetwork:
        return SequenceNetwork(
            self.n_features_in_,
            self.width,
            len(self.classes_),
            cell=self.cell,
            count_over=self.count_over,
            alpha=float(self.alpha),
            mask_inputs=bool(self.mask_inputs),
            gap_inputs=bool(self.time_gaps),
        )

    def _check_parameters(self) -> None:
        check_whole("width", self.width, 1)
        check_whole("max_epochs", self.max_epochs, 0)
        check_whole("batch_size", self.batch_size, 1)
        check_number("alpha", self.alpha, np.isfinite, "a finite number")
        check_number("weight_decay", self.weight_decay, lambda v: 0 <= v < np.inf, "a number of at least 0")
        check_training(self)
        for name, known in {"cell": CELLS, "count_over": COUNTED, "monitor": MONITORS}.items():
            if getattr(self, name) not in known:
                names = " or ".join(map(repr, known))
                raise ValueError(f"{name} must be {names}, got {getattr(self, name)!r}.")

    def _state(self) -> dict[str, Tensor]:
        scaling = {"scaler.loc": self._scaler.loc, "scaler.scale": self._scaler.scale}
        clipping = {"clip.low": self._low, "clip.high": self._high}
        calibration = {f"calibration.{name}": value for name, value in vars(self._scaling).items()}
        weights = {"class_weights": self._class_weights}
        return scaling | clipping | calibration | weights | module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._check_parameters()
        self._scaler = Standardizer.checked(state["scaler.loc"], state["scaler.scale"])
        self._low, self._high = state["clip.low"], state["clip.high"]
        self._class_weights = state["class_weights"]
        knots, factors, offsets = (state[f"calibration.{name}"] for name in ("knots", "factors", "offsets"))
        fits = knots.shape == factors.shape == (len(offsets),) and bool((knots.diff() > 0).all())
        if not fits or not offsets.shape[1:] == self._class_weights.shape == (len(self.classes_),):
            raise ValueError(f"the calibration does not fit {len(self.classes_)} classes")
        self._scaling = CountScaling(knots, factors, offsets)
        largest = max((value.numel() for value in module_weights(state).values()), default=0)
        if self.width * max(self.width, self.n_features_in_) > largest:
            raise ValueError(f"a state of {self.width} units does not fit the saved weights.")
        self.module_ = load_module(self._build().double(), state)


def _labelled(sequences: Sequences, target: Tensor) -> Labelled[Sequences]:
    return Labelled(sequences, target, torch.ones(len(target)))


def _unpack(X: Any, y: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """Returns sequences, classes and lengths, which may come as one dict in the convention of PyPOTS."""
    if not isinstance(X, Mapping):
        return X, y, lengths
    if "X" not in X:
        raise ValueError(f"A dict of sequences must hold 'X', got the keys {sorted(map(str, X))}.")
    if y is not None or lengths is not None:
        raise ValueError("Give classes and lengths within the dict of sequences, or with an array X.")
    return X["X"], X.get("y"), X.get("lengths")


def _fit_scaling(sequences: Sequences) -> tuple[Tensor, Tensor, Standardizer]:
    """Returns where the values of each feature are clipped, and their standardisation."""
    steps = sequences.steps
    low, high = torch.full((2, steps.n_features), 0.0, dtype=torch.float64)
    for feature in range(steps.n_features):
        known = steps.x[steps.observed[:, feature], feature].numpy()
        if len(known):
            low[feature], high[feature] = np.quantile(known, [CLIPPED, 1 - CLIPPED]).tolist()
    clipped = Incomplete(torch.clamp(steps.x, low, high), steps.observed)
    return low, high, Standardizer.fit(clipped)
