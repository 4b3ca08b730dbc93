"""Small tables that come with the package."""

from importlib.resources import as_file, files
from importlib.util import find_spec
from typing import Any

import narwhals as nw

BACKENDS = ("pandas", "polars", "pyarrow")


def load_penguins(backend: str | None = None) -> Any:
    """Returns the Palmer penguins: 344 birds, 8 columns of mixed types, 19 cells naturally missing.

    Parameters
    ----------
    backend : {"pandas", "polars", "pyarrow"}, optional
        The library of the table; by default the first that is installed.

    Returns
    -------
    DataFrame or Table
        species, island, bill length and depth, flipper length, body mass, sex, year.

    References
    ----------
    Horst, Hill & Gorman (2020), palmerpenguins; data by K. Gorman and the Palmer Station LTER, CC0.

    Examples
    --------
    >>> load_penguins("pandas").shape
    (344, 8)
    """
    installed = [name for name in BACKENDS if find_spec(name) is not None]
    if backend is None and not installed:
        raise ImportError(f"load_penguins needs one of {', '.join(BACKENDS)}; install one of them.")
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    with as_file(files("halfseen.data") / "samples" / "penguins.csv") as path:
        chosen: Any = backend or installed[0]
        return nw.read_csv(str(path), backend=chosen, **_options(chosen)).to_native()


def _options(backend: str) -> dict[str, Any]:
    if backend != "pyarrow":
        return {}
    from pyarrow.csv import ConvertOptions

    return {"convert_options": ConvertOptions(strings_can_be_null=True)}  # or empty text would be a value
