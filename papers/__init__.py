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
from papers.runner import Results, Row, judge_stored, run
from papers.spec import SCALES, Budget, Experiment

_MODULES = (
    neumiss.gaussian,
    neumiss.linear,
    neumiss.depth,
    neumiss.capacity,
    notmiwae.tables,
    notmiwae.toys,
    notmiwae.report,
    missvae.mixtures,
    missvae.tables,
    missvae.images,
    missvae.causes,
    missvae.imputations,
    missvae.latent_sizes,
    library.tables,
    library.auto,
    library.margins,
    library.inference,
    sparsity.ratings,
    sparsity.cells,
    sparsity.dropout,
    sparsity.health,
    sparsity.made,
    sparsity.optimisers,
    sparsity.series,
    sparsity.tuned,
    sparsity.units,
    circuits.digit_pairs,
    circuits.mnist,
    circuits.figure3,
    circuits.figure4,
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
    "judge_stored",
    "run",
]
