"""A diagonal mixture over the columns of a mixed table: Gaussian numbers, categorical levels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from halfseen.data.features import FeatureMap
from halfseen.data.schema import Column
from halfseen.models.mixture import DiagonalMixture
from halfseen.models.tabular_density import TabularDensity
from halfseen.nn.weights import load_module


@dataclass(frozen=True)
class TabularMixture(TabularDensity[DiagonalMixture]):
    """A mixture of independent columns over the codes of a table; valid under MAR, with exact conditionals.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    module : DiagonalMixture
        The fitted mixture.
    """

    @classmethod
    def create(cls, columns: Sequence[Column], features: FeatureMap, n_components: int) -> "TabularMixture":
        """Returns a model that is not yet trained."""
        blocks = [(block.start, block.stop) for block in features.blocks]
        module = DiagonalMixture(features.n_features, n_components, blocks).double()
        return cls(columns, features, module)

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularMixture":
        """Rebuilds the model from its columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        model = cls.create(columns, features, n_components=len(state["module.logits"]))
        load_module(model.module, state)
        return model
