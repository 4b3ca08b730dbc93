"""Provenance of results: hashes of content, versions and commit; and a folder of finished runs."""

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from halfseen._files import write_atomically
from halfseen.evaluation.trial import Record

PACKAGE = Path(__file__).parents[1]
PACKAGES = ("halfseen", "joblib", "numpy", "scikit-learn", "scipy", "torch")
_ABOVE = ("cli", "report")  # layers that cannot change a result
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def digest(content: Any) -> str:
    """Returns a hash of plain data.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, allow_nan=True)
    return hashlib.sha256(text.encode()).hexdigest()


def describe_parameters(thing: Any) -> Any:
    """Returns an object as plain data that is equal for equal settings, in every process.

    Examples
    --------
    >>> from sklearn.impute import KNNImputer
    >>> describe_parameters(KNNImputer(n_neighbors=3))["parameters"]["n_neighbors"]
    3
    """
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()
        return f"array {thing.dtype} {thing.shape} {content}"
    if isinstance(thing, Mapping):
        return {str(key): describe_parameters(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [describe_parameters(value) for value in thing]
    name = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if hasattr(thing, "get_params"):
        return {"class": name, "parameters": describe_parameters(thing.get_params(deep=False))}
    if is_dataclass(thing) and not isinstance(thing, type):
        return {
            "class": name,
            "parameters": {f.name: describe_parameters(getattr(thing, f.name)) for f in fields(thing)},
        }
    if callable(thing):
        return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', repr(type(thing)))}"
    return _ADDRESS.sub("", repr(thing))


@cache
def code_digest() -> str:
    """Returns a hash of the source below the command line: other code may give other results."""
    content = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in _ABOVE:
            content.update(place.as_posix().encode() + b"\0" + path.read_bytes())
    return content.hexdigest()


def provenance() -> dict[str, Any]:
    """Returns when, where and by which code something was computed."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "code": code_digest(),
        "commit": commit(),
    }


def commit() -> str | None:
    """Returns the commit of the source, with a plus if files were changed since; None outside of git."""
    last = _git("log", "-1", "--format=%H", "--", ".")
    if not last:
        return None
    return last + ("+" if _git("status", "--porcelain", "--", ".") else "")


def _git(*arguments: str) -> str:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, env=quiet
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@dataclass(frozen=True)
class Shelf:
    """A folder of finished runs, one small file each, named by a hash of everything that determines it.

    Files are complete or absent, so that an interrupted comparison can be resumed. Failures are stored, and
    run again.
    """

    folder: Path

    def get(self, key: str) -> Record | None:
        """Returns a finished run; None if there is none, or the file is damaged."""
        try:
            content = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            record = Record(**{**content, "warnings": tuple(content["warnings"]), "resumed": True})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return record if record.status != "failed" else None

    def put(self, key: str, record: Record) -> None:
        """Stores a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(self.folder / f"{key}.json") as file:
            file.write(json.dumps(asdict(record)).encode())
