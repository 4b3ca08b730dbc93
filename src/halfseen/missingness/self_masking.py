"""Mechanisms by which the probability that a value is removed depends on the value itself (MNAR).

It is a smooth function of the value, or it is one in a region: beyond a threshold or limit, or in a sector.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from halfseen._arrays import Floats, Integers
from halfseen.missingness.base import (
    CellMechanism,
    Rate,
    check_choice,
    check_number,
    check_numbers,
    check_rate,
    like,
    log_bernoulli,
    per_column,
)
from halfseen.missingness.calibration import (
    data_variance,
    gaussian_variance,
    probit_threshold,
    solve_intercept,
    split_at_quantile,
    standardizer,
)
from halfseen.missingness.reading import Columns, OpenTable, Positions

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
    calibration, mean, variance, columns : object
        As of `ProbitSelfMasking`.

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


def column_cells(columns: Integers, x: Tensor, present: Tensor) -> list[Floats]:
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


class RegionMechanism(CellMechanism):
    """Base class of mechanisms whose probability is a step function of the values."""

    @abstractmethod
    def _steps(self, x: Tensor) -> Tensor:
        """Returns the probability that each value in `columns_` is removed, (N, A)."""

    def _cell_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        return log_bernoulli(self._steps(x), observed)


@dataclass(eq=False)
class Threshold(RegionMechanism):
    r"""Removes values above or below a threshold relative to the mean of their column (MNAR).

    .. math:: p(m_j = 1 \mid x) = q \cdot 1[x_j > \mu_j + o\, \sigma_j]

    The threshold is computed from the fitted table and applies to all later tables. The rate follows from the
    threshold; see `expected_rate_`.

    Parameters
    ----------
    offset : float, default=0.0
        The offset :math:`o` from the mean, in standard deviations. With ``side="below"`` the threshold is
        :math:`\mu_j - o\,\sigma_j`.
    side : {"above", "below"}, default="above"
        Whether values above or below the threshold are removed.
    chance : float, default=1.0
        The probability :math:`q` that a value beyond the threshold is removed.
    columns : names or positions, optional
        The columns in which values may be removed. By default all columns, except text without an order.

    References
    ----------
    Ipsen, Mattei & Frellsen (2021), not-MIWAE: above the mean, in the first half of the columns.

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [6.0]])
    >>> Threshold().fit(X).amputate(X).ravel()
    array([ 1.,  2., nan])
    """

    offset: float = 0.0
    side: Literal["above", "below"] = "above"
    chance: float = 1.0
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_number("offset", self.offset)
        check_choice("side", self.side, ("above", "below"))
        check_number("chance", self.chance, 0.0, 1.0)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        cells = column_cells(self.columns_, x, present)
        moments = np.array([standardizer(values) for values in cells]).reshape(-1, 2)
        sign = 1.0 if self.side == "above" else -1.0
        spread = np.array([0.0 if len(v) == 0 or v.min() == v.max() else 1.0 for v in cells])
        self.thresholds_ = moments[:, 0] + sign * self.offset * moments[:, 1] * spread

    def _steps(self, x: Tensor) -> Tensor:
        sign = 1.0 if self.side == "above" else -1.0
        beyond = sign * (x[:, self.columns_] - like(x, self.thresholds_)) > 0.0
        return beyond.to(x.dtype) * self.chance


@dataclass(eq=False)
class QuantileCensoring(RegionMechanism):
    r"""Removes the largest values of a column, the smallest, or both tails (MNAR).

    .. math:: p(m_j = 1 \mid x) = 1[x_j > t_j] + q_j\, 1[x_j = t_j]

    :math:`t_j` is the quantile of the fitted column for the requested rate. Values that are tied at
    :math:`t_j`, as in binary columns and counts, are each removed with the probability :math:`q_j` that makes
    the rate exact. With both tails, each tail has half the rate.

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of values that is removed: one number for all columns, or one for each.
    tail : {"upper", "lower", "both"}, default="upper"
        Which tail is removed.
    columns : names or positions, optional
        The columns in which values may be removed. By default all columns, except text without an order.

    Attributes
    ----------
    upper_, lower_ : arrays of shape (A, 2)
        Threshold and probability at the threshold of each tail.

    Examples
    --------
    >>> X = np.arange(10.0)[:, None]
    >>> QuantileCensoring(rate=0.4, tail="both").fit(X).amputate(X, random_state=0).ravel()
    array([nan, nan,  2.,  3.,  4.,  5.,  6.,  7., nan, nan])
    """

    rate: Rate = 0.3
    tail: Literal["upper", "lower", "both"] = "upper"
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_choice("tail", self.tail, ("upper", "lower", "both"))

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        rates = per_column("rate", self.rate, len(self.columns_))
        cells = column_cells(self.columns_, x, present)
        share = {"upper": (1.0, 0.0), "lower": (0.0, 1.0), "both": (0.5, 0.5)}[self.tail]
        upper = [
            split_at_quantile(values, share[0] * rate) for values, rate in zip(cells, rates, strict=True)
        ]
        lower = [
            split_at_quantile(-values, share[1] * rate) for values, rate in zip(cells, rates, strict=True)
        ]
        self.upper_ = np.array(upper).reshape(-1, 2)
        self.lower_ = np.array(lower).reshape(-1, 2) * [-1.0, 1.0]

    def _steps(self, x: Tensor) -> Tensor:
        values = x[:, self.columns_]
        top, at_top = like(x, self.upper_[:, 0]), like(x, self.upper_[:, 1])
        bottom, at_bottom = like(x, self.lower_[:, 0]), like(x, self.lower_[:, 1])
        p = torch.where(values > top, 1.0, torch.where(values == top, at_top, 0.0))
        p = p + torch.where(values < bottom, 1.0, torch.where(values == bottom, at_bottom, 0.0))
        return p.to(x.dtype).clamp(max=1.0)


@dataclass(eq=False)
class DetectionLimit(RegionMechanism):
    r"""Removes values below a lower or above an upper detection limit, as an instrument does (MNAR).

    .. math:: p(m_j = 1 \mid x) = 1[x_j < \ell_j \text{ or } x_j > u_j]

    Parameters
    ----------
    lower, upper : float or mapping, optional
        The limits in the units of the columns; a mapping gives them by name or position. At least one of the
        two is required.
    columns : names or positions, optional
        The columns to which limits given as a single number apply; all by default. Limits given as mappings
        name their columns.

    Examples
    --------
    >>> X = np.array([[0.2, 5.0], [0.7, 9.0]])
    >>> DetectionLimit(lower={0: 0.5}, upper={1: 8.0}).fit(X).amputate(X)
    array([[nan, 5. ],
           [0.7, nan]])
    """

    lower: Any = None
    upper: Any = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        if self.lower is None and self.upper is None:
            raise ValueError("DetectionLimit needs lower or upper, got neither.")
        if self.columns is not None and any(isinstance(limit, Mapping) for limit in (self.lower, self.upper)):
            raise ValueError(
                "Limits given as a mapping name their columns, so columns must be None, got "
                f"{self.columns!r}."
            )

    def _choose_columns(self, table: OpenTable) -> Positions:
        limits = [limit for limit in (self.lower, self.upper) if limit is not None]
        if all(isinstance(limit, Mapping) for limit in limits):
            named = [table.positions(list(limit), "lower or upper") for limit in limits]
            return np.unique(np.concatenate(named))
        return super()._choose_columns(table)

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        self.lower_ = self._limits(self.lower, -np.inf, "lower")
        self.upper_ = self._limits(self.upper, np.inf, "upper")
        for j, low, high in zip(self.columns_.tolist(), self.lower_, self.upper_, strict=True):
            if low > high:
                name = self._coder.names[j]
                raise ValueError(f"Column {name!r}: lower limit {low:g} is above upper limit {high:g}.")

    def _limits(self, limit: Any, otherwise: float, parameter: str) -> Any:
        limits: Mapping[int, Any]
        if isinstance(limit, Mapping):
            limits = {self._position(column): value for column, value in limit.items()}
        else:
            limits = {} if limit is None else dict.fromkeys(self.columns_.tolist(), limit)
        codes = [
            self._coder.code_of(j, limits[j], parameter) if j in limits else otherwise
            for j in self.columns_.tolist()
        ]
        if np.isnan(codes).any():
            raise ValueError(f"{parameter} must contain numbers, got {limit!r}.")
        return np.array(codes, dtype=np.float64)

    def _position(self, column: Any) -> int:
        if self._coder.framed and str(column) in self._coder.names:
            return self._coder.names.index(str(column))
        return int(column) % self._coder.n_features

    def _steps(self, x: Tensor) -> Tensor:
        values = x[:, self.columns_]
        return ((values < like(x, self.lower_)) | (values > like(x, self.upper_))).to(x.dtype)


@dataclass(eq=False)
class AngularSector(RegionMechanism):
    r"""Removes a coordinate of points whose angle lies in a sector, for ring-shaped data (MNAR).

    .. math:: p(m_j = 1 \mid x) = 1[\operatorname{atan2}(x_b - c_b, x_a - c_a) \in [\alpha, \beta]]

    Parameters
    ----------
    columns : names or positions, default=0
        The columns whose values are removed.
    start, stop : float, default=pi / 4 and 3 pi / 4
        The angles :math:`\alpha` and :math:`\beta` in radians, counter-clockwise from the first axis. The
        sector may include :math:`\pi`.
    axes : pair of columns, default=(0, 1)
        The two coordinates :math:`a` and :math:`b`.
    centre : pair of float, default=(0.0, 0.0)
        The origin of the angles.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> AngularSector().fit(X).sample(X)[:, 0]
    array([ True, False,  True])
    """

    columns: Columns | None = 0
    start: float = np.pi / 4
    stop: float = 3 * np.pi / 4
    axes: tuple[str | int, str | int] = (0, 1)
    centre: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        check_number("start", self.start)
        check_number("stop", self.stop, self.start, self.start + 2 * np.pi)
        check_numbers("centre", self.centre)
        if isinstance(self.axes, str) or len(self.axes) != 2 or len(self.centre) != 2:
            raise ValueError(f"axes and centre must be pairs, got {self.axes!r} and {self.centre!r}.")

    def _reads(self, table: OpenTable) -> Positions:
        self.axes_ = table.positions(self.axes, "axes")
        return self.axes_

    def _prepare(self, x: Tensor, present: Tensor) -> Tensor:
        return x  # NaN: a point with a missing coordinate is in no sector

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        pass  # the sector is a parameter

    def _steps(self, x: Tensor) -> Tensor:
        across, up = (x[:, j] - c for j, c in zip(self.axes_.tolist(), self.centre, strict=True))
        angle = torch.atan2(up, across)
        turned = torch.remainder(angle - self.start, 2 * np.pi)
        inside = turned <= self.stop - self.start
        return inside.to(x.dtype)[:, None].expand(-1, len(self.columns_))
