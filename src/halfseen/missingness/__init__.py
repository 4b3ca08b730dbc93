"""Mechanisms that remove values from tables and images, at a given rate in every column.

A mechanism is calibrated once with `fit` and can then be applied to training and test tables: `sample` draws
a mask, `amputate` returns the table with missing values, and `log_prob` returns the log probability of a mask
given the values.
"""

from halfseen.missingness.base import Mechanism
from halfseen.missingness.censoring import AngularSector, DetectionLimit, QuantileCensoring, Threshold
from halfseen.missingness.compose import ByColumn, Compose
from halfseen.missingness.images import Disc, IIDPixels, Quadrants, Rectangles
from halfseen.missingness.learned import Learned, learn
from halfseen.missingness.logistic import MARLogistic
from halfseen.missingness.mcar import MCAR, FeatureDeletion
from halfseen.missingness.self_masking import GaussianSelfMasking, LogisticSelfMasking, ProbitSelfMasking
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
