"""Papers' experiments, run again: the question, the claims made beforehand, our numbers beside theirs."""

from collections.abc import Mapping
from types import MappingProxyType

from halfseen.experiments import gaussian
from halfseen.experiments.claims import AsPublished, Better, Cell, Published, Verdict, Within
from halfseen.experiments.runner import Results, Row, run
from halfseen.experiments.spec import SCALES, Budget, Experiment

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({gaussian.EXPERIMENT.name: gaussian.EXPERIMENT})
"""What ``halfseen reproduce`` knows, by name."""

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "AsPublished",
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
