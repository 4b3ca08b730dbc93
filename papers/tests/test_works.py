"""The lists of what the papers say: every reference exists, and states follow from stored verdicts."""

import json
import re
from pathlib import Path

import pytest
from works_table import (
    STATES,
    commit_of,
    is_meant,
    item_state,
    open_table,
    read_work,
    states_table,
    works_table,
)

from papers import EXPERIMENTS

ROOT = Path(__file__).parents[2]
WORKS = sorted((ROOT / "papers" / "works").glob("*.toml"))
ITEMS = [
    pytest.param(item, id=f"{path.stem}: {item['place']}")
    for path in WORKS
    for item in read_work(path)["item"]
]


@pytest.mark.parametrize("item", ITEMS)
def test_tests_and_claims_that_an_item_names_exist(item):
    assert set(item) <= {"place", "says", "evidence", "tests", "absent", "unjudged", "note"}
    for test in item.get("tests", ()):
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test
    for part in item.get("evidence", ()):
        declared = [str(claim) for claim in EXPERIMENTS[part["experiment"]].claims]
        for pattern in part["claims"]:
            assert any(is_meant(claim, [pattern]) for claim in declared), (part["experiment"], pattern)


def test_every_work_is_on_its_page():
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "papers").glob("*.md")}
    for path in WORKS:
        assert any(f"<!-- items of papers/works/{path.name}: all -->" in page for page in pages.values())


def test_data_that_cannot_be_had_are_named():
    absent = " ".join(
        item["absent"] for path in WORKS for item in read_work(path)["item"] if "absent" in item
    )
    assert set(re.findall(r"[A-Z][\w-]+", absent)) == {
        "GAS", "HEPMASS", "ML-10M", "NHIS", "NORB", "POWER", "TIMIT",
    }  # fmt: skip


def stored(folder, outcomes, scale="small", commit="0123456789"):
    """Writes results of an experiment whose claims have these outcomes."""
    verdicts = [{"claim": f"claim {place}", "outcome": outcome} for place, outcome in enumerate(outcomes)]
    (folder / "results").mkdir(exist_ok=True)
    content = {"scale": scale, "provenance": {"commit": commit}, "verdicts": verdicts}
    (folder / "results" / f"toy-{scale}.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        (["met", "met"], "reproduced"),
        (["met", "not met"], "in part"),
        (["met", "undecided"], "in part"),
        (["met", "not testable"], "in part"),
        (["not met", "undecided"], "contradicted"),
        (["not met", "not testable"], "contradicted"),
        (["undecided", "not testable"], "undecided"),
        (["not testable"], "not run yet"),
    ],
)
def test_the_state_of_an_item_follows_from_the_verdicts_on_its_claims(tmp_path, outcomes, state):
    item = {"evidence": [{"experiment": "toy", "claims": ["claim *"]}]}
    assert item_state(item, tmp_path).state == "not run yet"
    stored(tmp_path, outcomes)
    assert item_state(item, tmp_path).state == state
    stored(tmp_path, ["met"], scale="paper")  # which counts if it is there
    assert item_state(item, tmp_path).state == "reproduced"


def test_only_claims_that_are_meant_count_and_changes_that_were_not_committed_are_told(tmp_path):
    stored(tmp_path, ["not met", "met"], commit="abcdef0123+")
    found = item_state({"evidence": [{"experiment": "toy", "claims": ["claim 1"]}]}, tmp_path)
    assert (found.state, found.evidence) == ("reproduced", "1 met")
    assert found.source == "`toy`, small, commit abcdef0, with changes that were not committed"


def test_all_commits_of_stored_runs_are_told():
    cells = [{"commit": "aaaaaaaaaa"}, {"commit": "bbbbbbbbbb"}, {"commit": "aaaaaaaaaa"}]
    told = commit_of({"provenance": {"commit": "bbbbbbbbbb"}, "cells": cells})
    assert told == "commits aaaaaaa and bbbbbbb"


def test_items_without_runs_are_tested_absent_or_open(tmp_path):
    assert item_state({"tests": ["a.py::test_x"]}, tmp_path).state == "reproduced"
    assert item_state({"absent": "NORB"}, tmp_path).state == "not reproducible here"
    assert item_state({"unjudged": "A picture"}, tmp_path).state == "not judged"
    assert item_state({}, tmp_path).state == "not run yet"


def test_patterns_take_brackets_and_other_signs_as_they_are():
    assert is_meant("a (d = [1]) is *", ["a (d = [1])*"])
    assert not is_meant("a is better", ["is better"])


def test_tables_count_every_item_once(tmp_path):
    (tmp_path / "toy.toml").write_text(
        'work = "W"\nshort = "S"\n[[item]]\nplace = "P"\nsays = "a | b"\nabsent = "D"\n'
        '[[item]]\nplace = "Q"\nsays = "c"\n'
    )
    table = works_table(tmp_path / "toy.toml", tmp_path)
    assert "| P | a \\| b | **not reproducible here** |" in table
    assert table.endswith("Of 2 items: 1 not run yet, 1 not reproducible here.")
    assert "| W | 2 | 0 | 0 | 0 | 0 | 1 | 0 | 1 |" in states_table(tmp_path, tmp_path).splitlines()
    assert len(STATES) == 7
    assert open_table(tmp_path, tmp_path).splitlines()[2:] == [
        "| S | Q | **not run yet** | no experiment is about it |",
        "| S | P | **not reproducible here** | D cannot be had here |",
    ]


def test_the_shares_are_of_items_that_can_be_judged_and_of_claims_that_were_run(tmp_path):
    stored(tmp_path, ["met", "met", "met", "not met", "undecided", "not testable"])
    evidence = (
        '[[item]]\nplace = "P"\nsays = "a"\nevidence = [{{ experiment = "toy", claims = ["claim {}"] }}]\n'
    )
    items = [evidence.format(place) for place in range(6)]
    (tmp_path / "toy.toml").write_text(
        'work = "W"\n' + "".join(items) + '[[item]]\nplace = "Q"\nsays = "b"\nabsent = "D"\n'
    )
    assert states_table(tmp_path, tmp_path).splitlines()[-1] == (
        "Of 6 items that can be judged with the data that are here, 5 were run or tested, and 3 (50%) are "
        "reproduced; another 0 in part. Of 5 claims about them that were run, 3 (60%) are met, 1 are not met "
        "and 1 undecided; 1 were not run."
    )


def test_stored_verdicts_are_those_of_the_declared_claims():
    """Otherwise run `python -m papers --judge --scale small`."""
    for path in sorted((ROOT / "results").glob("*-small.json")):
        found = json.loads(path.read_text())
        if found.get("experiment") in EXPERIMENTS:
            declared = [str(claim) for claim in EXPERIMENTS[found["experiment"]].claims]
            assert [verdict["claim"] for verdict in found["verdicts"]] == declared, path.name
