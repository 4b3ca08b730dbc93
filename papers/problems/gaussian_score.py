r"""A linear score of Gaussian features, given the observed features and the mechanism.

Under Gaussian self-masking a feature is missing with probability :math:`K \exp(-(x_k - c_k)^2 / (2 D_k))`,
which as a function of :math:`x_k` is the likelihood of *observing the value* :math:`c_k` *with noise
variance* :math:`D_k`. One linear system per row is therefore sufficient for every pattern and both
mechanisms; if values are missing at random, :math:`D_k` is infinite.
"""

from dataclasses import dataclass

import numpy as np

from papers.problems.problem import Bools, Floats

_NUMBERS_AT_ONCE = 2**21  # in the matrices of one batch of rows


@dataclass(frozen=True, eq=False)
class GaussianScore:
    r"""The distribution of features and of a linear score :math:`s = \beta_0 + \langle \beta, x \rangle`.

    .. math::
        A = S \Sigma S + \mathrm{diag}(m), \quad h = S A^{-1} S r, \quad
        \mathrm{E}[x \mid \cdot] = \mu + \Sigma h, \quad
        s \mid \cdot \sim \mathcal{N}\left(\beta_0 + \langle \beta, \mu \rangle
        + \langle \Sigma \beta, h \rangle,\;
        \beta^\top \Sigma \beta - \beta^\top \Sigma S A^{-1} S \Sigma \beta\right)

    with :math:`m_k = 1` if feature k is missing, else 0; :math:`S = \mathrm{diag}(1)` where observed and
    :math:`D_k^{-1/2}` where missing; :math:`r_k = x_k - \mu_k` where observed and :math:`c_k - \mu_k` where
    missing. A is symmetric, positive definite, and no inverse of a conditional covariance is taken.

    Shapes
    ------
    loc, coefficients : :math:`(D)`
    covariance : :math:`(D, D)`, positive definite.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks, Propositions 2.1 and 2.2. We write
    :math:`c_k` and :math:`D_k` where the paper writes :math:`\tilde{\mu}_k` and :math:`\tilde{\sigma}_k^2`.

    Examples
    --------
    >>> law = GaussianScore(np.zeros(2), np.array([[1.0, 0.8], [0.8, 1.0]]), np.ones(2), 1.0)
    >>> law.moments(np.array([[1.0, np.nan]]))
    (array([2.8]), array([0.36]))
    """

    loc: Floats
    covariance: Floats
    coefficients: Floats
    intercept: float

    @property
    def mean(self) -> float:
        """The mean of the score when nothing is known."""
        return float(self.intercept + self.coefficients @ self.loc)

    @property
    def variance(self) -> float:
        """The variance of the score when nothing is known."""
        return float(self.coefficients @ self.covariance @ self.coefficients)

    def __call__(self, X: Floats) -> Floats:
        """Returns the score (N) of complete rows."""
        return self.intercept + X @ self.coefficients

    def moments(
        self, X: Floats, centre: Floats | float = 0.0, precision: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """Returns mean and variance (N) of the score of incomplete rows.

        Parameters
        ----------
        X : array (N, D)
            NaN where missing.
        centre, precision : array (D) or float
            The pseudo-observation of a missing feature, and its precision (1 over the variance D_k). A
            precision of 0, for values that are missing at random, has no influence.
        """
        projected = self.covariance @ self.coefficients
        sides = [(self.coefficients @ self.covariance)[None, :]]
        means, variances = [np.empty(0)], [np.empty(0)]
        for part in _batches(X):
            residual, solved = self._solve(part, centre, precision, sides)
            means.append(self.mean + residual @ projected)
            variances.append(self.variance - solved @ projected)
        mean, variance = np.concatenate(means), np.concatenate(variances).clip(min=0.0)
        complete = ~np.isnan(X).any(axis=1)
        return np.where(complete, self(np.nan_to_num(X)), mean), np.where(complete, 0.0, variance)

    def conditional_mean(
        self, X: Floats, centre: Floats | float = 0.0, precision: Floats | float = 0.0
    ) -> Floats:
        """Returns the rows with each missing feature at its expectation; observed ones stay exact."""
        filled = [np.empty((0, X.shape[1]))]
        for part in _batches(X):
            (residual,) = self._solve(part, centre, precision, [])
            filled.append(np.where(np.isnan(part), self.loc + residual @ self.covariance, part))
        return np.concatenate(filled)

    def _solve(
        self, X: Floats, centre: Floats | float, precision: Floats | float, sides: list[Floats]
    ) -> list[Floats]:
        """Returns S A^-1 S times the residuals of the rows, and times each of the other sides (1, D)."""
        missing = np.isnan(X)
        scale = np.where(missing, np.sqrt(precision), 1.0)  # (N, D)
        matrix = scale[:, :, None] * self.covariance * scale[:, None, :] + _diagonals(missing)
        residual = np.where(missing, centre, np.where(missing, 0.0, X)) - self.loc
        right = np.stack([np.broadcast_to(side, X.shape) for side in (residual, *sides)], axis=-1)
        solved = scale[:, :, None] * np.linalg.solve(matrix, scale[:, :, None] * right)  # (N, D, sides)
        return [solved[:, :, i] for i in range(solved.shape[2])]


def _diagonals(missing: Bools) -> Floats:
    n_rows, n_features = missing.shape
    matrices = np.zeros((n_rows, n_features, n_features))
    matrices[:, np.arange(n_features), np.arange(n_features)] = missing
    return matrices


def _batches(X: Floats) -> list[Floats]:
    size = max(1, _NUMBERS_AT_ONCE // max(1, X.shape[1] ** 2))
    return [X[start : start + size] for start in range(0, len(X), size)]
