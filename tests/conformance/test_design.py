"""The plan of who meets which table leaves no law, no estimator and no table out."""

import pytest
from conformance.densities import DENSITIES
from conformance.design import FIRST, REPRESENTATIVES, plan
from conformance.fitted import changed_estimators, fitted
from conformance.registry import ESTIMATORS, EVERY_ROW, IMPUTERS, OTHERS
from conformance.tables import ARRAY, NASTY, PENGUINS, TABLES

LAWS = [f"law {number}" for number in range(80)]
ORDINARY = [row for row in ESTIMATORS if not row.slow]


def met(row, cases, law="a law"):
    """The tables that an estimator meets, by suite."""
    suites = plan(law, row, cases)
    assert suites.keys() <= {case.name for case in cases} | {None}
    return {suite: {name for name in suites if suite in suites[name]} for suite in ("fast", "slow", "laws")}


@pytest.mark.parametrize("cases", [TABLES, (PENGUINS, NASTY), (PENGUINS,), (ARRAY,), ()], ids=len)
def test_every_estimator_meets_every_law(cases):
    for row in ESTIMATORS:
        found = met(row, cases)
        assert bool(found["fast"]) == (row.name in REPRESENTATIVES)
        assert len(found["slow"] if row.slow else found["laws"]) == 1
        assert not found["fast"] & found["slow"]


@pytest.mark.parametrize("cases", [TABLES, ()], ids=len)
def test_every_preset_runs_on_other_processors_in_some_laws(cases):
    for row in ESTIMATORS:
        times = sum(len(met(row, cases, law)["laws"]) for law in LAWS)
        assert 2 <= times <= 20 if row.slow else times == len(LAWS)


def test_a_law_with_several_tables_meets_two_for_each_estimator():
    for row in ORDINARY:
        assert len(plan("a law", row, TABLES)) == (len(TABLES) if row.name == FIRST else 2)


def test_every_estimator_meets_every_table_that_does_not_repeat_another():
    plain = {case.name for case in TABLES if not case.repeats}
    for row in IMPUTERS:
        assert plain <= {name for law in LAWS for name in plan(law, row, TABLES)}


def test_every_table_is_met_in_every_law_by_others_than_the_first():
    plain = {case.name for case in TABLES if not case.repeats}
    repeated = {case.name for case in TABLES} - plain
    for law in LAWS[:20]:
        assert plain <= {name for row in IMPUTERS[1:] for name in plan(law, row, TABLES)}
    assert repeated <= {name for row in IMPUTERS[1:] for law in LAWS for name in plan(law, row, TABLES)}


def test_the_first_imputer_meets_repeated_tables_in_the_slow_suite():
    found = met(IMPUTERS[0], TABLES)
    assert IMPUTERS[0].name == FIRST
    assert found["slow"] == {case.name for case in TABLES if case.repeats}
    assert found["fast"] | found["slow"] == {case.name for case in TABLES}


def test_the_representatives_are_in_the_registry():
    assert REPRESENTATIVES <= {row.name for row in (*EVERY_ROW, *OTHERS, *DENSITIES) if not row.slow}
    represented = {row.family for row in OTHERS if row.name in REPRESENTATIVES}
    assert {row.family for row in OTHERS} == represented, "name one row of each family in design.py"


def test_a_change_of_a_shared_estimator_is_noticed(tmp_path):
    imputer = fitted(IMPUTERS[0], ARRAY)
    assert changed_estimators(tmp_path) == []
    imputer.set_params(ridge=7.0)
    assert changed_estimators(tmp_path) == ["gaussian on array"]
    imputer.set_params(ridge=IMPUTERS[0].make().ridge)
    assert changed_estimators(tmp_path) == []
