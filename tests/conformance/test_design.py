"""The plan of who meets which table leaves no law, no estimator and no table out."""

import pytest
from conformance.design import FIRST, plan
from conformance.registry import ESTIMATORS, IMPUTERS
from conformance.tables import ARRAY, NASTY, PENGUINS, TABLES


@pytest.mark.parametrize("cases", [TABLES, (PENGUINS, NASTY), (PENGUINS,), (ARRAY,)], ids=len)
def test_every_estimator_meets_a_table_of_every_law_in_one_suite(cases):
    for row in ESTIMATORS:
        suites = plan("a law", row, cases)
        assert suites.keys() <= {case.name for case in cases}
        assert all(len(found & {"fast", "slow"}) == 1 for found in suites.values())
        assert row.slow == all("fast" not in found for found in suites.values())


@pytest.mark.parametrize("cases", [TABLES, ()], ids=len)
def test_every_estimator_runs_on_other_processors_on_one_table(cases):
    laws = [f"law {number}" for number in range(80)]
    for row in ESTIMATORS:
        times = [sum("laws" in found for found in plan(law, row, cases).values()) for law in laws]
        assert max(times) == 1
        assert 4 <= sum(times) <= 20 if row.slow else min(times) == 1


def test_a_law_without_tables_has_the_suite_of_its_estimator():
    assert [plan("a law", row).keys() for row in ESTIMATORS] == [{None}] * len(ESTIMATORS)
    assert all(("slow" in plan("a law", row)[None]) == row.slow for row in ESTIMATORS)


def test_imputers_meet_every_table_also_apart_from_the_first():
    names = {case.name for case in TABLES}
    assert plan("a law", IMPUTERS[0], TABLES).keys() == names
    assert IMPUTERS[0].name == FIRST
    assert {name for row in IMPUTERS[1:] if not row.slow for name in plan("a law", row, TABLES)} == names
    plain = {case.name for case in TABLES if not case.repeats}
    assert {name for row in IMPUTERS if row.slow for name in plan("a law", row, TABLES)} == plain
