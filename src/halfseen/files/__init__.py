"""Table files: how they are read, what their columns hold, and how they are written back.

`read_table` and `write_table` are the reader and the writer of the command line. Neither torch nor
scikit-learn is imported.
"""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.files.formats import Style
    from halfseen.files.table_file import FileColumn, TableFile
    from halfseen.files.tables import read_table
    from halfseen.files.writing import write_table

__all__ = ["FileColumn", "Style", "TableFile", "read_table", "write_table"]

if not TYPE_CHECKING:  # a type checker would take any name for granted
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "formats": ["Style"],
            "table_file": ["FileColumn", "TableFile"],
            "tables": ["read_table"],
            "writing": ["write_table"],
        },
    )
