"""Columns whose missing cells are left empty, because no imputed value would be sensible."""

from collections.abc import Sequence

from halfseen.data.columns import LEVELLED, Cause, Column
from halfseen.files.text_formats import ADVICE, TextFormat

SEPARATE = 5  # up to this number, columns with the same cause are announced separately
NAMED = 3  # otherwise, this number of columns is named

_HAVE: dict[Cause, str] = {
    "empty": "have no observed value",
    "single": "have one observed value each",
    "identifier": "look like identifiers",
    "text": "look like free text",
    "unsupported": "hold values that no model can see",
    "unreliable": "are filled too unreliably, judged by hidden known values",
}
_HAS: dict[Cause, str] = {
    "empty": "has no observed value",
    "identifier": "looks like an identifier",
    "text": "looks like free text",
    "asked": "is not imputed, as the schema requires",
}


def find_cause(column: Column, n_distinct: int, *, named: bool) -> Cause | None:
    """Returns why the missing cells of a column are left empty, None if they are imputed.

    Parameters
    ----------
    column : Column
        Its kind, and whether the user wants it to be imputed.
    n_distinct : int
        How many distinct values were observed.
    named : bool
        Whether the table is a data frame; columns of numeric arrays are imputed unless the user forbids it.
    """
    cause = _inherent_cause(column, n_distinct)
    if cause is not None and column.fill_code is None:
        return cause  # there is nothing to fill it with
    if column.fill is not None:
        return None if column.fill else "asked"
    return cause if named else None


def _inherent_cause(column: Column, n_distinct: int) -> Cause | None:
    if column.kind == "all-missing":
        return "empty"
    if column.kind in ("identifier", "text", "unsupported"):
        return column.kind
    levelled = column.kind in LEVELLED or column.storage in ("label", "boolean", "time")
    return "single" if levelled and column.levels is not None and n_distinct == 1 else None


def explain_left(column: Column) -> str:
    """Returns why the missing cells of a column are left empty, as the predicate of a sentence."""
    assert column.left is not None
    return _has(column, column.left)


def _has(column: Column, cause: Cause) -> str:
    if cause == "single":
        assert column.levels is not None
        declared = ", ".join(column.show(level) for level in column.levels[:6])
        of = f", of the levels {declared}" if len(column.levels) > 1 else ""
        return f"has one observed value, {column.show(column.levels[int(column.fill_code)])}{of}"
    if cause == "unsupported":
        return f"has the type {column.dtype}, which is not supported"
    if cause == "unreliable":
        return column.evidence
    if cause == "identifier" and column.n_groups is not None:
        return f"is a repeated identifier, of {column.n_groups:,} groups of rows"
    if column.format is not None:
        assert column.levels is not None
        example = column.show(column.levels[0])
        return f"contains {column.format} such as {example}, which are not read as numbers or dates"
    return _HAS[cause]


def announcements(columns: Sequence[Column], *, named: bool) -> list[str]:
    """Returns notes for the user: one sentence for each column, or for several columns with the same note.

    The notes are about columns with missing cells that are left empty or imputed without a model. There is no
    note if the user requested this, or if a column of a numeric array has a single value.
    """
    groups: dict[tuple[Cause, str, TextFormat | None], list[Column]] = {}
    for column in columns:
        if column.derived is not None:
            continue
        cause, how = _fate(column)
        if cause in (None, "asked") or not column.n_missing or (cause == "single" and not named):
            continue
        groups.setdefault((cause, how, column.format), []).append(column)
    sentences = []
    for (cause, how, form), group in groups.items():
        if len(group) > SEPARATE:
            listed = shortened([column.name for column in group])
            cells = f"their missing cells are {how}{_hint(group)}"
            what = _HAVE[cause] if form is None else f"contain {form}, which are not read as numbers or dates"
            sentences.append(f"{len(group):,} columns {what}; {cells}: {listed}.")
        else:
            sentences += [_announce(column, cause, how) for column in group]
    return sentences


def _announce(column: Column, cause: Cause, how: str) -> str:
    one = column.n_missing == 1
    cells = f"its {column.n_missing:,} missing {'cell is' if one else 'cells are'} {how}"
    return f"Column {column.name!r} {_has(column, cause)}; {cells}{_hint([column])}."


def _hint(columns: Sequence[Column]) -> str:
    if columns[0].format is not None and columns[0].left is not None:
        return f' (to impute them, {ADVICE[columns[0].format]}, or use "kind": "categorical" in the schema)'
    if columns[0].left == "unreliable":
        return ' (--fill-all, or "fill": true in the schema, imputes them)'
    fillable = all(column.left is not None and column.fill_code is not None for column in columns)
    return ' ("fill": true in the schema imputes them)' if fillable else ""


def shortened(names: Sequence[str]) -> str:
    """Returns the first names of a list, with the number of the others."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _fate(column: Column) -> tuple[Cause | None, str]:
    """Returns the cause of the note on a column, if any, and how its missing cells are treated."""
    if column.left is not None:
        return column.left, "left empty"
    if column.kind == "all-missing":
        return "empty", f"imputed with {column.fill_code:g}"
    if column.kind == "constant":
        return "single", "imputed with it"
    if column.kind in ("identifier", "text"):
        return column.kind, "imputed with the most frequent value"
    return None, ""
