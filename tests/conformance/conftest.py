"""Fixtures of the conformance suite: each imputer is fitted once per module and table."""

import pytest
from conformance.registry import IMPUTERS
from conformance.tables import TABLES, fit_quietly


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
def imputer(row, table):
    return fit_quietly(row.make(random_state=0), table)
