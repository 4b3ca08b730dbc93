"""A word for an assumption about missingness means the same wherever it is used."""

import ast
from pathlib import Path

import numpy as np
import pytest

import halfseen
from halfseen.base.catalogue import CATALOGUE, Family
from halfseen.cli.ampute import MECHANISMS
from halfseen.cli.options import build, offered
from halfseen.gaussian.em_self_masked import OFFERED as GAUSSIAN
from halfseen.latent.architecture import OFFERED as LATENT
from halfseen.words import Missingness, check_missingness

SOURCE = Path(halfseen.__file__).parent


def code_strings(path):
    """Returns the strings of a file that are values, not docstrings or parts of other texts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_each_word_is_written_in_one_place():
    words = {word.value for word in Missingness if word.value.startswith("self-masking")}
    strings = {path: code_strings(path) for path in sorted(SOURCE.rglob("*.py"))}
    places = {word: [path.name for path, found in strings.items() if word in found] for word in words}
    assert places == {word: ["words.py"] for word in words}


def test_a_command_offers_what_the_estimator_offers():
    assert offered("gaussian") == offered("neumiss-regressor") == offered("neumiss-classifier") == GAUSSIAN
    assert set(offered("not-miwae")) == set(LATENT) - {Missingness.MAR}
    assert set(offered("latent")) == set(LATENT)
    assert {str(word) for word in Missingness if word in MECHANISMS} == {
        "mar", "self-masking-logistic", "self-masking-probit", "self-masking-gaussian",
    }  # fmt: skip
    assert offered("mixture") == (Missingness.MAR,)


def test_a_method_refuses_an_assumption_that_it_does_not_offer():
    message = "missingness must be one of 'mar' with the method mixture, got 'self-masking-probit'"
    with pytest.raises(ValueError, match=message):
        build("mixture", "self-masking-probit")
    with pytest.raises(ValueError, match="must be one of 'mar', got None"):
        check_missingness(None, (Missingness.MAR,))


def correlated(n_rows, seed):
    rng = np.random.default_rng(seed)
    covariance = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    return rng.multivariate_normal([10.0, 20.0, 30.0], covariance, size=n_rows)


SHARED = [
    pytest.param(
        word, method.name, id=f"{method.name}-{word}", marks=[] if method.quick else pytest.mark.slow
    )
    for method in CATALOGUE
    if method.family == Family.TABLE_IMPUTER
    for word in method.missingness
    if word in MECHANISMS and word != Missingness.MAR
]


def test_each_mechanism_with_a_name_of_an_assumption_meets_an_imputer_that_makes_it():
    met = {parameters.values[0] for parameters in SHARED}
    assert met == {word for word in Missingness if word in MECHANISMS} - {Missingness.MAR}


@pytest.mark.parametrize(("word", "method"), SHARED)
def test_what_a_mechanism_removes_is_imputed_best_under_the_same_word(word, method):
    """Means of columns that lose values by the mechanism, against those of the complete table.

    Steep mechanisms remove 30% of the values of two columns; the bias under "mar" is about ten times the
    standard error of a mean (0.032 of 1,000 rows, 0.016 of 4,000), so that a failure by chance has a
    probability below 1e-5.
    """
    truth = correlated(4000 if method == "gaussian" else 1000, seed=1)
    settings = {"steepness": 3.0} if word == Missingness.LOGISTIC else {}
    mechanism = MECHANISMS[word](seed=0, rate=0.3, columns=[1, 2], **settings)
    table = mechanism.fit(truth).amputate(truth, random_state=2)
    fast = {} if method == "gaussian" else {"width": 16, "max_epochs": 20, "n_imputation_draws": 50}
    rivals = (build(method, word, random_state=0, **fast), build("gaussian", random_state=0))
    own, at_random = (
        np.abs(imputer.fit_transform(table)[:, 1:].mean(axis=0) - truth[:, 1:].mean(axis=0)).mean()
        for imputer in rivals
    )
    assert own < at_random / 2
