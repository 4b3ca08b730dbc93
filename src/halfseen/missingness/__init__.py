"""Mechanisms that hide cells of tables and images, with the rate asked for in every column.

A mechanism is calibrated once with `fit` and then applied to training and test tables alike: `sample` draws
which cells are seen, `amputate` returns the table with holes, `log_prob` is the probability of a mask given
the values.
"""

from halfseen.missingness.base import Mechanism
from halfseen.missingness.censoring import AngularSector, DetectionLimit, QuantileCensoring, Threshold
from halfseen.missingness.compose import ByColumn, Compose
from halfseen.missingness.deletion import FeatureDeletion
from halfseen.missingness.images import Disc, IIDPixels, Quadrants, Rectangles
from halfseen.missingness.learned import Learned, learn
from halfseen.missingness.logistic import MARLogistic
from halfseen.missingness.mcar import MCAR
from halfseen.missingness.selfmasking import GaussianSelfMasking, LogisticSelfMasking, ProbitSelfMasking
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
