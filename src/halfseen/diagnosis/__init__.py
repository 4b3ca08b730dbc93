"""Describe missing values: where they are, what they are associated with, and whether MCAR is plausible."""

from halfseen.diagnosis.drift import compare_missingness
from halfseen.diagnosis.little import LittleTest, little_test
from halfseen.diagnosis.predictability import predict_missingness
from halfseen.diagnosis.summary import Diagnosis, describe

__all__ = [
    "Diagnosis",
    "LittleTest",
    "compare_missingness",
    "describe",
    "little_test",
    "predict_missingness",
]
