"""Probabilistic circuits: exact marginals of tables and images, for imputation and classification."""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.circuits.convac import ConvAC, ConvACClassifier
    from halfseen.circuits.imputer import CircuitImputer
    from halfseen.circuits.predictors import CircuitClassifier, CircuitRegressor

__all__ = ["CircuitClassifier", "CircuitImputer", "CircuitRegressor", "ConvAC", "ConvACClassifier"]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "convac": ["ConvAC", "ConvACClassifier"],
            "imputer": ["CircuitImputer"],
            "predictors": ["CircuitClassifier", "CircuitRegressor"],
        },
    )
