"""The tables that come with the package, in every library."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from data.round_trip import holes

from halfseen import datasets
from halfseen.data.frames import Table
from halfseen.data.schema import Schema
from halfseen.datasets import load_penguins
from halfseen.datasets.loaders import BACKENDS

KINDS = {
    "species": "categorical",
    "island": "categorical",
    "bill_length_mm": "positive",
    "bill_depth_mm": "positive",
    "flipper_length_mm": "count",
    "body_mass_g": "count",
    "sex": "binary",
    "year": "count",
}


@pytest.mark.parametrize(
    ("backend", "expected"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)]
)
def test_penguins_are_the_same_in_every_library(backend, expected):
    penguins = load_penguins(backend)
    assert isinstance(penguins, expected)
    assert penguins.shape == (344, 8)
    assert holes(penguins).sum() == 19
    np.testing.assert_array_equal(holes(penguins), holes(load_penguins("pandas")))
    table = Table(penguins)
    schema = Schema.infer(table)
    assert {column.name: column.kind for column in schema} == KINDS
    assert schema.columns[0].levels == ("Adelie", "Chinstrap", "Gentoo")
    codes = np.column_stack([column.encode(table.column(j)) for j, column in enumerate(schema)])
    assert np.nanmean(codes[:, 5]) == pytest.approx(4201.754, abs=1e-3)


def test_the_first_library_that_is_installed_is_the_default(monkeypatch):
    assert isinstance(load_penguins(), pd.DataFrame)
    monkeypatch.setattr(datasets, "find_spec", lambda name: None if name == "pandas" else sys)
    assert isinstance(load_penguins(), pl.DataFrame)
    monkeypatch.setattr(datasets, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs one of pandas, polars, pyarrow"):
        load_penguins()


def test_unknown_libraries_are_refused():
    with pytest.raises(ValueError, match=f"backend must be one of {', '.join(BACKENDS)}, got 'numpy'"):
        load_penguins("numpy")
