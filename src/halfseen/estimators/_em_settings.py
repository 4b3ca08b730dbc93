"""EM settings of estimators that fit a Gaussian: parameter checks, and the choice of an "auto" ridge."""

import torch

from halfseen.data.incomplete import Incomplete
from halfseen.estimators._parameters import check_number, check_whole
from halfseen.training.em import EMSettings, choose_shrinkage


def check_ridge(ridge: float | str) -> None:
    """Raises a ValueError if the ridge of an estimator is invalid."""
    if not isinstance(ridge, str) or ridge != "auto":
        check_number("ridge", ridge, lambda v: v >= 0, "'auto' or a number of at least 0")


def em_settings(
    batch: Incomplete, ridge: float | str, max_iter: int, tol: float, generator: torch.Generator
) -> EMSettings:
    """Checks an estimator's parameters, and chooses the ridge if it is "auto"."""
    check_whole("max_iter", max_iter, 1)
    check_number("tol", tol, lambda v: v >= 0, "a number of at least 0")
    check_ridge(ridge)
    if ridge == "auto":
        settings = EMSettings(max_iterations=max_iter, tolerance=tol)
        return choose_shrinkage(batch, settings, generator=generator)
    return EMSettings(max_iter, tol, float(ridge))
