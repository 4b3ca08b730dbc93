"""Small dirty files through `halfseen impute`: each column comes to what `tests/corpus/expected.py` says."""

import csv
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from corpus.expected import CORPUS, PENDING

import halfseen
from halfseen.cli.main import main
from halfseen.files.tables import read_table

FOLDER = Path(__file__).parent.parent / "corpus"


def cases():
    """The files by name; those that do not yet come out right are expected to fail."""
    return [
        pytest.param(
            name,
            marks=[pytest.mark.xfail(raises=(AssertionError, AttributeError))] if name in PENDING else [],
        )
        for name in CORPUS
    ]


def texts(path, like):
    with open(path, newline="", encoding=like.dialect.encoding) as file:
        rows = list(csv.DictReader(file, delimiter=like.dialect.delimiter))
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("name", cases())
def test_every_column_has_its_expected_outcome(name, tmp_path, capsys):
    expected = CORPUS[name]
    source, output, model = FOLDER / f"{name}.csv", tmp_path / "out.csv", tmp_path / "model"
    command = ["impute", str(source), "-o", str(output), "--save-model", str(model), "-v", *expected.options]
    assert main(command) == 0
    said = [" ".join(line.split(maxsplit=1)) for line in capsys.readouterr().err.splitlines()]
    read = read_table(str(source))
    before, after = texts(source, read), texts(output, read)
    imputer = halfseen.load(model)
    assert list(after) == list(before) == list(expected.columns)
    for column, outcome in expected.columns.items():
        check_column(column, outcome, read.table[column].is_null().to_pylist(), before, after)
        reason = imputer.columns_left_.get(column, "")
        assert bool(reason) == bool(outcome.why), (column, reason)
        assert re.search(outcome.why, reason), (column, reason)
    for pattern in expected.says:
        assert any(re.search(" ".join(pattern.split()), line) for line in said), (pattern, said)
    if expected.n_notes is not None:
        assert sum(line.startswith(("note", "warning")) for line in said) == expected.n_notes, said


def check_column(column, outcome, holes, before, after):
    """Observed cells keep their text; missing ones are filled or left as the outcome says."""
    assert sum(holes) == outcome.missing, column
    blank = [cell == "" for cell in after[column]]
    for row, hole in enumerate(holes):
        if not hole:
            assert after[column][row] == before[column][row], (column, row)
        elif not blank[row]:
            assert re.fullmatch(outcome.written or ".+", after[column][row]), (column, row)
    if outcome.left is not None:
        assert sum(blank) == outcome.left, column
    if outcome.where is not None:
        applies = [any(after[c][row] in v for c, v in outcome.where.items()) for row in range(len(holes))]
        assert blank == [hole and off for hole, off in zip(holes, applies, strict=True)], column


def test_every_file_of_the_corpus_has_its_outcome_written_down():
    assert sorted(path.stem for path in FOLDER.glob("*.csv")) == sorted(CORPUS)


def test_options_fill_what_would_be_left_empty(tmp_path, capsys):
    output = str(tmp_path / "out.csv")
    assert main(["impute", str(FOLDER / "checkboxes.csv"), "-o", output, "--fill-all"]) == 0
    assert "left missing" not in capsys.readouterr().err
    after = texts(output, read_table(output))
    assert {name: "" in cells for name, cells in after.items()} == dict.fromkeys(after, False)
    assert set(after["deceased"]) == {"yes"}


def test_options_and_the_schema_file_switch_off_skip_rules(tmp_path, capsys):
    output, schema = str(tmp_path / "out.csv"), tmp_path / "schema.json"
    command = ["impute", str(FOLDER / "clinic.csv"), "-o", output, "--method", "gaussian", "--overwrite"]
    schema.write_text('{"columns": {"weeks": {"skip": {"column": "sex", "values": ["m"]}}}}')
    for options, left in {
        ("--no-skip-rules",): {"pregnant": 0, "weeks": 0},
        ("--no-skip-rules", "--schema", str(schema)): {"pregnant": 0, "weeks": 70},
        ("--schema", str(schema)): {"pregnant": 70, "weeks": 70},
    }.items():
        assert main([*command, *options]) == 0
        after = texts(output, read_table(output))
        assert {name: after[name].count("") for name in left} == left, capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--fill-all",), {"zip": 0, "consent": 0, "income": 0}),
        (("--leave-unreliable",), {"zip": 53, "consent": 134, "income": 0}),
        (("--method", "mean"), {"zip": 0, "consent": 0, "income": 0}),
        (("--method", "mean", "--leave-unreliable"), {"zip": 53, "consent": 134, "income": 40}),
        (("--draws", "2"), {"zip": 0, "consent": 0, "income": 0}),
        (("--draws", "2", "--leave-unreliable"), {"zip": 106, "consent": 268, "income": 0}),
    ],
)
def test_options_decide_what_becomes_of_columns_that_cannot_be_predicted(options, left, tmp_path, capsys):
    output = str(tmp_path / "out.csv")
    command = ["impute", str(FOLDER / "consents.csv"), "-o", output, "--method", "gaussian"]
    assert main([*command, *options]) == 0, capsys.readouterr().err
    after = texts(output, read_table(output))
    assert {name: after[name].count("") for name in left} == left


def test_the_report_gives_the_reason_for_columns_left_empty_by_their_verdict(tmp_path, capsys):
    output, report = str(tmp_path / "out.csv"), tmp_path / "report.html"
    command = ["impute", str(FOLDER / "consents.csv"), "-o", output, "--method", "gaussian"]
    assert main([*command, "--report", str(report), "--leave-unreliable"]) == 0, capsys.readouterr().err
    page = report.read_text(encoding="utf-8")
    assert "Is filled no better than by the most frequent level (0% correct" in page
    assert main([*command, "--fill-all", "--leave-unreliable"]) == 2
    assert "contradicts --fill-all" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_files_with_lists_pass_through(suffix, tmp_path, capsys):
    write = {"parquet": pyarrow.parquet.write_table, "feather": pyarrow.feather.write_feather}[suffix]
    source, output, report = (tmp_path / name for name in (f"in.{suffix}", f"out.{suffix}", "report.html"))
    table = pa.table(
        {
            "x": [1.5, None, 2.5, 4.0],
            "tags": [["a"], None, [], ["b", "c"]],
            "blob": [b"\xff", None, b"", b"1"],
            "place": [{"lat": 1.0}, None, {"lat": None}, {"lat": 2.0}],
            "level": pa.array(["u", None, "v", "u"]).dictionary_encode(),
        }
    )
    write(table, source)
    assert main(["impute", str(source), "-o", str(output), "--report", str(report)]) == 0
    after = read_table(str(output)).table
    assert after.select(["tags", "blob", "place"]).equals(table.select(["tags", "blob", "place"]))
    assert after["x"].null_count == after["level"].null_count == 0
    assert (
        "Column 'blob' has the type binary, which is not supported; its 1 missing" in capsys.readouterr().err
    )
    assert "Has the type binary, which is not supported." in report.read_text()
    assert main(["impute", str(source), "-o", str(tmp_path / "out.csv")]) == 2
    assert re.search(
        "column 'tags' has the type list<.*>, which a csv file cannot store", capsys.readouterr().err
    )
