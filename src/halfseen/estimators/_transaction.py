"""Restoring an estimator if its `fit` fails or is interrupted."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def all_or_nothing(
    fit: Callable[Concatenate[Self, Arguments], Result],
) -> Callable[Concatenate[Self, Arguments], Result]:
    """Decorates a method so that all attributes of its object are restored if it fails or is interrupted.

    The method must assign attributes, and not modify the objects that they refer to.

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
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:  # also an interruption; nothing is swallowed
            self.__dict__ = before
            raise

    return fit_or_restore
