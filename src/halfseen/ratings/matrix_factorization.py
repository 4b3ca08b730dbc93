"""A recommender by Bayesian matrix factorisation, and weighted sums of recommenders.

The weights of a sum are chosen on held-out ratings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse
import torch
from sklearn.base import clone
from torch import Tensor

from halfseen._arrays import Floats
from halfseen.base.parameters import check_number, check_whole, documented_by
from halfseen.ratings.autorec import AutoRec
from halfseen.ratings.network import sampled_product
from halfseen.ratings.recommender import RATING_ATTRIBUTES, RATING_DESCRIPTIONS, Recommender, hold_out
from halfseen.ratings.table import Positions, Ratings, SparseRows

START = 0.3  # standard deviation of the initial factors
PRIOR_COUNT = 2.0  # number of pseudo-rows in the prior of the mean of factors
NOISE_COUNT = 5.0  # number of pseudo-ratings in the prior of the noise, with half their variance
CELLS = 2**21  # maximum size of the array of factors of a chunk of rows


class FactorPrior(NamedTuple):
    """The Gaussian of the factors of rows, in each draw: means (S, K), precisions (S, K, K), noise (S)."""

    mean: Tensor
    precision: Tensor
    noise: Tensor


@dataclass(frozen=True)
class FactorDraws:
    r"""Draws from the posterior of a matrix factorisation with offsets.

    .. math:: r_{ij} = \mu + a_i + b_j + u_i \cdot v_j + \varepsilon_{ij}, \qquad
              (a_i, u_i) \sim N(m, \Lambda^{-1})

    and likewise :math:`(b_j, v_j)`; the means and precisions of both sides have a Gauss-Wishart prior, and
    the precision of the noise has a gamma prior, so there is nothing to tune. Entries are assumed to be
    missing at random.

    Parameters
    ----------
    rows : Tensor of shape (N, S, K)
        The offset and the factors of each row, in each draw.
    columns : Tensor of shape (D, S, K)
        Those of columns.
    centre : float
        The mean :math:`\mu` of all entries.
    prior : FactorPrior
        The prior of rows, for rows that were not in the data.

    References
    ----------
    Salakhutdinov & Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain Monte Carlo.
    """

    rows: Tensor
    columns: Tensor
    centre: float
    prior: FactorPrior

    def entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Returns the mean predictions of entries, as float64."""
        left, right = self.rows[rows].double(), self.columns[columns].double()
        return self.centre + _predict(left, right).mean(dim=-1)

    def row(self, factors: Tensor) -> Tensor:
        """Returns the mean predictions (D) of all columns in a row with factors (S, K), one of each draw."""
        return self.centre + _predict(factors.unsqueeze(0), self.columns).mean(dim=-1)

    def fold_in(self, columns: Tensor, values: Tensor) -> Tensor:
        """Returns the posterior mean (S, K) of the factors of a new row with these entries, in each draw."""
        seen = self.columns[columns].transpose(0, 1)  # (S, M, K)
        design = _as_design(seen)
        rest = values - self.centre - seen[..., 0]
        prior, noise = self.prior, self.prior.noise
        precision = prior.precision + noise[:, None, None] * design.mT @ design
        linear = (prior.precision @ prior.mean.unsqueeze(-1)).squeeze(-1)
        linear = linear + noise[:, None] * (design.mT @ rest.unsqueeze(-1)).squeeze(-1)
        factors: Tensor = torch.linalg.solve(precision, linear)
        return factors


def draw_factors(
    ratings: SparseRows, n_factors: int, n_warmup: int, n_draws: int, generator: torch.Generator
) -> FactorDraws:
    """Samples offsets and factors of rows and columns alternately; draws of the warm-up are discarded."""
    by_row, by_column = _Side(ratings), _Side(_transposed(ratings))
    rows, columns = (
        START * torch.randn(n, n_factors + 1, generator=generator) for n in (len(ratings), ratings.n_columns)
    )
    centre, spread = ratings.values.mean(), ratings.values.var(correction=0)
    usual = max(0.5 * float(spread), 1e-3)
    noise = torch.tensor(1.0 / usual)
    kept: tuple[list[Tensor], ...] = ([], [], [], [], [])
    for sweep in range(n_warmup + n_draws):
        prior = (*_draw_prior(rows, generator), noise)
        rows = by_row.draw(columns, centre, prior, generator)
        columns = by_column.draw(rows, centre, (*_draw_prior(columns, generator), noise), generator)
        noise = _draw_noise(ratings, rows, columns, usual, generator)
        if sweep >= n_warmup:
            for draws, value in zip(kept, (rows, columns, *prior), strict=True):
                draws.append(value)
    prior_draws = FactorPrior(*(torch.stack(draws) for draws in kept[2:]))
    return FactorDraws(torch.stack(kept[0], dim=1), torch.stack(kept[1], dim=1), float(centre), prior_draws)


class _Side:
    """The rows of one side, in chunks of nearly equal numbers of entries, which are padded."""

    def __init__(self, ratings: SparseRows) -> None:
        self.ratings = ratings
        self.order = torch.argsort(ratings.counts, stable=True)

    def draw(
        self, others: Tensor, centre: Tensor, prior: tuple[Tensor, ...], generator: torch.Generator
    ) -> Tensor:
        """Returns a draw (N, K) of the factors of all rows, given those (D, K) of the other side."""
        size = others.shape[1]
        drawn = others.new_empty(len(self.ratings), size)
        end = len(self.order)
        while end > 0:
            longest = max(1, int(self.ratings.counts[self.order[end - 1]]))
            chosen = self.order[max(0, end - max(1, CELLS // (longest * size))) : end]
            noise = torch.randn(len(chosen), size, 1, generator=generator)
            drawn[chosen] = _draw_rows(self.ratings[chosen], longest, others, centre, prior, noise)
            end -= len(chosen)
        return drawn


def _draw_rows(
    rows: SparseRows,
    longest: int,
    others: Tensor,
    centre: Tensor,
    prior: tuple[Tensor, ...],
    normal: Tensor,
) -> Tensor:
    """Returns factors (N, K) of rows from their Gaussian posterior."""
    mean, precision, noise = prior
    place = torch.arange(len(rows.values)) - rows.starts[:-1].long()[rows.rows]
    seen = others[rows.columns.long()]
    design = others.new_zeros(len(rows), longest, others.shape[1])  # padded with zeros
    design[rows.rows, place] = _as_design(seen)
    rest = others.new_zeros(len(rows), longest)
    rest[rows.rows, place] = rows.values - centre - seen[:, 0]
    full = precision + noise * design.mT @ design
    linear = (precision @ mean).unsqueeze(-1) + noise * design.mT @ rest.unsqueeze(-1)
    root = torch.linalg.cholesky(full)
    found: Tensor = torch.cholesky_solve(linear, root) + torch.linalg.solve_triangular(
        root.mT, normal, upper=True
    )
    return found.squeeze(-1)


def _draw_prior(factors: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns a mean and a precision from their Gauss-Wishart posterior given factors (N, K)."""
    n_rows, size = factors.shape
    count = n_rows + PRIOR_COUNT
    mean = factors.sum(dim=0) / count
    centred = factors - factors.mean(dim=0)
    usual = factors.mean(dim=0)
    scatter = torch.eye(size) + centred.T @ centred
    scatter = scatter + n_rows * PRIOR_COUNT / count * torch.outer(usual, usual)
    root = torch.linalg.cholesky(torch.linalg.inv(scatter))
    normals = root @ torch.randn(size, n_rows + size, generator=generator)
    precision = normals @ normals.T  # Wishart with n_rows + size degrees of freedom
    spread = torch.linalg.cholesky(count * precision)
    shift = torch.randn(size, 1, generator=generator)
    moved: Tensor = mean + torch.linalg.solve_triangular(spread.mT, shift, upper=True).squeeze(-1)
    return moved, precision


def _draw_noise(
    ratings: SparseRows, rows: Tensor, columns: Tensor, usual: float, generator: torch.Generator
) -> Tensor:
    """Returns the precision of the noise from its gamma posterior, by a chi-squared draw."""
    fitted = sampled_product(ratings, _as_design(rows), columns) + rows[ratings.rows, 0]
    errors = ratings.values - ratings.values.mean() - fitted
    freedom = len(errors) + NOISE_COUNT
    total = errors.square().sum() + NOISE_COUNT * usual
    # The sum of many squares of normals is nearly normal, by its cube root (Wilson and Hilferty).
    spread = 2.0 / (9.0 * freedom)
    root = 1.0 - spread + spread**0.5 * torch.randn((), generator=generator)
    precision: Tensor = freedom * root**3 / total
    return precision


def _transposed(ratings: SparseRows) -> SparseRows:
    starts, rows, order = ratings.transposition
    return SparseRows(starts, rows, ratings.values[order], len(ratings))


def _as_design(factors: Tensor) -> Tensor:
    """Returns factors with 1 in place of the offset, the design matrix of the other side."""
    return torch.cat([torch.ones_like(factors[..., :1]), factors[..., 1:]], dim=-1)


def _predict(left: Tensor, right: Tensor) -> Tensor:
    """Returns the sums of both offsets and the product of factors, over the last dimension."""
    return left[..., 0] + right[..., 0] + (left[..., 1:] * right[..., 1:]).sum(dim=-1)


AT_ONCE = 2048  # entries that are predicted together


@documented_by(
    {**RATING_DESCRIPTIONS, "random_state": ("int, numpy generator or None", "Seeds the draws.")},
    RATING_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class MatrixFactorization(Recommender):
    r"""Rating prediction by a Bayesian matrix factorisation with offsets of users and items.

    .. math:: r_{ui} = \mu + a_u + b_i + p_u \cdot q_i + \varepsilon_{ui}

    Offsets and factors of users are Gaussian with an unknown mean and covariance, and so are those of items;
    everything is sampled by Gibbs steps, and predictions are means over the draws. How strongly factors are
    shrunk is part of the posterior, so there is no penalty to choose. Ratings are assumed to be missing at
    random.

    Parameters
    ----------
    n_factors : int, default=32
        The number of factors.
    n_warmup : int, default=20
        The number of initial draws that are discarded.
    n_draws : int, default=30
        The number of draws over which predictions are averaged; all of them are kept in the model.

    References
    ----------
    Salakhutdinov & Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain Monte Carlo.
    Rendle, Zhang & Koren (2019), On the difficulty of evaluating baselines.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> user, item = np.divmod(np.arange(600), 20)
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": 1 + user % 3 + item % 3})
    >>> new = (user + item) % 4 == 0
    >>> model = MatrixFactorization(n_factors=4, random_state=0).fit(ratings[~new])
    >>> bool(np.abs(model.predict(user[new], item[new]) - ratings["rating"][new]).mean() < 0.3)
    True
    """

    rows: ClassVar[str] = "user"  # type: ignore[misc]

    n_factors: int = 32
    _: KW_ONLY
    n_warmup: int = 20
    n_draws: int = 30

    @torch.no_grad()
    def _train(self, ratings: SparseRows, generator: torch.Generator) -> None:
        self._draws = draw_factors(ratings, self.n_factors, self.n_warmup, self.n_draws, generator)

    def _score_entries(self, rows: Positions, columns: Positions) -> Floats:
        predicted = torch.empty(len(rows), dtype=torch.float64)
        for start in range(0, len(rows), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            entries = torch.from_numpy(rows[part]), torch.from_numpy(columns[part])
            predicted[part] = self._draws.entries(*entries)
        return predicted.numpy()

    def _score_items(self, user: int) -> Tensor:
        return self._draws.row(self._draws.rows[user])

    def _fold_in(self, rated: Tensor, values: Tensor) -> Floats:
        return self._draws.row(self._draws.fold_in(rated, values.float())).double().numpy()

    def _check_parameters(self) -> None:
        for name, lowest in {"n_factors": 1, "n_warmup": 0, "n_draws": 1}.items():
            check_whole(name, getattr(self, name), lowest)

    def _state(self) -> dict[str, Tensor]:
        draws, prior = self._draws, self._draws.prior
        return self._rating_state() | {
            "rows": draws.rows,
            "columns": draws.columns,
            "centre": torch.tensor(draws.centre, dtype=torch.float64),
            "prior.mean": prior.mean,
            "prior.precision": prior.precision,
            "prior.noise": prior.noise,
        }

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._restore_ratings(state)
        size = self.n_factors + 1
        shapes = {
            "rows": (self._shape[0], self.n_draws, size),
            "columns": (self._shape[1], self.n_draws, size),
        }
        for name, shape in shapes.items():
            if state[name].shape != shape:
                raise ValueError(f"{name} have the shape {tuple(state[name].shape)} instead of {shape}")
        prior = FactorPrior(state["prior.mean"], state["prior.precision"], state["prior.noise"])
        self._draws = FactorDraws(state["rows"], state["columns"], float(state["centre"]), prior)


PRIOR = 10.0  # held-out ratings that equal weights count as


@documented_by(
    {
        **RATING_DESCRIPTIONS,
        "random_state": (
            "int, numpy generator or None",
            "Seeds the held-out ratings and the recommenders.",
        ),
    },
    RATING_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class RatingEnsemble(Recommender):
    r"""Rating prediction by a weighted sum of recommenders.

    .. math:: \hat r_{ui} = \bar r + \sum_m w_m \, (\hat r^{(m)}_{ui} - \bar r), \qquad w_m \ge 0

    The weights are those of least squares on held-out ratings, shrunk slightly towards equal ones; then all
    recommenders are fitted again, on all ratings. Ratings are assumed to be missing at random given the
    observed ratings.

    Parameters
    ----------
    models : list of recommenders, optional
        By default `AutoRec` with rows of items, `AutoRec` with rows of users, and `MatrixFactorization`. The
        networks are not shrunk towards offsets one by one, since the factorisation has offsets and the
        weights shrink all of them.
    validation_fraction : float, default=0.05
        The fraction of ratings held out for the weights, at most 10,000 ratings; with fewer than 50 ratings
        the weights are equal.

    Attributes
    ----------
    weights_ : list of float
        The weight of each recommender.
    members_ : list of recommenders
        Fitted to all ratings. Their users and items are positions in ``users_`` and ``items_``.

    Examples
    --------
    >>> import pandas as pd
    >>> user, item = np.divmod(np.arange(600), 20)
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": 1 + user % 3 + item % 3})
    >>> models = [AutoRec(n_hidden=20, max_epochs=5), MatrixFactorization(n_factors=4)]
    >>> model = RatingEnsemble(models, random_state=0).fit(ratings)
    >>> model.weights_[1] > model.weights_[0]
    True
    """

    rows: ClassVar[str] = "user"  # type: ignore[misc]
    _saved: ClassVar[tuple[str, ...]] = ("weights_", "mean_")

    models: Sequence[Recommender] | None = None
    _: KW_ONLY
    validation_fraction: float = 0.05

    def _train_on(self, read: Ratings, generator: torch.Generator) -> None:
        ratings = SparseRows.from_scipy(read.matrix)
        self.mean_ = float(read.matrix.data.mean())
        models = self._models()
        train, held = hold_out(ratings, self.validation_fraction, generator)
        seeds = torch.randint(2**31, (len(models),), generator=generator).tolist()
        self.weights_ = [1.0 / len(models)] * len(models)
        if held is not None:
            members = self._fit_members(models, seeds, train)
            pairs = held.rows.numpy(), held.columns.long().numpy()
            predicted = np.stack([self._clipped(member._predict_pairs(*pairs)) for member in members], axis=1)
            self.weights_ = _find_weights(predicted - self.mean_, held.values.double().numpy() - self.mean_)
        self.members_ = self._fit_members(models, seeds, ratings)
        self._keep_ratings(ratings)

    def _models(self) -> Sequence[Recommender]:
        if self.models is None:
            return [AutoRec("item", shrink=False), AutoRec("user", shrink=False), MatrixFactorization()]
        return self.models

    def _fit_members(
        self, models: Sequence[Recommender], seeds: Sequence[int], ratings: SparseRows
    ) -> list[Recommender]:
        entries = (ratings.values.double().numpy(), ratings.columns.numpy(), ratings.starts.numpy())
        matrix = scipy.sparse.csr_array(entries, shape=(len(ratings), ratings.n_columns))
        return [
            clone(model).set_params(random_state=seed).fit(matrix)
            for model, seed in zip(models, seeds, strict=True)
        ]

    def _weighted(self, predicted: Sequence[Floats]) -> Floats:
        weighted: Floats = self.mean_ + np.tensordot(
            np.array(self.weights_), np.stack([self._clipped(one) for one in predicted]) - self.mean_, axes=1
        )
        return weighted

    def _predict_pairs(self, user: Positions, item: Positions) -> Floats:
        return self._weighted([member._predict_pairs(user, item) for member in self.members_])

    def _predict_items(self, user: int) -> Floats:
        return self._weighted([member._predict_items(user) for member in self.members_])

    def _fold_in(self, rated: Tensor, values: Tensor) -> Floats:
        return self._weighted([member._fold_in(rated, values) for member in self.members_])

    def _check_parameters(self) -> None:
        check_number("validation_fraction", self.validation_fraction, lambda v: 0 <= v < 1, "in [0, 1)")
        if self.models is None:
            return
        if not isinstance(self.models, list | tuple) or not self.models:
            raise ValueError(f"models must be a list of recommenders, got {self.models!r}.")
        for model in self.models:
            if not isinstance(model, Recommender):
                raise ValueError(f"models must be recommenders, got {model!r}.")

    def _entries(self) -> dict[str, Any]:
        return super()._entries() | {"default": self.models is None}

    def _state(self) -> dict[str, Tensor]:
        return self._rating_state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._restore_ratings(state)

    def _members(self) -> Sequence[Recommender]:
        return self.members_

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        if len(members) != len(self.weights_):
            raise ValueError(f"there are {len(self.weights_)} weights of {len(members)} recommenders")
        if not all(type(weight) in (int, float) and 0 <= weight < np.inf for weight in self.weights_):
            raise ValueError(f"the weights of recommenders are {self.weights_!r:.60}")
        for position, member in enumerate(members):
            if not isinstance(member, Recommender) or member._shape not in (self._shape, self._shape[::-1]):
                raise ValueError(f"recommender {position} is not one of these users and items")
        self.members_ = members
        if not description["default"]:
            self.models = [clone(member).set_params(random_state=None) for member in members]


def _find_weights(predicted: Floats, truth: Floats) -> list[float]:
    """Returns weights of at least 0 by least squares, for predictions (M, n_models), near equal ones."""
    n_models = predicted.shape[1]
    strength = np.sqrt(PRIOR * max(predicted.var(), 1e-12))
    design = np.vstack([predicted, strength * np.eye(n_models)])
    target = np.concatenate([truth, np.full(n_models, strength / n_models)])
    found, _ = scipy.optimize.nnls(design, target)
    return [float(weight) for weight in found]
