"""Small dirty files through `halfseen impute`: each column comes to what `tests/corpus/expected.py` says."""

import csv
import re
from pathlib import Path

import pytest
from corpus.expected import CORPUS, PENDING

import halfseen
from halfseen.cli.main import main
from halfseen.cli.tables import read_table

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
def test_every_column_comes_to_its_expected_outcome(name, tmp_path, capsys):
    expected = CORPUS[name]
    source, output, model = FOLDER / f"{name}.csv", tmp_path / "out.csv", tmp_path / "model"
    command = ["impute", str(source), "-o", str(output), "--save-model", str(model), *expected.options]
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
        assert sum(line.startswith("note") for line in said) == expected.n_notes, said


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
