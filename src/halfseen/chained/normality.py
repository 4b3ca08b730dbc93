"""Whether draws of a joint Gaussian are suitable for pooling, or chained equations are needed."""

from collections.abc import Sequence

import torch

from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.schema import Column

MOST_SKEWNESS = 1.0  # of a column that passes for normal, half of that of an exponential one; a guess
MOST_FREQUENT = 0.1  # the share of the most frequent value of a column that passes for continuous; a guess
ROWS_PER_COLUMN = 20  # below which the ridge of a joint Gaussian matters; a guess
MOST_COLUMNS = 30  # of a small table; wide tables need the ridge
FEWEST_VALUES = 30  # of which a share can be estimated


def why_not_normal(columns: Sequence[Column], codes: Incomplete) -> str | None:
    """Returns why a joint Gaussian could bias analyses of a table (N, C), or None if it is not expected to.

    Levels enter a joint Gaussian as indicators, whose conditional distributions are linear in other columns;
    those of levels are not. Skewed numbers and numbers with a frequent value, such as zero, are transformed,
    and relations between transformed columns are not those of an analysis. With few rows, a joint Gaussian
    shrinks correlations by a ridge, which biases coefficients towards zero.
    """
    if len(codes) < ROWS_PER_COLUMN * len(columns) and len(columns) <= MOST_COLUMNS:
        return f"there are only {len(codes)} rows for {len(columns)} columns"
    for c, column in enumerate(columns):
        if column.levels is not None:
            return f"column {column.name!r} has levels"
        if column.codes is not None:
            return f"column {column.name!r} has few distinct values"
        x = codes.x[codes.observed[:, c], c]
        if len(x) < 2:
            continue
        values = Incomplete(x[:, None], torch.ones(len(x), 1, dtype=torch.bool))
        scaled = Standardizer.fit(values).forward(values.x)
        if float(scaled.pow(3).mean().abs()) > MOST_SKEWNESS:
            return f"column {column.name!r} is skewed"
        if int(x.unique(return_counts=True)[1].max()) > MOST_FREQUENT * len(x) and len(x) >= FEWEST_VALUES:
            return f"column {column.name!r} has a frequent value"
    return None
