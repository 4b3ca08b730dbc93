"""A device that every machine has and that, like a real one, refuses to compute with tensors of two devices.

Its tensors hold a tensor of the CPU, with which every operation is computed, so that results are those of
the CPU up to the layout of tensors. Operations that a GPU refuses raise an error: those of tensors on two
devices, except for scalars of the CPU, and views as NumPy arrays. Indices on the CPU, which a GPU would
copy at each use, are refused as well.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

NAME = "strict"
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
    pytest.skip("this version of torch has no backends in Python", allow_module_level=True)
# At import: torch counts its devices when it computes the first gradient of a process.
backend_registration._setup_privateuseone_for_python_backend(NAME)


def _lstm_cell(
    inputs: Any, hidden: Any, cell: Any, bias: Any = None, other_bias: Any = None
) -> tuple[Any, ...]:
    gates = inputs + hidden if bias is None else inputs + bias + (hidden + other_bias)
    given, kept, new, shown = gates.chunk(4, dim=1)
    given, kept, new, shown = given.sigmoid(), kept.sigmoid(), new.tanh(), shown.sigmoid()
    state = kept * cell + given * new
    return shown * state.tanh(), state, torch.cat([given, kept, new, shown], dim=1)


def _lstm_gradient(of_hidden: Any, of_state: Any, cell: Any, state: Any, gates: Any, has_bias: bool) -> Any:
    given, kept, new, shown = gates.chunk(4, dim=1)
    of_hidden = torch.zeros_like(state) if of_hidden is None else of_hidden
    total = of_hidden * shown * (1 - state.tanh().square()) + (0 if of_state is None else of_state)
    of_gates = torch.cat(
        [
            total * new * given * (1 - given),
            total * cell * kept * (1 - kept),
            total * given * (1 - new.square()),
            of_hidden * state.tanh() * shown * (1 - shown),
        ],
        dim=1,
    )
    return of_gates, total * kept, of_gates.sum(dim=0) if has_bias else None


FUSED = {
    torch.ops.aten._thnn_fused_lstm_cell.default: _lstm_cell,
    torch.ops.aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_gradient,
}
"""Operations that torch has for devices other than the CPU only."""


class StrictTensor(torch.Tensor):
    """A tensor on the device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "StrictTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.held = held
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """Sees also the operations that create tensors on the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    is_strict = any(isinstance(one, StrictTensor) for one in tensors)
    wanted = kwargs.get("device")
    if is_strict and func not in COPIES:
        others = [one for one in tensors if not isinstance(one, StrictTensor) and one.dim() > 0]
        if others:
            raise RuntimeError(f"{func} mixes tensors of two devices: one is on the CPU {others[0].shape}.")
    is_here = wanted is not None and torch.device(wanted).type == NAME
    given = {name: value for name, value in kwargs.items() if name != "device"} if is_here else kwargs
    held = pytree.tree_map(lambda one: one.held if isinstance(one, StrictTensor) else one, (args, given))
    answer = FUSED.get(func, func)(*held[0], **held[1])
    if wanted is not None:
        lands = is_here
    else:
        lands = isinstance(args[0], StrictTensor) if func is torch.ops.aten.copy_.default else is_strict
    if not lands:
        return answer
    wrapped = pytree.tree_map(lambda one: StrictTensor(one) if isinstance(one, torch.Tensor) else one, answer)
    return wrapped if wanted is not None else return_and_correct_aliasing(func, args, kwargs, wrapped)


@contextmanager
def strict_device() -> Iterator[str]:
    """Yields the name of the device, which computes within a ``with`` statement."""
    with _Everywhere():
        yield NAME
