"""The base class of regressors that standardise their targets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from torch import Tensor

from halfseen.data.scaling import Standardizer
from halfseen.estimators._table import TableEstimator


class ScaledTargetRegressor(RegressorMixin, TableEstimator):
    """A regressor of one or several targets, which it standardises before fitting.

    `fit` sets `_target_scaler`, and `_one_dimensional` to whether the targets were given in one dimension;
    the latter must be in `_saved`.
    """

    _target_scaler: Standardizer
    _one_dimensional: bool

    def _shaped(self, targets: Tensor) -> npt.NDArray[np.float64]:
        """Returns targets (N, T) in the shape in which they were given to `fit`."""
        array: npt.NDArray[np.float64] = targets.numpy()
        return array[:, 0] if self._one_dimensional else array

    def _state(self) -> dict[str, Tensor]:
        scaler = {"target.loc": self._target_scaler.loc, "target.scale": self._target_scaler.scale}
        return super()._state() | scaler

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._target_scaler = Standardizer.checked(state["target.loc"], state["target.scale"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
