"""Missing at random, by logistic regression on a few columns that stay observed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._random import seed_from, torch_generator
from halfseen.missingness.base import (
    CellMechanism,
    Rate,
    check_number,
    check_numbers,
    check_rate,
    like,
    per_column,
)
from halfseen.missingness.calibration import solve_intercept, standardizer
from halfseen.missingness.reading import Columns, OpenTable, Positions

Floats = npt.NDArray[np.float64]


@dataclass(eq=False)
class MARLogistic(CellMechanism):
    r"""Removes values by logistic regression on columns that stay observed (MAR).

    .. math:: p(m_j = 1 \mid x) = \operatorname{sigmoid}(w_j^\top z_O + b_j), \qquad j \notin O

    :math:`z_O` are the columns of the subset, standardised. The weights are Gaussian, scaled so that the log
    odds have the standard deviation `steepness` on the fitted table; the intercept is solved for each column
    so that the mean probability over its cells is the rate. Subset, weights and intercepts are drawn once, in
    `fit`.

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of values that is removed: one number for all affected columns, or one for each.
    predictors : names or positions, optional
        The columns that the probability depends on; they stay observed. By default some columns are drawn at
        random, from those that are complete and not constant if there are any.
    predictor_share : float, default=0.1
        The fraction of all columns that is drawn if `predictors` are not given; at least one column.
    steepness : float or pair of float, default=(2.0, 10.0)
        The standard deviation of the log odds. For a pair (low, high), each column draws its own, with
        1 / steepness uniform between 1 / high and 1 / low.
    standardize : bool, default=True
        Whether the weights apply to standardised columns. Otherwise columns on a small scale have little
        influence.
    columns : names or positions, optional
        The columns in which values may be removed; by default all except the predictors.
    random_state : None, int or numpy generator, default=0
        Seeds the choice of the predictors and the weights. With the default, the same table gives the same
        mechanism.

    Attributes
    ----------
    predictors_ : array of int
        The positions of the predictors.
    weights_ : array of shape (O, A)
        Log odds of the A affected columns per unit of the O predictors.
    intercepts_ : array of shape (A,)

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks: ``MARLogistic(rate=0.5, standardize=False)``. There the
    mechanism is drawn again for every chunk of rows; here it is drawn once.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> train, test = rng.lognormal(size=(10_000, 3)), rng.lognormal(size=(10_000, 3))
    >>> mechanism = MARLogistic(rate=0.3, predictors=[0]).fit(train)
    >>> mechanism.sample(test, random_state=0).mean(axis=0).round(1)
    array([1. , 0.7, 0.7])
    """

    _squares = True

    rate: Rate = 0.3
    predictors: Columns | None = None
    predictor_share: float = 0.1
    steepness: float | tuple[float, float] = (2.0, 10.0)
    standardize: bool = True
    columns: Columns | None = None
    random_state: Any = 0

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_number("predictor_share", self.predictor_share, 0.0, 1.0)
        check_numbers("steepness", self.steepness, 0.0)
        pair = np.ravel(self.steepness)
        if len(pair) > 2 or (len(pair) == 2 and not 0.0 < pair[0] <= pair[1]):
            raise ValueError(f"steepness must be a number or a pair 0 < low <= high, got {self.steepness!r}.")

    def _choose_columns(self, table: OpenTable) -> Positions:
        self._fixed = None if self.predictors is None else table.positions(self.predictors, "predictors")
        if self._fixed is not None and not len(self._fixed):
            raise ValueError(f"predictors must name at least one column, got {self.predictors!r}.")
        everything = np.arange(table.n_features)
        if self._fixed is not None and len(self._fixed) == table.n_features:
            raise ValueError(
                "predictors names every column, but MARLogistic needs a column from which it can remove "
                "values."
            )
        if self.columns is None:
            return everything if self._fixed is None else np.setdiff1d(everything, self._fixed)
        columns = table.positions(self.columns)
        both = np.intersect1d(columns, everything[:0] if self._fixed is None else self._fixed)
        if len(both):
            raise ValueError(f"Column {table.names[both[0]]!r} is in both columns and predictors.")
        if len(columns) == table.n_features:
            raise ValueError(
                "columns names every column, but MARLogistic needs a predictor that stays observed."
            )
        return columns

    def _reads(self, table: OpenTable) -> Positions:
        if self._fixed is not None:
            return self._fixed
        others = np.arange(table.n_features)
        return others if self.columns is None else np.setdiff1d(others, self.columns_)

    def _settle_unreadable(self, table: OpenTable) -> None:
        lost = sorted(self._coder.unreadable)
        if self._fixed is not None and lost:
            raise ValueError(
                f"predictors names {table.names[lost[0]]!r}, text with a different value in nearly every row."
            )

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        generator = torch_generator(seed_from(self.random_state))
        self.predictors_ = self._choose_predictors(x, present, generator)
        self._coder.needed = self.predictors_.tolist()
        self.columns_ = (
            np.setdiff1d(self.columns_, self.predictors_) if self.columns is None else self.columns_
        )
        n_predictors, n_columns = len(self.predictors_), len(self.columns_)
        z = x[:, self.predictors_].numpy()
        moments = [standardizer(z[present[:, j].numpy(), i]) for i, j in enumerate(self.predictors_.tolist())]
        means, scales = np.array(moments).T
        self.means_, units = means, scales if self.standardize else np.ones(n_predictors)

        drawn = torch.randn(n_predictors, n_columns, generator=generator, dtype=torch.float64).numpy()
        centred = z - means
        weights = drawn / units[:, None]
        spread = (centred @ weights).std(axis=0)
        self.weights_ = weights * np.where(spread > 0.0, self._draw_steepness(n_columns, generator), 0.0)
        self.weights_ /= np.where(spread > 0.0, spread, 1.0)

        scores, rates = centred @ self.weights_, per_column("rate", self.rate, n_columns)
        self.intercepts_ = np.array(
            [
                solve_intercept(scores[present[:, j].numpy(), i], rates[i])
                for i, j in enumerate(self.columns_.tolist())
            ]
        )

    def _choose_predictors(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Positions:
        if self._fixed is not None:
            return self._fixed
        candidates = np.array(self._coder.needed)
        varied = [j for j in candidates.tolist() if _varies(x[present[:, j], j])]
        complete = [j for j in varied if bool(present[:, j].all())]
        pool = np.array(complete or varied or candidates.tolist(), dtype=np.int64)
        if not len(pool):
            raise ValueError(
                "MARLogistic found no column that can serve as a predictor; name one by predictors."
            )
        if x.shape[1] == 1:
            raise ValueError(
                "MARLogistic needs at least two columns: a predictor and a column to remove values from."
            )
        wanted = min(max(int(self.predictor_share * x.shape[1]), 1), len(pool), x.shape[1] - 1)
        order = torch.randperm(len(pool), generator=generator).numpy()
        return np.sort(pool[order[:wanted]])

    def _draw_steepness(self, n_columns: int, generator: torch.Generator) -> Floats:
        pair = np.ravel(self.steepness).astype(np.float64)
        if len(pair) == 1:
            return np.full(n_columns, pair[0])
        uniform = torch.rand(n_columns, generator=generator, dtype=torch.float64).numpy()
        drawn: Floats = 1.0 / (1.0 / pair[1] + uniform * (1.0 / pair[0] - 1.0 / pair[1]))
        return drawn

    def _cell_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        centred = x[:, self.predictors_] - like(x, self.means_)
        logit = centred @ like(x, self.weights_) + like(x, self.intercepts_)
        return torch.nn.functional.logsigmoid(torch.where(observed, -logit, logit))


def _varies(cells: Tensor) -> bool:
    return bool(len(cells) and cells.min() < cells.max())
