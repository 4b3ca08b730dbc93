"""Toy distributions with exact conditional means: a Gaussian, a ring and a mixture."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_ndtr, ndtri_exp
from scipy.stats import invwishart

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian, plan_buckets
from papers.problems.problem import (
    Bools,
    Floats,
    Generator,
    ImputationProblem,
    Sample,
    data_generator,
    incomplete_rows,
)

N_CELLS = 2000  # number of cells by which the distribution of a missing coordinate is discretised


@dataclass(frozen=True)
class CorrelatedGaussian(ImputationProblem):
    r"""Two correlated features; the first is missing when it is above its mean (MNAR).

    .. math:: \mathrm{E}[x_1 \mid x_2, x_1 > 0] = \rho x_2 + \sigma \frac{\varphi(\alpha)}{\Phi(\alpha)},
              \qquad \sigma = \sqrt{1 - \rho^2}, \quad \alpha = \rho x_2 / \sigma

    A method that assumes missing at random imputes :math:`\rho x_2` at best, with a root mean squared error
    of 0.600 at :math:`\rho = 0.8`, where 0.459 is possible.

    Parameters
    ----------
    correlation : float, default=0.8
        The correlation :math:`\rho` of the two features, which have mean 0 and variance 1.

    Examples
    --------
    >>> problem = CorrelatedGaussian()
    >>> problem.predict_bayes([[np.nan, 1.0], [-0.5, 0.3]]).round(3)
    array([[ 0.908,  1.   ],
           [-0.5  ,  0.3  ]])
    """

    correlation: float = 0.8

    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns rows, the same rows as targets, and the mask."""
        generator = data_generator(random_state)
        covariance = [[1.0, self.correlation], [self.correlation, 1.0]]
        X = generator.multivariate_normal([0.0, 0.0], covariance, size=n_samples)
        return Sample(X, X, np.column_stack([X[:, 0] <= 0, np.ones(n_samples, dtype=bool)]))

    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the rows with the first feature at its expectation where it is missing."""
        rows = incomplete_rows(X, 2)
        _check_complete(rows, 1)
        deviation = np.sqrt(1 - self.correlation**2)
        alpha = self.correlation * rows[:, 1] / deviation
        mills = np.exp(-0.5 * alpha**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(alpha))
        rows[:, 0] = np.where(np.isnan(rows[:, 0]), deviation * (alpha + mills), rows[:, 0])
        return rows

    def draw_bayes(self, X: npt.ArrayLike, n_draws: int = 1, random_state: Any = None) -> Floats:
        """Returns rows (S, N, 2) with the first feature imputed by random draws."""
        rows = incomplete_rows(X, 2)
        _check_complete(rows, 1)
        u = data_generator(random_state).uniform(size=(n_draws, len(rows)))
        deviation = np.sqrt(1 - self.correlation**2)
        alpha = self.correlation * rows[:, 1] / deviation
        # From the upper end, u Phi(alpha) is the chance to be above: no cancellation where that is small.
        return _with_first(rows, deviation * (alpha - ndtri_exp(np.log(u) + log_ndtr(alpha))))

    def distance(self, X: npt.ArrayLike) -> Floats:
        r"""Returns how far complete rows are, in the first feature, from the line :math:`x_1 = \rho x_2`."""
        rows = np.asarray(X, dtype=np.float64)
        distance: Floats = np.abs(rows[..., 0] - self.correlation * rows[..., 1])
        return distance


@dataclass(frozen=True)
class Ring(ImputationProblem):
    r"""Points around a circle; the first coordinate is missing in the upper quarter (MNAR).

    .. math:: x = r (\cos \theta, \sin \theta), \quad r \sim \mathcal{N}(4.5, 0.5), \quad \theta \sim
              \mathcal{U}(-\pi, \pi), \quad x_1 \text{ missing if } \theta \in [\pi / 4, 3 \pi / 4]

    The variance of the radius is 0.5. By symmetry the conditional mean is 0 and the best root mean square
    error is :math:`\sqrt{(4.5^2 + 0.5) (1/2 - 1/\pi)} = 1.942`, although the conditional distribution has
    two modes and no mass at 0: judge a method by its draws here, not by its means.

    Parameters
    ----------
    radius, variance : float
        Mean and variance of the radius.

    Examples
    --------
    >>> X, _, observed = Ring().sample(1500, random_state=0)
    >>> bool((X[~observed[:, 0], 1] > 0).all())
    True
    """

    radius: float = 4.5
    variance: float = 0.5

    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns rows, the same rows as targets, and the mask."""
        generator = data_generator(random_state)
        angle = generator.uniform(-np.pi, np.pi, size=n_samples)
        radius = generator.normal(self.radius, np.sqrt(self.variance), size=n_samples)
        X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        hidden = (angle >= np.pi / 4) & (angle <= 3 * np.pi / 4)
        return Sample(X, X, np.column_stack([~hidden, np.ones(n_samples, dtype=bool)]))

    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the rows with 0 for the first coordinate where it is missing."""
        rows = incomplete_rows(X, 2)
        _check_complete(rows, 1)
        return np.nan_to_num(rows, nan=0.0)

    def draw_bayes(self, X: npt.ArrayLike, n_draws: int = 1, random_state: Any = None) -> Floats:
        r"""Returns rows (S, N, 2) with the first coordinate imputed by random draws.

        .. math:: p(x_1 \mid x_2, \text{missing}) \propto \varphi((r - 4.5) / \sqrt{0.5}) / r, \quad |x_1| \le
                  x_2

        where :math:`r = |x|`; in cells of a grid, and uniform within them.
        """
        rows = incomplete_rows(X, 2)
        _check_complete(rows, 1)
        u, within = data_generator(random_state).uniform(size=(2, n_draws, len(rows)))
        edges = np.linspace(-1.0, 1.0, N_CELLS + 1)
        height = np.maximum(np.abs(rows[:, 1:]), np.finfo(np.float64).tiny)
        radius = np.hypot(1.0, (edges[1:] + edges[:-1]) / 2) * height  # (N, G)
        log_density = -0.5 * ((radius - self.radius) / np.sqrt(self.variance)) ** 2 - np.log(radius)
        cumulated = torch.from_numpy(log_density).softmax(dim=1).cumsum(dim=1)
        wanted = torch.from_numpy(u.T.copy()) * cumulated[:, -1:]
        cell = torch.searchsorted(cumulated, wanted).clamp(max=N_CELLS - 1).T.numpy()  # (S, N)
        place = edges[cell] + within * (edges[1] - edges[0])
        return _with_first(rows, place * height[:, 0])

    def distance(self, X: npt.ArrayLike) -> Floats:
        """Returns how far complete rows are from the circle of the mean radius."""
        rows = np.asarray(X, dtype=np.float64)
        distance: Floats = np.abs(np.linalg.norm(rows, axis=-1) - self.radius)
        return distance


@dataclass(frozen=True, eq=False)
class MixtureOfGaussians(ImputationProblem):
    r"""A mixture of Gaussians with full covariances and features that are missing completely at random.

    .. math:: p(x_o) = \sum_k \pi_k \mathcal{N}(x_o \mid \mu_{k,o}, \Sigma_{k,oo}), \qquad
              \mathrm{E}[x_m \mid x_o] = \sum_k p(k \mid x_o) \, \mathrm{E}[x_m \mid x_o, k]

    Parameters
    ----------
    weights, locs, covariances : arrays (K), (K, D), (K, D, D)
        Of the components.
    rate : float, default=0.5
        The fraction of missing values.

    Examples
    --------
    >>> problem = MixtureOfGaussians.draw(random_state=0)
    >>> X, y, observed = problem.sample(5, random_state=1)
    >>> X.shape, problem.log_prob(X).shape
    ((5, 5), (5,))
    """

    weights: Floats
    locs: Floats
    covariances: Floats
    rate: float = 0.5

    @classmethod
    def draw(
        cls, n_components: int = 15, n_features: int = 5, *, rate: float = 0.5, random_state: Any = None
    ) -> "MixtureOfGaussians":
        r"""Returns a random mixture, standardised to mean 0 and variance 1 of each feature.

        .. math:: \Sigma_k \sim \mathcal{W}^{-1}(I, D), \quad \mu_k \sim \mathcal{N}(0, 3^2 I), \quad
                  \pi \sim \mathrm{Dirichlet}(1, \dots, 1)

        drawn in this order. The mixture of the paper below is the data set
        ``mog_ground_truth/data_mog2_large``, with its parameters.

        References
        ----------
        Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with
        mixture variational families, appendix E.1.
        """
        generator = data_generator(random_state)
        drawn = invwishart(df=n_features, scale=np.eye(n_features)).rvs(n_components, random_state=generator)
        covariances = np.reshape(drawn, (n_components, n_features, n_features))
        locs = generator.normal(0.0, 3.0, size=(n_components, n_features))
        weights = generator.dirichlet(np.ones(n_components))
        centred = locs - weights @ locs
        variance = weights @ (np.diagonal(covariances, axis1=1, axis2=2) + centred**2)
        scale = np.sqrt(variance)
        return cls(weights, centred / scale, covariances / np.outer(scale, scale), rate)

    def sample(self, n_samples: int, random_state: Any = None) -> Sample:
        """Returns rows, the same rows as targets, and the mask."""
        generator = data_generator(random_state)
        X, _ = self._rows(n_samples, generator)
        return Sample(X, X, generator.uniform(size=X.shape) >= self.rate)

    def log_prob(self, X: npt.ArrayLike) -> Floats:
        """Returns the log density (N) of the observed cells of each row; 0 without observed cells."""
        density: Floats = self.log_joint(X).logsumexp(dim=0).numpy()
        return density

    def log_joint(self, X: npt.ArrayLike) -> torch.Tensor:
        """Returns the log density (K, N) of the component and the observed cells of each row."""
        return self._given(self._batch(X))[0]

    def predict_bayes(self, X: npt.ArrayLike) -> Floats:
        """Returns the rows with each missing feature at its expectation."""
        batch = self._batch(X)
        log_joint, means = self._given(batch)
        filled = (log_joint.softmax(dim=0)[:, :, None] * means).sum(dim=0)
        best: Floats = torch.where(batch.observed, batch.x, filled).numpy()
        return best

    def _rows(self, n_samples: int, generator: Generator) -> tuple[Floats, npt.NDArray[np.int64]]:
        component = generator.choice(len(self.weights), size=n_samples, p=self.weights)
        noise = generator.normal(size=(n_samples, self.locs.shape[1]))
        roots = np.linalg.cholesky(self.covariances)[component]  # (N, D, D)
        return self.locs[component] + np.einsum("nij,nj->ni", roots, noise), component

    def _batch(self, X: npt.ArrayLike) -> Incomplete:
        return Incomplete.from_array(incomplete_rows(X, self.locs.shape[1]))

    def _given(self, batch: Incomplete) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns log p(x_o, k), of shape (K, N), and the rows completed within each component, (K, N, D)."""
        buckets = list(plan_buckets(batch.observed))
        parts = [
            Gaussian(torch.from_numpy(loc), torch.from_numpy(covariance)).statistics(batch, buckets)
            for loc, covariance in zip(self.locs, self.covariances, strict=True)
        ]
        log_joint = (
            torch.stack([part.log_prob for part in parts]) + torch.from_numpy(np.log(self.weights))[:, None]
        )
        return log_joint, torch.stack([part.completed for part in parts])


def _with_first(rows: Floats, drawn: Floats) -> Floats:
    """Returns rows (S, N, 2) whose first feature is the drawn one (S, N) where it is missing."""
    first = np.where(np.isnan(rows[:, 0]), drawn, rows[:, 0])
    return np.stack([first, np.broadcast_to(rows[:, 1], first.shape)], axis=-1)


def _check_complete(rows: Floats, column: int) -> None:
    missing: Bools = np.isnan(rows[:, column])
    if missing.any():
        raise ValueError(
            f"Column {column} is never missing in this problem, but it is in row {int(missing.argmax())}."
        )
