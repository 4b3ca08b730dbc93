"""The model compared with a slow, obvious implementation. Copy it to tests/<family>/test_model.py."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from skeletons.model import DiagonalGaussian


def random_model(seed, n_features=4):
    generator = torch_generator(seed)
    model = DiagonalGaussian(n_features).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model, generator


def random_batch(generator, rate, n_rows=8, n_features=4):
    x = torch.randn(n_rows, n_features, generator=generator, dtype=torch.float64)
    return Incomplete(x, torch.rand(n_rows, n_features, generator=generator) >= rate)


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 1))
def test_the_density_is_that_of_scipy_cell_by_cell(seed, rate):
    model, generator = random_model(seed)
    batch = random_batch(generator, rate)
    loc, scale = model.loc.detach().numpy(), model.scale.detach().numpy()
    expected = [
        sum(stats.norm.logpdf(row[d], loc[d], scale[d]) for d in np.flatnonzero(seen))
        for row, seen in zip(batch.x.numpy(), batch.observed.numpy(), strict=True)
    ]
    np.testing.assert_allclose(model(batch).detach().numpy(), expected, rtol=EXACT, atol=EXACT)


@given(seed=st.integers(0, 2**16), rate=st.floats(0, 1))
def test_values_under_the_mask_are_never_read(seed, rate):
    model, generator = random_model(seed)
    batch = random_batch(generator, rate)
    poison = Incomplete(torch.where(batch.observed, batch.x, math.nan), batch.observed)
    torch.testing.assert_close(model(poison), model(batch), rtol=0, atol=0)
    model(poison).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_observed_cells_come_back_exactly():
    model, generator = random_model(0)
    batch = random_batch(generator, rate=0.5)
    noise = torch.rand(8, 4, generator=generator, dtype=torch.float64).clamp(min=1e-12)
    answers = (
        model.conditional_mean(batch),
        model.conditional_quantile(batch, 0.9),
        model.conditional_draw(batch, noise),
    )
    for answer in answers:
        assert torch.equal(answer[batch.observed], batch.x[batch.observed])


def test_draws_follow_the_density():
    model, generator = random_model(1, n_features=1)
    nothing = Incomplete(torch.zeros(2000, 1).double(), torch.zeros(2000, 1, dtype=torch.bool))
    noise = torch.rand(2000, 1, generator=generator, dtype=torch.float64).clamp(min=1e-12)
    draws = model.conditional_draw(nothing, noise).detach().numpy().ravel()
    fit = stats.kstest(draws, stats.norm(model.loc.item(), model.scale.item()).cdf)
    assert fit.pvalue > FAILURE_RATE


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1])
def test_a_level_outside_0_and_1_is_refused(level):
    model, generator = random_model(0)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        model.conditional_quantile(random_batch(generator, 0.5), level)


def test_a_model_without_features_is_refused():
    with pytest.raises(ValueError, match="n_features must be at least 1, got 0"):
        DiagonalGaussian(0)
