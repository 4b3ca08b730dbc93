"""Building and training circuits over tables, for all estimators that use one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from halfseen.data.incomplete import Incomplete
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.models.circuits.circuit import Circuit
from halfseen.models.circuits.dependence import normalised_information
from halfseen.models.circuits.structure import Structure, join_last, pair_columns
from halfseen.training.circuit_em import fit_sum_weights
from halfseen.training.loop import TrainingSettings
from halfseen.training.progress import History, Stopped

Shape = Literal["tree", "shallow"]
Algorithm = Literal["gradient", "em"]

ROWS_PER_UNIT = 16  # rows for each component of a leaf and each channel of a region
MIN_BATCHES, MIN_BATCH = 16, 16  # into which a small table is cut, and the fewest rows of a batch
MOST_TREE_COLUMNS = 5_000  # all pairs are compared: measured, 3,000 columns of 50 rows take 9 s
MOST_DEPENDENCE_ROWS = 20_000  # from which the dependence of columns is measured
EM_GAIN = 1e-4  # of the log-likelihood of a row, below which EM stops
TREE_NOISE = 0.3  # added to the dependence of columns, so that further trees differ


def training_settings(estimator: Any, n_rows: int) -> TrainingSettings:
    """Returns the training settings of an estimator's circuit; short tables get smaller batches."""
    return TrainingSettings(
        max_epochs=estimator.max_epochs,
        batch_size=min(estimator.batch_size, max(MIN_BATCH, n_rows // MIN_BATCHES)),
        learning_rate=estimator.learning_rate,
        patience=estimator.patience,
        schedule=getattr(estimator, "schedule", "cosine"),
        compile=False,
    )


def check_algorithm(estimator: Any) -> None:
    """Raises a ValueError unless the algorithm of an estimator is "gradient" or "em"."""
    if estimator.algorithm not in get_args(Algorithm):
        raise ValueError(f"algorithm must be 'gradient' or 'em', got {estimator.algorithm!r}.")


def fit_by_em(
    circuit: Circuit, rows: Incomplete, max_steps: int, callback: Callable[[Any], None] | None
) -> History:
    """Fits the sum weights by EM in double precision; the losses of the history are those after each pass."""
    course = fit_sum_weights(
        circuit.double(), rows.to(torch.float64), max_steps=max_steps, tolerance=EM_GAIN, callback=callback
    )
    stopped: Stopped = "max_epochs" if len(course) == max_steps + 1 else "patience"
    losses = tuple(-value for value in course[1:])
    return History(train_loss=losses, best_epoch=len(losses) - 1 if losses else None, stopped=stopped)


@dataclass(frozen=True)
class CircuitSettings:
    """The parameters that all estimators with a circuit over columns have in common."""

    structure: Shape
    n_leaves: int
    n_channels: tuple[int, ...]  # of the last levels, the top at the end
    n_trees: int
    training: TrainingSettings

    @classmethod
    def of(cls, estimator: Any, n_rows: int) -> "CircuitSettings":
        """Checks and reads the parameters of an estimator; small tables get smaller circuits and batches."""
        for name in ("n_leaves", "n_trees", "batch_size"):
            check_whole(name, getattr(estimator, name), 1)
        n_channels = tuple(np.atleast_1d(estimator.n_channels).tolist())
        if not n_channels:
            raise ValueError("n_channels is empty: give the number of sums of at least one level.")
        for channels in n_channels:
            check_whole("n_channels", channels, 1)
        check_whole("max_epochs", estimator.max_epochs, 0)
        check_training(estimator)
        if estimator.structure not in get_args(Shape):
            raise ValueError(f"structure must be 'tree' or 'shallow', got {estimator.structure!r}.")
        most = max(2, n_rows // ROWS_PER_UNIT)
        return cls(
            structure=estimator.structure,
            n_leaves=min(estimator.n_leaves, most),
            n_channels=tuple(min(channels, most) for channels in n_channels),
            n_trees=estimator.n_trees,
            training=training_settings(estimator, n_rows),
        )

    def build(
        self, codes: npt.NDArray[np.float64], seed: int, n_classes: int = 1, n_targets: int = 0
    ) -> Structure:
        """Returns the structure over the columns of a table of codes (N, C) with NaN, and numeric targets.

        Targets are the last columns; they join the inputs at the top of the tree.
        """
        n_columns = codes.shape[1]
        if self.structure == "shallow" or n_columns == 1:
            n_all = n_columns + n_targets
            return Structure.shallow(n_all, self.n_leaves, self.n_channels[-1], n_classes=n_classes)
        if n_columns > MOST_TREE_COLUMNS:
            raise ValueError(
                f"structure='tree' compares all pairs of columns, so it is limited to {MOST_TREE_COLUMNS:,} "
                f"columns, got {n_columns:,}. Use structure='shallow', another method, or fewer columns."
            )
        generator = np.random.default_rng(seed)
        affinity = normalised_information(codes[:: 1 + len(codes) // MOST_DEPENDENCE_ROWS])
        pairings = [pair_columns(affinity)]
        for _ in range(1, self.n_trees):
            noise = TREE_NOISE * generator.random(affinity.shape)
            pairings.append(pair_columns(affinity + noise + noise.T))
        if n_targets:
            pairings = [join_last(levels, n_columns, n_targets) for levels in pairings]
        n_levels = len(pairings[0])
        further = n_levels - len(self.n_channels)  # levels below those that have a number
        channels = [self.n_channels[max(0, level - further)] for level in range(n_levels)]
        n_all = n_columns + n_targets
        return Structure.trees(n_all, pairings, self.n_leaves, channels, n_classes=n_classes)
