"""Relations that models of single cells do not know: derived columns, and columns that group rows.

A derived (passive) column is computed from other columns by a formula, such as a body mass index. Formulas
are parsed, never executed as code: numbers, names of columns, arithmetic and a few functions.

A column that groups rows is the identifier of a person with several visits, or the code of a school.
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

import ast
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import fdtrc
from scipy.stats import rankdata

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data.columns import NUMERIC, Column, Kind
from halfseen.errors import SchemaError

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.float_power,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "abs": (np.abs, 1),
    "exp": (np.exp, 1),
    "log": (np.log, 1),
    "log10": (np.log10, 1),
    "maximum": (np.maximum, 2),
    "minimum": (np.minimum, 2),
    "sqrt": (np.sqrt, 1),
}
MOST_LETTERS = 1000
_QUOTED = re.compile(r"`([^`]+)`")
_PREFIX = re.compile(rf"\b(?:np|numpy)\.(?=(?:{'|'.join(FUNCTIONS)})\()")  # formulas of statsmodels have it


@dataclass(frozen=True)
class Formula:
    """A formula of columns.

    Examples
    --------
    >>> formula = Formula.parse("weight / height ** 2")
    >>> formula.inputs
    ('weight', 'height')
    >>> formula.evaluate({"weight": np.array([80.0]), "height": np.array([2.0])})
    array([20.])
    >>> Formula.parse("`body mass` / 1000").inputs
    ('body mass',)
    >>> Formula.parse("np.log(weight)").evaluate({"weight": np.array([1.0])})
    array([0.])
    >>> Formula.parse("__import__('os')")
    Traceback (most recent call last):
    ...
    halfseen.errors.SchemaError: The formula "__import__('os')" ...
    """

    text: str
    tree: ast.expr
    names: Mapping[str, str]  # the column of each identifier

    @classmethod
    def parse(cls, text: Any) -> "Formula":
        """Parses a formula; column names that are not identifiers are enclosed in backticks."""
        if not isinstance(text, str) or not text.strip() or len(text) > MOST_LETTERS:
            raise SchemaError(f"A formula must be text such as 'weight / height ** 2', got {text!r:.60}.")
        quoted: dict[str, str] = {}

        def replace_name(found: re.Match[str]) -> str:
            name = f"_column_{len(quoted)}"
            quoted[name] = found.group(1)
            return f" {name} "

        try:
            tree = ast.parse(_PREFIX.sub("", _QUOTED.sub(replace_name, text)).strip(), mode="eval").body
            _check(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread = isinstance(error, SyntaxError | UnicodeEncodeError)
            reason = "cannot be read" if unread else str(error) or "is too long"
            raise SchemaError(
                f"The formula {text!r:.100} {reason}. Formulas have numbers, columns, + - * / **, "
                f"parentheses and {', '.join(FUNCTIONS)}; other column names are enclosed in backticks."
            ) from None
        return cls(text, tree, quoted)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the formula uses."""
        calls = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        found = [n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and id(n) not in calls]
        return tuple(dict.fromkeys(self.names.get(name, name) for name in found))

    def evaluate(self, columns: Mapping[str, Floats]) -> Floats:
        """Returns the values; NaN where an input is NaN or the result is not a finite number."""
        with np.errstate(all="ignore"):
            result = np.asarray(self._value(self.tree, columns), dtype=np.float64)
        return np.where(np.isfinite(result), result, np.nan)

    def _value(self, node: ast.expr, columns: Mapping[str, Floats]) -> Any:
        if isinstance(node, ast.Constant):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return columns[self.names.get(node.id, node.id)]
        if isinstance(node, ast.UnaryOp):
            return OPERATORS[type(node.op)](self._value(node.operand, columns))
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, columns), self._value(node.right, columns)
            return OPERATORS[type(node.op)](left, right)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        function, _ = FUNCTIONS[node.func.id]
        return function(*(self._value(argument, columns) for argument in node.args))


def _check(node: ast.AST) -> None:
    """Raises a ValueError if a formula contains anything other than `FUNCTIONS` and `OPERATORS`."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise ValueError(f"has the constant {node.value!r:.40}, which is not a number")
        if not abs(node.value) <= sys.float_info.max:
            raise ValueError("has a number beyond the range of floating-point numbers")
    elif isinstance(node, ast.BinOp | ast.UnaryOp):
        if type(node.op) not in OPERATORS:
            raise ValueError(f"has the operator {type(node.op).__name__}, which is not available")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                _check(child)
    elif isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        if name not in FUNCTIONS or node.keywords or len(node.args) != FUNCTIONS[name][1]:
            raise ValueError(f"has a call of {name!r} that is not available")
        for argument in node.args:
            _check(argument)
    elif not isinstance(node, ast.Name):
        raise ValueError(f"has a part ({type(node).__name__}) that is not available")


def check_derived(columns: Sequence[Column]) -> None:
    """Raises a SchemaError if the formula of a column cannot be computed from the other columns."""
    known = {column.name: column for column in columns}
    for column in columns:
        if column.derived is None:
            continue
        for name in Formula.parse(column.derived).inputs:
            used, of = (
                known.get(name),
                f"Column {column.name!r}: its formula {column.derived!r} uses {name!r}",
            )
            if used is None:
                raise SchemaError(f"{of}, which is not in the table; it has {', '.join(known)}.")
            if used.derived is not None:
                raise SchemaError(f"{of}, which is derived itself; write out its formula.")
            if used.kind not in NUMERIC:
                raise SchemaError(f"{of}, which is {used.kind}; formulas need columns of numbers.")


def derive_cells(
    columns: Sequence[Column], numbers: Mapping[int, Floats], missing: Booleans
) -> dict[int, tuple[Integers, Floats]]:
    """Returns, by position of a derived column, the rows in which it is missing and their values.

    Parameters
    ----------
    columns : sequence of Column
        All columns.
    numbers : mapping of int to array (N)
        The completed values of the columns that formulas use; NaN where they stay empty.
    missing : array of shape (N, P)
        The cells that the user left empty.
    """
    places = {column.name: j for j, column in enumerate(columns)}
    found = {}
    for j, column in enumerate(columns):
        if column.derived is None:
            continue
        formula, rows = Formula.parse(column.derived), np.flatnonzero(missing[:, j])
        values = formula.evaluate({name: numbers[places[name]][rows] for name in formula.inputs})
        values = np.broadcast_to(values, rows.shape)
        found[j] = rows, np.round(values) if "int" in column.dtype.lower() else values
    return found


def used_columns(columns: Sequence[Column]) -> list[int]:
    """Returns the positions of the columns that formulas use."""
    names = {n for c in columns if c.derived is not None for n in Formula.parse(c.derived).inputs}
    return [j for j, column in enumerate(columns) if column.name in names]


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


@dataclass(frozen=True)
class Grouping:
    """A column that groups rows, and its use: a category, or an identifier that models do not see."""

    position: int  # among the columns that were given
    n_groups: int  # the number of groups
    # The largest intraclass correlation, and the column that has it; empty if there is none.
    correlation: float
    of: str
    kind: Kind  # the kind that the column should have

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
        f"as independent, so uncertainty may be understated. {column.name!r} {used}. For multiple "
        f"imputation, pass groups={column.name!r}. If rows are repeated measurements, a table with one row "
        "per unit and a column for each time (halfseen.to_wide) uses them better."
    )


def find_groupings(columns: Sequence[Column], values: Floats, observed: Booleans) -> Iterator[Grouping]:
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
            found = _closest_column(columns, dict(zip(others, compared, strict=True)), c)
            if found is not None:
                n_groups = len(np.unique(values[observed[:, c], c]))
                many = n_groups > MAX_CATEGORIES and columns[c].levels is None
                kind: Kind = "identifier" if many or IDENTIFIER.search(columns[c].name) else "categorical"
                yield Grouping(c, n_groups, *found, kind)


def groups_unseen(column: Column, codes: Floats, observed: Booleans, n_rows: int, n_values: int) -> bool:
    """Returns whether a column may group rows of a table, of which some rows do not suffice to find out.

    Parameters
    ----------
    column : Column
        A modelled column.
    codes, observed : arrays of shape (N,)
        Its codes in some of the rows, and where they are observed.
    n_rows, n_values : int
        In how many rows of the whole table it has a value, and how many different ones.
    """
    if not _may_group(column) or n_rows < MIN_SIZE * n_values:
        return False
    seen = codes[observed]
    return len(seen) < MIN_SIZE * len(np.unique(seen))


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


def _read_groups(column: Column, codes: Floats, observed: Booleans) -> _Groups | None:
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


def _closest_column(
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


def _compare(response: Floats, seen: Booleans, groups: _Groups, chance: float) -> tuple[float, float] | None:
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
