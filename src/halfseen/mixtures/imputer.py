"""Imputation by a mixture model."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from torch import Tensor

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.density import NegativeLogLikelihood, TabularDensity
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import (
    IMPUTER_ATTRIBUTES,
    TrainingParameters,
    check_training,
    check_whole,
    documented_by,
)
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import bounded_margin
from halfseen.data.schema import Column
from halfseen.mixtures.model import DiagonalMixture
from halfseen.nn.weights import load_module
from halfseen.training.holdout import split_rows
from halfseen.training.loop import TrainingSettings, fit_module


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


@documented_by(
    {
        "n_components": ("int", "The number of components K; at most half the number of rows is used."),
        "learning_rate": ("float", "Initial learning rate."),
    },
    IMPUTER_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class MixtureImputer(TrainingParameters, BaseImputer):
    r"""Imputation by a mixture model whose components have independent columns.

    .. math:: p(x_o) = \sum_{k=1}^K \pi_k \prod_{d \in o} p_{kd}(x_d)

    Use it for tables that consist of groups of rows. Within a component, numbers are Gaussian and levels are
    categorical; the components capture clusters, skewed columns and the dependence between categories.
    Marginal and conditional distributions are exact. The model is trained by gradients, with early stopping
    on held-out rows. Values are assumed to be missing at random (MAR).

    No component is narrower than a twentieth of a standard deviation. Columns that are nearly copies of each
    other, with a correlation above 0.995, are therefore imputed from each other by a linear relation, with
    its residuals; see ``near_copies_``. Densities of rows do not know the relation.

    Attributes
    ----------
    model_ : TabularMixture
        The fitted model.
    history_ : History
        The loss after each epoch, and the reason why training stopped.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[0.0, 0.0], [5.0, 9.0]], 50, axis=0) + rng.normal(size=(100, 2))
    >>> X[0, 1] = X[99, 1] = np.nan
    >>> filled = MixtureImputer(n_components=2, random_state=0).fit_transform(X)
    >>> bool(abs(filled[0, 1] - 0) < 1.5), bool(abs(filled[99, 1] - 9) < 1.5)
    (True, True)
    """

    n_components: int = 20
    _: KW_ONLY
    max_epochs: int = 500
    batch_size: int = 1024
    learning_rate: float = 0.05

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(
            super().capabilities, holds_out_rows=True, trains_in_epochs=True, draws_one_by_one=True
        )

    def _fit_model(self, codes: Incomplete) -> TabularMixture:
        for name, lowest in {"n_components": 1, "batch_size": 1, "max_epochs": 0}.items():
            check_whole(name, getattr(self, name), lowest)
        check_training(self)
        generator = torch_generator(self.seed_)
        features = FeatureMap.fit(self._modelled, codes, all_indicators=True, choose=bounded_margin)
        n_components = min(self.n_components, max(1, len(codes) // 2))
        model = TabularMixture.create(self._modelled, features, n_components)
        train, validation = split_rows(features.encode(codes), self.validation_fraction, generator)
        model.module.reset_parameters(train, generator)
        self.history_ = fit_module(
            model.module,
            NegativeLogLikelihood(),
            train,
            generator=generator,
            validation=validation,
            settings=TrainingSettings.of(self),
            callback=self.callback,
        )
        model.module.requires_grad_(False)
        return model

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularMixture:
        return TabularMixture.from_state(self._modelled, state)
