"""Fixtures of the conformance suite: each imputer is fitted once per table."""

import pytest
from conformance.fitted import fitted
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
