"""The experiment that chooses the penalty of AutoRec for each case."""

import numpy as np
import pytest
import scipy.sparse

from papers.sparsity import units
from papers.sparsity.ratings import NORMALISED, OFFSETS, PLAIN
from papers.sparsity.tuned import EXPERIMENT, TunedAutoRec


@pytest.fixture
def ratings():
    """Noise around the means of columns, and a weak taste: a network without a penalty learns the noise."""
    rng = np.random.default_rng(0)
    taste = 0.3 * rng.normal(size=(60, 1)) * rng.normal(size=40) + rng.normal(size=(60, 40))
    return scipy.sparse.csr_array(np.where(rng.random(taste.shape) < 0.5, np.clip(3 + taste, 1, 5), 0.0))


def test_the_penalty_and_the_weights_of_the_smallest_held_out_error_are_kept(ratings):
    settings = {"rows": "user", "n_hidden": 8, "n_steps": 200, "random_state": 0}
    alone = {
        penalty: TunedAutoRec(**settings, penalties=(penalty,)).fit(ratings) for penalty in (0.1, 20.0, 1e6)
    }
    both = TunedAutoRec(**settings, penalties=tuple(alone)).fit(ratings)
    errors = {penalty: model.held_out_error_ for penalty, model in alone.items()}
    assert len(set(errors.values())) == 3
    assert both.penalty_ == min(errors, key=errors.get)
    chosen = alone[both.penalty_]
    assert (both.step_, both.held_out_error_) == (chosen.step_, chosen.held_out_error_)
    user, item = ratings.nonzero()
    np.testing.assert_array_equal(both.predict(user, item), chosen.predict(user, item))


def test_too_few_ratings_to_hold_any_out_are_refused(ratings):
    with pytest.raises(ValueError, match="too few ratings to choose a penalty"):
        TunedAutoRec("user", n_hidden=2, n_steps=1).fit(ratings[:2])


def test_the_published_numbers_are_those_of_table_1():
    wanted = {"data": "ML-100K", "rows": "user"}
    assert EXPERIMENT.numbers(wanted, PLAIN, "RMSE").mean == 0.9346
    assert EXPERIMENT.numbers(wanted, NORMALISED, "RMSE").mean == 0.9208
    assert EXPERIMENT.numbers(wanted, OFFSETS, "RMSE") is None


def test_numbers_of_units_have_the_paper_number_of_table_2_with_a_thousand():
    assert units.EXPERIMENT.numbers({"data": "ML-1M"}, units.with_units(1000), "RMSE").mean == 0.826
    assert units.EXPERIMENT.numbers({"data": "ML-1M"}, units.with_units(500), "RMSE") is None
    made = {name: make() for name, make in units.EXPERIMENT.models.items()}
    assert [model.n_hidden for model in made.values()] == list(units.UNITS)
    assert all(model.sparsity_norm for model in made.values())
