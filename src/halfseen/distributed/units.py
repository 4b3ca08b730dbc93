"""Units of work: which rows are answered together, and the files that they are written to."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from halfseen.data.scan import Scan
from halfseen.errors import TableError

Layout = Literal["parts", "files"]

ROWS_IN_UNIT = 1 << 20
"""Rows in a unit of a table of few columns, as in a row group by the defaults of Arrow; a guess."""


@dataclass(frozen=True)
class Unit:
    """A run of rows that is answered as a whole and written to one file, or to one for each draw."""

    name: str  # the name of the file in the folder of the output
    # The rows.
    start: int
    stop: int


def rows_in_unit(block_rows: int) -> int:
    """Returns the number of rows in a unit: whole blocks, by the number of rows in a block only.

    Examples
    --------
    >>> rows_in_unit(65536), rows_in_unit(256)
    (1048576, 4096)
    """
    return min(ROWS_IN_UNIT, 16 * block_rows)


def plan_units(scan: Scan, layout: Layout, block_rows: int) -> list[Unit]:
    """Returns the units of a table.

    Parameters
    ----------
    scan : Scan
        The table.
    layout : {"parts", "files"}
        ``"parts"``: runs of blocks, named by their numbers, which do not depend on the files of the table.
        ``"files"``: one unit for each file, named as the file.
    block_rows : int
        The number of rows in a block.
    """
    if layout == "files":
        return _by_file(scan)
    if layout != "parts":
        raise ValueError(f"layout must be 'parts' or 'files', got {layout!r}.")
    size = rows_in_unit(block_rows)
    starts = range(0, max(scan.n_rows, 1), size)
    return [
        Unit(f"part-{number:05d}.parquet", start, min(start + size, scan.n_rows))
        for number, start in enumerate(starts)
    ]


def _by_file(scan: Scan) -> list[Unit]:
    units, start = [], 0
    for part, name in zip(scan.parts, _names(scan.files), strict=True):
        units.append(Unit(name, start, start + part.n_rows))
        start += part.n_rows
    return units


def _names(paths: Sequence[str]) -> list[str]:
    """Returns the names of the outputs of files, relative to the folder that contains all of them."""
    folder = os.path.commonpath([str(PurePosixPath(path).parent) for path in paths])
    names = [str(PurePosixPath(os.path.relpath(path, folder)).with_suffix(".parquet")) for path in paths]
    for place, name in enumerate(names):
        if name in names[:place]:
            first = paths[names.index(name)]
            raise TableError(
                f"{paths[place]}: its output {name} would be that of {first}; rename one of them"
            )
    return names
