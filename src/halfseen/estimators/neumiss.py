"""Prediction when any subset of the inputs is missing, whatever the reason."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.scaling import Standardizer
from halfseen.estimators._table import TableEstimator, rows_at_once
from halfseen.estimators.imputers import SMALLEST_SPLIT, em_settings
from halfseen.estimators.model_file import Saveable
from halfseen.models.conditional import ConditionalLaw, RowLaw
from halfseen.nn.ensemble import EnsembleMLP
from halfseen.objectives.supervised import CrossEntropy, Labelled, SquaredError
from halfseen.training.em_self_masked import MISSINGNESS, fit_masked_gaussian
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Progress

TRIAL_ROWS = 4000  # enough to see which model of missingness predicts best
FARTHEST = 6.0  # networks see inputs up to so many standard deviations from the mean
