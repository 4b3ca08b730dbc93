"""Fixtures of the conformance suite: each imputer is fitted once per module and table."""

import warnings

import pytest
from conformance.registry import IMPUTERS
from conformance.tables import TABLES

from halfseen import HalfseenWarning


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


def fit_quietly(imputer, table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)
        return imputer.fit(table)
