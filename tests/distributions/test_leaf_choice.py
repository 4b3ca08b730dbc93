"""One uniform chooses one candidate, by the cumulated weights."""

import numpy as np
import torch
from scipy import stats
from tolerances import FAILURE_RATE

from halfseen.distributions.leaves import choose_by_cdf


def test_choices_are_those_of_a_search_in_the_cumulated_weights(generator):
    weights = torch.rand(5, 7, generator=generator, dtype=torch.float64)
    uniforms = torch.rand(5, 9, generator=generator, dtype=torch.float64)
    expected = [
        [np.searchsorted(np.cumsum(row) / row.sum(), u) for u in some]
        for row, some in zip(weights.numpy(), uniforms.numpy(), strict=True)
    ]
    assert choose_by_cdf(weights, uniforms).tolist() == expected
    assert torch.equal(choose_by_cdf(8.0 * weights, uniforms), choose_by_cdf(weights, uniforms))


def test_a_candidate_of_weight_zero_is_never_chosen_and_a_uniform_of_one_takes_the_last():
    weights = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    uniforms = torch.tensor([[0.0, 0.25, 0.5, 0.75, 1.0]])
    assert choose_by_cdf(weights, uniforms).tolist() == [[1, 1, 3, 3, 3]]


def test_choices_have_the_frequencies_of_the_weights(generator):
    weights = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    uniforms = torch.rand(20_000, generator=generator, dtype=torch.float64)
    counts = choose_by_cdf(weights, uniforms).bincount(minlength=3)
    assert stats.chisquare(counts.numpy(), 20_000 * weights.numpy()).pvalue > FAILURE_RATE


def test_the_type_of_uniforms_does_not_matter():
    weights = torch.tensor([[0.5, 0.5]])
    assert choose_by_cdf(weights, torch.tensor([[0.2, 0.9]], dtype=torch.float64)).tolist() == [[0, 1]]
