"""A mechanism that is learned from the missing values of a table and can be applied to another table."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import expit, logit
from torch import Tensor
from torch.nn.functional import logsigmoid

from halfseen.errors import SchemaError
from halfseen.missingness.base import Mechanism, check_number, like
from halfseen.missingness.calibration import standardizer
from halfseen.missingness.reading import Columns, OpenTable, Positions

Floats = npt.NDArray[np.float64]

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


def ridge_logistic(design: Floats, outcome: npt.NDArray[np.bool_], penalty: float) -> tuple[Floats, float]:
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
