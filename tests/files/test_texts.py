"""Cells as they are written: kept compressed, and the same when they are needed again."""

import numpy as np
import pyarrow as pa
import pytest

from halfseen.files import table_file
from halfseen.files.table_file import CellTexts
from halfseen.files.tables import read_table
from halfseen.files.writing import write_tables


def strings(*cells):
    return pa.array(cells, pa.large_string())


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(table_file, "CELLS_AT_ONCE", 3)


@pytest.mark.usefixtures("small_blocks")
def test_records_come_back_whichever_rows_are_set_aside():
    cells = [f"{number}.0" for number in range(10)]
    aside = [number in (0, 4, 9) for number in range(10)]
    kept = CellTexts.of(pa.table({"a": strings(*cells)}), aside)
    records = [cell for cell, other in zip(cells, aside, strict=True) if not other]
    assert kept["a"].to_pylist() == records
    blocks = list(kept.blocks())
    assert [cell for block in blocks for cell in block.of_records("a").to_pylist()] == records
    assert [(block.records.start, block.records.stop) for block in blocks] == [(0, 2), (2, 4), (4, 7), (7, 7)]
    again = [block.with_records("a", block.of_records("a")) for block in blocks]
    assert pa.concat_arrays(again).to_pylist() == cells


@pytest.mark.usefixtures("small_blocks")
def test_columns_are_added_replaced_and_left_out():
    kept = CellTexts.of(
        pa.table({"a": strings("1", "Total", "2"), "b": strings("x", "y", "z")}), [False, True, False]
    )
    changed = kept.with_columns({"a": strings("3", "4"), "new": strings("5", "6")}).without(["b"])
    assert changed.column_names == ["a", "new"]
    blocks = list(changed.blocks())
    assert len(blocks) == 3  # of one row each, because the table had two columns
    written = {name: [block.cells[name][0].as_py() for block in blocks] for name in ("a", "new")}
    assert written == {"a": ["3", "Total", "4"], "new": ["5", "", "6"]}
    assert kept["a"].to_pylist() == ["1", "2"]


@pytest.mark.usefixtures("small_blocks")
def test_a_file_is_written_block_by_block_as_it_was(tmp_path):
    lines = ["x,note", "cm,", *(f"{number}.50,n{number}" for number in range(9)), "Total,40.5"]
    source, target = tmp_path / "a.csv", tmp_path / "b.csv"
    source.write_text("\n".join([*lines, ""]))
    file = read_table(str(source))
    assert file.table.num_rows == 9
    write_tables([file.table, file.table], str(target), file, draw="draw")
    written = target.read_text().splitlines()
    assert written[0] == "draw," + lines[0]
    assert written[1:] == [f"{draw},{line}" for draw in (1, 2) for line in lines[1:]]


def test_texts_take_less_memory_than_the_values(tmp_path):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(20_000, 5)).round(3)
    source = tmp_path / "a.csv"
    np.savetxt(source, numbers, "%.3f", ",", header="a,b,c,d,e", comments="")
    file = read_table(str(source))
    packed = sum(buffer.size for buffers in file.text.packed.values() for buffer in buffers)
    assert packed < file.table.nbytes / 2


def test_short_columns_are_not_compressed_and_long_ones_are():
    short, long = strings(*"abc"), strings(*["x" * 100] * 1000)
    kept = CellTexts.of(pa.table({"a": short}))
    assert isinstance(kept.packed["a"][0], pa.Array)
    assert kept["a"].equals(short)
    kept = CellTexts.of(pa.table({"a": long}))
    assert isinstance(kept.packed["a"][0], pa.Buffer)
    assert kept["a"].equals(long)
