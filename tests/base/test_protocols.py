"""Densities over incomplete features answer the same questions, with the same arguments."""

import inspect

import pytest

from halfseen.base.density import DrawableModel
from halfseen.circuits.circuit import Circuit
from halfseen.mixtures.imputer import DiagonalMixture
from skeletons.model import DiagonalGaussian


@pytest.mark.parametrize("model", [Circuit, DiagonalMixture, DiagonalGaussian])
def test_a_draw_is_a_function_of_rows_and_of_one_tensor_of_noise(model):
    assert isinstance(model.n_noise, property)
    for name in ("conditional_mean", "conditional_quantile", "conditional_draw"):
        needed, had = (inspect.signature(getattr(one, name)).parameters for one in (DrawableModel, model))
        required = [p.name for p in had.values() if p.default is p.empty]
        assert required == list(needed)
