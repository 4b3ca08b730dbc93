"""Model files: one safetensors file that holds the tensors and, as JSON, all the rest; nothing is executed."""

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import safetensors
import safetensors.torch
import sklearn
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen.data.schema import Schema
from halfseen.errors import ModelFileError

FORMAT = 1
KEY, DIGEST = "halfseen", "sha256"


class Saveable:
    """Adds `save` to an estimator; `load` rebuilds it. Only classes that were imported can be loaded."""

    _saveable: ClassVar[dict[str, type["Saveable"]]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Saveable._saveable[cls.__name__] = cls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted estimator to one file; an existing file is replaced only by a whole new one."""
        check_is_fitted(self)
        tensors = {name: value.detach().contiguous() for name, value in self._state().items()}
        manifest = json.dumps(self._manifest(), sort_keys=True)
        metadata = {KEY: manifest, DIGEST: _digest(manifest, tensors)}
        content = safetensors.torch.save(tensors, metadata)
        _write_atomically(Path(path), content)

    def _manifest(self) -> dict[str, Any]:
        estimator: Any = self
        attributes = {"n_features_in_": estimator.n_features_in_, "seed_": estimator.seed_}
        if hasattr(estimator, "feature_names_in_"):
            attributes["feature_names_in_"] = [str(name) for name in estimator.feature_names_in_]
        return {
            "format": FORMAT,
            "class": type(self).__name__,
            "parameters": {k: _plain(v) for k, v in estimator.get_params(deep=False).items()},
            "attributes": attributes | self._extra(),
            "schema": estimator.schema_.to_dict(),
            "versions": {
                "halfseen": version("halfseen"),
                "torch": torch.__version__,
                "scikit-learn": sklearn.__version__,
                "python": platform.python_version(),
            },
        }

    def _extra(self) -> dict[str, Any]:
        """Returns further attributes that JSON can hold."""
        return {}

    def _state(self) -> dict[str, Tensor]:
        raise NotImplementedError(f"{type(self).__name__} does not say what its tensors are.")

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how it is rebuilt.")


def load(path: str | os.PathLike[str]) -> Any:
    """Loads an estimator that was saved with ``save``; a foreign or damaged file is refused.

    Parameters
    ----------
    path : str or path
        The file.

    Raises
    ------
    ModelFileError
        If the file is no model file, is damaged, or comes from a newer version.
    """
    manifest, tensors = _read(Path(path))
    if manifest["format"] != FORMAT:
        raise ModelFileError(
            f"{str(path)!r} has format {manifest['format']!r}; this version reads format {FORMAT}. "
            f"It was written by halfseen {manifest.get('versions', {}).get('halfseen')}."
        )
    cls = Saveable._saveable.get(manifest["class"])
    if cls is None:
        raise ModelFileError(
            f"{str(path)!r} holds a {manifest['class']!r}, which is not known here. If it is a class of your "
            "own, import it before loading."
        )
    estimator: Any = cls(**manifest["parameters"])
    attributes = manifest["attributes"]
    if "feature_names_in_" in attributes:
        attributes["feature_names_in_"] = np.array(attributes["feature_names_in_"], dtype=object)
    for name, value in attributes.items():
        setattr(estimator, name, value)
    estimator.schema_ = Schema.from_dict(manifest["schema"])
    estimator._restore(tensors)
    return estimator


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise ModelFileError(f"There is no model file {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    except (safetensors.SafetensorError, ValueError) as error:
        raise ModelFileError(f"{str(path)!r} is not a halfseen model file, or is damaged: {error}") from error
    if KEY not in metadata or DIGEST not in metadata:
        raise ModelFileError(f"{str(path)!r} is a safetensors file, but not a halfseen model.")
    if _digest(metadata[KEY], tensors) != metadata[DIGEST]:
        raise ModelFileError(f"{str(path)!r} is damaged: its content does not match its checksum.")
    return json.loads(metadata[KEY]), tensors


def _digest(manifest: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(manifest.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Returns a parameter if JSON can hold it, else None: generators and callbacks stay behind."""
    try:
        json.dumps(value)
    except TypeError:
        return value.item() if isinstance(value, np.generic) else None
    return value


def _write_atomically(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
