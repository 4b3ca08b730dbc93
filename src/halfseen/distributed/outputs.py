"""Where units are written: a temporary file that is renamed when it is complete, on any file system."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs

from halfseen import _machine
from halfseen.data.scan import resolve
from halfseen.errors import TableError

PARTIAL = ".part"


@dataclass(frozen=True)
class Folder:
    """A folder of outputs."""

    path: str  # its path in the file system
    filesystem: Any  # pyarrow.fs.FileSystem: the file system

    @classmethod
    def at(cls, address: str | os.PathLike[str], filesystem: Any = None) -> "Folder":
        """Returns the folder of a path or address, which need not exist."""
        path, found = resolve(os.fspath(address), filesystem)
        return cls(path.rstrip("/") or "/", found)

    @property
    def is_local(self) -> bool:
        """Whether it is in the file system of the machine."""
        return isinstance(self.filesystem, pa.fs.LocalFileSystem)

    def join(self, name: str) -> str:
        """Returns the path of a file in the folder."""
        return f"{self.path}/{name}"

    def create(self, name: str) -> None:
        """Creates the folder of a file."""
        parent = str(PurePosixPath(self.join(name)).parent)
        try:
            self.filesystem.create_dir(parent, recursive=True)
        except OSError as error:
            raise TableError(f"{parent}: cannot write: {str(error).splitlines()[0].lower()}") from error

    @contextmanager
    def write(self, name: str) -> Iterator[Any]:
        """Opens a file for writing under another name; it has its own name once it is complete."""
        path = self.join(name)
        try:
            if self.is_local:
                with _machine.write_atomically(path) as file:
                    yield file
            else:
                with self._moving(path) as file:
                    yield file
        except OSError as error:
            reason = (error.strerror or (str(error).splitlines() or ["unknown"])[0]).lower()
            raise TableError(f"{path}: cannot write: {reason}") from error

    @contextmanager
    def _moving(self, path: str) -> Iterator[Any]:
        place = PurePosixPath(path)
        temporary = str(place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}{PARTIAL}"))
        try:
            with self.filesystem.open_output_stream(temporary) as file:
                yield file
        except BaseException:
            if self.size_of(str(PurePosixPath(temporary).relative_to(self.path))) is not None:
                self.filesystem.delete_file(temporary)
            raise
        self.filesystem.move(temporary, path)

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if there is none."""
        if self.size_of(name) is None:
            return None
        with self.filesystem.open_input_stream(self.join(name)) as file:
            content: bytes = file.read()
        return content

    def size_of(self, name: str) -> int | None:
        """Returns the bytes of a file; None if there is none."""
        info = self.filesystem.get_file_info(self.join(name))
        return int(info.size) if info.is_file else None

    def remove_partial(self, name: str) -> None:
        """Removes what was left of a file by processes that ended before it was complete."""
        place = PurePosixPath(self.join(name))
        if self.is_local:
            start = f".{place.name[: _machine._NAME_START]}."
            for path in Path(place.parent).glob("*" + PARTIAL):
                if path.name.startswith(start):
                    path.unlink(missing_ok=True)
            return
        selector = pa.fs.FileSelector(str(place.parent), allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.base_name.startswith(f".{place.name}.") and info.base_name.endswith(PARTIAL):
                self.filesystem.delete_file(info.path)
