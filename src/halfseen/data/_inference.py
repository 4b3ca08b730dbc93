"""Inference of the kind, levels and bounds of a column, with a reason; settings of the user come first."""

import datetime
import re
from dataclasses import replace
from typing import Any

import numpy as np

from halfseen._arrays import Booleans, Floats
from halfseen.data._cells import EXACT_INTEGERS, dtype_bounds, plain, smallest_positive
from halfseen.data.columns import (
    DAY,
    LEVELLED,
    NUMERIC,
    Column,
    Kind,
    check_finite,
    show_moment,
    with_imputed_range,
)
from halfseen.data.frames import RawColumn
from halfseen.data.leaving import find_cause
from halfseen.data.summaries import FIRST_LABELS, NATURAL_LIMITS, TIME_STEPS, ColumnSummary, as_numbers
from halfseen.errors import SchemaError
from halfseen.files.text_formats import TextFormat, are_numbered_dates, find_text_format


def check_kind(
    summary: ColumnSummary, kind: Kind, overrides: dict[str, Any], raw: RawColumn | None = None
) -> None:
    """Raises if an observed value contradicts the kind that the user declared.

    Parameters
    ----------
    summary : ColumnSummary
        The column.
    kind, overrides : object
        What the user declared.
    raw : RawColumn, optional
        All values, if they are in memory: the error then names the row.
    """
    values = np.array([*summary.ends, *summary.values]) if raw is None else raw.values
    if kind == "constant":
        column = summary.column if raw is None else raw
        first = column.values[~np.isnan(column.values)][0]
        others = ~np.isnan(column.values) & (column.values != first)
        _reject(
            column, others, "be constant", rows=raw is not None, besides=f"besides {_shown(first, column)} "
        )
    elif kind in ("positive", "count"):
        column = replace(summary.column, values=values)
        bad = values <= 0 if kind == "positive" else values < 0
        _reject(column, bad, "be positive" if kind == "positive" else "be a count", rows=raw is not None)
        if kind == "count" and overrides.get("integer") is not False:
            _reject(column, _fractional(values), "be a count", rows=raw is not None)


def _reject(column: RawColumn, broken: Booleans, what: str, *, rows: bool, besides: str = "") -> None:
    places = np.flatnonzero(broken)
    if len(places):
        n_seen = (~np.isnan(column.values)).sum()
        where = f" in row {places[0]} ({len(places)} of {n_seen} values do not fit)" if rows else ""
        raise SchemaError(
            f"Column {column.name!r} cannot {what}, as the schema requires: {besides}it contains "
            f"{_shown(column.values[places[0]], column)}{where}. Change the schema or the values."
        )


def _fractional(values: Floats) -> Booleans:
    return values % 1 > 0  # false of NaN


def _shown(code: float, raw: RawColumn) -> str:
    if raw.labels:
        return repr(plain(raw.labels[int(code)]))
    if raw.storage in ("time", "duration"):
        return show_moment(code, raw.storage)
    return repr(float(code)).removesuffix(".0")


IDENTIFIER_NAME = re.compile(r"((^|[_\W])(id|uuid|guid)|^(index|rownames?|unnamed: ?0))$", re.IGNORECASE)
CAMEL_IDENTIFIER = re.compile(r"[a-z]I[dD]$")  # PassengerId, customerID
CODE_NAME = re.compile(
    r"(^|[_\W])(code|zip|(zip|post|postal|area|pin)code|postnummer|postnr|plz|postleitzahl|cep|"
    r"code[_ ]postal|c[oó]digo[_ ]postal|codice[_ ]postale)$", re.IGNORECASE,
)  # fmt: skip
NUMBER_NAME = re.compile(  # of numbers that are given to persons and things, and are no quantities
    r"(^|[_\W])(phone|telephone|telefon|t[ée]l[ée]phone|tel[ée]fono|\w*nummer|\w+nr|ssn|ean|gtin|isbn|imei|barcode|"
    r"(phone|telephone|mobile|fax|account|invoice|order|ticket|serial|policy|customer|patient)"
    r"[_ ]?(no|nr|num|number))\.?$", re.IGNORECASE,
)  # fmt: skip
IDENTIFIER_ROWS = 20  # fewer rows than this and "all different" is not evidence
ALL_DISTINCT_ROWS = 4  # as many texts that all differ are names: none of them could be imputed for a reason
SENTENCE_WORDS = 5  # texts with fewer words are names, or levels
IDENTIFIER_SHARE = 0.5  # of text values that occur in a column, the share that is distinct
BINARY_ROWS = 10  # two distinct numbers other than 0 and 1 in fewer cells are numbers, not codes
CENSORED = ("censored_below", "censored_above")
LIMITS = ("minimum", "maximum", "integer", *CENSORED)
NATURAL_ROWS = 50  # fewer values are no evidence of limits
CROWDED = 0.01  # share of values that are in the last tenth before a limit, or at it


def infer_column(raw: RawColumn, overrides: dict[str, Any], *, named: bool, n_columns: int) -> Column:
    """Returns the description of a column, given the user's settings and whether its name is meaningful.

    Parameters
    ----------
    raw : RawColumn
        The column.
    overrides : dict
        The settings.
    named : bool
        Whether the table is a data frame.
    n_columns : int
        The number of columns of the table.
    """
    check_finite(raw)
    raw = as_numbers(raw, wants_numbers(overrides))
    return describe_column(ColumnSummary.of(raw, n_columns), overrides, named=named, raw=raw)


def wants_numbers(overrides: dict[str, Any]) -> bool:
    """Returns whether the user wants a column, of texts perhaps, to be read as numbers."""
    return overrides.get("kind", "continuous" if "derived" in overrides else None) in NUMERIC


def describe_column(
    summary: ColumnSummary, overrides: dict[str, Any], *, named: bool, raw: RawColumn | None = None
) -> Column:
    """Returns the description of a summarised column; see `infer_column`.

    Parameters
    ----------
    summary : ColumnSummary
        The column.
    overrides, named : object
        As of `infer_column`.
    raw : RawColumn, optional
        All values, if they are in memory, for messages.
    """
    if summary.n_observed and not summary.column.labels and np.isinf(summary.ends).any():
        raise SchemaError(
            f"Column {summary.column.name!r} contains infinity. Replace infinite values by numbers or by "
            "missing values."
        )
    if "derived" in overrides:
        overrides = {"kind": "continuous"} | overrides
    kind, reason = _choose_kind(summary, overrides, raw, named=named)
    form = None
    if kind == "text" or (kind == "identifier" and "kind" not in overrides):
        form = _find_format(summary)
    if form is not None:
        kind, reason = "text", f"{form.capitalize()}, which are not read as numbers or dates."
    column = Column(
        name=summary.column.name,
        kind=kind,
        dtype=summary.column.dtype,
        storage=summary.column.storage,
        reason=reason,
        n_observed=summary.n_observed,
        n_missing=summary.n_rows - summary.n_observed,
        fill=overrides.get("fill"),
        skip=overrides.get("skip"),
        set_by_user=not overrides.keys() <= {"fill", "skip"},
        format=form,
    )
    column = _with_values(column, summary, overrides)
    limits = summary.values, summary.counts, summary.ends
    if "derived" in overrides:
        column = replace(column, derived=overrides["derived"])
        return replace(
            with_imputed_range(column, *limits, ()),
            predictor=bool(overrides.get("predictor")),
            integer="int" in column.dtype.lower(),
            reason=f"Derived: {overrides['derived']}.",
        )
    column = with_imputed_range(column, *limits, _differing(column, summary, overrides))
    inferred = column.kind == "count" and not column.set_by_user
    dates = inferred and are_numbered_dates(summary.values, summary.counts)
    cause = find_cause(column, summary.n_distinct, summary.n_observed, named=named, are_dates=dates)
    return replace(column, left=cause)


def _with_values(column: Column, summary: ColumnSummary, overrides: dict[str, Any]) -> Column:
    """Adds the possible values of a column, or the single value that imputes it."""
    raw = summary.column
    kind = column.kind
    if kind == "unsupported":
        return column
    if kind == "all-missing":
        column = _bounded(column, summary, overrides)
        fill = float(column.constrain(np.zeros(1))[0]) if raw.storage == "number" else None
        return replace(column, fill_code=fill)
    if kind in LEVELLED:
        column = replace(column, levels=_levels(summary, overrides, kind))
        if len(raw.values) == 1:
            column = replace(column, fill_code=float(column.encode(raw)[0]))
    elif not column.modelled:  # of a column that no model sees, only what fills it is kept
        value = np.clip(raw.values[[summary.counts.argmax()]], *dtype_bounds(raw.storage, raw.dtype))
        column = replace(column, levels=_names(raw, value), fill_code=0.0)
    return _bounded(column, summary, overrides)


def _choose_kind(
    summary: ColumnSummary, overrides: dict[str, Any], raw: RawColumn | None, *, named: bool
) -> tuple[Kind, str]:
    column = summary.column
    kind, reason = _infer_kind(summary, named=named)
    declared = "levels" in overrides and (
        kind not in LEVELLED or (kind == "binary" and len(overrides["levels"]) > 2)
    )
    wanted = overrides.get("kind", "categorical" if declared else kind)
    if kind == "binary" and column.storage == "number" and "kind" not in overrides and _limits(overrides):
        wanted, reason = _infer_number_kind(summary, named=named)
        return wanted, reason  # a bound given by the user implies a numeric column
    if wanted == kind or kind == "all-missing":
        return kind, reason
    time = {"time": "datetime", "duration": "duration"}.get(column.storage)
    if wanted == "all-missing":
        n_seen = summary.n_observed
        raise SchemaError(f"Column {column.name!r} is not all-missing: {n_seen} of its cells have a value.")
    if (
        wanted in ("datetime", "duration", "unsupported")
        or kind == "unsupported"
        or (time is not None and wanted in NUMERIC)
    ):
        instead = f"its kind can only be {time} or one with levels" if time else "convert it first"
        raise SchemaError(f"Column {column.name!r} of dtype {column.dtype} cannot be {wanted}; {instead}.")
    check_kind(summary, wanted, overrides, raw)
    return wanted, "Set by the user."


def _infer_kind(summary: ColumnSummary, *, named: bool) -> tuple[Kind, str]:
    raw, distinct, counts, n_seen = summary.column, summary.values, summary.counts, summary.n_observed
    if n_seen == 0:
        return "all-missing", "No value was seen."
    if raw.storage == "other":
        return "unsupported", f"Values of type {raw.dtype}."
    if raw.declared and len(raw.labels) > 1:
        kind: Kind = "ordinal" if raw.ordered and len(raw.labels) > 2 else "categorical"
        return ("binary" if len(raw.labels) == 2 else kind), "Declared by the column's dtype."
    if len(distinct) == 1:
        return "constant", "One distinct value."
    if raw.storage == "time":
        return "datetime", "Dates or times."
    if raw.storage == "duration":
        return "duration", "Durations."
    if len(distinct) == 2 and (raw.storage != "number" or _is_code(distinct, n_seen)):
        return "binary", "Two distinct values."
    if raw.storage == "label" and raw.labels:
        more = "" if summary.is_complete else "more than "
        n_distinct = len(distinct) if summary.is_complete else summary.limit
        several = f"{more}{n_distinct} distinct values in {n_seen} cells."
        if (counts == 1).sum() > len(counts) / 2 and _are_sentences(summary):
            return "text", f"Sentences with {several}"
        all_differ = ALL_DISTINCT_ROWS <= len(distinct) == n_seen
        if not summary.is_complete or _mostly_distinct(summary) or all_differ:
            return "identifier", f"Text with {several}"
        return "categorical", f"Text with {len(distinct)} distinct values."
    return _infer_number_kind(summary, named=named)


def _is_code(distinct: Floats, n_seen: int) -> bool:
    """Returns whether two values of a short table are codes, not measurements."""
    return distinct.tolist() == [0.0, 1.0] or n_seen >= BINARY_ROWS


def _are_sentences(summary: ColumnSummary) -> bool:
    """Returns whether most texts are as long as sentences, judged by the first of them."""
    texts = _first_texts(summary.column)
    n_words = [sum(any(map(str.isalpha, word)) for word in text.split()) for text in texts]
    return bool(np.median(n_words) >= SENTENCE_WORDS)


def _find_format(summary: ColumnSummary) -> TextFormat | None:
    """Returns what the texts of a column are if they stand for quantities, judged by the first of them."""
    return find_text_format(_first_texts(summary.column)) if summary.column.storage == "label" else None


def _first_texts(column: RawColumn) -> list[str]:
    return [str(column.labels[int(i)]) for i in column.values[:FIRST_LABELS]]


def _mostly_distinct(summary: ColumnSummary) -> bool:
    share = IDENTIFIER_SHARE * summary.n_observed
    return summary.n_observed >= IDENTIFIER_ROWS and summary.n_distinct > share


def _infer_number_kind(summary: ColumnSummary, *, named: bool) -> tuple[Kind, str]:
    name, whole, least = summary.column.name, _is_whole(summary), summary.ends[0]
    if named and whole and summary.n_observed >= IDENTIFIER_ROWS and summary.all_differ:
        if IDENTIFIER_NAME.search(name) or CAMEL_IDENTIFIER.search(name):
            return "identifier", "Whole numbers, all different, with the name of an identifier."
        if least in (0, 1) and summary.counts_up:
            return "identifier", "Whole numbers that count the rows."
    if named and whole and _mostly_distinct(summary) and NUMBER_NAME.search(name):
        return "identifier", "Whole numbers, mostly different, with a name as of telephone numbers."
    if named and whole and least >= 0 and CODE_NAME.search(name):
        many = _mostly_distinct(summary) or not summary.is_complete
        return "identifier" if many else "categorical", "Whole numbers with the name of a code."
    if whole and least >= 0:
        return "count", "Whole numbers, none negative."
    if least > 0:
        return "positive", "Numbers, all positive."
    return "continuous", "Whole numbers." if whole else "Numbers."


def _is_whole(summary: ColumnSummary) -> bool:
    if summary.column.whole:
        return True
    # beyond 2**53 every float is whole, which is not evidence
    return summary.is_whole and max(map(abs, summary.ends)) <= EXACT_INTEGERS


def _bounded(column: Column, summary: ColumnSummary, overrides: dict[str, Any]) -> Column:
    """Adds the bounds of a column: those of its kind, then those of the user."""
    raw = summary.column
    changes = _inferred_bounds(column, summary)
    named = _limits(overrides)
    if named and column.kind in LEVELLED:
        raise SchemaError(f"Column {column.name!r} is {column.kind}: {named[0]} does not apply to levels.")
    if overrides.get("integer") is False and raw.whole:
        raise SchemaError(f"Column {column.name!r} of dtype {raw.dtype} can only contain integers.")
    if overrides.get("integer") and column.storage in ("time", "duration"):
        raise SchemaError(
            f"Column {column.name!r} of dtype {raw.dtype} does not contain numbers, so the setting integer "
            "does not apply."
        )
    for key in ("minimum", "maximum", *CENSORED):
        if key in overrides:
            changes[key] = as_code(overrides[key], raw, key)
    changes |= {key: overrides[key] for key in ("integer",) if key in overrides}
    if column.kind == "positive" and "censored_below" in overrides and "minimum" not in overrides:
        changes["minimum"] = 0.0  # the number recorded for a censored value is not evidence
    if "minimum" in overrides or "maximum" in overrides or "firm" in overrides:
        changes["firm"] = overrides.get("firm", True)
    reason = changes.pop("reason", column.reason)
    reason = reason.rstrip(".") + f"; {', '.join(named)} set by user." if named else reason
    bounded = replace(column, reason=reason, **changes)
    if bounded.levels is None:
        _check_range(bounded)
        _check_bounds(bounded, summary)
        if summary.n_observed and bounded.is_censored(summary.values).all():
            limits = " and ".join(f"{key} {overrides[key]}" for key in CENSORED if key in overrides)
            raise SchemaError(
                f"Column {column.name!r}: all values are beyond {limits}, so that no exact value is known."
            )
    return bounded


def _inferred_bounds(column: Column, summary: ColumnSummary) -> dict[str, Any]:
    if column.levels is not None or not summary.n_observed:
        return {}
    if column.storage in ("time", "duration"):
        steps = (step for step, fits in zip(TIME_STEPS, summary.steps, strict=True) if fits)
        return {"step": DAY if summary.column.whole else next(steps, None)}
    changes: dict[str, Any] = {"integer": column.kind == "count" or _is_whole(summary)}
    if column.storage == "boolean":
        return {"integer": True, "minimum": 0.0, "maximum": 1.0}
    if column.kind == "positive":
        least = summary.ends[0]
        changes["minimum"] = least / 2 if least / 2 >= smallest_positive(column.dtype) else least
    if column.kind == "count":
        changes["minimum"] = 0.0
    return changes | _natural_limits(column, summary)


def _differing(column: Column, summary: ColumnSummary, overrides: dict[str, Any]) -> list[str]:
    """Returns the limits that the user set; none if all of them would have been inferred anyway."""
    inferred, named = _inferred_bounds(column, summary), _limits(overrides)
    return named if any(getattr(column, name) != inferred.get(name) for name in named) else []


def _natural_limits(column: Column, summary: ColumnSummary) -> dict[str, Any]:
    """Returns the limits of a fraction or percentage whose values cover its range or reach its end often."""
    n_seen, (least, greatest) = summary.n_observed, summary.ends
    if n_seen < NATURAL_ROWS or column.kind not in NUMERIC or least < 0:
        return {}
    for limit, n_near, n_at in zip(NATURAL_LIMITS, summary.n_near, summary.n_at, strict=True):
        if greatest > limit or (column.integer and limit == 1):
            continue
        fills = greatest - least >= 0.8 * limit and greatest >= 0.95 * limit
        if (fills and n_near / n_seen >= CROWDED) or n_at / n_seen >= CROWDED:
            reason = f"{column.reason.rstrip('.')}; values up to {limit:g} and none beyond: a natural limit."
            return {"minimum": 0.0, "maximum": limit, "firm": True, "reason": reason}
    return {}


def _limits(overrides: dict[str, Any]) -> list[str]:
    return [key for key in LIMITS if key in overrides and overrides[key] is not False]


def _check_range(column: Column) -> None:
    low, high = column.code_bounds()
    if low > high:
        raise SchemaError(f"Column {column.name!r}: minimum {low:g} is above maximum {high:g}.")
    below, above = column.censored_below, column.censored_above
    for setting, limit in (("censored_below", below), ("censored_above", above)):
        if limit is not None and not low <= limit <= high:
            end = f"below minimum {low:g}" if limit < low else f"above maximum {high:g}"
            raise SchemaError(f"Column {column.name!r}: {setting} {limit:g} is {end}.")
    if below is not None and above is not None and below > above:
        raise SchemaError(
            f"Column {column.name!r}: censored_below {below:g} is above censored_above {above:g}."
        )
    step = column.code_step
    if step is not None and np.ceil(low / step) > np.floor(high / step):
        raise SchemaError(
            f"Column {column.name!r} needs multiples of {step:g}; between {low:g} and {high:g} there is none."
        )


def _check_bounds(column: Column, summary: ColumnSummary) -> None:
    """Raises an error if a bound excludes all observed values: mostly it is in other units."""
    if not summary.n_observed:
        return
    raw, (least, greatest) = summary.column, summary.ends
    if column.minimum is not None and column.minimum > greatest:
        excludes = f"minimum {_shown(column.minimum, raw)} is above all observed values, of which the largest"
        raise SchemaError(f"Column {column.name!r}: {excludes} is {_shown(greatest, raw)}.")
    if column.maximum is not None and column.maximum < least:
        excludes = (
            f"maximum {_shown(column.maximum, raw)} is below all observed values, of which the smallest"
        )
        raise SchemaError(f"Column {column.name!r}: {excludes} is {_shown(least, raw)}.")


def _names(raw: RawColumn, values: Floats) -> tuple[Any, ...]:
    """Returns values of a column as they are listed among levels."""
    if raw.storage == "label" and raw.labels:
        return tuple(plain(raw.labels[int(i)]) for i in values)
    return tuple(bool(value) if raw.storage == "boolean" else plain(value) for value in values)


def _levels(summary: ColumnSummary, overrides: dict[str, Any], kind: Kind) -> tuple[Any, ...]:
    raw = summary.column
    if not summary.is_complete:
        raise SchemaError(
            f"Column {raw.name!r} cannot be {kind}: it has more than {summary.limit:,} distinct values."
        )
    present = _names(raw, raw.values)
    found = tuple(map(plain, raw.labels)) if raw.declared and raw.labels else present
    levels = (
        tuple(plain(as_code(level, raw, "levels")) for level in overrides["levels"])
        if "levels" in overrides
        else found
    )
    allowed, declared = set(levels), set(found)  # levels can be many
    strange = [level for level in present if level not in allowed]
    if strange:
        raise SchemaError(
            f"Column {raw.name!r} contains {strange[0]!r}, which is not among the levels {levels!r}."
        )
    undeclared = [level for level in levels if raw.declared and level not in declared]
    if undeclared:
        raise SchemaError(f"Column {raw.name!r}: its dtype does not declare the level {undeclared[0]!r}.")
    if kind == "binary" and len(levels) > 2:
        raise SchemaError(
            f"Column {raw.name!r} cannot be binary: it has {len(levels)} levels, {levels[:3]!r}..."
        )
    return levels


def as_code(value: Any, raw: RawColumn, setting: str) -> Any:
    """Returns the code of a bound or level of the user; dates may be ISO text, in UTC if without a zone."""
    try:
        if raw.storage == "time" and isinstance(value, str | datetime.date):
            moment = datetime.datetime.fromisoformat(str(value))
            moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) / _MICROSECOND
        if raw.storage == "duration" and isinstance(value, datetime.timedelta):
            return value / _MICROSECOND
        if setting == "levels":
            return value
        number = float(value) if not isinstance(value, str | bool) else np.nan
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not np.isfinite(number):
        wanted = "a number, or a date in ISO form" if raw.storage == "time" else "a number"
        raise SchemaError(f"Column {raw.name!r}: {setting} must be {wanted}, got {value!r:.60}.")
    return number


_MICROSECOND = datetime.timedelta(microseconds=1)
