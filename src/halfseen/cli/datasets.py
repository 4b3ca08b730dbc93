"""The steps of ``halfseen datasets``: list the public data sets, or show one."""

import os
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from halfseen.datasets.loaders import (
    VARIABLE,
    DataSet,
    DataSetError,
    describe_dataset,
    is_present,
    locate,
    names,
    verify,
)
from halfseen.errors import TableError
from halfseen.words import names_words

_WIDTH = 136  # of a listing that goes into a file


def show_datasets(name: str | None, data_home: str | None) -> None:
    """Print the list of data sets, or all that is known of one."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    try:
        shown: Any = _listing(data_home) if name is None else _page(describe_dataset(name), data_home)
    except DataSetError as error:
        raise TableError(str(error)) from error
    console.print(shown)
    if name is None:
        console.print(_where(data_home))


def _listing(data_home: str | None) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading, width in (("rows x columns", 22), ("target", 18)):
        table.add_column(heading, max_width=width, no_wrap=True, overflow="ellipsis")
    table.add_column("missing", justify="right", min_width=7)
    table.add_column("licence", max_width=36, no_wrap=True, overflow="ellipsis")
    table.add_column("present", min_width=7)
    for known in map(describe_dataset, names()):
        present = Text("yes", style="green") if is_present(known, data_home) else Text("no", style="dim")
        cells = (known.name, known.shape, _target(known), _missing(known), known.licence)
        table.add_row(*map(Text, cells), present)
    return table


def _page(known: DataSet, data_home: str | None) -> Table:
    """Returns all that is known of one set, its file checked if it is there."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", justify="right")
    table.add_column(overflow="fold")
    lines = {
        "name": known.name,
        "rows x columns": known.shape,
        "arrays": ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in known.arrays.items()),
        "target": ", ".join(known.target) or "none",
        "missing": f"{_missing(known)} cells" if known.missing is not None else "",
        "licence": known.licence,
        "taken from": known.source,
        "notes": known.note,
        "file": known.path,
        "sha256": known.sha256,
        "present": _state(known, data_home),
        "load it with": f"halfseen.datasets.load({known.name!r})",
    }
    for heading, text in lines.items():
        if text:
            table.add_row(heading, Text(text))
    return table


def _state(known: DataSet, data_home: str | None) -> str:
    try:
        path = locate(known, data_home)
        verify(path, known)
    except DataSetError as error:
        return f"no. {error}"
    return f"yes, {path}, its checksum is correct"


def _where(data_home: str | None) -> Text:
    folder = data_home or os.environ.get(VARIABLE)
    if not folder:
        return Text(
            f"\n{len(names())} data sets. Set {VARIABLE}, or pass --data-home, to the folder of their files."
        )
    return Text(f"\n{len(names())} data sets; looked for in {folder}")


def _target(known: DataSet) -> str:
    return names_words(known.target, 3)


def _missing(known: DataSet) -> str:
    return "" if known.missing is None else f"{known.missing:,}"
