"""The whole description of a table: patterns, prediction of missingness, words that do not claim too much."""

import json
import re
from itertools import permutations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tolerances import FAILURE_RATE

import halfseen
from halfseen.diagnosis import predictability
from halfseen.diagnosis.cells import group_patterns, tabulate_patterns
from halfseen.diagnosis.predictability import predict_missingness
from halfseen.errors import SchemaError

MASKS = st.integers(0, 2**16).flatmap(
    lambda seed: st.tuples(st.just(seed), st.integers(1, 30), st.integers(1, 5), st.floats(0, 1))
)


def mask_of(seed, n_rows, n_columns, rate):
    return np.random.default_rng(seed).random((n_rows, n_columns)) >= rate


# --------------------------------------------------------------------------------------------- patterns


@given(MASKS)
def test_patterns_are_the_distinct_rows_with_their_counts(settings):
    observed = mask_of(*settings)
    patterns = group_patterns(observed)
    distinct, counts = np.unique(observed, axis=0, return_counts=True)
    assert (patterns.observed[patterns.of_row] == observed).all()
    assert sorted(patterns.counts.tolist()) == sorted(counts.tolist())
    assert len(patterns.counts) == len(distinct)
    assert (np.diff(patterns.counts) <= 0).all()


def test_patterns_over_more_columns_than_a_word_has_bits():
    observed = np.random.default_rng(0).random((500, 150)) < 0.98
    observed[:, 40:60] = True
    observed[250:] = observed[:250]
    patterns = group_patterns(observed)
    assert len(patterns.counts) == len(np.unique(observed, axis=0))
    assert (patterns.observed[patterns.of_row] == observed).all()


@given(MASKS)
def test_an_order_is_found_whenever_one_exists(settings):
    observed = mask_of(*settings)
    table = tabulate_patterns(group_patterns(observed), [f"c{j}" for j in range(observed.shape[1])])

    def share(order):
        missing = ~observed[:, list(order)]
        return (missing[:, :-1] <= missing[:, 1:]).all(axis=1).mean()

    best = max(share(order) for order in permutations(range(observed.shape[1])))
    assert table.monotonicity.monotone == (best == 1.0)
    assert table.monotonicity.share <= best
    full = [int(name[1:]) for name in table.monotonicity.order]
    complete = [j for j in range(observed.shape[1]) if j not in full]
    assert table.monotonicity.share == pytest.approx(share([*complete, *full]))


def test_dropout_is_monotone_and_twins_are_found():
    n_seen = np.random.default_rng(0).integers(1, 6, 200)
    observed = np.arange(5) < n_seen[:, None]
    observed = np.column_stack([observed[:, ::-1], observed[:, 1]])
    table = tabulate_patterns(group_patterns(observed), list("abcdef"))
    assert table.monotonicity.monotone
    assert table.monotonicity.order in (tuple("dfcba"), tuple("fdcba"))
    assert table.together == (("d", "f"),)
    assert table.columns == tuple("abcdf")


# ---------------------------------------------------------------------------------- prediction of missingness


def test_missing_values_at_both_ends_of_a_scale_are_predicted_though_no_mean_moves():
    x = np.random.default_rng(0).normal(size=(600, 3))
    x[np.abs(x[:, 0]) > 1.2, 1] = np.nan
    [found] = predict_missingness(x)
    assert found.column == "x1"
    assert found.low < found.auc <= found.high
    assert found.auc > 0.95
    assert found.p_adjusted < FAILURE_RATE


@pytest.mark.slow
def test_prediction_of_random_missingness_is_no_better_than_chance():
    p_values, aucs = [], []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(150, 3))
        x[generator.random(150) < 0.3, 0] = np.nan
        [found] = predict_missingness(x)
        p_values.append(found.p_value)
        aucs.append(found.auc)
        assert found.low < 0.5 + 1e-9 or found.p_value < 0.1
    alarms = sum(p < 0.05 for p in p_values)
    assert stats.binom.sf(alarms - 1, 40, 0.05) > FAILURE_RATE
    assert stats.ttest_1samp(aucs, 0.5).pvalue > FAILURE_RATE


def test_columns_with_too_few_missing_values_are_marked_and_come_last():
    x = np.random.default_rng(0).normal(size=(100, 3))
    x[:5, 0] = np.nan
    x[:50, 1] = np.nan
    x[:95, 2] = np.nan
    found = predict_missingness(x)
    assert found[0].column == "x1"
    assert {one.column: one.reason for one in found[1:]} == {
        "x0": "fewer than 20 missing values",
        "x2": "fewer than 20 observed values",
    }
    assert all(np.isnan(one.p_adjusted) for one in found[1:])


def test_rows_are_limited_and_rare_missing_values_all_kept(monkeypatch):
    monkeypatch.setattr(predictability, "MAX_ROWS", 300)
    x = np.random.default_rng(0).normal(size=(5000, 2))
    x[:60, 0] = np.nan
    x[:4000, 1] = np.nan
    found = {one.column: one for one in predict_missingness(x)}
    assert (found["x0"].n_rows, found["x0"].n_missing) == (300, 60)
    assert (found["x1"].n_rows, found["x1"].n_missing) == (300, 150)


def test_one_column_has_no_rest_of_the_row():
    x = np.where(np.arange(60) < 30, np.nan, np.arange(60.0))[:, None]
    assert predict_missingness(x)[0].reason == "there is no other column"


# ---------------------------------------------------------------------------------------- all of it


@pytest.fixture(scope="module")
def mixed():
    generator = np.random.default_rng(0)
    n = 500
    frame = pd.DataFrame(
        {
            "id": [f"p{i:04d}" for i in range(n)],
            "age": generator.normal(50, 10, n),
            "sex": generator.choice(["f", "m"], n),
            "visits": generator.poisson(3, n).astype(float),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 900, n), unit="D"),
            "empty": np.nan,
            "outcome": generator.normal(size=n),
        }
    )
    frame.loc[(frame["age"] > 55) & (generator.random(n) < 0.8), "visits"] = np.nan
    frame.loc[generator.random(n) < 0.1, "sex"] = None
    frame.loc[frame["outcome"] > 1, "when"] = pd.NaT
    return frame


def test_a_mixed_table_is_described(mixed):
    diagnosis = halfseen.describe(mixed, target="outcome", against=mixed.iloc[:250])
    assert diagnosis.n_missing == int(mixed.isna().sum().sum())
    by_name = {column.name: column for column in diagnosis.columns}
    assert by_name["empty"].share == 1.0
    assert by_name["id"].positions == ()
    assert len(by_name["sex"].positions) == 80
    assert np.mean(by_name["sex"].positions) == pytest.approx(by_name["sex"].share, abs=0.01)
    strongest = diagnosis.distinct_pairs("value")[0]
    assert {strongest.column, strongest.other} <= {"visits", "age", "when", "outcome"}
    text = str(diagnosis)
    for words in (
        "500 rows, 7 columns",
        "There is evidence against MCAR",
        "The target outcome is associated with the missingness of when",
        "visits is missing more often when age is higher",
        "Compared with the reference",
        "(MNAR), or only on observed values (MAR), cannot be tested",
    ):
        assert words in text
    assert diagnosis.predictability[0].column in ("visits", "when")


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_every_library_gives_the_same(backend):
    frame = halfseen.datasets.load_penguins(backend)
    assert (
        halfseen.describe(frame).to_dict()
        == halfseen.describe(halfseen.datasets.load_penguins("pandas")).to_dict()
    )


def test_the_dict_is_plain_and_the_same_each_time(mixed):
    content = halfseen.describe(mixed, against=mixed).to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert halfseen.describe(mixed, against=mixed).to_dict() == content
    assert content["associations"]["n_pairs"] == len(content["associations"]["pairs"])
    assert content["drift"]["distance"] == 0


def test_the_caller_keeps_the_table(mixed):
    copy = mixed.copy(deep=True)
    halfseen.describe(mixed)
    pd.testing.assert_frame_equal(mixed, copy)


TABLES = {
    "complete": pd.DataFrame({"x": [1.0, 2.0, 3.5], "y": [1.0, 0.5, 2.5]}),
    "one row": pd.DataFrame({"x": [1.0], "y": [None]}),
    "one column": pd.DataFrame({"x": [1.0, None, 2.0]}),
    "all missing": pd.DataFrame({"x": [None, None], "y": [np.nan, np.nan]}),
    "constant": pd.DataFrame({"x": [1.0, None] * 20, "y": [3.0] * 40}),
    "text only": pd.DataFrame({"x": ["a", None, "b", "a"] * 10, "y": [None, "u", "v", "v"] * 10}),
    "more columns than rows": pd.DataFrame(
        np.where(np.eye(4, 9) == 1, np.nan, np.arange(36.0).reshape(4, 9))
    ),
    "identifiers with holes": pd.DataFrame(
        {"id": [*map(str, range(30)), None, None], "x": np.arange(32.0) ** 2}
    ),
    "array": np.array([[1.0, np.nan], [2.0, 3.0]]),
}


@pytest.mark.parametrize("case", TABLES)
def test_odd_tables_are_described_too(case):
    diagnosis = halfseen.describe(TABLES[case], against=TABLES[case])
    assert str(diagnosis)
    json.dumps(diagnosis.to_dict(), allow_nan=False)
    assert "nan" not in str(diagnosis).lower().replace("nanometre", "")
    assert diagnosis.readings


def test_the_text_never_claims_that_mcar_holds(mixed):
    for table in (*TABLES.values(), mixed, halfseen.datasets.load_penguins("pandas")):
        text = str(halfseen.describe(table))
        assert not re.search(
            r"MCAR (holds|is true|is confirmed|cannot be rejected)|is MCAR|are MCAR|is MAR\b", text
        )
        assert "cannot be tested from these data alone" in text
    assert halfseen.describe(TABLES["complete"]).readings[0] == "Nothing is missing."


def test_random_missingness_gives_no_evidence_and_no_claim():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 4))
    x[generator.random(x.shape) < 0.1] = np.nan
    readings = halfseen.describe(x).readings
    assert readings[0].endswith("was found. That is not evidence for it.")
    assert "finds no evidence against MCAR" in readings[1]


def test_a_test_with_low_power_is_described_as_such():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 8))
    x[generator.random(x.shape) < 0.45] = np.nan
    readings = halfseen.describe(x).readings
    assert re.match(
        r"But \d+ of \d+ rows share their pattern with no other: the test has little power", readings[2]
    )


def test_columns_that_are_always_missing_together_are_described_once():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(300, 4)), columns=list("abcd"))
    frame.loc[frame["a"] > 0.5, ["b", "c"]] = np.nan
    diagnosis = halfseen.describe(frame)
    assert diagnosis.patterns.together == (("b", "c"),)
    assert {pair.column for pair in diagnosis.associations.clear} == {"b", "c"}
    assert {pair.column for pair in diagnosis.distinct_pairs("value")} == {"b"}
    assert diagnosis.distinct_pairs("missingness") == ()
    assert "These columns are always missing together: b and c." in diagnosis.readings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "nobody"}, "target 'nobody' is not a column of the table; its columns are x and y"),
        ({"against": [1.0]}, "two-dim"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(SchemaError, match=message):
        halfseen.describe(TABLES["complete"], **settings)


def brute_force_copies(frame):
    rows = [
        tuple("?" if pd.isna(cell) else repr(cell) for cell in row) for row in frame.itertuples(index=False)
    ]
    return sum(row in rows[:place] for place, row in enumerate(rows))


@pytest.mark.parametrize("seed", range(5))
def test_duplicated_rows_are_counted_as_by_comparing_all_pairs(seed):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "number": generator.integers(0, 3, 40).astype(float),
            "text": generator.choice(["a", "b", None], 40),
            "flag": generator.choice([True, False], 40),
            "when": pd.to_datetime(generator.choice(["2020-01-01", "2021-05-03"], 40)),
        }
    )
    frame.loc[generator.random(40) < 0.3, "number"] = np.nan
    found = halfseen.describe(frame)
    assert found.n_duplicated_rows == brute_force_copies(frame) > 0
    assert f"{found.n_duplicated_rows} duplicated rows" in str(found)
    assert any("are copies of earlier rows" in line for line in found.readings)
    assert found.to_dict()["n_duplicated_rows"] == found.n_duplicated_rows


def test_duplicated_rows_are_named_and_blank_rows_are_none_of_them():
    frame = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0)})
    frame.loc[[20, 21, 25]] = frame.loc[[3, 3, 8]].to_numpy()
    frame.loc[[10, 11, 12]] = np.nan
    found = halfseen.describe(frame)
    assert (found.n_duplicated_rows, found.first_duplicates) == (3, ((20, 3), (21, 3), (25, 8)))
    assert "row 21 of row 4, row 22 of row 4 and row 26 of row 9, counted without the header" in str(found)
    many = halfseen.describe(pd.DataFrame({"a": [1.0] * 30, "b": [2.0] * 30}))
    assert many.first_duplicates == tuple((row, 0) for row in range(1, 6))
    assert "row 6 of row 1 and 24 more, counted" in str(many)


def test_rows_that_differ_are_no_duplicates():
    found = halfseen.describe(np.column_stack([np.arange(30.0), np.zeros(30)]))
    assert found.n_duplicated_rows == 0
    assert "duplicated" not in str(found)


def test_cells_with_placeholders_are_not_like_missing_ones():
    frame = pd.DataFrame({"x": [1.0, None, None, 2.0] * 5, "y": np.repeat(np.arange(5.0), 4)})
    assert halfseen.describe(frame).n_duplicated_rows == 5
    kept = {"x": np.array([False, True, False, False] * 5)}
    assert halfseen.describe(frame, kept=kept).n_duplicated_rows == 0


def test_values_that_cannot_be_compared_leave_the_number_of_duplicates_open():
    table = pa.table({"x": [1.0, None, 1.0], "list": [[1], [2], [3]]})
    assert halfseen.describe(table).n_duplicated_rows is None
    apart = pa.table({"x": [1.0, None, 2.0], "list": [[1], [2], [3]]})
    assert halfseen.describe(apart).n_duplicated_rows == 0
