"""The rule of who meets which table leaves no law, no estimator and no table out."""

from conformance.densities import DENSITIES
from conformance.design import FIRST, REPRESENTATIVES, suites
from conformance.fitted import changed_estimators, fitted
from conformance.registry import ESTIMATORS, EVERY_ROW, IMPUTERS, OTHERS
from conformance.tables import ARRAY, TABLES


def test_every_estimator_meets_every_law_in_exactly_one_of_the_suites_laws_and_slow():
    for row in (*EVERY_ROW, *OTHERS, *DENSITIES):
        assert len(suites(row) & {"laws", "slow"}) == 1
        assert ("fast" in suites(row)) == (row.name in REPRESENTATIVES)


def test_every_estimator_but_presets_meets_two_tables_and_the_first_all():
    for row in ESTIMATORS:
        met = [case for case in TABLES if suites(row, case)]
        assert len(met) == (len(TABLES) if row.name == FIRST else 1 if row.slow else 2)
    assert FIRST == IMPUTERS[0].name


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
