"""Model files: safetensors that hold the tensors and, as JSON, all the rest; nothing is executed."""

import hashlib
import json
import os
import platform
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

from halfseen._files import write_atomically
from halfseen.data.schema import Schema
from halfseen.errors import ModelFileError

FORMAT = 1
KEY, DIGEST = "halfseen", "sha256"
ATTRIBUTES = ("n_features_in_", "feature_names_in_", "seed_")


class Saveable:
    """Adds `save` to an estimator; `load` rebuilds it. Only classes that were imported can be loaded."""

    _saveable: ClassVar[dict[str, type["Saveable"]]] = {}
    _saved: ClassVar[tuple[str, ...]] = ()  # further attributes to keep, of values that JSON can hold

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Saveable._saveable[cls.__name__] = cls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted estimator to one file; an existing file is replaced only by a whole new one."""
        check_is_fitted(self)
        tensors = {name: value.detach().contiguous() for name, value in self._state().items()}
        manifest = json.dumps(self._manifest(), sort_keys=True)
        metadata = {KEY: manifest, DIGEST: _digest(manifest, tensors)}
        with write_atomically(path) as file:
            file.write(safetensors.torch.save(tensors, metadata))

    def _manifest(self) -> dict[str, Any]:
        estimator: Any = self
        names = [name for name in (*ATTRIBUTES, *self._saved) if hasattr(estimator, name)]
        attributes = {name: _plain(getattr(estimator, name)) for name in names}
        return {
            "format": FORMAT,
            "class": type(self).__name__,
            "parameters": {k: _plain(v) for k, v in estimator.get_params(deep=False).items()},
            "attributes": attributes,
            "schema": estimator.schema_.to_dict(),
            "versions": {
                "halfseen": version("halfseen"),
                "torch": torch.__version__,
                "scikit-learn": sklearn.__version__,
                "python": platform.python_version(),
            },
        }

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
    for name in (*ATTRIBUTES, *cls._saved):
        if name in manifest["attributes"]:
            setattr(estimator, name, manifest["attributes"][name])
    if hasattr(estimator, "feature_names_in_"):
        estimator.feature_names_in_ = np.array(estimator.feature_names_in_, dtype=object)
    estimator.schema_ = Schema.from_dict(manifest["schema"])
    estimator._restore(tensors)
    return estimator


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise ModelFileError(f"There is no model file {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
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
    """Returns a value if JSON can hold it, else None: generators and callbacks stay behind."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    try:
        json.dumps(value)
    except TypeError:
        return value.item() if isinstance(value, np.generic) else None
    return value
