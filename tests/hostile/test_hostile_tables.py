"""Hostile tables through the command and the library: the laws that hold for every one of them."""

import csv
import gzip
import io
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hostile.generator import MARKUP, make_table

from halfseen import GaussianImputer, HalfseenWarning, MeanImputer
from halfseen.cli.main import main
from halfseen.errors import SchemaError
from halfseen.files.tables import read_table

N_FAST, CHUNK = 24, 20
STARTS = range(1000, 2000, CHUNK)
STARTS_BY_DEFAULT = range(5000, 5080, CHUNK)


@pytest.fixture
def command(tmp_path, capfd, monkeypatch):
    """Runs the command on a hostile table in a new folder, and checks every law on what it leaves."""
    monkeypatch.setenv("HALFSEEN_DEBUG", "1")  # anything that is not an error for users is raised

    def command(hostile):
        folder = tmp_path / str(hostile.seed)
        folder.mkdir()
        source, out = (folder / f"{name}.{hostile.suffix}" for name in ("in", "out"))
        report = folder / "report.html"
        source.write_bytes(hostile.content)
        arguments = ["impute", source, "-o", out, "--report", report, *hostile.options]
        code = main([str(argument) for argument in arguments])
        error = capfd.readouterr().err
        names = {path.name for path in folder.iterdir()}
        errors = [line for line in error.splitlines() if line.startswith("halfseen: error:")]
        assert "Traceback" not in error
        assert "Warning" not in error
        assert source.read_bytes() == hostile.content
        if code != 0:
            assert (code, len(errors), names) == (2, 1, {source.name}), error
            return False
        assert (errors, names) == ([], {source.name, out.name, report.name}), error
        check_report(report.read_text(encoding="utf-8"))
        check_output(hostile, source, out, error)
        return True

    return command


def check_report(page):
    assert page.rstrip().endswith("</html>")
    for markup in MARKUP:
        assert markup not in page


def check_output(hostile, source, out, error):
    """Observed cells are unchanged in every draw, and cells are left missing only if that was said."""
    n_tables = 2 if "--draws" in hostile.options else 1
    file = read_table(str(source))
    if file.text is not None and file.text.aside is not None:
        check_rows_aside(file, text_of(source), text_of(out), n_tables)
        return
    written = read_table(str(out))
    before, after = file.table, written.table
    assert after.num_rows == n_tables * before.num_rows
    if n_tables > 1:
        after = after.drop_columns([after.column_names[0]])
    names = [[name for name in one.column_names if not name.startswith("unnamed")] for one in (before, after)]
    assert names[0] == names[1]  # those without a name are numbered by their places
    if hostile.cells:
        missing = np.column_stack([column.is_null().to_numpy() for column in before.columns])
        check_text(text_of(source), text_of(out), n_tables, missing)
    else:
        for number in range(n_tables):
            check_cells(before, after.slice(number * before.num_rows, before.num_rows))
    if written.n_missing:
        assert "left" in error


def check_rows_aside(file, before, after, n_tables):
    """Of a file with rows that are not records, observed cells and these rows come back as they were."""
    aside = file.text.aside.to_numpy(zero_copy_only=False)
    missing = np.zeros((len(aside), file.table.num_columns), dtype=bool)
    missing[~aside] = np.column_stack([column.is_null().to_numpy() for column in file.table.columns])
    check_text(before, after, n_tables, missing)


def text_of(path):
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    file = read_table(str(path))
    text = content.decode(file.dialect.encoding)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=file.dialect.delimiter))


def check_text(before, after, n_tables, missing):
    """The text of a cell that was there is there again, letter by letter."""
    shift, n_rows = n_tables > 1, len(missing)
    assert after[0][shift:] == before[0]
    assert len(after) == 1 + n_tables * n_rows
    for place, row in enumerate(after[1:]):
        for old, new, gone in zip(
            before[1 + place % n_rows], row[shift:], missing[place % n_rows], strict=True
        ):
            assert new == old or gone


def check_cells(before, after):
    for name in before.column_names:
        old, new = (one[name].combine_chunks() for one in (before, after))
        seen = np.flatnonzero(~pc.is_null(old, nan_is_null=True).to_numpy(zero_copy_only=False)).tolist()
        assert [new[row].as_py() for row in seen] == [old[row].as_py() for row in seen]


def check_library(hostile):
    """The library fills the table in every library of tables, or says in words why it does not."""
    table = hostile.table
    distinct = len(set(table.column_names)) == len(table.column_names)
    narrow = all(not pa.types.is_decimal256(field.type) for field in table.schema)
    frames = [table]
    frames += [table.to_pandas(types_mapper=pd.ArrowDtype)] if distinct else []
    frames += [pl.from_arrow(table)] if distinct and narrow else []
    for frame in frames:
        imputer = MeanImputer() if hostile.seed % 3 else GaussianImputer(n_posterior_draws=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HalfseenWarning)
            try:
                imputer.fit(frame)
            except SchemaError:
                continue
            filled, [drawn] = imputer.transform(frame), imputer.sample(frame)
        for answer in (filled, drawn):
            assert type(answer) is type(frame)
            assert len(answer) == len(frame)
            if isinstance(answer, pa.Table):
                check_cells(frame, answer)


@pytest.mark.parametrize("seed", range(N_FAST))
def test_some_hostile_tables_keep_every_law(command, seed):
    hostile = make_table(seed)
    command(hostile)
    check_library(hostile)


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_hostile_tables_keep_every_law(command, start):
    filled = 0
    for seed in range(start, start + CHUNK):
        hostile = make_table(seed)
        filled += command(hostile)
        check_library(hostile)
    assert filled >= CHUNK / 4


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS_BY_DEFAULT)
def test_hostile_tables_keep_every_law_under_the_default_method(command, start):
    filled = [command(make_table(seed, by_default=True)) for seed in range(start, start + CHUNK)]
    assert sum(filled) >= CHUNK / 4
