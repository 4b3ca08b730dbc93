"""Numbers such as 999 that stand for something else: written again, seen by no model, also in new files."""

import json
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halfseen.cli.main import main
from halfseen.files.missing_codes import find_placeholders
from halfseen.files.rules import ColumnRules
from halfseen.files.tables import read_table

AGES = [str(20 + 7 * k % 60) for k in range(45)] + ["999"] * 5 + [""] * 5
TEXT = "age,x\n" + "".join(f"{age},{k}\n" for k, age in enumerate(AGES))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(TEXT)
    return path


def impute(source, target, *options):
    assert main(["impute", str(source), "-o", str(target), "--method", "gaussian", *options]) == 0
    return read_table(str(target), schema={"age": {"placeholder": []}}).table["age"].to_pylist()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "xlsx"])
def test_placeholders_are_kept_and_do_not_influence_imputed_values(source, tmp_path, suffix):
    ages = impute(source, tmp_path / f"out.{suffix}")
    assert ages[:50] == [int(age) for age in AGES[:50]]
    assert all(20 <= age <= 80 for age in ages[50:])


@pytest.mark.parametrize(("code", "dtype"), [(-999, pa.float32()), (-32768, pa.int16()), (9999, pa.int64())])
def test_placeholders_in_most_cells_are_kept_and_do_not_influence_imputed_values(tmp_path, code, dtype):
    ages = [20 + 7 * k % 60 for k in range(45)] + [code] * 60 + [None] * 5
    table = pa.table({"age": pa.array(ages, dtype), "x": range(110)})
    pq.write_table(table, tmp_path / "in.parquet")
    found = impute(tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert found[:105] == ages[:105]
    assert all(20 <= age <= 80 for age in found[105:])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_placeholders_of_a_parquet_file_are_kept_in_every_output_format(tmp_path, suffix):
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


def test_placeholders_of_several_files_are_found_in_all_rows_together(tmp_path):
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


def test_columns_of_text_have_no_placeholders():
    assert find_placeholders("x", pa.array(["a", None]), ColumnRules()) == (None, [])


def test_only_three_of_many_similar_notes_are_shown(tmp_path):
    names = [f"q{k}" for k in range(8)]
    rows = [[str(1 + (k + j) % 5) if k % 9 else "98" for j in range(8)] for k in range(60)]
    (tmp_path / "in.csv").write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    notes = read_table(str(tmp_path / "in.csv")).notes
    assert [note[:11] for note in notes[:3]] == ["column 'q0'", "column 'q1'", "column 'q2'"]
    assert notes[3:] == ("the same applies to 5 columns: 'q3', 'q4', 'q5', 'q6' and 'q7'",)


def test_suspected_first_days_of_a_calendar_are_reported_beside_placeholders():
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


def write_for_description(path):
    """Writes ages in which 999 goes together with missing incomes, and dates with 9999-12-31."""
    lines = ["age,income,until"]
    for k in range(200):
        coded = k % 10 == 0
        day = "9999-12-31" if k % 20 == 5 else f"2021-{1 + k % 12:02d}-{1 + k % 28:02d}"
        lines.append(
            f"{999 if coded else 20 + 7 * k % 60},{'' if coded or k % 9 == 0 else 100 + k % 37},{day}"
        )
    path.write_text("\n".join([*lines, ""]))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_description_has_placeholders_neither_as_missing_nor_as_values(tmp_path, capsys, suffix):
    source = tmp_path / "in.csv"
    write_for_description(source)
    if suffix == "parquet":
        table = read_table(str(source)).as_written().table
        source = tmp_path / "in.parquet"
        pq.write_table(table, source)
    assert main(["describe", str(source), "--json"]) == 0
    out, error = capsys.readouterr()
    found = json.loads(out)
    assert [one["n_missing"] for one in found["columns"]] == [0, 40, 0]
    assert "30 placeholders in 'age' and 'until': described neither as values nor as missing" in error
    # Where income is missing, known ages are not higher; with 999 among them they would be.
    pairs = [
        one for one in found["associations"]["pairs"] if (one["about"], one["other"]) == ("value", "age")
    ]
    assert pairs
    assert all(one["when_missing"] < 100 and one["n_rows"] == 180 for one in pairs)
    assert found["little"]["notes"][-1] == "Placeholders count as missing in this test."


def test_one_note_counts_the_placeholders_of_a_description_and_of_its_reference(tmp_path, capsys):
    write_for_description(tmp_path / "in.csv")
    write_for_description(tmp_path / "old.csv")
    arguments = ["describe", str(tmp_path / "in.csv"), "--against", str(tmp_path / "old.csv"), "--json"]
    assert main(arguments) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if "described neither" in line]
    assert len(notes) == 1
    assert (
        "30 placeholders in 'age' and 'until' and 30 placeholders in 'age' and 'until' of the reference table"
        in notes[0]
    )


def test_a_description_has_placeholders_as_values_if_the_schema_says_so(tmp_path, capsys):
    write_for_description(tmp_path / "in.csv")
    (tmp_path / "s.json").write_text(json.dumps({"columns": {"age": {"placeholder": []}}}))
    arguments = ["describe", str(tmp_path / "in.csv"), "--schema", str(tmp_path / "s.json"), "--json"]
    assert main(arguments) == 0
    out, error = capsys.readouterr()
    pairs = [one for one in json.loads(out)["associations"]["pairs"] if one["other"] == "age"]
    assert any(one["when_missing"] > 100 for one in pairs)
    assert "10 placeholders in 'until': described neither" in error


def test_the_report_of_a_description_has_no_placeholders_among_values(tmp_path):
    write_for_description(tmp_path / "in.csv")
    report = tmp_path / "r.html"
    assert main(["describe", str(tmp_path / "in.csv"), "--report", str(report), "-q"]) == 0
    notes, results = report.read_text(encoding="utf-8").split('id="missing"')
    assert "described neither as values nor as missing" in notes
    assert "999" not in results
