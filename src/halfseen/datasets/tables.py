"""Reading a table into the library that a user prefers; an empty field is missing, and nothing else is."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import narwhals as nw

BACKENDS = ("pandas", "polars", "pyarrow")


def choose_backend(backend: str | None, caller: str, find: Callable[[str], Any] = find_spec) -> str:
    """Returns the library to read with: the one asked for, or the first that is installed."""
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    installed = [name for name in BACKENDS if find(name) is not None]
    if backend is None and not installed:
        raise ImportError(f"{caller} needs one of {', '.join(BACKENDS)}; install one of them.")
    return backend or installed[0]


def read_csv(path: str, backend: str) -> Any:
    """Returns the table of a csv file, plain or gzipped."""
    chosen: Any = backend
    return nw.read_csv(path, backend=chosen, **_csv_options(backend)).to_native()


def read_parquet(path: str, backend: str) -> Any:
    """Returns the table of a parquet file."""
    chosen: Any = backend
    return nw.read_parquet(path, backend=chosen).to_native()


def _csv_options(backend: str) -> dict[str, Any]:
    """Returns what makes a library read empty fields as missing, and texts such as NA or None as texts."""
    if backend == "pandas":
        return {"keep_default_na": False, "na_values": [""]}
    if backend == "polars":
        return {"infer_schema_length": None}  # the first rows of a column do not determine its type
    from pyarrow.csv import ConvertOptions

    return {"convert_options": ConvertOptions(null_values=[""], strings_can_be_null=True)}
