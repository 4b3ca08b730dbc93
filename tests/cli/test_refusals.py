"""What a command cannot use is refused in one line that names the file, the column and the row."""

import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet
import pytest

import halfseen
from halfseen.files.tables import read_table

N = 40
X = np.random.default_rng(0).normal(size=N).round(3)


def table(column):
    gaps = pa.array(X, mask=np.arange(N) % 7 == 0)
    return pa.table({"x": gaps, "y": 2 * X, "d": column})


def dictionary(values):
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(N) % len(values), pa.int8()), pa.array(values))


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(),
    N,
    [None, pa.py_buffer(np.arange(N + 1, dtype=np.int32)), pa.py_buffer(b"aaaaa" + b"\xff" * 35)],
)


@pytest.fixture
def impute(call, tmp_path):
    """Imputes a table by files of two formats, whose output must not be written if it is refused."""

    def run(column, output, suffix="feather"):
        write = {"feather": pyarrow.feather.write_feather, "parquet": pyarrow.parquet.write_table}[suffix]
        write(table(column), tmp_path / f"t.{suffix}")
        code, _, err = call("impute", f"t.{suffix}", "-o", output, "--method", "gaussian", "-q")
        assert code == (0 if (tmp_path / output).exists() else 2), err
        assert len(err.splitlines()) == code // 2
        return err

    return run


@pytest.mark.parametrize("values", [[{"a": 1}, {"a": 2}], [[1], [2, 3]], [b"\xff", b"a"]], ids=str)
def test_dictionaries_of_values_that_are_no_levels_pass_through(values, impute, tmp_path):
    assert impute(dictionary(values), "u.feather") == ""
    after = read_table(str(tmp_path / "u.feather")).table
    assert after["d"].to_pylist() == table(dictionary(values))["d"].to_pylist()
    assert after["x"].null_count == 0


@pytest.mark.parametrize(
    ("column", "output", "message"),
    [
        (dictionary([{"a": 1}]), "u.parquet", "a parquet file cannot store; write feather instead"),
        (dictionary([b"\xff"]), "u.csv", "a csv file cannot store; write parquet or feather instead"),
        (dictionary([b"\xff"]), "u.jsonl", "a jsonl file cannot store; write parquet or feather instead"),
        (pc.run_end_encode(pa.array(["a"] * N)), "u.parquet", "a parquet file cannot store; write feather"),
        (pc.run_end_encode(pa.array(["a"] * N)), "u.csv", "a csv file cannot store; write feather instead"),
        (pa.array([pa.MonthDayNano([1, 2, 3])] * N), "u.csv", "a csv file cannot store; write feather"),
        (pa.array([[b"\xff"]] * N), "u.jsonl", "a jsonl file cannot store; write parquet or feather"),
    ],
)
def test_types_that_an_output_cannot_store_are_refused_before_fitting(
    column, output, message, impute, monkeypatch
):
    monkeypatch.setattr(halfseen.GaussianImputer, "fit", lambda self, table: pytest.fail("it was fitted"))
    err = impute(column, output)
    assert f"{output}: column 'd' has the type" in err
    assert message in err


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array(np.arange(N), pa.timestamp("us", "Mars/Olympus")),
            "column 'd' has the time zone 'Mars/Olympus', which is not known on this machine",
        ),
        (NOT_UTF8, r"column 'd', row 6 (counted from 1): the text b'\xff' is not UTF-8"),
        (NOT_UTF8.dictionary_encode(), r"column 'd', row 6 (counted from 1): the text b'\xff' is not UTF-8"),
        (
            pa.ListArray.from_arrays(np.arange(N + 1), NOT_UTF8),
            "column 'd' contains a text that is not UTF-8",
        ),
    ],
    ids=["zone", "text", "dictionary", "list"],
)
def test_columns_that_cannot_be_read_are_named(column, message, suffix, impute):
    assert f"t.{suffix}: {message}" in impute(column, f"u.{suffix}", suffix)


@pytest.mark.parametrize("suffix", ["feather", "parquet"])
def test_column_names_that_are_not_utf8_are_shown(suffix, call, tmp_path):
    path = tmp_path / f"t.{suffix}"
    named = table(pa.array(X)).rename_columns(["x", "y", "zzzz"])
    if suffix == "feather":
        pyarrow.feather.write_feather(named, path)
    else:
        pyarrow.parquet.write_table(named, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"zzzz", b"zz\xffz"))
    for arguments in (("describe", path.name), ("impute", path.name, "-o", "out.parquet")):
        code, _, err = call(*arguments)
        assert code == 2
        assert rf"{path.name}: the name of a column, b'zz\xffz', is not UTF-8; rename the column" in err


@pytest.mark.skipif(os.name == "nt", reason="file names are texts there")
def test_file_names_that_are_not_utf8_appear_in_reports_with_a_question_mark(call, tmp_path):
    name = os.fsdecode(b"n\xff.csv")
    (tmp_path / name).write_text("x,y\n" + "".join(f"{i % 5 or ''},{i}\n" for i in range(20)))
    code, _, err = call("describe", name, "--report", "r.html")
    assert code == 0, err
    assert "n?.csv" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--null", "\udcff"], "--null '\\udcff' is not UTF-8, so no cell contains it"),
        (["--derived", "y = x * " + "9" * 400], "has a number beyond the range of floating-point numbers"),
        (["--derived", "y = x * 1e999"], "has a number beyond the range of floating-point numbers"),
        (["--derived", "y = \udcff"], "The formula '\\udcff' cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_named(options, message, call, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n,3\n2,5\n")
    code, _, err = call("impute", "t.csv", "-o", "u.csv", "--method", "mean", *options)
    assert code == 2
    assert message in err
    assert not (tmp_path / "u.csv").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[" * 100_000 + "]" * 100_000, "The schema file 's.json' is nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "The schema file 's.json' is nested too deeply"),
        ({"minimum": 5, "maximum": 1}, "Column 'x': minimum 5 is above maximum 1"),
        ({"censored_below": 2, "censored_above": 1}, "censored_below 2 is above censored_above 1"),
        ({"minimum": 0, "censored_below": -5}, "Column 'x': censored_below -5 is below minimum 0"),
        ({"maximum": 10, "censored_above": 50}, "Column 'x': censored_above 50 is above maximum 10"),
        ({"censored_below": 1e300}, "all values are beyond censored_below 1e\\+300, so that no exact value"),
        ('{"minimum": ' + "9" * 400 + "}", "Column 'x': minimum must be a number, got inf"),
        ('{"minimum": ' + "9" * 5000 + "}", "Column 'x': minimum must be a number, got inf"),
        ('{"placeholder": [' + "9" * 400 + "]}", "placeholder must be a list of numbers such as \\[999\\]"),
        ({"null": ["\ud800"]}, "schema of column 'x': null '.ud800' is not UTF-8"),
    ],
    ids=lambda one: str(one)[:30],
)
def test_schemas_that_cannot_hold_are_refused(settings, message, call, tmp_path):
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (tmp_path / "s.json").write_text(f'{{"columns": {{"x": {text}}}}}')
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{x if i % 7 else ''},1\n" for i, x in enumerate(X)))
    code, _, err = call("impute", "t.csv", "-o", "u.csv", "--method", "gaussian", "--schema", "s.json", "-q")
    assert code == 2
    assert re.search(message, err), err
    assert not (tmp_path / "u.csv").exists()


@pytest.mark.parametrize(
    "settings", [{"minimum": -1e300}, {"maximum": 1e300}, {"minimum": -1e300, "maximum": 1e300}]
)
def test_bounds_far_from_the_values_change_nothing(settings):
    frame = table(pa.array(X)).drop_columns("d")
    plain = halfseen.GaussianImputer(random_state=0).fit(frame).transform(frame)
    bounded = halfseen.GaussianImputer(schema={"x": settings}, random_state=0).fit(frame).transform(frame)
    np.testing.assert_allclose(bounded["x"], plain["x"], rtol=0.2, atol=0.05)
