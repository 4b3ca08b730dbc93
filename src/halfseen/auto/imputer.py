"""The imputer that chooses among the others, on the user's own table."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from halfseen import config
from halfseen._machine import give_back_memory
from halfseen.auto import hiding as hiding
from halfseen.auto import scoring as scoring
from halfseen.auto.plan import WorkPlan
from halfseen.auto.reason import LIMIT_MET, ChoiceFacts, explain, mean_weights, why_not_normal
from halfseen.auto.scoring import COMBINATION, ChosenWeights, HiddenCells, compare_hidden, too_costly
from halfseen.auto.stacking import find_sharpness
from halfseen.auto.tabular import GRID, TabularStack
from halfseen.base.capabilities import Capabilities
from halfseen.base.catalogue import Family, find_method
from halfseen.base.completion import TabularCompletion
from halfseen.base.imputer import BaseImputer
from halfseen.base.members import check_imputers, make_member
from halfseen.base.parameters import IMPUTER_ATTRIBUTES, check_number, check_whole, documented_by
from halfseen.base.table import COPIES
from halfseen.chained.imputer import ChainedImputer
from halfseen.circuits import fitting as _circuit_fit
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Schema
from halfseen.errors import warn_user
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.training.progress import TimeBudget, decide_by_clock, seconds_left, time_limit
from halfseen.trees.imputer import TreeImputer

LOGGER = logging.getLogger(__name__)

CANDIDATES = {"mean": 0, "gaussian": 0, "trees": 150, "circuit": 150, "mixture": 150, "miwae": 150}
"""The default candidates, in the order in which they are planned and tried, and the rows from which each
takes part."""

MIN_ROWS = 50  # with fewer rows methods are not compared
SAFETY = 0.9  # of a time limit is planned with, because iterations, columns and epochs come to their end
COMPARISON_SHARE = 0.4  # of a time limit
START_SHARE = 0.2  # of the time to compare, for completing rows to which a learned mechanism is applied
SMALLEST_SHARE = 0.1  # a candidate whose weights are lower in every column is not used; a guess


@dataclass(frozen=True)
class _Choice:
    """What was chosen: the comparison, the weights, and the number of hidden cells that they rest on."""

    compared: scoring.CandidateResults
    weights: ChosenWeights
    n_cells: int


@documented_by(
    {
        "random_state": (
            "int, numpy generator or None",
            "Seeds the choice of hidden values, fits and draws. Pass an integer for reproducible results.",
        )
    },
    IMPUTER_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class AutoImputer(BaseImputer):
    """Imputation by the methods that impute the user's own table best.

    Known values are hidden, half of them completely at random and half by a mechanism that is learned from
    the missing values of the table. Candidates are fitted without the hidden values, simplest first, and
    scored by their predictions of these values: by single values and by distributions. Each column is then
    imputed by a mixture of the candidates, with the weights that are best on the hidden values (stacking).
    Single values and distributions of numbers have their own weights, the former by the squared error, the
    latter by the CRPS; those of levels are found by the Brier score. Weights of single values and of levels
    are shrunk towards equal weights of the candidates that are not clearly behind, those of distributions
    towards the single best candidate, the more the less certain it is that mixtures are better on rows that
    were not used for the weights. In distributions, large and small numbers count more than others, because
    missing values may be larger or smaller than known ones. In small tables this is repeated with up to three
    sets of hidden values. Values are assumed to be missing at random (MAR).

    The work is planned from the size of the table and the number of its missing cells, never by the clock:
    the result depends on the data, the seed and the version of the library.

    Parameters
    ----------
    max_seconds : float, optional
        A limit to the time for `fit` and for imputing the table once, approximately. If it is met,
        candidates are left out or not trained to their end, results depend on the speed of the computer, and
        a warning and ``reason_`` say so. By default there is no limit to tables of less than five million
        cells, and one of half an hour to larger ones.
    candidates : {"auto"} or list of str, default="auto"
        The names of the candidates on the command line, simplest first. ``"auto"`` is mean and Gaussian and,
        from 150 rows on, trees, circuit (up to 5,000 columns), mixture and MIWAE, of which those take part
        whose planned work the table is worth; a mixture only in place of a circuit. MIWAE takes minutes and
        is worth it to no table so far: name it to have it compared. Candidates that are named all take part.
    min_skill : float, optional
        Columns whose hidden values were predicted with a skill below this, or with one that may be zero, are
        left empty. The skill is the relative reduction of the squared error of the mean, or of the number of
        wrong levels of the most frequent level; 0.1 is what ``halfseen impute --leave-unreliable`` uses. By
        default all columns are filled, and so are columns with fewer than 20 hidden values or without a
        comparison.
    n_posterior_draws : int, default=0
        If positive, draws are meant for pooling and must include the uncertainty of the parameters. No
        comparison takes place: a `GaussianImputer` with this parameter is used if all columns are nearly
        normal and rows are not few, otherwise a `ChainedImputer` with as many chains, because a joint
        Gaussian would bias analyses with levels or skewed columns. For draws by another method, pass its
        imputer to `multiple_imputation`.

    Attributes
    ----------
    reason_ : str
        What was chosen and why, in sentences.
    chosen_ : dict of str to dict
        For each modelled column, the weights of the methods in its distributions, by name. A column for
        which no tree could be grown counts as Gaussian.
    point_weights_, weights_ : list of lists of float
        The weights of the members for each modelled column, in single values and in distributions.
    fitted_to_ : dict of str to dict
        By method that is used: the number of rows to which it was fitted, and the number of known cells of
        these rows that were hidden from it.
    scores_ : list of dict
        One row per candidate, and a last one of their combination: RMSE and CRPS of hidden numbers, in
        standard deviations, and accuracy and log-loss of hidden levels. The weights of the combination were
        chosen on the same cells. Empty if no comparison took place.
    hidden_cells_ : HiddenCells
        How well the hidden values of each column were predicted by the chosen candidates, for reports. The
        choice was made on the same values. They are not saved: a loaded imputer has none.
    sharpness_ : float
        How much narrower the distributions of numbers are than mixtures of the candidates, whose differences
        make them too wide: the parameter of a beta distribution, which is 1 for mixtures as they are, and
        below 1 if these are too narrow.
    time_limit_met_ : bool
        Whether the time limit ended a fit or decided what was tried, so that results depend on the speed of
        the computer.
    members_ : list of imputers
        The chosen candidates, in the order of ``fitted_to_``.

    Notes
    -----
    With fewer than 50 rows, with one modelled column, or with detection limits, a `GaussianImputer` is used
    without a comparison. The comparison uses at most 3,000 rows. Mean, Gaussian and circuit are fitted to all
    rows, other methods to at most 100,000. Deep latent-variable models are not fitted again if all rows
    took part in the comparison: they have seen all cells but the hidden ones. Neither is that of trees
    and circuit that has less weight, if the planned work does not permit it. Conditional distributions
    of a mixture by column are not those of one joint density, so there is no `score_samples`.

    References
    ----------
    Yao, Vehtari, Simpson & Gelman (2018), Using stacking to average Bayesian predictive distributions;
    Gneiting & Ranjan (2013), Combining predictive distributions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=90)
    >>> X[:20, 1] = np.nan
    >>> imputer = AutoImputer(random_state=0).fit(X)
    >>> [row["candidate"] for row in imputer.scores_]
    ['mean', 'gaussian', 'combination']
    >>> weights = imputer.chosen_["x1"]
    >>> max(weights, key=weights.get)
    'gaussian'
    """

    _saved: ClassVar[tuple[str, ...]] = (
        "reason_", "chosen_", "scores_", "weights_", "point_weights_", "sharpness_", "fitted_to_",
        "time_limit_met_",
    )  # fmt: skip

    max_seconds: float | None = None
    _: KW_ONLY
    candidates: str | Sequence[str] = "auto"
    min_skill: float | None = None
    n_posterior_draws: int = 0

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(
            super().capabilities,
            density=False,
            limits=True,  # columns with limits are left to GaussianImputer, which uses them
            holds_out_rows=True,
            compares_methods=True,
            reports_rows=True,
        )

    @property
    def _width(self) -> int:
        if len(self.members_) < 2:
            return self.members_[0]._width if self.members_ else super()._width
        grids = len(GRID) * len(self.members_) * len(self._modelled) // COPIES
        return grids + sum(member._width for member in self.members_)

    def _numbers_per_row(self, n_draws: int) -> int:
        if len(self.members_) < 2:
            return self.members_[0]._numbers_per_row(n_draws) if self.members_ else 1
        grids = len(GRID) * len(self.members_) * len(self._modelled)
        own = grids + COPIES * n_draws * len(self._modelled)
        return own + sum(member._numbers_per_row(n_draws) for member in self.members_)

    def _fit_codes(self, codes: Incomplete) -> None:
        n_rows, n_columns = codes.x.shape
        plan = WorkPlan(n_rows, n_columns, int((~codes.observed).sum()), hiding.compared_rows(codes))
        budget = TimeBudget(SAFETY * min(self._checked_seconds(plan), seconds_left()))
        self._gaussians: list[tuple[Incomplete, GaussianImputer]] = []
        with time_limit(math.inf) as limit:  # which learns whether one of those within it was met
            self._fit_within(plan, budget, codes)
        del self._gaussians
        self.time_limit_met_ = limit.met
        if self.min_skill is not None:
            checks = {name: losses.check(name) for name, losses in self.hidden_cells_.columns.items()}
            self._leave_unreliable({k: one for k, one in checks.items() if one is not None}, self.min_skill)
        LOGGER.info("AutoImputer: %s", self.reason_)
        if limit.met:
            self.reason_ += f" {LIMIT_MET}"
            warn_user(LIMIT_MET)

    def _fit_within(self, plan: WorkPlan, budget: TimeBudget, codes: Incomplete) -> None:
        """Chooses among the candidates and fits the chosen ones; sets what is known after `fit`."""
        self.hidden_cells_ = HiddenCells({}, 0)
        self.scores_: list[dict[str, Any]] = []
        self.members_: list[BaseImputer] = []
        candidates = self._named(plan)
        without = self._why_no_comparison(codes)
        self.chosen_: dict[str, dict[str, float]] = {}
        self.fitted_to_: dict[str, dict[str, int]] = {}
        self.weights_: list[list[float]] = []
        self.point_weights_: list[list[float]] = []
        self.sharpness_ = 1.0
        if not self._modelled:
            self.reason_ = "There is no column to model."
            return
        if without is not None:
            only = self._single(codes)
            with time_limit(budget.left):
                self.members_ = [self._fit_member(only, codes)]
            self.schema_ = self.members_[0].schema_  # ranges of imputed values may be wider
            name = "chained" if isinstance(only, ChainedImputer) else "gaussian"
            self.fitted_to_ = {name: {"rows": len(codes), "hidden_cells": 0}}
            ones = np.ones((1, len(self._modelled)))
            self._keep([name], ChosenWeights(ones, ones, {}))
            self.reason_ = f"{type(only).__name__} was used without a comparison, because {without}."
            return
        chosen = self._choose(candidates, plan, codes, budget)
        self._fit_chosen(candidates, chosen, plan, codes, budget)
        self.reason_ = explain(self._facts(chosen, len(codes)))

    def _choose(
        self,
        candidates: Mapping[str, BaseImputer],
        plan: WorkPlan,
        codes: Incomplete,
        budget: TimeBudget,
    ) -> _Choice:
        """Compares candidates and finds their weights."""
        task, compared = self._compare_candidates(candidates, plan, codes, budget.part(COMPARISON_SHARE))
        n_rows = _count_incomplete(codes)
        while True:
            answers = scoring.collect(task, compared)
            weights = scoring.choose(self._modelled, answers)
            used = weights.largest >= min(SMALLEST_SHARE, weights.largest.max())
            shares = {int(m): float(weights.distribution[m].mean()) for m in np.flatnonzero(used)}
            costly = too_costly(compared.costs, shares, n_rows, budget.left)
            if costly is None:
                break
            compared.leave_out(costly, "to impute all rows would have taken too long")
        weights = weights.without(~used)
        self.sharpness_ = find_sharpness(answers, weights.distribution, self.seed_)
        self.hidden_cells_ = compare_hidden(task, compared, weights, self.sharpness_)
        self.scores_ = scoring.tabulate(compared, answers, weights, self.hidden_cells_.wrong_levels)
        return _Choice(compared, weights, int(task.hidden.sum()))

    def _compare_candidates(
        self,
        candidates: Mapping[str, BaseImputer],
        plan: WorkPlan,
        codes: Incomplete,
        budget: TimeBudget,
    ) -> tuple[hiding.HiddenTask, scoring.CandidateResults]:
        """Returns the hidden cells, of several masks if the table is small, and their predictions."""

        @cache
        def start() -> TabularCompletion:
            with time_limit(START_SHARE * budget.left):
                some = codes[: hiding.compared_rows(codes)]
                found = self._fit_member(GaussianImputer(), some)._fitted_model
            assert found is not None
            return found

        def complete(part: Incomplete) -> Tensor:
            return start().point(part)

        fits = {name: partial(self._fit_member, imputer) for name, imputer in candidates.items()}
        made = hiding.make_tasks(self._modelled, codes, complete, self.seed_)
        tasks = islice(made, plan.n_masks(list(candidates)))
        run = [next(tasks)]
        compared = scoring.run(run[0], fits, budget)
        first = budget.elapsed
        for task in tasks:
            if budget.elapsed + first > budget.seconds:
                decide_by_clock()
                break
            if not compared.join(scoring.run(task, fits, budget)):
                break
            run.append(task)
        compared.n_hidden = int(run[0].hidden.sum())
        return hiding.join_tasks(run), compared

    def _fit_chosen(
        self,
        candidates: Mapping[str, BaseImputer],
        chosen: _Choice,
        plan: WorkPlan,
        codes: Incomplete,
        budget: TimeBudget,
    ) -> None:
        """Fits the chosen candidates as planned, or uses the fits of the comparison.

        If a time limit does not allow to repeat the latter, they are used as well.
        """
        compared, used = chosen.compared, np.flatnonzero(chosen.weights.largest > 0).tolist()
        order = torch.from_numpy(np.random.default_rng(self.seed_).permutation(len(codes)))
        by_weight = sorted(
            used, key=lambda m: -float((chosen.weights.distribution + chosen.weights.point)[m].sum())
        )
        refitted = plan.refitted([compared.names[m] for m in by_weight])
        answering = sum(compared.costs[m].answer * _count_incomplete(codes) for m in used)
        for position, m in enumerate(used):
            name, cost = compared.names[m], compared.costs[m]
            seconds = max(0.0, budget.left - answering) / (len(used) - position)
            hasty = seconds < cost.fit
            if hasty or name not in refitted:
                if hasty and name in refitted:
                    decide_by_clock()
                self.members_.append(compared.fitted[m])
                self.fitted_to_[name] = {"rows": cost.n_fitted, "hidden_cells": compared.n_hidden}
                continue
            planned = plan.fitted_rows(name)
            most = min(planned, cost.rows_within(seconds, len(codes)))
            if most < planned:
                decide_by_clock()
            part = codes[order[:most].sort().values] if most < len(codes) else codes
            imputer = clone(candidates[name]).set_params(**plan.settings(name, most))
            with time_limit(seconds):
                self.members_.append(self._fit_member(imputer, part))
            self.fitted_to_[name] = {"rows": most, "hidden_cells": 0}
        self._keep([compared.names[m] for m in used], chosen.weights.of(used))

    def _keep(self, names: Sequence[str], weights: ChosenWeights) -> None:
        """Keeps the weights of the members, and for each column the methods that impute it."""
        self.weights_ = weights.distribution.tolist()
        self.point_weights_ = weights.point.tolist()
        self.chosen_ = {column.name: {} for column in self._modelled}
        for name, member, row in zip(names, self.members_, weights.distribution, strict=True):
            gaussian = set(member._columns_by_gaussian)
            for column, weight in zip(self._modelled, row.tolist(), strict=True):
                if weight > 0:
                    used, shares = "gaussian" if column.name in gaussian else name, self.chosen_[column.name]
                    shares[used] = shares.get(used, 0.0) + weight
        shares = mean_weights(self.chosen_)
        for scored in self.scores_:
            if scored["candidate"] != COMBINATION:
                scored["weight"] = round(shares.get(scored["candidate"], 0.0), 4)

    def _facts(self, chosen: _Choice, n_rows: int) -> ChoiceFacts:
        """Returns what `reason_` is made of."""
        points: dict[str, dict[str, float]] = {}
        for c, column in enumerate(self._modelled):
            shares = points[column.name] = dict.fromkeys(self.chosen_[column.name], 0.0)
            for name, member, row in zip(self.fitted_to_, self.members_, self.point_weights_, strict=True):
                used = "gaussian" if column.name in member._columns_by_gaussian else name
                if row[c] > 0:
                    shares[used] = shares.get(used, 0.0) + row[c]
        without_trees = [
            column.name
            for member, row in zip(self.members_, self.weights_, strict=True)
            for column, weight in zip(self._modelled, row, strict=True)
            if weight > 0 and column.name in member._columns_by_gaussian
        ]
        compared = chosen.compared
        return ChoiceFacts(
            mean_weights(self.chosen_), mean_weights(points), self.fitted_to_, self.scores_,
            compared.left_out, chosen.weights.mixed, n_rows, chosen.n_cells, without_trees,
        )  # fmt: skip

    def _single(self, codes: Incomplete) -> BaseImputer:
        """Returns the imputer that is used without a comparison."""
        if self.n_posterior_draws and why_not_normal(self._modelled, codes) is not None:
            return ChainedImputer(int(self.n_posterior_draws))
        return GaussianImputer(n_posterior_draws=self.n_posterior_draws)

    def _why_no_comparison(self, codes: Incomplete) -> str | None:
        if self.n_posterior_draws:
            reason = why_not_normal(self._modelled, codes)
            return (
                "draws for pooling need parameters drawn from their posterior distribution, which it offers, "
                + ("and all columns are nearly normal" if reason is None else f"and {reason}")
                + "; to draw by another method, pass its imputer to halfseen.multiple_imputation"
            )
        if len(codes) < MIN_ROWS:
            return f"a table of {len(codes)} rows is too small to compare methods on"
        if len(self._modelled) < 2:
            return "there is only one column to model"
        limits = (c for c in self._modelled if c.censored_below is not None or c.censored_above is not None)
        censored = next(limits, None)
        if censored is not None:
            return f"column {censored.name!r} has detection limits, which only this method uses"
        return None

    def _named(self, plan: WorkPlan) -> dict[str, BaseImputer]:
        """Returns the candidates by name; by default, those that are planned for tables of this size."""
        given = self.candidates
        if isinstance(given, str) and given == "auto":
            given = [name for name, least in CANDIDATES.items() if plan.n_rows >= least]
            if len(self._modelled) > _circuit_fit.MOST_TREE_COLUMNS and "circuit" in given:
                given.remove("circuit")
            given = plan.admitted(given)
        if not isinstance(given, list | tuple) or not given:
            raise ValueError(f"candidates must be 'auto' or a list of names, got {given!r}.")
        methods = [find_method(str(name)) for name in given]
        for method in methods:
            if method.family != Family.TABLE_IMPUTER or method.name in ("auto", "bootstrap"):
                raise ValueError(f"candidates must be imputers of tables, got {method.name!r}.")
        n_rows = plan.n_compared
        return {one.name: one.estimator(**plan.settings(one.name, n_rows)) for one in methods}

    def _checked_seconds(self, plan: WorkPlan) -> float:
        check_whole("n_posterior_draws", self.n_posterior_draws, 0)
        if self.min_skill is not None:
            check_number("min_skill", self.min_skill, lambda v: -np.inf < v <= 1, "at most 1, or None")
        if self.max_seconds is None:
            return plan.default_seconds
        check_number(
            "max_seconds", self.max_seconds, lambda v: 0 < v < np.inf, "positive and finite, or None"
        )
        return float(self.max_seconds)

    def _sized(self, imputer: BaseImputer) -> Any:
        """Returns an imputer that knows the columns, as for reading a table, and is not fitted."""
        return make_member(self, imputer, self.seed_)

    def _fit_member(self, imputer: BaseImputer, codes: Incomplete) -> BaseImputer:
        member: BaseImputer = self._sized(imputer)
        give_back_memory()  # of the member before
        half = max(config.memory_budget() // 2, config.SMALLEST_MEMORY_BUDGET)
        with config.context(memory_budget=half):  # the codes of the rows and other members take the rest
            if isinstance(member, TreeImputer):
                member.model_ = member._fit_from(self._gaussian(codes).model_, codes)
            elif isinstance(member, GaussianImputer) and not member.n_posterior_draws:
                return self._gaussian(codes)
            else:
                member._fit_codes(codes)
        return member

    def _gaussian(self, codes: Incomplete) -> GaussianImputer:
        """Returns a Gaussian fitted to the codes; what completes rows, trees and a candidate share it.

        The strength of its penalty is that of a Gaussian fitted to the same rows with more cells, if there is
        one, because the search for it takes most of the time of a fit. In wide tables a rank, which is not a
        parameter, is found as well.
        """
        template = GaussianImputer()
        for known, fitted in self._gaussians:
            if _contains(known, codes):
                if torch.equal(known.observed, codes.observed):
                    return fitted
                if not isinstance(fitted.model_.gaussian, LowRankGaussian):
                    template = GaussianImputer(ridge=fitted.ridge_)
        found: GaussianImputer = self._sized(template)
        with time_limit(math.inf) as limit:
            found._fit_codes(codes)
        if not limit.met:  # otherwise there may be more time for another fit
            self._gaussians.append((codes, found))
        return found

    @property
    def _fitted_model(self) -> TabularCompletion | None:
        models: Any = [member._fitted_model for member in self.members_]
        if len(models) < 2:
            return models[0] if models else None
        levels = frozenset(c for c, column in enumerate(self._modelled) if column.levels is not None)
        return TabularStack(
            models, np.array(self.weights_), self.sharpness_, np.array(self.point_weights_), levels
        )

    def _set_schema(self, schema: Schema) -> None:
        super()._set_schema(schema)
        for member in self.members_:
            member.schema_ = schema

    def _pooling_reservations(self, n_draws: int) -> list[str]:
        if self.n_posterior_draws and self.members_:
            return self.members_[0]._pooling_reservations(n_draws)
        return super()._pooling_reservations(n_draws)

    def _members(self) -> Sequence[BaseImputer]:
        return self.members_

    def _state(self) -> dict[str, Tensor]:
        return {}  # all tensors are those of the members

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        """Does nothing."""

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        check_imputers(self, members)
        self.members_ = members
        if not hasattr(self, "point_weights_"):  # files of earlier versions have the same weights for both
            self.point_weights_ = self.weights_
        self.hidden_cells_ = HiddenCells({}, 0)
        shape = (len(self.members_), len(self._modelled) if self.members_ else 0)
        for given in (self.weights_, self.point_weights_):
            weights = np.array(given, dtype=np.float64).reshape(len(self.members_), -1)
            if weights.shape != shape or (weights < 0).any() or not np.allclose(weights.sum(axis=0), 1.0):
                raise ValueError("the weights do not fit the members")
        if not isinstance(self.sharpness_, float) or not 0.0 < self.sharpness_ < np.inf:
            raise ValueError(f"the sharpness is {self.sharpness_!r:.60}")


def _contains(known: Incomplete, codes: Incomplete) -> bool:
    """Returns whether rows are the same, and all cells that are observed in the codes are known."""
    if len(known) != len(codes) or bool((codes.observed & ~known.observed).any()):
        return False
    return torch.equal(known.x[codes.observed], codes.x[codes.observed])


def _count_incomplete(codes: Incomplete) -> int:
    """Returns the number of rows with missing cells."""
    return int((~codes.observed).any(dim=1).sum())
