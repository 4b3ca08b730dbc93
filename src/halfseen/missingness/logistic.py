"""Mechanisms by logistic regressions: missing at random with chosen columns, or learned from a table."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit
from torch import Tensor
from torch.nn.functional import logsigmoid

from halfseen._arrays import Booleans, Floats
from halfseen._random import seed_from, torch_generator
from halfseen.errors import SchemaError
from halfseen.missingness.base import (
    CellMechanism,
    Mechanism,
    Rate,
    check_number,
    check_numbers,
    check_rate,
    like,
    per_column,
)
from halfseen.missingness.calibration import solve_intercept, standardizer
from halfseen.missingness.reading import Columns, OpenTable, Positions


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


MAX_LEVELS = 20  # a text column with more levels enters as one number, the position of its level
NEWTON_STEPS = 50


def learn(X: Any, *, penalty: float = 1.0, columns: Columns | None = None) -> "Learned":
    """Learns a mechanism from an incomplete table; equivalent to ``Learned(penalty, columns).fit(X)``.

    It can only learn how missingness depends on observed values (MAR); see `Learned`.

    Parameters
    ----------
    X : frame, array-like or tensor of shape (N, D)
        A table with missing values.
    penalty : float, default=1.0
        The strength of the ridge penalty.
    columns : names or positions, optional
        The columns whose missingness is learned; by default all with missing values.

    Returns
    -------
    Learned
        The fitted mechanism, whose `amputate` removes values from a complete table in the same way.

    Examples
    --------
    >>> from halfseen.datasets import load_penguins
    >>> penguins = load_penguins("pandas")
    >>> mechanism = learn(penguins)
    >>> [penguins.columns[j] for j in mechanism.columns_]
    ['bill_length_mm', 'bill_depth_mm', 'flipper_length_mm', 'body_mass_g', 'sex']
    >>> complete = penguins.dropna()
    >>> removed = mechanism.amputate(complete, random_state=0).isna().sum()
    >>> int(removed["species"])
    0
    """
    return Learned(penalty=penalty, columns=columns).fit(X)


@dataclass(eq=False)
class Learned(Mechanism):
    r"""A mechanism learned from an incomplete table, by a chain of logistic regressions (MAR).

    .. math:: p(m \mid x) = \prod_{i} p(m_{j_i} \mid x_O, m_{j_1}, \ldots, m_{j_{i-1}},
        \{x_{j_k} : k < i, m_{j_k} = 0\})

    The incomplete columns are ordered by their number of missing values, fewest first. The missingness of
    each is regressed on the complete columns :math:`O`, on the missingness indicators of the incomplete
    columns before it, and on their observed values; missing values are replaced by the mean. A mask can
    therefore be drawn for a complete table column by column, and its probability is exact.

    **Limits.** An incomplete table does not show whether a value is missing because of its own size. The
    learned mechanism depends on observed values only; it is MAR by construction. If values are in fact
    missing because of their own size, it removes the right number of values, but the wrong ones. For such
    missingness, choose a mechanism by knowledge of the data, such as `LogisticSelfMasking`.

    Parameters
    ----------
    penalty : float, default=1.0
        The strength of the ridge penalty on the weights of standardised features. Intercepts are not
        penalised, so the rate of each column is met on the fitted table.
    columns : names or positions, optional
        The columns whose missingness is learned; by default all with missing values.

    Attributes
    ----------
    columns_ : array of int
        The columns in which values may be removed, in the order of the chain.
    expected_rate_ : array of shape (D,)
        The fraction of missing values in each column of the fitted table.

    Notes
    -----
    Text columns enter as one indicator per level, or as the position of the level if there are more than 20
    levels; text with a different value in nearly every row is not used. Values that are already missing when
    the mechanism is applied count as missing in the chain.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 2))
    >>> incomplete = np.where([[False, True]] & (X[:, :1] > 0), np.nan, X)
    >>> observed = Learned().fit(incomplete).sample(X, random_state=0)
    >>> bool(observed[X[:, 0] < -0.5, 1].mean() > 0.95), bool(observed[X[:, 0] > 0.5, 1].mean() < 0.05)
    (True, True)
    """

    penalty: float = 1.0
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_number("penalty", self.penalty, 0.0)
        if self.penalty == 0.0:
            raise ValueError(
                "penalty must be greater than 0, because weights could become infinite otherwise; got 0."
            )

    def _choose_columns(self, table: OpenTable) -> Positions:
        missing = 1.0 - table.present().double().mean(dim=0).cpu().numpy()
        self._missing = missing
        wanted = np.flatnonzero(missing > 0.0) if self.columns is None else table.positions(self.columns)
        if not len(wanted):
            raise SchemaError("X has no missing values, so there is no missingness to learn.")
        return wanted[np.argsort(missing[wanted], kind="stable")]

    def _reads(self, table: OpenTable) -> Positions:
        complete = np.flatnonzero(self._missing == 0.0)
        return np.union1d(complete, self.columns_[:-1])

    def _settle_unreadable(self, table: OpenTable) -> None:
        pass  # of text without an order only the missingness is used

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        self._describe_features(x, present)
        values = self._features(x)
        hidden = ~present[:, self.columns_]
        self.weights_, self.intercepts_ = [], []
        for i, j in enumerate(self.columns_.tolist()):
            design = self._design(values, hidden, i).numpy()
            rate = float(self._missing[j])
            weights, intercept = np.zeros(design.shape[1]), float(logit(rate))
            if 0.0 < rate < 1.0:
                weights, intercept = ridge_logistic(design, hidden[:, i].numpy(), self.penalty)
            self.weights_.append(weights)
            self.intercepts_.append(intercept)

    def _find_expected_rate(self, x: Tensor, present: Tensor) -> Floats:
        rate = np.zeros(x.shape[1])
        rate[self.columns_] = self._missing[self.columns_]
        return rate

    # ------------------------------------------------------------------------------------ the features

    def _describe_features(self, x: Tensor, present: Tensor) -> None:
        """Lists the features of each column that is read: (column, level or None, mean, scale)."""
        self._offers: list[tuple[int, float | None, float, float]] = []
        for j in self._coder.needed:
            cells = x[present[:, j], j].numpy()
            column = self._coder.labelled.get(j)
            levels = () if column is None or column.levels is None else column.levels
            if 2 < len(levels) <= MAX_LEVELS:
                for code in range(len(levels)):
                    self._offers.append((j, float(code), *standardizer((cells == code).astype(np.float64))))
            else:
                self._offers.append((j, None, *standardizer(cells)))
        place = {j: i for i, j in enumerate(self.columns_.tolist())}
        self._link = np.array([place.get(j, -1) for j, *_ in self._offers], dtype=np.int64)

    def _features(self, x: Tensor) -> Tensor:
        """Returns the standardised features of all rows before anything is removed, (N, F)."""
        columns = [
            ((x[:, j] if level is None else (x[:, j] == level).to(x.dtype)) - mean) / scale
            for j, level, mean, scale in self._offers
        ]
        return torch.stack(columns, dim=1) if columns else x[:, :0]

    def _design(self, values: Tensor, hidden: Tensor, step: int) -> Tensor:
        """Returns the predictors of the missingness of one column: observed values and earlier indicators."""
        link = torch.from_numpy(self._link).to(values.device)
        known = link < step  # complete columns are linked to -1
        features, link = values[:, known], link[known]
        gone = hidden[:, link.clamp(min=0)] & (link >= 0)
        return torch.cat([torch.where(gone, 0.0, features), hidden[:, :step].to(values.dtype)], dim=1)

    # ---------------------------------------------------------------------------------------- the chain

    def _logits(self, values: Tensor, hidden: Tensor, step: int) -> Tensor:
        design = self._design(values, hidden, step)
        return design @ like(design, self.weights_[step]) + self.intercepts_[step]

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        values = self._features(x)
        hidden = ~present[:, self.columns_]
        noise = torch.rand(hidden.shape, generator=generator, dtype=torch.float64).to(x.device)
        for i in range(len(self.columns_)):
            hidden[:, i] |= noise[:, i] < self._logits(values, hidden, i).sigmoid()
        full = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        return full.index_copy(1, torch.from_numpy(self.columns_).to(x.device), hidden)

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        values = self._features(x)
        hidden = ~observed[:, self.columns_]
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        for i, j in enumerate(self.columns_.tolist()):
            logits = self._logits(values, hidden, i)
            log_p = logsigmoid(torch.where(hidden[:, i], logits, -logits))
            total = total + torch.where(present[:, j], log_p, 0.0)
        return total


def ridge_logistic(design: Floats, outcome: Booleans, penalty: float) -> tuple[Floats, float]:
    r"""Returns weights and intercept of a ridge logistic regression, by Newton's method.

    .. math:: \min_{w, b}\; -\log L(w, b) + \tfrac{\lambda}{2} \lVert w \rVert^2

    Examples
    --------
    >>> x = np.array([[-1.0], [0.0], [1.0], [2.0]])
    >>> w, b = ridge_logistic(x, np.array([False, True, False, True]), penalty=1.0)
    >>> gradient = x.T @ (expit(x @ w + b) - [0, 1, 0, 1]) + w
    >>> bool(abs(gradient[0]) < 1e-8)
    True
    """
    A = np.column_stack([design, np.ones(len(design))])
    ridge = np.r_[np.full(design.shape[1], penalty), 0.0]
    rate = float(np.mean(outcome))
    theta = np.r_[np.zeros(design.shape[1]), logit(rate)]

    def loss(at: Floats) -> float:
        score = A @ at
        return float(np.logaddexp(0.0, np.where(outcome, -score, score)).sum() + 0.5 * ridge @ at**2)

    now = loss(theta)
    for _ in range(NEWTON_STEPS):
        p = expit(A @ theta)
        gradient = A.T @ (p - outcome) + ridge * theta
        hessian = (A * (p * (1.0 - p))[:, None]).T @ A + np.diag(ridge + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while (new := loss(theta - size * step)) > now and size > 1e-8:
            size /= 2.0
        if new > now:
            break
        theta, change, now = theta - size * step, now - new, new
        if change <= 1e-13 * max(1.0, abs(now)):
            break
    return theta[:-1], float(theta[-1])
