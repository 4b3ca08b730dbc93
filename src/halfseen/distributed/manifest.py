"""The manifest of a run: what was asked for, by which model, of which inputs, and how far it is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halfseen.data.scan import Scan, StreamedScan
from halfseen.distributed.outputs import Folder
from halfseen.distributed.units import Unit
from halfseen.errors import TableError, warn_user

MANIFEST = "_manifest.json"  # what reads a folder of Parquet files passes over names with an underscore
FORMAT = 1

_WORDS = {
    "operation": "another operation",
    "options": "other options",
    "model": "another model",
    "random_state": "another seed",
    "inputs": "other input files",
    "block_rows": "another size of blocks",
    "layout": "another layout",
    "row_id": "other row ids",
    "version": "another version of halfseen",
}
"""What distinguishes two runs, in the order in which it is compared."""


def describe_inputs(scan: Scan) -> list[dict[str, Any]]:
    """Returns what identifies the content of the files of a table."""
    return [
        {
            "name": part.path.rsplit("/", maxsplit=1)[-1],
            "bytes": part.n_bytes,
            "rows": part.n_rows,
            "digest": part.digest,
        }
        for part in scan.parts
    ]


def last_changes(scan: Scan) -> list[int | None]:
    """Returns when each file was last changed; None if that is not known, or its whole content is compared.

    Of a typed file, the footer is compared, which may stay the same if values change.
    """
    if isinstance(scan, StreamedScan):
        return [None]
    infos = scan.filesystem.get_file_info(scan.files)
    return [
        None if part.format == "csv" else info.mtime_ns for part, info in zip(scan.parts, infos, strict=True)
    ]


@dataclass
class Manifest:
    """What a run was asked for, and how far it is."""

    request: Mapping[str, Any]  # everything on which the output depends
    # The sizes of the files of finished units, by the names of the units.
    finished: dict[str, dict[str, int]] = field(default_factory=dict)

    def write(self, folder: Folder, n_units: int) -> None:
        """Writes the manifest into the folder of the output."""
        content = {
            "format": FORMAT,
            "complete": len(self.finished) == n_units,
            "units": n_units,
            "request": self.request,
            "finished": {name: self.finished[name] for name in sorted(self.finished)},
        }
        with folder.write(MANIFEST) as file:
            file.write(json.dumps(content, indent=1).encode())


def begin(
    request: Mapping[str, Any], folder: Folder, units: Sequence[Unit], outputs: Sequence[str], *, resume: bool
) -> Manifest:
    """Returns the manifest of a run: a new one, or that of an interrupted run of the same request.

    Parameters
    ----------
    request : mapping
        Everything on which the output depends.
    folder : Folder
        The folder of the output.
    units : sequence of Unit
        The units of the run.
    outputs : sequence of str
        The names of all files that will be written.
    resume : bool
        Whether to go on with a run that was interrupted, if there is one.
    """
    found = _read(folder)
    if found is None:
        taken = next((name for name in outputs if folder.size_of(name) is not None), None)
        if taken is not None:
            raise TableError(f"{folder.join(taken)}: exists already; it is not overwritten")
        return Manifest(request)
    if not resume:
        check_new(folder)
    where = folder.join(MANIFEST)
    plain = json.loads(json.dumps(request))  # with lists in place of tuples
    for name, words in _WORDS.items():
        if plain.get(name) != found["request"].get(name):
            raise TableError(f"{where}: the run cannot be resumed, because it was begun with {words}")
    changes = zip(plain["inputs"], plain["changes"], found["request"].get("changes", []), strict=False)
    changed = [one["name"] for one, now, before in changes if now != before]
    if changed:
        warn_user(
            f"{changed[0]}: the file was written again after the run began, with the same size and footer. "
            "If its values are others, write to another folder, because finished units keep the former ones."
        )
    known = {unit.name for unit in units}
    finished = {
        name: files
        for name, files in found["finished"].items()
        if name in known and files and all(folder.size_of(one) == size for one, size in files.items())
    }
    return Manifest(request, finished)


def check_new(folder: Folder) -> None:
    """Raises an error if a folder has the output of a run."""
    if folder.size_of(MANIFEST) is not None:
        raise TableError(
            f"{folder.join(MANIFEST)}: the folder has the output of a run already; resume it by --resume "
            "(resume=True), or write to another folder"
        )


def _read(folder: Folder) -> dict[str, Any] | None:
    content = folder.read(MANIFEST)
    if content is None:
        return None
    try:
        found = json.loads(content)
        readable = found["format"] == FORMAT and isinstance(found["finished"], dict)
        readable = readable and isinstance(found["request"], dict)
    except (ValueError, KeyError, TypeError):
        readable = False
    if not readable:
        raise TableError(f"{folder.join(MANIFEST)}: not the manifest of a run of this version of halfseen")
    return dict(found)
