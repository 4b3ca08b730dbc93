"""The formula of an analysis: its outcome, its terms, and the design matrix that they give."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.data.relations import Formula
from halfseen.data.schema import Column

FAMILIES = ("auto", "linear", "logistic", "poisson", "cox")
_SURVIVAL = re.compile(r"Surv\(([^,]+)(?:,([^,]+))?\)")
_CROSSED = re.compile(r"(?<!\*)\*(?!\*)")
_GRAMMAR = (
    "An analysis has the form 'y ~ x * z + I(w ** 2) + C(g)': terms joined by +, interactions by * or :, and "
    "arithmetic within I(). The outcome of a Cox model is Surv(time, event)."
)


@dataclass(frozen=True)
class Factor:
    """A part of a term: indicators of levels, an expression of numbers, or the values of a column."""

    columns: tuple[int, ...]  # the positions of the columns that it uses
    # The codes that have indicators, all but the first one of the column; empty for other factors.
    levels: tuple[float, ...] = ()
    formula: Formula | None = None  # the expression; None for indicators and for the values of a column

    def values(self, cells: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
        """Returns the values (*) of the factor, one for each indicator, from the cells (*) of all columns."""
        if self.formula is None and not self.levels:
            return [cells[self.columns[0]]]
        if self.formula is None:
            return [(cells[self.columns[0]] == level).to(torch.float64) for level in self.levels]
        found = self.formula.evaluate({names[c]: cells[c].numpy() for c in self.columns})
        return [torch.from_numpy(found)]


@dataclass(frozen=True)
class SubstantiveModel:
    """A regression of one column on others, as a formula; it is parsed and never executed as code.

    Examples
    --------
    >>> columns = [Column(name, "continuous", "float64", "number") for name in ("y", "x", "z")]
    >>> analysis = SubstantiveModel.parse("y ~ x * z + I(x ** 2)", columns)
    >>> analysis.covariates, len(analysis.terms), analysis.family
    ((1, 2), 4, 'linear')
    """

    text: str  # the formula
    names: tuple[str, ...]  # of the modelled columns
    outcome: int  # the position of the outcome
    terms: tuple[tuple[Factor, ...], ...]  # each is a product of factors; without the constant
    family: str  # the model of the outcome: "linear", "logistic", "poisson" or "cox"
    # For a Cox model, whose outcome is the time, the position of the column whose second level marks an
    # event; None if all rows have one.
    event: int | None = None
    found: bool = False  # whether the regression was found in the data and not stated

    @classmethod
    def parse(cls, text: str, columns: Sequence[Column], family: str = "auto") -> "SubstantiveModel":
        """Parses a formula of the modelled columns; raises a ValueError that says what cannot be read."""
        names = tuple(column.name for column in columns)
        if not isinstance(text, str) or text.count("~") != 1:
            raise ValueError(f"The analysis {text!r} has no outcome before a ~. {_GRAMMAR}")
        left, right = (side.strip() for side in text.split("~"))
        outcome, event, chosen = _outcome(left, columns, family, text)
        terms: dict[str, tuple[Factor, ...]] = {}
        for part in _split(right, "+"):
            if part == "1":
                continue
            crossed = [piece.strip() for piece in _split_crossed(part)]
            for size in range(1, len(crossed) + 1):
                for several in combinations(crossed, size):
                    factors = list(dict.fromkeys(one for piece in several for one in _split(piece, ":")))
                    terms[":".join(sorted(factors))] = tuple(_factor(one, columns, text) for one in factors)
        used = {c for term in terms.values() for factor in term for c in factor.columns}
        if outcome in used or event in used:
            raise ValueError(f"The analysis {text!r} has its outcome on both sides of the ~.")
        if not terms:
            raise ValueError(f"The analysis {text!r} has no covariate. {_GRAMMAR}")
        return cls(text, names, outcome, tuple(terms.values()), chosen, event)

    @classmethod
    def main_effects(cls, columns: Sequence[Column], outcome: int, family: str) -> "SubstantiveModel":
        """Returns the regression of a column on all others, with indicators of levels."""
        others = [c for c in range(len(columns)) if c != outcome]
        levels = [tuple(float(level) for level in range(1, len(columns[c].levels or ()))) for c in others]
        terms = tuple((Factor((c,), codes),) for c, codes in zip(others, levels, strict=True))
        names = tuple(column.name for column in columns)
        return cls(f"{names[outcome]} ~ .", names, outcome, terms, family, found=True)

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Tensor) -> "SubstantiveModel":
        """Rebuilds a regression that was found from the positions (2) of its outcome and its family."""
        known = state.shape == (2,) and state.dtype == torch.int64
        outcome, family = state.tolist() if known else (-1, -1)
        known = 0 <= outcome < len(columns) and 0 <= family < len(FAMILIES)
        if not known or FAMILIES[family] not in ("linear", "poisson") or columns[outcome].levels is not None:
            raise ValueError("The outcome of chained equations is not one of the columns.")
        return cls.main_effects(columns, outcome, FAMILIES[family])

    @property
    def sources(self) -> list[int]:
        """The column of each term of a regression with main effects, without the constant."""
        return [f.columns[0] for factors in self.terms for f in factors for _ in f.levels or (0,)]

    @property
    def outcomes(self) -> tuple[int, ...]:
        """The positions of the columns on the left-hand side."""
        return (self.outcome,) if self.event is None else (self.outcome, self.event)

    def check_outcome(self, codes: Incomplete) -> None:
        """Raises a ValueError if times or events of a Cox model are missing, or a time is negative."""
        if self.family != "cox":
            return
        for c in self.outcomes:
            n_missing = int((~codes.observed[:, c]).sum())
            if n_missing:
                raise ValueError(
                    f"Column {self.names[c]!r} of the analysis {self.text!r} is missing in {n_missing} rows; "
                    "a Cox analysis needs the time and the event of every row. Leave out rows without them."
                )
        least = float(codes.x[:, self.outcome].min())
        if least < 0:
            name = self.names[self.outcome]
            raise ValueError(f"Column {name!r} has the time {least:g}; times must not be negative.")
        if self.event is not None and not bool((codes.x[:, self.event] > 0).any()):
            raise ValueError(f"Column {self.names[self.event]!r} of the analysis marks no event.")

    @cached_property
    def covariates(self) -> tuple[int, ...]:
        """The positions of the columns on the right-hand side."""
        return tuple(sorted({c for term in self.terms for factor in term for c in factor.columns}))

    def design(self, cells: Sequence[Tensor]) -> Tensor:
        """Returns the design matrix (*, Q) with a constant, from the cells (*) of all columns.

        Cells may have shapes that are broadcast against each other. Values that are not defined are NaN.
        """
        shape = torch.broadcast_shapes(*(cells[c].shape for c in self.covariates))
        found = [torch.ones(shape, dtype=torch.float64)]
        for term in self.terms:
            products = [torch.ones((), dtype=torch.float64)]
            for factor in term:
                values = factor.values(cells, self.names)
                products = [one * value for one in products for value in values]
            found += [one.expand(shape) for one in products]
        return torch.stack(found, dim=-1)

    def units(self, completed: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the means and deviations (Q) of the terms in a completed table (N, C)."""
        design = self.design(completed.unbind(-1))
        undefined = ~design.isfinite().all(dim=0)
        if bool(undefined.any()):
            raise ValueError(f"A term of the analysis {self.text!r} is not a finite number in all rows.")
        loc, unit = design.mean(dim=0), design.std(dim=0, unbiased=False)
        loc[0], unit[0] = 0.0, 1.0
        return loc, torch.where(unit > 0, unit, 1.0)


def _outcome(left: str, columns: Sequence[Column], family: str, text: str) -> tuple[int, int | None, str]:
    """Returns the positions of the outcome and of its event, and the family of the model."""
    names = tuple(column.name for column in columns)
    found = _SURVIVAL.fullmatch(left)
    if found is None:
        if family == "cox":
            raise ValueError(f"The outcome of a Cox model is Surv(time, event), got {left!r} in {text!r}.")
        outcome = _find(left.strip("`"), names, text)
        return outcome, None, _family(columns[outcome], family, text)
    if family not in ("auto", "cox"):
        raise ValueError(f"The analysis {text!r} is a Cox model, which family={family!r} contradicts.")
    time, event = (
        None if one is None else _find(one.strip().strip("`"), names, text) for one in found.groups()
    )
    assert time is not None
    if columns[time].levels is not None:
        raise ValueError(f"The times {names[time]!r} of the analysis {text!r} must be numbers.")
    if event is not None and len(columns[event].levels or ()) != 2:
        raise ValueError(
            f"The event {names[event]!r} of the analysis {text!r} must have two levels, such as 0 for "
            "censored and 1 for an event."
        )
    return time, event, "cox"


def _family(column: Column, family: str, text: str) -> str:
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}.")
    n_levels = None if column.levels is None else len(column.levels)
    if n_levels is not None and (n_levels != 2 or family not in ("auto", "logistic")):
        raise ValueError(
            f"The outcome {column.name!r} of the analysis {text!r} has {n_levels} levels; outcomes are "
            "numbers, or have two levels (a logistic analysis)."
        )
    if n_levels is None and family == "logistic":
        raise ValueError(f"The outcome {column.name!r} of a logistic analysis must have two levels.")
    if family == "poisson" and not (column.integer and (column.observed_low or 0) >= 0):
        raise ValueError(f"The outcome {column.name!r} of a Poisson analysis must be counts.")
    return family if family != "auto" else "linear" if n_levels is None else "logistic"


def _find(name: str, names: Sequence[str], text: str) -> int:
    if name not in names:
        raise ValueError(
            f"The analysis {text!r} refers to {name!r}, which is not a modelled column. {_GRAMMAR}"
        )
    return names.index(name)


def _split(text: str, sign: str) -> list[str]:
    """Returns the parts of a text between signs that are outside parentheses and backticks."""
    parts, depth, quoted, start = [], 0, False, 0
    for place, letter in enumerate(text):
        quoted ^= letter == "`"
        depth += (letter == "(") - (letter == ")")
        if letter == sign and depth == 0 and not quoted:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:])]


def _split_crossed(text: str) -> list[str]:
    """Returns the factors that are crossed by single asterisks outside parentheses."""
    marked = list(text)
    for found in _CROSSED.finditer(text):
        marked[found.start()] = "\0"
    return [part.replace("\0", "*") for part in _split("".join(marked), "\0")]


def _factor(text: str, columns: Sequence[Column], whole: str) -> Factor:
    names = [column.name for column in columns]
    as_levels = text.startswith("C(") and text.endswith(")")
    name = (text[2:-1] if as_levels else text).strip().strip("`")
    if name in names or as_levels:
        position = _find(name, names, whole)
        column = columns[position]
        if column.levels is not None:
            return Factor((position,), tuple(float(level) for level in range(1, len(column.levels))))
        if not as_levels:
            return Factor((position,), formula=Formula.parse(f"`{name}`"))
        if column.codes is None:
            raise ValueError(
                f"The analysis {whole!r} has {text}, but column {name!r} has too many values for levels."
            )
        return Factor((position,), tuple(column.codes[1:]))
    inner = text[2:-1] if text.startswith("I(") and text.endswith(")") else text
    if inner is text and text.isidentifier():
        _find(text, names, whole)  # which says that there is no such column
    if inner is text and "(" not in text:
        raise ValueError(f"The analysis {whole!r} has the term {text!r}, which cannot be read. {_GRAMMAR}")
    formula = Formula.parse(inner)
    places = tuple(_find(one, names, whole) for one in formula.inputs)
    levelled = next((names[c] for c in places if columns[c].levels is not None), None)
    if levelled is not None:
        raise ValueError(f"The analysis {whole!r} computes with {levelled!r}, which has levels.")
    return Factor(places, formula=formula)
