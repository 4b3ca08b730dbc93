"""The imputer that chooses among the others, on the user's own table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from halfseen import config
from halfseen._freed import give_back_memory
from halfseen.auto import hiding as hiding
from halfseen.auto import scoring as scoring
from halfseen.auto.scoring import HiddenCells, compare_hidden, too_costly
from halfseen.auto.stacking import find_sharpness
from halfseen.auto.tabular import GRID, TabularStack
from halfseen.base.catalogue import CATALOGUE, Family, find_method
from halfseen.base.completion import TabularCompletion
from halfseen.base.imputer import BaseImputer
from halfseen.base.members import WithMembers, check_imputers, make_member
from halfseen.base.parameters import check_number, check_whole
from halfseen.base.table import COPIES
from halfseen.circuits import fitting as _circuit_fit
from halfseen.data.incomplete import Incomplete
from halfseen.data.leaving import shortened
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.training.time_limit import TimeBudget, decide_by_clock, seconds_left, time_limit

CANDIDATES = {"mean": 0, "gaussian": 0, "trees": 150, "mixture": 150, "circuit": 150, "miwae": 150}
"""The default candidates, simplest first, and the number of rows from which each takes part."""

MIN_ROWS = 50  # with fewer rows there is no race
SAFETY = 0.9  # of the time is planned with, because iterations, columns and epochs come to their end
RACE_SHARE = 0.4  # of the time
MASKS_SHARE = 0.5  # of the time of the race, after which no further mask is hidden in a part of the rows
START_SHARE = 0.2  # of the time of the race, for completing rows to which a learned mechanism is applied
MAX_TRAINED_ROWS = 100_000  # of models that are trained by gradients
SMALLEST_SHARE = 0.1  # a candidate whose weight is lower in every column is not fitted again


@dataclass(frozen=True)
class _ChosenBy:
    """What the choice rests on: whether numbers and levels are mixed, and the number of hidden cells."""

    mixed: Mapping[str, bool]
    n_cells: int


@dataclass(eq=False, repr=False)
class AutoImputer(WithMembers, BaseImputer):
    """Imputation by the methods that impute the user's own table best.

    Known values are hidden, half of them completely at random and half by a mechanism that is learned from
    the missing values of the table. Candidates are fitted without the hidden values, simplest first, and
    scored by their predictions of these values: by single values and by distributions. Each column is then
    imputed by a mixture of the candidates, with the weights that are best on the hidden values (stacking),
    or by the single best candidate if mixtures are not better on rows that were not used for the weights.
    Large and small numbers count more than others there, because missing values may be larger or smaller
    than known ones. In small tables this is repeated with up to three sets of hidden values, because few
    values are not enough to choose by. The chosen candidates are fitted again, to all rows. Values are
    assumed to be missing at random (MAR).

    Parameters
    ----------
    max_seconds : float, default=120.0
        The time for `fit` and for imputing the table once, approximately. Two fifths are for the choice.
        Candidates for which no time is left are not tried, candidates that would take too long to impute
        all rows are not used, training stops when its time is over, and values are not hidden again if the
        time for the choice would be exceeded (half of it, if only a part of the rows is used for the choice).
        Results depend on the speed of the computer only then.
    candidates : {"auto"} or list of str, default="auto"
        The names of the candidates on the command line, simplest first. ``"auto"`` is mean and Gaussian;
        trees, mixture, circuit (up to 5,000 columns) and MIWAE from 150 rows on.
    min_skill : float, optional
        Columns whose hidden values were predicted with a skill below this, or with one that may be zero, are
        left empty. The skill is the relative reduction of the squared error of the mean, or of the number of
        wrong levels of the most frequent level; 0.1 is what ``halfseen impute --leave-unreliable`` uses. By
        default all columns are filled, and so are columns with fewer than 20 hidden values or without a
        comparison.
    n_posterior_draws : int, default=0
        If positive, draws are meant for pooling and must include the uncertainty of the parameters. No
        comparison takes place, and a `GaussianImputer` with this parameter is used. For draws by another
        method, pass its imputer to `multiple_imputation`.
    add_indicator : bool, default=False
        Whether `transform` appends a column ``missingindicator_<name>`` for each column that has missing
        values in `fit`, which marks where they are.
    schema : dict, optional
        As in `GaussianImputer`.
    random_state : int, numpy generator or None, default=None
        Seeds the choice of hidden values, fits and draws.

    Attributes
    ----------
    schema_ : Schema
        The kind of each column, and the reasons.
    columns_left_ : dict of str to str
        The columns of a data frame whose missing values are left empty, and the reasons.
    reason_ : str
        What was chosen and why, in sentences.
    chosen_ : dict of str to dict
        For each modelled column, the weights of the methods that impute it, by name. A column for which no
        tree could be grown counts as Gaussian.
    scores_ : list of dict
        One row per candidate: RMSE and CRPS of hidden numbers, in standard deviations, and accuracy and
        log-loss of hidden levels. Empty if no comparison took place.
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
        The chosen candidates, fitted to all rows.

    Notes
    -----
    With fewer than 50 rows, with one modelled column, or with detection limits, a `GaussianImputer` is used
    without a comparison. The comparison uses at most 3,000 rows; models that are trained by gradients are
    then fitted to at most 100,000 rows. Conditional distributions of a mixture by column are not those of one
    joint density, so there is no `score_samples`.

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
    ['mean', 'gaussian']
    >>> weights = imputer.chosen_["x1"]
    >>> max(weights, key=weights.get)
    'gaussian'
    """

    _density = False
    _reports_rows = True
    _saved: ClassVar[tuple[str, ...]] = (
        "reason_", "chosen_", "scores_", "weights_", "sharpness_", "time_limit_met_",
    )  # fmt: skip

    max_seconds: float = 120.0
    _: KW_ONLY
    candidates: str | Sequence[str] = "auto"
    min_skill: float | None = None
    n_posterior_draws: int = 0
    add_indicator: bool = False
    schema: Any = None
    random_state: Any = None

    @property
    def _knows_limits(self) -> bool:
        return True  # then a Gaussian is used, which does

    @property
    def _holds_out_rows(self) -> bool:
        return True

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
        budget = TimeBudget(SAFETY * min(self._checked_seconds(), seconds_left()))
        with time_limit(math.inf) as limit:  # which learns whether one of those within it was met
            self._fit_within(budget, codes)
        self.time_limit_met_ = limit.met
        if self.min_skill is not None:
            checks = {name: losses.check(name) for name, losses in self.hidden_cells_.columns.items()}
            self._leave_unreliable({k: one for k, one in checks.items() if one is not None}, self.min_skill)
        if limit.met:
            self.reason_ += (
                " The time limit was reached, so that the speed of the computer decided how much was done: "
                "another run may give other values."
            )

    def _fit_within(self, budget: TimeBudget, codes: Incomplete) -> None:
        """Chooses among the candidates and fits the chosen ones; sets what is known after `fit`."""
        self.hidden_cells_ = HiddenCells({}, 0)
        self.scores_: list[dict[str, Any]] = []
        self.members_: list[BaseImputer] = []
        candidates = self._named(len(codes))
        without = self._why_no_race(codes)
        self.chosen_: dict[str, dict[str, float]] = {}
        self.weights_: list[list[float]] = []
        self.sharpness_ = 1.0
        if not self._modelled:
            self.reason_ = "There is no column to model."
            return
        if without is not None:
            only = GaussianImputer(n_posterior_draws=self.n_posterior_draws)
            with time_limit(budget.left):
                self.members_ = [self._fit_member(only, codes)]
            self._keep(["gaussian"], np.ones((1, len(self._modelled))))
            self.reason_ = f"GaussianImputer was used without a comparison, because {without}."
            return
        race, weights, chosen_by = self._choose(candidates, codes, budget)
        hasty = self._fit_chosen(candidates, race, weights, codes, budget)
        self.reason_ = self._explain(race, chosen_by) + hasty

    def _choose(
        self, candidates: Mapping[str, BaseImputer], codes: Incomplete, budget: TimeBudget
    ) -> tuple[scoring.Race, np.ndarray, _ChosenBy]:
        """Holds the race; returns it, the weights (M, C) of its candidates, and what they were chosen by."""
        task, race = self._hold_race(candidates, codes, budget.part(RACE_SHARE))
        n_rows = _count_incomplete(codes)
        while True:
            answers = scoring.collect(task, race)
            weights, mixed = scoring.choose(self._modelled, answers)
            used = weights.max(axis=1) >= SMALLEST_SHARE
            shares = {int(m): float(weights[m].mean()) for m in np.flatnonzero(used)}
            costly = too_costly(race.costs, shares, n_rows, budget.left)
            if costly is None:
                break
            race.leave_out(costly, "to impute all rows would have taken too long")
        if not used.all():
            weights[~used] = 0.0
            weights /= weights.sum(axis=0)
        self.sharpness_ = find_sharpness(answers, weights, self.seed_)
        self.scores_ = scoring.tabulate(race, answers, weights)
        self.hidden_cells_ = compare_hidden(task, race, weights, self.sharpness_)
        return race, weights, _ChosenBy(mixed, int(task.hidden.sum()))

    def _hold_race(
        self, candidates: Mapping[str, BaseImputer], codes: Incomplete, budget: TimeBudget
    ) -> tuple[hiding.RaceTask, scoring.Race]:
        """Returns the hidden cells, of several masks if the table is small, and their predictions."""
        seconds = budget.left

        @cache
        def start() -> TabularCompletion:
            with time_limit(START_SHARE * budget.left):
                found = self._fit_member(GaussianImputer(), codes[: hiding.race_rows(codes)])._answers
            assert found is not None
            return found

        def complete(part: Incomplete) -> Tensor:
            return start().point(part)

        fits = {name: partial(self._fit_member, imputer) for name, imputer in candidates.items()}
        tasks = hiding.make_tasks(self._modelled, codes, complete, self.seed_)
        run = [next(tasks)]
        race = scoring.run(run[0], fits, budget)
        first = seconds - budget.left
        is_whole = len(run[0].codes) == len(codes)  # then the last fits take no longer than those of a mask
        most = seconds if is_whole else MASKS_SHARE * seconds
        for task in tasks:
            if seconds - budget.left + first > most:
                decide_by_clock()
                break
            if not race.join(scoring.run(task, fits, budget)):
                break
            run.append(task)
        return hiding.join_tasks(run), race

    def _fit_chosen(
        self,
        candidates: Mapping[str, BaseImputer],
        race: scoring.Race,
        weights: np.ndarray,
        codes: Incomplete,
        budget: TimeBudget,
    ) -> str:
        """Fits the chosen candidates to all rows, or to as many as the time that is left allows.

        Where it does not allow to repeat the fit of the race, that one is used. Returns sentences about what
        was done in haste.
        """
        hasty = ""
        used = np.flatnonzero(weights.max(axis=1) > 0).tolist()
        order = torch.from_numpy(np.random.default_rng(self.seed_).permutation(len(codes)))
        answering = sum(race.costs[m].answer * _count_incomplete(codes) for m in used)
        for position, m in enumerate(used):
            imputer, name = candidates[race.names[m]], race.names[m]
            seconds = max(0.0, budget.left - answering) / (len(used) - position)
            if seconds < race.costs[m].fit:
                n_fitted = f"{race.costs[m].n_fitted:,} rows"
                hasty += f" {_label(name)} was fitted to {n_fitted} without the hidden cells only."
                decide_by_clock()
                self.members_.append(race.fitted[m])
                continue
            trained = hasattr(imputer, "max_epochs")  # until the time is over, however many rows there are
            most = MAX_TRAINED_ROWS if trained else race.costs[m].rows_within(seconds, len(codes))
            part = codes[order[:most].sort().values] if most < len(codes) else codes
            if most < len(codes) and not trained:
                hasty += f" {_label(name)} was fitted to {most:,} rows, for which there was time."
                decide_by_clock()
            with time_limit(seconds):
                self.members_.append(self._fit_member(imputer, part))
        self._keep([race.names[m] for m in used], weights[used])
        return hasty

    def _keep(self, names: Sequence[str], weights: np.ndarray) -> None:
        """Keeps the weights (M, C) of the members, and for each column the methods that impute it."""
        self.weights_ = weights.tolist()
        self.chosen_ = {column.name: {} for column in self._modelled}
        for name, member, row in zip(names, self.members_, weights, strict=True):
            gaussian = set(getattr(member, "gaussian_columns_", ()))  # for which no tree was grown
            for column, weight in zip(self._modelled, row.tolist(), strict=True):
                if weight > 0:
                    used, shares = "gaussian" if column.name in gaussian else name, self.chosen_[column.name]
                    shares[used] = shares.get(used, 0.0) + weight
        for scored in self.scores_:
            scored["weight"] = round(self._shares().get(scored["candidate"], 0.0), 4)

    def _shares(self) -> dict[str, float]:
        """Returns the mean weights of methods over the columns, the largest first."""
        total: dict[str, float] = {}
        for shares in self.chosen_.values():
            for name, weight in shares.items():
                total[name] = total.get(name, 0.0) + weight / len(self.chosen_)
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def _why_no_race(self, codes: Incomplete) -> str | None:
        if self.n_posterior_draws:
            return (
                "draws for pooling need parameters drawn from their posterior distribution, which it offers "
                "at the cost of one fit; to draw by another method, pass its imputer to "
                "halfseen.multiple_imputation, which fits it to resampled rows"
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

    def _explain(self, race: scoring.Race, by: _ChosenBy) -> str:
        shares = self._shares()
        names = list(shares)
        labels = {name: _label(name) for name in [*names, *race.names]}
        text = f"AutoImputer uses {labels[names[0]]}"
        if len(names) > 1:
            first, *others = [f"{labels[name]} ({shares[name]:.0%}" for name in names]
            *most, last = [f"{first} of the weight)", *(f"{other})" for other in others)]
            how = "combines" if any(by.mixed.values()) else "uses"
            text = f"AutoImputer {how} {', '.join(most)} and {last}"
        text += f", chosen by predictions of {by.n_cells:,} known cells that were hidden."
        if len(names) > 1:
            text += _explain_mixtures(by.mixed)
        scores = {row["candidate"]: row for row in self.scores_}
        base, best = self.scores_[0], scores.get(names[0])
        if best is not None and best is not base:
            told = [("RMSE", "rmse"), ("CRPS", "crps"), ("accuracy", "accuracy")]
            shown = ", ".join(f"{word} {best[key]:.3f}" for word, key in told if best[key] is not None)
            against = ", ".join(f"{base[key]:.3f}" for _, key in told if base[key] is not None)
            than = f"({labels[base['candidate']]}: {against})"
            text += f" On the hidden cells, {labels[names[0]]} alone has {shown} {than}."
        for name, why in race.left_out.items():
            text += f" {_label(name)} was not used: {why}."
        return text + self._explain_without_trees()

    def _explain_without_trees(self) -> str:
        """Returns a sentence about columns that were to be imputed by trees and have none."""
        found = [
            column.name
            for member, row in zip(self.members_, self.weights_, strict=True)
            for column, weight in zip(self._modelled, row, strict=True)
            if weight > 0 and column.name in getattr(member, "gaussian_columns_", ())
        ]
        if not found:
            return ""
        verb = "counts" if len(found) == 1 else "count"
        return (
            f" No trees could be grown for {shortened(found)}, which {verb} as Gaussian: there were too few "
            "values, too many levels, or no time."
        )

    def _named(self, n_rows: int) -> dict[str, BaseImputer]:
        """Returns the candidates by name; by default, those for tables of this size."""
        given = self.candidates
        if isinstance(given, str) and given == "auto":
            given = [name for name, least in CANDIDATES.items() if n_rows >= least]
            if len(self._modelled) > _circuit_fit.MOST_TREE_COLUMNS and "circuit" in given:
                given.remove("circuit")
        if not isinstance(given, list | tuple) or not given:
            raise ValueError(f"candidates must be 'auto' or a list of names, got {given!r}.")
        methods = [find_method(str(name)) for name in given]
        for method in methods:
            if method.family != Family.TABLE_IMPUTER or method.name in ("auto", "bootstrap"):
                raise ValueError(f"candidates must be imputers of tables, got {method.name!r}.")
        return {method.name: method.estimator() for method in methods}

    def _checked_seconds(self) -> float:
        check_number("max_seconds", self.max_seconds, lambda v: 0 < v < np.inf, "positive and finite")
        check_whole("n_posterior_draws", self.n_posterior_draws, 0)
        if self.min_skill is not None:
            check_number("min_skill", self.min_skill, lambda v: -np.inf < v <= 1, "at most 1, or None")
        return float(self.max_seconds)

    def _sized(self, imputer: BaseImputer) -> Any:
        """Returns an imputer that knows the columns, as for reading a table, and is not fitted."""
        return make_member(self, imputer, self.seed_)

    def _fit_member(self, imputer: BaseImputer, codes: Incomplete) -> BaseImputer:
        member: BaseImputer = self._sized(imputer)
        give_back_memory()  # of the member before
        half = max(config.memory_budget() // 2, config.SMALLEST_MEMORY_BUDGET)
        with config.context(memory_budget=half):  # the codes of the rows and other members take the rest
            member._fit_codes(codes)
        return member

    @property
    def _answers(self) -> TabularCompletion | None:
        models: Any = [member._answers for member in self.members_]
        if len(models) < 2:
            return models[0] if models else None
        return TabularStack(models, np.array(self.weights_), self.sharpness_)

    def _pooling_reservations(self, n_draws: int) -> list[str]:
        if self.n_posterior_draws and self.members_:
            return self.members_[0]._pooling_reservations(n_draws)
        return super()._pooling_reservations(n_draws)

    def _set_members(self, members: list[Any], description: Mapping[str, Any]) -> None:
        check_imputers(self, members)
        self.members_ = members
        self.hidden_cells_ = HiddenCells({}, 0)
        weights = np.array(self.weights_, dtype=np.float64).reshape(len(self.members_), -1)
        shape = (len(self.members_), len(self._modelled) if self.members_ else 0)
        if weights.shape != shape or (weights < 0).any() or not np.allclose(weights.sum(axis=0), 1.0):
            raise ValueError("the weights do not fit the members")
        if not isinstance(self.sharpness_, float) or not 0.0 < self.sharpness_ < np.inf:
            raise ValueError(f"the sharpness is {self.sharpness_!r:.60}")


def _count_incomplete(codes: Incomplete) -> int:
    """Returns the number of rows with missing cells."""
    return int((~codes.observed).any(dim=1).sum())


def _explain_mixtures(mixed: Mapping[str, bool]) -> str:
    """Returns why there are mixtures, or single methods, for the kinds of columns (numbers, levels)."""
    tested = "in rows that were not used to find their weights"
    if all(mixed.values()):
        return f" Methods are mixed, because mixtures predicted better than single methods {tested}."
    if not any(mixed.values()):
        return f" Each column has one method, because mixtures did not predict better {tested}."
    better, other = sorted(mixed, key=lambda kind: not mixed[kind])
    return (
        f" Methods are mixed for {better}, because mixtures predicted these better than single methods "
        f"{tested}; each column of {other} has one method."
    )


def _label(name: str) -> str:
    return next((method.label for method in CATALOGUE if method.name == name), name)
