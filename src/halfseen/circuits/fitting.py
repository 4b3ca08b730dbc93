"""Building and training circuits over tables, for all estimators that use one."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._random import choose_rows
from halfseen.base.parameters import (
    IMPUTER_ATTRIBUTES,
    Descriptions,
    TrainingParameters,
    check_training,
    check_whole,
    documented_by,
)
from halfseen.base.table import EncodedRows
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.objectives import UNKNOWN
from halfseen.circuits.structure import Structure, join_last, pair_columns
from halfseen.data.incomplete import Incomplete, Passes, add_in_tree
from halfseen.training.loop import Schedule, TrainingSettings
from halfseen.training.progress import EMProgress, History, Stopped

DESCRIPTIONS: Descriptions = {
    "n_leaves": "The number of components of each column.",
    "n_channels": (
        "int or sequence of int",
        "The number of sums in each region of the tree. If it is a sequence, its last number is that of the "
        "top level, and its first number is used for all further levels below. This number and `n_leaves` "
        "are limited to one for every 16 rows.",
    ),
    "structure": (
        '{"tree", "shallow"}',
        "A tree over the columns, at most 5,000, by the mutual information of all pairs; or a single product "
        "of all columns.",
    ),
    "n_trees": (
        "The number of trees that are mixed. The first is built from the mutual information of the "
        "columns, the others from a noisy version of it."
    ),
    "algorithm": (
        '{"gradient", "em"}',
        "How the circuit is trained: components and weights by gradients, or only the weights of sums, by "
        "EM, which has no learning rate and uses all rows in every epoch; components then keep their initial "
        "values.",
    ),
    "beta": (
        "The weight of the log-likelihood of the inputs, per column, relative to that of the target given "
        "the inputs. Larger values make the circuit a better density and a worse predictor."
    ),
    "max_dropped": (
        "In training, inputs of each row are left out at a rate between 0 and this one, and integrated out."
    ),
    "noise": (
        "In training, Gaussian noise of this standard deviation is added to numeric inputs, in units of "
        "their own standard deviation, so that components cannot describe single values."
    ),
    "batch_size": "Rows per training step; fewer if the table has fewer than 16 times as many.",
}

documented = documented_by(DESCRIPTIONS)
documented_imputer = documented_by(DESCRIPTIONS, IMPUTER_ATTRIBUTES)

IMAGE_DESCRIPTIONS: Descriptions = DESCRIPTIONS | {
    "n_leaves": "The number of components of a patch, shared by all positions.",
    "n_channels": (
        "int or sequence of int",
        "The number of sums in each region of each level, from the bottom; the last number is used "
        "for all further levels.",
    ),
    "structure": (
        '{"deep", "shallow"}',
        "Products of 2 x 2 neighbouring regions, level by level (HT), or one product of all patches (CP).",
    ),
    "patch": "Height and width of the patches that the leaves describe.",
    "pixels": (
        '{"gaussian", "discretised"}',
        "The family of pixels with more than two values. Discretised pixels have a probability for each "
        "shade (a logistic distribution, rounded), so that likelihoods are comparable with those of other "
        "models; they take longer.",
    ),
    "shifts": (
        "The maximum shift of images in pixels. In training, shifts are random; predictions are averaged "
        "over all (2 * shifts + 1)**2 shifts, which multiplies their time by this number."
    ),
    "averaging": (
        '{"geometric", "mixture"}',
        "How predictions are averaged over shifts: by the geometric mean of the probabilities of each class, "
        "or as those of the mixture of the shifted densities, which is normalised.",
    ),
    "beta": "The weight of the log-likelihood of a pixel, relative to that of the class given the pixels.",
    "max_dropped": (
        "In training, pixels of each image are left out at a rate between 0 and this one, single pixels or "
        "squares of 4 x 4, and integrated out."
    ),
    "algorithm": (
        '{"gradient", "em"}',
        "How the weights of sums are trained: by gradients, or by EM, which has no learning rate and uses "
        "all images in every epoch.",
    ),
    "schedule": (
        '{"cosine", "linear", "step", "constant"}',
        "How the learning rate decreases: to zero along half a cosine; linearly to zero in the last fifth of "
        "the epochs, as in the code of the authors; to a tenth in the last fifth, as in their paper; or "
        "not at all.",
    ),
    "learning_rate": "Initial learning rate; `schedule` determines how it decreases.",
    "weight_decay": (
        "The weight of the sum of squares of all sum weights, which pulls them towards equal weights."
    ),
    "batch_size": "Images per training step; fewer if there are fewer than 16 times as many.",
    "image_shape": (
        "(H, W) or (C, H, W)",
        "The shape of an image, if images are given as rows of pixels. Not needed for arrays of shape "
        "(n_images, H, W) or (n_images, H, W, C).",
    ),
    "shape": (
        "(T, d)",
        "The numbers of steps and of features, if X holds series: arrays of shape (n_series, T, d), or rows "
        "of T * d numbers, step after step. All features share one scale: standardise them first.",
    ),
}

documented_images = documented_by(IMAGE_DESCRIPTIONS)


@dataclass(eq=False, repr=False)
class CircuitParameters(TrainingParameters):
    """The parameters of all estimators with a circuit over the columns of a table."""

    n_leaves: int = 32
    n_channels: int | Sequence[int] = 64
    _: KW_ONLY
    structure: str = "tree"
    n_trees: int = 1
    max_epochs: int = 100
    batch_size: int = 512
    learning_rate: float = 0.03
    patience: int = 10


MAX_LEVELS = 8  # maximum number of levels after discretisation; further levels share the last
BLOCK = 1 << 22  # counts that are in memory at a time
MIN_PAIRS = 20  # with fewer rows in which both are observed, a pair is treated as independent


def normalised_information(codes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    r"""Returns the normalised mutual information (C, C) of columns, from rows in which both are observed.

    .. math:: A_{ij} = \frac{I(x_i; x_j)}{\sqrt{H(x_i) H(x_j)}}

    Columns with more than eight different values are cut at their octiles. The diagonal is zero.

    Parameters
    ----------
    codes : array of shape (N, C)
        Numbers, or positions among levels; NaN where missing.

    Examples
    --------
    >>> x = np.arange(200.0) % 4
    >>> normalised_information(np.column_stack([x, x, x // 2])).round(2)
    array([[0.  , 1.  , 0.71],
           [1.  , 0.  , 0.71],
           [0.71, 0.71, 0.  ]])
    """
    n_rows, n_columns = codes.shape
    indicators = np.concatenate([_indicators(column) for column in codes.T], axis=1)  # (N, C * levels)
    observed = (~np.isnan(codes)).astype(np.float32)
    products = np.arange(n_rows + 1.0)
    products[1:] *= np.log(products[1:])  # n log n, for every possible count n
    affinity = np.zeros((n_columns, n_columns))
    size = max(1, BLOCK // (MAX_LEVELS**2 * n_columns))
    for start in range(0, n_columns, size):
        block = slice(start, min(start + size, n_columns))
        levels = indicators[:, block.start * MAX_LEVELS : block.stop * MAX_LEVELS]
        total = observed[:, block].T @ observed  # (B, C)
        joint = (levels.T @ indicators).reshape(-1, MAX_LEVELS, n_columns, MAX_LEVELS)
        rows = (levels.T @ observed).reshape(-1, MAX_LEVELS, n_columns)
        columns = (observed[:, block].T @ indicators).reshape(-1, n_columns, MAX_LEVELS)
        whole = products[total.astype(np.int64)]
        own, other, both = (  # entropies, times the number of rows
            whole - products[part.astype(np.int64)].sum(axis=axis)
            for part, axis in ((rows, 1), (columns, 2), (joint, (1, 3)))
        )
        scale = np.sqrt(own * other)
        known = (scale > 0) & (total >= MIN_PAIRS)
        affinity[block] = np.where(known, (own + other - both) / np.where(known, scale, 1.0), 0.0)
    np.fill_diagonal(affinity, 0.0)
    return np.clip((affinity + affinity.T) / 2, 0.0, 1.0)  # symmetric to the last bit


def _indicators(column: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Returns 0/1 (N, levels): all zero where the column is missing."""
    observed = ~np.isnan(column)
    values = column[observed]
    result = np.zeros((len(column), MAX_LEVELS), dtype=np.float32)  # sums of few rows are exact in it
    if len(values):
        distinct = np.unique(values)
        if len(distinct) > MAX_LEVELS:
            cuts = np.unique(np.quantile(values, np.arange(1, MAX_LEVELS) / MAX_LEVELS))
        else:
            cuts = (distinct[1:] + distinct[:-1]) / 2
        result[np.flatnonzero(observed), np.searchsorted(cuts, values, side="right")] = 1.0
    return result


SMOOTHING = 0.1
"""The rows that are added to the uses of each weight, as a Dirichlet prior would."""


ROWS_AT_ONCE = 2048  # of which the expected uses of weights are computed together; a guess


@torch.no_grad()
def fit_sum_weights(
    circuit: Circuit,
    batch: Incomplete,
    classes: Tensor | None = None,
    *,
    max_steps: int = 100,
    tolerance: float = 1e-6,
    smoothing: float = SMOOTHING,
    n_rows: int = ROWS_AT_ONCE,
    callback: Callable[[EMProgress], None] | None = None,
) -> list[float]:
    r"""Improves the sum weights of a circuit by EM; its leaves and the class prior are not changed.

    .. math:: w_{io} \leftarrow \frac{n_{io} + \alpha}{\sum_{i'} (n_{i'o} + \alpha)}, \quad
              n_{io} = \sum_n \frac{\partial \log p(x_{n,o}, y_n)}{\partial \log w_{io}}

    where the derivative treats the weights as unconstrained numbers; it is the expected number of rows that
    use the weight. Rows may be incomplete and labels unknown.

    Parameters
    ----------
    circuit : Circuit
        Changed in place.
    batch : Incomplete
        Rows (N, D).
    classes : Tensor, optional
        Their classes (N), -1 where unknown; without them none is known.
    max_steps : int
        The maximum number of passes over all rows.
    tolerance : float
        EM stops when a pass improves the log density by less than this per row.
    smoothing : float
        The pseudo-count :math:`\alpha` of every weight.
    n_rows : int
        The number of rows in memory at once, on which only the last bits of the result depend.
    callback : callable, optional
        Called with an ``EMProgress`` after each step.

    Returns
    -------
    list of float
        The mean penalised log density of the rows, with their known classes, before each step and at the
        end. It never decreases, except for the effect of the minimum weight.
    """
    if classes is None:
        classes = torch.full((len(batch),), UNKNOWN)
    parts = [*zip(batch.chunks(n_rows), classes.split(n_rows), strict=True)]

    def collect(current: Circuit) -> Tensor:
        found = add_in_tree((expected_uses(current, *part) for part in parts), torch.add)
        assert found is not None  # there is at least one row
        return found

    return maximise_weights(
        circuit, collect, len(batch), max_steps=max_steps, tolerance=tolerance, smoothing=smoothing,
        callback=callback,
    )  # fmt: skip


@torch.no_grad()
def expected_uses(circuit: Circuit, rows: Incomplete, classes: Tensor) -> Tensor:
    """Returns the log density of rows and their known classes, and then how often each weight is used."""
    counts = circuit.expected_counts(rows, classes)
    scores, shift = circuit.class_scores(rows)
    of_class = scores.gather(1, classes.clamp(min=0)[:, None]).squeeze(1)
    log_prob = torch.where(classes >= 0, of_class, scores.logsumexp(dim=-1))
    total = (log_prob.double() + shift).sum()
    return torch.cat([total[None], *(count.double().flatten() for count in counts)])


@torch.no_grad()
def maximise_weights(
    circuit: Circuit,
    collect: Callable[[Circuit], Tensor],
    n_rows: int,
    *,
    max_steps: int,
    tolerance: float,
    smoothing: float = SMOOTHING,
    callback: Callable[[EMProgress], None] | None = None,
) -> list[float]:
    """Improves the sum weights of a circuit by EM, given the sum of `expected_uses` over all rows.

    Parameters
    ----------
    circuit : Circuit
        Changed in place.
    collect : callable
        Goes over all rows and returns the sum.
    n_rows : int
        The number of rows.
    max_steps, tolerance, smoothing, callback
        As of `fit_sum_weights`.
    """

    def measure() -> tuple[float, Tensor]:
        found = collect(circuit)
        prior = sum(layer.weights.log().sum().item() for layer in circuit.sum_layers)
        return (found[0].item() + smoothing * prior) / n_rows, found[1:]

    objective, uses = measure()
    course = [objective]
    for step in range(1, max_steps + 1):
        sizes = [layer.weights.numel() for layer in circuit.sum_layers]
        for layer, found in zip(circuit.sum_layers, uses.split(sizes), strict=True):
            total = found.view(layer.weights.shape).to(layer.weights.dtype) + smoothing
            layer.set_weights(total / total.sum(dim=1, keepdim=True))
        objective, uses = measure()
        course.append(objective)
        if callback is not None:
            callback(EMProgress(step, max_steps, course[-1]))
        if course[-1] - course[-2] < tolerance:
            break
    return course


Shape = Literal["tree", "shallow"]
Algorithm = Literal["gradient", "em"]

ROWS_PER_UNIT = 16  # rows for each component of a leaf and each channel of a region
MIN_BATCHES, MIN_BATCH = 16, 16  # fewest batches of a small table, and fewest rows of a batch
MOST_TREE_COLUMNS = 5_000  # a limit because all pairs are compared: 3,000 columns of 50 rows took 9 s
MOST_DEPENDENCE_ROWS = 20_000  # most rows, chosen by a hash, by which dependence is estimated
EM_GAIN = 1e-4  # EM stops when the mean log-likelihood of a row rises by less
TREE_NOISE = 0.3  # noise added to the dependence of columns, so that further trees differ


def training_settings(estimator: Any, n_rows: int, schedule: Schedule = "cosine") -> TrainingSettings:
    """Returns the training settings of an estimator's circuit; short tables get smaller batches."""
    return TrainingSettings.of(
        estimator,
        batch_size=min(estimator.batch_size, max(MIN_BATCH, n_rows // MIN_BATCHES)),
        schedule=schedule,
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
    return _history(course, max_steps)


def fit_to_passes(
    circuit: Circuit,
    rows: EncodedRows,
    passes: Passes,
    max_steps: int,
    callback: Callable[[Any], None] | None,
) -> History:
    """Improves the sum weights by EM with all rows of a table in files, which are read once for each step."""

    def collect(current: Circuit) -> Tensor:
        found = add_in_tree(passes(uses_of_run, (rows, current), rows.runs), torch.add)
        assert found is not None  # the circuit was fitted to some of the rows
        return found

    course = maximise_weights(
        circuit, collect, rows.table.n_rows, max_steps=max_steps, tolerance=EM_GAIN, callback=callback
    )
    return _history(course, max_steps)


def uses_of_run(job: tuple[EncodedRows, Circuit], start: int, stop: int) -> Tensor | None:
    """Returns the sum of `expected_uses` over a run of rows without classes."""
    rows, circuit = job

    def uses(block: Incomplete) -> Tensor:
        pieces = block.to(torch.float32).to(torch.float64).chunks(ROWS_AT_ONCE)  # as in training
        parts = (expected_uses(circuit, one, torch.full((len(one),), UNKNOWN)) for one in pieces)
        found = add_in_tree(parts, torch.add)
        assert found is not None  # no block is empty
        return found

    return add_in_tree(map(uses, rows.blocks(start, stop)), torch.add)


def _history(course: Sequence[float], max_steps: int) -> History:
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
    def of(cls, estimator: CircuitParameters, n_rows: int) -> "CircuitSettings":
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
            structure=cast("Shape", estimator.structure),
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
        if len(codes) > MOST_DEPENDENCE_ROWS:
            codes = codes[choose_rows(codes.T, len(codes), MOST_DEPENDENCE_ROWS)]
        affinity = normalised_information(codes)
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
