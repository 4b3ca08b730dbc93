"""The imputer: its parameters and its model. Copy it to src/halfseen/<family>/imputer.py."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.density import NegativeLogLikelihood
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import IMPUTER_ATTRIBUTES, documented_by
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.training.loop import TrainingSettings, fit_module
from skeletons.tabular_model import TabularDiagonal  # in the library: in the same file


@documented_by({}, IMPUTER_ATTRIBUTES)  # adds what all imputers have, such as `schema` and `schema_`
@dataclass(eq=False, repr=False, kw_only=True)
class DiagonalImputer(BaseImputer):
    r"""Imputes each column separately, by a Gaussian that is trained by gradients.

    .. math:: p(x_o) = \prod_{d \in o} \mathcal{N}(x_d \mid \mu_d, \sigma_d^2)

    Assumes that values are missing completely at random (MCAR).

    Parameters
    ----------
    max_epochs : int, default=300
        Maximum number of passes over the table.
    learning_rate : float, default=0.05
        Step size of the optimiser at the start.

    Attributes
    ----------
    model_ : TabularDiagonal
        The fitted model.
    history_ : History
        The loss after each epoch, and why training stopped.

    Examples
    --------
    >>> import numpy as np
    >>> DiagonalImputer(random_state=0).fit_transform([[1.5], [2.5], [np.nan]]).ravel().round(1)
    array([1.5, 2.5, 2. ])
    """

    max_epochs: int = 300  # fields are parameters: __init__ only stores them, as scikit-learn requires
    learning_rate: float = 0.05

    @property
    def capabilities(self) -> Capabilities:  # what distinguishes it from other imputers
        """What the imputer can do with the parameters that it has."""
        return replace(super().capabilities, trains_in_epochs=True)

    def _fit_model(self, codes: Incomplete) -> TabularDiagonal:
        generator = torch_generator(self.seed_)  # fresh at each fit, never global
        features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        model = TabularDiagonal.create(self._modelled, features)
        model.module.reset_parameters(generator)
        self.history_ = fit_module(
            model.module,
            NegativeLogLikelihood(),
            features.encode(codes),
            generator=generator,
            settings=TrainingSettings(max_epochs=self.max_epochs, learning_rate=self.learning_rate),
        )
        model.module.requires_grad_(False)  # answers need no gradients
        return model

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularDiagonal:
        return TabularDiagonal.from_state(self._modelled, state)
