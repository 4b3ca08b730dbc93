"""Folders and patterns of files, JSON lines and spreadsheets."""

import json

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest

from halfseen.files.tables import read_table
from halfseen.files.writing import write_tables


@pytest.fixture
def folder(tmp_path):
    """A folder with parts of one table in three formats, and a file that is no table."""
    rng = np.random.default_rng(0)
    place = tmp_path / "data"
    place.mkdir()
    (tmp_path / "out").mkdir()
    parts = []
    for _ in range(3):
        x = rng.normal(size=60).round(3)
        rows = [{"x": float(v), "y": None if i % 5 == 1 else float(round(2 * v, 3))} for i, v in enumerate(x)]
        parts.append(rows)
    lines = [f"{row['x']},{'' if row['y'] is None else row['y']}" for row in parts[0]]
    (place / "a.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    pa.parquet.write_table(pa.Table.from_pylist(parts[1]), place / "b.parquet")
    (place / "c.jsonl").write_text("\n".join(json.dumps(row) for row in parts[2]) + "\n")
    (place / "notes.pdf").write_text("no table")
    return place


def n_missing(path):
    return sum(column.null_count for column in read_table(str(path)).table.columns)


def test_the_files_of_a_folder_are_imputed_together_into_another(call, folder, tmp_path):
    code, out, err = call("impute", "data", "-o", "out", "--save-model", "m.half", "--method", "gaussian")
    assert (code, out) == (0, ""), err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.csv", "b.parquet", "c.jsonl"]
    assert [n_missing(path) for path in sorted((tmp_path / "out").iterdir())] == [0, 0, 0]
    assert "fitting  gaussian, 3 files, data/a.csv to data/c.jsonl" in err
    before = [json.loads(line) for line in (folder / "c.jsonl").read_text().splitlines()]
    after = [json.loads(line) for line in (tmp_path / "out" / "c.jsonl").read_text().splitlines()]
    for one, other in zip(before, after, strict=True):
        assert one["y"] is None or one == other
        assert abs(other["y"] - 2 * other["x"]) < 0.1
    code, _, err = call("impute", "data", "-o", "out", "--model", "m.half")
    assert code == 2
    assert "out/a.csv: --output: the file exists; --overwrite replaces it" in err
    assert call("impute", "data", "-o", "out", "--model", "m.half", "--overwrite")[0] == 0


def test_outputs_beside_the_files_have_a_word_in_their_names(call, folder):
    call("impute", "data/a.csv", "-o", "whole.csv", "--save-model", "m.half", "--method", "mean", "-q")
    code, _, err = call("impute", "data/[ab].*", "--model", "m.half", "-o", "data")
    assert code == 0, err
    assert {"a.imputed.csv", "b.imputed.parquet"} < {path.name for path in folder.iterdir()}


def test_a_pattern_is_one_training_table_and_each_new_file_is_predicted(call, folder, tmp_path):
    options = ("--target", "y", "--save-model", "m.half", "--method", "boosting")
    code, _, err = call("fit", "data/*[vtl]", *options)
    assert code == 0, err
    assert "3 files, data/a.csv to data/c.jsonl: 180 rows, 2 columns" in err
    code, _, err = call("predict", "m.half", "data/*.[cj]*", "-o", "out")
    assert code == 0, err
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["a.csv", "c.jsonl"]
    first = json.loads((tmp_path / "out" / "c.jsonl").read_text().splitlines()[0])
    assert list(first) == ["x", "y", "prediction", "prediction_low", "prediction_high"]


def test_several_files_are_described_as_one_table(call, folder):
    code, out, err = call("describe", "data")
    assert code == 0, err
    assert "180 rows" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["impute", "data", "-o", "one.csv"], "one.csv: data names 3 files, which need an existing folder"),
        (["impute", "gone*.csv", "-o", "out"], "gone*.csv: no file matches"),
        (["impute", "out", "-o", "x.csv"], "out: the folder has no table files"),
        (
            ["impute", "data", "-o", "out", "--report", "r.html"],
            "--report describes one table, and data names 3",
        ),
        (["fit", "mixed", "--target", "y", "--save-model", "m"], "column 'x' is double in mixed/a.csv and"),
    ],
)
def test_errors_with_several_files_name_the_problem(call, folder, tmp_path, arguments, message):
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_text("x,y\n1.5,2\n2.5,3\n")
    (tmp_path / "mixed" / "b.csv").write_text("x,y\nred,2\nblue,3\n")
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        (b"[1, 2]\n", "line 1 is not an object with keys"),
        (b"{}\n", "no line has a key"),
        (b'{"a": "\xff"}\n', "not UTF-8"),
    ],
)
def test_broken_json_lines_are_refused_with_their_line(tmp_path, content, message):
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(str(tmp_path / "t.jsonl"))


def test_json_lines_keep_keys_that_come_later_and_texts_as_they_are(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"a": 1.50, "d": "2020-01-02T03:04:05"}\n{"a": null, "s": "007"}\n')
    file = read_table(str(tmp_path / "t.jsonl"))
    assert file.table.column_names == ["a", "d", "s"]
    assert file.table["a"].to_pylist() == [1.5, None]
    assert pa.types.is_timestamp(file.table["d"].type)
    write_tables([file.table], str(tmp_path / "u.jsonl"), file)
    assert [json.loads(line) for line in (tmp_path / "u.jsonl").read_text().splitlines()] == [
        {"a": 1.5, "d": "2020-01-02T03:04:05"}, {"a": None, "s": "007"},
    ]  # fmt: skip


def test_a_spreadsheet_is_read_and_written(call, tmp_path):
    book = openpyxl.Workbook()
    for row in [["x", "y", "s"], *([i / 2, None if i == 3 else i, "ab"[i % 2]] for i in range(30))]:
        book.active.append(row)
    book.create_sheet("other")
    book.save(tmp_path / "t.xlsx")
    code, _, err = call("impute", "t.xlsx", "-o", "u.xlsx")
    assert code == 0, err
    assert "sheet 'Sheet' is read; the other sheet is not" in err
    rows = list(openpyxl.load_workbook(tmp_path / "u.xlsx").active.iter_rows(values_only=True))
    assert rows[0] == ("x", "y", "s")
    assert rows[1] == (0, 0, "a")
    assert abs(rows[4][1] - 3) < 1
    (tmp_path / "bad.xlsx").write_bytes(b"PK no spreadsheet")
    code, _, err = call("impute", "bad.xlsx", "-o", "v.xlsx")
    assert code == 2
    assert "bad.xlsx: not a readable xlsx file" in err


def test_a_pattern_that_the_shell_has_expanded_is_explained(run, folder):
    code, _, err = run("impute", "data/a.csv", "data/b.parquet", "-o", "out")
    assert code == 2
    assert "unexpected extra argument(s) (data/b.parquet); several files are named by a folder" in err
