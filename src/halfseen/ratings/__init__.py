"""Ratings and other sparse matrices: AutoRec, CF-NADE, matrix factorisation and AutoImpute."""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.ratings.autoimpute import AutoImpute, normalise_counts
    from halfseen.ratings.autorec import AutoRec
    from halfseen.ratings.cfnade import CFNADE
    from halfseen.ratings.matrix_factorization import MatrixFactorization, RatingEnsemble

__all__ = ["CFNADE", "AutoImpute", "AutoRec", "MatrixFactorization", "RatingEnsemble", "normalise_counts"]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "autoimpute": ["AutoImpute", "normalise_counts"],
            "autorec": ["AutoRec"],
            "cfnade": ["CFNADE"],
            "matrix_factorization": ["MatrixFactorization", "RatingEnsemble"],
        },
    )
