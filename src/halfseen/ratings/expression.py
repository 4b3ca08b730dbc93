"""Reading and normalising single-cell counts from arrays, sparse matrices and AnnData."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

Floats = npt.NDArray[np.float64]

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
) -> tuple[Floats, npt.NDArray[np.int64]]:
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
