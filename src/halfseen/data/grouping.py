"""Columns that group rows, such as the identifier of a person with several visits, or the code of a school.

Models of this library treat rows as independent. If a column repeats its values and rows with the same value
are alike, they may not be. Such a column is a code, so it must not be used as a number either.

A column of whole numbers or text groups rows if it has enough values, each in two rows or more on average,
and there are no few values that most rows share. Then one of these must hold:

- Its name is that of an identifier, such as ``patient_id``.
- Its name is that of a unit, such as ``school``, and the rows of a group are alike in another column: the
  intraclass correlation of ranks, by analysis of variance, is at least `ALIKE`, and not by chance.
- The rows of a group are alike in many of the other columns. The numbers of a quantity, such as an age, pass
  this too, because other columns depend on it. What distinguishes a code is that neighbouring numbers are no
  more alike than others. The mean squared successive difference of group means is about twice their variance
  for a code, and less for a quantity (von Neumann's ratio).

The limits were set so that the repeated identifiers and codes of public tables are found (people, schools,
speakers, users) and their quantities are not.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc
from scipy.stats import rankdata

from halfseen.data.columns import NUMERIC, Column, Kind
from halfseen.data.frames import Floats

MIN_GROUPS = 10  # with fewer, groups are levels of interest, such as species
MIN_UNITS = 5  # as above, if the name is that of a unit
MIN_TEXTS = 50  # as above, for text whose name is no evidence
MIN_SIZE = 2.0  # rows of a group, on average
BALANCE = (
    0.5  # of the number of groups, the least effective number (the inverse of the sum of squared shares)
)
ALIKE = 0.2  # intraclass correlation from which rows of a group count as alike
MANY = 1 / 3  # of the other columns, in which they must be so if the name is no evidence
UNORDERED = 0.3  # mean excess of von Neumann's ratio from which numbers are codes
CHANCE = 1e-4  # probability that one of the tests of a table is passed by chance
MAX_ROWS = 5_000  # that are compared
ROWS_TO_SHOW = 20  # of each group, in which a sample of rows shows all groups
MAX_RESPONSES = 30  # other columns that are compared
MAX_CATEGORIES = (
    50  # numbers with more distinct values are left out of models; with fewer, they are a category
)

IDENTIFIER = re.compile(
    r"((^|[_\W])(id|uuid|guid|pid|subject|person|participant|respondent|patient|user|customer|household)"
    r"|(?-i:[a-z]I[dD]))([_\W]?(no|nr|num|number|code))?$",
    re.IGNORECASE,
)
UNIT = re.compile(
    r"(^|[_\W])(school|classroom|clinic|hospital|ward|cent(er|re)|site|station|village|district|county|country"
    r"|family|team|litter|batch|plate|speaker|doctor|teacher|schule|klinik|praxis|land)([_\W]?(no|nr|code))?$",
    re.IGNORECASE,
)

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grouping:
    """A column that groups rows, and what it is used as: a category, or an identifier that models do not see.

    Parameters
    ----------
    position : int
        Among the columns that were given.
    n_groups : int
        The number of groups.
    correlation, of : float, str
        The largest intraclass correlation, and the column that has it; empty if there is none.
    kind : str
        The kind that the column should have.
    """

    position: int
    n_groups: int
    correlation: float
    of: str
    kind: Kind

    def described(self, column: Column) -> Column:
        """Returns the column with the number of groups, and with the evidence as its reason."""
        size = column.n_observed / self.n_groups
        reason = f"{self.n_groups:,} values in {column.n_observed:,} rows, {size:.3g} rows each on average"
        if self.of:
            reason += (
                f"; rows with the same value are alike (intraclass correlation {self.correlation:.2f} of "
            )
            reason += f"{self.of!r})"
        return replace(column, n_groups=self.n_groups, reason=f"{reason}.")


def group_announcements(columns: Sequence[Column]) -> list[str]:
    """Returns a sentence for each column that groups rows."""
    return [_announce(column) for column in columns if column.n_groups is not None]


def _announce(column: Column) -> str:
    used = "is used as a category, not as a number"
    if not column.modelled:
        used = "is left out of the model"
    evidence = column.reason.rstrip(".").replace(" values in ", f" values of {column.name!r} in ", 1)
    return (
        f"Rows may not be independent: there are {evidence}. Fits, intervals and pooled results treat rows "
        f"as independent, so uncertainty may be understated. {column.name!r} {used}. If rows are repeated "
        "measurements, a table with one row per unit and a column for each time uses them better."
    )


def find_groupings(columns: Sequence[Column], values: Floats, observed: Bools) -> Iterator[Grouping]:
    """Yields what groups rows, given the modelled columns, their codes (N, C), and which are observed."""
    candidates = [c for c, column in enumerate(columns) if _may_group(column)]
    responses = [c for c, column in enumerate(columns) if column.kind in (*NUMERIC, "binary", "ordinal")]
    responses = responses[:: max(1, math.ceil(len(responses) / MAX_RESPONSES))]
    chance = CHANCE / max(1, len(candidates) * len(responses))
    for c in candidates:
        groups = _read_groups(columns[c], values[:, c], observed[:, c])
        if groups is not None:
            others = [j for j in responses if j != c]
            compared = [
                _compare(values[groups.rows, j], observed[groups.rows, j], groups, chance) for j in others
            ]
            found = _judge(columns, dict(zip(others, compared, strict=True)), c)
            if found is not None:
                n_groups = len(np.unique(values[observed[:, c], c]))
                many = n_groups > MAX_CATEGORIES and columns[c].levels is None
                kind: Kind = "identifier" if many or IDENTIFIER.search(columns[c].name) else "categorical"
                yield Grouping(c, n_groups, *found, kind)


def _may_group(column: Column) -> bool:
    """Returns whether a column holds whole numbers or texts that may be codes, as far as it was inferred."""
    if column.set_by_user:
        return False
    return column.kind == "count" or (column.kind == "categorical" and column.storage == "label")


@dataclass(frozen=True)
class _Groups:
    """The rows (N) that are compared, the group (N) of each, in the order of codes, and the groups' sizes."""

    rows: Integers
    of_row: Integers
    sizes: Integers


def _read_groups(column: Column, codes: Floats, observed: Bools) -> _Groups | None:
    """Returns the groups of a column; None if there are too few, or most rows are in few of them."""
    rows = _enough_rows(codes, np.flatnonzero(observed))
    values, of_row, sizes = np.unique(codes[rows], return_inverse=True, return_counts=True)
    n_groups, n_rows = len(values), len(rows)
    fewest = MIN_TEXTS if column.levels is not None else MIN_GROUPS
    if IDENTIFIER.search(column.name):
        fewest = MIN_GROUPS
    elif UNIT.search(column.name):
        fewest = MIN_UNITS
    if n_groups < fewest or n_rows < MIN_SIZE * n_groups:
        return None
    effective = n_rows**2 / float((sizes.astype(np.float64) ** 2).sum())
    if effective < (fewest if IDENTIFIER.search(column.name) else BALANCE * n_groups):
        return None
    if n_rows > MAX_ROWS:  # some groups are kept, with all their rows
        order = np.random.default_rng(0).permutation(n_groups)
        n_kept = max(fewest, int(np.searchsorted(np.cumsum(sizes[order]), MAX_ROWS)))
        kept = np.zeros(n_groups, dtype=bool)
        kept[order[:n_kept]] = True
        inside = kept[of_row]
        rows, of_row, sizes = rows[inside], (np.cumsum(kept) - 1)[of_row[inside]], sizes[kept]
    return _Groups(rows, of_row, sizes)


def _enough_rows(codes: Floats, rows: Integers) -> Integers:
    """Returns some of the rows if the values of a column are so few that these show all groups, else all."""
    if len(rows) <= MAX_ROWS:
        return rows
    some: Integers = rows[np.unique(np.random.default_rng(0).integers(len(rows), size=MAX_ROWS))]
    return some if len(np.unique(codes[some])) * ROWS_TO_SHOW <= len(some) else rows


def _judge(
    columns: Sequence[Column], compared: Mapping[int, tuple[float, float] | None], c: int
) -> tuple[float, str] | None:
    """Returns the largest correlation and its column, None if there is too little evidence of groups."""
    column = columns[c]
    found = {j: one for j, one in compared.items() if one is not None}
    alike = {j: one for j, one in found.items() if one[0] >= ALIKE}
    best = max(alike, key=lambda j: alike[j][0], default=None)
    if IDENTIFIER.search(column.name) and best is None:
        return 0.0, ""
    if best is None:
        return None
    if not IDENTIFIER.search(column.name) and not UNIT.search(column.name):
        ordered = column.levels is None and np.mean([excess for _, excess in alike.values()]) < UNORDERED
        if ordered or len(alike) < MANY * len(found):
            return None
    return alike[best][0], columns[best].name


def _compare(response: Floats, seen: Bools, groups: _Groups, chance: float) -> tuple[float, float] | None:
    """Returns the intraclass correlation of a column, 0 if it may be chance, and how little order there is.

    The latter is von Neumann's ratio of group means minus what is half way between that of a code, 2, and
    that of a quantity, 2 (1 - r), where r is the reliability of group means.
    """
    y, g = rankdata(response[seen]), groups.of_row[seen]  # a few extreme values must not decide
    n_groups = len(groups.sizes)
    sizes = np.bincount(g, minlength=n_groups).astype(np.float64)
    used = sizes > 0
    k, n = int(used.sum()), len(y)
    if k < MIN_UNITS or n <= k or y.min() == y.max():
        return None
    means = np.bincount(g, weights=y, minlength=n_groups)[used] / sizes[used]
    sizes = sizes[used]
    between = float((sizes * (means - y.mean()) ** 2).sum()) / (k - 1)
    total = float(((y - y.mean()) ** 2).sum())
    within = max(total - between * (k - 1), 1e-12 * total) / (n - k)
    size = (n - float((sizes**2).sum()) / n) / (k - 1)
    correlation = (between - within) / (between + (size - 1) * within)
    if fdtrc(k - 1, n - k, between / within) > chance:
        return 0.0, 0.0
    reliability = size * correlation / (1 + (size - 1) * correlation)
    ratio = float((np.diff(means) ** 2).mean()) / max(float(means.var()), 1e-300)
    return correlation, ratio - (2 - reliability)
