"""Laws of every imputer: values that may be imputed, and warnings about values far from the observed ones."""

import warnings

import numpy as np
import pandas as pd
import pytest

from halfseen.errors import HalfseenWarning

CODES = {"rating": range(1, 6), "group": (1, 2, 3), "size": (1, 2, 3, 5, 8, 25)}


def codes_and_measurements():
    """Codes with gaps, and numbers that are never negative; a third of cells is missing."""
    rng = np.random.default_rng(0)
    n_rows = 120
    z = rng.normal(size=n_rows)
    table = pd.DataFrame(
        {
            "rating": np.clip(np.round(3 + z + 0.6 * rng.normal(size=n_rows)), 1, 5),
            "group": rng.choice([1.0, 2.0, 3.0], n_rows, p=[0.7, 0.2, 0.1]),
            "size": np.array(CODES["size"], dtype=float)[np.clip((3 + 1.5 * z).astype(int), 0, 5)],
            "spent": np.where(rng.random(n_rows) < 0.4, 0.0, np.exp(3 + z)),
            "lost": -np.exp(z + rng.normal(size=n_rows)),
            "visits": rng.poisson(np.exp(4 + z)).astype(float),
            "rounded": np.round(z, 1),
            "measured": z + 0.3 * rng.normal(size=n_rows),
        }
    )
    return table.mask(rng.random(table.shape) < 0.33)


def completed(imputer, table):
    """The missing cells of every answer of an imputer, by column."""
    answers = [imputer.transform(table), *imputer.sample(table, n_draws=5), *imputer.interval(table, 0.95)]
    return {name: np.concatenate([a[name][table[name].isna()] for a in answers]) for name in table}


def test_imputed_values_are_observed_codes_or_lie_within_the_limits_that_the_schema_states(row):
    table = codes_and_measurements()
    imputer = row.make(random_state=0).fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HalfseenWarning)  # none of these values is far from the others
        filled = completed(imputer, table)
    for name, codes in CODES.items():
        assert set(filled[name]) <= set(codes), name
    for name in ("spent", "visits"):
        assert filled[name].min() >= 0, name
    for column in imputer.schema_:
        low, high = table[column.name].min(), table[column.name].max()
        if column.extrapolated:
            assert "may exceed the observed range" in str(column.one_line())
            low, high = column.least, column.greatest
        assert filled[column.name].min() >= low, column.name
        assert filled[column.name].max() <= high, column.name
    assert not imputer.schema_.columns[6].extrapolated  # of values that occur again and again


def test_an_array_of_codes_is_completed_by_these_codes(row):
    table = codes_and_measurements()[list(CODES)].to_numpy()
    imputer = row.make(random_state=0).fit(table)
    for answer in (imputer.transform(table), *imputer.sample(table, n_draws=5), *imputer.interval(table)):
        for column, codes in zip(answer.T, CODES.values(), strict=True):
            assert set(column) <= set(codes)


@pytest.fixture(scope="module")
def runaway(row):
    """An imputer whose model answers with numbers a million away from the observed ones."""
    imputer = row.make(random_state=0).fit(codes_and_measurements()[["rating", "measured"]])
    complete = type(imputer)._by_chunk

    def run_away(*arguments):
        return [[codes, 1e6 + numbers] for codes, numbers in complete(imputer, *arguments)]

    imputer._by_chunk = run_away
    return imputer


@pytest.mark.parametrize("answer", ["transform", "sample", "interval"])
def test_values_far_outside_the_observed_ones_are_announced_by_column_and_count(runaway, answer):
    table = codes_and_measurements()[["rating", "measured"]]
    n_missing = int(table["measured"].isna().sum()) * (1 if answer == "transform" else 2)
    ask = {"sample": lambda: runaway.sample(table, n_draws=2)}.get(
        answer, lambda: getattr(runaway, answer)(table)
    )
    with pytest.warns(
        HalfseenWarning, match=rf"'measured': {n_missing} values lie more than 4 observed ranges"
    ):
        ask()
