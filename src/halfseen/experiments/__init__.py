"""Experiments: the question, claims that are declared beforehand, and our numbers next to published ones."""

from collections.abc import Mapping
from types import MappingProxyType

from halfseen.experiments import (
    auto,
    circuit_classifier,
    convac,
    convac_mnist,
    gaussian,
    margins,
    missvae,
    missvae_images,
    missvae_tables,
    neumiss,
    neumiss_depth,
    notmiwae,
    notmiwae_toys,
    pooling,
    sparsity,
    sparsity_cells,
    sparsity_dropout,
    sparsity_health,
    sparsity_made,
    sparsity_optimisers,
    sparsity_series,
    tables,
)
from halfseen.experiments.claims import (
    AsPublished,
    AtLeast,
    AtMostShare,
    Better,
    Cell,
    Published,
    Verdict,
    Within,
)
from halfseen.experiments.runner import Results, Row, run
from halfseen.experiments.spec import SCALES, Budget, Experiment

_MODULES = (
    gaussian,
    neumiss,
    neumiss_depth,
    notmiwae,
    notmiwae_toys,
    missvae,
    missvae_tables,
    missvae_images,
    tables,
    auto,
    margins,
    pooling,
    sparsity,
    sparsity_cells,
    sparsity_dropout,
    sparsity_health,
    sparsity_made,
    sparsity_optimisers,
    sparsity_series,
    convac,
    convac_mnist,
    circuit_classifier,
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {module.EXPERIMENT.name: module.EXPERIMENT for module in _MODULES}
)
"""The experiments of ``halfseen reproduce``, by name."""

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
