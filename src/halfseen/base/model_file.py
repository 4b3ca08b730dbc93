"""Model files: safetensors files with the tensors and, as JSON, everything else; nothing is executed.

An estimator of any kind of data can be saved. It inherits from `Saveable` and declares four things:

- `_state()` returns the fitted tensors by name, and `_restore(tensors)` sets the fitted attributes from them.
  The parameters of `__init__` and the attributes of the file are in place when `_restore` is called.
- `_saved` names further fitted attributes whose values JSON can hold, beside those of its base classes;
  tuples come back as lists. The attributes in `ATTRIBUTES` are saved wherever an estimator has them.
- `_unbounded` names the tensors that may hold infinity. All others must be finite.
- `_entries()` returns further entries of the description, and `_restore_entries(description)` reads them,
  before `_restore` is called. Most estimators have none; estimators of tables (`TableEstimator`) contribute
  their schema in this way.

An estimator that consists of other fitted estimators, its members, returns them by `_members()` and takes
them back by `_set_members`. The description of its file contains those of the members, and the names of their
tensors begin with the position of the member.
Classes of this library are found by their names; other classes must be imported before `load` is called.
"""

import datetime
import hashlib
import json
import logging
import math
import os
import platform
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import safetensors
import safetensors.torch
import sklearn
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from halfseen._lazy import import_name
from halfseen._machine import write_atomically
from halfseen._threads import torch_defaults
from halfseen.base.capabilities import Capabilities
from halfseen.base.catalogue import CATALOGUE
from halfseen.errors import ModelFileError
from halfseen.training.progress import History

LOGGER = logging.getLogger(__name__)
DTYPES = (torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)
SPARE_ELEMENTS, ELEMENTS_PER_ELEMENT = 2**22, 16
SPARE_STEPS, STEPS_PER_TENSOR = 2_000, 100


class BoundedTensors(TorchDispatchMode):
    """Raises an error if tensors are created that are much larger than those in a file.

    A description of a few bytes could otherwise request networks of any size. A model that belongs to the
    weights in the file has about their size.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        What the file holds.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        n_elements = sum(tensor.numel() for tensor in tensors.values())
        self.elements_left = SPARE_ELEMENTS + ELEMENTS_PER_ELEMENT * n_elements
        self.steps_left = SPARE_STEPS + STEPS_PER_TENSOR * len(tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Counts the elements that a function would allocate, and calls it if they are not too many."""
        given = kwargs or {}
        self.steps_left -= 1
        self.elements_left -= _n_new(func, args, given)
        if self.elements_left < 0 or self.steps_left < 0:
            raise ValueError("it describes far more than the tensors it holds")
        return func(*args, **given)


# The class of torch wraps the method so that a compiler leaves it alone, and loads that compiler with the
# first call: a second and 65 MiB of memory in each process that loads a model.
_counted = BoundedTensors.__torch_dispatch__
BoundedTensors.__torch_dispatch__ = getattr(_counted, "__wrapped__", _counted)  # type: ignore[method-assign]


def _n_new(func: Any, args: Sequence[Any], given: Mapping[str, Any]) -> int:
    """Returns the number of elements that a function allocates in addition to its arguments."""
    if func.is_view:
        return 0
    names = [argument.name for argument in func._schema.arguments]
    named = {**dict(zip(names, args, strict=False)), **given}
    if "size" in named:
        return math.prod(named["size"])
    if "end" in named:  # a range
        return int(max(0, (named["end"] - named.get("start", 0)) / named.get("step", 1)))
    return int(named["n"]) ** 2 if "n" in named and isinstance(named["n"], int) else 0


def check_tensors(tensors: Mapping[str, Tensor], unbounded: Sequence[str]) -> None:
    """Raises if a tensor has an unexpected dtype or is not finite; those in `unbounded` may be infinite."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{name!r} has the type {tensor.dtype}")
        broken = tensor.isnan() if name in unbounded else ~tensor.isfinite()
        if broken.any():
            raise ValueError(f"{name!r} holds a number that is not finite")


# ------------------------------------------------------------------------------- numbers of a description

LARGEST_COUNT = 2**53  # whole numbers up to it are the same in JSON of any program
PLAIN_TYPES = (bool, int, float, str, type(None))


def check_parameters(estimator: Any) -> None:
    """Raises a TypeError if a parameter of a loaded estimator does not have the type that its class declares.

    Only what consists of numbers, texts, None and literals is checked; parameters of other types may have any
    value, and are checked where they are used.
    """
    wrong = wrong_type(type(estimator), estimator.get_params(deep=False))
    if wrong is not None:
        raise TypeError(f"the parameter {wrong[0]} is {wrong[1]!r:.60}")


def wrong_type(cls: type, values: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Returns the name and value of the first attribute that does not have the type declared in a class."""
    declared = get_type_hints(cls)
    for name, value in values.items():
        options = _options(declared.get(name, Any))
        if options is not None and not any(_is_of(value, option) for option in options):
            return name, value
    return None


def _options(declared: Any) -> list[Any] | None:
    """Returns the plain types, and the tuples of values, of a declared type; None if it has others."""
    if get_origin(declared) in (Union, UnionType):
        parts = [_options(member) for member in get_args(declared)]
        return None if None in parts else [option for part in parts for option in part or ()]
    if get_origin(declared) is Literal:
        return [get_args(declared)]
    return [declared] if declared in PLAIN_TYPES else None


def _is_of(value: Any, option: Any) -> bool:
    if isinstance(option, tuple):
        return value in option
    if option is int:
        return type(value) is int and abs(value) <= LARGEST_COUNT
    if option is float:
        return type(value) in (int, float) and not math.isnan(value)
    return isinstance(value, option)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))


def _are_plain(values: Any) -> bool:
    """Returns whether values are a list of texts and numbers that are all different."""
    plain = isinstance(values, list) and all(isinstance(one, str | int | float) for one in values)
    return plain and len(set(values)) == len(values)


def _are_classes(value: Any) -> bool:
    named = isinstance(value, dict) and isinstance(value.get("dtype"), str)
    if not named or not _are_plain(value.get("labels")) or not value["labels"]:
        return False
    weights = value.get("weights", [1.0] * len(value["labels"]))
    return _are_numbers(weights) and len(weights) == len(value["labels"]) and min(weights) > 0


ATTRIBUTE_CHECKS: dict[str, Callable[[Any], bool]] = {
    "n_features_in_": _is_count,
    "feature_names_in_": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "seed_": lambda value: type(value) is int and 0 <= value < 2**63,
    "n_iter_": _is_count,
    "rows_used_": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "n_empty_rows_": _is_count,
    "_n_draws": _is_count,
    "_n_outputs": _is_count,
    "_n_errors": lambda value: _is_count(value) and value > 0,
    "_n_factors": _is_count,
    "_one_dimensional": lambda value: isinstance(value, bool),
    "time_limit_met_": lambda value: isinstance(value, bool),
    "ridge_": lambda value: _is_number(value) and value >= 0,
    "mean_": _is_number,
    "_plain_classes": _are_classes,
    "_identifiers": lambda value: isinstance(value, dict) and all(map(_are_plain, value.values())),
    "objective_": lambda value: isinstance(value, list),
    "levels_": lambda value: _are_numbers(value) and value == sorted(set(value)),
    "rating_range_": lambda value: _are_numbers(value) and len(value) == 2 and value[0] <= value[1],
    "interval_inflation_": lambda value: _are_numbers(value) and all(0 < factor for factor in value),
}
"""What holds for attributes in model files, by their names, in whichever class they are."""


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raises a ValueError if a saved attribute has a value that no fit gives it."""
    for name, holds in ATTRIBUTE_CHECKS.items():
        if name in attributes and not holds(attributes[name]):
            raise ValueError(f"{name} is {attributes[name]!r:.60}")
    names, count = attributes.get("feature_names_in_"), attributes.get("n_features_in_")
    if names is not None and count is not None and len(names) != count:
        raise ValueError(f"there are {len(names)} names of {count} columns")


# ------------------------------------------------------------------------------- answers

FORMAT = 4
KEY, DIGEST = "halfseen", "sha256"
ATTRIBUTES = ("n_features_in_", "feature_names_in_", "seed_", "history_", "reading_", "rows_used_")
ENTRIES = ("class", "parameters", "attributes")  # of every manifest, besides the format
REBUILDING_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
ITEMS = "items"  # the only key of a mapping whose keys are not all text: JSON has no others
TUPLE = "tuple"  # the only key of what stands for a tuple among parameters


class Saveable:
    """Adds `save` to an estimator; `load` rebuilds it. The module's docstring lists what a subclass declares.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.base import BaseEstimator
    >>> class ItemMeans(Saveable, BaseEstimator):
    ...     def fit(self, ratings, y=None):
    ...         self.means_ = torch.as_tensor(ratings).nanmean(dim=0)
    ...         return self
    ...     def _state(self):
    ...         return {"means": self.means_}
    ...     def _restore(self, tensors):
    ...         self.means_ = tensors["means"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ItemMeans().fit([[4.0, np.nan], [5.0, 1.0]]).save(f"{folder}/model")
    ...     load(f"{folder}/model").means_
    tensor([4.5000, 1.0000])
    """

    _saveable: ClassVar[dict[str, type["Saveable"]]] = {}
    _saved: ClassVar[tuple[str, ...]] = ()  # further attributes to keep, of values that JSON can hold
    _unbounded: ClassVar[tuple[str, ...]] = ()  # tensors that may hold infinity

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Saveable._saveable[cls.__name__] = cls

    @property
    def capabilities(self) -> Capabilities:
        """What the estimator can do with the parameters that it has."""
        return Capabilities()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted estimator to a file; an existing file is replaced only by a complete new one."""
        check_is_fitted(self)
        folder = Path(os.path.realpath(path)).parent
        if not folder.exists():
            raise FileNotFoundError(f"There is no folder {str(folder)!r} to save the model in.")
        plain = torch.contiguous_format  # `contiguous` keeps strides of 0 in a tensor with one element
        tensors = {name: value.detach().clone(memory_format=plain) for name, value in self._tensors().items()}
        manifest = json.dumps(self._manifest(), sort_keys=True)
        metadata = {KEY: manifest, DIGEST: _digest(manifest, tensors)}
        with write_atomically(path) as file:
            file.write(_with_sorted_header(safetensors.torch.save(tensors, metadata)))

    def _manifest(self) -> dict[str, Any]:
        estimator: Any = self
        names = [name for name in _saved_attributes(type(self)) if hasattr(estimator, name)]
        attributes = {name: _plain(getattr(estimator, name), name) for name in names}
        parameters = estimator.get_params(deep=False)
        parameters.pop("device", None)  # the machine that loads the file may not have it, nor need it
        members = self._members()
        within = {} if members is None else {"members": [member._manifest() for member in members]}
        return (
            self._entries()
            | within
            | {
                "format": FORMAT,
                "class": type(self).__name__,
                "parameters": {name: _plain_parameter(value, name) for name, value in parameters.items()},
                "attributes": attributes,
                "versions": {
                    "halfseen": version("halfseen"),
                    "torch": torch.__version__,
                    "scikit-learn": sklearn.__version__,
                    "python": platform.python_version(),
                },
            }
        )

    def _entries(self) -> dict[str, Any]:
        """Returns further entries of the description, of values that JSON can hold."""
        return {}

    def _restore_entries(self, description: Mapping[str, Any]) -> None:
        """Sets attributes from what `_entries` gave; raises a ValueError if an entry is missing or wrong."""

    def _members(self) -> Sequence["Saveable"] | None:
        """Returns the fitted estimators that this one consists of; None if it is no such estimator."""
        return None

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        """Sets the attributes that hold the members of a loaded file, or raises a ValueError.

        It is called after `_restore`.

        Parameters
        ----------
        members : list of estimators
            The members, in the order of `_members`.
        description : mapping
            The description of the file, with what `_entries` of the subclass contributed.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `_set_members`.")

    def _tensors(self) -> dict[str, Tensor]:
        """Returns the tensors of the estimator and of its members."""
        of_members = {
            f"{position}/{name}": tensor
            for position, member in enumerate(self._members() or ())
            for name, tensor in member._tensors().items()
        }
        return self._state() | of_members

    def _state(self) -> dict[str, Tensor]:
        raise NotImplementedError(f"{type(self).__name__} must implement `_state`.")

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement `_restore`.")


@torch_defaults()
def load(path: str | os.PathLike[str]) -> Any:
    """Loads an estimator that was saved with ``save``; other or damaged files raise an error.

    Parameters
    ----------
    path : str or path
        The file.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is damaged, or comes from a newer version.
    """
    manifest, tensors = _read(Path(path))
    name = str(manifest["class"])
    if _find_class(name) is None:
        raise ModelFileError(
            f"{str(path)!r} contains a model of the class {name!r}, which is not known. If it is a class of "
            "your own, import it before loading."
        )
    try:
        with BoundedTensors(tensors):
            estimator = rebuild(manifest, tensors)
    except REBUILDING_ERRORS as error:  # what was written does not describe such an estimator
        what = f"{type(error).__name__}: {_one_line(error)}"
        raise ModelFileError(f"{str(path)!r} does not describe a {name} ({what}).") from error
    LOGGER.info("Loaded a %s from %r, written by %s.", name, str(path), manifest.get("versions"))
    return estimator


def _saved_attributes(cls: type[Saveable]) -> list[str]:
    """Returns the attributes to save where an estimator has them; base classes contribute theirs."""
    own = [name for base in cls.__mro__ for name in vars(base).get("_saved", ())]
    return [*ATTRIBUTES, *dict.fromkeys(own)]


def _find_class(name: str) -> type[Saveable] | None:
    for method in CATALOGUE:
        if method.class_name == name:
            import_name(method.module, name)  # a class is known once its module is imported
    return Saveable._saveable.get(name)


def rebuild(manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Returns the estimator of a description and its tensors; also used for estimators within estimators."""
    cls = _find_class(str(manifest["class"]))
    if cls is None:
        raise ValueError(f"the class {manifest['class']!r} is not known")
    estimator: Any = cls(**{name: _from_plain(value) for name, value in manifest["parameters"].items()})
    check_parameters(estimator)
    attributes = dict(manifest["attributes"])
    check_attributes(attributes)
    if "feature_names_in_" in attributes:
        attributes["feature_names_in_"] = np.array(attributes["feature_names_in_"], dtype=object)
    if "history_" in attributes:
        attributes["history_"] = History.from_dict(attributes["history_"])
    for name in _saved_attributes(cls):
        if name in attributes:
            setattr(estimator, name, attributes[name])
    estimator._restore_entries(manifest)
    if cls._set_members is Saveable._set_members:
        check_tensors(tensors, cls._unbounded)
        estimator._restore(tensors)
        return estimator
    own = {name: one for name, one in tensors.items() if not name.partition("/")[0].isdecimal()}
    check_tensors(own, cls._unbounded)
    members = _rebuild_members(manifest["members"], tensors)
    estimator._restore(own)
    estimator._set_members(members, manifest)
    return estimator


def _rebuild_members(manifests: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> list[Any]:
    members = []
    for position, manifest in enumerate(manifests):
        prefix = f"{position}/"
        own = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
        members.append(rebuild(manifest, own))
    return members


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        _check_regular_file(path)
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except ModelFileError:
        raise
    except (safetensors.SafetensorError, ValueError) as error:
        raise ModelFileError(
            f"{str(path)!r} is not a halfseen model file, or is damaged: {_one_line(error)}"
        ) from error
    except OSError as error:
        reason = (error.strerror or _one_line(error)).lower()
        raise ModelFileError(f"The model file {str(path)!r} cannot be read: {reason}.") from error
    if KEY not in metadata or DIGEST not in metadata:
        raise ModelFileError(f"{str(path)!r} is a safetensors file, but not a halfseen model.")
    if _digest(metadata[KEY], tensors) != metadata[DIGEST]:
        raise ModelFileError(f"{str(path)!r} is damaged: its content does not match its checksum.")
    return _read_manifest(path, metadata[KEY]), tensors


def _check_regular_file(path: Path) -> None:
    """Raises unless the path is that of a regular file, because pipes and devices may never end."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ModelFileError(f"There is no model file {str(path)!r}.") from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise ModelFileError(f"{str(path)!r} is {what}, not a model file.")


def _read_manifest(path: Path, text: str) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise ModelFileError(f"{str(path)!r} is not a halfseen model: its description cannot be read.")
    if manifest["format"] != FORMAT:
        versions = manifest.get("versions")
        written_by = versions.get("halfseen") if isinstance(versions, dict) else "of unknown version"
        raise ModelFileError(
            f"{str(path)!r} has format {manifest['format']!r}; this version reads format {FORMAT}. "
            f"It was written by halfseen {written_by}."
        )
    missing = [entry for entry in ENTRIES if entry not in manifest]
    if missing:
        raise ModelFileError(f"{str(path)!r} is not a halfseen model: its description lacks {missing[0]!r}.")
    return manifest


def _digest(manifest: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(manifest.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _with_sorted_header(content: bytes) -> bytes:
    """Returns a safetensors file with its header in one order: the format writes metadata in any."""
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the tensors begin at a multiple of eight bytes
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def _plain_parameter(value: Any, name: str) -> Any:
    """Returns a parameter as a JSON value, without generators, callbacks and lists of estimators."""
    many = list(value) if isinstance(value, list | tuple) else [value]
    if many and all(isinstance(item, Saveable) for item in many):
        return None  # the estimator itself describes those that it has fitted
    if callable(value) or isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    return _plain(value, name, dates=True)


def _plain(value: Any, name: str, *, dates: bool = False) -> Any:
    """Returns a value in a form that JSON can represent; raises a TypeError if there is none.

    With `dates`, which is used for parameters, dates become text, and tuples are distinguished from lists.
    """
    plain = partial(_plain, name=name, dates=dates)
    if hasattr(value, "tolist"):  # arrays and numbers of numpy, series
        return plain(value.tolist())
    if isinstance(value, History):
        return value.to_dict() | {"seconds": []}  # equal fits have equal files
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return {ITEMS: [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        return {TUPLE: items} if dates and isinstance(value, tuple) else items
    if dates and isinstance(value, datetime.date):
        return value.isoformat()  # which a schema reads as well
    if isinstance(value, str | int | float | None):
        return value
    raise TypeError(f"A model file cannot store {name}: {value!r} is a {type(value).__name__}.")


def _from_plain(value: Any) -> Any:
    """Reads what `_plain` wrote."""
    if isinstance(value, dict):
        if value.keys() == {TUPLE}:
            return tuple(_from_plain(item) for item in value[TUPLE])
        items = value[ITEMS] if value.keys() == {ITEMS} else value.items()
        return {key: _from_plain(item) for key, item in items}
    return [_from_plain(item) for item in value] if isinstance(value, list) else value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
