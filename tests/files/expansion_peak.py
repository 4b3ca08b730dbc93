"""Prints how much memory is taken while files of several kinds are read, each in its own process (Linux)."""

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from halfseen.errors import TableError
from halfseen.files.tables import read_table

MIB = 1 << 20


def lists(values):
    """Return a column with the values in three lists."""
    return pa.ListArray.from_arrays(pa.array(np.linspace(0, len(values), 4).astype(np.int32)), values)


def long_texts(n_texts):
    indices = pa.array(np.zeros(n_texts), pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["x" * MIB]))


PARQUET = {
    "numbers": lambda size: pa.array(np.zeros(size // 8)),
    "nulls": lambda size: pa.nulls(size, pa.bool_()),
    "nulls in lists": lambda size: lists(pa.nulls(size, pa.bool_())),
    "few nulls in lists": lambda size: lists(pa.nulls(size // 28, pa.bool_())),
    "small numbers in lists": lambda size: lists(pa.array(np.zeros(size // 4, np.int8))),
    "long texts": lambda size: long_texts(size // MIB),
    "long texts in lists": lambda size: lists(long_texts(size // MIB)),
}
PREFIXES = {
    "prefixes": lambda size: pa.array(["x" * MIB + str(row) for row in range(size // MIB)]),
    "prefixes in lists": lambda size: lists(pa.array(["x" * MIB + str(row) for row in range(size // MIB)])),
}
GZIP = {
    "cells": lambda size: b"a,b\n" + b"0,0\n" * (size // 36),
    "one cell": lambda size: b"a,b\n" + b"x" * size,
    "one cell of many lines": lambda size: b'a,b\n1,"' + b"xxxxxxx\n" * (size // 8) + b'"\n',
    "keys": lambda size: b"".join(b'{"k%d": 1}\n' % row for row in range(int((size / 16) ** 0.5))),
}


def write(kind, size, folder):
    """Write a file whose content takes about `size` bytes by the smallest estimate; return its path."""
    if kind in GZIP:
        path = folder / ("t.jsonl.gz" if kind == "keys" else "t.csv.gz")
        path.write_bytes(gzip.compress(GZIP[kind](size), 1))
    elif kind == "Arrow":
        path = folder / "t.feather"
        pa.feather.write_feather(pa.table({"x": np.zeros(size // 8)}), path, compression="zstd")
    else:
        path = folder / "t.parquet"
        prefixes = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
        column = (PARQUET.get(kind) or PREFIXES[kind])(size)
        options = prefixes if kind in PREFIXES else {}
        pa.parquet.write_table(
            pa.table({"s": column}), path, compression="zstd", store_schema=False, **options
        )
    return path


def peak():
    """Return the largest memory of this process since it was last reset, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(kind, size, limit, folder):
    """Print whether a file is read, and how much more memory than before was taken meanwhile."""
    path = write(kind, size, folder)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    try:
        read_table(path, backend="pyarrow", max_expansion=limit)
        answer = "read"
    except TableError as error:
        answer = "refused" if "--max-expansion" in str(error) else str(error)
    print(kind, answer, peak() - before, sep="\t", flush=True)
    os._exit(0)


if __name__ == "__main__":
    limit = int(sys.argv[1])
    # The first file is twice the limit; the second is below it, where all of its content is decoded.
    for share in (2, 0.9):
        for one in (*PARQUET, *PREFIXES, *GZIP, "Arrow"):
            measure(one, int(share * limit), limit, Path(sys.argv[2]))
