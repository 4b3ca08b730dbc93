"""Machine learning on data with holes: impute with honest uncertainty, predict in spite of missing values."""

from importlib.metadata import version

from halfseen import datasets, missingness
from halfseen.data.schema import Column, Schema
from halfseen.errors import HalfseenWarning, ModelFileError, SchemaError, TrainingError
from halfseen.estimators.imputers import GaussianImputer, MeanImputer, MixtureImputer
from halfseen.estimators.model_file import load
from halfseen.estimators.neumiss import NeuMissClassifier, NeuMissRegressor
from halfseen.estimators.predictors import GaussianRegressor
from halfseen.evaluation.diagnosis import Diagnosis, describe
from halfseen.evaluation.pooling import Pooled, pool

__version__ = version("halfseen")
__all__ = [
    "Column",
    "Diagnosis",
    "GaussianImputer",
    "GaussianRegressor",
    "HalfseenWarning",
    "MeanImputer",
    "MixtureImputer",
    "ModelFileError",
    "NeuMissClassifier",
    "NeuMissRegressor",
    "Pooled",
    "Schema",
    "SchemaError",
    "TrainingError",
    "datasets",
    "describe",
    "load",
    "missingness",
    "pool",
]
