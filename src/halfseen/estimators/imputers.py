"""The imputers: each is its parameters and the choice of a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import bounded_margin
from halfseen.distributions.gaussian import Gaussian
from halfseen.estimators._base import BaseImputer
from halfseen.estimators._em_settings import em_settings
from halfseen.estimators._holdout import split_rows
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.models.tabular_gaussian import TabularGaussian, with_room_for_noise
from halfseen.models.tabular_mixture import TabularMixture
from halfseen.objectives.likelihood import NegativeLogLikelihood
from halfseen.training.em_self_masked import fit_masked_gaussian
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.margins import fit_features
from halfseen.training.posterior import sample_posterior
from halfseen.training.progress import EMProgress, Progress
from halfseen.vocabulary import Missingness

MARGINS = ("auto", "gaussian")


class GaussianImputer(BaseImputer):
    r"""Imputes by the exact conditionals of a Gaussian fitted to the incomplete table.

    .. math::
        x_m \mid x_o \sim \mathcal{N}\left(\mu_m + \Sigma_{mo} \Sigma_{oo}^{-1} (x_o - \mu_o),\;
        \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}\right)

    Here x is a score of each number under the margin of its column (a Gaussian copula), or the number itself
    where the column is Gaussian; means and draws are mapped back to the units of the table.

    Parameters are of maximum (ridge-penalised) likelihood, found by exact EM. Categories enter as indicators
    and are filled by class probabilities. Assumes that values are missing at random (MAR): whether a cell is
    missing may depend on what was observed, not on what was not.

    Unless `missingness` says otherwise. Then each number hides itself with a probability of its own value,

    .. math::
        p(x, m) = \mathcal{N}(x \mid \mu, \Sigma) \prod_{d \in m} \pi_d(x_d)
        \prod_{d \notin m} (1 - \pi_d(x_d))

    where :math:`\pi` is either a bump :math:`K \exp(-q (x - c)^2 / 2)`, with which conditionals stay exactly
    Gaussian, or a probit :math:`\Phi(\lambda x - c)`, with which they are approximated by expectation
    propagation; all parameters are fitted together. Levels, ordered or not, stay missing at random.

    Parameters
    ----------
    margins : {"auto", "gaussian"}, default="auto"
        The distribution of each column of numbers. With ``"auto"`` it is a normal, a normal after a logarithm
        or a Yeo-Johnson transformation, or the observed distribution by normal scores, whichever has the
        best likelihood of held-out values, the simpler one if in doubt. Counts with few values and ordered
        levels lie between thresholds, and values that occur again and again have a probability. With
        ``"gaussian"`` every column is normal, as it always is under a self-masking model, which the shape
        of the margins identifies.
    missingness : {"mar", "self-masking-probit", "self-masking-gaussian"}, default="mar"
        The assumed mechanism: missing at random; a probability that rises or falls with the value, as when
        large incomes are not reported; or a probability that is largest around some value of the column.
    ridge : float or "auto", default="auto"
        Pseudo-rows of uncorrelated data added to the table; ``"auto"`` chooses by held-out likelihood
        when there are few rows for the number of features, and from 150 features on it may also choose a
        covariance of low rank plus a diagonal.
    n_posterior_draws : int, default=0
        Parameters drawn from their posterior in `fit`. With at least as many as the draws asked of `sample`,
        multiple imputation is proper: parameter uncertainty is in the draws and intervals. With 0 they are
        conditional on the fitted parameters. Only with ``missingness="mar"``.
    max_iter : int, default=200
        At most so many EM iterations.
    tol : float, default=2e-5
        EM stops when an iteration gains less log-likelihood per row and feature.
    callback : callable, optional
        Called with a progress record after each EM iteration.
    schema : dict, optional
        Maps column names (or positions) to a kind such as ``"categorical"``, or to a dict with any of
        ``kind``, ``minimum``, ``maximum``, ``firm``, ``integer``, ``levels``, ``censored_below``,
        ``censored_above``, ``fill``, ``skip``. Columns not named are inferred; ``"*"`` stands for all of
        them, with ``fill`` and ``skip``.
    random_state : int, numpy generator or None, default=None
        Seeds fitting and draws.

    Attributes
    ----------
    schema_ : Schema
        What each column is, and why.
    columns_left_ : dict of str to str
        The columns of a data frame whose missing cells are left empty, and why.
    skip_rules_ : dict of str to SkipRule
        The columns of a data frame that do not apply to all rows, and where they do not.
    model_ : TabularGaussian
        The fitted model; ``model_.gaussian`` has location and covariance of the standardised features, and a
        ``mask`` if numbers may hide themselves.
    objective_ : list of float
        The penalised log-likelihood per row after each EM iteration; it never falls.
    n_iter_ : int
        The number of EM iterations.
    ridge_ : float
        The ridge that was used.

    Notes
    -----
    No table can say by itself why its cells are missing: values that nobody saw contradict no model. What
    identifies a self-masking model is the *shape* that it assumes. A column that is merely skewed looks, to a
    Gaussian with a mask, like one whose far values hide. So fit both and compare: where the answers differ,
    the difference rests on the assumption of a Gaussian. Columns with fewer than ten cells missing, or fewer
    than ten seen, stay missing at random.

    With a self-masking model `score_samples` is the joint log density of the observed cells *and* of which
    numbers are missing, so it does not compare with that of an ignorable model.

    References
    ----------
    Dempster, Laird & Rubin (1977); Schafer (1997), Analysis of Incomplete Multivariate Data. Le Morvan et al.
    (2020), NeuMiss networks, for bumps; Minka (2001) for expectation propagation.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 2.1], [2.0, 3.9], [3.0, 6.2], [4.0, 7.8], [5.0, np.nan]])
    >>> GaussianImputer(ridge=0.01).fit_transform(X)[-1].round(1)
    array([5. , 9.8])

    Where large values hide, what is missing is larger than what is seen; the mean of the second column is 5:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([5, 5], [[1, 0.6], [0.6, 1]], size=2000)
    >>> X[X[:, 1] > rng.normal(5, 1, size=2000), 1] = np.nan
    >>> for missingness in ("mar", "self-masking-probit"):
    ...     filled = GaussianImputer(missingness=missingness).fit_transform(X)
    ...     print(missingness, filled[:, 1].mean().round(1))
    mar 4.6
    self-masking-probit 5.0
    """

    _saved = ("objective_", "n_iter_", "ridge_")

    def __init__(
        self,
        *,
        margins: str = "auto",
        missingness: str = Missingness.MAR.value,
        ridge: float | str = "auto",
        n_posterior_draws: int = 0,
        max_iter: int = 200,
        tol: float = 2e-5,
        callback: Callable[[EMProgress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.margins = margins
        self.missingness = missingness
        self.ridge = ridge
        self.n_posterior_draws = n_posterior_draws
        self.max_iter = max_iter
        self.tol = tol
        self.callback = callback
        self.schema = schema
        self.random_state = random_state

    @property
    def _knows_limits(self) -> bool:
        return self.margins == "auto" and self.missingness == Missingness.MAR

    def _fit_model(self, codes: Incomplete) -> TabularGaussian:
        check_whole("n_posterior_draws", self.n_posterior_draws, 0)
        if self.n_posterior_draws and self.missingness != Missingness.MAR:
            raise ValueError(
                f"n_posterior_draws is available for missingness='mar' only, got "
                f"n_posterior_draws={self.n_posterior_draws!r} with missingness={self.missingness!r}."
            )
        generator = torch_generator(self.seed_)
        if self.margins not in MARGINS:
            raise ValueError(f"margins must be one of {', '.join(MARGINS)}, got {self.margins!r}.")
        margins = self.margins if self.missingness == Missingness.MAR else "gaussian"
        if margins == "auto":
            features = fit_features(self._modelled, codes)
        else:
            features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        batch = features.encode(codes)
        settings = em_settings(batch, self.ridge, self.max_iter, self.tol, generator)
        result = fit_masked_gaussian(
            batch,
            self.missingness,
            _may_hide(features),
            settings,
            generator=generator,
            callback=None if self.callback is None else self._tell,
        )
        self.objective_ = list(result.objective)
        self.n_iter_ = len(self.objective_)
        self.ridge_ = settings.ridge
        posterior: Sequence[Gaussian] = ()
        if isinstance(result.model, Gaussian):
            posterior = sample_posterior(
                batch, result.model, ridge=self.ridge_, n_draws=self.n_posterior_draws, generator=generator
            )
        law = result.model
        if isinstance(law, Gaussian):
            law = with_room_for_noise(law, features)
            posterior = [with_room_for_noise(draw, features) for draw in posterior]
        return TabularGaussian(self._modelled, features, law, tuple(posterior))

    def _tell(self, iteration: int, objective: float) -> None:
        assert self.callback is not None
        self.callback(EMProgress(iteration + 1, self.max_iter, objective))

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularGaussian:
        return TabularGaussian.from_state(self._modelled, state)


def _may_hide(features: FeatureMap) -> Tensor:
    """Returns (D): the features that are numbers, neither ordered levels nor indicators."""
    numbers = [c not in features.ordinal for c in features.numeric]
    return torch.tensor(numbers + [False] * (features.n_features - len(numbers)))


class MeanImputer(BaseImputer):
    """Imputes each column by itself: its mean, or its most frequent level.

    The baseline to beat. Columns count as independent, numbers as Gaussian: draws come from each column's own
    distribution and intervals are as wide as the column. Assumes values missing completely at random.

    Parameters
    ----------
    schema : dict, optional
        As in `GaussianImputer`.
    random_state : int, numpy generator or None, default=None
        Seeds draws.

    Examples
    --------
    >>> import numpy as np
    >>> MeanImputer().fit_transform(np.array([[1.5], [2.5], [np.nan]])).ravel()
    array([1.5, 2.5, 2. ])
    """

    def __init__(self, *, schema: Any = None, random_state: Any = None) -> None:
        self.schema = schema
        self.random_state = random_state

    def _fit_model(self, codes: Incomplete) -> TabularGaussian:
        features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        d = features.n_features
        independent = Gaussian(torch.zeros(d, dtype=torch.float64), torch.eye(d, dtype=torch.float64))
        return TabularGaussian(self._modelled, features, independent)

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularGaussian:
        return TabularGaussian.from_state(self._modelled, state)


class MixtureImputer(BaseImputer):
    r"""Imputes by a mixture whose components are independent over columns, with exact marginals.

    .. math:: p(x_o) = \sum_{k=1}^K \pi_k \prod_{d \in o} p_{kd}(x_d)

    Numbers are Gaussian and levels categorical within a component, so clusters, skewed columns and
    dependence between categories are captured by the components. Trained by gradients, with early
    stopping on held-out rows. Assumes that values are missing at random (MAR).

    Parameters
    ----------
    n_components : int, default=20
        The number of components K; at most half the number of rows is used.
    max_epochs : int, default=500
        At most so many passes over the table.
    batch_size : int, default=1024
        Rows per step.
    learning_rate : float, default=0.05
        Step size of the optimiser at the start.
    patience : int, default=20
        Training stops after so many epochs without improvement.
    validation_fraction : float, default=0.1
        The share of rows held out to decide when to stop; tables below 50 rows hold out none.
    callback : callable, optional
        Called with a progress record after each epoch.
    schema : dict, optional
        As in `GaussianImputer`.
    random_state : int, numpy generator or None, default=None
        Seeds initialisation, batches and draws.

    Attributes
    ----------
    schema_ : Schema
        What each column is, and why.
    model_ : TabularMixture
        The fitted model.
    history_ : History
        The loss after each epoch, and why training stopped.

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

    def __init__(
        self,
        n_components: int = 20,
        *,
        max_epochs: int = 500,
        batch_size: int = 1024,
        learning_rate: float = 0.05,
        patience: int = 20,
        validation_fraction: float = 0.1,
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.callback = callback
        self.schema = schema
        self.random_state = random_state

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
