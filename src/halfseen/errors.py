"""Errors and warnings of the library; every message names the value and a remedy."""

import contextlib
import sys
import warnings
from pathlib import Path
from types import FrameType

from halfseen.words import Note, as_note

_HERE = str(Path(__file__).parent)
_SHOWN: set[tuple[str, int, str]] = set()  # file, line and sentence of warnings that the filters show once


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


class RepeatedIdsWarning(HalfseenWarning):
    """Issued if rows have equal ids, so that their draws vary together."""


def warn_user(message: str, category: type[HalfseenWarning] = HalfseenWarning) -> None:
    """Issues a warning that points to the line of the user's code, also if it was called by scikit-learn.

    By the filter action "default", which is Python's default, it is issued once for each line and sentence.
    Python forgets what it has shown whenever `warnings.catch_warnings` is entered, as scikit-learn does each
    time that it reads an array, so that a service would see the same sentence with every request; hence what
    was shown is also remembered here.

    Parameters
    ----------
    message : str
        What happened; a `Note` if it does not harm.
    category : type, optional
        The class of the warning.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    place = (frame.f_code.co_filename, frame.f_lineno, str(message))
    if _action(str(message), frame) == "default":
        if place in _SHOWN:
            return
        _SHOWN.add(place)
    warnings.warn(message, category, stacklevel=level)


def _action(message: str, frame: FrameType) -> str:
    """Returns what the filters of Python say about a warning of the library that points to a frame."""
    module = str(frame.f_globals.get("__name__", ""))
    for action, text, category, modules, line in warnings.filters:
        if (
            (text is None or text.match(message))
            and issubclass(HalfseenWarning, category)
            and (modules is None or modules.match(module))
            and line in (0, frame.f_lineno)
        ):
            return action
    return "default"


def _is_inside(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(_HERE) or "sklearn" in path.parts or file == contextlib.__file__


class TableError(ValueError):
    """A table file cannot be read or written; the message is one line that names the file."""
