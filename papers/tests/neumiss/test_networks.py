"""Trained NeuMiss networks: both recipes, the choice of depth, and that a failure is said."""

import numpy as np
import pytest
import torch

from halfseen.data.incomplete import Incomplete
from halfseen.errors import TrainingError
from halfseen.gaussian.regressor import GaussianRegressor
from papers.neumiss import networks as neumiss_networks
from papers.neumiss.networks import GaussianPredictor, TargetRows, TrainedNeuMiss, descend
from papers.problems.gaussian import GaussianProblem


@pytest.fixture(scope="module")
def sample():
    return GaussianProblem.draw(4, "mcar", rate=0.3, random_state=0).sample(1200, 0)


def r2(model, sample):
    return 1 - np.mean((model.predict(sample.incomplete) - sample.y) ** 2) / np.var(sample.y)


ARCHITECTURES = [
    {"architecture": "2020"},
    {"architecture": "2020", "residual": True},
    {"architecture": "2021"},
    {"architecture": "2021", "with_mask": True},
    {"architecture": "ours", "solver": "chebyshev"},
]


@pytest.mark.parametrize(
    ("recipe", "max_epochs", "arguments"),
    [
        ("ours", 200, ARCHITECTURES[3]),
        ("authors", 20, ARCHITECTURES[1]),
        *(pytest.param("ours", 200, one, marks=pytest.mark.slow) for one in ARCHITECTURES),
        *(pytest.param("authors", 20, one, marks=pytest.mark.slow) for one in ARCHITECTURES),
    ],
    ids=str,
)
def test_every_architecture_learns_by_either_recipe(sample, recipe, max_epochs, arguments):
    model = TrainedNeuMiss(depth=2, recipe=recipe, max_epochs=max_epochs, **arguments)
    train, test = sample.take(slice(1000)), sample.take(slice(1000, None))
    assert r2(model.fit(train.incomplete, train.y), test) > 0.35  # that of the mean is 0


def test_ours_starts_as_the_gaussian_regressor(sample):
    rows = TargetRows(Incomplete.from_array(sample.incomplete), torch.from_numpy(sample.y))
    loc, scale = rows.target.mean(), rows.target.std()
    module = GaussianPredictor(4, 0, "cholesky", self_masking=False).double()
    standard = (rows.batch.x - 1) / 2
    module.start_from(
        TargetRows(Incomplete(standard, rows.batch.observed), (rows.target - loc) / scale),
        torch.Generator().manual_seed(0),
    )
    found = module(Incomplete(standard, rows.batch.observed)).detach() * scale + loc
    expected = GaussianRegressor(random_state=0).fit(sample.incomplete, sample.y).predict(sample.incomplete)
    assert np.corrcoef(found.numpy(), expected)[0, 1] > 0.9999
    np.testing.assert_allclose(found.numpy(), expected, atol=0.05 * sample.y.std())


def test_held_out_rows_choose_the_depth(sample):
    train, held = sample.take(slice(800)), sample.take(slice(800, None))
    validation = held.incomplete, held.y
    model = TrainedNeuMiss("2021", depth=(0, 2, 6), max_epochs=30)
    model.fit(train.incomplete, train.y, validation)
    assert list(model.validation_errors_) == [0, 2, 6]
    assert model.depth_ == min(model.validation_errors_, key=model.validation_errors_.__getitem__)
    error = np.mean((model.predict(held.incomplete) - held.y) ** 2)
    assert error == pytest.approx(model.validation_errors_[model.depth_], rel=1e-5)


def test_values_under_the_mask_are_never_read_and_seeds_repeat(sample):
    spoilt = np.where(sample.observed, sample.X, np.nan)
    first = TrainedNeuMiss("2020", 1, max_epochs=3).fit(sample.incomplete, sample.y).predict(spoilt)
    again = TrainedNeuMiss("2020", 1, max_epochs=3).fit(spoilt, sample.y).predict(sample.incomplete)
    np.testing.assert_array_equal(first, again)


def test_a_run_that_diverges_is_a_failure(sample):
    enormous = 1e6 * sample.incomplete
    with pytest.raises(TrainingError, match=r"Training diverged at depth 3\."):
        TrainedNeuMiss("2020", 3, recipe="authors", max_epochs=3).fit(enormous, sample.y)


def test_a_depth_that_diverges_is_named_and_not_chosen(sample, monkeypatch):
    def explode(module, rows, n_epochs, generator):
        yield float("nan") if module.depth == 1 else 1.0

    monkeypatch.setattr(neumiss_networks, "descend", explode)
    model = TrainedNeuMiss("2020", (1, 2), recipe="authors").fit(sample.incomplete, sample.y)
    assert (model.failed_depths_, model.depth_) == ([1], 2)
    assert np.isnan(model.validation_errors_[1])


class Constant(torch.nn.Module):
    """Predicts a number, whose gradient is known."""

    def __init__(self):
        super().__init__()
        self.value = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch):
        return self.value.expand(len(batch))


def test_the_authors_recipe_is_plain_descent_with_a_rate_of_a_hundredth_by_features(generator):
    rows = TargetRows(Incomplete(torch.zeros(20, 5), torch.ones(20, 5, dtype=torch.bool)), torch.ones(20))
    module = Constant()
    [loss] = descend(module, rows, 1, generator)
    # Two batches, each a step of the rate 0.01 / 5 along 2 (1 - value).
    first = 2 * 0.002
    assert float(module.value.detach()) == pytest.approx(first + 2 * 0.002 * (1 - first), rel=1e-6)
    assert loss == pytest.approx((1 + (1 - first) ** 2) / 2, rel=1e-6)


def test_the_authors_recipe_stops_when_its_rate_is_spent(generator):
    rows = TargetRows(Incomplete(torch.zeros(10, 10), torch.ones(10, 10, dtype=torch.bool)), torch.zeros(10))
    # The loss is 0 from the start and cannot improve: 1e-3 is divided by 5 every third epoch after the first,
    # and is below 5e-6 after four times.
    assert len(list(descend(Constant(), rows, 100, generator))) == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"architecture": "2019"}, "architecture must be one of 2020, 2021, ours, got '2019'"),
        ({"recipe": "mine"}, "recipe must be one of authors, ours, got 'mine'"),
        ({"likelihood_weight": 1.0}, "likelihood_weight needs architecture='ours'"),
    ],
)
def test_what_cannot_be_is_refused(sample, arguments, message):
    with pytest.raises(ValueError, match=message):
        TrainedNeuMiss(**arguments).fit(sample.incomplete, sample.y)
