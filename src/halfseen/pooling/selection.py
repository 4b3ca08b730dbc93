r"""A selection model: missingness that depends on the value and on the other columns of a row.

The value y of a row with covariates x (a constant and the other columns) and its chance to be observed are

.. math:: y \mid x \sim N(x^\top \beta, \sigma^2), \qquad
   P(\text{observed} \mid x, y) = F(x^\top \gamma + \lambda y)

with F the normal or the logistic distribution function. For :math:`\lambda = 0` this is MAR, without
covariates in the second equation self-masking, and with the normal F the model of Heckman with the
correlation :math:`\rho = \lambda \sigma / \sqrt{1 + \lambda^2 \sigma^2}` of the two residuals. It is
identified by the normal shape of the residuals alone, unless there are instruments: columns whose coefficient
in the first equation is zero.

References
----------
Heckman (1976), Annals of Economic and Social Measurement 5; Diggle & Kenward (1994), Applied Statistics 43.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_ndtr, ndtr, ndtri

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data.frames import is_frame
from halfseen.errors import warn_user

Mask = Booleans
LINKS = ("probit", "logistic")
PRIOR = 2.5  # standard deviation of the normal prior of lambda, for a column in standard deviations: a guess
WIDEST = 3 * PRIOR  # the largest dependence on the value that is considered
N_SLOPES = 25  # values of the dependence, denser near 0: a guess
N_FINE = 20_001  # points between them at which densities are interpolated
MOST_STEPS = 500  # of the search for the mode; a few dozen are usual
N_NODES = (
    40  # of the quadrature over missing values; measured: errors up to 3e-8 per row for lambda sigma = 2
)
FARTHEST = 8.0  # standard deviations of the grid on which missing values are drawn
N_GRID = 401  # its points; a guess
_STEP = 1e-5  # of the differences of gradients that give the curvature
_FLAT = 1e-3  # gradient of the log posterior density per row above which the search has failed: a guess


@dataclass(frozen=True)
class SelectionModel:
    """A model of missingness given the value and the other columns, for `sensitivity`.

    Parameters
    ----------
    link : {"probit", "logistic"}, default="probit"
        The distribution function of the chance to be observed. With ``"probit"`` it is the model of Heckman.
    instruments : tuple of str, default=()
        Columns that influence whether a value is observed but, given the other columns, not the value itself,
        such as the interviewer. Without them, the model is identified by the normal shape of residuals alone.

    Examples
    --------
    >>> SelectionModel("logistic", ("interviewer",)).name
    'selection-logistic'
    """

    link: str = "probit"
    instruments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the link."""
        if self.link not in LINKS:
            raise ValueError(f"link must be one of {', '.join(LINKS)}, got {self.link!r}.")

    @property
    def name(self) -> str:
        """The name of the mechanism in results."""
        return "selection" if self.link == "probit" else f"selection-{self.link}"

    @property
    def assumption(self) -> str:
        """What the estimate relies on, as a sentence."""
        found = (
            f"{self.name} assumes that missingness depends on the value and on the other columns of a row, "
            f"linearly on the {self.link} scale, and that the value is linear in the other columns with "
            "normal residuals."
        )
        if not self.instruments:
            return (
                f"{found} The data identify it by this shape alone; if residuals are skewed, its estimate is "
                "biased."
            )
        return (
            f"{found} It also assumes that {', '.join(self.instruments)} influences whether the value is "
            "observed but, given the other columns, not the value itself; the data cannot show whether this "
            "is so."
        )


def probit_likelihood(theta: Floats, x: Floats, y: Floats, observed: Mask) -> tuple[float, Floats]:
    r"""Returns the log-likelihood of observed values and of the mask, and its gradient.

    A missing value is integrated out: :math:`\Phi(-x^\top (\gamma + \lambda \beta) / \sqrt{1 + \lambda^2
    \sigma^2})`.

    Shapes
    ------
    theta : (2 K + 2): beta, log sigma, gamma, lambda
    x : (N, K)
    y, observed : (N), y is read where it is observed
    """
    k = x.shape[1]
    beta, gamma, slope = theta[:k], theta[k + 1 : -1], theta[-1]
    variance = np.exp(2 * theta[k])
    mean, seen = x @ beta, observed
    residual = np.where(seen, y, mean) - mean
    chance = x @ gamma + slope * np.where(seen, y, 0.0)
    spread = np.sqrt(1 + slope**2 * variance)
    score = (x @ gamma + slope * mean) / spread
    argument = np.where(seen, chance, -score)
    log_chance = log_ndtr(argument)
    hazard = np.exp(-(argument**2) / 2 - np.log(2 * np.pi) / 2 - log_chance)
    density = -(residual**2) / (2 * variance) - theta[k] - np.log(2 * np.pi) / 2
    value = float(log_chance.sum() + density[seen].sum())
    lost = np.where(seen, 0.0, hazard)
    shrink = slope * variance / spread**2
    gradient = np.concatenate(
        [
            x.T @ (np.where(seen, residual / variance, 0.0) - lost * slope / spread),
            [float((residual[seen] ** 2 / variance - 1).sum() + (lost * score * slope * shrink).sum())],
            x.T @ (np.where(seen, hazard, 0.0) - lost / spread),
            [float((np.where(seen, hazard * y, 0.0) - lost * (mean / spread - score * shrink)).sum())],
        ]
    )
    return value, gradient


def logistic_likelihood(theta: Floats, x: Floats, y: Floats, observed: Mask) -> tuple[float, Floats]:
    """Returns the same as `probit_likelihood` for a logistic link, with missing values by quadrature."""
    k = x.shape[1]
    gamma, slope, scale = theta[k + 1 : -1], theta[-1], np.exp(theta[k])
    mean, index = x @ theta[:k], x @ gamma
    seen, gone = observed, ~observed
    residual = (y[seen] - mean[seen]) / scale
    chance = index[seen] + slope * y[seen]
    nodes, masses = np.polynomial.hermite_e.hermegauss(N_NODES)
    values = mean[gone, None] + scale * nodes  # (n_missing, K)
    arguments = index[gone, None] + slope * values
    logs = np.log(masses / np.sqrt(2 * np.pi)) + log_expit(-arguments)
    top = logs.max(axis=1, keepdims=True, initial=-np.inf)
    parts = np.exp(logs - top)
    shares = parts / parts.sum(axis=1, keepdims=True)
    value = float(log_expit(chance).sum() - (residual**2 / 2 + theta[k] + np.log(2 * np.pi) / 2).sum())
    value += float((np.log(parts.sum(axis=1)) + top[:, 0]).sum())
    pull = -shares * expit(arguments)  # derivatives by the arguments
    rows, rest = pull.sum(axis=1), expit(-chance)
    gradient = np.concatenate(
        [
            x[seen].T @ (residual / scale) + slope * (x[gone].T @ rows),
            [float((residual**2 - 1).sum() + slope * scale * (pull @ nodes).sum())],
            x[seen].T @ rest + x[gone].T @ rows,
            [float((rest * y[seen]).sum() + (pull * values).sum())],
        ]
    )
    return value, gradient


_LIKELIHOODS = {"probit": probit_likelihood, "logistic": logistic_likelihood}


def draw_selected(
    tables: Sequence[Any],
    position: int,
    rows: Integers,
    rng: np.random.Generator,
    model: SelectionModel,
) -> list[Any]:
    """Returns completed tables whose imputed values of a column are drawn by the selection model.

    The parameters are drawn too: the dependence on the value from its marginal posterior density on a grid,
    which is far from normal because the data say little about it, and the others from the normal
    approximation given it.

    Parameters
    ----------
    tables : sequence of tables
        The completed tables, which differ in other columns only.
    position : int
        The column.
    rows : array of int
        The rows in which it is missing.
    rng : numpy generator
        The source of noise.
    model : SelectionModel
        The model.
    """
    found = []
    before: Floats = np.empty(0)
    posterior = None
    for table in tables:
        x, values, excluded = _covariates(table, position, model.instruments)
        observed = np.ones(len(values), dtype=bool)
        observed[rows] = False
        centre, scale = values[observed].mean(), values[observed].std()
        y = np.where(observed, (values - centre) / scale, 0.0)
        if posterior is None or not np.array_equal(x, before):  # tables that are complete otherwise are alike
            free = np.append(~excluded, np.ones(x.shape[1] + 1, dtype=bool))
            posterior, before = _find_posterior(_LIKELIHOODS[model.link], x, y, observed, free), x
        theta = posterior.draw(rng)
        drawn = (_draw_probit if model.link == "probit" else _draw_logistic)(theta, x[rows], rng)
        found.append(_written(table, position, rows, centre + scale * drawn))
    return found


def _draw_probit(theta: Floats, x: Floats, rng: np.random.Generator) -> Floats:
    """Returns missing values of rows (R, K)."""
    k = x.shape[1]
    variance, slope = np.exp(2 * theta[k]), theta[-1]
    mean = x @ theta[:k]
    spread = np.sqrt(1 + slope**2 * variance)
    location = x @ theta[k + 1 : -1] + slope * mean
    # a missing value has a latent response below zero: draw that, then the value given the response
    limit = np.maximum(ndtr(-location / spread), 1e-300)
    response = location + spread * ndtri(np.maximum(rng.random(len(x)) * limit, 1e-300))
    drawn = mean + slope * variance / spread**2 * (response - location)
    found: Floats = drawn + np.sqrt(variance) / spread * rng.normal(size=len(x))
    return found


def _draw_logistic(theta: Floats, x: Floats, rng: np.random.Generator) -> Floats:
    """Returns missing values of rows (R, K), by inversion of their distribution functions on a grid."""
    k = x.shape[1]
    scale, slope = np.exp(theta[k]), theta[-1]
    mean, index = x @ theta[:k], x @ theta[k + 1 : -1]
    # the chance to be missing is at most an exponential of the value, which shifts a normal distribution
    beyond = -slope * scale
    grid = np.linspace(-FARTHEST + min(0.0, beyond), FARTHEST + max(0.0, beyond), N_GRID)
    logs = -(grid**2) / 2 + log_expit(-(index + slope * mean)[:, None] - slope * scale * grid)
    density = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
    mass = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1)
    wanted = rng.random(len(x)) * mass[:, -1]
    place = (mass < wanted[:, None]).sum(axis=1)
    every = np.arange(len(x))
    before = np.where(place > 0, mass[every, place - 1], 0.0)
    part = (wanted - before) / np.maximum(mass[every, place] - before, 1e-300)
    found: Floats = mean + scale * (grid[place] + part * (grid[1] - grid[0]))
    return found


@dataclass(frozen=True)
class _Posterior:
    r"""The posterior distribution of the parameters, by the dependence :math:`\lambda` on the value.

    Attributes
    ----------
    free : ndarray of bool of shape (2 K + 1,)
        Which parameters besides :math:`\lambda` are not fixed at zero.
    slopes, log_density : ndarray of shape (G,)
        A grid of :math:`\lambda`, and the logarithm of its marginal density by Laplace's approximation.
    modes : ndarray of shape (G, P)
        The modes of the free parameters given :math:`\lambda`.
    roots : ndarray of shape (G, P, P)
        Square roots of their covariance matrices.
    """

    free: Mask
    slopes: Floats
    log_density: Floats
    modes: Floats
    roots: Floats

    def draw(self, rng: np.random.Generator) -> Floats:
        """Returns parameters (2 K + 2): first the dependence on the value, then the others given it."""
        fine = np.linspace(self.slopes[0], self.slopes[-1], N_FINE)
        logs = CubicSpline(self.slopes, self.log_density)(fine)
        density = np.exp(logs - logs.max())
        mass = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
        slope = float(np.interp(rng.random() * mass[-1], mass, fine))
        mode = CubicSpline(self.slopes, self.modes)(slope)
        nearest = int(np.abs(self.slopes - slope).argmin())
        found = np.zeros(len(self.free) + 1)
        found[:-1][self.free] = mode + self.roots[nearest] @ rng.normal(size=len(mode))
        found[-1] = slope
        return found


def _start(x: Floats, y: Floats, observed: Mask, free: Mask) -> Floats:
    """Returns the parameters of a regression of observed values, and of chances that are all one half."""
    k = x.shape[1]
    found, used = np.zeros(2 * k + 1), free[:k]
    found[:k][used] = np.linalg.lstsq(x[observed][:, used], y[observed], rcond=None)[0]
    found[k] = np.log(max((y - x @ found[:k])[observed].std(), 1e-3))
    return found[free]


def _find_posterior(
    likelihood: Callable[..., tuple[float, Floats]], x: Floats, y: Floats, observed: Mask, free: Mask
) -> _Posterior:
    """Returns the posterior distribution, from the middle of the grid to both of its ends."""
    middle = N_SLOPES // 2
    slopes = WIDEST * np.sinh(np.linspace(-3, 3, N_SLOPES)) / np.sinh(3)
    first = _given_slope(likelihood, x, y, observed, free, _start(x, y, observed, free), 0.0)
    found = {middle: first}
    for side in (range(middle + 1, N_SLOPES), range(middle - 1, -1, -1)):
        before = first
        for g in side:
            before = _given_slope(likelihood, x, y, observed, free, before[1], float(slopes[g]))
            found[g] = before
    logs, modes, roots = zip(*(found[g] for g in range(N_SLOPES)), strict=True)
    return _Posterior(free, slopes, np.array(logs), np.stack(modes), np.stack(roots))


def _given_slope(
    likelihood: Callable[..., tuple[float, Floats]],
    x: Floats,
    y: Floats,
    observed: Mask,
    free: Mask,
    start: Floats,
    slope: float,
) -> tuple[float, Floats, Floats]:
    """Returns the log marginal density at a slope, and mode and root of the covariance of the others."""

    def loss(some: Floats) -> tuple[float, Floats]:
        theta = np.zeros(len(free) + 1)
        theta[:-1][free], theta[-1] = some, slope
        value, gradient = likelihood(theta, x, y, observed)
        return -value, -gradient[:-1][free]

    found = minimize(loss, start, jac=True, method="BFGS", options={"maxiter": MOST_STEPS})
    best = found.x
    if np.abs(found.jac).max() > _FLAT * len(y):
        warn_user("The selection model did not converge; do not trust its estimate.")
    steps = _STEP * np.eye(len(best))
    curvature = np.stack([(loss(best + e)[1] - loss(best - e)[1]) / (2 * _STEP) for e in steps])
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    values = np.maximum(values, 1e-6 * values.max())
    log_density = -found.fun - slope**2 / (2 * PRIOR**2) - np.log(values).sum() / 2
    return float(log_density), best, vectors / np.sqrt(values)


def _covariates(table: Any, position: int, instruments: tuple[str, ...]) -> tuple[Floats, Floats, Mask]:
    """Returns covariates, the values of the column, and which covariates (K) belong to instruments.

    Covariates are a constant and all other columns in standard deviations, levels as indicators.
    """
    if not is_frame(table):
        columns = [np.asarray(table)[:, j].astype(np.float64) for j in range(np.shape(table)[1])]
        names, coded = [f"x{j}" for j in range(len(columns))], [[column] for column in columns]
        own = columns[position]
    else:
        frame = nw.from_native(table, eager_only=True)
        names = list(frame.columns)
        own = frame[:, position].cast(nw.Float64).to_numpy()
        coded = [_coded(frame[name]) if j != position else [] for j, name in enumerate(names)]
    for name in instruments:
        if name not in names or name == names[position]:
            raise ValueError(f"The instrument {name!r} is not one of the other columns: {', '.join(names)}.")
    pairs = [
        (name in instruments, (c - c.mean()) / c.std())
        for j, name in enumerate(names)
        for c in coded[j]
        if j != position and np.isfinite(c).all() and c.std() > 0
    ]
    if instruments and not any(excluded for excluded, _ in pairs):
        raise ValueError(f"The instruments {', '.join(instruments)} do not vary or are no numbers or levels.")
    x = np.column_stack([np.ones(len(own)), *(c for _, c in pairs)])
    return x, np.asarray(own, dtype=np.float64), np.array([False, *(excluded for excluded, _ in pairs)])


def _coded(series: Any) -> list[Floats]:
    if series.dtype.is_numeric():
        return [series.cast(nw.Float64).to_numpy().astype(np.float64)]
    values = series.to_list()
    levels = sorted(set(values), key=str)
    if len(levels) > 20:  # an identifier or free text rather than levels: a guess
        return []
    return [np.array([value == level for value in values], dtype=np.float64) for level in levels[1:]]


def _written(table: Any, position: int, rows: Integers, values: Floats) -> Any:
    if not is_frame(table):
        moved = np.array(table, dtype=np.float64)
        moved[rows, position] = values
        return moved
    frame = nw.from_native(table, eager_only=True)
    numbers = frame[:, position].cast(nw.Float64)
    return frame.with_columns(numbers.scatter(rows.tolist(), values.tolist())).to_native()
