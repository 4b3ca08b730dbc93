r"""A linear classifier that is robust to the deletion of features, by the program of Globerson & Roweis.

.. math:: \min_{w, b} \frac{1}{m} \sum_i \Bigl[ 1 - y_i (\langle w, x_i \rangle + b) +
          \max_{|D| \le N} \sum_{j \in D} y_i w_j x_{ij} \Bigr]_+ \quad \text{with } |w_j| \le C

The inner maximum is the sum of the N largest positive terms. By the dual of that maximum the problem is a
linear program (Dekel & Shamir, 2008), with as many variables as there are pixels in the training set; it is
convex, so that projected subgradient steps on it as it stands above reach the same optimum, in far less
memory.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from sklearn.base import BaseEstimator, ClassifierMixin

Floats = npt.NDArray[np.float64]

N_STEPS = 600
BOUNDS = (0.02, 0.1, 0.5)  # of weights of pixels between 0 and 1, from which held-out images choose; guesses
HELD_OUT = 0.2


class RobustLinear(ClassifierMixin, BaseEstimator):
    """The robust linear classifier of two classes.

    Parameters
    ----------
    n_deleted : int
        The number N of features that may be deleted, that is set to zero.
    bound : float, optional
        The bound C of weights; by default held-out rows, with N features deleted at random, choose one.
    scale : float
        What features are divided by.
    n_steps : int
        The number of subgradient steps.
    random_state : int
        Seeds which rows are held out, and what is deleted in them.
    """

    def __init__(
        self,
        n_deleted: int,
        bound: float | None = None,
        scale: float = 255.0,
        n_steps: int = N_STEPS,
        random_state: int = 0,
    ) -> None:
        self.n_deleted = n_deleted
        self.bound = bound
        self.scale = scale
        self.n_steps = n_steps
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> "RobustLinear":
        """Trains on complete rows of two classes."""
        x, labels = np.asarray(X, dtype=np.float64) / self.scale, np.asarray(y)
        self.classes_ = np.unique(labels)
        if len(self.classes_) != 2:
            raise ValueError(f"y must have two classes, got {len(self.classes_)}.")
        signs = np.where(labels == self.classes_[1], 1.0, -1.0)
        self.bound_ = self._choose_bound(x, signs) if self.bound is None else self.bound
        self.coef_, self.intercept_ = descend(x, signs, self.n_deleted, self.bound_, self.n_steps)
        return self

    def _choose_bound(self, x: Floats, signs: Floats) -> float:
        """Returns the bound with the fewest errors on held-out rows of which features are deleted."""
        rng = np.random.default_rng(self.random_state)
        order = rng.permutation(len(x))
        held, rest = np.split(order, [int(HELD_OUT * len(x))])
        shown = delete(x[held], self.n_deleted, rng)
        errors = {}
        for bound in BOUNDS:
            coef, intercept = descend(x[rest], signs[rest], self.n_deleted, bound, self.n_steps)
            errors[bound] = float(np.mean((shown @ coef + intercept) * signs[held] <= 0))
        return min(errors, key=errors.__getitem__)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Returns the class of each row; deleted features are zero."""
        x = np.asarray(X, dtype=np.float64) / self.scale
        chosen: npt.NDArray[np.int64] = self.classes_[(x @ self.coef_ + self.intercept_ > 0).astype(int)]
        return chosen


def delete(x: Floats, n_deleted: int, rng: np.random.Generator) -> Floats:
    """Returns rows of which so many features that are not zero, or all, are set to zero."""
    keys = np.where(x != 0, rng.random(x.shape), 2.0)
    ranks = keys.argsort(axis=1).argsort(axis=1)
    return np.where((ranks < n_deleted) & (x != 0), 0.0, x)


def robust_loss(x: Floats, signs: Floats, n_deleted: int, coef: Floats, intercept: float) -> float:
    """Returns the mean hinge loss if the worst features of each row are deleted."""
    return float(np.maximum(_margins(x, signs, n_deleted, coef, intercept)[0], 0.0).mean())


def descend(
    x: Floats, signs: Floats, n_deleted: int, bound: float, n_steps: int = N_STEPS
) -> tuple[Floats, float]:
    """Returns the weights and the intercept with the least robust loss of all steps.

    Features that are zero in all rows have weight zero, and take no part in the steps.
    """
    used = (x != 0).any(axis=0)
    length = bound * np.sqrt(x.shape[1])  # of the first step
    found, x = np.zeros(x.shape[1]), x[:, used]
    coef, intercept = np.zeros(x.shape[1]), 0.0
    best = (np.inf, coef, intercept)
    for step in range(n_steps):
        losses, kept = _margins(x, signs, n_deleted, coef, intercept)
        loss = float(np.maximum(losses, 0.0).mean())
        if loss < best[0]:
            best = (loss, coef, intercept)
        pull = np.where(losses > 0, signs, 0.0) / len(x)  # (N)
        slope, shift = pull @ np.where(kept, x, 0.0), pull.sum()
        rate = length / (np.hypot(np.linalg.norm(slope), shift) + 1e-12)
        rate /= np.sqrt(step + 1.0)
        coef = np.clip(coef + rate * slope, -bound, bound)
        intercept = intercept + rate * float(shift)
    found[used] = best[1]
    return found, best[2]


def _margins(
    x: Floats, signs: Floats, n_deleted: int, coef: Floats, intercept: float
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Returns the hinge (N) of rows before it is cut off at zero, and which features (N, D) are kept."""
    terms = signs[:, None] * coef * x
    kept = np.ones(x.shape, dtype=bool)
    if n_deleted:
        n_deleted = min(n_deleted, x.shape[1])
        worst = np.argpartition(-terms, n_deleted - 1, axis=1)[:, :n_deleted]
        np.put_along_axis(kept, worst, False, axis=1)
        kept |= terms <= 0
    return 1.0 - np.where(kept, terms, 0.0).sum(axis=1) - signs * intercept, kept


def solve_program(x: Floats, signs: Floats, n_deleted: int, bound: float) -> tuple[float, Floats, float]:
    """Returns the optimum, weights and intercept of the linear program; for small problems only.

    The variables are the weights, the intercept, the loss of each row, and the dual variables of its N
    largest terms: one threshold, and what each term exceeds it by.
    """
    n, d = x.shape
    terms = signs[:, None] * x  # (N, D)
    size = d + 1 + n + n + n * d
    cost = np.zeros(size)
    cost[d + 1 : d + 1 + n] = 1 / n
    hinge = np.zeros((n, size))  # -y (w x + b) + N t + sum u - loss <= -1
    hinge[:, :d], hinge[:, d] = -terms, -signs
    exceeds = np.zeros((n * d, size))  # y w_j x_j - t - u_j <= 0
    for i in range(n):
        first = d + 1 + 2 * n + i * d
        hinge[i, d + 1 + i], hinge[i, d + 1 + n + i], hinge[i, first : first + d] = -1.0, n_deleted, 1.0
        for j in range(d):
            row = exceeds[i * d + j]
            row[j], row[d + 1 + n + i], row[first + j] = terms[i, j], -1.0, -1.0
    limits = [(-bound, bound)] * d + [(None, None)] + [(0, None)] * (size - d - 1)
    given = np.concatenate([-np.ones(n), np.zeros(n * d)])
    found = linprog(cost, A_ub=np.vstack([hinge, exceeds]), b_ub=given, bounds=limits)
    if found.status != 0 or found.x is None or found.fun is None:
        raise ValueError(f"The linear program was not solved: {found.message}")
    return float(found.fun), found.x[:d], float(found.x[d])
