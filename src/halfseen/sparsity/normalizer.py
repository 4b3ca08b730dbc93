"""Sparsity Normalization as a transformer, for networks of any library."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from halfseen.base.model_file import Saveable, check_rows
from halfseen.base.parameters import all_or_nothing, check_number
from halfseen.data.frames import Table, is_frame
from halfseen.data.incomplete import unmask
from halfseen.errors import SchemaError
from halfseen.nn.sparsity import count_factor

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
