"""Scores of imputations, and comparisons of methods on removed values."""

from halfseen.evaluation.candidates import OnNumbers
from halfseen.evaluation.comparison import Comparison
from halfseen.evaluation.energy import energy_distance, energy_i_score, sliced_wasserstein
from halfseen.evaluation.protocol import compare
from halfseen.evaluation.scores import (
    accuracy,
    coverage,
    crps_draws,
    crps_gaussian,
    downstream_score,
    interval_score,
    log_loss,
    mae,
    r2_minus_bayes,
    rmse,
    width,
)
from halfseen.evaluation.sparsity import VSPCurve, vsp_curve

__all__ = [
    "Comparison",
    "OnNumbers",
    "VSPCurve",
    "accuracy",
    "compare",
    "coverage",
    "crps_draws",
    "crps_gaussian",
    "downstream_score",
    "energy_distance",
    "energy_i_score",
    "interval_score",
    "log_loss",
    "mae",
    "r2_minus_bayes",
    "rmse",
    "sliced_wasserstein",
    "vsp_curve",
    "width",
]
