"""Checks, before memory is allocated, that the description in a model file fits the tensors in it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

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
