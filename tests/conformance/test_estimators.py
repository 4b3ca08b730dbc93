"""scikit-learn's contract, for every row of the registry."""

import copy
import re
from dataclasses import replace
from unittest import SkipTest

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conformance.design import REPRESENTATIVES
from conformance.fitted import fitted, fitted_to_frame, frame, target
from conformance.registry import (
    ESTIMATORS,
    EVERY_ROW,
    FAILED_CHECKS,
    IMPUTERS,
    OTHERS,
    PREDICTORS,
    REGRESSORS,
    SKELETONS,
    TRANSFORMERS,
)
from conformance.tables import ARRAY, PENGUINS
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from halfseen.base.capabilities import Capabilities
from halfseen.base.catalogue import CATALOGUE
from halfseen.testing.tables import bits, names

# The estimators say that they take no arrays but numpy's (tags.array_api_support), and scikit-learn's check
# of other arrays cannot even begin without SCIPY_ARRAY_API=1 in the environment before scipy is imported.
ALLOWED_SKIPS = {"check_array_api_input"}


FIRST_OF_CLASS = {type(row.make()): row for row in reversed(ESTIMATORS) if not row.slow}.values()
REPRESENTING = [row for row in FIRST_OF_CLASS if row.name in REPRESENTATIVES]


METHODS = {
    "imputes": ("transform", "sample", "interval"),
    "density": ("score_samples",),
    "information_gain": ("information_gain",),
}


@pytest.mark.parametrize("row", EVERY_ROW, ids=str)
def test_the_capabilities_of_an_estimator_are_the_methods_that_it_has(row):
    estimator = row.make()
    can, parameters = estimator.capabilities, estimator.get_params()
    if not can.tables:
        assert can == Capabilities(predicts=can.predicts)
        return
    for field, needed in METHODS.items():
        assert getattr(can, field) == all(hasattr(estimator, name) for name in needed), field
    assert (can.predicts == "classes") == hasattr(estimator, "predict_proba")
    assert (can.predicts == "numbers") == hasattr(estimator, "predict_interval")
    assert (can.predicts is not None) == hasattr(estimator, "predict")
    assert can.trains_in_epochs == ("max_epochs" in parameters)
    assert can.holds_out_rows or "validation_fraction" not in parameters
    assert hash(can) == hash(replace(can)), "the record is frozen"


def checks(rows):
    """The checks of scikit-learn for each of some rows."""
    return parametrize_with_checks(
        [row.make(random_state=0) for row in rows],
        expected_failed_checks=lambda estimator: FAILED_CHECKS.get(type(estimator).__name__, {}),
    )


@pytest.mark.global_random
@checks(REPRESENTING)
def test_the_checks_of_scikit_learn_pass(estimator, check):
    run_check(estimator, check)


@pytest.mark.laws_only
@pytest.mark.global_random
@checks([row for row in FIRST_OF_CLASS if row not in REPRESENTING])
def test_the_checks_of_scikit_learn_pass_for_the_other_classes(estimator, check):
    run_check(estimator, check)


@pytest.mark.slow
@pytest.mark.global_random
@checks([row for row in ESTIMATORS if row not in FIRST_OF_CLASS])
def test_the_checks_of_scikit_learn_pass_for_other_settings_and_presets(estimator, check):
    run_check(estimator, check)


@pytest.mark.global_random
@parametrize_with_checks([row.make() for row in TRANSFORMERS])
def test_the_checks_of_scikit_learn_pass_for_transformers(estimator, check):
    run_check(estimator, check)


def run_check(estimator, check):
    try:
        check(estimator)
    except SkipTest as skip:
        name = getattr(check, "func", check).__name__
        if name not in ALLOWED_SKIPS:
            pytest.fail(f"{name} was skipped: {skip}")
        raise


def test_every_public_estimator_is_in_the_registry():
    rows = (*EVERY_ROW, *OTHERS)
    registered = {type(row.make()) for row in rows} - {*SKELETONS}
    assert {method.estimator for method in CATALOGUE} == registered
    assert len({row.name for row in rows}) == len(rows)


@pytest.fixture(scope="module", name="frame")
def the_frame():
    return frame()


@pytest.fixture(scope="module", name="target")
def the_target():
    return target()


@pytest.fixture(scope="module", params=ESTIMATORS, ids=str)
def any_row(request):
    return request.param


def ask(estimator, table):
    return estimator.predict(table) if hasattr(estimator, "predict") else estimator.transform(table)


class Stop(BaseException):
    """Raised in the middle of a fit, as an interruption is."""


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, MemoryError])
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(any_row, frame, target, monkeypatch, error):
    """It fails at once after the columns are known: what is learned of them must not outlive it."""

    def stop(*content):
        raise error("stopped")

    target = any_row.target(target)
    unfitted, before = any_row.make(random_state=3), copy.deepcopy(fitted_to_frame(any_row))
    states = [dict(vars(one)) for one in (unfitted, before)]
    answer = ask(before, frame)
    with monkeypatch.context() as patch:
        patch.setattr("halfseen.base.table.ReadTable", stop)
        for one in (unfitted, before):
            with pytest.raises(error, match="stopped"):
                one.fit(frame[["c", "a"]].abs().round(), target)
    for one, state in zip((unfitted, before), states, strict=True):
        assert vars(one).keys() == state.keys()
        assert all(value is state[name] for name, value in vars(one).items())
    with pytest.raises(NotFittedError):
        ask(unfitted, frame)
    np.testing.assert_array_equal(ask(before, frame), answer)


TRAINED = [row for row in ESTIMATORS if "callback" in row.make().get_params()]


@pytest.mark.parametrize("trained", TRAINED, ids=str)
def test_an_interruption_in_training_leaves_the_estimator_as_it_was(trained, frame, target):
    def interrupt(progress):
        raise KeyboardInterrupt

    estimator, target = copy.deepcopy(fitted_to_frame(trained)), trained.target(target)
    answer = ask(estimator, frame)
    estimator.set_params(callback=interrupt)
    before = dict(vars(estimator))
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(2 * frame + 1, target)
    assert vars(estimator) == before
    np.testing.assert_array_equal(ask(estimator, frame), answer)


def test_a_grid_search_goes_by_the_score(any_row, frame, target):
    search = GridSearchCV(any_row.make(random_state=0), any_row.grid, cv=2, error_score="raise")
    if not hasattr(any_row.make(), "score"):
        with pytest.raises(TypeError, match="should have a 'score' method"):
            search.fit(frame)
        return
    search.fit(frame, any_row.target(target))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_.keys() == any_row.grid.keys()
    assert ask(search, frame).shape[0] == len(frame)


def test_an_imputer_that_knows_the_data_better_has_the_better_score(frame):
    compared = [row for row in IMPUTERS if row.name in ("gaussian", "mean", "mixture")]
    scores = {row.name: cross_val_score(row.make(random_state=0), frame, cv=3).mean() for row in compared}
    assert scores["gaussian"] > scores["mean"] + 0.1
    assert scores["mixture"] > scores["mean"]


def test_an_imputer_works_in_a_pipeline(row, frame, target):
    pipeline = make_pipeline(StandardScaler(), row.make(random_state=0), LinearRegression()).fit(
        frame, target
    )
    assert np.isfinite(pipeline.predict(frame)).all()
    assert np.isfinite(cross_val_score(pipeline, frame, target, cv=3)).all()


@pytest.mark.parametrize("predictor", PREDICTORS, ids=str)
def test_a_predictor_works_in_a_pipeline(predictor, frame, target):
    target = predictor.target(target)
    pipeline = make_pipeline(StandardScaler(), predictor.make(random_state=0)).fit(frame, target)
    assert np.isfinite(pipeline.score(frame, target))
    assert np.isin(pipeline.predict(frame), target).all() or predictor in REGRESSORS


def test_an_imputer_works_in_a_column_transformer(row):
    penguins = PENGUINS.make()
    some = ["bill_length_mm", "sex", "body_mass_g"]
    transformer = ColumnTransformer(
        [("fill", row.make(random_state=0), some), ("keep", "passthrough", ["species"])],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    filled = transformer.fit_transform(penguins)
    assert list(filled.columns) == [*some, "species"]
    assert not filled.isna().any().any()
    assert bits(filled[some]) == bits(row.make(random_state=0).fit_transform(penguins[some]))


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output_chooses_the_library_of_transform(row, library, kind):
    array, imputer = ARRAY.make(), fitted(row, ARRAY)
    filled = copy.deepcopy(imputer).set_output(transform=library).transform(array)
    assert isinstance(filled, kind)
    assert list(filled.columns) == ["x0", "x1", "x2", "x3"]
    np.testing.assert_array_equal(filled.to_numpy(), imputer.transform(array))


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output_keeps_names_and_values_of_a_mixed_frame(row, library, kind):
    penguins, imputer = PENGUINS.make(), fitted(row, PENGUINS)
    filled = copy.deepcopy(imputer).set_output(transform=library).transform(penguins)
    assert isinstance(filled, kind)
    assert names(filled) == names(penguins)
    assert bits(filled) == bits(imputer.transform(penguins))


def with_indicators(imputer):
    return copy.deepcopy(imputer).set_params(add_indicator=True)


def test_indicators_follow_the_completed_columns_of_a_frame(row):
    penguins, imputer = PENGUINS.make(), fitted(row, PENGUINS)
    incomplete = [name for name in penguins.columns if penguins[name].isna().any()]
    found = with_indicators(imputer).transform(penguins)
    added = [f"missingindicator_{name}" for name in incomplete]
    assert names(found) == [*names(penguins), *added]
    assert with_indicators(imputer).get_feature_names_out().tolist() == names(found)
    assert bits(found[names(penguins)]) == bits(imputer.transform(penguins))
    for name, indicator in zip(incomplete, added, strict=True):
        assert found[indicator].tolist() == penguins[name].isna().tolist()
    few = with_indicators(imputer).transform(penguins.dropna().head(2))  # the columns are those of `fit`
    assert names(few) == names(found)
    assert not few[added].to_numpy().any()


def test_indicators_follow_the_completed_columns_of_an_array(row):
    array, imputer = ARRAY.make(), fitted(row, ARRAY)
    found = with_indicators(imputer).transform(array)
    missing = np.isnan(array)
    np.testing.assert_array_equal(found, np.c_[imputer.transform(array), missing[:, missing.any(axis=0)]])


def test_feature_names_go_in_and_out(row):
    imputer = fitted_to_frame(row)
    assert imputer.n_features_in_ == 4
    assert imputer.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert imputer.get_feature_names_out().tolist() == ["a", "b", "c", "d"]
    nameless = fitted(row, ARRAY)
    assert not hasattr(nameless, "feature_names_in_")
    assert nameless.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]


@pytest.mark.parametrize(
    "library", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"]
)
def test_feature_names_come_from_frames_of_every_library(any_row, frame, target, library):
    estimator = any_row.make(random_state=0).fit(
        library({name: frame[name].to_numpy() for name in "abcd"}), any_row.target(target)
    )
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    swapped = library({name: frame[name].to_numpy() for name in "bacd"})
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        ask(estimator, swapped)
    lacking = library({name: frame[name].to_numpy() for name in ("a", "b", "d")})
    with pytest.raises(ValueError, match=re.compile("yet now missing.*c", re.DOTALL)):
        ask(estimator, lacking)
    strange = library({name: frame["a"].to_numpy() for name in "abce"})
    with pytest.raises(ValueError, match=re.compile("unseen at fit time.*e", re.DOTALL)):
        ask(estimator, strange)


def test_a_wrong_number_of_columns_is_refused(any_row, frame, target):
    estimator = any_row.make(random_state=0).fit(frame.to_numpy(), any_row.target(target))
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4 features as input"):
        ask(estimator, frame.to_numpy()[:, :3])


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=str)
def test_a_transformer_that_was_not_fitted_cannot_be_saved(transformer, tmp_path):
    with pytest.raises(NotFittedError, match="instance is not fitted yet"):
        transformer.make().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("random_state", [-1, "seed", 1.5])
def test_what_cannot_seed_anything_is_refused_as_random_state(any_row, frame, target, random_state):
    with pytest.raises(ValueError, match=r"random_state must .*, got "):
        any_row.make(random_state=random_state).fit(frame, any_row.target(target))


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState], ids=["generator", "legacy"])
def test_a_generator_as_random_state_seeds_and_is_advanced(row, make):
    table = ARRAY.make()
    one = row.make(random_state=make(5)).fit(table)
    other = row.make(random_state=make(5)).fit(table)
    np.testing.assert_array_equal(one.sample(table), other.sample(table))
    before = one.sample(table)
    assert not np.array_equal(one.fit(table).sample(table), before)


def test_the_schema_explains_each_column(any_row):
    penguins = PENGUINS.make()
    estimator = any_row.make(random_state=0).fit(penguins, any_row.target(np.arange(len(penguins))))
    assert [column.name for column in estimator.schema_] == list(penguins.columns)
    assert all(column.reason for column in estimator.schema_)
