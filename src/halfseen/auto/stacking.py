r"""Weights of several predictive distributions, by their scores on hidden cells.

The CRPS of a mixture of distributions, and the squared error of an average of means, are quadratic in the
weights:

.. math::
    \mathrm{CRPS}(w) = \sum_m w_m \mathrm{E}|X_m - y| - \tfrac12 \sum_{mn} w_m w_n \mathrm{E}|X_m - X_n'|,
    \qquad \mathrm{SE}(w) = \Big(\sum_m w_m (\mu_m - y)\Big)^2

so their means over hidden cells are known for all weights at once. Levels are scored by the Brier score, the
squared error of the probabilities; for two levels, half of it is their CRPS:

.. math::
    \mathrm{BS}(w) = \sum_k \Big(\sum_m w_m p_{mk} - [y = k]\Big)^2

It is bounded. The log-loss is not: a few hidden cells whose true level has nearly no probability under a
model, as under a Gaussian model of indicators, would decide against a model that predicts most cells best.
Only columns with many levels, which have a single model, are scored by the log-loss.

Single values of numbers have weights of their own, by the squared error, because a model with a good
distribution may have a poor mean. A mixture of numbers is then sharpened, so that the levels of the true
values are uniform (`find_sharpness`).

A column often has a few dozen hidden cells, on which a model is best by chance; an average of models is then
closer to the truth, and its most probable level right more often, than the model that seems best. Weights of
single values and of levels are therefore shrunk towards equal weights u of the models that are not clearly
behind the best one, whose mean score is b; S is the squared error or the Brier score:

.. math::
    \min_w \; \sum_i \mathrm{S}_i(w) + \lambda b \lVert w - u \rVert^2

Weights of distributions of numbers are shrunk towards the best model by the factor
:math:`g^2 / (g^2 + s^2)`, where g is the gain of the mixture on cells that did not choose its weights, and s
the standard error of this gain; without a gain, each column has one model. Equal weights are not used there:
where one model knows a column nearly exactly, a small share of any other multiplies the CRPS.

Missing values may be larger or smaller than the hidden ones; weights that are best for the hidden ones are
then overconfident. In distributions, numbers are therefore weighted (`tail_weights`), so that large and small
ones count more.

References
----------
Gneiting & Ranjan (2013), Combining predictive distributions, for the sharpened mixture.
Gneiting & Raftery (2007), Strictly proper scoring rules, for the CRPS; Yao, Vehtari, Simpson & Gelman (2018),
Using stacking to average Bayesian predictive distributions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.optimize
import torch
from scipy.special import betaln, expit

from halfseen._arrays import Booleans, Floats, Integers
from halfseen._random import torch_generator
from halfseen.auto.mixing_weights import minimise_on_simplex, mixture_loss
from halfseen.auto.tabular import WeightedAtoms

# Guesses: columns with few hidden cells borrow the weights of all columns, small weights cost a fit and gain
# little, and a sharpness outside the limits would rest on a few extreme cells.
PRIOR = 60.0  # hidden cells of a column that those of all, or of all other, columns together count as
SMALLEST = 0.05  # weights below are zero
EVEN, CLEARLY = 5.0, 2.0
"""How many cells equal weights count as, and the standard errors by which a model is clearly behind.

The former was chosen for levels by comparisons on the ten tables of `papers.library.auto`, which are not
stored, and may be several times larger or smaller; the latter is a guess. Single values took over both.
"""
MAX_OWN_WEIGHTS = 200  # columns; with more, all columns have the same weights, because each takes a search
SMALLEST_LOSS = 1e-9  # a guard: losses are divided by that of the best model, which may be exact
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
    probabilities : (M, N, L), of each of few levels; None for numbers and for many levels
    weight : (N), how much numbers count; None if equally
    """

    truth: Floats
    half: Integers
    points: Floats
    atoms: Floats | None = None
    likelihood: Floats | None = None
    weight: Floats | None = None
    probabilities: Floats | None = None

    @property
    def shares(self) -> Floats:
        """The weights (N) of the cells, which add up to 1."""
        weight = np.ones(len(self.truth)) if self.weight is None else self.weight
        found: Floats = weight / weight.sum()
        return found

    def of(self, cells: Booleans) -> "Answers":
        """Returns part of the cells."""
        return Answers(
            self.truth[cells],
            self.half[cells],
            self.points[:, cells],
            None if self.atoms is None else self.atoms[:, cells],
            None if self.likelihood is None else self.likelihood[:, cells],
            None if self.weight is None else self.weight[cells],
            None if self.probabilities is None else self.probabilities[:, cells],
        )

    def losses(self) -> Floats:
        """Returns (M): CRPS, or log-loss, of each model."""
        if self.likelihood is not None:
            found: Floats = -np.log(self.likelihood).mean(axis=1)
            return found
        assert self.atoms is not None
        return np.array([_crps(atoms, self.truth).mean() for atoms in self.atoms])

    def crps(self, w: Floats) -> float:
        """Returns the CRPS of a mixture of numbers with weights (M), all cells counting equally."""
        assert self.atoms is not None
        used = np.flatnonzero(w)
        to_truth = np.abs(self.atoms[used] - self.truth[:, None]).mean(axis=(1, 2))
        total = float(w[used] @ to_truth)
        for m in used:
            for n in used:
                gaps = np.abs(self.atoms[m][:, :, None] - self.atoms[n][:, None, :]).mean()
                total -= 0.5 * float(w[m] * w[n] * gaps)
        return total

    def errors(self) -> Floats:
        """Returns (M): squared error, or share of wrong levels, of each model."""
        wrong = self.points != self.truth if self.atoms is None else (self.points - self.truth) ** 2
        errors: Floats = np.asarray(wrong, dtype=np.float64).mean(axis=1)
        return errors


@dataclass(frozen=True)
class QuadraticLoss:
    """A loss that is quadratic in the weights, relative to that of the best model.

    Shapes
    ------
    linear : (M, N), quadratic : (M, M, N), of each cell
    shares : (N), the weights of the cells, which add up to 1
    """

    linear: Floats
    quadratic: Floats
    shares: Floats

    @classmethod
    def of_distributions(cls, answers: Answers) -> "QuadraticLoss":
        """Returns the CRPS of the cells of a column."""
        assert answers.atoms is not None
        atoms, truth = answers.atoms, answers.truth
        to_truth = np.abs(atoms - truth[:, None]).mean(axis=2)
        between = np.zeros((len(atoms), len(atoms), len(truth)))
        for m in range(len(atoms)):
            for n in range(m, len(atoms)):
                gaps = np.abs(atoms[m][:, :, None] - atoms[n][:, None, :]).mean(axis=(1, 2))
                between[m, n] = between[n, m] = gaps
        own = between[np.arange(len(atoms)), np.arange(len(atoms))]
        best = max(float(((to_truth - 0.5 * own) @ answers.shares).min()), SMALLEST_LOSS)
        return cls(to_truth / best, -between / best, answers.shares)

    @classmethod
    def pooled(cls, losses: Sequence["QuadraticLoss"]) -> "QuadraticLoss":
        """Returns the loss of the cells of several columns."""
        total = sum(loss.n_cells for loss in losses)
        return cls(
            np.concatenate([loss.linear for loss in losses], axis=1),
            np.concatenate([loss.quadratic for loss in losses], axis=2),
            np.concatenate([loss.n_cells / total * loss.shares for loss in losses]),
        )

    def of(self, cells: Booleans) -> "QuadraticLoss":
        """Returns the loss of part of the cells."""
        shares = self.shares[cells]
        return QuadraticLoss(self.linear[:, cells], self.quadratic[..., cells], shares / shares.sum())

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.shares)

    @cached_property
    def _mean(self) -> tuple[Floats, Floats]:
        return self.linear @ self.shares, self.quadratic @ self.shares

    def per_cell(self, w: Floats) -> Floats:
        """Returns the losses (N) of the cells, whose mean is the loss of the weights."""
        found: Floats = w @ self.linear + 0.5 * np.einsum("m,mnc,n->c", w, self.quadratic, w)
        return found * self.shares * self.n_cells

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        """Returns the loss of weights, and its gradient."""
        linear, quadratic = self._mean
        slope = quadratic @ w
        return float(w @ linear + 0.5 * w @ slope), linear + slope


@dataclass(frozen=True)
class LevelLoss:
    """The loss of weights for many levels, of which one model is chosen: log-loss.

    Shapes
    ------
    likelihood : (M, N)
    """

    likelihood: Floats

    @classmethod
    def of_levels(cls, answers: Answers) -> "LevelLoss":
        """Returns the log-loss of the cells of a column."""
        assert answers.likelihood is not None
        return cls(np.maximum(answers.likelihood, SMALLEST_LOSS))

    @classmethod
    def pooled(cls, losses: Sequence["LevelLoss"]) -> "LevelLoss":
        """Returns the loss of the cells of several columns."""
        return cls(np.concatenate([loss.likelihood for loss in losses], axis=1))

    def of(self, cells: Booleans) -> "LevelLoss":
        """Returns the loss of part of the cells."""
        return LevelLoss(self.likelihood[:, cells])

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return self.likelihood.shape[1]

    def per_cell(self, w: Floats) -> Floats:
        """Returns the losses (N) of the cells, whose mean is the loss of the weights."""
        found: Floats = -np.log(w @ self.likelihood)
        return found

    def __call__(self, w: Floats) -> tuple[float, Floats]:
        """Returns the loss of weights, and its gradient."""
        return mixture_loss(w, self.likelihood)


Loss = QuadraticLoss | LevelLoss
Criterion = Callable[[Answers], Loss]


def find_weights(columns: Sequence[Answers], criterion: Criterion) -> tuple[Floats, float]:
    """Returns weights (M, C) of columns of one kind, and the share of mixtures in them, from 0 to 1.

    Weights are those of mixtures, shrunk towards the single model that is best in each column. The share of
    the mixtures is found by the losses on one half of the rows of weights from the other half.
    """
    losses = [criterion(answers) if len(answers.truth) else None for answers in columns]
    gains, n_models = [np.zeros(0)], len(columns[0].points)
    for half in (0, 1):
        learn = [_part(loss, a.half == half) for loss, a in zip(losses, columns, strict=True)]
        test = [_part(loss, a.half != half) for loss, a in zip(losses, columns, strict=True)]
        for (mixture, single), loss in zip(_both(_shrunk(learn), n_models), test, strict=True):
            if loss is not None:
                gains.append(loss.per_cell(single) - loss.per_cell(mixture))
    share = mixture_share(np.concatenate(gains))
    found = [
        _without_small(share * mixture + (1 - share) * single)
        for mixture, single in _both(_shrunk(losses), n_models)
    ]
    return np.stack(found, axis=1), share


def find_point_weights(columns: Sequence[Answers]) -> Floats:
    """Returns weights (M, C) of single values of numbers, by errors relative to those of the best model."""
    errors = []
    for answers in columns:
        found = answers.points - answers.truth
        best = float((found**2).sum(axis=1).min()) / max(1, len(answers.truth))
        errors.append(found[:, :, None] / math.sqrt(max(best, SMALLEST_LOSS)))
    return _near_equal(errors)


def find_level_weights(columns: Sequence[Answers]) -> Floats:
    """Returns weights (M, C) of columns with few levels, by the errors of probabilities."""
    errors = []
    for answers in columns:
        assert answers.probabilities is not None
        truth = np.arange(answers.probabilities.shape[2]) == answers.truth[:, None]
        errors.append(answers.probabilities - truth)
    return _near_equal(errors)


def _near_equal(errors: Sequence[Floats]) -> Floats:
    """Returns weights (M, C) by errors (M, N, L) of each column, shrunk towards equal weights of good models.

    The cells of the other columns together count as at most `PRIOR` cells of a column, and never as more than
    they are. Without own cells, a column has the weights of the others.
    """
    losses = np.concatenate([(one**2).sum(axis=2) for one in errors], axis=1)
    products = np.stack([np.einsum("mcl,ncl->mn", one, one) for one in errors])
    total: Floats = products.sum(axis=0)
    if len(errors) > MAX_OWN_WEIGHTS:
        share = min(1.0, PRIOR / max(1, losses.shape[1]))
        common = _near_equal_of_column(share * total, losses, np.full(losses.shape[1], share))
        return np.repeat(common[:, None], len(errors), axis=1)
    owner = np.repeat(np.arange(len(errors)), [one.shape[1] for one in errors])
    found = []
    for c, own in enumerate(products):
        is_own = owner == c
        share = min(1.0, PRIOR / max(1, int((~is_own).sum())))
        counts = np.where(is_own, 1.0, share)
        found.append(_near_equal_of_column(own + share * (total - own), losses, counts))
    return np.stack(found, axis=1)


def _near_equal_of_column(products: Floats, losses: Floats, counts: Floats) -> Floats:
    """Returns weights by the products of errors (M, M) and the losses (M, N) of cells that count (N)."""
    total = max(float(counts.sum()), SMALLEST_LOSS)
    best = int((losses @ counts).argmin())
    behind = losses - losses[best]
    mean = behind @ counts / total
    variance = (behind - mean[:, None]) ** 2 @ counts / total
    good = mean <= CLEARLY * np.sqrt(variance / max(1.0, min(total, len(counts))))
    centre = good / good.sum()
    strength = EVEN * float(losses[best] @ counts) / total

    def loss(w: Floats) -> tuple[float, Floats]:
        slope, away = products @ w, w - centre
        return float(w @ slope + strength * away @ away), 2.0 * (slope + strength * away)

    return minimise_on_simplex(loss, len(centre), SMALLEST)


def mixture_share(gains: Floats) -> float:
    """Returns how much of a mixture to use, by what it gains (N) over single models on other cells.

    Examples
    --------
    >>> mixture_share(np.array([1.0, 1.0, 1.0])), mixture_share(np.array([-1.0, 0.5]))
    (1.0, 0.0)
    """
    if len(gains) < 2 or gains.mean() <= 0:
        return 0.0
    gain, error = float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(len(gains))
    return gain**2 / (gain**2 + error**2)


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


def _part(loss: Loss | None, cells: Booleans) -> Loss | None:
    """Returns the loss of part of the cells; None without cells."""
    return None if loss is None or not cells.any() else loss.of(cells)


def _shrunk(losses: Sequence[Loss | None]) -> list[list[tuple[float, Loss]]]:
    """Returns, for each column, its loss and that of all columns, with the weights with which they count."""
    present: list[Any] = [loss for loss in losses if loss is not None]
    if not present:
        return [[] for _ in losses]
    pooled: tuple[float, Loss] = (PRIOR, type(present[0]).pooled(present))
    common = [pooled]
    if len(present) > MAX_OWN_WEIGHTS:
        return [common for _ in losses]
    return [common if loss is None else [(float(loss.n_cells), loss), pooled] for loss in losses]


def _both(columns: Sequence[list[tuple[float, Loss]]], n_models: int) -> list[tuple[Floats, Floats]]:
    """Returns the weights of the mixture and of the best single model of each column.

    Columns with the same losses have the same weights, which are found once.
    """
    known = {id(parts): parts for parts in columns}
    found = {key: (_solve(parts, n_models), _single(parts, n_models)) for key, parts in known.items()}
    return [found[id(parts)] for parts in columns]


def _single(parts: Sequence[tuple[float, Loss]], n_models: int) -> Floats:
    """Returns the weights of the best single model."""
    vertices = np.eye(n_models)
    totals = [sum(weight * loss(vertex)[0] for weight, loss in parts) for vertex in vertices]
    found: Floats = vertices[int(np.argmin(totals))]
    return found


def _solve(parts: Sequence[tuple[float, Loss]], n_models: int) -> Floats:
    """Returns the weights on the simplex with the lowest loss; small ones are zero."""
    scale = sum(weight for weight, _ in parts) or 1.0

    def total(w: Floats) -> tuple[float, Floats]:
        found = [(weight / scale, *loss(w)) for weight, loss in parts]
        slope: Floats = sum((weight * g for weight, _, g in found), np.zeros(n_models))
        return sum(weight * value for weight, value, _ in found), slope

    return minimise_on_simplex(total, n_models, SMALLEST)


def _without_small(weights: Floats) -> Floats:
    """Returns weights that sum to one, of which small ones are zero."""
    kept = np.where(weights < SMALLEST, 0.0, weights)
    found: Floats = kept / kept.sum()
    return found


def _crps(atoms: Floats, truth: Floats) -> Floats:
    """Returns the CRPS (N) of equally probable atoms (N, K)."""
    gaps = np.abs(atoms[:, :, None] - atoms[:, None, :]).mean(axis=(1, 2))
    found: Floats = np.abs(atoms - truth[:, None]).mean(axis=1) - 0.5 * gaps
    return found
