"""Mechanisms that remove values from tables and images, at a given rate in every column.

A mechanism is calibrated once with `fit` and can then be applied to training and test tables: `sample` draws
a mask, `amputate` returns the table with missing values, and `log_prob` returns the log probability of a mask
given the values.
"""

from halfseen.missingness.base import ByColumn, Compose, Mechanism
from halfseen.missingness.images import Disc, IIDPixels, Quadrants, Rectangles
from halfseen.missingness.logistic import Learned, MARLogistic, learn
from halfseen.missingness.mcar import MCAR, FeatureDeletion
from halfseen.missingness.self_masking import (
    AngularSector,
    DetectionLimit,
    GaussianSelfMasking,
    LogisticSelfMasking,
    ProbitSelfMasking,
    QuantileCensoring,
    Threshold,
)
from halfseen.missingness.structured import MonotoneDropout, SkipPattern

__all__ = [
    "MCAR",
    "AngularSector",
    "ByColumn",
    "Compose",
    "DetectionLimit",
    "Disc",
    "FeatureDeletion",
    "GaussianSelfMasking",
    "IIDPixels",
    "Learned",
    "LogisticSelfMasking",
    "MARLogistic",
    "Mechanism",
    "MonotoneDropout",
    "ProbitSelfMasking",
    "Quadrants",
    "QuantileCensoring",
    "Rectangles",
    "SkipPattern",
    "Threshold",
    "learn",
]
