"""Split-conformal intervals: their width is a quantile of the errors of rows not used for fitting."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen.base.capabilities import Capabilities
from halfseen.base.model_file import finite_answer
from halfseen.base.parameters import check_level
from halfseen.base.table import TableEstimator
from halfseen.base.targets import read_number_column
from halfseen.distributions.quantiles import lower_quantiles

N_QUANTILES = 1000  # stored of the errors; a guess: levels are then exact to 0.1%, and model files stay small
HELD_OUT = 0.2  # fraction of the rows by whose errors the width of intervals is chosen; a guess


@dataclass(frozen=True)
class HeldOutErrors:
    """Quantiles of absolute errors, and the number of rows that they come from.

    Errors may be relative to a predicted spread; then so are the half-widths.

    Shapes
    ------
    quantiles : (Q) or (Q, T), increasing
    """

    quantiles: Tensor
    n_rows: int

    @classmethod
    def of(cls, errors: Tensor, weights: Tensor | None = None) -> "HeldOutErrors":
        """Returns what is kept of the errors (N) or (N, T) of held-out rows, which may have weights (N).

        Examples
        --------
        >>> HeldOutErrors.of(torch.tensor([1.0, -3.0, 2.0])).half_width(0.25)
        tensor(2., dtype=torch.float64)
        """
        sizes = errors.abs().to(torch.float64)
        if len(sizes) == 0:
            return cls(sizes, 0)
        every = torch.ones(len(sizes), dtype=torch.float64) if weights is None else weights.double()
        levels = torch.linspace(0, 1, min(N_QUANTILES, len(sizes)), dtype=torch.float64)
        kept = lower_quantiles(sizes.reshape(len(sizes), -1), every, levels)
        return cls(kept.reshape(-1, *sizes.shape[1:]), len(sizes))

    def half_width(self, level: float) -> Tensor:
        """Returns half the width, () or (T), of intervals that contain the target with probability `level`.

        The rank is that of split-conformal prediction: a new row is one more than the held-out rows, so that
        the quantile is taken a little above `level`, at most at the largest error.
        """
        check_level(level)
        rank = min(1.0, level * (1 + 1 / self.n_rows))
        return torch.quantile(self.quantiles, rank, dim=0, interpolation="higher")


class EqualWidthRegressor(RegressorMixin, TableEstimator):
    """A regressor of one number whose intervals all have the same width, by the errors of held-out rows."""

    _errors: HeldOutErrors

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return replace(super().capabilities, predicts="numbers")

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the predicted target of each row."""
        raise NotImplementedError

    @finite_answer
    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Returns the ends of an interval that contains the target of each row with probability `level`.

        All intervals have the same width, given by a quantile of the absolute errors of held-out rows under a
        model that was fitted without them. They are too narrow for rows in which more values are missing than
        in training; those of `NeuMissRegressor` and `CircuitRegressor` become wider. With fewer than 50 rows
        the errors of the training rows are used, and the intervals are too narrow.
        """
        check_is_fitted(self)
        half = float(self._errors.half_width(level))
        predicted = self.predict(X)
        return predicted - half, predicted + half

    def _read_target(self, y: Any, n_rows: int) -> Tensor:
        return read_number_column(y, n_rows, self)

    def _keep_errors(self, errors: Tensor) -> None:
        """Keeps the errors (N) of held-out rows."""
        self._errors = HeldOutErrors.of(errors)
        self._n_errors = self._errors.n_rows

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"errors": self._errors.quantiles}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        self._errors = HeldOutErrors(state["errors"], self._n_errors)
