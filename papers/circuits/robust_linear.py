r"""A linear classifier that is robust to the deletion of features, by the program of Globerson & Roweis.

.. math:: \min_{w, b} \frac{1}{m} \sum_i \Bigl[ 1 - y_i (\langle w, x_i \rangle + b) +
          \max_{|D| \le N} \sum_{j \in D} y_i w_j x_{ij} \Bigr]_+ \quad \text{with } |w_j| \le C

The inner maximum is the sum of the N largest positive terms. By the dual of that maximum the problem is a
linear program (Dekel & Shamir, 2008), with as many variables as there are pixels in the training set; it is
convex, so that projected subgradient steps on it as it stands above reach the same optimum, in far less
memory.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from sklearn.base import BaseEstimator, ClassifierMixin

Floats = npt.NDArray[np.float64]

N_STEPS = 600
BOUNDS = (0.02, 0.1, 0.5)  # of weights of pixels between 0 and 1, from which held-out images choose; guesses
COUNTS = (0, 5, 10, 25, 50, 100)
"""The numbers of deleted features from which held-out images choose.

In the worst case few deletions do the harm of many at random: of the digits 2 and 3, whose images have 164
bright pixels on average, the least loss with the 50 worst of them deleted is that of a constant.
"""

HELD_OUT = 0.2


class RobustLinear(ClassifierMixin, BaseEstimator):
    """The robust linear classifier of two classes.

    Held-out rows, with `n_deleted` features deleted at random, choose the number N of the program and the
    bound C of weights; then all rows train.

    Parameters
    ----------
    n_deleted : int
        The number of features that will be deleted, that is set to zero.
    counts : sequence of int
        The numbers N that are tried.
    bounds : sequence of float
        The bounds C that are tried.
    scale : float
        What features are divided by.
    n_steps : int
        The number of subgradient steps.
    random_state : int
        Seeds which rows are held out, and what is deleted in them.
    """

    classes_: npt.NDArray[Any]
    count_: int
    bound_: float
    coef_: Floats
    intercept_: float

    def __init__(
        self,
        n_deleted: int,
        counts: Sequence[int] = COUNTS,
        bounds: Sequence[float] = BOUNDS,
        scale: float = 255.0,
        n_steps: int = N_STEPS,
        random_state: int = 0,
    ) -> None:
        self.n_deleted = n_deleted
        self.counts = counts
        self.bounds = bounds
        self.scale = scale
        self.n_steps = n_steps
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> "RobustLinear":
        """Trains on complete rows of two classes."""
        (found,) = self.fit_for([self.n_deleted], X, y)
        self.classes_, self.count_, self.bound_ = found.classes_, found.count_, found.bound_
        self.coef_, self.intercept_ = found.coef_, found.intercept_
        return self

    def fit_for(self, numbers: Sequence[int], X: npt.ArrayLike, y: npt.ArrayLike) -> list["RobustLinear"]:
        """Returns a classifier for each number of deleted features; what is tried is trained once for all."""
        x, labels = np.asarray(X, dtype=np.float64) / self.scale, np.asarray(y)
        classes = np.unique(labels)
        if len(classes) != 2:
            raise ValueError(f"y must have two classes, got {len(classes)}.")
        signs = np.where(labels == classes[1], 1.0, -1.0)
        order = np.random.default_rng(self.random_state).permutation(len(x))
        held, rest = np.split(order, [int(HELD_OUT * len(x))])
        tried = {
            choice: descend(x[rest], signs[rest], *choice, self.n_steps)
            for choice in product(self.counts, self.bounds)
        }
        found = []
        for number in numbers:
            shown = delete(x[held], number, np.random.default_rng(self.random_state))
            errors = {
                choice: np.mean((shown @ coef + intercept) * signs[held] <= 0)
                for choice, (coef, intercept) in tried.items()
            }
            model = RobustLinear(
                number, self.counts, self.bounds, self.scale, self.n_steps, self.random_state
            )
            model.classes_ = classes
            model.count_, model.bound_ = min(errors, key=errors.__getitem__)
            model.coef_, model.intercept_ = descend(x, signs, model.count_, model.bound_, self.n_steps)
            found.append(model)
        return found

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

    Features that are zero in all rows have weight zero, and take no part in the steps, which are in single
    precision.
    """
    used = (x != 0).any(axis=0)
    length = bound * np.sqrt(x.shape[1])  # of the first step
    found, x, signs = np.zeros(x.shape[1]), x[:, used].astype(np.float32), signs.astype(np.float32)
    coef, intercept = np.zeros(x.shape[1], dtype=np.float32), 0.0
    best = (np.inf, coef, intercept)
    for step in range(n_steps):
        losses, kept = _margins(x, signs, n_deleted, coef, intercept)
        loss = float(np.maximum(losses, 0.0).mean())
        if loss < best[0]:
            best = (loss, coef, intercept)
        pull = np.where(losses > 0, signs, 0.0) / len(x)  # (N)
        slope, shift = pull @ (kept * x), float(pull.sum())
        rate = length / (float(np.hypot(np.linalg.norm(slope), shift)) + 1e-12) / np.sqrt(step + 1.0)
        coef = np.clip(coef + rate * slope, -bound, bound).astype(np.float32)
        intercept = intercept + rate * shift
    found[used] = np.clip(best[1].astype(np.float64), -bound, bound)
    return found, float(best[2])


def _margins(
    x: npt.NDArray[Any], signs: npt.NDArray[Any], n_deleted: int, coef: npt.NDArray[Any], intercept: float
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Returns the hinge (N) of rows before it is cut off at zero, and the share (N, D) of features kept.

    Shares are 0 or 1, but for features whose terms are equal where some of them are deleted: they are kept in
    equal parts, which is as bad as any choice among them.
    """
    terms = signs[:, None] * coef * x
    kept = np.ones_like(terms)
    if n_deleted:
        n_deleted = min(n_deleted, x.shape[1])
        place = x.shape[1] - n_deleted
        least = np.partition(terms, place, axis=1)[:, [place]]  # of those that are deleted
        above, equal = terms > least, terms == least
        left = n_deleted - above.sum(axis=1, keepdims=True)
        share = (1 - left / equal.sum(axis=1, keepdims=True)).astype(terms.dtype)
        kept = np.where(terms <= 0, 1, np.where(equal, share, ~above)).astype(terms.dtype)
    return 1 - (kept * terms).sum(axis=1) - signs * intercept, kept


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
