"""Machine learning on data with holes: impute with honest uncertainty, predict in spite of missing values."""

from importlib.metadata import version

from halfseen import datasets, missingness
from halfseen.data.schema import Column, Schema
from halfseen.errors import HalfseenWarning, ModelFileError, SchemaError, TrainingError
from halfseen.estimators.imputers import GaussianImputer, MeanImputer, MixtureImputer
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
from halfseen.estimators.model_file import load
from halfseen.estimators.neumiss import NeuMissClassifier, NeuMissRegressor
from halfseen.estimators.predictors import GaussianRegressor
from halfseen.evaluation.diagnosis import Diagnosis, describe
from halfseen.evaluation.pooling import Pooled, pool

__version__ = version("halfseen")
__all__ = [
    "Column",
    "DeMissVAEImputer",
    "Diagnosis",
    "GaussianImputer",
    "GaussianRegressor",
    "HalfseenWarning",
    "LatentImputer",
    "MIWAEImputer",
    "MVAEImputer",
    "MeanImputer",
    "MissIWAEImputer",
    "MissSIWAEImputer",
    "MissSVAEImputer",
    "MissVAEImputer",
    "MixtureImputer",
    "ModelFileError",
    "NeuMissClassifier",
    "NeuMissRegressor",
    "NotMIWAEImputer",
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
