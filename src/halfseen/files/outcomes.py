"""The result of reading a column: numbers, dates or text, the format of its cells, and notes for the user."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.files.dates import HEAD, ORDER_WORDS, ORDERS, Dates, Order
from halfseen.files.distinct import CellKind, Mask, all_match, any_match, as_mask, most_frequent
from halfseen.files.formats import CODE, Limit, Style, as_text, cast_cells, style_of
from halfseen.files.missing_codes import (
    equals_codes,
    find_placeholders,
    group_spellings,
    is_never_value,
    null_options,
    say_spellings,
    shorten_notes,
    split_placeholders,
    suspect_spellings,
    suspect_words,
)
from halfseen.files.numbers import Marks, Numbers, choose_marks, number_format, plain_texts, split_numbers
from halfseen.files.rules import Decision, Draft, Outcome
from halfseen.files.text_formats import ADVICE, are_numbered_dates, find_text_format
from halfseen.words import Note, Severity

MIN_EXACT = 3
"""With fewer distinct exact numbers than this, ``<30`` and ``>30`` are levels; a guess."""

_LARGEST = 9.2e18  # of whole numbers
_SIGNS: dict[Literal["below", "above"], str] = {"below": "^[<≤]", "above": "^[>≥]"}


@dataclass(frozen=True)
class Limited:
    """The distinct numbers of a column, with a number beyond the limit in the place of a limit."""

    values: pa.Array  # the numbers; null where models must not see one
    hidden: Mask  # limits other than the most frequent one on their side
    limits: tuple[Limit, ...] = ()  # how numbers beyond a limit are written
    # The settings of the schema: `censored_below` and `censored_above`.
    settings: dict[str, Any] | None = None
    notes: tuple[Note, ...] = ()  # sentences about it


def replace_limits(
    name: str, numbers: Numbers, marks: Marks, values: pa.Array, texts: pa.Array, *, forced: bool = False
) -> Limited | None:
    """Replace detection limits by numbers beyond them.

    None if the column holds hardly any exact number, unless it is known (`forced`) that it holds numbers.
    """
    fits = numbers.fits[marks]
    sides = {
        side: as_mask(pc.match_substring_regex(numbers.parts["limit"], sign)) & fits
        for side, sign in _SIGNS.items()
    }
    hidden = np.zeros(len(fits), dtype=bool)
    limited = sides["below"] | sides["above"]
    if not limited.any():
        return Limited(values, hidden, settings={})
    whole = pa.types.is_integer(values.type)
    found = pc.fill_null(values.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False).copy()
    exact = fits & ~limited
    if not forced and len(np.unique(found[exact])) < MIN_EXACT:
        return None
    limits, settings, notes, past = [], {}, [], ~exact
    for side, held in sides.items():
        if not held.any():
            continue
        bounds, place = np.unique(found[held], return_inverse=True)
        weights = np.bincount(place, weights=numbers.counts[held])
        main = held & (found == bounds[weights.argmax()])
        text = most_frequent(texts, numbers.counts, main)
        bound = _strict_bound(float(bounds[weights.argmax()]), text, side, whole)
        hidden |= held & ~main
        notes.append(_describe(name, side, text, bound, numbers, main, held & ~main, exact, found))
        limits.append(Limit(side, bound, text))
        settings[f"censored_{side}"] = bound
        past |= found < bound if side == "below" else found > bound
        found[main] = _beyond(bound, side, whole)
    if past.all() and not forced:  # no number would be known exactly
        hidden, limits, settings = limited, [], {}
        text = most_frequent(texts, numbers.counts, limited)
        said = f"column {name!r}: no exact number is within the limits of cells such as {text!r}, which keep "
        notes = [Note(f"{said}their text and are not used by the model", "check")]
    typed = np.where(fits, found, 0).astype(np.int64) if whole else found
    return Limited(pa.array(typed, mask=hidden | ~fits), hidden, tuple(limits), settings, tuple(notes))


def _strict_bound(bound: float, text: str, side: str, whole: bool) -> float:
    """Return a bound that numbers are strictly beyond: of whole numbers, at least 3 means more than 2."""
    if (whole and text[0] in "≤≥") or (whole and text[1:2] == "="):
        return bound + 1 if side == "below" else bound - 1
    return bound


def _beyond(bound: float, side: str, whole: bool) -> float:
    """Return a number that stands for those beyond a bound: half of it, or twice."""
    if bound <= 0:
        return bound - 1 if side == "below" else bound + 1
    number = bound / 2 if side == "below" else bound * 2
    return min(float(np.floor(number)), _LARGEST) if whole else number


def _describe(
    name: str, side: str, text: str, bound: float, numbers: Numbers, main: Mask, others: Mask, exact: Mask,
    values: npt.NDArray[np.float64],
) -> Note:  # fmt: skip
    n_main, n_others = int(numbers.counts[main].sum()), int(numbers.counts[others].sum())
    text = (
        f"column {name!r}: {n_main:,} {'cell contains' if n_main == 1 else 'cells contain'} {text!r}, read "
        "as "
    )
    text += f"a value {side} {bound:g}"
    past = exact & (values < bound if side == "below" else values > bound)
    if past.any():
        text += f", like the {int(numbers.counts[past].sum()):,} exact values {side} it"
    if n_others:
        text += f"; {n_others:,} {'cell' if n_others == 1 else 'cells'} with other limits keep their text "
        text += "and are not used by the model"
    return Note(text)


MOSTLY, MOSTLY_CELLS = 0.9, 10
"""The share and number of cells that must be numbers or dates for others to be exceptions; guesses."""

HALF = 0.5
"""The same share where the others are a few words, each of which is repeated, such as "refused"; a guess."""

_FEW_LEVELS, _CELLS_PER_LEVEL = 20, 5  # at most so many distinct words, each in so many cells; guesses
_LEAST_CODE = 10**15  # 16 digits: beyond 2**53 floating-point numbers do not hold all of them
_SAMPLE = 500
_SHOWN = 5
_THREE_DECIMALS = r"^[+-]?(?:\d+|[1-9]\d{0,2}\.\d{3})$"
_FLAGGED = r"^[+-]?\d[\d.,]*\s*(\(?[A-Za-z]{1,2}\)?|[*!^#~?\x{2020}\x{2021}]{1,3})$"
UNMODELLED = {"kind": "text", "fill": False}
"""The settings of a column that models do not use and that is not imputed."""


def describe_outcomes(outcomes: dict[str, Outcome]) -> list[Note]:
    """Return the notes for the user: one sentence for columns with the same format, then exceptions."""
    alike: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        for form in outcome.formats:
            alike.setdefault(form, []).append(name)
    notes = []
    for form, names in alike.items():
        shown = ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        text = f"column {shown} contains {form}" if len(names) == 1 else f"columns {shown} contain {form}"
        notes.append(Note(text, "detail"))
    return notes + shorten_notes(
        (name, note)
        for name, one in outcomes.items()
        for note in (*one.notes, *_note_missing(name, one.words))
    )


def finish(draft: Draft, decision: Decision) -> Outcome:
    """Return the result for a column, given the decisions of the whole file."""
    outcome = _suspect(draft, _finish(draft, decision))
    if not draft.spellings:
        return outcome
    said = f"column {draft.name!r}: {say_spellings(draft.spellings)}, missing by --null, which ignores case"
    return replace(outcome, notes=(*outcome.notes, Note(said, "detail")))


def has_three_decimals(draft: Draft) -> bool:
    """Return whether every point of a plain column could also be a thousands separator."""
    observed = draft.trimmed.drop_null()
    head = all_match(observed[:_SAMPLE], _THREE_DECIMALS)
    return head and (len(observed) <= _SAMPLE or all_match(observed, _THREE_DECIMALS))


def _finish(draft: Draft, decision: Decision) -> Outcome:
    """Return the column as its kind, or as dates, numbers or text, whichever its cells allow first."""
    if draft.kind == "float" and decision.as_written and has_three_decimals(draft):
        return _finish_three_decimals(draft, decision)
    if draft.kind != "text":
        typed = cast_cells(draft.trimmed, draft.kind)
        if typed is not None:
            outcome = _typed(draft, typed, style_of(draft.kind, draft.trimmed.drop_null()))
            return _as_codes(draft, outcome) if draft.kind == "integer" else outcome
    if draft.dates:
        return _finish_dates(draft, decision)
    if draft.numbers is not None:
        return _finish_numbers(draft, draft.numbers, decision)
    return _text(draft)


def _as_codes(draft: Draft, outcome: Outcome) -> Outcome:
    """Return a column of which most numbers are as long as those of cards with the settings of codes.

    No average of them is such a number, and floating-point numbers do not hold all of their digits. If each
    is repeated and none becomes equal to another one, they are levels.
    """
    if draft.rules.wanted is None and (note := find_numbered_dates(draft.name, outcome.typed)) is not None:
        return replace(outcome, settings={"fill": False}, notes=(*outcome.notes, note))
    values = outcome.typed.drop_null().to_numpy(zero_copy_only=False)
    is_long = (values >= _LEAST_CODE) | (values <= -_LEAST_CODE)
    n_long = int(is_long.sum())
    if draft.rules.wanted is not None or 2 * n_long <= len(values):
        return outcome
    n_distinct = len(np.unique(values))
    if _CELLS_PER_LEVEL * n_distinct <= len(values) and len(np.unique(values.astype(float))) == n_distinct:
        return replace(outcome, settings={"kind": "categorical"})
    note = Note(
        f"column {draft.name!r}: {n_long:,} whole numbers have 16 or more digits, as codes that identify "
        'something do: not used by the model and not imputed; "kind": "continuous" in the schema makes them '
        "numbers",
        "harmful" if outcome.typed.null_count else "detail",
    )
    settings = {"kind": "identifier", "fill": False}
    return replace(outcome, settings=settings, notes=(*outcome.notes, note))


def find_numbered_dates(name: str, cells: pa.Array) -> Note | None:
    """Return a note if whole numbers are dates, such as 20240131 or 20240131093000; None otherwise.

    The first cells are looked at before all of them.
    """
    observed = cells.drop_null()
    values = observed.to_numpy(zero_copy_only=False)
    head = np.unique(values[:HEAD], return_counts=True)
    if not are_numbered_dates(*head, 1) or not are_numbered_dates(*np.unique(values, return_counts=True)):
        return None
    return Note(
        f"column {name!r} contains dates that are stored as numbers, such as {observed[0]}: not imputed, "
        "because not every number between them is a date; write them as 2024-01-31 or 2024-01-31 09:30:00",
        "harmful" if cells.null_count else "detail",
    )


def _typed(draft: Draft, typed: pa.Array, style: Style, **more: Any) -> Outcome:
    """Return typed cells as the outcome of a column; those that equal a code of the user become missing."""
    equal = equals_codes(typed, draft.rules.nulls) if draft.rules.nulls else None
    if equal is not None:
        typed = pc.if_else(equal, pa.scalar(None, typed.type), typed)
    return Outcome(typed, style, words=draft.words, **more)


def _note_missing(name: str, words: Sequence[tuple[str, int]]) -> tuple[Note, ...]:
    """Return a note on the words that were read as missing, if there are any."""
    if not words:
        return ()
    return (Note(f"column {name!r}: {say_spellings(words)}, read as missing"),)


def _text(
    draft: Draft,
    note: str | None = None,
    settings: dict[str, Any] | None = None,
    severity: Severity = "harmful",
) -> Outcome:
    """Return the column as text, words for missing values with it, and a note of this severity."""
    found = is_never_value(pa.array([word for word, _ in draft.words], pa.large_string())).to_pylist()
    errors = [word for word, never in zip(draft.words, found, strict=True) if never]
    if len(draft.trimmed) == draft.trimmed.null_count and len(errors) == len(draft.words):
        nothing = pa.nulls(len(draft.cells), pa.float64())
        return Outcome(nothing, Style("text"), words=tuple(errors))
    missing = draft.trimmed.is_null()
    if levels := [word for word, _ in draft.words if (word, _) not in errors]:  # in a column of text
        trimmed = pc.utf8_trim_whitespace(draft.cells)
        missing = pc.and_not(missing, pc.is_in(trimmed, value_set=pa.array(levels, trimmed.type)))
    if note is None and draft.rules.wanted is None and _is_coded(draft):
        note, severity = "has numbers that begin with 0, kept as text codes", "detail"
    notes = () if note is None else (Note(f"column {draft.name!r} {note}", severity),)
    typed = as_text(draft.cells, missing)
    return Outcome(typed, Style("text"), settings=settings or {}, notes=notes, words=tuple(errors))


def _is_coded(draft: Draft) -> bool:
    """Return whether the cells are numbers of which some begin with 0, such as 007."""
    observed = draft.trimmed.drop_null()
    return all_match(observed[:_SAMPLE], r"^[+-]?\d+(\.\d*)?$") and any_match(observed, CODE)


def _suspect(draft: Draft, outcome: Outcome) -> Outcome:
    """Add notes on numbers, dates and words that may mean missing, and on levels with several spellings."""
    notes: list[Note | None] = []
    if outcome.style.kind in ("integer", "float", "date", "timestamp"):
        held, found = find_placeholders(draft.name, outcome.typed, draft.rules, draft.cells)
        notes = [*found]
        if held is not None:
            typed, placeholders = split_placeholders(outcome.typed, held)
            kept = held if outcome.kept is None else pc.or_(held, outcome.kept)
            outcome = replace(outcome, typed=typed, kept=kept, placeholders=placeholders)
    elif outcome.style.kind == "text" and pa.types.is_string(outcome.typed.type) and not outcome.settings:
        observed = outcome.typed.drop_null()
        removed = draft.cells.filter(outcome.typed.is_null())
        notes = [suspect_words(draft.name, observed, removed), suspect_spellings(draft.name, observed)]
    said = [note for note in notes if note is not None]
    return replace(outcome, notes=(*outcome.notes, *said)) if said else outcome


# ------------------------------------------------------------------------------------------ numbers


def _finish_three_decimals(draft: Draft, decision: Decision) -> Outcome:
    """Return a column of numbers such as 1.577, read as thousands if the evidence says so."""
    texts = draft.trimmed.dictionary_encode()
    counts = np.bincount(texts.indices.drop_null().to_numpy(zero_copy_only=False))
    numbers = split_numbers(texts.dictionary, counts)
    draft = replace(draft, texts=texts, counts=counts, numbers=numbers)
    choice = choose_marks(draft, numbers, decision)
    if choice.marks is not None and choice.marks.decimal == ",":
        return _finish_numbers(draft, numbers, decision)
    # A point is expected where other columns prove it, and where commas separate the cells.
    expected = decision.decimal == "." or decision.delimiter == ","
    notes = () if choice.note is None or (expected and not choice.contested) else (choice.note,)
    typed = cast_cells(draft.trimmed, "float")
    return _typed(draft, typed, style_of("float", draft.trimmed.drop_null()), notes=notes)


def _finish_numbers(draft: Draft, numbers: Numbers, decision: Decision) -> Outcome:
    """Return a column of formatted numbers, or as text if most cells or its marks do not allow numbers."""
    choice = choose_marks(draft, numbers, decision)
    if choice.marks is None:
        return _leave_marks(draft, numbers)
    marks = choice.marks
    fits = numbers.fits[marks]
    forced = draft.rules.wanted == "number"
    if not forced and not fits.all():
        example = f"1{number_format(numbers, marks).group}234{marks.decimal}56"
        return _leave(draft, fits, "numbers", "--number-format", example, decision)
    plain = plain_texts(numbers, marks)
    held = plain.drop_null()
    kind: CellKind = "float" if any_match(held, r"[.eE]") else "integer"
    values = cast_cells(plain, kind)
    if len(held) == 0 or values is None:
        return _text(draft)
    form = number_format(numbers, marks)
    style = replace(style_of(kind, held), number=form if form != type(form)() else None)
    assert draft.texts is not None
    limited = replace_limits(draft.name, numbers, marks, values, draft.texts.dictionary, forced=forced)
    if limited is None:
        return _text(draft)
    formats = (form.format_note(whole=kind == "integer"),) if style.number is not None else ()
    notes = limited.notes if choice.note is None else (choice.note, *limited.notes)
    hidden = limited.hidden | ~fits
    if not fits.all():
        notes = (*notes, _note_kept(draft, fits, "numbers", decision))
    return _typed(
        draft,
        limited.values.take(draft.texts.indices),
        replace(style, limits=limited.limits),
        kept=_by_cell(hidden, draft.texts) if hidden.any() else None,
        settings=limited.settings,
        formats=formats,
        notes=notes,
    )


def _leave_marks(draft: Draft, numbers: Numbers) -> Outcome:
    """Return numbers with points and with commas as text: either would be a thousand times larger."""
    assert draft.texts is not None
    shown = [
        draft.texts.dictionary.filter(pc.fill_null(pc.match_substring(numbers.parts["body"], mark), False))[0]
        for mark in ".,"
    ]
    point, comma = (text.as_py() for text in shown)
    return _text(
        draft,
        f"contains numbers such as {point!r} and {comma!r}, of which one kind would be about a thousand "
        "times larger than the other: left as text and not imputed; write them in one way, or use "
        f"--number-format {shlex.quote(f'{draft.name}=1,234.56')} or {shlex.quote(f'{draft.name}=1.234,56')}",
        UNMODELLED,
    )


def _note_kept(draft: Draft, fits: Mask, what: str, decision: Decision) -> Note:
    """Return a note on the cells of a column of numbers or dates that keep their text."""
    return Note(
        f"column {draft.name!r} is read as {what} except for {_list_misfits(draft, fits, decision)}: kept as "
        f"text and not used by the model; --null {shlex.quote(f'{draft.name}=TEXT')} makes such cells missing"
    )


def _by_cell(hidden: Mask, texts: pa.DictionaryArray) -> pa.Array:
    """Return for each cell whether its text is hidden, given the same for the distinct texts."""
    return pc.fill_null(pa.array(hidden).take(texts.indices), False)


def _leave(draft: Draft, fits: Mask, what: str, option: str, example: str, decision: Decision) -> Outcome:
    """Return a column with exceptions as text; it is not imputed if most cells are numbers or dates."""
    if what == "numbers" and _is_coded(draft):
        return _text(draft)
    total, n_fits = int(draft.counts.sum()), int(draft.counts[fits].sum())
    few_words = np.sum(~fits) <= _SHOWN and np.sum(fits) > _FEW_LEVELS  # such as "refused"
    n_flagged = _count_flagged(draft, fits) if what == "numbers" and n_fits >= HALF * total else 0
    if n_fits + n_flagged < max((HALF if few_words else MOSTLY) * total, MOSTLY_CELLS):
        return _text(draft)
    assert draft.texts is not None
    distinct = draft.texts.dictionary
    option = f"{option} {shlex.quote(f'{draft.name}={example}')} reads the other values as {what}"
    others = distinct.filter(pa.array(~fits))
    if few_words and not pc.any(pc.match_substring_regex(others, r"\d")).as_py():
        text = f"contains {what} except for {_list_misfits(draft, fits, decision)}"
        words = [group[0][0] for group in group_spellings([(word, 1) for word in others.to_pylist()])]
        remedy = f"if this means missing, use {null_options(draft.name, words)}; {option}"
    elif n_fits < MOSTLY * total and (form := find_text_format(distinct[:_SAMPLE].to_pylist())) is not None:
        examples = [distinct.filter(pa.array(group))[0].as_py() for group in (fits, ~fits)]
        text, remedy = f"contains {form} such as {' and '.join(map(repr, examples))}", ADVICE[form]
    else:
        text = f"contains {what} except for {_list_misfits(draft, fits, decision)}"
        remedy = option
    if len(draft.counts) <= _FEW_LEVELS and total >= _CELLS_PER_LEVEL * len(draft.counts):
        return _text(draft, f"{text}: kept as a categorical column; {remedy}")
    return _text(draft, f"{text}: left as text and not imputed; {remedy}", UNMODELLED)


def _count_flagged(draft: Draft, fits: Mask) -> int:
    """Return how many cells that do not fit are numbers with a flag, such as ``12.3 H`` or ``7.9*``."""
    assert draft.texts is not None
    return int(
        draft.counts[~fits & as_mask(pc.match_substring_regex(draft.texts.dictionary, _FLAGGED))].sum()
    )


def _list_misfits(draft: Draft, fits: Mask, decision: Decision) -> str:
    """Return the texts that do not fit, each with the line where it comes first."""
    assert draft.texts is not None
    places = np.flatnonzero(~fits)
    shown = []
    for place in places[:_SHOWN].tolist():
        row = pc.index(draft.texts.indices, place).as_py()
        more = f" and {draft.counts[place] - 1:,} more" if draft.counts[place] > 1 else ""
        shown.append(f"{draft.texts.dictionary[place].as_py()!r} in line {decision.line_of(row)}{more}")
    if len(places) > _SHOWN:
        shown.append(f"{len(places) - _SHOWN:,} other texts")
    return ", ".join(shown)


# ------------------------------------------------------------------------------------------ dates


def _finish_dates(draft: Draft, decision: Decision) -> Outcome:
    """Return a column of dates, or as text if their order is ambiguous or most cells are no dates."""
    existing = [one for one in draft.dates if one.days(one.orders[0])[1].any()]  # 30/02/2021 is no date
    layouts = [(one, *_choose_order(one, draft, decision)) for one in existing]
    undecided = [one for one, order, _ in layouts if order is None]
    if undecided:
        return _leave_order(draft, undecided[0])
    timed = any(one.timed for one in existing)
    read = [(one, order, why, *one.moments(order, timed=timed)) for one, order, why in layouts if order]
    read = [one for one in read if one[-1].any()]
    if not read:
        return _text(draft)
    fits = np.logical_or.reduce([good for *_, good in read])
    main, order, why, _, good = read[0]
    if draft.rules.wanted != "date" and not fits.all():
        return _leave_mixed_orders(draft, fits) or _leave(
            draft, fits, "dates", "--date-order", order, decision
        )
    assert draft.texts is not None
    values = pc.coalesce(*(moments for *_, moments, _ in read))
    form = main.format(order)
    text = f"dates like {_first_text(draft, good)!r}"
    if main.family in ("numbers", "ymd"):
        text = f"dates ({ORDER_WORDS[order]}{why})"
    if form.year_digits == 2:
        text += _say_years(values.filter(pa.array(good)))
    notes = () if len(read) == 1 else (_note_layouts(draft, read),)
    if not fits.all():
        notes = (*notes, _note_kept(draft, fits, "dates", decision))
    return _typed(
        draft,
        values.take(draft.texts.indices),
        Style("timestamp" if timed else "date", date=form),
        kept=_by_cell(~fits, draft.texts) if not fits.all() else None,
        formats=(text,),
        notes=notes,
    )


def _choose_order(layout: Dates, draft: Draft, decision: Decision) -> tuple[Order | None, str]:
    """Return the order of a layout, None if nothing decides it, and what does if the layout does not."""
    orders = layout.orders
    if layout.family != "numbers":
        return orders[0], ""
    if draft.rules.order is not None:
        return draft.rules.order, ""
    if len(orders) == 1:
        return orders[0], ""
    if decision.order in orders:
        return decision.order, ""
    alike = [one.orders for one in draft.dates if one.family == "numbers" and one.mark == layout.mark]
    proved = {found[0] for found in alike if len(found) == 1}
    if len(proved) == 1:
        return proved.pop(), ", as in the other cells"
    if (order := decision.order_beside(draft.name)) in orders:
        return order, ", as in the other columns"
    return ("dmy", ", as usual with points") if layout.by_convention else (None, "")


def _first_text(draft: Draft, held: Mask) -> str:
    assert draft.texts is not None
    return str(draft.texts.dictionary[int(np.flatnonzero(held)[0])].as_py())


def _say_years(values: pa.Array) -> str:
    ends = pc.min_max(pc.year(values)).as_py()
    return f", with years from {ends['min']} to {ends['max']}"


def _note_layouts(draft: Draft, read: Sequence[tuple[Dates, Order, str, pa.Array, Mask]]) -> Note:
    """Return a sentence on the layouts of dates in a column."""
    shown: list[str] = []
    for layout, order, why, values, good in read:
        text = f"like {_first_text(draft, good)!r} ({ORDER_WORDS[order]}{why}"
        years = _say_years(values.filter(pa.array(good))) if (layout.years[good] < 100).any() else ""
        count = int(draft.counts[good].sum())
        verb = "" if shown else f"{'is' if count == 1 else 'are'} written "
        shown.append(f"{count:,} {'cell' if count == 1 else 'cells'} {verb}{text}{years})")
    return Note(
        f"column {draft.name!r}: {', '.join(shown[:-1])} and {shown[-1]}: all are read as dates, and missing "
        "cells are filled like the first"
    )


def _leave_order(draft: Draft, layout: Dates) -> Outcome:
    """Return dates as text, because nothing decides the order of day and month."""
    if sum(one.weight for one in draft.dates) < MOSTLY * draft.counts.sum():
        return _text(draft)
    return _text(
        draft,
        f"contains dates such as {_first_text(draft, layout.valid)!r}, in which the order of day and month "
        f"is ambiguous: left as text and not imputed; use --date-order {shlex.quote(f'{draft.name}=dmy')} or "
        f"{shlex.quote(f'{draft.name}=mdy')}",
        UNMODELLED,
    )


def _leave_mixed_orders(draft: Draft, fits: Mask) -> Outcome | None:
    """Return dates as text if many of them have the day first and many the month; None otherwise."""
    if draft.counts[fits].sum() >= MOSTLY * draft.counts.sum():
        return None  # the few others are listed
    numeric = [one for one in draft.dates if one.family == "numbers"]
    by_day, by_month = (
        np.logical_or.reduce([np.zeros_like(fits), *(one.days(order)[1] for one in numeric)])
        for order in ORDERS[:2]
    )
    if not (fits | by_day | by_month).all():
        return None
    examples = [_first_text(draft, held) for held in (by_day & ~by_month, by_month & ~by_day)]
    return _text(
        draft,
        f"contains dates such as {examples[0]!r} with the day first and {examples[1]!r} with the month "
        "first, so that others are ambiguous: left as text and not imputed; write them in one order",
        UNMODELLED,
    )
