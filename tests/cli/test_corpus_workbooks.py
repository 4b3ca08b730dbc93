"""Workbooks through `halfseen impute`: each column comes to what `corpus/expected_workbooks.py` says."""

import re

import openpyxl
import pytest
from corpus.expected_workbooks import WORKBOOKS
from corpus.workbooks import unpack


@pytest.mark.parametrize("name", WORKBOOKS)
def test_every_column_of_a_workbook_has_its_expected_outcome(call, tmp_path, name):
    expected = WORKBOOKS[name]
    (tmp_path / "t.xlsx").write_bytes(expected.make())
    code, _, err = call("impute", "t.xlsx", "-o", "u.xlsx", "--method", "gaussian", *expected.options)
    assert code == 0, err
    said = " ".join(err.split())
    for pattern in expected.says:
        assert re.search(pattern, said), (pattern, err)
    given, shown, after = (
        openpyxl.load_workbook(tmp_path / name, data_only=only)[expected.title]
        for name, only in (("t.xlsx", False), ("t.xlsx", True), ("u.xlsx", False))
    )
    header = next(row for row in given.iter_rows() if row[-1].value is not None)
    assert [cell.value for cell in header] == list(expected.columns)
    for cell, outcome in zip(header, expected.columns.values(), strict=True):
        left, filled = 0, []
        for row in range(cell.row + 1, given.max_row + 1):
            before, now = given.cell(row, cell.column), after.cell(row, cell.column)
            if before.value is not None:
                assert (now.value, now.data_type, now.style_id) == (
                    before.value,
                    before.data_type,
                    before.style_id,
                )
                left += shown.cell(row, cell.column).value in (None, "", "#DIV/0!")
            elif now.value is None:
                left += 1
            else:
                filled.append(now)
        assert (len(filled), left) == (outcome.filled, outcome.left), cell.value
        for one in filled:
            assert one.data_type == outcome.kind, (cell.value, one.value)
            assert re.fullmatch(outcome.written, str(one.value)), (cell.value, one.value)
    before, now = unpack(tmp_path / "t.xlsx"), unpack(tmp_path / "u.xlsx")
    changed = {one for one in before if before[one] != now[one]}
    place = openpyxl.load_workbook(tmp_path / "t.xlsx").sheetnames.index(expected.title) + 1
    assert changed <= {f"xl/worksheets/{place}.xml", "xl/workbook.xml"}
