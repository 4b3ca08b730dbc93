"""The base class of recommenders that train a network of sparse rows by gradients.

Products of sparse rows with dense weights have gradients that touch observed entries only.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.special
import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._arrays import Floats
from halfseen.base.parameters import (
    Descriptions,
    TrainingParameters,
    TypesAndTexts,
    check_number,
    check_training,
    check_whole,
)
from halfseen.nn.weights import load_module, module_state
from halfseen.ratings.recommender import (
    RATING_ATTRIBUTES,
    RATING_DESCRIPTIONS,
    ROWS,
    RatedRows,
    RatingOffsets,
    Recommender,
    hold_out,
)
from halfseen.ratings.table import Positions, SparseRows
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.step import Objective


def sparse_linear(rows: SparseRows, weight: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Returns the product :math:`X W` of sparse rows (N, D) with weights (D, K).

    The cost is proportional to the number of observed entries, in the backward pass too. Other `values` may
    take the place of those of the rows; there is no gradient with respect to them.

    Examples
    --------
    >>> rows = SparseRows(torch.tensor([0, 1]).int(), torch.tensor([1]).int(), torch.tensor([2.0]), 3)
    >>> sparse_linear(rows, torch.eye(3))
    tensor([[0., 2., 0.]])
    """
    product: Tensor = _SparseLinear.apply(weight, rows, rows.values if values is None else values)
    return product


def sampled_product(pattern: SparseRows, left: Tensor, right: Tensor) -> Tensor:
    r"""Returns the entries of :math:`L R^\top` where a pattern (N, D) is observed, for (N, K) and (D, K).

    The dense product is never computed; gradients cost as much as two products of a sparse and a dense
    matrix.

    Examples
    --------
    >>> pattern = SparseRows(torch.tensor([0, 1]).int(), torch.tensor([1]).int(), torch.tensor([0.0]), 2)
    >>> sampled_product(pattern, torch.tensor([[1.0, 2.0]]), torch.tensor([[9.0, 9.0], [3.0, 4.0]]))
    tensor([11.])
    """
    product: Tensor = _SampledProduct.apply(left, right, pattern)
    return product


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, weight: Tensor, rows: SparseRows, values: Tensor) -> Tensor:
        context.rows, context.values = rows, values
        return _multiply(rows.starts, rows.columns, values, weight)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _multiply_transposed(context.rows, context.values, gradients[0]), None, None


class _SampledProduct(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, left: Tensor, right: Tensor, pattern: SparseRows) -> Tensor:
        context.save_for_backward(left, right)
        context.pattern = pattern
        starts, rows, order = pattern.transposition
        if left.device.type != "cpu":  # not all devices have products of sparse matrices
            return (left.index_select(0, pattern.rows) * right.index_select(0, pattern.columns)).sum(dim=1)
        # By columns, so that `left`, a batch of rows, stays in the cache while the larger `right` goes by.
        zeros = left.new_zeros(len(rows))
        found = torch.sparse.sampled_addmm(_matrix(starts, rows, zeros, len(pattern)), right, left.T)
        return torch.empty_like(zeros).scatter_(0, order, found.values())

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right = context.saved_tensors
        pattern, errors = context.pattern, gradients[0]
        of_left = _multiply(pattern.starts, pattern.columns, errors, right)
        return of_left, _multiply_transposed(pattern, errors, left), None


def _multiply(starts: Tensor, columns: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Returns the product of a CSR matrix with a dense one: a weighted sum of rows of the latter."""
    # Detached, as for tensors with gradients it would prepare a backward pass of its own.
    return functional.embedding_bag(
        columns, dense.detach(), starts, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def _multiply_transposed(rows: SparseRows, values: Tensor, dense: Tensor) -> Tensor:
    starts, columns, order = rows.transposition  # which the rows keep, for all products with them
    return _multiply(starts, columns, values.index_select(0, order), dense)


def _matrix(starts: Tensor, columns: Tensor, values: Tensor, n_columns: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        shape = (len(starts) - 1, n_columns)
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


SMALLEST_BATCH, USUAL_BATCH = 8, 128
FEW_ROWS = 512  # with fewer rows there are more epochs
MANY_RATINGS = 100_000  # with more ratings the penalty grows with the square root of their number
AT_ONCE = 8192  # entries that are decoded together

NETWORK_DESCRIPTIONS: Descriptions = {
    **RATING_DESCRIPTIONS,
    "sparsity_norm": "Whether rows are normalised by their number of ratings.",
    "mean_count": (
        "The constant :math:`K` of the normalisation. By default the mean number of ratings of rows that "
        "have any; the paper has 500 for CF-NADE."
    ),
    "n_hidden": "The number of hidden units.",
    "max_epochs": (
        'int or "auto"',
        'Maximum number of epochs. ``"auto"`` is 60, and more with fewer than 512 rows, for about 600 steps.',
    ),
    "batch_size": (
        'int or "auto"',
        'Rows per training step. ``"auto"`` is a quarter of the rows, but at least 8, if there are fewer '
        "than 512. With more rows it is 128; for `AutoRec` it is an eighth of the rows, but at least 128 and "
        "at most 512.",
    ),
    "patience": "Training stops after this many epochs without an improvement on held-out ratings.",
    "validation_fraction": (
        "The fraction of ratings held out, at most 10,000 ratings; fewer than 50 ratings hold out none."
    ),
    "shrink": (
        "Whether predictions are shrunk towards offsets of users and items, with weights chosen on the "
        "held-out ratings, so that a network that does not learn from few ratings does no harm. With fewer "
        "than 50 ratings the offsets alone are predicted; with ``validation_fraction=0`` there is no "
        "shrinkage."
    ),
    "random_state": (
        "int, numpy generator or None",
        "Seeds held-out ratings, starts, batches and the ratings that are shown.",
    ),
}
"""Parameters that all networks of ratings share."""

NETWORK_ATTRIBUTES: TypesAndTexts = {
    **RATING_ATTRIBUTES,
    "network_weight_": (
        "tuple of float",
        "The weight :math:`w` of the network beside the offsets, and the numbers :math:`\\alpha_0` and "
        ":math:`\\beta_0`: a prediction for a row with :math:`c` and a column with :math:`d` ratings has the "
        "weight :math:`w \\, c / (c + \\alpha_0) \\, d / (d + \\beta_0)`.",
    ),
    "history_": ("History", "The loss after each epoch, and why training stopped."),
}
"""The fitted attributes of all networks of ratings."""


CONFIDENCE = 0.95
"""The weight of a network is the lower end of a one-sided interval of this level. It was chosen after weights
of a lightly penalised least squares were up to 3% behind the offsets on simulated sums of offsets and noise,
the ratings of tests/ratings/test_shrinkage.py, so these tests are not independent of it."""
COUNT_PRIORS = (0.0, 2.0, 10.0, 50.0, 200.0)  # from none to more ratings than most rows have; not tuned


@dataclass(frozen=True)
class NetworkWeight:
    r"""The weight of a network beside offsets, by the numbers of ratings of row and column.

    .. math:: \hat r_{ij} = (1 - w_{ij}) \, o_{ij} + w_{ij} \, f_{ij}, \qquad
              w_{ij} = w \, \frac{c_i}{c_i + \alpha} \, \frac{d_j}{d_j + \beta}

    where :math:`f_{ij}` is the prediction of the network and :math:`o_{ij}` the sum of offsets; a row or
    column without ratings has the weight 0.

    Examples
    --------
    >>> NetworkWeight(0.5, 1.0, 0.0).of(np.array([0, 1, 3]), np.array([2, 2, 2]))
    array([0.   , 0.25 , 0.375])
    """

    weight: float
    row_prior: float
    column_prior: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.weight <= 1.0 and 0.0 <= self.row_prior < math.inf > self.column_prior >= 0.0):
            raise ValueError(f"the weight of the network is {astuple(self)!r:.60}")

    @classmethod
    def fit(
        cls, network: Floats, offsets: Floats, truth: Floats, rows: Positions, columns: Positions
    ) -> "NetworkWeight":
        """Learns from predictions of held-out ratings and the numbers of ratings of their rows and columns.

        For given priors the weight is the lower end of the interval of a regression, so few ratings give
        small weights. It is at least 0, so that the error on these ratings is never larger than that of the
        offsets, and at most 1.
        """
        if len(truth) < 2:
            return OFFSETS_ALONE
        rest = truth - offsets
        best, least = OFFSETS_ALONE, float(rest @ rest)
        quantile = float(scipy.special.stdtrit(len(truth) - 1, CONFIDENCE))
        for row_prior in COUNT_PRIORS:
            for column_prior in COUNT_PRIORS:
                direction = cls(1.0, row_prior, column_prior).of(rows, columns) * (network - offsets)
                size = float(direction @ direction)
                if size == 0.0:
                    continue
                slope = float(direction @ rest) / size
                variance = float(np.square(rest - slope * direction).sum()) / (len(truth) - 1)
                weight = min(max(slope - quantile * math.sqrt(variance / size), 0.0), 1.0)
                error = float(np.square(rest - weight * direction).sum())
                if error < least:
                    best, least = cls(weight, row_prior, column_prior), error
        return best

    def of(self, rows: Positions, columns: Positions) -> Floats:
        """Returns the weight of entries whose rows and columns have these numbers of ratings."""
        row = rows / np.maximum(rows + self.row_prior, 1.0)
        found: Floats = self.weight * row * (columns / np.maximum(columns + self.column_prior, 1.0))
        return found


NETWORK_ALONE = NetworkWeight(1.0, 0.0, 0.0)
OFFSETS_ALONE = NetworkWeight(0.0, 0.0, 0.0)


@dataclass(eq=False, repr=False, kw_only=True)
class RatingNetwork(TrainingParameters, Recommender):
    """Creates a recommender of a network that encodes rows of ratings and has a decoder for each column.

    A subclass declares `_build(train)`, the network; `_objective()`, its loss; `_epochs`, and `_steps`, the
    number of steps with few rows; `_largest_batch`; `_penalty_per_unit`; and predictions of the network:
    `_decode(hidden, columns)`, `_decode_items(user)`, `_decode_row(hidden)` and `_mean_column_scores()`.
    """

    _saved: ClassVar[tuple[str, ...]] = ("network_weight_",)
    _epochs: ClassVar[int]
    _steps: ClassVar[int]
    _largest_batch: ClassVar[int]
    _penalty_per_unit: ClassVar[float]

    sparsity_norm: bool = True
    mean_count: float | None = None
    n_hidden: int = 500
    penalty: float | str = "auto"
    max_epochs: int | str = "auto"
    batch_size: int | str = "auto"
    patience: int = 15
    validation_fraction: float = 0.05
    shrink: bool = True

    module_: Any = field(init=False)  # a fitted attribute, no parameter

    def _build(self, rows: SparseRows) -> nn.Module:
        raise NotImplementedError

    def _objective(self) -> Objective[Any, RatedRows]:
        raise NotImplementedError

    def _train(self, ratings: SparseRows, generator: torch.Generator) -> None:
        train, held = hold_out(ratings, self.validation_fraction, generator)
        module: Any = self._build(train)
        module.reset_parameters(train, generator)
        self._descend(module, train, held, generator)
        self.network_weight_ = astuple(self._find_weight(module, train, held))
        self._keep_module(module, ratings)

    def _descend(
        self, module: nn.Module, train: SparseRows, held: SparseRows | None, generator: torch.Generator
    ) -> None:
        """Trains the network."""
        self.history_ = fit_module(
            module,
            self._objective(),
            RatedRows(train, train),
            generator=generator,
            validation=None if held is None else RatedRows(train, held),
            settings=self._settings(train),
            callback=self.callback,
        )

    @torch.no_grad()
    def _find_weight(self, module: nn.Module, train: SparseRows, held: SparseRows | None) -> NetworkWeight:
        """Returns the weight of the network beside offsets, by the errors of both on held-out ratings."""
        if not self.shrink or self.validation_fraction == 0:
            return NETWORK_ALONE
        if held is None:
            return OFFSETS_ALONE
        offsets = RatingOffsets.fit(train)
        rows, columns = held.rows.numpy(), held.columns.long().numpy()
        warm = offsets.is_warm(rows, columns)
        network = module.eval()(train, held).double().numpy()
        return NetworkWeight.fit(
            self._clipped(network[warm]),
            self._clipped(offsets.predict(rows[warm], columns[warm])),
            held.values.double().numpy()[warm],
            offsets.row_counts[rows[warm]],
            offsets.column_counts[columns[warm]],
        )

    def _keep_module(self, module: nn.Module, ratings: SparseRows) -> None:
        """Stores the network, and the hidden units of all rows given all their ratings."""
        self.module_ = module.requires_grad_(False)
        with torch.no_grad():
            self._hidden = self.module_.hidden(ratings)  # (N, K)

    def _mean_count(self, rows: SparseRows) -> float | None:
        """Returns the constant of the normalisation, by default the mean count of rows that have ratings."""
        if not self.sparsity_norm:
            return None
        if self.mean_count is not None:
            return float(self.mean_count)
        return float(rows.counts[rows.counts > 0].double().mean())

    def _shrunk(self, network: Floats, offsets: Floats, rows: Positions, columns: Positions) -> Floats:
        """Returns weighted means of two predictions of entries, by the counts of their rows and columns."""
        weight = NetworkWeight(*self.network_weight_).of(rows, columns)
        return (1.0 - weight) * self._clipped(offsets) + weight * self._clipped(network)

    def _score_entries(self, rows: Positions, columns: Positions) -> Floats:
        offsets = self._offsets
        counts = offsets.row_counts[rows], offsets.column_counts[columns]
        return self._shrunk(self._decode_entries(rows, columns), offsets.predict(rows, columns), *counts)

    def _score_items(self, user: int) -> Tensor:
        items = np.arange(len(self._known["item"]))
        rows, columns = self._oriented(np.full(len(items), user), items)
        offsets = self._offsets
        counts = offsets.row_counts[rows], offsets.column_counts[columns]
        network = self._decode_items(user).double().numpy()
        return torch.from_numpy(self._shrunk(network, offsets.predict(rows, columns), *counts))

    def _fold_in(self, rated: Tensor, values: Tensor) -> Floats:
        """Returns predictions for a new user, shrunk as those for known users."""
        given = np.full(len(self._known["item"]), len(rated))
        is_row, offsets = self.rows == "user", self._offsets
        predict_new = offsets.predict_new_row if is_row else offsets.predict_new_column
        counts = (given, offsets.column_counts) if is_row else (offsets.row_counts, given)
        return self._shrunk(
            self._decode_new(rated, values), predict_new(rated.numpy(), values.numpy()), *counts
        )

    def _decode_new(self, rated: Tensor, values: Tensor) -> Floats:
        """Returns the network's predictions for a new user.

        With rows of users this is one forward pass. With rows of items it is the mean prediction of users,
        and a ridge regression of the differences on the hidden units of the rated items.
        """
        if self.rows == "user":
            starts = torch.tensor([0, len(rated)], dtype=torch.int32)
            row = SparseRows(starts, rated.int(), values.float(), len(self._known["item"]))
            return self._decode_row(self.module_.hidden(row)[0]).double().numpy()
        usual = self._mean_column_scores()
        seen = self._hidden[rated]
        kernel = seen @ seen.T + 0.5 * self._penalty(self._ratings) * torch.eye(len(rated))
        differences = torch.linalg.solve(kernel, values.float() - usual[rated])
        return (usual + self._hidden @ (seen.T @ differences)).double().numpy()

    def _decode_entries(self, rows: Positions, columns: Positions) -> Floats:
        """Returns the network's predictions of entries, some at a time."""
        predicted = torch.empty(len(rows), dtype=torch.float64)
        at_once = max(1, AT_ONCE // self._outputs_per_entry)
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            hidden = self._hidden[torch.from_numpy(rows[part])].double()
            predicted[part] = self._decode(hidden, torch.from_numpy(columns[part]))
        return predicted.numpy()

    @property
    def _outputs_per_entry(self) -> int:
        """How many outputs of the network belong to one entry."""
        return 1

    def _decode(self, hidden: Tensor, columns: Tensor) -> Tensor:
        """Returns predictions (N) of entries, given the hidden units (N, H) of their rows, and their columns.

        They are computed in float64, so that none depends on the others.
        """
        raise NotImplementedError

    def _decode_items(self, user: int) -> Tensor:
        """Returns the network's predictions of all items by one user."""
        raise NotImplementedError

    def _decode_row(self, hidden: Tensor) -> Tensor:
        """Returns the predictions (D) of all columns of a row with these hidden units."""
        raise NotImplementedError

    def _mean_column_scores(self) -> Tensor:
        """Returns the predictions (N) of rows for a column with the mean weights."""
        raise NotImplementedError

    def _penalty(self, ratings: SparseRows) -> float:
        if self.penalty != "auto":
            return float(self.penalty)
        return self._penalty_per_unit * self.n_hidden * max(1.0, len(ratings.values) / MANY_RATINGS) ** 0.5

    def _settings(self, train: SparseRows) -> TrainingSettings:
        n_rows = len(train)
        fitting = find_batch_size(n_rows, self._largest_batch)
        size = fitting if self.batch_size == "auto" else int(self.batch_size)
        epochs = self._epochs
        if n_rows < FEW_ROWS:
            epochs = max(epochs, self._steps * size // n_rows)
        return TrainingSettings(
            max_epochs=epochs if self.max_epochs == "auto" else int(self.max_epochs),
            batch_size=size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            patience=self.patience,
            penalties=dict.fromkeys(("encoder", "decoder"), self._penalty(train) / n_rows),
            min_improvement=0.0,
            compile=False,
            device=self.device,
        )

    def _check_parameters(self) -> None:
        if self.rows not in ROWS:
            raise ValueError(f"rows must be 'item' or 'user', got {self.rows!r}.")
        check_whole("n_hidden", self.n_hidden, 1)
        for name, lowest in {"max_epochs": 0, "batch_size": 1}.items():
            check_whole(name, getattr(self, name), lowest, auto=True)
        if self.penalty != "auto":
            check_number("penalty", self.penalty, lambda v: 0 < v < float("inf"), "positive and finite")
        if self.mean_count is not None:
            check_number("mean_count", self.mean_count, lambda v: 0 < v < float("inf"), "positive and finite")
        if self.shrink not in (True, False):
            raise ValueError(f"shrink must be True or False, got {self.shrink!r}.")
        check_training(self)

    def _state(self) -> dict[str, Tensor]:
        return module_state(self.module_) | self._rating_state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._restore_ratings(state)
        # A file of a version that did not shrink has no weight: its network predicts alone, as it did then.
        self.network_weight_ = astuple(
            NetworkWeight(*getattr(self, "network_weight_", astuple(NETWORK_ALONE)))
        )
        self._keep_module(load_module(self._empty_module(state), state), self._ratings)

    def _empty_module(self, state: Mapping[str, Tensor]) -> nn.Module:
        """Returns a network of the shapes that the file must have; raises if its weights have others."""
        raise NotImplementedError


def find_batch_size(n_rows: int, largest: int) -> int:
    """Returns the number of rows in a step: a quarter of few rows, otherwise an eighth within bounds.

    Adam updates all weights in each step, whatever the rows of the batch have observed, so that an epoch of
    larger batches costs less.

    Examples
    --------
    >>> [find_batch_size(n_rows, largest=512) for n_rows in (20, 400, 943, 1682, 3706, 6040)]
    [8, 100, 128, 211, 464, 512]
    """
    if n_rows < FEW_ROWS:
        return max(SMALLEST_BATCH, n_rows // 4)
    return min(max(USUAL_BATCH, math.ceil(n_rows / 8)), largest)
