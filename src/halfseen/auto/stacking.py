r"""Weights of several predictive distributions, by their scores on hidden cells.

The CRPS of a mixture of distributions, and the squared error of its mean, are quadratic in the weights:

.. math::
    \mathrm{CRPS}(w) = \sum_m w_m \mathrm{E}|X_m - y| - \tfrac12 \sum_{mn} w_m w_n \mathrm{E}|X_m - X_n'|,
    \qquad \mathrm{SE}(w) = \Big(\sum_m w_m (\mu_m - y)\Big)^2

so their means over hidden cells are known for all weights at once. For levels it is the log-loss. A mixture
of numbers is then sharpened, so that the levels of the true values are uniform (`find_sharpness`).

Missing values may be larger or smaller than the hidden ones; weights that are best for the hidden ones are
then overconfident. Numbers are therefore weighted (`tail_weights`), so that large and small ones count more.

References
----------
Gneiting & Ranjan (2013), Combining predictive distributions, for the sharpened mixture.
Gneiting & Raftery (2007), Strictly proper scoring rules, for the CRPS; Yao, Vehtari, Simpson & Gelman (2018),
Using stacking to average Bayesian predictive distributions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import torch
from scipy.special import betaln, expit

from halfseen._random import torch_generator
from halfseen.auto.mixing_weights import minimise_on_simplex, mixture_loss
from halfseen.auto.tabular import WeightedAtoms

Floats = npt.NDArray[np.float64]

PRIOR = 60.0  # hidden cells that all columns together count as, for the weights of each column
SMALLEST = 0.05  # weights below are zero
SMALLEST_LOSS = 1e-9
FEWEST_LEVELS = 100  # values from which sharpness is estimated
BLUNTEST, SHARPEST = 0.5, 5.0  # the smallest and the largest sharpness
STEEPNESS, INTERCEPT = 2.0, -1.2  # of self-masking by which 30% of normal numbers would be missing


@dataclass(frozen=True)
class Answers:
    """The predictions of M models for the hidden cells of one column, and the truth.

    Shapes
    ------
    truth : (N), numbers in standard deviations, or levels
    half : (N), 0 or 1; cells of a row are in one half
    points : (M, N), means or most probable levels
    atoms : (M, N, K), quantiles of numbers; None for levels
    likelihood : (M, N), the probability of the true level; None for numbers
    weight : (N), how much numbers count; None if equally
    """

    truth: Floats
    half: npt.NDArray[np.int64]
    points: Floats
    atoms: Floats | None = None
    likelihood: Floats | None = None
    weight: Floats | None = None

    @property
    def shares(self) -> Floats:
        """The weights (N) of the cells, which add up to 1."""
        weight = np.ones(len(self.truth)) if self.weight is None else self.weight
        found: Floats = weight / weight.sum()
        return found

    def of(self, cells: npt.NDArray[np.bool_]) -> "Answers":
        """Returns part of the cells."""
        return Answers(
            self.truth[cells],
            self.half[cells],
            self.points[:, cells],
            None if self.atoms is None else self.atoms[:, cells],
            None if self.likelihood is None else self.likelihood[:, cells],
            None if self.weight is None else self.weight[cells],
        )

    def losses(self) -> Floats:
        """Returns (M): CRPS, or log-loss, of each model."""
        if self.likelihood is not None:
            found: Floats = -np.log(self.likelihood).mean(axis=1)
            return found
        assert self.atoms is not None
        return np.array([_crps(atoms, self.truth).mean() for atoms in self.atoms])

    def errors(self) -> Floats:
        """Returns (M): squared error, or share of wrong levels, of each model."""
        wrong = self.points != self.truth if self.atoms is None else (self.points - self.truth) ** 2
        errors: Floats = np.asarray(wrong, dtype=np.float64).mean(axis=1)
        return errors


@dataclass(frozen=True)
class NumberLoss:
    """The loss of weights for numbers: CRPS plus half the squared error, each relative to the best model's.

    Shapes
    ------
    linear : (M), quadratic : (M, M)
    """

    n_cells: int
    linear: Floats
    quadratic: Floats

    @classmethod
    def of(cls, answers: Answers) -> "NumberLoss":
        """Returns the mean loss over the cells of a column, by their weights."""
        assert answers.atoms is not None
        atoms, truth, shares = answers.atoms, answers.truth, answers.shares
        to_truth = np.abs(atoms - truth[:, None]).mean(axis=2) @ shares
        between = np.zeros((len(atoms), len(atoms)))
        for m in range(len(atoms)):
            for n in range(m, len(atoms)):
                gaps = np.abs(atoms[m][:, :, None] - atoms[n][:, None, :]).mean(axis=(1, 2))
                between[m, n] = between[n, m] = gaps @ shares
        errors = answers.points - truth
        products = (shares * errors) @ errors.T
        crps = max(float((to_truth - 0.5 * between.diagonal()).min()), SMALLEST_LOSS)
        square = max(float(products.diagonal().min()), SMALLEST_LOSS)
        return cls(len(truth), to_truth / crps, products / square - between / crps)

    @classmethod
    def pooled(cls, losses: Sequence["NumberLoss"]) -> "NumberLoss":
        """Returns the mean loss over the cells of several columns."""
        total = sum(loss.n_cells for loss in losses)
        linear = sum((loss.n_cells / total * loss.linear for loss in losses), np.zeros(1))
        quadratic = sum((loss.n_cells / total * loss.quadratic for loss in losses), np.zeros(1))
        return cls(total, linear, quadratic)

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        """Returns the loss of weights, and its gradient."""
        slope = self.quadratic @ w
        return float(w @ self.linear + 0.5 * w @ slope), self.linear + slope


@dataclass(frozen=True)
class LevelLoss:
    """The loss of weights for levels: log-loss.

    Shapes
    ------
    likelihood : (M, N)
    """

    likelihood: Floats

    @classmethod
    def of(cls, answers: Answers) -> "LevelLoss":
        """Returns the mean loss over the cells of a column."""
        assert answers.likelihood is not None
        return cls(np.maximum(answers.likelihood, SMALLEST_LOSS))

    @classmethod
    def pooled(cls, losses: Sequence["LevelLoss"]) -> "LevelLoss":
        """Returns the mean loss over the cells of several columns."""
        return cls(np.concatenate([loss.likelihood for loss in losses], axis=1))

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return self.likelihood.shape[1]

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        """Returns the loss of weights, and its gradient."""
        return mixture_loss(w, self.likelihood)


Loss = NumberLoss | LevelLoss


def find_weights(columns: Sequence[Answers]) -> tuple[Floats, bool]:
    """Returns weights (M, C) of columns of one kind, and whether they are those of mixtures.

    Mixtures are used if their weights, found on one half of the rows, have a lower loss on the other half
    than the single model that is best on the first, summed over columns and both directions. Otherwise each
    column has one model.
    """
    gain = 0.0
    for half in (0, 1):
        learn = [answers.of(answers.half == half) for answers in columns]
        test = [_loss(answers.of(answers.half != half)) for answers in columns]
        for mixture, single, loss in zip(_mixtures(learn), _singles(learn), test, strict=True):
            if loss is not None:
                gain += loss.n_cells * (loss(single)[0] - loss(mixture)[0])
    mixed = gain > 0
    return np.stack(_mixtures(columns) if mixed else _singles(columns), axis=1), mixed


def find_sharpness(columns: Sequence[Answers], weights: Floats, seed: int) -> float:
    """Returns the parameter of a symmetric beta distribution that fits the levels of true values best.

    The levels are those of the true values in the mixtures with weights (M, C), for columns with several
    models; all cells count equally. With 1, mixtures are unchanged; with larger values they become narrower,
    with smaller ones wider. The result is 1 if there are few values.
    """
    generator = torch_generator(seed)
    levels = [np.zeros(0)]
    for answers, w in zip(columns, weights.T, strict=True):
        if answers.atoms is not None and (w > 0).sum() > 1 and len(answers.truth):
            atoms = torch.from_numpy(np.moveaxis(answers.atoms, 2, 1)).flatten(0, 1)  # (M * K, N)
            shares = torch.from_numpy(w / answers.atoms.shape[2]).repeat_interleave(answers.atoms.shape[2])
            kept = shares > 0
            truth = torch.from_numpy(answers.truth)[None]
            uniforms = torch.rand(truth.shape, dtype=torch.float64, generator=generator)
            levels.append(WeightedAtoms.of(atoms[kept], shares[kept]).levels(truth, uniforms)[0].numpy())
    found = np.concatenate(levels)
    if len(found) < FEWEST_LEVELS:
        return 1.0
    mean = float(np.log(found * (1.0 - found)).mean())
    best = scipy.optimize.minimize_scalar(
        lambda a: betaln(a, a) - (a - 1.0) * mean, bounds=(BLUNTEST, SHARPEST), method="bounded"
    )
    return float(best.x)


def tail_weights(z: Floats) -> Floats:
    """Returns weights (N) of hidden numbers z, in standard deviations from the mean of their column.

    They are the mean over three cases: missing numbers are like the hidden ones, or large numbers are missing
    more often, or small ones. Incomplete tables do not show which of them is true.
    """
    if not len(z):
        return np.zeros(0)
    slopes = np.array([0.0, STEEPNESS, -STEEPNESS])
    chances = expit(INTERCEPT + slopes[:, None] * z)
    weights: Floats = (chances / np.maximum(chances.mean(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    return weights


def _mixtures(columns: Sequence[Answers]) -> list[Floats]:
    return [_solve(parts, len(columns[0].points)) for parts in _shrunk(columns)]


def _singles(columns: Sequence[Answers]) -> list[Floats]:
    vertices = np.eye(len(columns[0].points))
    totals = [
        [sum(weight * loss(vertex)[0] for weight, loss in parts) for vertex in vertices]
        for parts in _shrunk(columns)
    ]
    return [vertices[int(np.argmin(total))] for total in totals]


def _loss(answers: Answers) -> Loss | None:
    """Returns the loss of one column; None without cells."""
    if not len(answers.truth):
        return None
    return LevelLoss.of(answers) if answers.atoms is None else NumberLoss.of(answers)


def _shrunk(columns: Sequence[Answers]) -> list[list[tuple[float, Loss]]]:
    """Returns, for each column, its loss and that of all columns, with the weights with which they count."""
    losses = [_loss(answers) for answers in columns]
    present: list[Any] = [loss for loss in losses if loss is not None]
    if not present:
        return [[] for _ in columns]
    pooled = (PRIOR, type(present[0]).pooled(present))
    return [[pooled] if loss is None else [(float(loss.n_cells), loss), pooled] for loss in losses]


def _solve(parts: Sequence[tuple[float, Loss]], n_models: int) -> Floats:
    """Returns the weights on the simplex with the lowest loss; small ones are zero."""
    scale = sum(weight for weight, _ in parts) or 1.0

    def total(w: Floats) -> tuple[float, Floats]:
        found = [(weight / scale, *loss(w)) for weight, loss in parts]
        slope: Floats = sum((weight * g for weight, _, g in found), np.zeros(n_models))
        return sum(weight * value for weight, value, _ in found), slope

    return minimise_on_simplex(total, n_models, SMALLEST)


def _crps(atoms: Floats, truth: Floats) -> Floats:
    """Returns the CRPS (N) of equally probable atoms (N, K)."""
    gaps = np.abs(atoms[:, :, None] - atoms[:, None, :]).mean(axis=(1, 2))
    found: Floats = np.abs(atoms - truth[:, None]).mean(axis=1) - 0.5 * gaps
    return found
