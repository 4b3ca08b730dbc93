"""The device of the training: its name, whether it is available, and what is copied to it."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import torch
from torch import Tensor, nn

AUTOMATIC = ("cuda", "mps")  # the devices that "auto" looks for, in this order
KINDS = (*AUTOMATIC, "xpu")  # the devices that an error message may offer beside the CPU
WITHOUT_DOUBLE = ("mps",)  # devices without numbers in double precision


def find_device(name: Any, module: nn.Module | None = None) -> torch.device:
    """Returns the device with a name, for a module that is to be trained on it.

    Parameters
    ----------
    name : str
        ``"cpu"``, the name of another device such as ``"cuda"``, ``"cuda:1"`` or ``"mps"``, or ``"auto"``,
        which is the first of CUDA and MPS that is available and can train the module, and otherwise the CPU.
    module : nn.Module, optional
        The module. One with numbers in double precision cannot be trained on MPS.

    Raises
    ------
    ValueError
        If there is no such device, or it cannot train the module.

    Examples
    --------
    >>> find_device("cpu")
    device(type='cpu')
    >>> find_device("gpu")
    Traceback (most recent call last):
    ...
    ValueError: device must be 'auto' or the name of a device of torch, here 'cpu', got 'gpu'.
    """
    parts = [] if module is None else [*module.parameters(), *module.buffers()]
    is_double = any(part.dtype == torch.float64 for part in parts)
    excluded = WITHOUT_DOUBLE if is_double else ()
    if isinstance(name, str) and name == "auto":
        usable = [kind for kind in AUTOMATIC if kind not in excluded and _n_devices(kind)]
        return torch.device(usable[0] if usable else "cpu")
    here = " and ".join(repr(kind) for kind in ("cpu", *KINDS) if _n_devices(kind))
    try:
        device = torch.device(name if isinstance(name, str) else str(name))
    except RuntimeError:
        raise ValueError(
            f"device must be 'auto' or the name of a device of torch, here {here}, got {name!r}."
        ) from None
    if (device.index or 0) >= _n_devices(device.type):
        raise ValueError(f"The device {str(name)!r} is not available: torch finds {here} on this machine.")
    if device.type in excluded:
        raise ValueError(
            f"The device {str(name)!r} has no double precision, which this model needs: use device='cpu'."
        )
    return device


def _n_devices(kind: str) -> int:
    """Returns the number of devices of a kind that can be used."""
    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    backend = getattr(torch, kind, None)
    return int(backend.device_count()) if backend is not None and hasattr(backend, "device_count") else 0


@runtime_checkable
class Movable(Protocol):
    """Rows that know which of their parts are needed on the device of the training."""

    def moved(self, move: Callable[[Tensor], Tensor]) -> Any:
        """Returns the rows after `move` of the tensors that a step computes with."""
        ...


ValueT = TypeVar("ValueT")


def moved(value: ValueT, device: torch.device) -> ValueT:
    """Returns a tensor, or a tuple or dataclass that contains tensors, on a device; unchanged on the CPU.

    On a device without double precision, tensors have single precision.

    Examples
    --------
    >>> moved((torch.zeros(2), "other"), torch.device("meta"))
    (tensor(..., device='meta', size=(2,)), 'other')
    """
    if device.type == "cpu":
        return value

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(device, widest(device) if tensor.dtype == torch.float64 else tensor.dtype)

    return cast(ValueT, _moved(value, move))


def widest(device: torch.device) -> torch.dtype:
    """Returns the most precise type of numbers that a device has.

    Examples
    --------
    >>> widest(torch.device("cpu")), widest(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type in WITHOUT_DOUBLE else torch.float64


def _moved(value: Any, move: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return move(value)
    if isinstance(value, Movable):
        return value.moved(move)
    if isinstance(value, tuple):
        parts = [_moved(part, move) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _moved(getattr(value, one.name), move) for one in fields(value)})
    return value
