"""Imputation by a mixture model."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import bounded_margin
from halfseen.estimators._base import BaseImputer
from halfseen.estimators._documented import documented_by
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.models.tabular_mixture import TabularMixture
from halfseen.objectives.likelihood import NegativeLogLikelihood
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Progress


@documented_by(
    {
        "n_components": ("int", "The number of components K; at most half the number of rows is used."),
        "learning_rate": ("float", "Initial learning rate."),
    }
)
@dataclass(eq=False, repr=False)
class MixtureImputer(BaseImputer):
    r"""Imputation by a mixture model whose components have independent columns.

    .. math:: p(x_o) = \sum_{k=1}^K \pi_k \prod_{d \in o} p_{kd}(x_d)

    Use it for tables that consist of groups of rows. Within a component, numbers are Gaussian and levels are
    categorical; the components capture clusters, skewed columns and the dependence between categories.
    Marginal and conditional distributions are exact. The model is trained by gradients, with early stopping
    on held-out rows. Values are assumed to be missing at random (MAR).

    Attributes
    ----------
    schema_ : Schema
        The kind of each column, and the reasons.
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

    _draws_one_by_one = True

    n_components: int = 20
    _: KW_ONLY
    max_epochs: int = 500
    batch_size: int = 1024
    learning_rate: float = 0.05
    patience: int = 20
    validation_fraction: float = 0.1
    callback: Callable[[Progress], None] | None = None
    add_indicator: bool = False
    schema: Any = None
    random_state: Any = None

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
            settings=TrainingSettings(
                max_epochs=self.max_epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                patience=self.patience,
            ),
            callback=self.callback,
        )
        model.module.requires_grad_(False)
        return model

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularMixture:
        return TabularMixture.from_state(self._modelled, state)
