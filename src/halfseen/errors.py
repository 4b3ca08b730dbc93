"""Errors and warnings of the library; every message names the value and a remedy."""

import contextlib
import sys
import warnings
from pathlib import Path

from halfseen.words import Note, as_note

_HERE = str(Path(__file__).parent)


class SchemaError(ValueError):
    """Raised if a table, or the description of its columns, cannot be used."""


class ModelFileError(ValueError):
    """Raised if a file is not a model file, is damaged, or was written by an incompatible version."""


class TrainingError(RuntimeError):
    """Raised if training does not reach finite values."""


class HalfseenWarning(UserWarning):
    """Issued if a decision was made automatically that the user may want to change."""

    @property
    def note(self) -> Note:
        """The message, which is a harmful note unless it was made as another one."""
        return as_note(self.args[0], "harmful")


def warn_user(message: str) -> None:
    """Issues a warning that points to the line of the user's code, also if it was called by scikit-learn.

    Parameters
    ----------
    message : str
        What happened; a `Note` if it does not harm.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, HalfseenWarning, stacklevel=level)


def _is_inside(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(_HERE) or "sklearn" in path.parts or file == contextlib.__file__


class TableError(ValueError):
    """A table file cannot be read or written; the message is one line that names the file."""
