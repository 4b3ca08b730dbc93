"""Fixtures of the conformance suite: each imputer is fitted once per table."""

import pytest
from conformance.fitted import changed_estimators, fitted
from conformance.registry import IMPUTERS
from conformance.tables import TABLES


@pytest.fixture(scope="module", params=IMPUTERS, ids=str)
def row(request):
    return request.param


@pytest.fixture(scope="module", params=TABLES, ids=str)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def table(case):
    return case.make()


@pytest.fixture(scope="module")
def imputer(row, case):
    return fitted(row, case)


@pytest.fixture(scope="module", autouse=True)
def shared_estimators_stay_as_they_were(tmp_path_factory):
    """Fails after a file of tests that changed an estimator which others use as well."""
    yield
    assert changed_estimators(tmp_path_factory.mktemp("shared")) == []
