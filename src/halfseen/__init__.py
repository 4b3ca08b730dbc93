"""Machine learning on data with missing values: imputation with uncertainty, prediction and diagnosis.

Here are the names that most users need. Presets, research models and single steps are in sub-packages:
`halfseen.latent`, `neumiss`, `circuits`, `ratings`, `sparsity`, `nn`, `missingness`, `datasets`, `diagnosis`,
`evaluation`, `pooling`, `distributed` and `testing`.
"""

import logging
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from halfseen._lazy import import_name, import_quietly
from halfseen.base.catalogue import CATALOGUE
from halfseen.errors import HalfseenWarning, ModelFileError, SchemaError, TrainingError

if TYPE_CHECKING:  # at run time a name is imported when it is first used: torch alone takes seconds
    from halfseen.auto.averaging import AveragingClassifier, AveragingRegressor
    from halfseen.auto.impute_then import ImputeThenClassifier, ImputeThenRegressor
    from halfseen.auto.imputer import AutoImputer
    from halfseen.base.model_file import load
    from halfseen.chained.imputer import ChainedImputer
    from halfseen.circuits.imputer import CircuitImputer
    from halfseen.data.reshaping import to_long, to_wide
    from halfseen.data.scan import scan
    from halfseen.data.schema import Column, Schema
    from halfseen.diagnosis.summary import describe
    from halfseen.files import read_table, write_table
    from halfseen.gaussian.bootstrap import BootstrapImputer
    from halfseen.gaussian.imputer import GaussianImputer, MeanImputer
    from halfseen.gaussian.regressor import GaussianRegressor
    from halfseen.latent.presets import LatentImputer, MIWAEImputer, NotMIWAEImputer
    from halfseen.mixtures.imputer import MixtureImputer
    from halfseen.neumiss.likelihood import NeuMissClassifier, NeuMissRegressor
    from halfseen.pooling.multiple import multiple_imputation
    from halfseen.pooling.repeated import pool
    from halfseen.pooling.sensitivity import sensitivity
    from halfseen.report.figures import plot_imputed, plot_trace
    from halfseen.sequences.classifier import SequenceClassifier
    from halfseen.training.checkpoint import checkpoints
    from halfseen.training.gradients import data_parallel, mixed_precision
    from halfseen.trees.boosting import BoostingClassifier, BoostingRegressor
    from halfseen.trees.imputer import TreeImputer

# Nothing is shown unless the user asks for it.
logging.getLogger("halfseen").addHandler(logging.NullHandler())
__version__ = version("halfseen")
__all__ = [
    "AutoImputer",
    "AveragingClassifier",
    "AveragingRegressor",
    "BoostingClassifier",
    "BoostingRegressor",
    "BootstrapImputer",
    "ChainedImputer",
    "CircuitImputer",
    "Column",
    "GaussianImputer",
    "GaussianRegressor",
    "HalfseenWarning",
    "ImputeThenClassifier",
    "ImputeThenRegressor",
    "LatentImputer",
    "MIWAEImputer",
    "MeanImputer",
    "MixtureImputer",
    "ModelFileError",
    "NeuMissClassifier",
    "NeuMissRegressor",
    "NotMIWAEImputer",
    "Schema",
    "SchemaError",
    "SequenceClassifier",
    "TrainingError",
    "TreeImputer",
    "checkpoints",
    "config",
    "data_parallel",
    "datasets",
    "describe",
    "load",
    "missingness",
    "mixed_precision",
    "multiple_imputation",
    "plot_imputed",
    "plot_trace",
    "pool",
    "read_table",
    "scan",
    "sensitivity",
    "to_long",
    "to_wide",
    "write_table",
]

_MODULES = {
    "base.model_file": ("load",),
    "data.reshaping": ("to_long", "to_wide"),
    "data.scan": ("scan",),
    "data.schema": ("Column", "Schema"),
    "diagnosis.summary": ("describe",),
    "files": ("read_table", "write_table"),
    "pooling.multiple": ("multiple_imputation",),
    "pooling.repeated": ("pool",),
    "pooling.sensitivity": ("sensitivity",),
    "report.figures": ("plot_imputed", "plot_trace"),
    "training.checkpoint": ("checkpoints",),
    "training.gradients": ("data_parallel", "mixed_precision"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names} | {
    method.class_name: method.module for method in CATALOGUE if method.class_name in __all__
}
_IN_PACKAGES = {method.class_name: method.module.split(".")[0] for method in CATALOGUE} | {
    name: package
    for package, names in {
        "diagnosis": ("Diagnosis", "LittleTest", "compare_missingness", "little_test"),
        "evaluation": ("Comparison", "VSPCurve", "compare", "vsp_curve"),
        "nn": ("Incomplete",),
        "pooling": (
            "MultipleImputation", "Pooled", "PooledTest", "Sensitivity", "likelihood_ratio_test",
            "pool_chi_squares", "pool_estimates",
        ),
        "ratings": ("normalise_counts",),
    }.items()
    for name in names
}  # fmt: skip
"""Names that are public in a sub-package, so that an error can say where they are."""


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        """Imports a public name, or a sub-package, when it is first used (PEP 562)."""
        if name in _MODULE_OF:
            value = import_name(_MODULE_OF[name], name)
        elif not name.startswith("_") and find_spec(f"halfseen.{name}") is not None:  # a sub-package
            value = import_quietly(f"halfseen.{name}")
        elif name in _IN_PACKAGES:
            package = f"halfseen.{_IN_PACKAGES[name]}"
            raise AttributeError(f"halfseen.{name} is in {package}: from {package} import {name}")
        else:
            raise AttributeError(f"module 'halfseen' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
