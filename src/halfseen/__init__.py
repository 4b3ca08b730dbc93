"""Machine learning on data with missing values: imputation with uncertainty, prediction and diagnosis."""

import random
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from halfseen.base.catalogue import CATALOGUE
from halfseen.errors import HalfseenWarning, ModelFileError, SchemaError, TrainingError

if TYPE_CHECKING:  # at run time a name is imported when it is first used: torch alone takes seconds
    from halfseen.auto.averaging import AveragingClassifier, AveragingRegressor
    from halfseen.auto.impute_then import ImputeThenClassifier, ImputeThenRegressor
    from halfseen.auto.imputer import AutoImputer
    from halfseen.base.model_file import load
    from halfseen.circuits.convac import ConvAC, ConvACClassifier
    from halfseen.circuits.imputer import CircuitImputer
    from halfseen.circuits.predictors import CircuitClassifier, CircuitRegressor
    from halfseen.data.schema import Column, Schema
    from halfseen.diagnosis.summary import Diagnosis, describe
    from halfseen.evaluation.sparsity import VSPCurve, vsp_curve
    from halfseen.gaussian.bootstrap import BootstrapImputer
    from halfseen.gaussian.imputer import GaussianImputer, MeanImputer
    from halfseen.gaussian.regressor import GaussianRegressor
    from halfseen.latent.presets import (
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
    from halfseen.mixtures.imputer import MixtureImputer
    from halfseen.neumiss.likelihood import NeuMissClassifier, NeuMissRegressor
    from halfseen.neumiss.networks import NeuMissNetworkClassifier, NeuMissNetworkRegressor
    from halfseen.pooling import (
        Pooled,
        PooledTest,
        likelihood_ratio_test,
        pool,
        pool_chi_squares,
        pool_estimates,
    )
    from halfseen.pooling.multiple import MultipleImputation, multiple_imputation
    from halfseen.pooling.sensitivity import Sensitivity, sensitivity
    from halfseen.ratings.autoimpute import AutoImpute
    from halfseen.ratings.autorec import AutoRec
    from halfseen.ratings.cfnade import CFNADE
    from halfseen.ratings.ensemble import RatingEnsemble
    from halfseen.ratings.expression import normalise_counts
    from halfseen.ratings.matrix_factorization import MatrixFactorization
    from halfseen.report.imputation_plot import plot_imputed, plot_trace
    from halfseen.sequences.classifier import SequenceClassifier
    from halfseen.sparsity.made import MADE
    from halfseen.sparsity.networks import SparsityNormClassifier, SparsityNormRegressor
    from halfseen.sparsity.normalizer import SparsityNormalizer
    from halfseen.training.checkpoint import checkpoints
    from halfseen.trees.boosting import BoostingClassifier, BoostingRegressor
    from halfseen.trees.imputer import TreeImputer

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
    "ratings.expression": ("normalise_counts",),
    "data.schema": ("Column", "Schema"),
    "base.model_file": ("load",),
    "pooling.multiple": ("MultipleImputation", "multiple_imputation"),
    "pooling.sensitivity": ("Sensitivity", "sensitivity"),
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
    method.class_name: method.module for method in CATALOGUE
}
_PACKAGES = (
    "auto", "base", "circuits", "cli", "config", "data", "datasets", "diagnosis", "distributions",
    "evaluation", "files", "gaussian", "latent", "missingness", "mixtures", "neumiss", "nn", "pooling",
    "ratings", "report", "sequences", "sparsity", "training", "trees",
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
