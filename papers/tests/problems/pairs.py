"""Mechanisms and links that tests combine."""

import pytest

from papers.problems.gaussian import MECHANISMS


def name(link):
    return type(link).__name__.lower()


def pair_with_mechanisms(links):
    """Parameters of all pairs of a mechanism and a link; the fast suite has each mechanism with one link."""
    return [
        pytest.param(
            mechanism,
            link,
            id=f"{mechanism}-{name(link)}",
            marks=() if i % len(links) == j else pytest.mark.slow,
        )
        for i, mechanism in enumerate(MECHANISMS)
        for j, link in enumerate(links)
    ]
