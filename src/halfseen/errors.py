"""Errors and warnings that users meet; every message names the value and says what to do."""


class SchemaError(ValueError):
    """A table, or a description of its columns, cannot be used as it is."""


class ModelFileError(ValueError):
    """A model file is foreign, damaged, or from a version that cannot be read."""


class TrainingError(RuntimeError):
    """An optimisation could not be brought to finite values."""


class HalfseenWarning(UserWarning):
    """Something was decided for the user that the user may want to decide."""
