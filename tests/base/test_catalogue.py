"""The catalogue is the one place in which a public estimator is registered."""

import inspect
import subprocess
import sys

import pytest
from conformance.registry import IMPUTERS, OTHERS, PREDICTORS, TRANSFORMERS
from sklearn.base import BaseEstimator

import halfseen
from halfseen.base.catalogue import CATALOGUE, Family, find_method
from halfseen.cli.options import COMPARED, QUICK, Method, build
from halfseen.report.render import _explain

METHODS = [pytest.param(method, id=method.name) for method in CATALOGUE]


def test_every_public_estimator_has_one_entry_and_is_public_in_the_package_or_in_its_own():
    rooms = {method.module.split(".")[0] for method in CATALOGUE}
    packages = [halfseen, *(getattr(halfseen, room) for room in sorted(rooms))]
    public = [getattr(package, name) for package in packages for name in getattr(package, "__all__", ())]
    estimators = {thing for thing in public if inspect.isclass(thing) and issubclass(thing, BaseEstimator)}
    assert {method.estimator for method in CATALOGUE} == estimators
    assert len({method.name for method in CATALOGUE}) == len(CATALOGUE)


@pytest.mark.parametrize("method", METHODS)
def test_an_entry_agrees_with_its_class(method):
    parameters = inspect.signature(method.estimator).parameters
    assert ("callback" in parameters) == (method.steps is not None)
    assert method.draws_parameter is None or method.draws_parameter in parameters
    if len(method.missingness) > 1:
        assert parameters["missingness"].default in (method.missingness[0], "auto")


@pytest.mark.parametrize("method", METHODS)
def test_an_entry_has_words_for_the_report(method):
    label, words, models_missingness = _explain(method.name)
    assert label == method.label
    assert words.startswith(method.description)
    assert words.endswith(".")
    assert models_missingness == (method.name == "not-miwae")


def test_commands_offer_the_imputers_of_the_catalogue():
    imputers = [method for method in CATALOGUE if method.family == Family.TABLE_IMPUTER]
    assert [*Method] == [method.name for method in imputers if method.on_command_line]
    assert set(Method) < set(COMPARED)
    assert {method.name for method in imputers if method.quick} < set(QUICK)
    for method in imputers:
        assert type(build(method.name, random_state=3)) is method.estimator


def test_every_entry_has_a_row_of_its_family_in_the_conformance_registry():
    rows = {Family.TABLE_IMPUTER: IMPUTERS, Family.TABLE_PREDICTOR: PREDICTORS}
    rows |= {Family.TRANSFORMER: TRANSFORMERS}
    rows |= {
        family: [row for row in OTHERS if row.family == family] for family in Family if family not in rows
    }
    for method in CATALOGUE:
        assert method.estimator in {type(row.make()) for row in rows[method.family]}


def test_the_catalogue_imports_no_model():
    program = "import sys, halfseen.cli.options; print('torch' in sys.modules or 'sklearn' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_an_unknown_method_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="There is no method 'median'; the catalogue has auto, gaussian"):
        find_method("median")
