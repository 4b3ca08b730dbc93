"""Files as people export them: every column becomes what was written down before the code."""

import re
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from corpus.expected_cells import EXPECTED, PENDING

from halfseen.cli.main import main
from halfseen.files.formats import format_cells
from halfseen.files.tables import read_table
from halfseen.files.writing import write_tables

FOLDER = Path(__file__).parents[1] / "corpus" / "formats"
UNREACHED = pytest.mark.xfail(strict=False, raises=(AssertionError, TypeError, pa.ArrowInvalid))
COLUMNS = [
    pytest.param(file, column, marks=UNREACHED if file in PENDING else ())
    for file, columns in EXPECTED.items()
    for column in columns
]


@cache
def read(name):
    return read_table(str(FOLDER / name))


@pytest.mark.parametrize("name", EXPECTED)
def test_every_column_of_a_file_has_an_expected_outcome(name):
    assert read(name).table.column_names == list(EXPECTED[name])


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_a_column_is_read_as_expected(name, column):
    file, expected = read(name), EXPECTED[name][column]
    typed = file.table[column]
    assert str(typed.type) == expected.dtype
    assert typed[0].as_py() == expected.first
    kept = file.kept[column].true_count if column in file.kept else 0
    assert (typed.null_count - kept, kept) == (expected.missing, expected.kept)
    assert file.settings.get(column, {}) == expected.settings


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_a_column_is_announced_as_expected(name, column):
    notes = [note for note in read(name).notes if repr(column) in note]
    expected = EXPECTED[name][column].says
    for pattern in expected:
        assert any(re.search(pattern, note) for note in notes), (pattern, notes)
    assert bool(notes) == bool(expected), notes


@pytest.mark.parametrize(("name", "column"), COLUMNS)
def test_a_missing_cell_is_filled_in_the_format_of_its_column(name, column):
    file, expected = read(name), EXPECTED[name][column]
    values = pa.array(list(expected.writes), file.table[column].type)
    assert format_cells(values, file.styles[column]).to_pylist() == list(expected.writes.values())


@pytest.mark.parametrize("name", EXPECTED)
def test_observed_cells_are_written_unchanged(name, tmp_path):
    file = read(name)
    write_tables([file.table], str(tmp_path / name), file)
    assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[*([UNREACHED] * (name in PENDING)), *([pytest.mark.slow] if i % 3 else [])])
        for i, name in enumerate(EXPECTED)
    ],
)
def test_an_imputed_file_is_read_as_its_original_was(name, tmp_path):
    assert main(["impute", str(FOLDER / name), "-o", str(tmp_path / name), "--quiet"]) == 0
    before, after = read(name), read_table(str(tmp_path / name))
    assert after.table.schema == before.table.schema
    for column, expected in EXPECTED[name].items():
        kept = before.kept.get(column, pa.repeat(False, before.table.num_rows))
        observed = pc.or_(before.table[column].is_valid().combine_chunks(), kept)
        old, new = before.text[column].filter(observed), after.text[column].filter(observed)
        assert new.equals(old), column
        n_left = expected.missing if expected.settings.get("fill") is False else 0
        if n_left or expected.dtype != "string":  # identifiers and free text are left empty as well
            assert after.table[column].null_count == expected.kept + n_left, column
