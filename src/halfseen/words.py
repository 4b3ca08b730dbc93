"""Words that messages, notes and reports share: plurals and lists of names."""

from collections.abc import Sequence


def names_words(names: Sequence[str], at_most: int = 4) -> str:
    """Returns names in a list that stays short.

    Examples
    --------
    >>> names_words(["a", "b", "c"]), names_words(list("abcdef"))
    ('a, b and c', 'a, b, c and 3 more')
    """
    if len(names) > at_most:
        return f"{', '.join(names[: at_most - 1])} and {len(names) - at_most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def plural(number: int, noun: str) -> str:
    """Returns a count with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
