"""Options that belong together, declared once as the fields of a dataclass and shared by commands."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are dataclasses are replaced by the fields of these.

    Typer reads the options of a command from its signature. A parameter whose annotation is a dataclass
    appears there as one keyword parameter for each field; the command itself receives the dataclass.

    Parameters
    ----------
    command : callable
        The command. The names of its parameters and of all fields of its groups must differ.

    Returns
    -------
    callable
        The command, with keyword parameters only.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     width: int = 2
    ...     height: int = 3
    >>> @expand_groups
    ... def show(name: str, size: Size) -> None:
    ...     print(name, size.width * size.height)
    >>> show(name="area", height=5)
    area 10
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    signature = inspect.signature(command)
    parameters = [
        expanded
        for name, parameter in signature.parameters.items()
        for expanded in (
            _parameters_of(groups[name])
            if name in groups
            else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])]
        )
    ]

    @wraps(command)
    def expanded_command(**values: Any) -> None:
        for name, group in groups.items():
            given = [field.name for field in fields(group) if field.name in values]
            values[name] = group(**{field: values.pop(field) for field in given})
        command(**values)

    expanded_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded_command.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return expanded_command


def _parameters_of(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default_of(field),
            annotation=hints[field.name],
        )


def _default_of(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default
