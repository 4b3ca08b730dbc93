"""Describe missing values: where they are, what they are associated with, and whether MCAR is plausible."""

from halfseen.diagnosis.connections import Flux, flux, quick_predictors
from halfseen.diagnosis.drift import compare_missingness
from halfseen.diagnosis.little import LittleTest, little_test
from halfseen.diagnosis.predictability import predict_missingness
from halfseen.diagnosis.summary import Diagnosis, describe

__all__ = [
    "Diagnosis",
    "Flux",
    "LittleTest",
    "compare_missingness",
    "describe",
    "flux",
    "little_test",
    "predict_missingness",
    "quick_predictors",
]
