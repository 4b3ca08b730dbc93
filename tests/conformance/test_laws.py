"""The laws of `halfseen.testing` for every row of the registry, on the tables that design.py names."""

import pytest
from conformance.fitted import subject
from conformance.registry import IMPUTERS, PREDICTORS
from conformance.tables import NASTY, PENGUINS

from halfseen.testing.checks import LAWS_OF_IMPUTERS, LAWS_OF_PREDICTORS


def taking_a_table(laws):
    return [law for law in laws if law.arguments != ("make",)]


def without(laws):
    return [law for law in laws if law.arguments == ("make",)]


def obeys(row, law, case=PENGUINS):
    missing = [need for need in law.needs if not hasattr(row.make(), need)]
    if not missing:  # a method that a law is about may be absent: of a classifier, `predict_interval`
        subject(row, case).obeys(law)


@pytest.mark.parametrize("law", taking_a_table(LAWS_OF_IMPUTERS), ids=str)
def test_an_imputer_obeys_on_a_table(law, row, case):
    obeys(row, law, case)


@pytest.mark.parametrize("law", without(LAWS_OF_IMPUTERS), ids=str)
def test_an_imputer_obeys(law, row):
    obeys(row, law)


@pytest.mark.parametrize("case", [PENGUINS, NASTY], ids=str)
@pytest.mark.parametrize("row", PREDICTORS, ids=str)
@pytest.mark.parametrize("law", taking_a_table(LAWS_OF_PREDICTORS), ids=str)
def test_a_predictor_obeys_on_a_table(law, row, case):
    obeys(row, law, case)


@pytest.mark.parametrize("row", PREDICTORS, ids=str)
@pytest.mark.parametrize("law", without(LAWS_OF_PREDICTORS), ids=str)
def test_a_predictor_obeys(law, row):
    obeys(row, law)


def test_the_laws_have_different_names_and_say_what_they_ask():
    for laws in (LAWS_OF_IMPUTERS, LAWS_OF_PREDICTORS):
        assert len({law.name for law in laws}) == len(laws)
        assert all(law.check.__doc__ for law in laws)
    assert {row.name for row in IMPUTERS if not hasattr(row.make(), "sample")} == set()
