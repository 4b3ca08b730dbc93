"""The one error that table files raise."""


class TableError(ValueError):
    """A table file cannot be read or written; the message is one line that names the file."""
