"""Descriptions of parameters that several estimators share, inserted into the docstring of each."""

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

ClassT = TypeVar("ClassT", bound=type)
Descriptions = Mapping[str, tuple[str, str]]

LAST = ("callback", "add_indicator", "schema", "random_state")  # parameters that are described last
HEADINGS = ("Attributes", "Notes", "References", "Examples")  # sections that follow the parameters

COMMON: Descriptions = {
    "add_indicator": (
        "bool",
        "Whether `transform` appends a column ``missingindicator_<name>`` for each column that has missing "
        "values in `fit`, which marks where they are.",
    ),
    "schema": (
        "dict",
        "Kinds, bounds and levels of columns, as in `GaussianImputer`. Columns that are not named are "
        "inferred.",
    ),
    "max_epochs": ("int", "Maximum number of epochs."),
    "batch_size": ("int", "Rows per training step."),
    "learning_rate": ("float", "Initial learning rate; it falls to zero along half a cosine."),
    "weight_decay": ("float", "Decoupled weight decay of AdamW."),
    "patience": ("int", "Training stops after this many epochs without an improvement on held-out rows."),
    "validation_fraction": (
        "float",
        "The fraction of rows held out to choose the best epoch. Tables with fewer than 50 rows hold out "
        "none.",
    ),
    "callback": ("callable", "Called with a progress record after each epoch."),
    "random_state": (
        "int, numpy generator or None",
        "Seeds everything that is random in `fit`, and draws. Pass an integer for reproducible results.",
    ),
}


def documented_by(descriptions: Descriptions) -> Callable[[ClassT], ClassT]:
    """Returns a decorator that inserts a section on the parameters of a class into its docstring.

    Parameters
    ----------
    descriptions : mapping of str to (str, str)
        For each parameter its type and its text; those that are not named come from `COMMON`. Types and
        defaults are completed from the signature.
    """

    def document(cls: ClassT) -> ClassT:
        doc = str(cls.__doc__)
        place = min(doc.find(f"    {heading}\n    ---") % (len(doc) + 1) for heading in HEADINGS)
        cls.__doc__ = doc[:place] + _section(cls, {**COMMON, **descriptions}) + doc[place:]
        return cls

    return document


def _section(constructor: Any, descriptions: Descriptions) -> str:
    entries = ["Parameters", "----------"]
    parameters = inspect.signature(constructor).parameters
    for name, parameter in sorted(parameters.items(), key=lambda item: item[0] in LAST):
        kind, text = descriptions[name]
        default = parameter.default
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
        entries.append(f"{name} : {kind}, " + ("optional" if default is None else f"default={shown}"))
        entries += [f"    {line}" for line in textwrap.wrap(text, 100, break_on_hyphens=False)]
    return textwrap.indent("\n".join(entries), "    ") + "\n\n"
