"""The skeleton that newcomers copy is right; that it obeys every law, tests/conformance sees to."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conformance.densities import DENSITIES
from conformance.registry import IMPUTERS, OTHERS

import halfseen
from skeletons.imputer import DiagonalImputer

ROOT = Path(__file__).resolve().parents[1]
OF_TABLES = ("halfseen.base.table", "halfseen.data.schema", "halfseen.data.features")


@pytest.fixture(scope="module")
def penguins():
    return halfseen.datasets.load_penguins("pandas")


@pytest.fixture(scope="module")
def fitted(penguins):
    return DiagonalImputer(schema={"year": "ordinal"}, random_state=0).fit(penguins)


def test_the_skeleton_is_in_the_conformance_table():
    assert "skeleton" in {row.name for row in IMPUTERS}
    assert "skeleton" in {row.name for row in DENSITIES}
    assert {"skeleton-sequences", "skeleton-ratings"} <= {row.name for row in OTHERS}


def test_skeletons_of_other_data_use_nothing_of_tables():
    program = (
        f"TABLES = {OF_TABLES}; import sys, skeletons.sequences, skeletons.ratings; "
        "print([m for m in sys.modules if m in TABLES])"
    )
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(halfseen.__file__).parents[1]), str(ROOT / "docs")])}
    run = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | paths, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


def test_the_skeleton_is_right_about_each_column(fitted, penguins):
    complete = fitted.transform(penguins)
    hole = penguins["bill_length_mm"].isna()
    np.testing.assert_allclose(
        complete.loc[hole, "bill_length_mm"], penguins["bill_length_mm"].mean(), rtol=0.01
    )
    assert set(complete.loc[penguins["sex"].isna(), "sex"]) == {penguins["sex"].mode()[0]}


def test_an_ordinal_column_of_the_skeleton_has_probabilities_of_its_levels(fitted, penguins):
    probabilities = fitted.class_probabilities(penguins)
    assert set(probabilities) == {"species", "island", "sex", "year"}
    for table in probabilities.values():
        assert table.shape[0] == len(penguins)
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
