"""A circuit over the columns of a mixed table, and the imputer that fits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.density import NegativeLogLikelihood, TabularDensity
from halfseen.base.imputer import BaseImputer
from halfseen.base.table import EncodedRows
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.fitting import (
    CircuitParameters,
    CircuitSettings,
    check_algorithm,
    documented_imputer,
    fit_by_em,
    fit_to_passes,
)
from halfseen.circuits.initialisation import resemble_rows, spread_leaves
from halfseen.circuits.structure import Level, Structure
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Passes
from halfseen.data.margin_choice import bounded_margin
from halfseen.data.schema import Column
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.nn.weights import load_module, module_state
from halfseen.training.loop import fit_module, split_rows

MIN_STD = 0.05
"""No component is narrower, in units of a standardised number: ties cannot make a likelihood unbounded."""


@dataclass(frozen=True)
class TabularCircuit(TabularDensity[Circuit]):
    """A circuit over the codes of a table; valid under MAR, with exact marginals and conditionals.

    The `module` is the fitted circuit.
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


@documented_imputer
@dataclass(eq=False, repr=False, kw_only=True)
class CircuitImputer(CircuitParameters, BaseImputer):
    r"""Imputation by a probabilistic circuit over the columns, with exact marginals and conditionals.

    .. math:: p(x_o) = \sum_{d_1 \dots d_C} A_{d_1 \dots d_C} \prod_{j \in o} p_j(x_j \mid \theta_{j d_j})

    Every column is a mixture of a few components. The joint probabilities of the components form a tensor
    :math:`A`, which is factorised along a tree that joins dependent columns first. One pass of sums and
    products gives the density of any observed cells, and a backward pass gives the mean, the variance, the
    quantiles and joint draws of the missing cells, all without approximation. Numbers are Gaussian and
    levels categorical within a component. The circuit is trained by gradients on the observed cells, with
    early stopping on held-out rows, or by EM. Values are assumed to be missing at random (MAR).

    As in `MixtureImputer`, components have a least width, and columns that are nearly copies of each other
    are imputed from each other; see ``near_copies_``.

    Attributes
    ----------
    model_ : TabularCircuit
        The fitted model.
    structure_ : Structure
        The levels of its circuit, which ``print`` shows as a table.
    history_ : History
        The loss after each epoch, and why training stopped.

    References
    ----------
    Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models; here the tree is over columns.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, size=1000)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(1000, 2))
    >>> imputer = CircuitImputer(n_leaves=16, max_epochs=30, random_state=0).fit(X)
    >>> low, high = imputer.interval([[0.0, np.nan]], level=0.9)
    >>> bool(low[0, 1] < -0.8), bool(high[0, 1] > 0.8)  # either side of the circle
    (True, True)
    """

    algorithm: str = "gradient"

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(
            super().capabilities, holds_out_rows=True, trains_in_epochs=True, draws_one_by_one=True
        )

    @property
    def structure_(self) -> Structure | None:
        """The levels of the circuit, which it prints as a table; None if no column can be modelled."""
        check_is_fitted(self)
        return None if self.model_ is None else self.model_.module.structure

    def _fit_model(self, codes: Incomplete) -> TabularCircuit:
        settings = CircuitSettings.of(self, len(codes))
        check_algorithm(self)
        generator = torch_generator(self.seed_)
        features = FeatureMap.fit(self._modelled, codes, all_indicators=True, choose=bounded_margin)
        rows = features.encode(codes).to(torch.float32)
        held_out = self.validation_fraction if self.algorithm == "gradient" else 0.0
        train, validation = split_rows(rows, held_out, generator)
        structure = settings.build(codes.to_array(), self.seed_)
        model = TabularCircuit.create(self._modelled, features, structure, train.to(torch.float64))
        circuit = model.module.float()
        spread_leaves(circuit, train, generator)
        resemble_rows(circuit, train, generator)
        if self.algorithm == "em":
            self.history_ = fit_by_em(circuit, train, self.max_epochs, self.callback)
        else:
            self.history_ = fit_module(
                circuit,
                NegativeLogLikelihood(),
                train,
                generator=generator,
                validation=validation,
                settings=settings.training,
                callback=self.callback,
            )
        circuit.double().requires_grad_(False)
        return model

    def _refit(self, table: Any, passes: Passes) -> bool:
        """Continues EM with all rows of a table in files; leaves and the structure are not changed."""
        if self.algorithm != "em" or self.model_ is None:
            return False
        rows = EncodedRows.of(self, table, self.model_.features)
        self.history_ = fit_to_passes(self.model_.module, rows, passes, self.max_epochs, self.callback)
        return True

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularCircuit:
        return TabularCircuit.from_state(self._modelled, state)

    @property
    def _width(self) -> int:
        """Counts every feature once for each component, and every column once for each channel."""
        return super()._width * max(self.n_leaves, int(np.max(self.n_channels)) * self.n_trees)
