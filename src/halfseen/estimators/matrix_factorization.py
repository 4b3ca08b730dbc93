"""A recommender by Bayesian matrix factorisation."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows
from halfseen.estimators._parameters import check_whole
from halfseen.estimators._ratings import Floats, Positions
from halfseen.estimators._recommender import Recommender
from halfseen.models.matrix_factorization import FactorDraws, FactorPrior, draw_factors

AT_ONCE = 2048  # entries that are predicted together


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
    rating_range : pair of float, optional
        The ends of the rating scale. By default those of the ratings in `fit`. Predictions stay within them.
    random_state : int, numpy generator or None, default=None
        Seeds the draws.

    Attributes
    ----------
    users_, items_ : arrays
        The identifiers of `fit`, sorted.
    rating_range_ : tuple of float
        The ends of the rating scale.

    References
    ----------
    Salakhutdinov & Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain Monte Carlo.
    Rendle, Zhang & Koren (2019), On the difficulty of evaluating baselines.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.choice(30 * 20, size=300, replace=False)
    >>> user, item = pairs // 20, pairs % 20
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": np.clip(1 + user % 3 + item % 3, 1, 5)})
    >>> model = MatrixFactorization(n_factors=4, random_state=0).fit(ratings)
    >>> bool(np.sqrt(np.mean((model.predict(user, item) - ratings["rating"]) ** 2)) < 0.3)
    True
    """

    rows: ClassVar[str] = "user"  # type: ignore[misc]

    n_factors: int = 32
    _: KW_ONLY
    n_warmup: int = 20
    n_draws: int = 30
    rating_range: tuple[float, float] | None = None
    random_state: Any = None

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
