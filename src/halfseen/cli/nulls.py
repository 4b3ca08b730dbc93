"""One spelling of a missing cell: NaN, and null as the value of a dictionary, are read as plain nulls."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def spell_nulls(table: pa.Table) -> pa.Table:
    """Return the table with null, and nothing else, where a cell is missing."""
    for position, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            new = _without_nan(column)
        elif pa.types.is_dictionary(column.type):
            new = pa.chunked_array([_without_null_value(chunk) for chunk in column.chunks], column.type)
        else:
            continue
        table = table.set_column(position, table.schema.field(position).with_nullable(True), new)
    return table


def _without_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    missing = pc.is_null(column, nan_is_null=True)
    if pc.sum(missing).as_py() in (None, column.null_count):
        return column
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def _without_null_value(array: pa.DictionaryArray) -> pa.DictionaryArray:
    missing = pc.is_null(array.dictionary, nan_is_null=True).to_numpy(zero_copy_only=False)
    if not missing.any():
        return array
    position = pa.array(np.cumsum(~missing) - 1, mask=missing)
    indices = position.take(array.indices).cast(array.indices.type)
    values = array.dictionary.filter(pa.array(~missing))
    return pa.DictionaryArray.from_arrays(indices, values, ordered=array.type.ordered)
