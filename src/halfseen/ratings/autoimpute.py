"""AutoImpute: imputation of single-cell expression by an autoencoder of the observed values.

Counts are read from arrays, sparse matrices and AnnData, and normalised.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._arrays import Floats, Integers
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
from halfseen.nn.weights import load_module, module_state, module_weights
from halfseen.ratings.autorec import SparseAutoencoder
from halfseen.ratings.recommender import RatedRows, RatingError
from halfseen.ratings.table import SparseRows
from halfseen.training.loop import TrainingSettings, fit_module

FEWEST_CELLS, LOWEST_COUNT = 3, 2  # a gene is kept if more cells than this have more counts than this
MAD_SCALE = 1.4826  # from the median absolute deviation to the standard deviation of a normal distribution


def read_expression(
    X: Any, n_genes: int | None = None, *, layer: str | None = None
) -> scipy.sparse.csr_array:
    """Returns a CSR matrix of cells by genes without stored zeros, which are treated as missing.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_cells, n_genes), or an object with such an attribute ``X``
        Non-negative values; NaN is treated as missing.
    n_genes : int, optional
        The number of genes that a fitted estimator expects.
    layer : str, optional
        The layer of an AnnData that is read in place of ``X``.
    """
    content: Any = _content(X, layer)
    matrix: Any
    if hasattr(content, "tocsr"):
        matrix = scipy.sparse.csr_array(content.tocsr().astype(np.float64, copy=True))
    else:
        array = np.asarray(content)
        if array.ndim != 2 or array.dtype.kind not in "biufO":
            raise ValueError(
                "X must hold numbers and have the shape (n_cells, n_genes), got the shape "
                f"{array.shape} and dtype {array.dtype}."
            )
        matrix = scipy.sparse.csr_array(array.astype(np.float64))
    matrix.sum_duplicates()
    matrix.data[np.isnan(matrix.data)] = 0.0
    matrix.eliminate_zeros()
    if n_genes not in (None, matrix.shape[1]):
        raise ValueError(
            f"X has {matrix.shape[1]} features (genes), but the estimator was fitted to {n_genes}."
        )
    wrong = np.flatnonzero((matrix.data < 0) | np.isinf(matrix.data))
    if len(wrong):
        first = wrong[0]
        cell = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
        raise ValueError(
            f"Expression must be finite and not negative: cell {cell} has {float(matrix.data[first])!r} in "
            f"gene {int(matrix.indices[first])}."
        )
    result: scipy.sparse.csr_array = matrix
    return result


def _content(X: Any, layer: str | None) -> Any:
    """Returns the matrix of an AnnData or one of its layers; any other object is returned as it is."""
    is_annotated = hasattr(X, "X") and not hasattr(X, "to_numpy")
    if layer is None:
        return X.X if is_annotated else X
    layers = getattr(X, "layers", None) if is_annotated else None
    if layers is None:
        raise ValueError(f"layer={layer!r} is for an AnnData, got {type(X).__name__}. Leave out the layer.")
    if layer not in layers:
        known = ", ".join(map(repr, layers)) or "none"
        raise ValueError(f"The data have no layer {layer!r}; their layers are {known}.")
    return layers[layer]


def normalise_counts(
    counts: Any, n_genes: int = 1000, *, layer: str | None = None
) -> tuple[Floats, Integers]:
    """Returns log expression of the most variable genes, and their positions: the preparation of AutoImpute.

    Genes with more than two counts in more than three cells are kept; cells are divided by the ratio of their
    total to the median total; genes are ranked by how far their dispersion (variance by mean) is from the
    median of genes of similar mean, in units of the median absolute deviation; values become
    ``log2(x + 1)``.

    Parameters
    ----------
    counts : array-like or sparse matrix of shape (n_cells, n_genes), or an object with such an ``X``
        Raw counts.
    n_genes : int, default=1000
        How many genes to keep, in descending order of normalised dispersion.
    layer : str, optional
        The layer of an AnnData that holds the counts, often ``"counts"``; by default its ``X``.

    References
    ----------
    Talwar, Mongia, Sengupta & Majumdar (2018), AutoImpute: autoencoder based imputation of single-cell
    RNA-seq data.

    Examples
    --------
    >>> counts = np.random.default_rng(0).poisson(5.0, size=(20, 300))
    >>> expression, genes = normalise_counts(counts, n_genes=50)
    >>> expression.shape, len(genes)
    ((20, 50), 50)
    """
    matrix = read_expression(counts, layer=layer)
    n_cells = np.asarray((matrix > LOWEST_COUNT).sum(axis=0)).ravel()
    kept = np.flatnonzero(n_cells > FEWEST_CELLS)
    if not len(kept):
        raise ValueError(
            f"No gene has more than {LOWEST_COUNT} counts in more than {FEWEST_CELLS} cells: pass raw "
            "counts, cells by genes."
        )
    dense = matrix[:, kept].toarray()
    totals = dense.sum(axis=1)
    if not totals.all():
        raise ValueError(
            f"Cell {int(np.argmin(totals))} has no counts of the genes that are kept: leave it out."
        )
    dense /= (totals / np.median(totals))[:, None]
    order = np.argsort(-_normalised_dispersion(dense), kind="stable")[:n_genes]
    return np.log2(dense[:, order] + 1.0), kept[order]


def _normalised_dispersion(x: Floats) -> Floats:
    """Returns how unusual the dispersion of each gene is among genes of similar mean."""
    means: Floats = x.mean(axis=0)
    dispersion = x.var(axis=0, ddof=1) / means
    cuts = np.unique(np.quantile(means, np.linspace(0.10, 1.0, 19)))
    bins = np.searchsorted(cuts, means, side="left")  # right-closed intervals
    result: Floats = np.empty_like(dispersion)
    for one in np.unique(bins):
        inside = bins == one
        away = np.abs(dispersion[inside] - np.median(dispersion[inside]))
        spread = MAD_SCALE * np.median(away)
        result[inside] = away / (spread if spread > 0 else 1.0)
    return result


DESCRIPTIONS: Descriptions = {
    "n_hidden": "The number of hidden units.",
    "sparsity_norm": (
        "Whether the input of a cell is divided by its number of detected genes, relative to their mean."
    ),
    "alpha": "The exponent of the normalisation; 1 is the published one.",
    "centre": "Whether the mean of all observed values is subtracted from the input.",
    "penalty": "The factor of the squared weights of the encoder and the decoder.",
    "layer": ("str or None", "The layer of an AnnData that is read; None reads its ``X``."),
    "batch_size": "Cells per training step.",
    "patience": "Training stops after this many epochs without an improvement on held-out values.",
    "validation_fraction": "The fraction of the observed values held out to choose the best epoch.",
}


@documented_by(DESCRIPTIONS)
@dataclass(eq=False, repr=False)
class AutoImpute(TrainingParameters, Saveable, TransformerMixin, BaseEstimator):
    r"""Imputation of single-cell expression by an autoencoder, with Sparsity Normalization.

    .. math:: \hat x = W \operatorname{sigmoid}\big(V \, (K / c)^{\alpha} x + \mu\big) + b

    trained on the observed values only. A zero is interpreted as a value that was missed, not as the absence
    of expression. :math:`c` is the number of detected genes of a cell and :math:`K` its mean. Values are
    assumed to be missed at random given the observed ones (MAR). Pass log expression, for instance that of
    `normalise_counts`.

    Attributes
    ----------
    module_ : SparseAutoencoder
        The trained torch module.
    history_ : History
        The mean squared error of a cell's values after each epoch, summed over genes.

    References
    ----------
    Talwar, Mongia, Sengupta & Majumdar (2018), AutoImpute: autoencoder based imputation of single-cell
    RNA-seq data. Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.round(5 + rng.normal(size=(60, 1)) + rng.normal(size=(1, 30)), 2)
    >>> shown = np.where(rng.random(X.shape) < 0.4, 0.0, X)
    >>> completed = AutoImpute(16, max_epochs=100, random_state=0).fit_transform(shown)
    >>> bool(np.abs(completed - X)[shown == 0].mean() < 0.8)  # the standard deviation is 1.4
    True
    """

    n_hidden: int = 200
    _: KW_ONLY
    sparsity_norm: bool = True
    alpha: float = 1.0
    centre: bool = True
    penalty: float = 100.0
    layer: str | None = None
    max_epochs: int = 300
    batch_size: int = 64
    learning_rate: float = 3e-3
    patience: int = 30
    validation_fraction: float = 0.05
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any = None) -> "AutoImpute":
        """Trains the autoencoder.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_cells, n_genes), or an AnnData
            Log expression; zeros and NaN are missing. Of an AnnData, ``X`` or a layer is read.
        y : Ignored
        """
        self._check_parameters()
        matrix = read_expression(X, layer=self.layer)
        if not matrix.nnz:
            raise ValueError("All values of X are zero or missing: nothing can be learned.")
        self.n_features_in_, self.seed_ = matrix.shape[1], seed_from(self.random_state)
        generator = torch_generator(self.seed_)
        cells = SparseRows.from_scipy(matrix)
        held = torch.rand(len(cells.values), generator=generator) < self.validation_fraction
        train = cells.select(~held) if bool(held.any()) and not bool(held.all()) else cells
        counts = train.counts[train.counts > 0]
        module = SparseAutoencoder(
            self.n_features_in_,
            self.n_hidden,
            mean_count=float(counts.double().mean()) if self.sparsity_norm else None,
            alpha=float(self.alpha),
            centre=float(train.values.mean()) if self.centre else 0.0,
        )
        module.reset_parameters(train, generator)
        self.history_ = fit_module(
            module,
            RatingError(),
            RatedRows(train, train),
            generator=generator,
            validation=None if train is cells else RatedRows(train, cells.select(held)),
            settings=TrainingSettings.of(
                self,
                schedule="cosine",
                penalties=dict.fromkeys(("encoder", "decoder"), self.penalty / len(train)),
                compile=False,
            ),
            callback=self.callback,
        )
        self.module_ = module.double().requires_grad_(False)
        return self

    @finite_answer
    def transform(self, X: Any) -> Floats:
        """Returns expression with predictions, at least 0, instead of zeros; observed values are kept.

        For an AnnData, store the result in a layer: ``adata.layers["imputed"] = model.transform(adata)``.
        """
        check_is_fitted(self)
        matrix = read_expression(X, self.n_features_in_, layer=self.layer)
        completed = self._predict(matrix)
        cells = matrix.tocoo()
        completed[cells.row, cells.col] = cells.data
        return completed

    def predict_all(self, X: Any) -> Floats:
        """Returns predictions, at least 0, of all values, including observed ones."""
        check_is_fitted(self)
        return self._predict(read_expression(X, self.n_features_in_, layer=self.layer))

    @task_threads()
    @torch.no_grad()
    def _predict(self, matrix: scipy.sparse.csr_array) -> Floats:
        cells = SparseRows.from_scipy(matrix, torch.float64)
        module, size = self.module_, rows_at_once(self.n_features_in_, self.n_features_in_ + self.n_hidden)
        parts = [cells[start : start + size] for start in range(0, max(1, len(cells)), size)]
        outputs = [module.hidden(part) @ module.decoder.T + module.output_bias for part in parts]
        predicted: Floats = torch.cat(outputs).clamp(min=0.0).numpy()
        return predicted

    def _check_parameters(self) -> None:
        check_whole("n_hidden", self.n_hidden, 1)
        check_whole("batch_size", self.batch_size, 1)
        check_whole("max_epochs", self.max_epochs, 0)
        check_number("alpha", self.alpha, lambda v: 0 <= v < np.inf, "a number of at least 0")
        check_number("penalty", self.penalty, lambda v: 0 < v < np.inf, "positive and finite")
        check_training(self)

    def _state(self) -> dict[str, Tensor]:
        return module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        if module_weights(state)["encoder"].shape != (self.n_features_in_, self.n_hidden):
            raise ValueError(f"n_hidden={self.n_hidden!r} does not fit the saved weights.")
        self.module_ = load_module(SparseAutoencoder(self.n_features_in_, self.n_hidden).double(), state)
