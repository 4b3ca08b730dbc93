"""The laws that ship with the package: an estimator that breaks one of them is found, by its name."""

import re
import subprocess
import sys

import numpy as np
import pytest

from halfseen import BoostingClassifier, GaussianRegressor, MeanImputer
from halfseen.testing import check_imputer, check_predictor, parametrize_with_laws
from skeletons.imputer import DiagonalImputer


def broken(check, estimator):
    """The names of the laws that an estimator breaks on an array."""
    with pytest.raises(AssertionError, match=f"{type(estimator).__name__} breaks") as error:
        check(estimator, tables=["array"])
    return re.findall(r"^(\w+)(?:-array)?: ", str(error.value), flags=re.MULTILINE)


class RoundingImputer(MeanImputer):
    """It rounds observed cells as well."""

    def transform(self, X):
        return np.round(super().transform(X), 1)


class SequentialImputer(MeanImputer):
    """Its draws come one after the other from a generator, whatever the rows are."""

    def sample(self, X, n_draws=1):
        self._check_n_draws(n_draws)
        filled = self.transform(X)
        noise = np.random.default_rng(self.seed_).normal(size=(n_draws, *filled.shape))
        return np.where(np.isnan(np.asarray(X, dtype=float)), filled + noise, filled)

    @staticmethod
    def _check_n_draws(n_draws):
        if n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, got {n_draws}.")


class UnmaskingImputer(MeanImputer):
    """It takes the numbers under a mask for observed ones."""

    def fit(self, X, y=None):
        return super().fit(np.asarray(X), y)


class CentringImputer(MeanImputer):
    """It imputes the means of the rows that it is asked about."""

    def transform(self, X):
        filled = np.array(super().transform(X))
        gone = np.isnan(np.asarray(X, dtype=float))
        return np.where(gone & ~gone.all(axis=0), np.nanmean(np.where(gone, np.nan, filled)), filled)


class ForgetfulImputer(MeanImputer):
    """It draws from the global generator of numpy when it is fitted."""

    def fit(self, X, y=None):
        np.random.random()  # noqa: NPY002
        return super().fit(X, y)


@pytest.mark.parametrize(
    ("imputer", "law"),
    [
        (RoundingImputer(), "observed_cells_are_unchanged"),
        (SequentialImputer(), "draws_of_a_row_do_not_depend_on_its_batch"),
        (UnmaskingImputer(), "values_under_the_mask_are_never_read"),
        (CentringImputer(), "answers_depend_on_the_row_alone"),
        (ForgetfulImputer(), "global_generators_are_not_used"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.global_random
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_a_broken_imputer_breaks_the_law_that_names_its_defect(imputer, law):
    assert law in broken(check_imputer, imputer)


class NeighbourlyRegressor(GaussianRegressor):
    """Its predictions are centred in each batch."""

    def predict(self, X):
        predicted = super().predict(X)
        return predicted - predicted.mean(axis=0)


def test_a_broken_predictor_breaks_the_law_that_names_its_defect():
    assert broken(check_predictor, NeighbourlyRegressor()) == [
        "predictions_depend_on_the_row_alone",
        "predictions_of_whole_blocks_are_those_of_the_table",
    ]


def test_an_imputer_of_one_s_own_is_checked_by_one_line():
    obeyed = check_imputer(DiagonalImputer(max_epochs=40))
    assert {"observed_cells_are_unchanged", "a_loaded_model_is_the_saved_one"} <= {*obeyed}
    assert "a_clone_has_the_parameters_and_nothing_that_was_learned" in check_predictor(
        BoostingClassifier(max_iter=10), tables=["penguins"]
    )


def test_laws_about_methods_that_an_imputer_does_not_have_do_not_apply():
    class Transforming(MeanImputer):
        sample = interval = property(lambda self: (_ for _ in ()).throw(AttributeError))

    obeyed = check_imputer(Transforming(), tables=["array"])
    assert not [name for name in obeyed if "draw" in name or "interval" in name]


def test_the_decorator_makes_a_test_of_each_law_estimator_and_table():
    rounding, mean = RoundingImputer(), MeanImputer()
    tests = {test.id: test.values[0] for test in parametrize_with_laws([rounding, mean]).args[1]}
    tests["MeanImputer1-observed_cells_are_unchanged-penguins"]()
    with pytest.raises(AssertionError, match="an observed cell of column 'x0' was changed"):
        tests["RoundingImputer-observed_cells_are_unchanged-array"]()
    assert "MeanImputer1-one_row_is_enough_to_fit" in tests


def test_an_unknown_table_is_refused():
    with pytest.raises(ValueError, match=r"tables must be some of array, penguins, got \['iris'\]"):
        check_imputer(MeanImputer(), tables=["iris"])


def test_the_laws_need_no_pytest():
    code = "import sys, halfseen.testing; sys.exit(str('pytest' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "False"
