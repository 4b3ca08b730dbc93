"""Corrupted and forged model files: refused in one line, without memory for what they ask for."""

import os
import resource

import numpy as np
import pytest
import torch
from conformance.families import DATA
from conformance.registry import IMPUTERS, OTHERS, PREDICTORS, TRANSFORMERS, FamilyRow
from conformance.tables import ARRAY, PENGUINS
from hostile.corruption import corrupt, read, sign

import halfseen
from halfseen import (
    GaussianImputer,
    MeanImputer,
    MIWAEImputer,
    MixtureImputer,
    ModelFileError,
    NeuMissClassifier,
    NeuMissRegressor,
)
from halfseen.testing.tables import fit_quietly

SMALL = {"n_latent": 2, "width": 8, "n_blocks": 1, "max_epochs": 1, "n_imputation_draws": 32}
NETWORKS = {"n_networks": 2, "width": 16, "max_epochs": 2}


def _table():
    return PENGUINS.make()


def _target():
    return np.random.default_rng(0).normal(size=len(_table()))


KINDS = {
    "gaussian": lambda: fit_quietly(GaussianImputer(n_posterior_draws=2, random_state=0), _table()),
    "mean": lambda: fit_quietly(MeanImputer(random_state=0), _table()),
    "mixture": lambda: fit_quietly(MixtureImputer(max_epochs=2, random_state=0), _table()),
    "latent": lambda: fit_quietly(MIWAEImputer(random_state=0, **SMALL), _table()),
    "regressor": lambda: NeuMissRegressor(random_state=0, **NETWORKS).fit(_table(), _target()),
    "classifier": lambda: NeuMissClassifier(random_state=0, **NETWORKS).fit(_table(), _target() > 0),
}

ROWS = (*IMPUTERS, *PREDICTORS, *TRANSFORMERS, *OTHERS)
N_CORRUPTED = 22  # files of each estimator


def _fitted(row):
    if isinstance(row, FamilyRow):
        return DATA[row.family]().fit(row.make(random_state=0))
    if row in TRANSFORMERS:
        return row.make().fit(ARRAY.make())
    if row in IMPUTERS:
        return fit_quietly(row.make(random_state=0), _table())
    return row.make(random_state=0).fit(_table(), row.target(_target()))


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """Returns the bytes of a saved estimator, by kind; each is fitted once."""
    path, made = tmp_path_factory.mktemp("models") / "model", {}

    def content(kind):
        if kind not in made:
            KINDS[kind]().save(path)
            made[kind] = path.read_bytes()
        return made[kind]

    return content


def _load_corrupted(content, seeds, path):
    """Loads corrupted copies; returns how many were refused. Any error but `ModelFileError` comes through."""
    refused = 0
    for seed in seeds:
        damaged, what = corrupt(content, seed)
        path.write_bytes(damaged)
        try:
            halfseen.load(path)
        except ModelFileError as error:
            refused += 1
            assert "\n" not in str(error), what  # noqa: PT017
            assert path.name in str(error), what  # noqa: PT017
    return refused


def _peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(ROWS)), ids=[str(row) for row in ROWS])
def test_corrupted_model_files_are_refused_within_bounded_memory(tmp_path, place):
    path = tmp_path / "model"
    _fitted(ROWS[place]).save(path)
    content, before, offset = path.read_bytes(), _peak_memory(), 1000 * place
    refused = _load_corrupted(content, range(offset, offset + N_CORRUPTED), path)
    assert refused > 0.6 * N_CORRUPTED
    assert _peak_memory() - before < 256 * 2**20


@pytest.mark.parametrize("kind", ["gaussian", "mixture", "classifier"])
def test_some_corrupted_model_files_are_refused(contents, tmp_path, kind):
    assert _load_corrupted(contents(kind), range(40), tmp_path / "corrupted") > 20


def _refused(path, content, match):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=match):
        halfseen.load(path)


@pytest.mark.parametrize(
    ("name", "value"), [("width", 60_000), ("n_latent", 10**9), ("n_components", 10**9), ("n_blocks", 10**9)]
)
def test_a_latent_model_that_asks_for_more_than_its_weights_is_refused(contents, tmp_path, name, value):
    manifest, tensors = read(contents("latent"))
    manifest["attributes"]["architecture_"][name] = value
    _refused(tmp_path / "greedy", sign(manifest, tensors), "far more than the tensors it holds")


def test_a_network_whose_other_layers_would_be_enormous_is_refused(contents, tmp_path):
    manifest, tensors = read(contents("regressor"))
    first = next(name for name in sorted(tensors) if name.endswith("weights.0"))
    tensors[first] = torch.zeros(1, tensors[first].shape[1], 60_000)
    _refused(tmp_path / "greedy", sign(manifest, tensors), "far more than the tensors it holds")


def test_groups_of_levels_beyond_the_levels_are_refused(contents, tmp_path):
    manifest, tensors = read(contents("gaussian"))
    name = next(name for name in sorted(tensors) if name.startswith("features.group"))
    tensors[name][0] = 10**12
    _refused(tmp_path / "greedy", sign(manifest, tensors), "groups of levels of column .* do not fit")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("kind", ["gaussian", "mixture", "regressor"])
def test_tensors_that_are_not_finite_are_refused(contents, tmp_path, kind, value):
    manifest, tensors = read(contents(kind))
    filled = {name: tensor for name, tensor in sorted(tensors.items()) if tensor.numel() and name != "bounds"}
    name = next(name for name, tensor in filled.items() if tensor.is_floating_point())
    tensors[name].view(-1)[0] = value
    _refused(tmp_path / "infinite", sign(manifest, tensors), f"'{name}' holds a number that is not finite")


def test_bounds_may_be_infinite_but_not_nan(contents, tmp_path):
    manifest, tensors = read(contents("regressor"))
    assert tensors["bounds"].isinf().any()
    tensors["bounds"][0, 0] = torch.nan
    _refused(tmp_path / "nan", sign(manifest, tensors), "'bounds' holds a number that is not finite")


def test_tensors_of_odd_types_are_refused(contents, tmp_path):
    manifest, tensors = read(contents("mean"))
    tensors["joint.loc"] = tensors["joint.loc"].to(torch.complex64)
    _refused(tmp_path / "odd", sign(manifest, tensors), "'joint.loc' has the type torch.complex64")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("kind", "imaginary", "is 'imaginary' of 'number'"),
        ("storage", "air", "of 'air'"),
        ("name", 3, "has the name 3"),
        ("minimum", "low", "has the minimum 'low'"),
        ("maximum", 1e999, "has the maximum inf"),
        ("levels", [[1]], r"has the level \[1\]"),
    ],
)
def test_columns_that_no_schema_describes_are_refused(contents, tmp_path, key, value, match):
    manifest, tensors = read(contents("mean"))
    column = next(one for one in manifest["schema"]["columns"] if one["storage"] == "number")
    column[key] = value
    _refused(tmp_path / "odd", sign(manifest, tensors), match)


def test_a_number_of_columns_other_than_those_described_is_refused(contents, tmp_path):
    manifest, tensors = read(contents("mean"))
    manifest["attributes"]["n_features_in_"] = 99
    _refused(tmp_path / "odd", sign(manifest, tensors), "there are 8 names of 99 columns")


def test_pipes_and_devices_are_refused_without_reading_them(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ModelFileError, match=f"'{path}' is a pipe, a socket or a device, not a model"):
            halfseen.load(path)


def test_paths_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    with pytest.raises(ModelFileError, match="cannot be read: file name too long"):
        halfseen.load(tmp_path / ("x" * 5000))
    path = tmp_path / "locked"
    path.write_bytes(b"")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("safetensors.safe_open", refuse)
    with pytest.raises(ModelFileError, match="locked' cannot be read: permission denied"):
        halfseen.load(path)


def test_a_sparse_file_that_declares_a_huge_header_is_refused(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write((2**40).to_bytes(8, "little"))
        file.truncate(2**41)
    before = _peak_memory()
    with pytest.raises(ModelFileError, match="is not a halfseen model file, or is damaged"):
        halfseen.load(path)
    assert _peak_memory() - before < 64 * 2**20
