"""Every real table with missing values or categories goes through `halfseen impute`."""

import os
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

import halfseen
from halfseen.cli.main import main
from halfseen.errors import HalfseenWarning
from halfseen.files.tables import read_table

FOLDER = Path(os.environ.get("HALFSEEN_DATA", "/nowhere"))

CHOSEN = ("climate_model_crashes.csv.gz", "boys.csv.gz", "credit_approval.csv.gz", "hepatitis.csv.gz")
"""Tables for which the method is chosen, in little time; the others take the Gaussian."""

pytestmark = pytest.mark.slow


def interesting_tables():
    """The tables of the shared folder with a missing cell or a column of text."""
    if not FOLDER.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason="HALFSEEN_DATA is not set"))]
    found = []
    for path in sorted([*FOLDER.glob("*/*.csv.gz"), FOLDER / "beijing_multisite/beijing_multisite.parquet"]):
        found.append(pytest.param(path, id=f"{path.parent.name}/{path.name}"))
    return found


@pytest.mark.parametrize("path", interesting_tables())
def test_impute_fills_every_cell_that_is_not_left_and_keeps_every_observed_cell(path, tmp_path):
    before = read_table(str(path)).table
    has_text = any(pa.types.is_string(column.type) for column in before.columns)
    if not has_text and not any(column.null_count for column in before.columns):
        pytest.skip("no missing cell and no text")
    output, model = tmp_path / "out.parquet", tmp_path / "model"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)
        command = ["impute", str(path), "-o", str(output), "--save-model", str(model), "--quiet"]
        command += ["--method", "gaussian"] if path.name not in CHOSEN else ["--max-seconds", "5"]
        assert main(command) == 0
    after, imputer = pyarrow.parquet.read_table(output), halfseen.load(model)
    blank = np.all([column.is_null() for column in before.columns], axis=0)  # such rows stay blank
    assert after.column_names == before.column_names
    for name in before.column_names:
        old, new = before[name], after[name]
        rule = imputer.skip_rules_.get(name)
        if name in imputer.columns_left_:
            assert new.null_count == old.null_count, name
        elif rule is not None:
            off = pc.is_in(after[rule.column], value_set=pa.array(rule.values).cast(after[rule.column].type))
            assert new.null_count == pc.sum(pc.and_(off, old.is_null())).as_py(), name
        else:
            np.testing.assert_array_equal(new.is_null(), blank, err_msg=name)
        assert new.type == old.type, name
        seen = pc.is_valid(old)
        assert new.filter(seen).equals(old.filter(seen)), name
        if pa.types.is_string(old.type) or pa.types.is_boolean(old.type):
            assert set(new.unique().to_pylist()) <= set(old.unique().to_pylist()), name
