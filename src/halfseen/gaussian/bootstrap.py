"""Proper multiple imputation with any imputer, by fits to resampled rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import Keys, keys_of_draw
from halfseen.base.capabilities import Capabilities
from halfseen.base.completion import LevelProbabilities, TabularCompletion, TabularModel, central
from halfseen.base.imputer import BaseImputer
from halfseen.base.members import check_imputers, make_member
from halfseen.base.parameters import IMPUTER_ATTRIBUTES, check_whole, documented_by
from halfseen.base.table import rows_at_once
from halfseen.data.incomplete import Incomplete
from halfseen.errors import TrainingError
from halfseen.gaussian.imputer import GaussianImputer

RESAMPLINGS = ("auto", "bootstrap", "half-sample")
N_TRIES = 100
LEVELS = tuple((k + 0.5) / 40 for k in range(40))  # of the quantiles that stand for a distribution


@documented_by(
    {
        "schema": ("dict", "As in `GaussianImputer`; by default that of the imputer."),
        "random_state": ("int, numpy generator or None", "Seeds resamples, fits and draws."),
    },
    IMPUTER_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class BootstrapImputer(BaseImputer):
    r"""Proper multiple imputation with any imputer, by fitting it to resampled rows as well.

    Draw s comes from the model that was fitted to resample s, so draws reflect the uncertainty of the
    parameters. So do intervals, which are those of the mixture of the models of all resamples. `transform`,
    `class_probabilities` and `score_samples` are those of the imputer fitted to all rows. Values may be
    missing at random or not, as the imputer assumes.

    Parameters
    ----------
    imputer : imputer, optional
        The imputer; by default ``GaussianImputer()``.
    n_resamples : int, default=20
        The number of resamples. Set this to at least the `n_draws` passed to `sample`.
    resampling : {"auto", "bootstrap", "half-sample"}, default="auto"
        How rows are resampled: with replacement, or a random half of them without. With both, the parameters
        vary with the right variance, :math:`\sigma^2 / N`. Imputers that hold out rows for early stopping
        need half-samples, so that no row is both trained on and held out; ``"auto"`` chooses accordingly.

    Attributes
    ----------
    fitted_ : imputer
        Fitted to all rows.
    resamples_ : list of imputers
        Fitted to the resamples.

    References
    ----------
    Efron (1994), Missing data, imputation, and the bootstrap, JASA 89; Praestgaard & Wellner (1993),
    Exchangeably weighted bootstraps of the general empirical process, for half-samples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> X[:15, 1] = np.nan
    >>> masked = GaussianImputer(missingness="self-masking-probit")
    >>> imputer = BootstrapImputer(masked, n_resamples=3, random_state=0).fit(X)
    >>> imputer.sample(X, n_draws=3).shape
    (3, 60, 2)
    """

    _saved: ClassVar[tuple[str, ...]] = ()

    imputer: BaseImputer | None = None
    n_resamples: int = 20
    _: KW_ONLY
    resampling: str = "auto"

    @property
    def _template(self) -> BaseImputer:
        return GaussianImputer() if self.imputer is None else self.imputer

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        own = self._template.capabilities
        return replace(
            super().capabilities,
            density=own.density,
            limits=own.limits,
            models_missingness=own.models_missingness,
            relates_near_copies=own.relates_near_copies,
        )

    @property
    def _width(self) -> int:
        return self.fitted_._width

    @property
    def _overrides(self) -> Any:
        return self._template._overrides if self.schema is None else self.schema

    def _fit_codes(self, codes: Incomplete) -> None:
        check_whole("n_resamples", self.n_resamples, 1)
        if self.resampling not in RESAMPLINGS:
            raise ValueError(f"resampling must be one of {', '.join(RESAMPLINGS)}, got {self.resampling!r}.")
        if not isinstance(self._template, BaseImputer) or isinstance(self._template, BootstrapImputer):
            raise ValueError(f"imputer must be an imputer of tables, got {self._template!r}.")
        if self._template.capabilities.images:
            raise ValueError("Images cannot be resampled: use an imputer without image_shape.")
        rng = np.random.default_rng(self.seed_)
        seeds = rng.integers(2**62, size=self.n_resamples + 1).tolist()
        self.fitted_ = self._fit_member(codes, seeds[0])
        self.resamples_ = [
            self._fit_member(codes[torch.from_numpy(self._resample(codes, rng))], seed) for seed in seeds[1:]
        ]

    def _fit_member(self, codes: Incomplete, seed: int) -> BaseImputer:
        member: BaseImputer = make_member(self, self._template, seed)
        member._fit_codes(codes)
        return member

    def _resample(self, codes: Incomplete, rng: np.random.Generator) -> np.ndarray:
        """Returns positions of rows in which each column varies if it does in the table."""
        n_rows, varies = len(codes), _varies(codes)
        # A repeated row could be on both sides of a split into training and held-out rows.
        would_repeat = self._template.capabilities.holds_out_rows
        halves = self.resampling == "half-sample" or (self.resampling == "auto" and would_repeat)
        for _ in range(N_TRIES):
            if halves and n_rows >= 4:
                rows = np.sort(rng.permutation(n_rows)[: (n_rows + 1) // 2])
            else:
                rows = np.sort(rng.integers(n_rows, size=n_rows))
            if bool((_varies(codes[torch.from_numpy(rows)]) | ~varies).all()):
                return rows
        raise TrainingError(
            f"{N_TRIES} resamples of {n_rows} rows all had a column without two different values; columns "
            "with so few observed values cannot be imputed properly."
        )

    @property
    def _fitted_model(self) -> TabularCompletion | None:
        fitted = self.fitted_._fitted_model
        if fitted is None:
            return None
        return ResampledModel(fitted, [member._fitted_model for member in self.resamples_])  # type: ignore[misc]

    def _pooling_reservations(self, n_draws: int) -> list[str]:
        found = [s for s in self.fitted_._pooling_reservations(n_draws) if "did not converge" in s]
        if n_draws > len(self.resamples_):
            found.append(_too_few("n_resamples", len(self.resamples_), n_draws))
        return found

    def save(self, path: Any) -> None:
        """Writes the fitted imputer to one file."""
        check_is_fitted(self)
        self.fitted_._check_saveable()
        super().save(path)

    def _members(self) -> Sequence[BaseImputer]:
        return (self.fitted_, *self.resamples_)

    def _state(self) -> dict[str, Tensor]:
        return {}  # all tensors are those of the members

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        """Does nothing."""

    def _entries(self) -> dict[str, Any]:
        return super()._entries() | {"default": self.imputer is None}

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        check_imputers(self, members)
        if len(members) < 2:
            raise ValueError("there is no resample")
        self.fitted_, *self.resamples_ = members
        if not description["default"]:
            self.imputer = clone(self.fitted_)


@dataclass(frozen=True)
class ResampledModel:
    """Predictions of a model fitted to all rows, with draws and intervals from models of resampled rows."""

    fitted: TabularCompletion  # fitted to all rows
    resamples: Sequence[TabularCompletion]  # fitted to resamples

    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, C) completed by conditional means and most probable levels."""
        return self.fitted.point(codes)

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, C); draw s comes from the s-th resample."""
        if n_draws == 0:
            return codes.x.new_empty(0, *codes.x.shape)
        return torch.cat(
            [
                self.resamples[s % len(self.resamples)].draws(codes, keys_of_draw(keys, s), 1)
                for s in range(n_draws)
            ]
        )

    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, C) of the mixture of all resamples; most probable levels otherwise."""
        return self._mixed(codes, probabilities, lambda part: self.fitted.quantiles(part, probabilities))

    def interval(self, codes: Incomplete, level: float) -> Tensor:
        """Returns the ends (2, N, C) of central intervals of numbers; for levels, of the fitted model."""
        return self._mixed(codes, central(level), lambda part: self.fitted.interval(part, level))

    def _mixed(
        self, codes: Incomplete, probabilities: Sequence[float], of_levels: Callable[[Incomplete], Tensor]
    ) -> Tensor:
        """Returns quantiles (Q, N, C) of mixtures, with levels by `of_levels`, in parts of rows."""
        size = rows_at_once(codes.n_features, codes.n_features, 2 * len(LEVELS) * len(self.resamples))
        parts = [self._mixed_part(part, probabilities, of_levels(part)) for part in codes.chunks(size)]
        return torch.cat(parts, dim=1) if parts else codes.x.new_empty(len(probabilities), *codes.x.shape)

    def _mixed_part(self, codes: Incomplete, probabilities: Sequence[float], of_levels: Tensor) -> Tensor:
        of_each = torch.cat([member.quantiles(codes, LEVELS) for member in self.resamples])
        found = torch.quantile(
            of_each, torch.tensor(probabilities, dtype=of_each.dtype), dim=0, interpolation="linear"
        )
        with_levels = list(self.fitted.level_probabilities(codes))
        found[..., with_levels] = of_levels[..., with_levels]
        return torch.where(codes.observed, codes.x, found)

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of each level, by column with levels."""
        return self.fitted.level_probabilities(codes)

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells."""
        return cast("TabularModel", self.fitted).log_prob(codes)

    def state(self) -> dict[str, Tensor]:
        """Returns an empty dict: the tensors are stored by the estimators."""
        return {}


def _varies(codes: Incomplete) -> Tensor:
    """Returns which columns (C) have two different observed values."""
    low = torch.where(codes.observed, codes.x, torch.inf).amin(dim=0)
    high = torch.where(codes.observed, codes.x, -torch.inf).amax(dim=0)
    return high > low


def _too_few(parameter: str, number: int, n_draws: int) -> str:
    return (
        f"{n_draws} draws share {number} draws of the parameters; fit with {parameter}={n_draws} or use "
        "halfseen.multiple_imputation."
    )
