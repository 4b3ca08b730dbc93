"""Experiments: the question, claims that are declared beforehand, and our numbers next to published ones."""

from collections.abc import Mapping
from types import MappingProxyType

from papers import circuits, library, missvae, neumiss, notmiwae, sparsity
from papers.claims import (
    AsPublished,
    AtLeast,
    AtMostShare,
    Better,
    Cell,
    Published,
    Verdict,
    Within,
)
from papers.runner import Results, Row, run
from papers.spec import SCALES, Budget, Experiment

_MODULES = (
    neumiss.gaussian,
    neumiss.linear,
    neumiss.depth,
    notmiwae.tables,
    notmiwae.toys,
    missvae.mixtures,
    missvae.tables,
    missvae.images,
    library.tables,
    library.auto,
    library.margins,
    library.pooling,
    sparsity.ratings,
    sparsity.cells,
    sparsity.dropout,
    sparsity.health,
    sparsity.made,
    sparsity.optimisers,
    sparsity.series,
    circuits.digit_pairs,
    circuits.mnist,
    circuits.tables,
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}
)
"""The experiments of ``python -m papers``, by name."""

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "AsPublished",
    "AtLeast",
    "AtMostShare",
    "Better",
    "Budget",
    "Cell",
    "Experiment",
    "Published",
    "Results",
    "Row",
    "Verdict",
    "Within",
    "run",
]
