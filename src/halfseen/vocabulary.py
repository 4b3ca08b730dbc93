"""The names of missingness assumptions; each has the same meaning in mechanisms, models and commands."""

from collections.abc import Iterable
from enum import StrEnum


class Missingness(StrEnum):
    r"""The assumed reason for missing values.

    A mechanism of `halfseen.missingness` and the ``missingness`` parameter of an estimator that have the same
    name are the same model: a table whose values were removed by ``halfseen ampute --mechanism W`` satisfies
    the assumption of ``missingness=W``. In the formulas :math:`x` is the value itself, and :math:`p` the
    probability that it is missing. The direction of a monotone mechanism is a separate parameter, ``signs``.
    """

    MAR = "mar"
    """Missing at random: the probability depends on observed values only, and need not be modelled."""

    LOGISTIC = "self-masking-logistic"
    r""":math:`p = \operatorname{sigmoid}(s x + b)`, rising or falling with the value itself."""

    PROBIT = "self-masking-probit"
    r""":math:`p = \Phi(\lambda x - c)`, rising or falling with the value itself."""

    GAUSSIAN = "self-masking-gaussian"
    r""":math:`p = K \exp(-q (x - c)^2 / 2)`, largest at some value :math:`c`."""

    MONOTONE = "self-masking-monotone"
    """Any function of the value itself that rises, or that falls."""

    SHARED_SLOPE = "self-masking-shared-slope"
    """As ``"self-masking-logistic"``, with one slope for all columns."""

    FLEXIBLE = "self-masking-flexible"
    """Any smooth function of the value itself."""

    LINEAR = "linear"
    """A logistic function of a linear combination of the whole row."""

    NONLINEAR = "nonlinear"
    """A logistic function of a small network on the whole row."""


def check_missingness(given: object, offered: Iterable[str], *, besides: str = "") -> None:
    """Raises a ValueError that lists what is offered, unless `given` is one of these words.

    Examples
    --------
    >>> check_missingness("mnar", (Missingness.MAR, Missingness.PROBIT))
    Traceback (most recent call last):
    ...
    ValueError: missingness must be one of 'mar', 'self-masking-probit', got 'mnar'.
    """
    words = [str(word) for word in offered]
    if not isinstance(given, str) or given not in words:
        listed = ", ".join(repr(word) for word in words)
        raise ValueError(f"missingness must be one of {listed}{besides}, got {given!r}.")
