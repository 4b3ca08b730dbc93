"""Every model that is trained by gradients can be trained on any device, and is then the same."""

import json
from inspect import signature

import numpy as np
import pytest
import torch
from conformance.families import DATA
from conformance.fitted import frame, target
from conformance.registry import ESTIMATORS, OTHERS
from safetensors import safe_open
from sklearn.base import clone
from strict_device import strict_device

from halfseen.latent.presets import LatentImputer

ROUNDING = {"rtol": 1e-3, "atol": 1e-5}
"""Networks compute in single precision, in which products of tensors with another layout differ a little."""


def _is_trained_on_a_device(row):
    return "device" in signature(row.make).parameters


ROWS = [row for row in (*ESTIMATORS, *OTHERS) if _is_trained_on_a_device(row)]


def _fit(row, device):
    estimator = row.make(random_state=0, device=device)
    if row in OTHERS:
        return DATA[row.family]().fit(estimator)
    return (
        estimator.fit(frame(), row.target(target()))
        if hasattr(row.make(), "predict")
        else estimator.fit(frame())
    )


def _answers(row, estimator):
    if row in OTHERS:
        return DATA[row.family]().ask(estimator)
    asked = [name for name in ("transform", "predict") if hasattr(estimator, name)]
    return {name: np.asarray(getattr(estimator, name)(frame())) for name in asked}


def _content(estimator, path):
    estimator.save(path)
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["halfseen"]), {name: file.get_tensor(name) for name in file.keys()}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_model_is_the_same_whatever_the_device_of_its_training(row, tmp_path):
    here = _fit(row, "cpu")
    with strict_device() as name:
        there = _fit(row, name)
    manifest, tensors = _content(here, tmp_path / "here")
    manifest_there, tensors_there = _content(there, tmp_path / "there")
    assert manifest["parameters"] == manifest_there["parameters"]
    torch.testing.assert_close(tensors_there, tensors, **ROUNDING)
    answers = _answers(row, there)
    for question, answer in _answers(row, here).items():
        if answer.dtype.kind == "f":
            np.testing.assert_allclose(answers[question], answer, **ROUNDING)


SMALL = {"n_latent": 2, "width": 4, "n_blocks": 1, "max_epochs": 1, "n_imputation_draws": 8}


@pytest.mark.parametrize(
    "settings",
    [
        *({"missingness": f"self-masking-{word}"} for word in ("shared-slope", "monotone", "flexible")),
        {"missingness": "linear"},
        {"missingness": "nonlinear"},
        {"missingness": torch.sigmoid},
        {"encoder": "set"},
        {"posterior": "imputations", "imputation": "mwg"},
        {"decoder": "linear", "numeric": "shared-gaussian"},
    ],
    ids=lambda settings: "-".join(getattr(value, "__name__", value) for value in settings.values()),
)
def test_a_latent_model_is_the_same_whatever_its_parts_and_the_device(settings):
    imputer = LatentImputer(**SMALL, **settings, random_state=0)
    here = imputer.fit(frame()).transform(frame())
    with strict_device() as name:
        there = clone(imputer).set_params(device=name).fit(frame()).transform(frame())
    np.testing.assert_allclose(there, here, **ROUNDING)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_unknown_device_is_refused_before_anything_is_fitted(row):
    with pytest.raises(
        ValueError, match=r"device must be 'auto' or the name of a device of torch, here 'cpu'.*'gpu'"
    ):
        _fit(row, "gpu")
