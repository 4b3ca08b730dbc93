"""A limit on the time of training ends it in good order."""

import numpy as np
import torch

from halfseen import GaussianImputer, MixtureImputer, TreeImputer
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.em import EMSettings, choose_shrinkage
from halfseen.training.progress import is_over, time_limit

X = np.random.default_rng(0).normal(size=(100, 3))


def test_training_ends_after_one_epoch_when_the_time_is_over():
    with time_limit(0.0):
        imputer = MixtureImputer(2, random_state=0).fit(X)
    assert imputer.history_.stopped == "time"
    assert len(imputer.history_.train_loss) == 1
    assert np.isfinite(imputer.transform([[np.nan, 0.0, 1.0]])).all()


def test_em_ends_after_one_iteration_when_the_time_is_over():
    incomplete = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    with time_limit(0.0):
        imputer = GaussianImputer().fit(incomplete)
    assert imputer.n_iter_ == 1 < GaussianImputer().fit(incomplete).n_iter_
    assert np.isfinite(imputer.transform(incomplete)).all()


def test_without_time_to_compare_ranks_a_wide_table_has_a_small_one():
    wide = np.random.default_rng(0).normal(size=(30, 160))
    with time_limit(0.0):
        settings = choose_shrinkage(Incomplete.from_array(wide), EMSettings(), generator=torch.Generator())
    assert (settings.rank, settings.ridge) == (8, 30.0)


def test_columns_without_time_for_trees_are_left_to_the_gaussian():
    with time_limit(0.0):
        imputer = TreeImputer(random_state=0).fit(X)
    assert imputer.model_.rounds == ()
    assert imputer.gaussian_columns_ == ["x0", "x1", "x2"]
    assert TreeImputer(1, max_trees=2, random_state=0).fit(X).gaussian_columns_ == []


def test_a_limit_knows_whether_it_ended_something_within_it():
    with time_limit(1000.0) as outer, time_limit(0.0) as inner:
        MixtureImputer(2, random_state=0).fit(X)
    assert inner.met
    assert outer.met


def test_a_limit_that_is_not_reached_changes_nothing():
    with time_limit(1000.0) as limit:
        limited = MixtureImputer(2, max_epochs=3, random_state=0).fit(X)
    assert limited.history_ == MixtureImputer(2, max_epochs=3, random_state=0).fit(X).history_
    assert not limit.met


def test_a_limit_within_another_cannot_be_later():
    with time_limit(0.0), time_limit(1000.0):
        assert is_over()
    assert not is_over()
