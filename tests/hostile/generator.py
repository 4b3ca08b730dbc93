"""Seeded hostile tables: types, extremes, names, encodings, formats and shapes that are met in the wild."""

import csv
import datetime
import gzip
import io
import random
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

MARKUP = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>')
NAMES = (
    "a", "b", "age", "id", "draw", "x0", "", " ", "two\nlines", "tab\there", "n" * 300, "größe", "年齢",
    "\u05d0\u05d1", "emoji \U0001f600", 'quo"te', "apo'strophe", "com,ma", "semi;colon", "pi|pe", "=cmd()",
    "-2+3", "@SUM(A1)", "a.b", "a[0]", "{{ 7 * 7 }}", "%s %d", "../../etc/passwd", "NaN", "null", "\ufeffbom",
    "\u202egnp", *MARKUP,
)  # fmt: skip
TEXTS = (
    "", " ", "a", "b", "yes", "no", "=cmd()", "+1", "n/a", "\u0001\u0002", "\u001b[31mred", "\U0001f600",
    "\u05d0\u05d1\u05d2", "\u202eabc", "line\nbreak", 'quo"te', "x" * 500, "e\u0301", "{{ 7 }}", "1e5x",
    "0x1F", *MARKUP,
)  # fmt: skip
EXTREMES = (1e308, -1e308, 1.7e308, 5e-324, -5e-324, 1e-310, -0.0, 0.0, 2.0**53 + 2, 1.0, -1.0, 0.1, 1e15)
INTEGERS = {f"{sign}int{bits}": (sign == "u", bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
CONTROLS = dict.fromkeys((1, 2, 27))
FORMATS = ("csv", "csv;", "csv|", "tsv", "csv.gz", "parquet", "feather")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "latin-1")
SHAPES = ((1, 1), (1, 4), (2, 2), (3, 12), (8, 3), (12, 1), (12, 4), (30, 5), (40, 3))
LARGER_SHAPES = ((60, 3), (90, 8), (170, 4), (200, 6), (520, 5))
METHODS = ("gaussian", "mean", "mixture"), (77, 20, 3)


@dataclass(frozen=True)
class HostileTable:
    """A table, the file that holds it, and how the command is called on it."""

    seed: int
    table: pa.Table
    suffix: str
    content: bytes
    options: tuple[str, ...] = ()
    cells: list[list[str]] = field(default_factory=list)  # of a text file, with the header

    def __str__(self):
        return f"seed {self.seed} ({self.suffix})"


def make_table(seed, *, by_default=False):
    """Returns the hostile table of a seed; larger ones, for the default method, which compares others."""
    choose = random.Random(seed)
    n_rows, n_columns = choose.choice(LARGER_SHAPES if by_default else SHAPES)
    if choose.random() < 0.03:
        n_rows = 0
    makers = [choose.choice(MAKERS) for _ in range(n_columns)]
    columns = [_holed(make(choose, n_rows), choose) for make in makers]
    table = pa.Table.from_arrays(columns, names=_names(choose, n_columns))
    kind = choose.choice(FORMATS)
    options = ["--method", choose.choices(*METHODS)[0]] if not by_default else ["--max-seconds", "2"]
    options += ["--seed", str(choose.randrange(5))]
    options += ["--draws", "2"] if choose.random() < 0.5 else []
    if kind in ("parquet", "feather"):
        return HostileTable(seed, table, kind, _packed(table, kind), tuple(options))
    suffix = kind.rstrip(";|")
    cells = _as_text(table)
    return HostileTable(seed, table, suffix, _written(cells, kind, choose), tuple(options), cells)


def _names(choose, n_columns):
    names = choose.sample(NAMES, n_columns)
    if n_columns > 1 and choose.random() < 0.04:
        names[1] = names[0]
    return names


def _holed(column, choose):
    rate = choose.choice((0.0, 0.0, 0.2, 0.2, 0.5, 0.9, 1.0))
    gone = np.array([choose.random() < rate for _ in range(len(column))], dtype=bool)
    taken = pa.array(np.arange(len(column)), mask=gone)
    return column.take(taken) if not pa.types.is_string_view(column.type) else column


def _packed(table, kind):
    sink = io.BytesIO()
    if kind == "parquet":
        pa.parquet.write_table(table, sink)
    else:
        pa.feather.write_feather(table, sink)
    return sink.getvalue()


def _as_text(table):
    """Returns the cells as text, without control characters: short files that hold some count as binary."""
    columns = [
        ["" if cell is None else str(cell).translate(CONTROLS) for cell in column.to_pylist()]
        for column in table.columns
    ]
    return [list(table.column_names), *map(list, zip(*columns, strict=True))]


def _written(cells, kind, choose):
    delimiter = {"csv;": ";", "csv|": "|", "tsv": "\t"}.get(kind, ",")
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=choose.choice(("\n", "\r\n"))).writerows(cells)
    encoding = choose.choice(ENCODINGS)
    content = text.getvalue().encode(encoding, errors="replace")
    return gzip.compress(content) if kind == "csv.gz" else content


def _integers(choose, n_rows):
    name = choose.choice(sorted(INTEGERS))
    unsigned, bits = INTEGERS[name]
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    near = choose.choice(((low, high), (high - 5, high), (low, low + 5), (0, 3)))
    return pa.array([choose.randint(*near) for _ in range(n_rows)], getattr(pa, name)())


def _floats(choose, n_rows):
    some = choose.sample(EXTREMES, choose.randint(1, 4))
    return pa.array([choose.choice(some) for _ in range(n_rows)], pa.float64())


def _measurements(choose, n_rows):
    scale = choose.choice((1e-300, 1e-8, 1.0, 1e9, 1e200))
    dtype = choose.choice((pa.float64(), pa.float64(), pa.float32()))
    scale = scale if dtype == pa.float64() else min(max(scale, 1e-8), 1e9)
    return pa.array([scale * choose.gauss(choose.choice((0, 5)), 1) for _ in range(n_rows)], dtype)


def _halves(choose, n_rows):
    return pa.array(np.array([choose.uniform(-65_000, 65_000) for _ in range(n_rows)], dtype=np.float16))


def _infinite(choose, n_rows):
    some = (1.0, 2.0, float("nan"), *([float("inf")] if choose.random() < 0.2 else []))
    return pa.array([choose.choice(some) for _ in range(n_rows)], pa.float64())


def _booleans(choose, n_rows):
    return pa.array([choose.random() < 0.5 for _ in range(n_rows)], pa.bool_())


def _texts(choose, n_rows):
    some = choose.sample(TEXTS, choose.randint(1, 6))
    dtype = choose.choice((pa.string(), pa.string(), pa.large_string(), pa.string_view()))
    return pa.array([choose.choice(some) for _ in range(n_rows)], dtype)


def _categories(choose, n_rows):
    some = choose.sample([text for text in TEXTS if text], choose.randint(1, 6))
    dtype = pa.dictionary(choose.choice((pa.int8(), pa.int32())), pa.string())
    return pa.array([choose.choice(some) for _ in range(n_rows)], pa.string()).cast(dtype)


def _days(choose, n_rows):
    first, last = choose.choice(((1, 3), (1600, 1700), (1999, 2001), (9990, 9999), (1, 9999)))  # years
    low, high = datetime.date(first, 1, 1).toordinal(), datetime.date(last, 12, 31).toordinal()
    days = [datetime.date.fromordinal(choose.randint(low, high)) for _ in range(n_rows)]
    return pa.array(days, choose.choice((pa.date32(), pa.date64())))


def _moments(choose, n_rows):
    unit = choose.choice(("s", "ms", "us", "ns"))
    zone = choose.choice((None, None, "UTC", "America/New_York"))
    reach = 2**62 if unit == "ns" else 10**11 * {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    low = choose.choice((-reach // 2, 0, reach // 2))
    stored = [low + choose.randint(0, reach // 2) for _ in range(n_rows)]
    return pa.array(stored, pa.int64()).view(pa.timestamp(unit, zone))


def _spans(choose, n_rows):
    unit = choose.choice(("s", "ms", "us", "ns"))
    longest = {"s": 8 * 10**13, "ms": 8 * 10**16}.get(unit, 2**62)  # that Python can hold
    reach = choose.choice((1, 10**3, 10**9, longest))
    return pa.array(_wholes(choose, n_rows, reach), pa.int64()).view(pa.duration(unit))


def _decimals(choose, n_rows):
    precision, scale = choose.choice(((5, 2), (38, 18), (38, 0), (76, 40), (18, 18)))
    reach = 10 ** min(precision, 25) - 1
    cells = [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in _wholes(choose, n_rows, reach)]
    return pa.array(cells, pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(76, 40))


def _wholes(choose, n_rows, reach):
    return [choose.randint(-reach, reach) for _ in range(n_rows)]


def _nested(choose, n_rows):
    if choose.random() < 0.5:
        return pa.array(
            [[1, 2] if choose.random() < 0.7 else None for _ in range(n_rows)], pa.list_(pa.int8())
        )
    return pa.array([{"a": choose.randint(0, 3)} for _ in range(n_rows)], pa.struct([("a", pa.int64())]))


def _bytes(choose, n_rows):
    dtype = choose.choice((pa.binary(), pa.large_binary(), pa.binary(2)))
    return pa.array([choose.choice((b"ab", b"\x00\xff")) for _ in range(n_rows)], dtype)


def _times(choose, n_rows):
    return pa.array([choose.randint(0, 86_399) for _ in range(n_rows)], pa.time32("s"))


def _nothing(choose, n_rows):
    return pa.nulls(n_rows)


def _constant(choose, n_rows):
    return pa.array([choose.choice(EXTREMES)] * n_rows, pa.float64())


MAKERS = (
    *(_measurements, _texts, _integers, _floats, _categories) * 3,
    *(_days, _moments, _booleans, _decimals) * 2,
    _halves, _infinite, _spans, _nested, _bytes, _times, _nothing, _constant,
)  # fmt: skip
