"""Machine learning on data with missing values: imputation with uncertainty, prediction and diagnosis."""

import random
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from halfseen.errors import HalfseenWarning, ModelFileError, SchemaError, TrainingError
from halfseen.estimators.catalogue import CATALOGUE

if TYPE_CHECKING:  # at run time a name is imported when it is first used: torch alone takes seconds
    from halfseen import config, datasets, missingness, nn
    from halfseen.data.expression import normalise_counts
    from halfseen.data.schema import Column, Schema
    from halfseen.departures.result import Sensitivity
    from halfseen.departures.sweep import sensitivity
    from halfseen.diagnosis.summary import Diagnosis, describe
    from halfseen.estimators.auto_imputer import AutoImputer
    from halfseen.estimators.autoimpute import AutoImpute
    from halfseen.estimators.averaging import AveragingClassifier, AveragingRegressor
    from halfseen.estimators.boosting import BoostingClassifier, BoostingRegressor
    from halfseen.estimators.bootstrap import BootstrapImputer
    from halfseen.estimators.cfnade import CFNADE
    from halfseen.estimators.circuit_imputer import CircuitImputer
    from halfseen.estimators.circuit_predictors import CircuitClassifier, CircuitRegressor
    from halfseen.estimators.convac import ConvAC, ConvACClassifier
    from halfseen.estimators.impute_then import ImputeThenClassifier, ImputeThenRegressor
    from halfseen.estimators.imputers import GaussianImputer, MeanImputer
    from halfseen.estimators.latent import (
        DeMissVAEImputer,
        LatentImputer,
        MissIWAEImputer,
        MissSIWAEImputer,
        MissSVAEImputer,
        MissVAEImputer,
        MIWAEImputer,
        MVAEImputer,
        NotMIWAEImputer,
    )
    from halfseen.estimators.made import MADE
    from halfseen.estimators.matrix_factorization import MatrixFactorization
    from halfseen.estimators.mixture_imputer import MixtureImputer
    from halfseen.estimators.model_file import load
    from halfseen.estimators.multiple import MultipleImputation, multiple_imputation
    from halfseen.estimators.neumiss import NeuMissClassifier, NeuMissRegressor
    from halfseen.estimators.neumiss_networks import NeuMissNetworkClassifier, NeuMissNetworkRegressor
    from halfseen.estimators.normalizer import SparsityNormalizer
    from halfseen.estimators.predictors import GaussianRegressor
    from halfseen.estimators.rating_ensemble import RatingEnsemble
    from halfseen.estimators.recommenders import AutoRec
    from halfseen.estimators.sequence_classifier import SequenceClassifier
    from halfseen.estimators.sparsity_networks import SparsityNormClassifier, SparsityNormRegressor
    from halfseen.estimators.tree_imputer import TreeImputer
    from halfseen.evaluation.sparsity import VSPCurve, vsp_curve
    from halfseen.pooling import (
        Pooled,
        PooledTest,
        likelihood_ratio_test,
        pool,
        pool_chi_squares,
        pool_estimates,
    )
    from halfseen.report.imputation_plot import plot_imputed, plot_trace
    from halfseen.training.checkpoint import checkpoints

__version__ = version("halfseen")
__all__ = [
    "CFNADE",
    "MADE",
    "AutoImpute",
    "AutoImputer",
    "AutoRec",
    "AveragingClassifier",
    "AveragingRegressor",
    "BoostingClassifier",
    "BoostingRegressor",
    "BootstrapImputer",
    "CircuitClassifier",
    "CircuitImputer",
    "CircuitRegressor",
    "Column",
    "ConvAC",
    "ConvACClassifier",
    "DeMissVAEImputer",
    "Diagnosis",
    "GaussianImputer",
    "GaussianRegressor",
    "HalfseenWarning",
    "ImputeThenClassifier",
    "ImputeThenRegressor",
    "LatentImputer",
    "MIWAEImputer",
    "MVAEImputer",
    "MatrixFactorization",
    "MeanImputer",
    "MissIWAEImputer",
    "MissSIWAEImputer",
    "MissSVAEImputer",
    "MissVAEImputer",
    "MixtureImputer",
    "ModelFileError",
    "MultipleImputation",
    "NeuMissClassifier",
    "NeuMissNetworkClassifier",
    "NeuMissNetworkRegressor",
    "NeuMissRegressor",
    "NotMIWAEImputer",
    "Pooled",
    "PooledTest",
    "RatingEnsemble",
    "Schema",
    "SchemaError",
    "Sensitivity",
    "SequenceClassifier",
    "SparsityNormClassifier",
    "SparsityNormRegressor",
    "SparsityNormalizer",
    "TrainingError",
    "TreeImputer",
    "VSPCurve",
    "checkpoints",
    "config",
    "datasets",
    "describe",
    "likelihood_ratio_test",
    "load",
    "missingness",
    "multiple_imputation",
    "nn",
    "normalise_counts",
    "plot_imputed",
    "plot_trace",
    "pool",
    "pool_chi_squares",
    "pool_estimates",
    "sensitivity",
    "vsp_curve",
]

_MODULES = {
    "data.expression": ("normalise_counts",),
    "data.schema": ("Column", "Schema"),
    "estimators.model_file": ("load",),
    "estimators.multiple": ("MultipleImputation", "multiple_imputation"),
    "departures.result": ("Sensitivity",),
    "departures.sweep": ("sensitivity",),
    "diagnosis.summary": ("Diagnosis", "describe"),
    "evaluation.sparsity": ("VSPCurve", "vsp_curve"),
    "pooling": (
        "Pooled",
        "PooledTest",
        "likelihood_ratio_test",
        "pool",
        "pool_chi_squares",
        "pool_estimates",
    ),
    "report.imputation_plot": ("plot_imputed", "plot_trace"),
    "training.checkpoint": ("checkpoints",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names} | {
    method.class_name: f"estimators.{method.module}" for method in CATALOGUE
}
_PACKAGES = (
    "config", "data", "datasets", "diagnosis", "distributions", "estimators", "evaluation",
    "missingness", "models", "nn", "objectives", "report", "samplers", "training",
)  # fmt: skip


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        """Imports a public name, or a sub-package, when it is first used (PEP 562)."""
        if name not in _MODULE_OF and name not in _PACKAGES:
            raise AttributeError(f"module 'halfseen' has no attribute {name!r}")
        before = (
            random.getstate()
        )  # scikit-learn imports rich, which draws random numbers when it is imported
        if name in _MODULE_OF:
            value = getattr(import_module(f"halfseen.{_MODULE_OF[name]}"), name)
        else:
            value = import_module(f"halfseen.{name}")
        if random.getstate() != before:
            random.setstate(before)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
