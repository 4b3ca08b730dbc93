"""The weights of a module among the tensors of a model file."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)

_PREFIX = "module."


class HasWeights(Protocol):
    """Anything with weights by name, such as a module."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights."""
        ...


def module_state(module: HasWeights) -> dict[str, Tensor]:
    """Returns the weights of a module under names that no other tensor of a model file has.

    Examples
    --------
    >>> sorted(module_state(nn.LayerNorm(2)))
    ['module.bias', 'module.weight']
    """
    return {f"{_PREFIX}{name}": value for name, value in module.state_dict().items()}


def module_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights among the tensors of a model file, by their names in the module."""
    return {name.removeprefix(_PREFIX): state[name] for name in state if name.startswith(_PREFIX)}


def load_module(module: ModuleT, state: Mapping[str, Tensor]) -> ModuleT:
    """Loads the output of `module_state` into a module, which is then in evaluation mode."""
    module.load_state_dict(module_weights(state))
    module.eval().requires_grad_(False)
    return module
