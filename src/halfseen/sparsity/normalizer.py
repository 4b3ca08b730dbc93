"""Sparsity Normalization: a transformer for networks of any library, and networks on tables with it."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from halfseen.base.model_file import Saveable
from halfseen.base.network import MODULE, NETWORK_DESCRIPTIONS, NetworkBase
from halfseen.base.parameters import (
    Descriptions,
    all_or_nothing,
    check_number,
    check_rows,
    check_whole,
    documented_by,
)
from halfseen.base.predictor import ScaledTargetRegressor
from halfseen.base.targets import Classes, Fitted, WithClasses
from halfseen.data.frames import Table, is_frame
from halfseen.data.incomplete import Incomplete, unmask
from halfseen.errors import SchemaError
from halfseen.nn.sparsity import LEARNED, SparsityNormMLP, count_factor
from halfseen.training.logistic import fit_scaling
from halfseen.training.supervised import CrossEntropy, Labelled, SquaredError, WithDropout

EMPTY = ("zero", "nan", "raise")


@dataclass(eq=False, repr=False)
class SparsityNormalizer(Saveable, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Fills missing values with zeros and rescales each row by its number of observed values.

    .. math:: h = \left(\frac{K + \lambda}{c + \lambda}\right)^{\alpha} (m \odot x), \qquad c = \sum_j m_j

    where :math:`m_j` is 1 if value :math:`j` is observed and :math:`K` is the mean of :math:`c` over the rows
    of `fit` that have an observed value. A network that reads rows filled with zeros gives outputs that
    depend on how many values are known; after this transformer the expected input of its first layer no
    longer does. Place it after scaling and directly before the network, apply it once, and do not standardise
    its output. Scalers that map values to [0, 1] suit ``alpha=1``, standardised values suit ``alpha=0.5``.
    The correction is exact if values are missing completely at random.

    Parameters
    ----------
    alpha : float, default=1.0
        The exponent. 1 keeps the mean of a linear layer constant, 1/2 its variance, 0 only fills with zeros.
    shrinkage : float, default=0.0
        The constant :math:`\lambda`, which damps the factor of rows with few observed values.
    mean_count : float, optional
        The constant :math:`K`. By default it is learned in `fit`.
    on_empty : {"zero", "nan", "raise"}, default="zero"
        The result of `transform` for rows without observed values: zeros, NaN, or an error. Rows of a sparse
        matrix have no place for NaN, so that ``"nan"`` leaves them without stored entries.

    Attributes
    ----------
    mean_count_ : float
        The constant :math:`K`.
    n_empty_rows_ : int
        The number of rows without observed values in `fit`.

    Notes
    -----
    Arrays and data frames have NaN, None or null where values are missing. In a scipy sparse matrix each
    stored entry counts as observed, including stored zeros; the result is a CSR matrix with the same stored
    entries. Data frames are returned in their own library with the same columns, as float64.

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training
    neural networks, algorithm 1.

    Examples
    --------
    >>> X = np.array([[4.0, 2.0, np.nan], [3.0, np.nan, np.nan], [1.0, 1.0, 1.0]])
    >>> SparsityNormalizer().fit_transform(X)
    array([[4.        , 2.        , 0.        ],
           [6.        , 0.        , 0.        ],
           [0.66666667, 0.66666667, 0.66666667]])
    """

    _saved: ClassVar[tuple[str, ...]] = ("n_empty_rows_",)

    alpha: float = 1.0
    _: KW_ONLY
    shrinkage: float = 0.0
    mean_count: float | None = None
    on_empty: str = "zero"

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> "SparsityNormalizer":
        """Learns the mean number of observed values.

        Parameters
        ----------
        X : array-like, scipy sparse matrix, or pandas, polars or pyarrow table, (n_samples, n_features)
            The training rows.
        y : ignored
            Present for the scikit-learn interface.
        """
        self._check_parameters()
        values, _ = self._read(X, reset=True)
        counts = _counts(values)
        self.n_empty_rows_ = int((counts == 0).sum())
        if self.mean_count is None and self.n_empty_rows_ == len(counts):
            raise ValueError(
                f"None of the {len(counts)} rows has an observed value, so there is no mean count to learn."
            )
        learned = counts[counts > 0].mean() if self.mean_count is None else self.mean_count
        self.mean_count_ = float(learned)
        return self

    def transform(self, X: Any) -> Any:
        """Returns the rows with zeros where values are missing, rescaled; in the container of `X`."""
        check_is_fitted(self)
        values, table = self._read(X, reset=False)
        counts = _counts(values)
        self._check_empty(counts)
        factor = count_factor(
            torch.from_numpy(counts),
            torch.tensor(self.mean_count_, dtype=torch.float64),
            float(self.alpha),
            float(self.shrinkage),
        ).numpy()
        check_rows(factor, "SparsityNormalizer.transform")
        if scipy.sparse.issparse(values):
            return _scaled(values, factor)
        filled = np.where(np.isnan(values), 0.0, values * factor[:, None])
        if self.on_empty == "nan":
            filled[counts == 0] = np.nan
        return filled.astype(values.dtype) if table is None else table.replaced(filled)

    def _read(self, X: Any, *, reset: bool) -> tuple[Any, Table | None]:
        """Returns numbers (N, D) with NaN, or a CSR matrix; and the table that they came from."""
        X = unmask(X)
        if is_frame(X):
            table = Table(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            return _numbers(table), table
        array = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=True if scipy.sparse.issparse(X) else "allow-nan",
        )
        return array, None

    def _check_parameters(self) -> None:
        check_number("alpha", self.alpha, math.isfinite, "a finite number")
        check_number("shrinkage", self.shrinkage, lambda v: 0 <= v < math.inf, "finite and at least 0")
        if self.mean_count is not None:
            check_number("mean_count", self.mean_count, lambda v: 0 < v < math.inf, "positive and finite")
        if self.on_empty not in EMPTY:
            raise ValueError(f"on_empty must be one of {', '.join(EMPTY)}, got {self.on_empty!r}.")

    def _check_empty(self, counts: npt.NDArray[np.float64]) -> None:
        empty = np.flatnonzero(counts == 0)
        if self.on_empty == "raise" and len(empty):
            raise ValueError(
                f"{len(empty)} of {len(counts)} rows have no observed value, the first is row {empty[0]}. "
                "Leave them out, or set on_empty='zero'."
            )

    def _state(self) -> dict[str, Tensor]:
        return {"mean_count": torch.tensor([self.mean_count_], dtype=torch.float64)}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._check_parameters()
        self.mean_count_ = float(state["mean_count"][0])
        if not self.mean_count_ > 0:
            raise ValueError(f"the mean number of observed values is {self.mean_count_!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _counts(values: Any) -> npt.NDArray[np.float64]:
    """Returns the number (N) of observed values of each row."""
    if isinstance(values, np.ndarray):
        return (~np.isnan(values)).sum(axis=1).astype(np.float64)
    return np.diff(values.indptr).astype(np.float64)


def _scaled(matrix: Any, factor: npt.NDArray[np.float64]) -> Any:
    """Returns a CSR matrix with rows multiplied by factors (N), and the same stored entries."""
    data = (matrix.data * np.repeat(factor, np.diff(matrix.indptr))).astype(matrix.dtype)
    return type(matrix)((data, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)


def _numbers(table: Table) -> npt.NDArray[np.float64]:
    """Returns the columns of a frame as numbers (N, D); raises if one holds something else."""
    numbers = np.empty((table.n_rows, len(table.names)))
    for j, name in enumerate(table.names):
        column = table.column(j)
        if column.storage not in ("number", "boolean", "empty"):
            raise SchemaError(
                f"Column {name!r} ({column.dtype}) does not hold numbers. Encode it first, for example with "
                "OneHotEncoder, or leave it out."
            )
        if np.isinf(column.values).any():
            raise SchemaError(f"Column {name!r} contains infinity. Replace it by a number or by NaN.")
        numbers[:, j] = column.values
    return numbers


DESCRIPTIONS: Descriptions = NETWORK_DESCRIPTIONS | {
    "width": "Units of each hidden layer.",
    "n_layers": "The number of hidden layers; 0 for a linear model.",
    "alpha": (
        'float or "learned"',
        "The exponent of the normalisation. Columns are standardised, for which 1/2 keeps the variance of "
        'the first layer constant; 1 is the published one, 0 none, and ``"learned"`` is trained.',
    ),
    "shrinkage": "Damps the factor of rows with few observed values.",
    "dropout": (
        "The probability that a hidden unit is dropped in training; units are rescaled by the exact "
        "number of kept units."
    ),
    "class_weight": (
        'dict, "balanced" or None',
        "Weights of classes in the training and in the decisions of `predict`. Probabilities are calibrated "
        "on held-out rows and do not depend on them.",
    ),
}
documented = documented_by(DESCRIPTIONS, MODULE)


@dataclass(frozen=True)
class SparsityNormArchitecture:
    """A multilayer perceptron on inputs that are normalised by their observed count."""

    width: int
    n_layers: int
    alpha: float | str
    shrinkage: float
    dropout: float

    def check(self) -> None:
        """Raises a ValueError if a parameter is out of range."""
        check_whole("width", self.width, 1)
        check_whole("n_layers", self.n_layers, 0)
        if self.alpha != LEARNED:
            check_number("alpha", self.alpha, np.isfinite, "a finite number or 'learned'")
        check_number("shrinkage", self.shrinkage, lambda v: 0 <= v < np.inf, "finite and at least 0")
        check_number("dropout", self.dropout, lambda v: 0 <= v < 1, "in [0, 1)")

    @property
    def _widths(self) -> list[int]:
        return [self.width] * self.n_layers

    def build(self, n_features: int, n_outputs: int) -> SparsityNormMLP:
        """Returns the network, with weights that are not drawn yet."""
        alpha: Any = self.alpha if self.alpha == LEARNED else float(self.alpha)
        return SparsityNormMLP(
            n_features, n_outputs, widths=self._widths, alpha=alpha, shrinkage=float(self.shrinkage)
        )

    def n_weights(self, n_features: int, n_outputs: int) -> int:
        """Returns the fewest weights that the largest layer of a saved network must have."""
        return max(a * b for a, b in pairwise([n_features, *self._widths, n_outputs]))

    def initialise(self, module: SparsityNormMLP, rows: Incomplete, generator: torch.Generator) -> None:
        """Draws the weights, and learns the mean number of observed inputs."""
        module.reset_parameters(generator)
        if bool(rows.observed.any()):
            module.norm.fit(rows.observed)

    def objective(self, loss: SquaredError | CrossEntropy) -> Any:
        """Returns the objective of the training: the loss, with dropout if there is any."""
        return WithDropout(loss, float(self.dropout), tuple(self._widths)) if self.dropout else loss


@dataclass(eq=False, repr=False)
class SparsityNormBase(NetworkBase):
    """The parameters of the regressor and the classifier with Sparsity Normalization."""

    _architecture = SparsityNormArchitecture

    width: int = 64
    _: KW_ONLY
    n_layers: int = 2
    alpha: float | str = 0.5
    shrinkage: float = 0.0
    dropout: float = 0.0
    learning_rate: float = 3e-3
    weight_decay: float = 0.01


@documented
class SparsityNormRegressor(ScaledTargetRegressor, SparsityNormBase):
    r"""Regression with missing inputs by a network whose inputs are normalised by their observed count.

    .. math:: \hat y = g\left(\left(\frac{K + \lambda}{c + \lambda}\right)^{\alpha} (m \odot x)\right)

    where :math:`x` are standardised features, :math:`m` marks observed ones, :math:`c` is their number,
    :math:`K` its mean in training, and :math:`g` is a multilayer perceptron. The size of the network's
    input does not depend on how many values are known. It is suited to tables in which the number of known
    values varies much between rows and is unrelated to the target. It assumes that values are missing
    completely at random; where missingness is informative, use `NeuMissRegressor`.

    References
    ----------
    Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training
    neural networks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X.sum(axis=1)
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = SparsityNormRegressor(max_epochs=20, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.6)
    True
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class SparsityNormClassifier(WithClasses, ClassifierMixin, SparsityNormBase):
    r"""Classification with missing inputs by a network whose inputs are normalised by their observed count.

    The network is that of `SparsityNormRegressor` with one logit per class, trained by the log-loss. Its
    probabilities are calibrated on held-out rows by a factor and an offset of the logits of each class.
    Values are assumed to be missing completely at random (MCAR).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 3))
    >>> y = X.sum(axis=1) > 1
    >>> X[rng.random(X.shape) < 0.1] = np.nan
    >>> model = SparsityNormClassifier(max_epochs=20, class_weight="balanced", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.7)
    True
    """

    class_weight: Any = None

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the class of each row whose probability, times its weight, is largest."""
        scores = self._logits(X) + self._class_weights.log()
        return self._labels_of(scores.numpy())

    def _logits(self, X: Any) -> Tensor:
        logits = super()._logits(X)  # raises an error if nothing is fitted
        return self._factor * logits + self._offsets

    def _read_classes(self, codes: Tensor, classes: Classes, weights: Tensor) -> tuple[Tensor, Fitted]:
        target, found = super()._read_classes(codes, classes, weights)
        own = Classes.from_plain(found["_plain_classes"]).weights
        of_classes = torch.ones(len(classes), dtype=torch.float64) if own is None else torch.from_numpy(own)
        return target, found | {"_class_weights": of_classes}

    def _weighted(self, rows: Labelled[Incomplete]) -> Labelled[Incomplete]:
        return Labelled(rows.rows, rows.target, rows.weight * self._class_weights[rows.target].float())

    def _calibrated(self, outputs: Tensor, rows: Labelled[Incomplete]) -> Fitted:
        factor, offsets = fit_scaling(outputs, rows.target, weights=rows.weight.double())
        return {"_factor": factor, "_offsets": offsets}

    def _state(self) -> dict[str, Tensor]:
        factor = torch.tensor([self._factor], dtype=torch.float64)
        calibration = {"calibration.factor": factor, "calibration.offsets": self._offsets}
        return super()._state() | calibration | {"class_weights": self._class_weights}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        factor, offsets = state["calibration.factor"], state["calibration.offsets"]
        weights, shape = state["class_weights"], (len(self.classes_),)
        if factor.shape != (1,) or not factor.is_floating_point() or not factor > 0:
            raise ValueError("the factor of logits is not a positive number")
        if offsets.shape != shape or not offsets.is_floating_point():
            raise ValueError(f"the offsets of classes are not {shape[0]} numbers")
        if weights.shape != shape or not weights.is_floating_point() or not (weights > 0).all():
            raise ValueError(f"the weights of classes are not {shape[0]} positive numbers")
        self._factor, self._offsets, self._class_weights = float(factor), offsets, weights
