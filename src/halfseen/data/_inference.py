"""Inference of the kind, levels and bounds of a column, with a reason; settings of the user come first."""

import datetime
import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halfseen.data._cells import EXACT_INTEGERS, dtype_bounds, plain, smallest_positive
from halfseen.data.columns import (
    DAY,
    LEVELLED,
    NUMERIC,
    Column,
    Kind,
    check_finite,
    parse_numbers,
    show_moment,
    with_imputed_range,
)
from halfseen.data.frames import Floats, RawColumn
from halfseen.data.leaving import find_cause
from halfseen.errors import SchemaError
from halfseen.files.text_formats import TextFormat, find_text_format


def check_kind(raw: RawColumn, kind: Kind, overrides: dict[str, Any]) -> None:
    """Raises if an observed value contradicts the kind that the user declared."""
    values = raw.values
    if kind == "constant":
        first = values[~np.isnan(values)][0]
        others = ~np.isnan(values) & (values != first)
        _reject(raw, others, "be constant", besides=f"besides {_shown(first, raw)} ")
    elif kind == "positive":
        _reject(raw, values <= 0, "be positive")
    elif kind == "count":
        _reject(raw, values < 0, "be a count")
        if overrides.get("integer") is not False:
            _reject(raw, _fractional(values), "be a count")


def _reject(raw: RawColumn, broken: npt.NDArray[np.bool_], what: str, besides: str = "") -> None:
    rows = np.flatnonzero(broken)
    if len(rows):
        value, n_seen = _shown(raw.values[rows[0]], raw), (~np.isnan(raw.values)).sum()
        raise SchemaError(
            f"Column {raw.name!r} cannot {what}, as the schema requires: {besides}it contains {value} in row "
            f"{rows[0]} ({len(rows)} of {n_seen} values do not fit). Change the schema or the values."
        )


def _fractional(values: Floats) -> npt.NDArray[np.bool_]:
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
TEXTS_READ = 1000  # to find out what the texts of a column are
IDENTIFIER_SHARE = 0.5  # of text values that occur in a column, the share that is distinct
BINARY_ROWS = 10  # two distinct numbers other than 0 and 1 in fewer cells are numbers, not codes
TIME_STEPS = (DAY, 3_600e6, 60e6, 1e6)
CENSORED = ("censored_below", "censored_above")
LIMITS = ("minimum", "maximum", "integer", *CENSORED)
NATURAL_LIMITS = (1.0, 100.0)  # of shares and percentages, which start at 0
NATURAL_ROWS = 50  # fewer values are no evidence of limits
CROWDED = 0.01  # share of values that are in the last tenth before a limit, or at it


class Tally(NamedTuple):
    """The distinct observed values of a column, in ascending order, and their counts."""

    distinct: Floats
    counts: npt.NDArray[np.int64]


def infer_column(raw: RawColumn, overrides: dict[str, Any], *, named: bool) -> Column:
    """Returns the description of a column, given the user's settings and whether its name is meaningful."""
    check_finite(raw)
    if "derived" in overrides:
        overrides = {"kind": "continuous"} | overrides
    if raw.storage == "label" and overrides.get("kind") in NUMERIC:
        raw = replace(raw, values=parse_numbers(raw), labels=(), declared=False)
    seen = raw.values[~np.isnan(raw.values)]
    tally = Tally(*np.unique(seen, return_counts=True))
    kind, reason = _choose_kind(raw, seen, tally, overrides, named=named)
    form = None
    if kind == "text" or (kind == "identifier" and "kind" not in overrides):
        form = _find_format(raw, tally.distinct)
    if form is not None:
        kind, reason = "text", f"{form.capitalize()}, which are not read as numbers or dates."
    column = Column(
        name=raw.name,
        kind=kind,
        dtype=raw.dtype,
        storage=raw.storage,
        reason=reason,
        n_observed=len(seen),
        n_missing=len(raw.values) - len(seen),
        fill=overrides.get("fill"),
        skip=overrides.get("skip"),
        set_by_user=not overrides.keys() <= {"fill", "skip"},
        format=form,
    )
    column = _with_values(column, raw, seen, tally, overrides)
    if "derived" in overrides:
        column = replace(column, derived=overrides["derived"])
        return replace(
            with_imputed_range(column, *tally, ()),
            predictor=bool(overrides.get("predictor")),
            integer="int" in column.dtype.lower(),
            reason=f"Derived: {overrides['derived']}.",
        )
    column = with_imputed_range(column, *tally, _differing(column, raw, seen, overrides))
    return replace(column, left=find_cause(column, len(tally.distinct), int(tally.counts.sum()), named=named))


def _with_values(
    column: Column, raw: RawColumn, seen: Floats, tally: Tally, overrides: dict[str, Any]
) -> Column:
    """Adds the possible values of a column, or the single value that imputes it."""
    kind = column.kind
    if kind == "unsupported":
        return column
    if kind == "all-missing":
        column = _bounded(column, raw, seen, overrides)
        fill = float(column.constrain(np.zeros(1))[0]) if raw.storage == "number" else None
        return replace(column, fill_code=fill)
    if kind in LEVELLED:
        column = replace(column, levels=_levels(raw, tally.distinct, overrides, kind))
        if len(tally.distinct) == 1:
            column = replace(column, fill_code=float(column.encode(replace(raw, values=tally.distinct))[0]))
    elif not column.modelled:  # of a column that no model sees, only what fills it is kept
        value = np.clip(tally.distinct[[tally.counts.argmax()]], *dtype_bounds(raw.storage, raw.dtype))
        most_frequent = replace(raw, values=value, declared=False)
        column = replace(column, levels=_levels(most_frequent, most_frequent.values, {}, kind), fill_code=0.0)
    return _bounded(column, raw, seen, overrides)


def _choose_kind(
    raw: RawColumn, seen: Floats, tally: Tally, overrides: dict[str, Any], *, named: bool
) -> tuple[Kind, str]:
    kind, reason = _infer_kind(raw, seen, tally, named=named)
    declared = "levels" in overrides and (
        kind not in LEVELLED or (kind == "binary" and len(overrides["levels"]) > 2)
    )
    wanted = overrides.get("kind", "categorical" if declared else kind)
    if kind == "binary" and raw.storage == "number" and "kind" not in overrides and _limits(overrides):
        wanted, reason = _infer_number_kind(raw, seen, tally.distinct, named=named)
        return wanted, reason  # a bound given by the user implies a numeric column
    if wanted == kind or kind == "all-missing":
        return kind, reason
    time = {"time": "datetime", "duration": "duration"}.get(raw.storage)
    if wanted == "all-missing":
        raise SchemaError(f"Column {raw.name!r} is not all-missing: {len(seen)} of its cells have a value.")
    if (
        wanted in ("datetime", "duration", "unsupported")
        or kind == "unsupported"
        or (time is not None and wanted in NUMERIC)
    ):
        instead = f"its kind can only be {time} or one with levels" if time else "convert it first"
        raise SchemaError(f"Column {raw.name!r} of dtype {raw.dtype} cannot be {wanted}; {instead}.")
    check_kind(raw, wanted, overrides)
    return wanted, "Set by the user."


def _infer_kind(raw: RawColumn, seen: Floats, tally: Tally, *, named: bool) -> tuple[Kind, str]:
    distinct, counts = tally
    if len(distinct) == 0:
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
    if len(distinct) == 2 and (raw.storage != "number" or _is_code(distinct, len(seen))):
        return "binary", "Two distinct values."
    if raw.storage == "label" and raw.labels:
        several = f"{len(distinct)} distinct values in {len(seen)} cells."
        if (counts == 1).sum() > len(counts) / 2 and _are_sentences(raw, distinct):
            return "text", f"Sentences with {several}"
        if _mostly_distinct(seen, distinct) or ALL_DISTINCT_ROWS <= len(distinct) == len(seen):
            return "identifier", f"Text with {several}"
        return "categorical", f"Text with {len(distinct)} distinct values."
    return _infer_number_kind(raw, seen, distinct, named=named)


def _is_code(distinct: Floats, n_seen: int) -> bool:
    """Returns whether two values of a short table are codes, not measurements."""
    return distinct.tolist() == [0.0, 1.0] or n_seen >= BINARY_ROWS


def _are_sentences(raw: RawColumn, distinct: Floats) -> bool:
    """Returns whether most texts are as long as sentences, judged by the first of them."""
    texts = _first_texts(raw, distinct)
    n_words = [sum(any(map(str.isalpha, word)) for word in text.split()) for text in texts]
    return bool(np.median(n_words) >= SENTENCE_WORDS)


def _find_format(raw: RawColumn, distinct: Floats) -> TextFormat | None:
    """Returns what the texts of a column are if they stand for quantities, judged by the first of them."""
    return find_text_format(_first_texts(raw, distinct)) if raw.storage == "label" else None


def _first_texts(raw: RawColumn, distinct: Floats) -> list[str]:
    return [str(raw.labels[int(i)]) for i in distinct[:TEXTS_READ]]


def _mostly_distinct(seen: Floats, distinct: Floats) -> bool:
    return len(seen) >= IDENTIFIER_ROWS and len(distinct) > IDENTIFIER_SHARE * len(seen)


def _infer_number_kind(raw: RawColumn, seen: Floats, distinct: Floats, *, named: bool) -> tuple[Kind, str]:
    whole = _is_whole(raw, distinct)
    if named and whole and len(seen) >= IDENTIFIER_ROWS and len(distinct) == len(seen):
        if IDENTIFIER_NAME.search(raw.name) or CAMEL_IDENTIFIER.search(raw.name):
            return "identifier", "Whole numbers, all different, with the name of an identifier."
        if distinct[0] in (0, 1) and np.all(np.diff(seen) == 1):
            return "identifier", "Whole numbers that count the rows."
    if named and whole and _mostly_distinct(seen, distinct) and NUMBER_NAME.search(raw.name):
        return (
            "identifier",
            "Whole numbers, mostly different, with a name as of telephone numbers.",
        )
    if named and whole and distinct[0] >= 0 and CODE_NAME.search(raw.name):
        kind: Kind = "identifier" if _mostly_distinct(seen, distinct) else "categorical"
        return kind, "Whole numbers with the name of a code."
    if whole and distinct[0] >= 0:
        return "count", "Whole numbers, none negative."
    if distinct[0] > 0:
        return "positive", "Numbers, all positive."
    return "continuous", "Whole numbers." if whole else "Numbers."


def _is_whole(raw: RawColumn, values: Floats) -> bool:
    if raw.whole:
        return True
    # beyond 2**53 every float is whole, which is not evidence
    return bool(np.all(values == np.round(values)) and np.abs(values).max(initial=0.0) <= EXACT_INTEGERS)


def _bounded(column: Column, raw: RawColumn, seen: Floats, overrides: dict[str, Any]) -> Column:
    """Adds the bounds of a column: those of its kind, then those of the user."""
    changes = _inferred_bounds(column, raw, seen)
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
        _check_bounds(bounded, raw, seen)
        if len(seen) and bounded.is_censored(seen).all():
            limits = " and ".join(f"{key} {overrides[key]}" for key in CENSORED if key in overrides)
            raise SchemaError(
                f"Column {column.name!r}: all values are beyond {limits}, so that no exact value is known."
            )
    return bounded


def _inferred_bounds(column: Column, raw: RawColumn, seen: Floats) -> dict[str, Any]:
    if column.levels is not None or not len(seen):
        return {}
    if column.storage in ("time", "duration"):
        steps = (step for step in TIME_STEPS if np.all(seen % step == 0))
        return {"step": DAY if raw.whole else next(steps, None)}
    changes: dict[str, Any] = {"integer": column.kind == "count" or _is_whole(raw, seen)}
    if column.storage == "boolean":
        return {"integer": True, "minimum": 0.0, "maximum": 1.0}
    if column.kind == "positive":
        least = float(seen.min())
        changes["minimum"] = least / 2 if least / 2 >= smallest_positive(raw.dtype) else least
    if column.kind == "count":
        changes["minimum"] = 0.0
    return changes | _natural_limits(column, seen)


def _differing(column: Column, raw: RawColumn, seen: Floats, overrides: dict[str, Any]) -> list[str]:
    """Returns the limits that the user set; none if all of them would have been inferred anyway."""
    inferred, named = _inferred_bounds(column, raw, seen), _limits(overrides)
    return named if any(getattr(column, name) != inferred.get(name) for name in named) else []


def _natural_limits(column: Column, seen: Floats) -> dict[str, Any]:
    """Returns the limits of a fraction or percentage whose values cover its range or reach its end often."""
    if len(seen) < NATURAL_ROWS or column.kind not in NUMERIC or seen.min() < 0:
        return {}
    for limit in NATURAL_LIMITS:
        if seen.max() > limit or (column.integer and limit == 1):
            continue
        fills = seen.max() - seen.min() >= 0.8 * limit and seen.max() >= 0.95 * limit
        if (fills and np.mean(seen >= 0.9 * limit) >= CROWDED) or np.mean(seen == limit) >= CROWDED:
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


def _check_bounds(column: Column, raw: RawColumn, seen: Floats) -> None:
    """Raises an error if a bound excludes all observed values: mostly it is in other units."""
    if not len(seen):
        return
    least, greatest = float(seen.min()), float(seen.max())
    if column.minimum is not None and column.minimum > greatest:
        excludes = f"minimum {_shown(column.minimum, raw)} is above all observed values, of which the largest"
        raise SchemaError(f"Column {column.name!r}: {excludes} is {_shown(greatest, raw)}.")
    if column.maximum is not None and column.maximum < least:
        excludes = (
            f"maximum {_shown(column.maximum, raw)} is below all observed values, of which the smallest"
        )
        raise SchemaError(f"Column {column.name!r}: {excludes} is {_shown(least, raw)}.")


def _levels(raw: RawColumn, used: Floats, overrides: dict[str, Any], kind: Kind) -> tuple[Any, ...]:
    if raw.storage == "label" and raw.labels:
        present = tuple(plain(raw.labels[int(i)]) for i in used)
        found = tuple(plain(label) for label in raw.labels) if raw.declared else present
    elif raw.storage == "boolean":
        present = found = tuple(bool(value) for value in used)
    else:
        present = found = tuple(plain(value) for value in used)
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
