"""Checks of model files: that the description fits the tensors, and numbers and answers are possible ones."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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


ATTRIBUTE_CHECKS: dict[str, Callable[[Any], bool]] = {
    "n_features_in_": _is_count,
    "seed_": lambda value: _is_whole(value) and value < 2**63,
    "n_iter_": _is_count,
    "n_empty_rows_": _is_count,
    "_n_draws": _is_count,
    "_n_outputs": _is_count,
    "_n_errors": lambda value: _is_count(value) and value > 0,
    "_n_factors": _is_count,
    "_one_dimensional": lambda value: isinstance(value, bool),
    "time_limit_met_": lambda value: isinstance(value, bool),
    "ridge_": lambda value: _is_number(value) and value >= 0,
    "mean_": _is_number,
    "objective_": lambda value: isinstance(value, list),
    "levels_": lambda value: _are_numbers(value) and value == sorted(set(value)),
    "rating_range_": lambda value: _are_numbers(value) and len(value) == 2 and value[0] <= value[1],
    "interval_inflation_": lambda value: _are_numbers(value) and all(0 < factor for factor in value),
}
"""What holds for attributes in model files, by their names, in whichever class they are."""


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raises a ValueError if a saved attribute has a value that no fit gives it."""
    for name, holds in ATTRIBUTE_CHECKS.items():
        if name in attributes and not holds(attributes[name]):
            raise ValueError(f"{name} is {attributes[name]!r:.60}")


# ------------------------------------------------------------------------------- answers

BROKEN = (
    "Either values of these rows are too extreme for the model, or the model is broken: fit it again, or "
    "load it from another file."
)

AnswerT = TypeVar("AnswerT")
ParametersT = ParamSpec("ParametersT")


def finite_answer(method: Callable[ParametersT, AnswerT]) -> Callable[ParametersT, AnswerT]:
    """Lets a method raise a ValueError instead of returning numbers that are not finite.

    They come from weights that no training gives, or from rows that are too extreme for the model.
    """

    @wraps(method)
    def checked(*args: ParametersT.args, **keywords: ParametersT.kwargs) -> AnswerT:
        with explained(args[0]):
            answer = method(*args, **keywords)
        for array in answer if isinstance(answer, tuple) else (answer,):
            if isinstance(array, np.ndarray) and array.dtype.kind == "f":
                check_rows(array, f"{type(args[0]).__name__}.{method.__name__}")
        return answer

    return checked


@contextmanager
def explained(estimator: object) -> Iterator[None]:
    """Turns failures of arithmetic, which rows or weights beyond all measure cause, into a ValueError."""
    try:
        yield
    except (
        ArithmeticError,
        np.linalg.LinAlgError,
        torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    ) as error:
        name, kind = type(estimator).__name__, type(error).__name__
        raise ValueError(f"{name} cannot compute an answer ({kind}: {_line(error)}). {BROKEN}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:100]


def check_rows(array: npt.NDArray[Any], name: str, *, log_density: bool = False) -> None:
    """Raises a ValueError if rows of an answer are not finite; a log density may be minus infinity."""
    broken = ~np.isfinite(array) & ~(np.isneginf(array) if log_density else False)
    if broken.any():
        rows = broken.reshape(len(array), -1).any(axis=1)
        raise ValueError(
            f"{name} has answers that are not finite in {rows.sum()} of {len(rows)} rows, first in row "
            f"{rows.argmax()}. {BROKEN}"
        )
