"""Self-masking mechanisms: the probability that a value is removed depends on the value itself (MNAR)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.missingness.base import (
    CellMechanism,
    Rate,
    check_choice,
    check_number,
    check_numbers,
    check_rate,
    like,
    per_column,
)
from halfseen.missingness.calibration import (
    data_variance,
    gaussian_variance,
    probit_threshold,
    solve_intercept,
    standardizer,
)
from halfseen.missingness.reading import Columns

Floats = npt.NDArray[np.float64]
Calibration = Literal["data", "gaussian"]
Numbers = float | Sequence[float]


@dataclass(eq=False)
class LogisticSelfMasking(CellMechanism):
    r"""Removes values with a probability that is a logistic function of the value (MNAR).

    .. math:: p(m_j = 1 \mid x) = \operatorname{sigmoid}\!\Big(s_j \frac{x_j - \mu_j}{\sigma_j} + b_j\Big)

    Mean and standard deviation are those of the fitted column. The intercept :math:`b_j` is solved for each
    column separately, so that the mean probability over its values is the rate.

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of values that is removed: one number for all columns, or one for each.
    steepness : float or sequence of float, default=2.0
        The change of the log odds per standard deviation. Large values are removed more often if it is
        positive, small values if it is negative.
    columns : names or positions, optional
        The columns in which values may be removed. By default all columns, except text without an order.

    References
    ----------
    Muzellec et al. (2020), Missing data imputation using optimal transport. Their simulator solves one
    intercept for all columns together and therefore does not meet the rate of each column.

    Examples
    --------
    >>> X = np.exp(np.random.default_rng(0).normal(size=(10_000, 2)) * [1.0, 2.0]) * [1.0, 1000.0]
    >>> mechanism = LogisticSelfMasking(rate=0.3).fit(X)
    >>> (1 - mechanism.sample(X, random_state=0).mean(axis=0)).round(2)
    array([0.3, 0.3])
    """

    _squares = True

    rate: Rate = 0.3
    steepness: Numbers = 2.0
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_numbers("steepness", self.steepness)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        rates = per_column("rate", self.rate, len(self.columns_))
        slopes = per_column("steepness", self.steepness, len(self.columns_))
        cells = column_cells(self.columns_, x, present)
        moments = np.array([standardizer(values) for values in cells]).reshape(-1, 2)
        self.means_, self.scales_, self.slopes_ = moments[:, 0], moments[:, 1], slopes
        self.intercepts_ = np.array(
            [
                solve_intercept(slope * (values - mean) / scale, rate)
                for values, slope, rate, (mean, scale) in zip(cells, slopes, rates, moments, strict=True)
            ]
        )

    def _cell_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        z = (x[:, self.columns_] - like(x, self.means_)) / like(x, self.scales_)
        logit = like(x, self.slopes_) * z + like(x, self.intercepts_)
        return torch.nn.functional.logsigmoid(torch.where(observed, -logit, logit))


@dataclass(eq=False)
class ProbitSelfMasking(CellMechanism):
    r"""Removes values with a probability that is a probit function of the value (MNAR).

    .. math:: p(m_j = 1 \mid x) = \Phi(\lambda_j x_j - c_j)

    With ``calibration="data"``, the threshold :math:`c_j` is chosen so that the mean probability over the
    fitted values of the column is the rate. With ``"gaussian"`` it is the closed form for
    :math:`x_j \sim \mathcal{N}(\mu_j, \sigma_j^2)`,

    .. math:: c_j = \lambda_j \mu_j - \Phi^{-1}(r) \sqrt{1 + \lambda_j^2 \sigma_j^2} .

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of values that is removed: one number for all columns, or one for each.
    slope : float or sequence of float, default=1.0
        The slope :math:`\lambda_j`, per standard deviation of the column or per unit (see `standardize`).
    standardize : bool, default=True
        Whether `slope` is per standard deviation of the column; otherwise it is per unit.
    calibration : {"data", "gaussian"}, default="data"
        Whether the rate is met on the fitted values, or for a Gaussian with their mean and variance.
    mean, variance : float or sequence of float, optional
        Known moments of the columns, used instead of those of the fitted values.
    columns : names or positions, optional
        The columns in which values may be removed. By default all columns, except text without an order.

    Attributes
    ----------
    slopes_, thresholds_ : arrays of shape (A,)
        :math:`\lambda_j` per unit and :math:`c_j` of the affected columns.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, whose simulations are ``ProbitSelfMasking(rate=0.5, slope=0.5,
    standardize=False, calibration="gaussian")``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(10_000, 1))
    >>> mechanism = ProbitSelfMasking(rate=0.3).fit(X)
    >>> round(float(mechanism.probability(X).mean()), 12)
    0.3
    """

    _squares = True

    rate: Rate = 0.3
    slope: Numbers = 1.0
    standardize: bool = True
    calibration: Calibration = "data"
    mean: Numbers | None = None
    variance: Numbers | None = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_numbers("slope", self.slope)
        _check_moments(self.calibration, self.mean, self.variance)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        rates = per_column("rate", self.rate, len(self.columns_))
        cells = column_cells(self.columns_, x, present)
        means, variances = _moments(cells, self.mean, self.variance)
        scales = np.sqrt(variances) if self.standardize else np.ones(len(cells))
        self.slopes_ = per_column("slope", self.slope, len(cells)) / scales
        if self.calibration == "gaussian":
            thresholds = [
                probit_threshold(*settings)
                for settings in zip(rates, self.slopes_, means, variances, strict=True)
            ]
        else:
            thresholds = [
                -solve_intercept(slope * values, rate, "probit")
                for values, slope, rate in zip(cells, self.slopes_, rates, strict=True)
            ]
        self.thresholds_ = np.array(thresholds)

    def _cell_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        score = like(x, self.slopes_) * x[:, self.columns_] - like(x, self.thresholds_)
        log_p: Tensor = torch.special.log_ndtr(torch.where(observed, -score, score))
        return log_p


@dataclass(eq=False)
class GaussianSelfMasking(CellMechanism):
    r"""Removes values near a centre, with a bell-shaped probability (MNAR).

    .. math:: p(m_j = 1 \mid x) = K_j \exp\Big(-\frac{(x_j - \tilde\mu_j)^2}{2 \tilde\sigma_j^2}\Big),
        \qquad \tilde\mu_j = \mu_j + k \sigma_j, \quad \tilde\sigma_j^2 = \tau_j \sigma_j^2

    The relative variance :math:`\tau_j` is chosen to meet the rate: over the fitted values of the column with
    ``calibration="data"``, and with ``"gaussian"`` by

    .. math:: K \sqrt{\tfrac{\tau}{1+\tau}}\; e^{-k^2 / 2(1+\tau)} = r .

    Under a Gaussian model, the removed values are again Gaussian given the observed ones, with the centre
    acting as a noisy observation. The Bayes predictor is therefore available in closed form.

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of values that is removed: one number for all columns, or one for each.
    shift : float, default=2.0
        The distance :math:`k` of the centre from the mean, in standard deviations.
    amplitude : float, default=1.0
        The probability :math:`K` at the centre; it must exceed the rate. A column of which more values than
        requested lie exactly at the centre, such as a constant column with ``shift=0``, gets a smaller one.
    calibration : {"data", "gaussian"}, default="data"
        Whether the rate is met on the fitted values, or for a Gaussian with their mean and variance.
    mean, variance : float or sequence of float, optional
        Known moments of the columns, used instead of those of the fitted values.
    columns : names or positions, optional
        The columns in which values may be removed. By default all columns, except text without an order.

    Attributes
    ----------
    centres_, variances_, amplitudes_ : arrays of shape (A,)
        :math:`\tilde\mu_j`, :math:`\tilde\sigma_j^2` and :math:`K_j` of the affected columns.

    References
    ----------
    Le Morvan et al. (2020), NeuMiss networks, assumption 4 and proposition 2.2; their simulations have
    ``rate=0.5, shift=2, calibration="gaussian"``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(5.0, 3.0, size=(10_000, 1))
    >>> mechanism = GaussianSelfMasking(rate=0.5, calibration="gaussian", mean=5.0, variance=9.0).fit(X)
    >>> mechanism.centres_, mechanism.variances_.round(4)
    (array([11.]), array([24.528]))
    """

    _squares = True

    rate: Rate = 0.3
    shift: float = 2.0
    amplitude: float = 1.0
    calibration: Calibration = "data"
    mean: Numbers | None = None
    variance: Numbers | None = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_number("shift", self.shift)
        check_number("amplitude", self.amplitude, 0.0, 1.0)
        largest = float(np.max(self.rate, initial=0.0))
        if 0.0 < largest < 1.0 and self.amplitude <= largest:
            raise ValueError(
                f"amplitude must exceed the rate, got {self.amplitude!r} with rate {self.rate!r}."
            )
        if largest == 1.0 and self.amplitude < 1.0:
            raise ValueError(f"amplitude must be 1 for a rate of 1, got {self.amplitude!r}.")
        _check_moments(self.calibration, self.mean, self.variance)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        rates = per_column("rate", self.rate, len(self.columns_)) / (self.amplitude or 1.0)
        cells = column_cells(self.columns_, x, present)
        means, variances = _moments(cells, self.mean, self.variance)
        scales = np.sqrt(variances)
        solved = [(gaussian_variance(rate, self.shift), 1.0) for rate in rates]
        if self.calibration == "data":
            solved = [
                data_variance((values - mean) / scale, rate, self.shift)
                for values, mean, scale, rate in zip(cells, means, scales, rates, strict=True)
            ]
        widths, shares = np.array(solved).reshape(-1, 2).T
        self.centres_ = means + self.shift * scales
        self.variances_ = widths * variances
        self.amplitudes_ = np.where(rates > 0.0, self.amplitude * shares, 0.0)

    def _cell_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        # A width of zero or infinity belongs to a rate of 0 or 1, where only the amplitude matters.
        narrow = np.where(np.isfinite(self.variances_) & (self.variances_ > 0), self.variances_, np.inf)
        distance = (x[:, self.columns_] - like(x, self.centres_)) ** 2 / like(x, 2.0 * narrow)
        log_hidden = like(x, self.amplitudes_).log() - distance
        safe = torch.where(observed, log_hidden, -1.0)  # at the centre the logarithm below has no gradient
        return torch.where(observed, torch.log(-torch.expm1(safe)), log_hidden)


def column_cells(columns: npt.NDArray[np.int64], x: Tensor, present: Tensor) -> list[Floats]:
    """Returns the values of each column that are not missing."""
    return [x[present[:, j], j].numpy() for j in columns.tolist()]


def _moments(cells: list[Floats], mean: Numbers | None, variance: Numbers | None) -> tuple[Floats, Floats]:
    found = np.array([standardizer(values) for values in cells]).reshape(-1, 2)
    means = found[:, 0] if mean is None else per_column("mean", mean, len(cells))
    return means, found[:, 1] ** 2 if variance is None else per_column("variance", variance, len(cells))


def _check_moments(calibration: str, mean: Numbers | None, variance: Numbers | None) -> None:
    check_choice("calibration", calibration, ("data", "gaussian"))
    if mean is not None:
        check_numbers("mean", mean)
    if variance is not None:
        check_numbers("variance", variance, low=np.finfo(np.float64).tiny)
