"""The picture of a circuit's structure: what it joins, and what names may contain."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from halfseen import CircuitImputer
from halfseen.circuits.structure import Structure, pair_columns
from halfseen.report.render import MOST_COLUMNS, draw_tree, summarize_structure

PAIRS = pair_columns(np.array([[0, 1, 9, 0], [1, 0, 2, 0], [9, 2, 0.0, 0], [0, 0, 0, 0]]))


def heights(picture):
    """The line of each name, from the top."""
    found = re.findall(r'y="([\d.]+)" text-anchor="end">(.*?)</text>', picture)
    return [name for _, name in sorted((float(y), name) for y, name in found)]


@pytest.mark.parametrize("n_trees", [1, 2])
def test_columns_that_are_joined_stand_together_and_every_product_is_a_dot(n_trees):
    structure = Structure.trees(4, [PAIRS] * n_trees, 2, [3, 3])
    summary = summarize_structure(structure, ["a", "b", "c", "<d>"])
    assert json.loads(json.dumps(summary)) == summary
    assert summary["words"] == str(structure)
    picture = draw_tree(summary)
    ElementTree.fromstring(picture)
    assert heights(picture) == ["a", "c", "b", "&lt;d&gt;"]
    assert picture.count("<circle") == 3
    assert picture.count("2 regions are multiplied, each with 3 sums") == 3


def test_columns_that_pass_through_and_shallow_circuits_are_drawn():
    odd = Structure.trees(3, [pair_columns(np.eye(3))], 2, [2, 2])
    assert draw_tree(summarize_structure(odd, list("abc"))).count("<circle") == 2
    shallow = draw_tree(summarize_structure(Structure.shallow(3, 2, 2), list("abc")))
    assert shallow.count("<circle") == 1
    assert "3 regions are multiplied" in shallow


def test_many_columns_are_described_in_words_only():
    names = [f"c{number}" for number in range(MOST_COLUMNS + 1)]
    assert not summarize_structure(Structure.shallow(len(names), 2, 2), names)["drawn"]


def test_an_imputer_has_a_structure_if_it_has_a_model():
    X = np.random.default_rng(0).normal(size=(40, 3))
    assert CircuitImputer(2, 2, max_epochs=0).fit(X).structure_.n_columns == 3
    assert CircuitImputer(2, 2, max_epochs=0).fit(np.ones((40, 2))).structure_ is None
