"""CF-NADE, a recommender by an autoregressive network of ordinal ratings."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from halfseen.data.sparse import SparseRows
from halfseen.estimators._documented import documented_by
from halfseen.estimators._parameters import check_number
from halfseen.estimators._rating_network import AT_ONCE, NETWORK_DESCRIPTIONS, RatingNetwork
from halfseen.estimators._ratings import Floats, Positions
from halfseen.models.cfnade import OrdinalAutoregression
from halfseen.nn.weights import module_weights
from halfseen.objectives.ratings import OrdinalError
from halfseen.training.progress import Progress

MOST_LEVELS = 20


@documented_by(
    {
        **NETWORK_DESCRIPTIONS,
        "rows": (
            '{"user", "item"}',
            "Whether the network reads the ratings of a user or those of an item.",
        ),
        "alpha": ("float", "The exponent of the normalisation."),
        "penalty": (
            'float or "auto"',
            "The weight of half the sum of squared weights in the loss, in addition to the sum of costs. "
            '``"auto"`` is 0.06 for each hidden unit, times the square root of the number of ratings in '
            "units of 100,000 if there are more.",
        ),
        "batch_size": (
            'int or "auto"',
            'Rows per training step. ``"auto"`` is 128, or a quarter of the rows, but at least 8, if there '
            "are fewer than 512.",
        ),
    }
)
@dataclass(eq=False, repr=False)
class CFNADE(RatingNetwork):
    r"""Rating prediction by an autoregressive network of the ratings of each user or each item.

    .. math:: h = \tanh\Big(c_0 + s(d) \sum_{j \in o} W^{r_j}_j\Big), \qquad
              p(r_t = k) \propto \exp(b_t^k + V_t^k \cdot h), \qquad \hat r_t = \sum_k k \, p(r_t = k)

    where :math:`o` are the :math:`d` observed ratings of the row. In training random subsets of them are
    shown and the others are predicted, under an ordinal cost. With Sparsity Normalization
    :math:`s(d) = (K / d)^\alpha`. Each level of the scale has its own weights, so the model is larger than
    that of `AutoRec` by a factor equal to the number of levels. Ratings are assumed to be missing at random
    given the observed ratings of the row.

    Attributes
    ----------
    users_, items_ : arrays
        The identifiers of `fit`, sorted.
    levels_ : list of float
        The distinct ratings in `fit`, in ascending order.
    rating_range_ : tuple of float
        The ends of the rating scale.
    module_ : OrdinalAutoregression
        The trained network.
    history_ : History
        The loss after each epoch, and why training stopped.

    References
    ----------
    Zheng, Tang, Ding & Zhou (2016), A neural autoregressive approach to collaborative filtering. Yi, Lee,
    Kim, Hwang & Yang (2020), Why not to use zero imputation? Correcting sparsity bias in training neural
    networks.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.choice(30 * 20, size=300, replace=False)
    >>> user, item = pairs // 20, pairs % 20
    >>> ratings = pd.DataFrame({"user": user, "item": item, "rating": np.clip(1 + user % 3 + item % 3, 1, 5)})
    >>> model = CFNADE(n_hidden=20, max_epochs=5, random_state=0).fit(ratings)
    >>> model.predict([0, 1], [5, 5]).shape
    (2,)
    """

    _saved: ClassVar[tuple[str, ...]] = (*RatingNetwork._saved, "levels_")
    _epochs, _steps, _largest_batch = 60, 600, 128
    _penalty_per_unit = 0.06

    rows: str = "user"
    _: KW_ONLY
    sparsity_norm: bool = True
    alpha: float = 1.0
    n_hidden: int = 500
    penalty: float | str = "auto"
    max_epochs: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate: float = 1e-3
    patience: int = 30
    validation_fraction: float = 0.05
    rating_range: tuple[float, float] | None = None
    callback: Callable[[Progress], None] | None = None
    random_state: Any = None

    def _build(self, rows: SparseRows) -> OrdinalAutoregression:
        return OrdinalAutoregression(
            rows.n_columns,
            self.n_hidden,
            levels=torch.tensor(self.levels_),
            mean_count=self._mean_count(rows),
            alpha=float(self.alpha),
        )

    def _train(self, ratings: SparseRows, generator: torch.Generator) -> None:
        self.levels_ = ratings.values.unique().tolist()
        if len(self.levels_) > MOST_LEVELS:
            raise ValueError(
                f"There are {len(self.levels_)} different ratings, but CFNADE has weights for each level of "
                f"the scale and takes at most {MOST_LEVELS}. Round the ratings to a scale, or use AutoRec."
            )
        super()._train(ratings, generator)

    def _objective(self) -> OrdinalError:
        return OrdinalError()

    def _score_entries(self, rows: Positions, columns: Positions) -> Floats:
        """Returns predictions of entries, some at a time; in float64, so that none depends on others."""
        decoder, bias = self._by_column()
        predicted = torch.empty(len(rows), dtype=torch.float64)
        at_once = max(1, AT_ONCE // len(self.levels_))
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            hidden, column = self._hidden[torch.from_numpy(rows[part])], torch.from_numpy(columns[part])
            scores = (decoder[column].double() * hidden.double().unsqueeze(1)).sum(dim=2)
            predicted[part] = self.module_.expected(scores + bias[column].double())
        return predicted.numpy()

    def _score_items(self, user: int) -> Tensor:
        if self.rows == "user":
            return self._decode_row(self._hidden[user])
        decoder, bias = self._by_column()
        return self._expected(self._hidden @ decoder[user].T + bias[user])

    def _decode_row(self, hidden: Tensor) -> Tensor:
        scores = self.module_.decoder @ hidden + self.module_.output_bias
        return self._expected(scores.view(-1, len(self.levels_)))

    def _usual_scores(self) -> Tensor:
        decoder, bias = self._by_column()
        return self._expected(self._hidden @ decoder.mean(dim=0).T + bias.mean(dim=0))

    def _expected(self, scores: Tensor) -> Tensor:
        expected: Tensor = self.module_.expected(scores)
        return expected

    def _by_column(self) -> tuple[Tensor, Tensor]:
        """Returns decoder (D, S, H) and biases (D, S)."""
        shape = (-1, len(self.levels_))
        return self.module_.decoder.view(*shape, self.n_hidden), self.module_.output_bias.view(shape)

    def _check_parameters(self) -> None:
        check_number("alpha", self.alpha, lambda v: 0 <= v < np.inf, "a number of at least 0")
        super()._check_parameters()

    def _empty_module(self, state: Mapping[str, Tensor]) -> OrdinalAutoregression:
        _, n_columns = self._shape
        if module_weights(state)["encoder"].shape != (n_columns * len(self.levels_), self.n_hidden):
            raise ValueError(f"n_hidden={self.n_hidden!r} does not fit the saved weights.")
        return OrdinalAutoregression(n_columns, self.n_hidden, levels=torch.tensor(self.levels_))
