"""Numbers such as 999 that stand for something else: written again, seen by no model, also in new files."""

import json
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halfseen.cli.main import main
from halfseen.cli.placeholders import find_placeholders
from halfseen.cli.rules import ColumnRules
from halfseen.cli.tables import read_table

AGES = [str(20 + 7 * k % 60) for k in range(45)] + ["999"] * 5 + [""] * 5
TEXT = "age,x\n" + "".join(f"{age},{k}\n" for k, age in enumerate(AGES))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(TEXT)
    return path


def impute(source, target, *options):
    assert main(["impute", str(source), "-o", str(target), "--method", "gaussian", *options]) == 0
    return read_table(str(target), overrides={"age": {"placeholder": []}}).table["age"].to_pylist()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "xlsx"])
def test_placeholders_stay_and_do_not_move_imputed_values(source, tmp_path, suffix):
    if suffix == "xlsx":
        pytest.importorskip("openpyxl")
    ages = impute(source, tmp_path / f"out.{suffix}")
    assert ages[:50] == [int(age) for age in AGES[:50]]
    assert all(20 <= age <= 80 for age in ages[50:])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_placeholders_of_a_typed_file_stay(tmp_path, suffix):
    pq.write_table(
        pa.table({"age": [int(age) if age else None for age in AGES], "x": range(55)}),
        tmp_path / "in.parquet",
    )
    ages = impute(tmp_path / "in.parquet", tmp_path / f"out.{suffix}")
    assert ages[45:50] == [999] * 5
    assert all(20 <= age <= 80 for age in ages[50:])


def test_placeholders_are_values_if_the_schema_says_so(source, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"columns": {"age": {"placeholder": []}}}))
    assert max(impute(source, tmp_path / "out.csv", "--schema", str(schema))[50:]) > 80


def test_several_files_have_the_placeholders_of_all_their_rows(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(TEXT)
    rows = "".join(f"{30 + k},{k}\n" for k in range(30))
    (tmp_path / "in" / "b.csv").write_text(f"age,x\n{rows}999,3\n,4\n")
    (tmp_path / "out").mkdir()
    options = ["--method", "gaussian", "-o", str(tmp_path / "out")]
    assert main(["impute", str(tmp_path / "in"), *options]) == 0
    last, filled = (tmp_path / "out" / "b.csv").read_text().splitlines()[-2:]
    assert last == "999,3"
    assert 20 <= float(filled.split(",")[0]) <= 80


def test_a_model_knows_the_placeholders_of_its_training_file(source, tmp_path, capsys):
    model = tmp_path / "m.halfseen"
    impute(source, tmp_path / "out.csv", "--save-model", str(model))
    new = tmp_path / "new.csv"
    new.write_text("age,x\n999,1\n,2\n40,3\n")
    capsys.readouterr()
    assert main(["impute", str(new), "--model", str(model), "-o", str(tmp_path / "new.out.csv")]) == 0
    assert "1 cell contains a placeholder (999): kept and not used by the model" in capsys.readouterr().err
    assert (tmp_path / "new.out.csv").read_text().splitlines()[1] == "999,1"


def test_a_report_counts_placeholders_neither_as_missing_nor_as_filled(source, tmp_path):
    impute(source, tmp_path / "out.csv", "--report", str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text()
    assert "5 values of this table" in page
    assert "10 values of this table" not in page


def test_declared_placeholders_must_be_numbers(source, tmp_path, capsys):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"columns": {"age": {"placeholder": ["unknown"]}}}))
    assert main(["impute", str(source), "-o", str(tmp_path / "o.csv"), "--schema", str(schema)]) == 2
    assert "placeholder must be a list of numbers" in capsys.readouterr().err


def test_other_columns_have_no_placeholders():
    assert find_placeholders("x", pa.array(["a", None]), ColumnRules()) == (None, [])


def test_notes_that_are_alike_are_shown_thrice(tmp_path):
    names = [f"q{k}" for k in range(8)]
    rows = [[str(1 + (k + j) % 5) if k % 9 else "98" for j in range(8)] for k in range(60)]
    (tmp_path / "in.csv").write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    notes = read_table(str(tmp_path / "in.csv")).notes
    assert [note[:11] for note in notes[:3]] == ["column 'q0'", "column 'q1'", "column 'q2'"]
    assert notes[3:] == ("the same applies to 5 columns: 'q3', 'q4', 'q5', 'q6' and 'q7'",)


def test_first_days_are_named_beside_placeholders():
    days = pa.array(
        [date(2020, 1, k) for k in range(1, 29)] + [date(9999, 12, 31)] * 2 + [date(1900, 1, 1)] * 2
    )
    held, (placeholders, first) = find_placeholders("when", days, ColumnRules())
    assert held.true_count == 2
    assert "2 cells contain '9999-12-31'" in placeholders
    assert "2 cells contain 1900-01-01" in first


def test_notes_of_typed_files_are_summarised_too(tmp_path):
    columns = {name: [1, 2, 3, 4, 5, 98, 98] for name in "abcdefgh"}
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    notes = read_table(str(tmp_path / "in.parquet")).notes
    assert len(notes) == 4
    assert notes[-1] == "the same applies to 5 columns: 'd', 'e', 'f', 'g' and 'h'"
