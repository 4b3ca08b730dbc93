"""The base class of recommenders that train a network of sparse rows by gradients."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from halfseen.base.parameters import Descriptions, check_number, check_training, check_whole
from halfseen.data.sparse import SparseRows
from halfseen.nn.weights import load_module, module_state
from halfseen.ratings.objective import RatedRows
from halfseen.ratings.recommender import RATING_DESCRIPTIONS, ROWS, Recommender, hold_out
from halfseen.ratings.table import Floats
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Progress
from halfseen.training.protocols import Objective

SMALLEST_BATCH, USUAL_BATCH = 8, 128
FEW_ROWS = 512  # with fewer rows there are more epochs
MANY_RATINGS = 100_000  # with more ratings the penalty grows with the square root of their number
AT_ONCE = 8192  # entries that are decoded together

NETWORK_DESCRIPTIONS: Descriptions = {
    **RATING_DESCRIPTIONS,
    "sparsity_norm": ("bool", "Whether rows are normalised by their number of ratings."),
    "n_hidden": ("int", "The number of hidden units."),
    "max_epochs": (
        'int or "auto"',
        'Maximum number of epochs. ``"auto"`` is 60, and more with fewer than 512 rows, for about 600 steps.',
    ),
    "patience": ("int", "Training stops after this many epochs without an improvement on held-out ratings."),
    "validation_fraction": (
        "float",
        "The fraction of ratings held out, at most 10,000 ratings; fewer than 50 ratings hold out none.",
    ),
    "random_state": (
        "int, numpy generator or None",
        "Seeds held-out ratings, starts, batches and the ratings that are shown.",
    ),
}
"""Parameters that all networks of ratings share."""


class RatingNetwork(Recommender):
    """Creates a recommender of a network that encodes rows of ratings and has a decoder for each column.

    A subclass declares `_build(train)`, the network; `_objective()`, its loss; `_epochs`, and `_steps`, the
    number of steps with few rows; `_largest_batch`; `_penalty_per_unit`; and what predictions need.
    """

    rows: str
    sparsity_norm: bool
    n_hidden: int
    penalty: float | str
    max_epochs: int | str
    batch_size: int | str
    learning_rate: float
    patience: int
    validation_fraction: float
    callback: Callable[[Progress], None] | None
    module_: Any

    _epochs: int
    _steps: int
    _largest_batch: int
    _penalty_per_unit: float

    def _build(self, rows: SparseRows) -> nn.Module:
        raise NotImplementedError

    def _objective(self) -> Objective[Any, RatedRows]:
        raise NotImplementedError

    def _train(self, ratings: SparseRows, generator: torch.Generator) -> None:
        train, held = hold_out(ratings, self.validation_fraction, generator)
        module: Any = self._build(train)
        module.reset_parameters(train, generator)
        self.history_ = fit_module(
            module,
            self._objective(),
            RatedRows(train, train),
            generator=generator,
            validation=None if held is None else RatedRows(train, held),
            settings=self._settings(train),
            callback=self.callback,
        )
        self._keep_module(module, ratings)

    def _keep_module(self, module: nn.Module, ratings: SparseRows) -> None:
        """Stores the network, and the hidden units of all rows given all their ratings."""
        self.module_ = module.requires_grad_(False)
        with torch.no_grad():
            self._hidden = self.module_.hidden(ratings)  # (N, K)

    def _mean_count(self, rows: SparseRows) -> float | None:
        """Returns the constant of the normalisation: the mean number of ratings of rows that have any."""
        return float(rows.counts[rows.counts > 0].double().mean()) if self.sparsity_norm else None

    def _fold_in(self, rated: Tensor, values: Tensor) -> Floats:
        """Returns predictions for a new user.

        With rows of users this is one forward pass. With rows of items it is the mean prediction of users,
        and a ridge regression of the differences on the hidden units of the rated items.
        """
        if self.rows == "user":
            starts = torch.tensor([0, len(rated)], dtype=torch.int32)
            row = SparseRows(starts, rated.int(), values.float(), len(self._known["item"]))
            return self._decode_row(self.module_.hidden(row)[0]).double().numpy()
        usual = self._usual_scores()
        seen = self._hidden[rated]
        kernel = seen @ seen.T + 0.5 * self._penalty(self._ratings) * torch.eye(len(rated))
        differences = torch.linalg.solve(kernel, values.float() - usual[rated])
        return (usual + self._hidden @ (seen.T @ differences)).double().numpy()

    def _decode_row(self, hidden: Tensor) -> Tensor:
        """Returns the predictions (D) of all columns of a row with these hidden units."""
        raise NotImplementedError

    def _usual_scores(self) -> Tensor:
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
        )

    def _check_parameters(self) -> None:
        if self.rows not in ROWS:
            raise ValueError(f"rows must be 'item' or 'user', got {self.rows!r}.")
        check_whole("n_hidden", self.n_hidden, 1)
        for name, lowest in {"max_epochs": 0, "batch_size": 1}.items():
            check_whole(name, getattr(self, name), lowest, auto=True)
        if self.penalty != "auto":
            check_number("penalty", self.penalty, lambda v: 0 < v < float("inf"), "positive and finite")
        check_training(self)

    def _state(self) -> dict[str, Tensor]:
        return module_state(self.module_) | self._rating_state()

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._restore_ratings(state)
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
