"""MADE as an estimator: what it learns, draws and refuses."""

import numpy as np
import pytest

from halfseen.errors import HalfseenWarning
from halfseen.sparsity import MADE


def tiny(**parameters):
    return MADE(**{"width": 8, "max_epochs": 1, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def pairs():
    """Images of 2 x 2 pixels in which the pixels of each line are equal."""
    rng = np.random.default_rng(0)
    return np.repeat(rng.integers(2, size=(300, 2, 1)), 2, axis=2)


@pytest.mark.parametrize("normalisation", [None, "mask", "causal"])
def test_dependence_is_learned_and_drawn(pairs, normalisation):
    model = tiny(
        normalisation=normalisation, width=24, n_orderings=2, max_epochs=30, batch_size=50, learning_rate=0.05
    ).fit(pairs)
    assert model.score(pairs) == pytest.approx(2 * np.log(0.5), abs=0.15)
    drawn = model.sample(200, random_state=0)
    assert drawn.shape == (200, 2, 2)
    assert (drawn[:, :, 0] == drawn[:, :, 1]).mean() > 0.95
    np.testing.assert_array_equal(drawn, model.sample(200, random_state=0))


def test_without_training_the_frequencies_of_ones_are_the_start(pairs):
    model = tiny(max_epochs=0).fit(np.ones((60, 3)))
    assert model.score_samples(np.ones((1, 3)))[0] > -1.0


@pytest.mark.parametrize("normalisation", ["input", "all"])
def test_the_published_input_normalisation_warns_and_does_not_sample(pairs, normalisation):
    with pytest.warns(HalfseenWarning, match="the scores are not log-likelihoods"):
        model = tiny(normalisation=normalisation).fit(pairs)
    with pytest.raises(ValueError, match="is not a density: nothing can be sampled"):
        model.sample()


def test_other_data_than_zeros_and_ones_are_refused(pairs):
    with pytest.raises(ValueError, match=r"zeros and ones, .* row 1 has 2\.0 in feature 0"):
        tiny().fit([[0, 1], [2, 1]])
    with pytest.raises(ValueError, match=r"row 0 has nan in feature 1\. For incomplete .* MixtureImputer"):
        tiny().fit([[0, np.nan], [1, 1]])
    with pytest.raises(ValueError, match=r"got the shape \(3,\)"):
        tiny().fit([0, 1, 1])
    with pytest.raises(ValueError, match=r"features of shape \(4,\), but MADE was fitted to \(2, 2\)"):
        tiny().fit(pairs).score_samples(pairs.reshape(-1, 4))
    with pytest.raises(
        ValueError, match=r"normalisation must be one of None, 'mask', 'causal', 'input', 'all', got"
    ):
        tiny(normalisation="batch").fit(pairs)
