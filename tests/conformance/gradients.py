"""Which tensors of a fitted estimator, and which calls of modules, ask for gradients."""

from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def calls_with_gradients():
    """The modules that are called while gradients are on, though no input asks for one."""
    found = []

    def watch(module, inputs):
        asked = any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
        if torch.is_grad_enabled() and not asked:
            found.append(type(module).__name__)

    handle = nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        yield found
    finally:
        handle.remove()


def tensors(value, seen):
    """Yields the tensors that an object holds, in whatever attributes, containers and modules."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set):
        parts = value
    else:
        parts = vars(value).values() if hasattr(value, "__dict__") else ()
    for part in list(parts):
        yield from tensors(part, seen)
