"""Structured mechanisms: permanent dropout, and questions that are skipped."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor
from torch.nn.functional import logsigmoid

from halfseen.missingness.base import Mechanism, Rate, check_number, check_rate, like
from halfseen.missingness.calibration import solve_intercept, standardizer
from halfseen.missingness.reading import Columns, OpenTable, Positions
from halfseen.missingness.self_masking import RegionMechanism


@dataclass(eq=False)
class MonotoneDropout(Mechanism):
    r"""Removes all values of a row from some column on, as when a patient leaves a study (MAR).

    .. math:: p(\text{leave at } t \mid x) = h_t(x) \prod_{s < t} (1 - h_s(x)), \qquad
        h_t(x) = \operatorname{sigmoid}(s\, z_{t-1} + b_t)

    :math:`z_{t-1}` is the standardised value of the previous column, the last one observed. The intercepts
    are solved in the order of the columns, so that each column meets its rate on the fitted table. With
    ``steepness=0`` the mechanism is MCAR.

    Parameters
    ----------
    rate : float or sequence of float, default=0.3
        The fraction of rows that have dropped out at the last column. The rates of the earlier columns follow
        from a constant hazard, and the first column stays complete. Or one non-decreasing rate per column.
    steepness : float, default=0.0
        The change of the log odds of dropping out per standard deviation of the last observed value.
    columns : names or positions, optional
        The columns in the order of time; by default all, from the first to the last.

    Attributes
    ----------
    rates_ : array of shape (A,)
        The fraction of values that is removed in each column.
    intercepts_ : array of shape (A,)

    References
    ----------
    Diggle & Kenward (1994), Informative drop-out in longitudinal data analysis, Applied Statistics 43.

    Examples
    --------
    >>> X = np.zeros((20_000, 3))
    >>> observed = MonotoneDropout(rate=0.75).fit(X).sample(X, random_state=0)
    >>> (1 - observed.mean(axis=0)).round(2)
    array([0.  , 0.5 , 0.75])
    """

    rate: Rate = 0.3
    steepness: float = 0.0
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_number("steepness", self.steepness)
        if np.ndim(self.rate) and np.any(np.diff(np.asarray(self.rate)) < 0.0):
            raise ValueError(f"rate must not decrease from one column to the next, got {self.rate!r}.")

    def _reads(self, table: OpenTable) -> Positions:
        return self.columns_[:-1] if self.steepness else self.columns_[:0]

    def _settle_unreadable(self, table: OpenTable) -> None:
        for j in sorted(self._coder.unreadable):
            raise ValueError(
                f"Column {table.names[j]!r} is text with a different value in nearly every row: dropout "
                "cannot "
                "depend on it. Leave it out of columns, or set steepness to 0."
            )

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        self.rates_ = self._wanted_rates()
        moments = [standardizer(x[present[:, j], j].numpy()) for j in self.columns_.tolist()]
        self.means_, self.scales_ = np.array(moments).T
        scores = self._scores(x).numpy()
        staying, solved = np.ones(len(x)), []
        for i, j in enumerate(self.columns_.tolist()):
            here = present[:, j].numpy()
            left = float(np.mean(1.0 - staying[here])) if here.any() else 0.0
            share = (self.rates_[i] - left) / max(1.0 - left, np.finfo(np.float64).tiny)
            solved.append(
                solve_intercept(scores[here, i], float(np.clip(share, 0.0, 1.0)), weights=staying[here])
            )
            staying = staying * expit(-(scores[:, i] + solved[-1]))
        self.intercepts_ = np.array(solved)

    def _wanted_rates(self) -> Any:
        n_columns = len(self.columns_)
        if np.ndim(self.rate) == 0:
            if n_columns < 2:
                raise ValueError("MonotoneDropout needs at least two columns; the first stays complete.")
            steps = np.arange(n_columns) / (n_columns - 1)
            return 1.0 - (1.0 - np.asarray(self.rate, dtype=np.float64)) ** steps
        rates = np.asarray(self.rate, dtype=np.float64)
        if len(rates) != n_columns:
            raise ValueError(f"rate must be one number, or {n_columns} (one per column), got {self.rate!r}.")
        return rates

    def _scores(self, x: Tensor) -> Tensor:
        """Returns the contribution of the last observed value to the log odds of dropping out, (N, A)."""
        z = (x[:, self.columns_] - like(x, self.means_)) / like(x, self.scales_)
        before = torch.cat([torch.zeros_like(z[:, :1]), z[:, :-1]], dim=1)
        return self.steepness * before if self.steepness else torch.zeros_like(z)

    def _logits(self, x: Tensor) -> Tensor:
        return self._scores(x) + like(x, self.intercepts_)

    def _draw(self, x: Tensor, present: Tensor, generator: torch.Generator) -> Tensor:
        logits = self._logits(x)
        noise = torch.rand(logits.shape, generator=generator, dtype=torch.float64).to(x.device)
        left = (noise < logits.sigmoid()).cummax(dim=1).values
        hidden = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        return hidden.index_copy(1, torch.from_numpy(self.columns_).to(x.device), left)

    def _marginal(self, x: Tensor, present: Tensor) -> Tensor:
        left = -torch.expm1(logsigmoid(-self._logits(x)).cumsum(dim=1))
        spread = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        return spread.index_copy(1, torch.from_numpy(self.columns_).to(x.device), left)

    def _log_prob(self, x: Tensor, observed: Tensor, present: Tensor) -> Tensor:
        logits = self._logits(x)
        n_columns = logits.shape[1]
        stayed = logsigmoid(-logits).cumsum(dim=1)
        before = torch.cat([torch.zeros_like(stayed[:, :1]), stayed], dim=1)  # (N, A + 1)
        leaves = torch.cat([logsigmoid(logits), torch.zeros_like(stayed[:, :1])], dim=1)
        log_p = before + leaves  # log probabilities of dropping out at each column, and of never dropping out

        where = torch.from_numpy(self.columns_).to(x.device)
        hidden, seen = (~observed & present)[:, where], (observed & present)[:, where]
        place = torch.arange(n_columns, device=x.device)
        last_seen = torch.where(seen, place, -1).amax(dim=1, keepdim=True)
        first_hidden = torch.where(hidden, place, n_columns).amin(dim=1, keepdim=True)
        moment = torch.arange(n_columns + 1, device=x.device)
        possible = (last_seen < moment) & (moment <= first_hidden)
        return torch.logsumexp(torch.where(possible, log_p, -torch.inf), dim=1)


@dataclass(eq=False)
class SkipPattern(RegionMechanism):
    r"""Removes columns where another column has a given value, as in a questionnaire (MAR).

    .. math:: p(m_j = 1 \mid x) = q \cdot 1[x_c \in V], \qquad c \ne j

    In rows in which the other column is missing, nothing is removed.

    Parameters
    ----------
    columns : names or positions
        The columns that are skipped.
    when : name or position
        The column that decides; it stays observed.
    equals : value or list of values
        The value or values of that column for which the others are skipped: text, numbers, booleans or dates.
    chance : float, default=1.0
        The probability :math:`q` that each of the columns is skipped, independently.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"smoker": ["no", "yes"], "cigarettes": [0, 12]})
    >>> SkipPattern("cigarettes", when="smoker", equals="no").fit(X).amputate(X)["cigarettes"].tolist()
    [<NA>, 12]
    """

    columns: Columns | None
    when: str | int
    equals: Any
    chance: float = 1.0

    def __post_init__(self) -> None:
        check_number("chance", self.chance, 0.0, 1.0)
        if self.columns is None:
            raise ValueError("SkipPattern needs columns to skip, got None.")

    def _choose_columns(self, table: OpenTable) -> Positions:
        columns = super()._choose_columns(table)
        self.when_ = int(table.positions(self.when, "when")[0])
        if self.when_ in columns.tolist():
            raise ValueError(
                f"Column {table.names[self.when_]!r} decides about the others (when) and cannot be skipped "
                "itself."
            )
        return columns

    def _reads(self, table: OpenTable) -> Positions:
        return np.array([self.when_])

    def _prepare(self, x: Tensor, present: Tensor) -> Tensor:
        return x  # NaN equals nothing

    def _calibrate(self, x: Tensor, present: Tensor) -> None:
        if self.when_ in self._coder.unreadable:
            raise ValueError(
                f"when names {self._coder.names[self.when_]!r}, which has a value for every row."
            )
        values = self.equals if isinstance(self.equals, list | tuple | set) else [self.equals]
        self.codes_ = np.array([self._coder.code_of(self.when_, value, "equals") for value in values])

    def _steps(self, x: Tensor) -> Tensor:
        skipped = (x[:, self.when_, None] == like(x, self.codes_)).any(dim=1)
        return (skipped.to(x.dtype) * self.chance)[:, None].expand(-1, len(self.columns_))
