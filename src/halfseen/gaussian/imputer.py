"""Imputers by Gaussian models: joint, and with independent columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import IMPUTER_ATTRIBUTES, check_whole, documented_by
from halfseen.base.table import EncodedRows
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Passes, Standardizer, add_in_tree
from halfseen.errors import warn_user
from halfseen.gaussian.data_augmentation import Trace, sample_posterior
from halfseen.gaussian.distribution import Gaussian, group_by_pattern
from halfseen.gaussian.em import EMSettings, em_settings, fit_from_moments, fit_gaussian
from halfseen.gaussian.em_self_masked import fit_masked_gaussian
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.moments import PatternMoments, moments_suffice
from halfseen.gaussian.self_masked import SelfMaskedGaussian
from halfseen.gaussian.tabular import TabularGaussian, fit_features, redraw_margins, with_room_for_noise
from halfseen.training.progress import EMProgress
from halfseen.words import Missingness

MARGINS = ("auto", "gaussian")
SELF_MASKED_COPIES = 3  # memory of a row relative to that without a mask model, for sites and cavity moments
MOST_MOMENTS = 1 << 25
"""Cross-products of all patterns that are kept, of 8 bytes each; a guess, and the same on every machine."""


@documented_by(
    {
        "schema": (
            "dict",
            'Maps column names (or positions) to a kind such as ``"categorical"``, or to a dict with any of '
            "``kind``, ``minimum``, ``maximum``, ``firm``, ``integer``, ``levels``, ``censored_below``, "
            "``censored_above``, ``fill``, ``skip``, ``derived``, ``predictor``. Columns that are not named "
            'are inferred. The name ``"*"`` stands for all columns and accepts ``fill`` and ``skip``.',
        )
    },
    IMPUTER_ATTRIBUTES,
)
@dataclass(eq=False, repr=False, kw_only=True)
class GaussianImputer(BaseImputer):
    r"""Imputation by the conditional distributions of a multivariate Gaussian.

    .. math::
        x_m \mid x_o \sim \mathcal{N}\left(\mu_m + \Sigma_{mo} \Sigma_{oo}^{-1} (x_o - \mu_o),\;
        \Sigma_{mm} - \Sigma_{mo} \Sigma_{oo}^{-1} \Sigma_{om}\right)

    Mean and covariance are maximum (ridge-penalised) likelihood estimates from the incomplete table, found by
    exact EM. Numeric columns that are not Gaussian are transformed to normal scores first (a Gaussian
    copula); imputations and draws are transformed back to the units of the table. Categories enter as
    indicators and are imputed by class probabilities.

    By default, values are assumed to be missing at random (MAR): the probability that a value is missing may
    depend on observed values, but not on missing ones. With a self-masking model (see `missingness`), the
    probability that a number is missing depends on the number itself,

    .. math::
        p(x, m) = \mathcal{N}(x \mid \mu, \Sigma) \prod_{d \in m} \pi_d(x_d)
        \prod_{d \notin m} (1 - \pi_d(x_d))

    where :math:`\pi` is either a bump :math:`K \exp(-q (x - c)^2 / 2)`, for which the conditional
    distributions remain Gaussian, or a probit :math:`\Phi(\lambda x - c)`, for which they are approximated by
    expectation propagation. All parameters are fitted together. Categorical and ordinal columns are still
    assumed to be missing at random.

    Parameters
    ----------
    margins : {"auto", "gaussian"}, default="auto"
        The distribution of each numeric column. With ``"auto"`` it is normal, normal after a logarithm, a
        power or a Yeo-Johnson transformation, or the empirical distribution by normal scores. The one with
        the best likelihood on held-out values is used; if the difference is not clear, the simpler one.
        Counts with few distinct values and ordered levels are modelled by thresholds, and frequent single
        values, such as zero, have their own probability. With ``"gaussian"`` every column is normal. Self-
        masking models always use ``"gaussian"``, because the shape of the margins identifies them.
    missingness : {"mar", "self-masking-probit", "self-masking-gaussian"}, default="mar"
        The assumed mechanism: missing at random; a probability that rises or falls with the value, as when
        large incomes are not reported; or a probability that is largest around some value of the column. The
        last two are fitted to at most a million values, from rows chosen at random.
    ridge : float or "auto", default="auto"
        Regularisation: the number of pseudo-rows of uncorrelated data that are added to the table. ``"auto"``
        chooses it by held-out likelihood if there are few rows for the number of features. From 150 features
        on, ``"auto"`` may also choose a covariance of low rank plus a diagonal.
    n_posterior_draws : int, default=0
        The number of parameter vectors drawn from their posterior distribution in `fit`. Set this to at least
        the `n_draws` passed to `sample` for proper multiple imputation: draws and intervals then include the
        uncertainty of the parameters. With 0 they are conditional on the fitted parameters. Available for
        ``missingness="mar"`` only.
    max_iter : int, default=200
        Maximum number of EM iterations.
    tol : float, default=2e-5
        EM stops when an iteration increases the log-likelihood per row and feature by less than this.
    callback : callable, optional
        Called with a progress record after each EM iteration.

    Attributes
    ----------
    model_ : TabularGaussian
        The fitted model. ``model_.gaussian`` has the mean and covariance of the standardised features, and a
        ``mask`` for self-masking models.
    objective_ : list of float
        The penalised log-likelihood per row after each EM iteration; it never decreases.
    n_iter_ : int
        The number of EM iterations.
    ridge_ : float
        The ridge that was used.
    trace_ : Trace
        With `n_posterior_draws`, means and standard deviations at every step of the data augmentation; see
        `plot_trace`.

    Notes
    -----
    The mechanism cannot be identified from the table without assumptions, because the values that would
    contradict a model are missing. A self-masking model is identified only by its assumed *shape*: a skewed
    column looks like a Gaussian column whose large values are missing. Fit both models and compare their
    imputations. If they differ, the difference depends on the assumption of a Gaussian distribution. Columns
    with fewer than ten missing or fewer than ten observed values are assumed to be missing at random.

    For a self-masking model, `score_samples` returns the joint log density of the observed values *and* the
    mask, which is not comparable with the score of a model that assumes MAR.

    References
    ----------
    Dempster, Laird & Rubin (1977); Schafer (1997), Analysis of Incomplete Multivariate Data. Le Morvan et al.
    (2020), NeuMiss networks, for the self-masking Gaussian; Minka (2001), for expectation propagation.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 2.1], [2.0, 3.9], [3.0, 6.2], [4.0, 7.8], [5.0, np.nan]])
    >>> GaussianImputer(ridge=0.01).fit_transform(X)[-1].round(1)
    array([5. , 9.8])

    If large values are missing, a self-masking model imputes larger values; the true mean of the second
    column is 5:

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

    margins: str = "auto"
    missingness: str = Missingness.MAR.value
    ridge: float | str = "auto"
    n_posterior_draws: int = 0
    max_iter: int = 200
    tol: float = 2e-5
    callback: Callable[[EMProgress], None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        is_mar = self.missingness == Missingness.MAR
        return replace(
            super().capabilities, limits=self.margins == "auto" and is_mar, models_missingness=not is_mar
        )

    @property
    def _width(self) -> int:
        return super()._width * (1 if self.missingness == Missingness.MAR else SELF_MASKED_COPIES)

    def _refit(self, table: Any, passes: Passes) -> bool:
        """Fits mean and covariance to all rows of a table in files, if they follow from moments."""
        is_plain = type(self) is GaussianImputer and not self.n_posterior_draws
        is_joint = isinstance(self.model_, TabularGaussian) and isinstance(self.model_.gaussian, Gaussian)
        if not (is_plain and is_joint and self.missingness == Missingness.MAR):
            return False
        fitted = refit_gaussian(self, table, passes)
        if not fitted:
            warn_user(
                f"GaussianImputer is fitted to some of the {table.n_rows:,} rows, because the table has too "
                "many patterns of missing values for a fit to all rows."
            )
        return fitted

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
            features, batch = fit_features(self._modelled, codes)
        else:
            features, batch = FeatureMap.fit_encoded(self._modelled, codes, all_indicators=False)
        settings = em_settings(batch, self.ridge, self.max_iter, self.tol, generator)
        joint = self._fit_joint(batch, features, settings, generator)
        self.n_iter_ = len(self.objective_)
        self.ridge_ = settings.ridge
        if not isinstance(joint, Gaussian):
            return TabularGaussian(self._modelled, features, joint)
        drawn = [
            redraw_margins(features, self._modelled, codes, generator) for _ in range(self.n_posterior_draws)
        ]
        steps: list[Gaussian] = []
        posterior: list[Gaussian] = []
        if drawn:
            encoded = (one.encode(codes) for one in drawn)
            posterior = sample_posterior(encoded, joint, ridge=self.ridge_, generator=generator, steps=steps)
        self.__dict__.pop("trace_", None)  # an earlier fit may have set it
        if steps:
            modelled = self._modelled
            names = [modelled[c].name for c in features.numeric]
            self.trace_ = Trace.of_steps(names, steps)
        models = (
            TabularGaussian(self._modelled, one, with_room_for_noise(draw, one))
            for one, draw in zip(drawn, posterior, strict=True)
        )
        return TabularGaussian(self._modelled, features, with_room_for_noise(joint, features), tuple(models))

    def _fit_joint(
        self, batch: Incomplete, features: FeatureMap, settings: EMSettings, generator: torch.Generator
    ) -> Gaussian | SelfMaskedGaussian:
        """Returns the joint distribution of the features, and keeps the objective of its fit."""
        tell = None if self.callback is None else self._tell
        if self.missingness == Missingness.MAR:
            plain = fit_gaussian(batch, settings, generator=generator, callback=tell)
            self.objective_ = list(plain.objective)
            return plain.gaussian
        masked = fit_masked_gaussian(
            batch, self.missingness, _may_hide(features), settings, generator=generator, callback=tell
        )
        self.objective_ = list(masked.objective)
        return masked.model

    def _pooling_reservations(self, n_draws: int) -> list[str]:
        found = []
        if self.n_posterior_draws == 0:
            found += super()._pooling_reservations(n_draws)
        elif self.n_posterior_draws < n_draws:
            found.append(
                f"{n_draws} draws share {self.n_posterior_draws} draws of the parameters; fit with "
                f"n_posterior_draws={n_draws} or use halfseen.multiple_imputation."
            )
        if self.model_ is not None and self.n_iter_ >= self.max_iter:
            found.append(f"EM did not converge within max_iter={self.max_iter} iterations; raise max_iter.")
        return found

    def _tell(self, iteration: int, objective: float) -> None:
        assert self.callback is not None
        self.callback(EMProgress(iteration + 1, self.max_iter, objective))

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularGaussian:
        return TabularGaussian.from_state(self._modelled, state)

    def _state(self) -> dict[str, Tensor]:
        if not hasattr(self, "trace_"):
            return super()._state()
        trace = {name: torch.from_numpy(getattr(self.trace_, name)) for name in ("mean", "std")}
        return super()._state() | {f"trace.{name}": values for name, values in trace.items()}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        if self.model_ is not None and "trace.mean" in state:
            modelled = self._modelled
            names = tuple(modelled[c].name for c in self.model_.features.numeric)
            self.trace_ = Trace(names, state["trace.mean"].numpy(), state["trace.std"].numpy())


def _may_hide(features: FeatureMap) -> Tensor:
    """Returns (D): the features that are numbers, neither ordered levels nor indicators."""
    numbers = [c not in features.ordinal for c in features.numeric]
    return torch.tensor(numbers + [False] * (features.n_features - len(numbers)))


@documented_by({"random_state": ("int, numpy generator or None", "Seeds draws.")}, IMPUTER_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class MeanImputer(BaseImputer):
    """Imputation by the mean, or the most frequent level, of each column.

    Use it as a baseline. Columns are modelled as independent and numbers as Gaussian, so draws come from the
    distribution of each column, and intervals are as wide as this distribution. Values are assumed to be
    missing completely at random (MCAR).

    Examples
    --------
    >>> import numpy as np
    >>> MeanImputer().fit_transform(np.array([[1.5], [2.5], [np.nan]])).ravel()
    array([1.5, 2.5, 2. ])
    """

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(super().capabilities, relates_near_copies=False)

    def _fit_model(self, codes: Incomplete) -> TabularGaussian:
        features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        ones = torch.ones(features.n_features, dtype=torch.float64)
        independent = LowRankGaussian(torch.zeros_like(ones), ones.new_empty(len(ones), 0), ones)
        return TabularGaussian(self._modelled, features, independent)

    def _refit(self, table: Any, passes: Passes) -> bool:
        """Fits means, standard deviations and shares of levels to all rows of a table in files."""
        if self.model_ is None:
            return False
        refit_means(self, table, passes)
        return True

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularGaussian:
        return TabularGaussian.from_state(self._modelled, state)


# ------------------------------------------------------------------------------- all rows of a table in files


def refit_gaussian(imputer: GaussianImputer, table: Any, passes: Passes) -> bool:
    """Fits the mean and the covariance of a fitted imputer to all rows of a table, by moments of patterns.

    Parameters
    ----------
    imputer : GaussianImputer
        The imputer, fitted to some rows; its margins and its ridge are kept.
    table : Scan
        The table.
    passes : Passes
        What goes over its rows.

    Returns
    -------
    bool
        False, and nothing is changed, if there are too many patterns of missing values.
    """
    features = imputer.model_.features
    job = _PatternJob(EncodedRows.of(imputer, table, features))
    try:
        moments = add_in_tree(passes(moments_of_run, job, job.rows.runs), job.add)
    except ManyPatternsError:
        return False
    if moments is None or not job.are_few(moments):
        return False
    settings = EMSettings(imputer.max_iter, imputer.tol, imputer.ridge_)
    tell = None if imputer.callback is None else imputer._tell
    result = fit_from_moments(moments, settings, callback=tell)
    imputer.objective_ = list(result.objective)
    imputer.n_iter_ = len(imputer.objective_)
    joint = with_room_for_noise(result.gaussian, features)
    imputer.model_ = TabularGaussian(imputer.model_.columns, features, joint)
    return True


class ManyPatternsError(Exception):
    """Ends a pass over a table."""


@dataclass(frozen=True)
class _PatternJob:
    """The moments of patterns of a table."""

    rows: EncodedRows

    def add(self, one: PatternMoments, other: PatternMoments) -> PatternMoments:
        """Returns the sum; raises an error if it has too many patterns, as the whole can only have more."""
        both = one.add(other)
        if not self.are_few(both):
            raise ManyPatternsError
        return both

    def of(self, block: Incomplete) -> PatternMoments:
        """Returns the moments of a block; raises an error before they are computed if they are too many."""
        if len(block) * block.n_features**2 > MOST_MOMENTS:  # if each row has a pattern of its own
            patterns, _, _ = group_by_pattern(block.observed)
            if not self._are_few(*patterns.shape):
                raise ManyPatternsError
        return PatternMoments.of(block)

    def are_few(self, moments: PatternMoments) -> bool:
        """Returns whether there are so few patterns that their moments are kept."""
        return self._are_few(*moments.patterns.shape)

    def _are_few(self, n_patterns: int, n_features: int) -> bool:
        few = moments_suffice(self.rows.table.n_rows, n_patterns, n_features)
        return few and n_patterns * n_features**2 <= MOST_MOMENTS


def moments_of_run(job: _PatternJob, start: int, stop: int) -> PatternMoments | None:
    """Returns the moments of a run of rows."""
    return add_in_tree(map(job.of, job.rows.blocks(start, stop)), job.add)


def refit_means(imputer: MeanImputer, table: Any, passes: Passes) -> None:
    """Fits the means and standard deviations of a fitted imputer to all rows of a table.

    Parameters
    ----------
    imputer : MeanImputer
        The imputer, fitted to some rows; its groups of levels are kept.
    table, passes : object
        As of `refit_gaussian`.
    """
    model = imputer.model_
    rows = EncodedRows.of(imputer, table, model.features)
    found = add_in_tree(passes(sums_of_run, rows, rows.runs), torch.add)
    if found is None:
        return
    counts, sums, squares = found
    old = model.features.scaler
    mean = sums / counts.clamp(min=1)
    spread = (squares / counts.clamp(min=1) - mean.square()).clamp(min=0.0).sqrt()
    scale = torch.where(spread > 0, old.scale * spread, old.scale)
    features = replace(model.features, scaler=Standardizer(old.loc + old.scale * mean, scale))
    imputer.model_ = TabularGaussian(model.columns, features, model.gaussian)


def sums_of_run(rows: EncodedRows, start: int, stop: int) -> Tensor | None:
    """Returns the numbers, sums and sums of squares (3, D) of the observed features of a run of rows.

    Features are standardised by the rows to which the estimator was fitted, so squares lose little.
    """

    def sums_of(batch: Incomplete) -> Tensor:
        x = batch.filled()
        return torch.stack([batch.observed.to(x.dtype).sum(dim=0), x.sum(dim=0), x.square().sum(dim=0)])

    return add_in_tree(map(sums_of, rows.blocks(start, stop)), torch.add)
