"""Model files: whole, exact in another process, and refused in one line when they are anything else."""

import datetime
import errno
import json
import os
import pickle
import random
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import safetensors
import safetensors.torch
import torch
from conformance.tables import ARRAY
from sklearn.base import BaseEstimator

import halfseen
from halfseen import GaussianImputer, MixtureImputer, ModelFileError
from halfseen.base.model_file import DIGEST, FORMAT, KEY, Saveable, _digest
from halfseen.testing.tables import bits


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A small model, saved."""
    path = tmp_path_factory.mktemp("models") / "model.halfseen"
    GaussianImputer(random_state=0).fit(ARRAY.make()).save(path)
    return path


def forge(source, target, *, change=None, tensors=None, text=None, metadata=None):
    """Writes another file like a model file, with a checksum that is right."""
    with safetensors.safe_open(source, framework="pt") as file:
        manifest = json.loads(file.metadata()[KEY])
        content = {name: file.get_tensor(name) for name in file.keys()}
    if change is not None:
        change(manifest)
    if tensors is not None:
        tensors(content)
    text = json.dumps(manifest) if text is None else text
    metadata = {KEY: text, DIGEST: _digest(text, content)} if metadata is None else metadata
    target.write_bytes(safetensors.torch.save(content, metadata))
    return target


def assert_refused(path, match):
    with pytest.raises(ModelFileError, match=match) as caught:
        halfseen.load(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.slow
def test_a_process_that_has_imported_nothing_else_loads_a_model(model_file):
    program = "import sys, halfseen; print(type(halfseen.load(sys.argv[1])).__name__)"
    run = subprocess.run(
        [sys.executable, "-c", program, str(model_file)], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == type(halfseen.load(model_file)).__name__, run.stderr


def test_a_truncated_file_is_refused(model_file, tmp_path):
    content = model_file.read_bytes()
    for size in (1, 7, 8, 100, len(content) // 2, len(content) - 1):
        path = tmp_path / f"short-{size}"
        path.write_bytes(content[:size])
        assert_refused(path, "is not a halfseen model file, or is damaged")


def test_a_flipped_byte_in_the_weights_is_refused(model_file, tmp_path):
    content = bytearray(model_file.read_bytes())
    header = int.from_bytes(content[:8], "little")
    for number, position in enumerate((8 + header, len(content) - 1, (8 + header + len(content)) // 2)):
        damaged, path = content.copy(), tmp_path / f"flipped-{number}"
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert_refused(path, "is damaged: its content does not match its checksum")


@pytest.mark.parametrize("part", [b"max_iter", b"GaussianImputer", b"continuous", b"sha256", b"joint.loc"])
def test_a_changed_letter_in_the_manifest_is_refused(model_file, tmp_path, part):
    content = model_file.read_bytes()
    path = tmp_path / "changed"
    path.write_bytes(content.replace(part, part[:-1] + b"X", 1))
    assert_refused(path, "is damaged|not a halfseen model|checksum")


def test_no_flipped_byte_anywhere_is_overlooked(model_file, tmp_path):
    """Some bytes of the header carry nothing, as its padding; then the model must be the saved one."""
    content = model_file.read_bytes()
    expected = halfseen.load(model_file).transform(ARRAY.make())
    chosen = random.Random(0)
    path = tmp_path / "flipped"
    for _ in range(300):
        damaged = bytearray(content)
        damaged[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
        path.write_bytes(damaged)
        try:
            loaded = halfseen.load(path)
        except ModelFileError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(loaded.transform(ARRAY.make()), expected)


def test_files_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "noise").write_bytes(np.random.default_rng(0).bytes(1000))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("a,b\n1,2\n" * 20)
    (tmp_path / "pickle").write_bytes(pickle.dumps({"weights": [1.0] * 100}))
    torch.save({"a": torch.zeros(3)}, tmp_path / "torch")
    for name in ("noise", "empty", "text", "pickle", "torch"):
        assert_refused(tmp_path / name, "is not a halfseen model file, or is damaged")


def test_foreign_safetensors_are_refused(tmp_path):
    safetensors.torch.save_file({"weight": torch.zeros(3)}, tmp_path / "foreign")
    assert_refused(tmp_path / "foreign", "is a safetensors file, but not a halfseen model")
    safetensors.torch.save_file({"weight": torch.zeros(3)}, tmp_path / "other", {"halfseen": "{}"})
    assert_refused(tmp_path / "other", "is a safetensors file, but not a halfseen model")


def test_what_is_no_file_is_refused(tmp_path):
    assert_refused(tmp_path / "nothing", "^There is no model file")
    assert_refused(tmp_path, "^[^:]* is a folder, not a model file")


@pytest.mark.parametrize("version", [FORMAT + 1, 99, "1", None])
def test_another_format_is_refused(model_file, tmp_path, version):
    path = forge(model_file, tmp_path / "newer", change=lambda manifest: manifest.update(format=version))
    assert_refused(
        path, f"has format {version!r}; this version reads format {FORMAT}. It was written by halfseen 0"
    )


def test_an_unknown_class_is_refused_and_never_imported(model_file, tmp_path):
    path = forge(model_file, tmp_path / "unknown", change=lambda m: m.update({"class": "os.system"}))
    assert_refused(
        path, "contains a model of the class 'os.system', which is not known. If it is a class of your own"
    )
    path = forge(model_file, tmp_path / "odd", change=lambda m: m.update({"class": ["list"]}))
    assert_refused(path, "which is not known")


@pytest.mark.parametrize("key", ["format", "class", "parameters", "attributes"])
def test_a_manifest_that_lacks_an_entry_is_refused(model_file, tmp_path, key):
    path = forge(model_file, tmp_path / "lacking", change=lambda manifest: manifest.pop(key))
    assert_refused(path, "is not a halfseen model: its description")


def test_an_estimator_of_tables_without_its_schema_is_refused(model_file, tmp_path):
    path = forge(model_file, tmp_path / "lacking", change=lambda manifest: manifest.pop("schema"))
    assert_refused(path, "does not describe a GaussianImputer .ValueError: its description lacks 'schema'")


class ItemMeans(Saveable, BaseEstimator):
    """An estimator of a kind of data that has no schema: ratings of users (rows) for items (columns)."""

    _saved = ("n_ratings_", "scale_")

    def __init__(self, shrinkage=1.0):
        self.shrinkage = shrinkage

    def fit(self, ratings, y=None):
        known = ~np.isnan(ratings)
        self.n_ratings_, self.scale_ = int(known.sum()), {"lowest": 1, "highest": 5}
        totals = np.where(known, ratings, 0.0).sum(axis=0)
        self.means_ = torch.from_numpy(totals / (known.sum(axis=0) + self.shrinkage))
        return self

    def _state(self):
        return {"means": self.means_}

    def _restore(self, tensors):
        self.means_ = tensors["means"]


@pytest.fixture
def ratings_file(tmp_path):
    path = tmp_path / "ratings.halfseen"
    ItemMeans(shrinkage=0.5).fit(np.array([[4.0, np.nan], [5.0, 1.0]])).save(path)
    return path


def test_an_estimator_without_a_schema_can_be_saved(ratings_file):
    loaded = halfseen.load(ratings_file)
    assert (type(loaded), loaded.shrinkage, loaded.n_ratings_) == (ItemMeans, 0.5, 3)
    assert loaded.scale_ == {"lowest": 1, "highest": 5}
    assert loaded.means_.tolist() == [9 / 2.5, 1 / 1.5]
    assert not hasattr(loaded, "schema_")


def test_the_checks_hold_for_an_estimator_without_a_schema(ratings_file, tmp_path):
    def spoil(tensors):
        tensors["means"][0] = torch.nan

    spoilt = forge(ratings_file, tmp_path / "spoilt", tensors=spoil)
    assert_refused(spoilt, "'means' holds a number that is not finite")
    weightless = forge(ratings_file, tmp_path / "weightless", tensors=lambda tensors: tensors.clear())
    assert_refused(weightless, "does not describe a ItemMeans .KeyError: 'means'")
    newer = forge(ratings_file, tmp_path / "newer", change=lambda manifest: manifest.update(format=99))
    assert_refused(newer, "has format 99; this version reads format")


@pytest.mark.parametrize("text", ["", "not json", "[]", "null", '"text"', "[" * 100_000])
def test_a_manifest_that_is_no_mapping_is_refused(model_file, tmp_path, text):
    path = forge(model_file, tmp_path / "unreadable", text=text)
    assert_refused(path, "is not a halfseen model: its description cannot be read")


FORGERIES = {
    "unknown parameter": lambda m: m["parameters"].update(depth=3),
    "parameters are a list": lambda m: m.update(parameters=[1]),
    "attributes are a number": lambda m: m.update(attributes=3),
    "schema without columns": lambda m: m.update(schema={}),
    "column without kind": lambda m: m["schema"]["columns"][0].pop("kind"),
    "schema of text": lambda m: m.update(schema="x0"),
    "a column too many": lambda m: m["schema"]["columns"].append({"name": "x9"}),
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_a_manifest_that_describes_no_such_model_is_refused(model_file, tmp_path, change):
    path = forge(model_file, tmp_path / "forged", change=change)
    assert_refused(path, "does not describe a GaussianImputer")


@pytest.mark.parametrize("name", ["joint.loc", "joint.covariance", "features.scale"])
def test_a_file_without_its_weights_is_refused(model_file, tmp_path, name):
    path = forge(model_file, tmp_path / "weightless", tensors=lambda tensors: tensors.pop(name))
    assert_refused(path, f"does not describe a GaussianImputer .KeyError: '{re.escape(name)}'")


def test_tensors_of_odd_types_are_refused_in_one_line(model_file, tmp_path):
    def change(tensors):
        tensors["joint.loc"] = tensors["joint.loc"].to(torch.bfloat16)[:0]

    assert_refused(forge(model_file, tmp_path / "odd", tensors=change), "does not describe a GaussianImputer")


def test_nothing_is_unpickled_on_load(model_file, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a model file was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert halfseen.load(model_file).transform(ARRAY.make()).shape == (200, 4)


def test_saving_over_a_file_is_all_or_nothing(model_file, tmp_path, monkeypatch):
    path = tmp_path / "model"
    imputer = halfseen.load(model_file)
    imputer.save(path)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="no space left on device"):
            GaussianImputer(random_state=1).fit(ARRAY.make()).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    GaussianImputer(random_state=1).fit(ARRAY.make()).save(path)
    assert halfseen.load(path).seed_ == 1
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_cannot_hold_the_file_is_an_error_that_leaves_nothing(model_file, tmp_path):
    imputer = halfseen.load(model_file)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NotADirectoryError, match="file"):
        imputer.save(tmp_path / "file" / "model")
    with pytest.raises(FileNotFoundError, match=re.escape(f"no folder '{tmp_path / 'nowhere'}' to save")):
        imputer.save(tmp_path / "nowhere" / "model")
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        imputer.save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_permission_is_an_error_that_leaves_nothing(model_file, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="closed"):
        halfseen.load(model_file).save(tmp_path / "closed" / "model")
    assert not list((tmp_path / "closed").iterdir())


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState], ids=["generator", "legacy"])
def test_generators_and_callbacks_stay_behind_but_the_seed_is_kept(tmp_path, make):
    table = ARRAY.make()
    imputer = MixtureImputer(2, max_epochs=3, random_state=make(0), callback=print).fit(table)
    imputer.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert loaded.random_state is None
    assert loaded.callback is None
    assert loaded.seed_ == imputer.seed_
    np.testing.assert_array_equal(loaded.sample(table), imputer.sample(table))


def test_a_schema_by_name_by_position_and_with_numbers_of_numpy_is_kept(tmp_path):
    table = ARRAY.make()
    schema = {0: {"minimum": np.int64(-3)}, "x1": {"maximum": np.float64(9.5)}, 2: "continuous"}
    imputer = GaussianImputer(schema=schema, random_state=0).fit(table)
    imputer.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert loaded.schema == schema
    again = loaded.fit(table)
    assert again.schema_ == imputer.schema_
    np.testing.assert_array_equal(again.transform(table), imputer.transform(table))


def test_dates_in_a_schema_are_kept_as_text(tmp_path):
    table = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", None, "2021-01-01"] * 5), "x": range(15)})
    imputer = GaussianImputer(schema={"day": {"minimum": datetime.date(2019, 1, 1)}}, random_state=0)
    imputer.fit(table).save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert loaded.schema == {"day": {"minimum": "2019-01-01"}}
    assert loaded.fit(table).schema_ == imputer.schema_


@pytest.mark.parametrize(
    ("name", "value"),
    [("ridge_", {1.0}), ("objective_", [object()]), ("n_iter_", np.datetime64("2020-01-01"))],
)
def test_a_fitted_attribute_that_no_file_can_hold_is_refused(model_file, tmp_path, name, value):
    imputer = halfseen.load(model_file)
    setattr(imputer, name, value)
    with pytest.raises(TypeError, match=f"A model file cannot store {name}: .* is a (set|object|date)"):
        imputer.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_history_of_training_is_kept(tmp_path):
    imputer = MixtureImputer(2, max_epochs=5, random_state=0).fit(ARRAY.make())
    imputer.save(tmp_path / "model")
    assert halfseen.load(tmp_path / "model").history_ == imputer.history_


def test_a_class_of_one_s_own_can_be_loaded_once_it_is_defined(tmp_path):
    class Ours(GaussianImputer):
        pass

    imputer = Ours(random_state=0).fit(ARRAY.make())
    imputer.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert type(loaded) is Ours
    assert bits(loaded.transform(ARRAY.make())) == bits(imputer.transform(ARRAY.make()))


def test_a_saved_model_can_be_read_without_this_library(model_file):
    with safetensors.safe_open(model_file, framework="numpy") as file:
        manifest = json.loads(file.metadata()[KEY])
        assert file.get_tensor("joint.covariance").shape == (4, 4)
    assert manifest["class"] == "GaussianImputer"
    assert manifest["versions"].keys() == {"halfseen", "torch", "scikit-learn", "python"}
    assert [column["name"] for column in manifest["schema"]["columns"]] == ["x0", "x1", "x2", "x3"]


def test_a_tensor_of_one_element_is_saved_whatever_its_strides(tmp_path, monkeypatch):
    imputer = halfseen.MeanImputer().fit(np.eye(3))
    state = imputer._state() | {"one": torch.zeros((), dtype=torch.int64).expand(1)}
    monkeypatch.setattr(imputer, "_state", lambda: state)
    imputer.save(tmp_path / "model")
    assert (tmp_path / "model").exists()


def test_equal_models_are_equal_files(model_file, tmp_path):
    contents = {model_file.read_bytes()}
    for i in range(8):  # metadata of two entries would be in either order
        GaussianImputer(random_state=0).fit(ARRAY.make()).save(tmp_path / f"model{i}")
        contents.add((tmp_path / f"model{i}").read_bytes())
    assert len(contents) == 1


def test_loading_a_model_does_not_load_the_compiler_of_torch(tmp_path):
    halfseen.MeanImputer().fit(np.array([[1.0, 2.0], [np.nan, 3.0]])).save(tmp_path / "m")
    program = (
        f"import sys, halfseen; halfseen.load({str(tmp_path / 'm')!r}); print('torch._dynamo' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
