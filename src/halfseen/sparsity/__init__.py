"""Sparsity Normalization: networks whose output does not drift with the number of known inputs."""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.sparsity.made import MADE
    from halfseen.sparsity.normalizer import SparsityNormalizer, SparsityNormClassifier, SparsityNormRegressor

__all__ = ["MADE", "SparsityNormClassifier", "SparsityNormRegressor", "SparsityNormalizer"]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "made": ["MADE"],
            "normalizer": ["SparsityNormClassifier", "SparsityNormRegressor", "SparsityNormalizer"],
        },
    )
