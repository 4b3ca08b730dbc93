"""The skeleton that newcomers copy is a whole model: it obeys what every imputer obeys."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import halfseen
from skeletons.imputer import DiagonalImputer


@pytest.mark.global_random
@parametrize_with_checks([DiagonalImputer(max_epochs=20, random_state=0)])
def test_the_skeleton_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def penguins():
    return halfseen.datasets.load_penguins("pandas")


@pytest.fixture(scope="module")
def fitted(penguins):
    return DiagonalImputer(schema={"year": "ordinal"}, random_state=0).fit(penguins)


def test_the_skeleton_fills_a_mixed_table_and_keeps_what_was_observed(fitted, penguins):
    complete = fitted.transform(penguins)
    assert not complete.isna().any().any()
    assert (complete.dtypes == penguins.dtypes).all()
    seen = penguins.notna()
    assert complete.where(seen).equals(penguins.where(seen))


def test_the_skeleton_is_right_about_each_column(fitted, penguins):
    complete = fitted.transform(penguins)
    hole = penguins["bill_length_mm"].isna()
    np.testing.assert_allclose(
        complete.loc[hole, "bill_length_mm"], penguins["bill_length_mm"].mean(), rtol=0.01
    )
    assert set(complete.loc[penguins["sex"].isna(), "sex"]) == {penguins["sex"].mode()[0]}


def test_draws_of_the_skeleton_belong_to_rows(fitted, penguins):
    alone = penguins[penguins["sex"].isna()].drop_duplicates()
    together = fitted.sample(penguins, n_draws=2)
    for one, all_ in zip(fitted.sample(alone, n_draws=2), together, strict=True):
        assert one.equals(all_.loc[alone.index])


def test_a_saved_skeleton_gives_the_same_output(fitted, penguins, tmp_path):
    fitted.save(tmp_path / "model.halfseen")
    loaded = halfseen.load(tmp_path / "model.halfseen")
    assert isinstance(loaded, DiagonalImputer)
    assert loaded.transform(penguins).equals(fitted.transform(penguins))
    assert loaded.sample(penguins)[0].equals(fitted.sample(penguins)[0])
    np.testing.assert_array_equal(loaded.score_samples(penguins), fitted.score_samples(penguins))


def test_probabilities_of_levels_sum_to_one(fitted, penguins):
    probabilities = fitted.class_probabilities(penguins)
    assert set(probabilities) == {"species", "island", "sex", "year"}
    for table in probabilities.values():
        assert table.shape[0] == len(penguins)
        np.testing.assert_allclose(table.sum(axis=1), 1.0)
