"""Derived (passive) columns, which are computed from other columns by a formula, such as a body mass index.

Formulas are parsed, never executed as code: numbers, names of columns, arithmetic and a few functions.
"""

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfseen.data.columns import NUMERIC, Column
from halfseen.errors import SchemaError

Floats = npt.NDArray[np.float64]
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
            tree = ast.parse(_QUOTED.sub(replace_name, text).strip(), mode="eval").body
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
        name = node.func.id if isinstance(node.func, ast.Name) else "?"
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
    columns: Sequence[Column], numbers: Mapping[int, Floats], missing: npt.NDArray[np.bool_]
) -> dict[int, tuple[npt.NDArray[np.int64], Floats]]:
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
