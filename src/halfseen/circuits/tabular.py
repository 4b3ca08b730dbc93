"""A circuit over the columns of a mixed table: Gaussian numbers, categorical levels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.base.density import TabularDensity
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.structure import Level, Structure
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.nn.weights import load_module, module_state

MIN_STD = 0.05
"""No component is narrower, in units of a standardised number: ties cannot make a likelihood unbounded."""


@dataclass(frozen=True)
class TabularCircuit(TabularDensity[Circuit]):
    """A circuit over the codes of a table; valid under MAR, with exact marginals and conditionals.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    module : Circuit
        The fitted circuit.
    """

    @classmethod
    def create(
        cls,
        columns: Sequence[Column],
        features: FeatureMap,
        structure: Structure,
        batch: Incomplete | None = None,
    ) -> "TabularCircuit":
        """Returns a model that is not yet trained; `batch` are training features, for level frequencies."""
        return cls(columns, features, Circuit(structure, column_likelihood(columns, features, batch)))

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularCircuit":
        """Rebuilds the model from its columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        module = circuit_from_state(column_likelihood(columns, features), state)
        return cls(columns, features, module)

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor, and the groups of the structure."""
        return self.features.state() | circuit_state(self.module)

    def _quantiles(self, batch: Incomplete, levels: Sequence[float]) -> Tensor:
        return self.module.conditional_quantiles(batch, list(levels))


def column_likelihood(
    columns: Sequence[Column], features: FeatureMap, batch: Incomplete | None = None
) -> ObservationModel:
    """Returns the likelihood of columns: Gaussian numbers that are not too narrow, categorical levels."""
    by_level = {column.name: "categorical" for column in columns if column.kind == "ordinal"}
    observation = ObservationModel.for_table(columns, features, batch, likelihoods=by_level)
    for leaf in observation.leaves:
        if isinstance(leaf, GaussianLeaf):
            leaf.std_floor = MIN_STD
    return observation


def circuit_state(circuit: Circuit) -> dict[str, Tensor]:
    """Returns the tensors of a circuit over the columns of a table, and the group of each of its regions."""
    state = module_state(circuit)
    state["structure.regions"] = torch.tensor(circuit.structure.regions)
    for number, level in enumerate(circuit.structure.levels):
        group_of = torch.empty(level.n_regions, dtype=torch.long)
        for group, members in enumerate(level.groups):
            group_of[list(members)] = group
        state[f"structure.groups.{number}"] = group_of
    return state


def circuit_from_state(observation: ObservationModel, state: Mapping[str, Tensor]) -> Circuit:
    """Rebuilds a circuit from the likelihood of its columns and what `circuit_state` returned."""
    levels: list[Level] = []
    while f"structure.groups.{len(levels)}" in state:
        number = len(levels)
        group_of = state[f"structure.groups.{number}"]
        groups = tuple(
            tuple((group_of == group).nonzero().flatten().tolist())
            for group in range(int(group_of.max()) + 1)
        )
        levels.append(Level(state[f"module.sums.{number}.logits"].shape[-1], groups))
    columns = tuple(range(observation.n_columns))
    structure = Structure(
        windows=(columns,),
        parts=columns,
        regions=tuple(state["structure.regions"].tolist()),
        n_leaves=len(state["module.leaves.theta"]),
        levels=tuple(levels),
        n_classes=state["module.root.logits"].shape[-1],
    )
    circuit = Circuit(structure, observation).double()
    return load_module(circuit, state)
