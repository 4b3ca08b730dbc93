"""The distribution of numbers around their predictions by trees, estimated on held-out cells."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfseen.models.tree_heads import Windows

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

N_WINDOWS, N_ATOMS, WINDOW = 24, 60, 60
MATCHED_SHARE, MATCHED_VALUES = 0.1, 30
REPEATED_SHARE, MAX_VALUES = 0.5, 1_000  # with more values, the nearest one is near anyway
LEVELS = (np.arange(20) + 0.5) / 20  # of quantiles by which distributions are compared


@dataclass(frozen=True)
class HeldOut:
    """Held-out cells of a column, with predictions by trees that were not grown on them.

    Shapes
    ------
    location, spread : (N), in units of `scale`
    cells : (N), in the units of the table
    fold : (N)
    """

    location: Floats
    spread: Floats
    cells: Floats
    fold: Integers
    scale: float

    def of(self, kept: Booleans) -> "HeldOut":
        """Returns part of the cells."""
        return HeldOut(self.location[kept], self.spread[kept], self.cells[kept], self.fold[kept], self.scale)


def find_windows(held: HeldOut, matching: bool | None) -> Windows:
    """Returns the distribution; with None, the one that predicts the cells of each fold best.

    The candidates then include predictions that are moved to the nearest observed value, in columns with
    repeated values, and matching, in columns with a frequent value or with few distinct values.
    """
    if matching is not None:
        return _windows(held, matched=matching, moved=False)
    kinds = [(False, False)]
    kinds += [(False, True)] if _repeats(held.cells) else []
    kinds += [(True, False)] if _may_match(held.cells) else []
    losses = [_loss(held, *kind) for kind in kinds] if len(kinds) > 1 else [0.0]
    matched, moved = kinds[int(np.argmin(losses))]
    return _windows(held, matched=matched, moved=moved)


def _loss(held: HeldOut, matched: bool, moved: bool) -> float:
    """Returns the sum of quantile losses of the cells of each fold, under windows of the other folds."""
    total = 0.0
    for f in np.unique(held.fold):
        rest, own = held.of(held.fold != f), held.of(held.fold == f)
        if len(rest.cells):
            windows = _windows(rest, matched=matched, moved=moved)
            found = windows.quantiles(own.location, own.spread, LEVELS[:, None], own.scale)
            below = own.cells / own.scale - found / own.scale
            total += float(np.maximum(LEVELS[:, None] * below, (LEVELS[:, None] - 1) * below).sum())
    return total


def _windows(held: HeldOut, *, matched: bool, moved: bool) -> Windows:
    """Returns windows of cells with similar locations."""
    residual = (held.cells / held.scale - held.location) / held.spread
    order = np.argsort(held.location, kind="stable")
    n = len(order)
    width = min(n, max(WINDOW, n // 10))
    starts = np.unique(np.linspace(0, n - width, N_WINDOWS if n > width else 1).round().astype(np.int64))
    places = (np.arange(N_ATOMS) + 0.5) / N_ATOMS
    centres, atoms = [], []
    for start in starts:
        cells = order[start : start + width]
        centres.append(float(held.location[cells].mean()))
        if matched:
            atoms.append(np.quantile(held.cells[cells], places, method="inverted_cdf"))
        else:
            found = np.quantile(residual[cells], places)
            atoms.append(found - found.mean())
    values = np.unique(held.cells) if moved else np.zeros(0)
    return Windows(np.array(centres), np.stack(atoms), matched, values)


def _repeats(cells: Floats) -> bool:
    """Whether at least half of the cells have repeated values, and there are not too many such values."""
    counts = np.unique(cells, return_counts=True)[1]
    return bool(len(counts) <= MAX_VALUES and counts[counts > 1].sum() >= REPEATED_SHARE * len(cells))


def _may_match(cells: Floats) -> bool:
    """Whether draws may be observed values of similar rows: with a frequent value, or with few values."""
    counts = np.unique(cells, return_counts=True)[1]
    return bool(counts.max() >= MATCHED_SHARE * len(cells) or len(counts) <= MATCHED_VALUES)
