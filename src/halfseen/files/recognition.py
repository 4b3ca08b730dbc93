"""Conversion of the cells of a text table to typed columns, by rules that take the whole file into account.

Columns whose cells are all plain numbers, dates or booleans are converted at once. In other columns, words
for missing values are removed first, and then numbers and dates in other formats are searched for. What is
ambiguous in one column is decided by the others. A column that consists mostly, but not entirely, of numbers
or dates remains text and is not imputed.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.dates import NO_DATE, Order, are_digits, split_dates
from halfseen.files.distinct import FEW, CellKind, any_match, compiled
from halfseen.files.formats import NUMBERS, Style, decimal_of, find_kind, order_of
from halfseen.files.missing_codes import is_any_of, is_missing_word, is_never_value
from halfseen.files.numbers import Numbers, plain_texts, split_numbers
from halfseen.files.outcomes import MOSTLY, finish, has_three_decimals
from halfseen.files.rules import ColumnRules, Decision, Draft, Outcome, Rules, line_below

_SAMPLE = 500  # cells that are tried before a whole column is; a guess that keeps wide tables of text fast
_PLAIN = r"[+-]?(?!0\d)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"  # numbers that are not codes such as 007
_LIKELY = (
    0.5  # more than half of the sample must be numbers or dates: a guess, as exceptions are judged later
)


def read_columns(
    cells: pa.Table,
    rules: Rules,
    delimiter: str,
    line_of: Callable[[int], int] = line_below,
    *,
    as_written: bool = False,
) -> dict[str, Outcome]:
    """Return the result for every column of a text table.

    Parameters
    ----------
    cells : pyarrow.Table
        The cells as they are written.
    rules : Rules
        The settings of the user.
    delimiter : str
        What separates the cells: where commas do, they are no decimal marks unless a cell proves it.
    line_of : callable
        Returns the line of the file in which a row begins.
    as_written : bool
        Whether the numbers are as somebody wrote them, so that a point may separate thousands.
    """
    undecided = Decision(None, None, delimiter, line_of, as_written=as_written)
    waiting: dict[str, Draft] = {}
    outcomes: dict[str, Outcome] = {}
    decimals: set[str | None] = set()
    learned = [style for name in cells.column_names if (style := rules.of(name).learned) is not None]
    for name in cells.column_names:
        draft = _draft(name, cells[name].combine_chunks(), rules, as_written=as_written)
        decimals.add(_vote_decimal(draft) if _may_vote(draft, learned) else None)
        if _is_settled(draft, undecided):  # at once, so that no copy of its texts is kept
            outcomes[name] = finish(draft, undecided)
        else:
            waiting[name] = draft
    orders = {name: _prove_orders(draft) for name, draft in waiting.items() if _may_vote(draft, learned)}
    decision = _decide(decimals, orders, rules, undecided)
    formats = [{find(style) for style in learned} - {None} for find in (decimal_of, order_of)]
    outcomes |= {
        name: finish(draft, _apply_training(draft, decision, *formats)) for name, draft in waiting.items()
    }
    return {name: outcomes[name] for name in cells.column_names}


# ------------------------------------------------------------------------------------------ one column


def _draft(name: str, cells: pa.Array, rules: Rules, *, as_written: bool) -> Draft:
    own = rules.of(name)
    plain = _as_plain_numbers(cells, rules, own)
    if plain is not None and as_written and _are_dates(plain.cells.drop_null(), own):
        plain = None
    if plain is not None and _is_expected(plain.kind, own.learned if as_written else None):
        return Draft(name, cells, plain.cells, own, kind=plain.kind)
    draft = _remove_missing(name, cells, rules, own)
    observed = draft.trimmed.drop_null()
    if len(observed) == 0 or own.wanted == "text":
        return draft
    dates = as_written and _are_dates(observed, own)
    if dates:
        draft = _set_aside(draft, pc.fill_null(pc.equal(draft.trimmed, NO_DATE), False))
    kind = find_kind(observed) if own.marks is None and not dates else "text"
    if kind != "text" and _is_expected(kind, own.learned if as_written else None):
        return replace(draft, kind=kind)
    wanted = own.wanted if own.wanted is not None else "date" if dates else _find_likely(observed)
    if wanted not in ("number", "date"):
        return draft
    if rules.words:
        draft = _set_words_aside(draft)
        observed = draft.trimmed.drop_null()
        kind = find_kind(observed) if draft.words and own.marks is None and not dates else "text"
        if kind not in ("text", "boolean") and _is_expected(kind, own.learned if as_written else None):
            return replace(draft, kind=kind)
    texts = draft.trimmed.dictionary_encode()
    counts = np.bincount(texts.indices.drop_null().to_numpy(zero_copy_only=False))
    if len(counts) == 0:
        return draft
    draft = replace(draft, texts=texts, counts=counts)
    if wanted == "date":
        return replace(draft, dates=split_dates(texts.dictionary, counts, own.first_year))
    return replace(draft, numbers=split_numbers(texts.dictionary, counts, own.marks))


def _are_dates(observed: pa.Array, own: ColumnRules) -> bool:
    """Return whether whole numbers are dates of eight digits, rather than what a user or a model says."""
    if own.marks is not None or own.wanted not in (None, "date"):
        return False
    if own.learned is not None:
        return own.learned.kind in ("date", "timestamp") and are_digits(observed, 1)
    return are_digits(observed) if own.wanted is None else are_digits(observed, 1)


class _Plain(NamedTuple):
    """The cells of a column of plain numbers without what is missing, and their kind."""

    cells: pa.Array
    kind: CellKind


def _as_plain_numbers(cells: pa.Array, rules: Rules, own: ColumnRules) -> _Plain | None:
    """Return the cells of a short column if those that are not missing are plain numbers, and no codes.

    Most columns of very wide tables are such. This has the result of the slower way for all columns, as
    neither blanks nor words are among such cells.
    """
    if len(cells) > FEW or rules.declared or own.nulls or own.marks is not None or own.wanted == "text":
        return None
    nulls, is_plain = rules.nulls, compiled(_PLAIN).match
    texts = [None if text in nulls else text for text in cells.to_pylist()]
    numbers = [text for text in texts if text is not None]
    if not numbers or not all(map(is_plain, numbers)):
        return None
    joined = "".join(numbers)
    is_float = "." in joined or "e" in joined or "E" in joined
    return _Plain(pa.array(texts, cells.type), "float" if is_float else "integer")


def _remove_missing(name: str, cells: pa.Array, rules: Rules, own: ColumnRules) -> Draft:
    """Return a column without blanks around its cells and without texts that mean missing."""
    trimmed = pc.utf8_trim_whitespace(cells)
    missing = pc.is_in(trimmed, value_set=pa.array(rules.nulls, trimmed.type))
    spellings: dict[str, int] = {}
    if declared := [text for text in (*rules.declared, *own.nulls) if text]:
        meant = is_any_of(trimmed, declared)
        exact = pc.is_in(trimmed, value_set=pa.array([*rules.nulls, *declared], trimmed.type))
        spellings = Counter(trimmed.filter(pc.and_not(meant, exact)).to_pylist())
        missing = pc.or_(missing, meant)
    trimmed = pc.if_else(missing, pa.scalar(None, trimmed.type), trimmed)
    draft = Draft(name, cells, trimmed, own, spellings=tuple(spellings.items()))
    return _set_aside(draft, is_never_value(trimmed)) if rules.words else draft


def _is_expected(kind: CellKind, learned: Style | None) -> bool:
    """Return whether plain cells are what they seem: not the points of 1.234 where a model knows commas."""
    return learned is None or kind != "float" or decimal_of(learned) == "." or learned.kind not in NUMBERS


def _find_likely(observed: pa.Array) -> str | None:
    """Return whether a column may contain formatted numbers or dates, judged by a sample of its cells."""
    rows = np.linspace(0, len(observed) - 1, min(_SAMPLE, len(observed))).astype(np.int64)
    sample = observed.take(pa.array(rows))
    sample = sample.filter(pc.invert(is_missing_word(sample)))
    if len(sample) == 0 or not any_match(sample, r"\d"):
        return None
    counts = np.ones(len(sample), dtype=np.int64)
    numbers, dates = split_numbers(sample, counts), split_dates(sample, counts)
    n_numbers = numbers.weight(numbers.readings[0])
    n_dates = sum(layout.weight for layout in dates)
    if max(n_numbers, n_dates) <= _LIKELY * len(sample):
        return None
    return "date" if n_dates > n_numbers else "number"


def _set_words_aside(draft: Draft) -> Draft:
    """Remove words for missing values from a column, unless they are the majority of its cells."""
    words = pc.fill_null(is_missing_word(draft.trimmed), False)
    held = draft.trimmed.filter(words)
    n_spelt = pc.sum(pc.match_substring_regex(held, r"\pL")).as_py() or 0
    if n_spelt > len(draft.trimmed) - draft.trimmed.null_count - len(held):
        return draft
    return _set_aside(draft, words)


def _set_aside(draft: Draft, words: pa.Array) -> Draft:
    """Remove texts that mean missing from a column, and count them."""
    held = draft.trimmed.filter(words)
    if len(held) == 0:
        return draft
    trimmed = pc.if_else(words, pa.scalar(None, draft.trimmed.type), draft.trimmed)
    return replace(draft, trimmed=trimmed, words=(*draft.words, *Counter(held.to_pylist()).items()))


# ------------------------------------------------------------------------------------------ the file


def _is_settled(draft: Draft, undecided: Decision) -> bool:
    """Return whether the kind of a column is decided without other columns."""
    if draft.kind == "float":
        return not (undecided.as_written and has_three_decimals(draft))
    return draft.numbers is None and not draft.dates


def _decide(
    decimals: set[str | None], orders: dict[str, frozenset[Order]], rules: Rules, undecided: Decision
) -> Decision:
    return replace(
        undecided,
        decimal=_agree(decimals - {None}) if rules.marks is None else rules.marks.decimal,
        order=rules.order,
        declared_decimal=rules.marks is not None,
        orders=orders,
    )


def _may_vote(draft: Draft, learned: Sequence[Style]) -> bool:
    """Return whether a column helps to decide others: of a model, those of which it knows the format."""
    return not learned or draft.rules.learned is not None


def _apply_training(draft: Draft, decision: Decision, marks: set[Any], orders: set[Any]) -> Decision:
    """Return the decision for a column of which a model knows the format, and `marks` and `orders` of all.

    If all columns of the training file had the same decimal mark, and those of the new file show another one,
    it is that of the new file; if columns differed, each keeps its own. The same holds for orders of dates.
    Columns of whole numbers are read as whole numbers if they can be.
    """
    style = draft.rules.learned
    if style is None:
        return decision
    decimal, order = decision.decimal, decision.order
    if not decision.declared_decimal:
        own_mark = decimal_of(style)
        decimal = (decimal or _agree({*marks})) if len(marks) <= 1 or own_mark is None else own_mark
        if style.kind == "integer" and draft.numbers is not None:
            decimal = _agree(_whole_decimals(draft.numbers)) or decimal
    if order is None and not decision.orders.get(draft.name):  # neither the user nor the cells determine it
        own_order = order_of(style)
        agreed = len(orders) <= 1 or own_order is None
        order = (decision.order_beside(draft.name) or _agree({*orders})) if agreed else own_order
    return replace(decision, decimal=decimal, order=order, declared_decimal=decimal is not None)


def _whole_decimals(numbers: Numbers) -> set[str]:
    """Return the decimal marks under which the cells of a column are whole numbers."""
    return {
        marks.decimal
        for marks in numbers.readings
        if not any_match(plain_texts(numbers, marks).drop_null(), r"\.")
    }


def _agree(votes: set[Any]) -> Any:
    return votes.pop() if len(votes) == 1 else None


def _vote_decimal(draft: Draft) -> str | None:
    if draft.kind == "float":
        return None if has_three_decimals(draft) else "."
    if draft.numbers is None:
        return None
    readings = draft.numbers.readings
    if draft.numbers.weight(readings[0]) < MOSTLY * draft.counts.sum():
        return None
    return _agree({marks.decimal for marks in readings})


def _prove_orders(draft: Draft) -> frozenset[Order]:
    """Return the orders of day and month that cells of a column prove, one for each layout at most."""
    if sum(layout.weight for layout in draft.dates) < MOSTLY * draft.counts.sum():
        return frozenset()
    numeric = [layout.orders for layout in draft.dates if layout.family == "numbers"]
    return frozenset(orders[0] for orders in numeric if len(orders) == 1)
