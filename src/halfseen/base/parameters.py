"""Parameters of estimators, checked before anything is fitted, and answers, checked before they are returned.

Errors name the parameter and its value, or the rows whose answer is not finite.
"""

import inspect
import logging
import re
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin

from halfseen._threads import find_device, torch_defaults
from halfseen.training.progress import Progress

LOGGER = logging.getLogger(__name__)

ClassT = TypeVar("ClassT", bound=type)
FitT = TypeVar("FitT", bound=Callable[..., Any])
TypesAndTexts = Mapping[str, tuple[str, str]]
Descriptions = dict[str, str | tuple[str, str]]
"""The text of each parameter; with its type, if the annotation does not say all there is to say of it."""

LAST = ("callback", "add_indicator", "schema", "random_state")  # parameters that are described last
HEADINGS = ("Attributes", "Notes", "References", "Examples")  # sections that follow the parameters
PARAMETERS, ATTRIBUTES = "Parameters\n----------\n", "Attributes\n----------\n"

COMMON: Descriptions = {
    "add_indicator": (
        "Whether `transform` appends a column ``missingindicator_<name>`` for each column that has missing "
        "values in `fit`, which marks where they are."
    ),
    "schema": (
        "dict",
        "Kinds, bounds and levels of columns, as in `GaussianImputer`. Columns that are not named are "
        "inferred.",
    ),
    "max_epochs": "Maximum number of epochs.",
    "batch_size": "Rows per training step.",
    "learning_rate": "Initial learning rate; it falls to zero along half a cosine.",
    "weight_decay": "Decoupled weight decay of AdamW.",
    "patience": "Training stops after this many epochs without an improvement on held-out rows.",
    "validation_fraction": (
        "The fraction of rows held out to choose the best epoch. Tables with fewer than 50 rows hold out "
        "none."
    ),
    "device": (
        'Where gradients are computed: ``"cpu"``, another device of torch such as ``"cuda"`` or ``"mps"``, '
        'or ``"auto"``, the first of CUDA and MPS that is available. Everything else is computed on the CPU, '
        "also predictions and draws after `fit`."
    ),
    "callback": ("callable", "Called with a progress record after each epoch."),
    "class_weight": (
        'dict, "balanced" or None',
        "Weights of the classes in the decisions of `predict`, which returns the class whose probability "
        'times its weight is largest; ``"balanced"`` is inversely proportional to the number of rows of a '
        "class, or to the sum of their weights. Probabilities do not depend on it.",
    ),
    "random_state": (
        "int, numpy generator or None",
        "Seeds everything that is random in `fit`, and draws. Pass an integer for reproducible results.",
    ),
}

FIT_ARGUMENTS: TypesAndTexts = {
    "X": (
        "pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)",
        "Missing cells are None, NaN, NaT, NA or null.",
    ),
    "y": ("array-like of shape (n_samples,)", "The target, without missing values."),
    "sample_weight": (
        "array-like of shape (n_samples,), optional",
        "Relative weights of the rows, in the loss, in shares of classes and in the errors by which "
        "intervals and probabilities are calibrated: doubling all weights changes nothing. Rows with zero "
        "weight are used for schema inference only.",
    ),
}
"""What `documented_fit` says of the arguments of `fit`."""

SCHEMA: TypesAndTexts = {"schema_": ("Schema", "The kind of each column, and the reasons.")}
"""The fitted attribute of every estimator of tables."""

IMPUTER_ATTRIBUTES: TypesAndTexts = {
    **SCHEMA,
    "columns_left_": (
        "dict of str to str",
        "The columns of a data frame whose missing values are left empty, and the reasons.",
    ),
    "skip_rules_": (
        "dict of str to SkipRule",
        "The columns of a data frame that do not apply to all rows, and the rule for each.",
    ),
    "near_copies_": (
        "dict of str to list of str",
        "The columns that are imputed from near-copies by a linear relation, where these are observed.",
    ),
}
"""The fitted attributes of every imputer of tables."""

CLASSES: TypesAndTexts = {"classes_": ("array of shape (n_classes,)", "The classes, sorted.")}
"""The fitted attribute of every classifier."""

SEVERAL = "array-like of shape (n_samples,), or (n_samples, n_targets) for a regressor"
TARGETS = (SEVERAL, "The targets, without missing values.")  # y of predictors with one or several targets


@dataclass(eq=False, repr=False, kw_only=True)
class TrainingParameters:
    """The parameters of all estimators that are trained by gradients; `COMMON` describes them.

    An estimator inherits them and states its own defaults, and the number of epochs and the size of batches,
    which some choose by themselves.
    """

    learning_rate: float = 1e-3
    patience: int = 20
    validation_fraction: float = 0.1
    device: str = "cpu"
    callback: Callable[[Progress], None] | None = None


def documented_by(
    descriptions: Mapping[str, str | tuple[str, str]], attributes: TypesAndTexts | None = None
) -> Callable[[ClassT], ClassT]:
    """Returns a decorator that completes the docstring of a class by what it shares with other classes.

    The parameters that the docstring does not describe are appended to its section on parameters, which is
    inserted if there is none.

    Parameters
    ----------
    descriptions : mapping of str to str or (str, str)
        For each parameter its text, or its type and its text; those that are not named come from `COMMON`.
        Other types, and defaults, are taken from the signature.
    attributes : mapping of str to (str, str), optional
        Fitted attributes that the class shares with others; they precede those that its docstring lists,
        and the classes of a classifier come first.
    """

    def document(cls: ClassT) -> ClassT:
        doc = inspect.cleandoc(str(cls.__doc__)) + "\n"  # without indentation, as Python 3.13 stores it
        place = min(doc.find(f"\n{heading}\n---") % (len(doc) + 1) for heading in HEADINGS)
        before, after = doc[:place].rstrip(), doc[place:].lstrip("\n")
        _, has_own, own = before.partition(PARAMETERS)
        described = {name for names in re.findall(r"(?m)^(\S.*) : ", own) for name in names.split(", ")}
        lines = _describe(cls, {**COMMON, **descriptions}, described)
        section = "\n".join(lines)
        before += (f"\n{section}" if has_own else f"\n\n{PARAMETERS}{section}") + "\n\n"
        shared_attributes = {**(CLASSES if issubclass(cls, ClassifierMixin) else {}), **(attributes or {})}
        if shared_attributes:
            entries = shared_attributes.items()
            lines = [line for name, (kind, text) in entries for line in _entry(name, kind, text)]
            separator = "" if after.startswith(ATTRIBUTES) else "\n"
            shared = "\n".join(lines)
            after = f"{ATTRIBUTES}{shared}\n{separator}{after.removeprefix(ATTRIBUTES)}"
        cls.__doc__ = before + after
        return cls

    return document


def documented_fit(**descriptions: tuple[str, str]) -> Callable[[FitT], FitT]:
    """Returns a decorator that appends a section on the arguments of `fit` to the docstring of a predictor's.

    Parameters
    ----------
    **descriptions : (str, str)
        The type and the text of arguments that differ from `FIT_ARGUMENTS`.
    """

    def document(fit: FitT) -> FitT:
        texts = {**FIT_ARGUMENTS, **descriptions}
        lines = ["Parameters", "----------"]
        for name in list(inspect.signature(fit).parameters)[1:]:
            kind, text = texts[name]
            lines += [f"{name} : {kind}", *(f"    {line}" for line in textwrap.wrap(text, 100))]
        section = "\n".join(lines)
        fit.__doc__ = f"{inspect.cleandoc(str(fit.__doc__))}\n\n{section}\n"
        return fit

    return document


def _describe(constructor: Any, descriptions: Descriptions, described: Collection[str]) -> list[str]:
    """Returns the lines on the parameters of a constructor, without those that are described already."""
    parameters, lines = inspect.signature(constructor).parameters, list[str]()
    for name in sorted((one for one in parameters if one not in described), key=_rank):
        parameter, description = parameters[name], descriptions[name]
        kind, text = description if isinstance(description, tuple) else (_annotated(parameter), description)
        default = parameter.default
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
        lines += _entry(name, f"{kind}, " + ("optional" if default is None else f"default={shown}"), text)
    return lines


def _annotated(parameter: inspect.Parameter) -> str:
    """Returns the type of a parameter, without the None that "optional" stands for."""
    kind = parameter.annotation
    return (kind.__name__ if isinstance(kind, type) else str(kind)).removesuffix(" | None")


def _entry(name: str, kind: str, text: str) -> list[str]:
    """Returns the lines of a section that describe a parameter or an attribute."""
    return [f"{name} : {kind}", *(f"    {line}" for line in textwrap.wrap(text, 100, break_on_hyphens=False))]


def _rank(name: str) -> tuple[int, int]:
    """Returns the place of a parameter: those of a method, then those of all trainings, then `LAST`."""
    if name in LAST:
        return 2, LAST.index(name)
    return (1, list(COMMON).index(name)) if name in COMMON else (0, 0)


Self = TypeVar("Self")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def all_or_nothing(
    fit: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """Decorates a `fit` so that all attributes of its object are restored if it fails or is interrupted.

    A completed fit is logged. The method must assign attributes, and not modify the objects that they refer
    to.

    Examples
    --------
    >>> class Estimator:
    ...     @all_or_nothing
    ...     def fit(self, X):
    ...         self.mean_ = sum(X) / len(X)
    ...         self.model_ = 1 / self.mean_
    >>> estimator = Estimator()
    >>> estimator.fit([1, 3])
    >>> estimator.fit([-1, 1])
    Traceback (most recent call last):
      ...
    ZeroDivisionError: float division by zero
    >>> vars(estimator)
    {'mean_': 2.0, 'model_': 0.5}
    """

    @wraps(fit)
    def fit_or_restore(self: Self, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        before, began = dict(vars(self)), time.monotonic()
        try:
            fitted = fit(self, *args, **kwargs)
        except BaseException:  # also an interruption; nothing is swallowed
            self.__dict__ = before
            raise
        name, seconds = type(self).__name__, time.monotonic() - began
        LOGGER.info("%s was fitted in %.2f s%s.", name, seconds, _course(self))
        return fitted

    return fit_or_restore


def _course(estimator: object) -> str:
    """Returns how many iterations or epochs a fit had, for the log."""
    found = vars(estimator)
    if "history_" in found:
        history = found["history_"]
        return f", with {len(history.train_loss)} epochs (stopped by {history.stopped})"
    return f", with {found['n_iter_']} iterations" if "n_iter_" in found else ""


def check_whole(name: str, value: Any, lowest: int, *, auto: bool = False) -> None:
    """Raises a ValueError unless a parameter is a whole number of at least `lowest`, or "auto" if allowed."""
    if auto and isinstance(value, str) and value == "auto":
        return
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < lowest:
        what = ("'auto' or " if auto else "") + ("" if is_whole else "a whole number of ")
        raise ValueError(f"{name} must be {what}at least {lowest}, got {value!r}.")


def check_number(name: str, value: Any, holds: Callable[[float], bool], what: str) -> None:
    """Raises a ValueError unless `holds` is true for a number; `what` describes valid numbers."""
    if isinstance(value, bool) or not isinstance(value, Real) or not holds(float(value)):
        raise ValueError(f"{name} must be {what}, got {value!r}.")


def check_level(level: Any) -> None:
    """Raises a ValueError unless a level, of an interval or a quantile, is between 0 and 1."""
    check_number("level", level, lambda v: 0 < v < 1, "between 0 and 1")


def check_training(estimator: TrainingParameters) -> None:
    """Raises a ValueError if a parameter that all estimators with networks share is out of range."""
    check_whole("patience", estimator.patience, 1)
    check_number("learning_rate", estimator.learning_rate, lambda v: 0 < v < np.inf, "positive and finite")
    check_number("validation_fraction", estimator.validation_fraction, lambda v: 0 <= v < 1, "in [0, 1)")
    find_device(estimator.device)


BROKEN = (
    "Either values of these rows are too extreme for the model, or the model is broken: fit it again, or "
    "load it from another file."
)

AnswerT = TypeVar("AnswerT")
ParametersT = ParamSpec("ParametersT")


def finite_answer(method: Callable[ParametersT, AnswerT]) -> Callable[ParametersT, AnswerT]:
    """Lets a method raise a ValueError instead of returning numbers that are not finite.

    They come from weights that no training gives, or from rows that are too extreme for the model. The answer
    does not depend on torch's modes and defaults.
    """

    @wraps(method)
    def checked(*args: ParametersT.args, **keywords: ParametersT.kwargs) -> AnswerT:
        with torch_defaults(), explained(args[0]):
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
    broken = ~(np.isfinite(array) | np.isneginf(array)) if log_density else ~np.isfinite(array)
    if broken.any():
        rows = broken.reshape(len(array), -1).any(axis=1)
        raise ValueError(
            f"{name} has answers that are not finite in {rows.sum()} of {len(rows)} rows, first in row "
            f"{rows.argmax()}. {BROKEN}"
        )
