"""Interactions and powers of an analysis that the imputation did not know, and a warning that names them."""

import ast
import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import narwhals as nw
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from halfseen.data.frames import is_frame
from halfseen.errors import warn_user

_CURVED = ("power", "square", "poly", "bs", "cr", "cc", "ns")  # functions that are not linear
_CROSSED = re.compile(r"(?<!\*)\*(?!\*)")
_WRAPPED = re.compile(r"(?:C|Q)\((?P<inner>.*)\)")


def warn_of_unmodelled_terms(analysis: Any, fit: Any, draws: Any, tables: Sequence[Any]) -> None:
    """Warns if an analysis has interactions or powers of imputed columns that the imputation did not know.

    A column is imputed if its values differ between the first two tables. An imputation knows the terms of
    the formula in its attribute `analysis`, if it has one, for the outcome of that formula.

    Parameters
    ----------
    analysis : object
        What `pool` was given: a formula, a model of scikit-learn or a function.
    fit : object
        What the analysis of the first table returned; results of statsmodels have a formula.
    draws, tables : sequence of tables
        The completed tables as they were given, and as a list.
    """
    imputed = imputed_columns(tables)
    if isinstance(analysis, Pipeline):
        terms = [f"{type(step).__name__}()" for step in analysis if _bends(step)] if imputed else []
    else:
        formula = analysis if isinstance(analysis, str) else _formula_of(fit)
        terms = [] if formula is None else unknown_terms(formula, getattr(draws, "analysis", None), imputed)
    if terms:
        warn_user(
            f"The analysis has {', '.join(terms)}, which contain imputed columns, but imputation models with "
            "main effects do not preserve interactions and powers: their coefficients are biased towards "
            "zero. Use halfseen.multiple_imputation(X, analysis=...) with this formula."
        )


def unknown_terms(formula: str, known: Any, imputed: set[str]) -> list[str]:
    """Returns the bent terms of a formula, as written, that are not among those of a known formula.

    Examples
    --------
    >>> unknown_terms("y ~ z*x + I(x**2)", "y ~ x * z", {"x"})
    ['I(x**2)']
    """
    told = set[frozenset[str]]()
    if isinstance(known, str) and _outcome(known) == _outcome(formula):
        told = {product for term in bent_terms(known, imputed) for product in _products(term)}
    return [term for term in bent_terms(formula, imputed) if not _products(term) <= told]


def bent_terms(formula: str, imputed: set[str]) -> list[str]:
    """Returns the interactions and powers of a formula that contain an imputed column, as written.

    Examples
    --------
    >>> bent_terms("y ~ x * z + I(w ** 2) + log(v)", {"x", "w", "v"})
    ['x * z', 'I(w ** 2)']
    """
    terms = _split(formula.partition("~")[2], "+-")
    return [term for term in terms if _names_in(term) & imputed and (_interacts(term) or _is_nonlinear(term))]


def imputed_columns(tables: Sequence[Any]) -> set[str]:
    """Returns the names of the columns that differ between the first two tables; none for arrays."""
    if not all(is_frame(table) for table in tables[:2]):
        return set()
    first, second = (nw.from_native(table, eager_only=True) for table in tables[:2])
    if len(first) != len(second) or first.columns != second.columns:
        return set()
    return {name for name in first.columns if _differ(first[name], second[name])}


def _differ(one: nw.Series[Any], other: nw.Series[Any]) -> bool:
    """Returns whether two columns differ; cells that are empty in both do not."""
    empty = one.is_null().to_list(), other.is_null().to_list()
    cells = zip(one.to_list(), other.to_list(), *empty, strict=True)
    return any((a != b and (a == a or b == b)) if not (p or q) else p != q for a, b, p, q in cells)


def _formula_of(fit: Any) -> str | None:
    """Returns the formula of results of statsmodels, if they have one."""
    found = getattr(getattr(fit, "model", None), "formula", None)
    return found if isinstance(found, str) else None


def _bends(step: Any) -> bool:
    """Returns whether a step of a pipeline computes powers, interactions or splines."""
    if isinstance(step, PolynomialFeatures):
        return bool((max(step.degree) if isinstance(step.degree, tuple) else step.degree) > 1)
    return isinstance(step, SplineTransformer)


def _outcome(formula: str) -> str:
    return _plain(formula.partition("~")[0])


def _plain(text: str) -> str:
    """Returns an expression without spaces, quotes of names and the mark of levels."""
    text = re.sub(r"[\s`]", "", text)
    found = _WRAPPED.fullmatch(text)
    return text if found is None else found["inner"].partition(",")[0].strip("\"'")


def _products(term: str) -> set[frozenset[str]]:
    """Returns the products and powers that a term stands for, each as the set of its factors."""
    marked = list(term)
    for found in _CROSSED.finditer(term):
        marked[found.start()] = "\0"
    crossed = ["".join(one).replace("\0", "*") for one in _split("".join(marked), "\0")]
    products = [
        frozenset(_plain(factor) for piece in several for factor in _split(piece, ":"))
        for size in range(1, len(crossed) + 1)
        for several in combinations(crossed, size)
    ]
    return {one for one in products if len(one) > 1 or any(not name.isidentifier() for name in one)}


def _split(text: str, signs: str) -> list[str]:
    """Returns the parts between signs that are outside parentheses."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter in signs:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _names_in(term: str) -> set[str]:
    quoted = set(re.findall("`([^`]*)`", term))
    tree = _parsed(term)
    if tree is None:  # not Python; the parser of formulas reports errors
        return quoted
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return found | texts | quoted


def _parsed(term: str) -> ast.Expression | None:
    """Returns a term as a Python expression, None if it is none; columns in backticks have stand-ins."""
    try:
        return ast.parse(re.sub("`[^`]*`", "_quoted", term).replace(":", "*").strip(), mode="eval")
    except SyntaxError:
        return None


def _interacts(term: str) -> bool:
    """Returns whether a sign of interaction stands outside parentheses."""
    depth = 0
    for sign in term:
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and sign in ":*/":
            return True
    return False


def _is_nonlinear(term: str) -> bool:
    """Returns whether the term computes a power or a product of columns, or calls a function for curves."""
    tree = _parsed(term)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            sides = [
                {n.id for n in ast.walk(side) if isinstance(n, ast.Name)} for side in (node.left, node.right)
            ]
            if all(sides):
                return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _CURVED:
                return True
    return False
