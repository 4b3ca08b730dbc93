"""The likelihood of what was observed, as an objective."""

import numpy as np
import torch
from scipy import stats
from tolerances import EXACT

from halfseen.base.density import NegativeLogLikelihood
from halfseen.data.incomplete import Incomplete
from halfseen.mixtures.imputer import DiagonalMixture


def test_the_loss_is_minus_the_log_density_of_each_row():
    model = DiagonalMixture(n_features=2, n_components=3).double()  # all components are equal
    x = torch.tensor([[0.3, -1.2], [0.3, 9.9], [9.9, 9.9]], dtype=torch.float64)
    observed = torch.tensor([[True, True], [True, False], [False, False]])

    loss = NegativeLogLikelihood()(model, Incomplete(x, observed), ())

    seen = stats.norm.logpdf([0.3, -1.2], scale=model.scale[0].detach().numpy())
    np.testing.assert_allclose(loss.detach(), [-seen.sum(), -seen[0], 0.0], rtol=EXACT, atol=EXACT)


def test_no_noise_is_drawn(generator):
    before = generator.get_state()
    batch = Incomplete(torch.zeros(2, 1), torch.ones(2, 1, dtype=torch.bool))
    assert NegativeLogLikelihood().draw_noise(batch, generator) == ()
    assert torch.equal(generator.get_state(), before)


def test_its_gradient_vanishes_at_the_moments_of_the_observed_cells(generator):
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    observed = torch.rand(60, 2, generator=generator) < 0.6
    model = DiagonalMixture(n_features=2, n_components=1).double()
    model.reset_parameters(Incomplete(x, observed), generator)
    with torch.no_grad():  # with one component the maximum of the likelihood is mean and spread by column
        model.loc.copy_(torch.stack([x[observed[:, d], d].mean() for d in range(2)]))

    NegativeLogLikelihood()(model, Incomplete(x, observed), ()).sum().backward()

    for parameter in model.parameters():
        np.testing.assert_allclose(parameter.grad, 0.0, atol=1e-9)
