"""JSON lines: one object per line, the columns of a table by their keys.

Each value is kept as it is written in the file, and written again so. Only null and absent keys are missing.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfseen.errors import TableError
from halfseen.files.csv_tables import decode_cells, find_filled, splice
from halfseen.files.distinct import few_texts
from halfseen.files.expansion import Expansion, check_cells
from halfseen.files.formats import Style, format_cells
from halfseen.files.missing_codes import is_any_of, is_number, say_counts
from halfseen.files.outcomes import UNMODELLED
from halfseen.files.recognition import read_columns
from halfseen.files.rules import Outcome, Rules
from halfseen.files.table_file import CELLS_AT_ONCE, TableFile, TextBlock
from halfseen.words import Note

_BARE = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_SPACE = r"[ \t\n\r]*"
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PLAIN_PAIR = re.compile(
    rf'"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE}("[^"\\\x00-\x1f]*"|{_NUMBER}|true|false|null){_SPACE}([,}}]){_SPACE}'
)
_SPACES = re.compile(_SPACE)
_scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
_MISSING = ("null", "NaN")  # what Python writes for a number that is missing
_COMMA = ", "
_SHOWN = 5
_STRING = pa.large_string()


@dataclass(frozen=True)
class JsonColumns:
    """The cells of a file of JSON lines."""

    literals: pa.Table  # the values as they are written in JSON; null where the key is absent
    # Strings without their quotes, other values as they are written; null where a value is missing.
    cells: pa.Table
    lines: np.ndarray  # the line of each record, from 1
    nested: dict[str, int]  # the columns that contain lists or objects, with the first line that does


def parse_json_lines(data: bytes, bound: Expansion) -> JsonColumns:
    """Return the cells of a file of JSON lines."""
    source = bound.source
    found: dict[str, tuple[list[int], list[str]]] = {}
    lines: list[int] = []
    for number, line in _split_lines(data, source):
        row = len(lines)
        for key, literal in _pairs(line, number, source):
            rows, literals = found.setdefault(key, ([], []))
            if rows and rows[-1] == row:
                raise TableError(f"{source}: line {number} has the key {key!r} twice")
            rows.append(row)
            literals.append(literal)
        lines.append(number)
    if not found:
        raise TableError(f"{source}: no line has a key, so there are no columns")
    _check_keys(found, lines, source)
    check_cells(len(lines), len(found), bound)
    columns = {key: _spread(*held, len(lines)) for key, held in found.items()}
    places = np.array(lines)
    cells = {key: _plain(key, column, places, source) for key, column in columns.items()}
    nested = {}
    for key, column in columns.items():
        if (row := _find_nested(column)) >= 0:
            nested[key] = lines[row]
    return JsonColumns(pa.table(columns), pa.table(cells), places, nested)


def _split_lines(data: bytes, source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise TableError(f"{source}: line {number} is not UTF-8, which JSON lines must be") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if line and not line.isspace():
            yield number, line


def _pairs(line: str, number: int, source: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of the object in a line, each with its value as it is written."""
    at = _skip_space(line, 0)
    if line[at : at + 1] != "{":
        raise TableError(f"{source}: line {number} is not an object with keys: {line[:40]!r}")
    at, end = _skip_space(line, at + 1), ","
    if line[at : at + 1] == "}":
        at, end = _skip_space(line, at + 1), "}"
    try:
        while end == ",":
            if plain := _PLAIN_PAIR.match(line, at):
                key, literal, end = plain.groups()
                at = plain.end()
            else:
                key, literal, end, at = _scan_pair(line, at)
            yield key, literal
        if at < len(line):
            raise ValueError("only blanks may follow the object")
    except RecursionError:
        raise TableError(f"{source}: line {number} is nested too deeply to be read") from None
    except (ValueError, IndexError):
        raise TableError(f"{source}: line {number} is not JSON: {line[:40]!r}") from None


def _scan_pair(line: str, at: int) -> tuple[str, str, str, int]:
    """Return a key, its value as it is written, the comma or brace after it, and where that ends."""
    if line[at] != '"':
        raise ValueError("a key must be a string")
    key, at = _scan(line, at)
    at = _skip_space(line, at)
    if line[at] != ":":
        raise ValueError("a key must be followed by a colon")
    start = _skip_space(line, at + 1)
    _, stop = _scan(line, start)
    at = _skip_space(line, stop)
    if line[at] not in ",}":
        raise ValueError("a value must be followed by a comma or a brace")
    return key, line[start:stop], line[at], _skip_space(line, at + 1)


def _skip_space(line: str, at: int) -> int:
    found = _SPACES.match(line, at)
    assert found is not None  # it matches nothing, too
    return found.end()


def _check_keys(found: dict[str, tuple[list[int], list[str]]], lines: Sequence[int], source: str) -> None:
    """Refuse keys that are no text."""
    for key, (rows, _) in found.items():
        if _has_surrogate(key):
            raise TableError(
                f"{source}: line {lines[rows[0]]} has the key {key!r}, which contains half of a surrogate "
                "pair and so is not a text"
            )


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _spread(rows: Sequence[int], literals: Sequence[str], n_rows: int) -> pa.Array:
    """Return a column with values in some rows and null in the others."""
    values = pa.array(literals, _STRING)
    if len(rows) == n_rows:
        return values
    places = np.full(n_rows, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _plain(key: str, literals: pa.Array, lines: np.ndarray, source: str) -> pa.Array:
    """Return strings without quotes and escapes, other values as they are, null where missing."""
    texts = few_texts(literals)
    if texts is not None and not any(text is not None and "\\" in text for text in texts):
        return pa.array([_unquoted(text) for text in texts], _STRING)
    quoted = pc.starts_with(literals, '"')
    texts = pc.if_else(quoted, pc.utf8_slice_codeunits(literals, 1, -1), literals)
    escaped = pc.fill_null(pc.and_(quoted, pc.match_substring(literals, "\\")), False)
    if escaped.true_count:
        decoded = [json.loads(literal) for literal in literals.filter(escaped).to_pylist()]
        bad = next((place for place, text in enumerate(decoded) if _has_surrogate(text)), None)
        if bad is not None:
            line = lines[escaped.to_numpy(zero_copy_only=False)][bad]
            raise TableError(
                f"{source}: line {line}, key {key!r}: the text contains half of a surrogate pair "
                f"({decoded[bad][:20]!r}), which is not a character"
            )
        texts = pc.replace_with_mask(texts, escaped, pa.array(decoded, _STRING))
    missing = pc.is_in(literals, value_set=pa.array(_MISSING, _STRING))
    return pc.if_else(missing, pa.scalar(None, _STRING), texts)


def _unquoted(literal: str | None) -> str | None:
    """Return a value without quotes, if it has any; it contains no escape."""
    if literal is None or literal in _MISSING:
        return None
    return literal[1:-1] if literal.startswith('"') else literal


def _find_nested(literals: pa.Array) -> int:
    """Return the first row with a list or an object, -1 if there is none."""
    if (texts := few_texts(literals)) is not None:
        return next((row for row, text in enumerate(texts) if text is not None and text[0] in "[{"), -1)
    found = pc.index(pc.fill_null(pc.match_substring_regex(literals, r"^[\[{]"), False), True)
    return int(found.as_py())


# ------------------------------------------------------------------------------------------ outcomes


def read_json_columns(parsed: JsonColumns, rules: Rules) -> dict[str, Outcome]:
    """Return the result for every column, of which only null, absent keys and ``--null`` texts are missing.

    Strings are recognised as the cells of a text file are. Columns with lists or objects are not used by
    models and not imputed.
    """
    flat = parsed.cells.drop_columns(list(parsed.nested))
    read = read_columns(flat, rules, ",", lambda record: int(parsed.lines[record]))
    outcomes = {}
    for name in parsed.cells.column_names:
        cells = parsed.cells[name].combine_chunks()
        if name in read:
            outcomes[name] = _keep_strings(read[name], cells, name, rules)
        else:
            note = Note(
                f"column {name!r} contains lists or objects, the first in line {parsed.nested[name]}: kept "
                "as they are, not used by the model and not imputed",
                "harmful",
            )
            outcomes[name] = Outcome(cells, Style("text"), settings=dict(UNMODELLED), notes=(note,))
    return outcomes


def _keep_strings(outcome: Outcome, cells: pa.Array, name: str, rules: Rules) -> Outcome:
    """Return the outcome of a column in which texts that are not declared as missing stay as they are.

    No model sees texts that the reader takes for missing, such as ``""`` and ``"NA"``.
    """
    if outcome.typed.null_count == cells.null_count:  # no text is taken for missing
        return replace(outcome, words=()) if outcome.words else outcome
    hidden = pc.and_(outcome.typed.is_null(), cells.is_valid())
    if outcome.kept is not None:
        hidden = pc.and_not(hidden, outcome.kept)
    texts = cells.filter(hidden)
    counts = {one["values"]: one["counts"] for one in pc.value_counts(texts).to_pylist()}
    asked = {*rules.declared, *rules.of(name).nulls}
    numbers = {float(text) for text in asked if is_number(text)}
    meant = set(texts.filter(is_any_of(pc.utf8_trim_whitespace(texts), sorted(asked))).to_pylist())
    held = {
        text: count
        for text, count in counts.items()
        if text not in meant and not (is_number(text.strip()) and float(text) in numbers)
    }
    outcome = replace(outcome, words=())
    if not held:
        return outcome
    is_held = pc.is_in(cells, value_set=pa.array(list(held), _STRING))
    kept = pc.and_(hidden, is_held)
    shown = sorted(held.items(), key=lambda one: -one[1])[:_SHOWN]
    note = Note(
        f"column {name!r}: {say_counts([(repr(text), count) for text, count in shown])}: kept as written and "
        "not used by the model, as only null and absent keys are missing in JSON lines; --null TEXT makes "
        "a text missing"
    )
    kept = kept if outcome.kept is None else pc.or_(kept, outcome.kept)
    return replace(outcome, kept=kept, notes=(*outcome.notes, note))


# ------------------------------------------------------------------------------------------ writing


@dataclass(frozen=True)
class _Spelling:
    """How the values of a column of JSON lines are written."""

    quoted: bool  # whether most of its values are strings
    bare: pa.Array | None  # of a column of text, the values that are mostly written without quotes


def write_json_lines(tables: Iterable[pa.Table], file: BinaryIO, like: TableFile, draw: str | None) -> None:
    """Write completed tables as JSON lines, one below the other; `draw` names a first key that counts them.

    The values of JSON lines are written as they were read. Those of other files are numbers and booleans
    where they are plain, and strings elsewhere.
    """
    spellings: dict[str, _Spelling] = {}
    if like.literals is not None:
        missing = [name for name in like.literals.column_names if like.table[name].null_count]
        spellings = {name: _find_spelling(like.literals[name], like.styles[name]) for name in missing}
    for number, table in enumerate(tables, start=1):
        for rows, texts, literals in _blocks(like, table):
            columns = [] if draw is None else [_member(draw, pa.repeat(str(number), rows.stop - rows.start))]
            for name in table.column_names:
                filled = table[name][rows]
                if name in literals:
                    cells = _complete(literals[name], filled, like, name, rows, spellings.get(name))
                else:
                    cells = pc.fill_null(_spell(texts, filled, like, name, rows), "null")
                columns.append(_member(name, cells))
            bodies = pc.utf8_slice_codeunits(_join(*columns), 0, -len(_COMMA))
            lines = _join(_as_scalar("{"), bodies, _as_scalar("}\n"))
            file.write("".join(lines.to_pylist()).encode())


def _blocks(
    like: TableFile, table: pa.Table
) -> Iterator[tuple[slice, TextBlock | None, dict[str, pa.Array]]]:
    """Yield consecutive rows of a table, with their texts and JSON as far as the file has them."""
    if like.text is None:
        step = max(1, CELLS_AT_ONCE // max(1, table.num_columns))
        for start in range(0, table.num_rows, step):
            yield slice(start, min(start + step, table.num_rows)), None, {}
        return
    literals = repeat(None) if like.literals is None else like.literals.blocks()
    for texts, block in zip(like.text.blocks(), literals, strict=False):
        yield texts.records, texts, {} if block is None else block.cells


def _member(key: str, values: pa.Array) -> pa.Array:
    """Return the members of objects with this key, each with a comma; empty where the value is null."""
    start = _as_scalar(f"{json.dumps(key, ensure_ascii=False)}: ")
    return pc.fill_null(_join(start, values.cast(_STRING), _as_scalar(_COMMA)), "")


@lru_cache(8)  # of which all but the keys are few
def _as_scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, _STRING)


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _as_scalar(""))


def _find_spelling(literals: pa.Array, style: Style) -> _Spelling:
    quoted = pc.fill_null(pc.starts_with(literals, '"'), False)
    n_quoted = quoted.true_count
    if n_quoted == 0 and style.kind != "text":
        return _Spelling(quoted=False, bare=None)
    others = literals.filter(pc.invert(quoted)).drop_null()
    others = others.filter(pc.invert(pc.is_in(others, value_set=pa.array(_MISSING, _STRING))))
    if style.kind != "text":
        return _Spelling(n_quoted > len(others), None)
    counts = pc.value_counts(others)
    values = counts.field("values")
    also = pc.value_counts(literals.filter(pc.is_in(literals, value_set=_quote(values))))
    twins = dict(zip(also.field("values").to_pylist(), also.field("counts").to_pylist(), strict=True))
    rivals = pa.array([twins.get(text, 0) for text in _quote(values).to_pylist()], pa.int64())
    return _Spelling(n_quoted > len(others), values.filter(pc.greater_equal(counts.field("counts"), rivals)))


def _complete(
    literals: pa.Array,
    filled: pa.ChunkedArray,
    like: TableFile,
    name: str,
    rows: slice,
    spelling: _Spelling | None,
) -> pa.Array:
    """Return the values of a column of JSON lines as they were, those that were missing filled."""
    kept = like.kept.get(name)
    empty = find_filled(like.table[name][rows], filled, None if kept is None else kept[rows])
    if spelling is None or not empty.true_count:
        return literals
    values = decode_cells(filled, empty)
    return pc.replace_with_mask(literals, empty, _fill(values, like.styles[name], spelling))


def _fill(values: pa.Array, style: Style, spelling: _Spelling) -> pa.Array:
    """Return the JSON of imputed values, strings or not as the other values of their column."""
    if style.kind == "text":
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return _encode(values)  # a column without any value
        texts = values.cast(_STRING)
        return pc.if_else(pc.is_in(texts, value_set=spelling.bare), texts, _quote(texts))
    if not spelling.quoted and style.number is None and style.date is None and not style.limits:
        return _encode(values)
    texts = format_cells(values, style)
    if spelling.quoted:
        return _quote(texts)
    return pc.if_else(pc.match_substring_regex(texts, f"^{_NUMBER}$"), texts, _quote(texts))


def _spell(
    texts: TextBlock | None, filled: pa.ChunkedArray, like: TableFile, name: str, rows: slice
) -> pa.Array:
    """Return the JSON of a column of another format: plain numbers and booleans as such, texts elsewhere."""
    style = like.styles.get(name)
    if texts is None or style is None:
        return _encode(filled.combine_chunks())
    bare = any(is_kind(filled.type) for is_kind in _BARE)
    if bare and style.number is None and not style.limits and not like.keeps_texts(name):
        return _encode(filled.combine_chunks())
    kept = like.kept.get(name)
    given = like.table[name][rows]
    cells = splice(texts.of_records(name), given, filled, style, None if kept is None else kept[rows])
    return _quote(pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells))


def _encode(values: pa.Array) -> pa.Array:
    """Return typed values as JSON; null where they are."""
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return values.cast(_STRING)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return _quote(values)
    if pa.types.is_temporal(values.type):
        return _quote(values.cast(_STRING))
    encoded = [
        None if value is None else json.dumps(value, ensure_ascii=False, default=str)
        for value in values.to_pylist()
    ]
    return pa.array(encoded, _STRING)


def _quote(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings."""
    texts = texts.cast(_STRING)
    quoted = _join(_as_scalar('"'), texts, _as_scalar('"'))
    special = pc.fill_null(pc.match_substring_regex(texts, r'["\\\x00-\x1f]'), False)
    if not special.true_count:
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, _STRING))
