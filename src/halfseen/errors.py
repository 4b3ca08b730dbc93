"""Errors and warnings that users meet; every message names the value and says what to do."""

import contextlib
import sys
import warnings
from pathlib import Path

_HERE = str(Path(__file__).parent)


class SchemaError(ValueError):
    """A table, or a description of its columns, cannot be used as it is."""


class ModelFileError(ValueError):
    """A model file is foreign, damaged, or from a version that cannot be read."""


class TrainingError(RuntimeError):
    """An optimisation could not be brought to finite values."""


class HalfseenWarning(UserWarning):
    """Something was decided for the user that the user may want to decide."""


def warn_user(message: str) -> None:
    """Warns with the line by which the user called us, directly or by scikit-learn."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, HalfseenWarning, stacklevel=level)


def _is_inside(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(_HERE) or "sklearn" in path.parts or file == contextlib.__file__
