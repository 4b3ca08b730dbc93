"""The imputer by chained equations with Bayesian regressions."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen._random import Keys, row_keys, torch_generator
from halfseen._threads import map_in_threads
from halfseen.base.capabilities import Capabilities
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import IMPUTER_ATTRIBUTES, check_whole, documented_by
from halfseen.base.table import ReadTable, predictor_positions
from halfseen.chained.analysis import N_UNIFORMS, NODES, CompatibleModel
from halfseen.chained.blocks import read_blocks
from halfseen.chained.chain import ChainRun, Chains, ChainTrace, Passive
from halfseen.chained.constraints import Constraints
from halfseen.chained.effects import GroupedRows, RowGroups
from halfseen.chained.equations import Equation, Parameters, order_visits, plan_equations
from halfseen.chained.formula import SubstantiveModel
from halfseen.chained.grouped import (
    GroupedChain,
    GroupModel,
    check_group_names,
    check_groups,
    check_groups_of_analysis,
    check_slope,
    drop_column,
    name_new_groups,
)
from halfseen.chained.inputs import Inputs, Role, Spike, choose_features, widen_range
from halfseen.chained.methods import Method, read_methods
from halfseen.chained.outcome_choice import MOST_COLUMNS, find_outcome
from halfseen.chained.regressions import Noise
from halfseen.chained.tabular import TabularChain, constrain_draws, draws_of_point
from halfseen.data.frames import Table
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.schema import Column, Schema
from halfseen.gaussian.imputer import GaussianImputer
from halfseen.gaussian.tabular import TabularGaussian, redraw_margins

CHAINS_TOGETHER = 10  # chains that share operations: few enough for two groups of the default number
CELLS_TOGETHER = 2**24  # inputs of the rows of these chains in memory, 128 MB
DRAW_COPIES = (
    8  # arrays of the size of a draw and its inputs: both, rows of one column, and the start; counted
)
ENOUGH_CYCLES = 20  # from which on r_hat says something; with fewer, the variance within chains is too small
LARGEST_R_HAT = 1.1  # the usual limit (Gelman & Rubin, 1992)


@documented_by({}, IMPUTER_ATTRIBUTES)
@dataclass(eq=False, repr=False)
class ChainedImputer(BaseImputer):
    r"""Multiple imputation by chained equations, with a Bayesian regression for each column.

    .. math::
        \theta_c \sim p(\theta_c \mid x_c^{\text{obs}}, x_{\setminus c}), \qquad
        x_c^{\text{mis}} \sim p(x_c \mid x_{\setminus c}, \theta_c)

    Use it for multiple imputation of tables with levels, ordered levels, counts or skewed numbers: intervals
    that are pooled over its draws have the right coverage where a joint Gaussian is biased.
    `multiple_imputation` chooses it for such tables.

    Each column has a regression on all other columns: linear for numbers, on the scale of the margin of the
    column (see `GaussianImputer`); logistic or multinomial for levels; proportional odds for ordered levels
    and for whole numbers with at most ten values. A number that is often zero, or at another end of its
    values, has two parts: a logistic regression for this value, and a linear one for the others. Values that
    are known to lie in an interval, such as those below a detection limit, have scores that are drawn within
    it. Numbers predict other columns by their scores and, if the margin is not linear, by their values as
    well. A cycle draws, for one incomplete column after the other, the parameters of its regression from
    their posterior distribution and then its missing values. The cycles of each chain start from a draw of a
    joint Gaussian. `fit` keeps the last parameters of every chain. A draw of `sample`, for these or other
    rows, repeats the cycles with the parameters of one chain. Values are assumed to be missing at random
    (MAR).

    Parameters
    ----------
    n_chains : int, default=20
        The number of chains, which is the number of draws of the parameters. Set this to at least the
        `n_draws` passed to `sample`.
    n_cycles : int, default=5
        The number of cycles.
    analysis : str, optional
        The formula of a later analysis, such as ``"y ~ x * z + I(w ** 2) + C(g)"``. Draws are then compatible
        with it, so that interactions and powers of imputed columns are not biased towards zero. Formulas
        have columns, interactions (``*`` and ``:``), indicators of levels and arithmetic within ``I()``; they
        are never executed as code.
    family : {"auto", "linear", "logistic", "poisson", "cox"}, default="auto"
        The model of the outcome of the analysis. ``"auto"`` is logistic for an outcome with two levels, a Cox
        model for ``"Surv(time, event) ~ x"``, and linear otherwise. The second level of `event`, such as 1,
        marks an event; ``Surv(time)`` is for rows that all have one. Times and events must not be missing.
    groups : str, optional
        The column that says which rows belong together, such as the visits of a person or the pupils of a
        school. Regressions then have a random intercept for each group, and so has the outcome of an
        `analysis` other than a Cox model. Columns that are constant within groups are drawn once for each
        group.
    slopes : str, optional
        A column of numbers, such as the time of a visit, whose slopes vary between groups as well.
    methods : dict of str to str or function, optional
        The methods of single columns in place of their regressions, by name: ``"pmm"`` (predictive mean
        matching) for numbers; ``"trees"``, a classification or regression tree that is grown on a bootstrap
        sample in every cycle; ``"regression"``, the default; or a function, see the notes.
    predictors : dict of str to list of str, optional
        The columns that may predict a column, by its name; columns that are not named are predicted from all
        others. By default there is no limit.
    constraints : list of str, optional
        Order constraints that imputed values obey, such as ``["admission <= discharge", "age >= 18"]``: two
        columns of numbers or dates, or a column and a number, compared by ``<=``, ``<``, ``>=`` or ``>``. A
        missing value is drawn from its regression within the limits that the rest of the row sets.
    visit_order : list of str, optional
        The columns that a cycle visits first, in this order. The others follow, those with the fewest missing
        values first.
    blocks : list of list of str, optional
        Columns of numbers that are drawn together, such as ``[["systolic", "diastolic"]]``: each list has one
        regression on the other columns, with correlated residuals. By default each column has its own.
    find_outcome : bool, default=True
        Whether to look for a complete column of numbers or counts whose linear or Poisson regression on all
        others explains skewed incomplete numbers better than their own regressions do. Draws are then
        compatible with that regression, as with `analysis`; see the notes. It is not looked for with
        `analysis`, `groups`, `methods`, `predictors`, `constraints`, `blocks` or derived columns, or in
        tables with more than 20 columns.
    max_predictors : int, default=100
        Maximum number of columns from which a column is predicted: those that correlate with it most.
        Columns with many levels have fewer, so that a regression has at most 400 coefficients.
    max_rows : int, default=50000
        Maximum number of rows from which parameters are drawn, chosen at random by their contents and the
        seed. The joint Gaussian is fitted to all rows.

    Attributes
    ----------
    model_ : TabularChain
        The fitted regressions.
    trace_ : ChainTrace
        The means and standard deviations of incomplete columns after every cycle; see `plot_trace`.
    r_hat_ : dict of str to float
        The potential scale reduction of the mean of each incomplete column over the chains. It is
        meaningful from about 20 cycles on.

    Notes
    -----
    Inputs are standardised. Coefficients of linear regressions have normal priors around zero with the
    variance of the residuals divided by a number of rows: a tenth of a row, and more with few rows for each
    coefficient (five divided by this number, half a row with ten). The constant has no prior, residual
    variances have Jeffreys' prior, and parameters are drawn from the exact posterior. With fewer than two
    rows per coefficient, the precision of the prior is the one with the greatest marginal likelihood
    (empirical Bayes). Coefficients of logistic regressions have normal priors around zero with a standard
    deviation of 5, and constants of 10, which keep them finite under separation. Their posterior is
    approximated by a normal distribution at its mode; with fewer than 200 rows per coefficient, several draws
    from it are weighted by the posterior density, because the posterior is skewed.

    A skewed number x on which a column y depends linearly, by its values, has a regression on y that is
    linear on no scale; and a number has none on counts y with a Poisson distribution. Complete columns of
    numbers or counts are therefore tried as outcomes: if the density of the observed values by
    :math:`f(x \mid z) \, p(y \mid x, z)` is at least as large as that by the regression of x on y and the
    other columns z, up to two units of its logarithm, draws are compatible with the regression of y on all
    others. Poisson regressions are used for counts with the variance of a Poisson distribution (up to 30%),
    for which they are better than linear ones. Of several columns within two units, it is the one that
    correlates most with the missingness of the others. Imputed values of positive columns may then lie
    further beyond the observed ones, as with `analysis`, and their margins are log-normal unless another one
    is better by the Bayesian information criterion of all observed values and outcomes.

    With `groups`, effects of groups are normal, with an inverse Wishart prior of their covariance, and are
    drawn by Gibbs steps together with the coefficients. Levels have a sequence of probit regressions: each
    level against the later ones. New rows of known groups use the effects of their group; the effects of
    new groups are drawn from their distribution, and the other rows of a new group do not change them.
    A column is taken to be constant within groups if it never differs between two rows of a group. Means of
    other columns over a group are not inputs of regressions.

    A column has two parts if its least or greatest value makes up 5%, and ten at least, of its observed
    values, with 50 others, and for whole numbers twice as many as the next frequent one. Both regressions
    have the same inputs. The indicator of the value predicts other columns. Columns with `constraints`,
    `methods` or `blocks`, and tables with `groups`, have one regression, whose scores are drawn within an
    interval for the frequent value.

    The columns of a block have the inputs that any of them would have, and the inverse Wishart posterior of
    the covariance of their residuals under Jeffreys' prior. Missing values of a row are drawn given the
    observed ones of its block. One block of all columns draws from a joint Gaussian.

    A method that is a function ``fit(X, y, rng)`` gets the inputs X (n, p) of the rows in which the column is
    observed, a constant and standardised numbers and indicators; the values y (n) of the column, for levels
    their positions; and a generator of numpy. It should draw parameters, for example by a fit to a bootstrap
    sample, and returns a function ``draw(X, uniforms)`` that returns a value for each row of X, each as a
    function of its row and of its uniform random number alone. Models with such methods cannot be saved.
    Trees and matching draw observed values only, the donors: for matching, one of the five whose predicted
    means are nearest, and for trees, one of those in the leaf of the row. They do not extrapolate.

    A derived column (see `Schema`) that predicts others is computed whenever one of its inputs is drawn, and
    does not predict its inputs.

    `transform` imputes means of the conditional distributions over all chains; `interval` uses their means
    and variances. The conditional distributions do not belong to one joint density, so there is no
    `score_samples`.

    References
    ----------
    van Buuren & Groothuis-Oudshoorn (2011), mice: Multivariate Imputation by Chained Equations in R; Rubin
    (1987), Multiple Imputation for Nonresponse in Surveys; Gelman et al. (2008), for the prior; Albert & Chib
    (1993), for scores within intervals.

    Examples
    --------
    A level is missing more often where the outcome is large:

    >>> import numpy as np, pandas as pd, halfseen
    >>> rng = np.random.default_rng(0)
    >>> group = rng.choice(["a", "b", "c"], size=1000)
    >>> y = np.select([group == "b", group == "c"], [1.0, 2.5]) + rng.normal(size=1000)
    >>> table = pd.DataFrame({"y": y, "group": group})
    >>> table.loc[rng.random(1000) < 0.6 / (1 + np.exp(-2 * y)), "group"] = None
    >>> imputer = halfseen.ChainedImputer(n_chains=5, random_state=0).fit(table)
    >>> pooled = halfseen.pool("y ~ C(group)", imputer.sample(table, n_draws=5))
    >>> bool(np.abs(pooled.estimate - [0, 1, 2.5]).max() < 0.4)  # four standard errors
    True
    """

    n_chains: int = 20
    _: KW_ONLY
    n_cycles: int = 5
    analysis: str | None = None
    family: str = "auto"
    groups: str | None = None
    slopes: str | None = None
    methods: Mapping[str, Any] | None = None
    predictors: Mapping[str, Sequence[str]] | None = None
    constraints: Sequence[str] | None = None
    visit_order: Sequence[str] | None = None
    blocks: Sequence[Sequence[str]] | None = None
    find_outcome: bool = True
    max_predictors: int = 100
    max_rows: int = 50_000

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        asked = (self.analysis, self.groups, self.predictors, self.constraints, self.blocks)
        free = all(one is None for one in asked)
        return replace(super().capabilities, density=False, limits=True, relates_near_copies=free)

    def _fit_model(self, codes: Incomplete) -> TabularChain | GroupedChain:
        for name in ("n_chains", "n_cycles", "max_predictors", "max_rows"):
            check_whole(name, getattr(self, name), 1)
        place = self._group_place
        if place is None:
            return self._fit_chain(codes, None)
        group = codes.x[:, place].long()
        return GroupedChain(self._fit_chain(drop_column(codes, place), group), place)

    def _fit_chain(self, codes: Incomplete, group: Tensor | None) -> TabularChain:
        """Fits the regressions of columns (N, C), with effects of groups (N)."""
        analysis = self._parsed()
        if analysis is not None:
            analysis.check_outcome(codes)
            self._widen_ranges(analysis, codes)
        generator = torch_generator(self.seed_)
        start = self._fit_start(codes)
        if len(codes) > self.max_rows:
            some = codes.chosen_rows(self.max_rows, self.seed_)
            codes, group = codes[some], None if group is None else group[some]
        inputs, equations, limits = self._plan(codes, start, analysis)
        if analysis is None and group is None and self._seeks_outcome():
            places = [one.inputs for one in equations]
            chosen = find_outcome(self._within, inputs, places, codes, start)
            if chosen is not None:
                analysis, logarithms = chosen
                self._widen_ranges(analysis, codes)
                inputs, equations, limits = self._plan(codes, start, analysis, logarithms)
        columns, passive = self._within, Passive.of(self._within)
        groups = None if group is None else self._row_groups(codes, group, inputs)
        if groups is not None and groups.upper:
            upper = plan_equations(inputs, groups.table, limits, self.max_predictors)
            equations = tuple(upper[c] if c in groups.upper else one for c, one in enumerate(equations))
        rest = inputs.without_spikes(codes)
        margins = [redraw_margins(inputs.features, columns, rest, generator) for _ in range(self.n_chains)]
        n_missing = (~codes.observed).sum(dim=0).tolist()
        order = order_visits(self.visit_order, [column.name for column in columns], n_missing)
        nothing: list[Parameters] = []
        model = TabularChain(columns, inputs, equations, nothing, margins, start, order, self.n_cycles)
        constraints = self._constraints(codes, analysis, groups)
        methods = self._methods(inputs, analysis, constraints)
        blocks = self._blocks(inputs, analysis, constraints)
        model = replace(model, constraints=constraints, passive=passive, blocks=blocks)
        if analysis is not None:
            guess = start.point(codes)[None]
            constrain_draws(columns, codes, guess)
            units, rows = analysis.units(guess[0]), None if groups is None else groups.rows
            if groups is not None:
                check_groups_of_analysis(analysis, columns, [n > 0 for n in n_missing], groups.upper)
            compatible = CompatibleModel(analysis, columns, inputs, units, rows)
            model = replace(model, compatible=compatible)
        found = self._run(model, codes, groups, methods)
        incomplete = [c for c in range(codes.n_features) if n_missing[c]]
        self._set_trace(incomplete, *found.steps[..., incomplete].numpy().swapaxes(0, 1))
        of_groups = None if groups is None else self._group_model(codes, groups.rows.n_groups, found.upper)
        return model.with_parameters(found.parameters, found.outcome, of_groups)

    def _plan(
        self,
        codes: Incomplete,
        start: TabularGaussian,
        analysis: SubstantiveModel | None,
        logarithms: Sequence[int] = (),
    ) -> tuple[Inputs, tuple[Equation, ...], dict[int, npt.NDArray[np.int64]]]:
        """Returns the inputs, the regressions, and which columns may predict a column."""
        limits = predictor_positions(self.predictors, self._schema_within)
        free = () if analysis is None else analysis.covariates
        spikes = self._spikes(codes)
        features = choose_features(self._within, start.features, codes, free, logarithms, spikes)
        inputs = Inputs.fit(self._within, features, codes, spikes)
        for c in free:
            assert analysis is not None
            allowed = limits.get(c, np.arange(codes.n_features))
            limits[c] = allowed[~np.isin(allowed, (*analysis.outcomes, c))]
        Passive.of(self._within).limit(limits, codes.n_features)
        blocks = read_blocks(self.blocks, self._within, [column.role for column in inputs.columns])
        return inputs, plan_equations(inputs, codes, limits, self.max_predictors, blocks), limits

    def _spikes(self, codes: Incomplete) -> dict[int, Spike]:
        """Returns the frequent ends of numbers (N, C) that have two-part models, where these are possible."""
        if self.groups is not None:
            return {}
        names = {*(self.methods or {}), *(name for block in self.blocks or () for name in block)}
        constrained = Constraints.parse(self.constraints, self._within).columns
        return Spike.of_table(self._within, codes, names | {self._within[c].name for c in constrained})

    def _seeks_outcome(self) -> bool:
        """Returns whether draws may be made compatible with an outcome that the data show."""
        stated = self.methods or self.predictors or self.constraints or self.blocks
        free = not stated and self.find_outcome
        few = len(self._within) <= MOST_COLUMNS
        return bool(free) and few and not any(column.derived for column in self._within)

    def _widen_ranges(self, analysis: SubstantiveModel, codes: Incomplete) -> None:
        """Lets imputed values of the covariates of an analysis reach further into a tail."""
        wider, spikes = {}, self._spikes(codes)
        for c in analysis.covariates:
            known = codes.x[codes.observed[:, c], c]
            wider[self._within[c].name] = widen_range(self._within[c], known, spikes.get(c))
        self.schema_ = Schema(tuple(wider.get(column.name, column) for column in self.schema_))

    def _constraints(
        self, codes: Incomplete, analysis: SubstantiveModel | None, groups: RowGroups | None
    ) -> Constraints:
        """Returns the constraints, and warns of observed rows that do not obey them."""
        found = Constraints.parse(self.constraints, self._within)
        found.warn_of_broken(codes)
        taken: set[int] = set() if groups is None else set(groups.upper)
        if analysis is not None:
            taken |= {*analysis.outcomes, *analysis.covariates}
        for c in sorted(found.columns & taken):
            why = "is a variable of the analysis" if analysis is not None else "is constant within groups"
            raise ValueError(f"Column {self._within[c].name!r} {why}, so it cannot have constraints.")
        return found

    def _methods(
        self, inputs: Inputs, analysis: SubstantiveModel | None, constraints: Constraints
    ) -> dict[int, Method]:
        """Returns the methods that replace regressions, and raises a ValueError where they cannot."""
        found = read_methods(self.methods, self._within, [column.role for column in inputs.columns])
        for c in found:
            feature = inputs.columns[c].feature
            margins = inputs.features.margins
            margin = margins[feature] if margins and feature >= 0 else None
            censored = margin is not None and margin.is_censored
            why = {"has censored values, which only regressions can use": censored}
            self._check_free(c, "cannot have a method of its own", why, analysis, constraints)
        return found

    def _check_free(
        self,
        c: int,
        what: str,
        why: dict[str, bool],
        analysis: SubstantiveModel | None,
        constraints: Constraints,
    ) -> None:
        """Raises a ValueError that says what a column cannot do, if one of several reasons holds."""
        of_analysis = () if analysis is None else (*analysis.outcomes, *analysis.covariates)
        why = {
            "is a variable of the analysis, which determines its draws": c in of_analysis,
            "has constraints, within which only its own regression can draw": c in constraints.columns,
            "belongs to a table with groups, of which only its own regression has effects": self.groups
            is not None,
        } | why
        reason = next((sentence for sentence, holds in why.items() if holds), None)
        if reason is not None:
            raise ValueError(f"Column {self._within[c].name!r} {what}: it {reason}.")

    def _blocks(
        self, inputs: Inputs, analysis: SubstantiveModel | None, constraints: Constraints
    ) -> list[tuple[int, ...]]:
        """Returns the columns that are drawn together, and raises a ValueError where they cannot be."""
        found = read_blocks(self.blocks, self._within, [column.role for column in inputs.columns])
        for c in (c for block in found for c in block):
            why = {"has a method of its own": self._within[c].name in (self.methods or {})}
            self._check_free(c, "cannot belong to a block", why, analysis, constraints)
        return found

    @property
    def _overrides(self) -> Any:
        """The column settings that the user passed; groups are levels, and are never imputed."""
        if self.groups is None:
            return self.schema
        return dict(self.schema or {}) | {self.groups: {"kind": "categorical", "fill": False}}

    @property
    def _within(self) -> Sequence[Column]:
        """The columns that are regressed: the modelled ones without the column of groups."""
        return [column for column in self._modelled if column.name != self.groups]

    @property
    def _schema_within(self) -> Schema:
        """The schema without the column of groups."""
        return Schema(tuple(column for column in self.schema_ if column.name != self.groups))

    @property
    def _group_place(self) -> int | None:
        """The position of the column of groups among the modelled ones."""
        names = [column.name for column in self._modelled]
        return names.index(self.groups) if self.groups is not None else None

    def _open(self, X: Any, *, reset: bool) -> Table:
        table = super()._open(X, reset=reset)
        if reset:
            check_group_names(self.groups, self.slopes, table.names)
        return table

    def _read(self, X: Any, *, reset: bool) -> ReadTable:
        read = super()._read(X, reset=reset)
        if self.groups is None:
            return read
        place = next(j for j, column in enumerate(self.schema_) if column.name == self.groups)
        if reset:
            check_groups(self.schema_.columns[place], read.missing[:, place])
        within = self._group_place
        assert within is not None
        codes = name_new_groups(read.codes, within, read.table.column(place), self.seed_)
        return replace(read, codes=codes)

    @property
    def _slope_place(self) -> int | None:
        """The position, among the regressed columns, of the one whose slopes vary between groups."""
        if self.slopes is None:
            return None
        found = next((c for c, column in enumerate(self._within) if column.name == self.slopes), None)
        if found is None or self._within[found].levels is not None:
            raise ValueError(f"Column {self.slopes!r}, whose slopes vary between groups, must be a number.")
        return found

    def _row_groups(self, codes: Incomplete, group: Tensor, inputs: Inputs) -> RowGroups:
        """Describes the groups (N) of the rows of a table (N, C)."""
        slope = self._slope_place
        if slope is not None:
            check_slope(self._within[slope], codes, slope)
        column = next(one for one in self._modelled if one.name == self.groups)
        blank = self._group_model(codes, len(column.levels or ()), {})
        rows = GroupedRows(group, blank.n_groups, blank.inputs(codes.x))
        numbers = [one.position for one in inputs.columns if one.role == Role.NUMBER]
        found = RowGroups.of(codes, rows, numbers)
        if slope in found.upper:
            raise ValueError(f"Column {self.slopes!r} does not vary within the groups of {self.groups!r}.")
        return found

    def _group_model(self, codes: Incomplete, n_groups: int, upper: Mapping[int, Tensor]) -> GroupModel:
        """Returns what new rows need to know about groups."""
        slope, loc, unit = self._slope_place, 0.0, 1.0
        if slope is not None:
            one = Standardizer.fit(Incomplete(codes.x[:, [slope]], codes.observed[:, [slope]]))
            loc, unit = float(one.loc[0]), float(one.scale[0])
        return GroupModel(n_groups, slope, loc, unit, upper)

    def _parsed(self) -> SubstantiveModel | None:
        """Returns the analysis, if there is one."""
        return (
            None
            if self.analysis is None
            else SubstantiveModel.parse(self.analysis, self._within, self.family)
        )

    def _fit_start(self, codes: Incomplete) -> TabularGaussian:
        start = GaussianImputer()
        start.schema_, start.seed_ = self._schema_within, self.seed_
        return start._fit_model(codes)

    def _run(
        self,
        model: TabularChain,
        codes: Incomplete,
        groups: RowGroups | None,
        methods: Mapping[int, Method],
    ) -> ChainRun:
        """Runs all chains."""
        size = min(CHAINS_TOGETHER, max(1, CELLS_TOGETHER // (len(codes) * model.inputs.width)))
        several = [range(s, min(s + size, self.n_chains)) for s in range(0, self.n_chains, size)]
        # The noise of the cycles depends on the position of a row, whatever its cells are.
        keys = row_keys(np.arange(len(codes), dtype=np.float64)[:, None], self.seed_)

        def run(chains: range) -> ChainRun:
            drawn = torch.cat([model.start.draws_of(codes, keys, range(s, s + 1)) for s in chains])
            constrain_draws(model.columns, codes, drawn)
            model.passive.fill(codes, drawn)
            margins, noise = [model.margins[s] for s in chains], Noise(self.seed_, chains)
            steps = list[Tensor]()
            compatible = copy(model.compatible)
            some = Chains(
                model.columns,
                model.inputs,
                model.equations,
                codes,
                drawn,
                margins,
                noise,
                compatible,
                groups,
                model.constraints,
                model.passive,
                model.order,
                methods,
                model.blocks,
            )
            parameters = some.run(self.n_cycles, steps.append)
            outcome = None if compatible is None else compatible.draw_parameters(some.completed, noise)
            return ChainRun(parameters, outcome, torch.stack(steps), some.upper)

        return ChainRun.joined(list(map_in_threads(run, several)))

    def _set_trace(
        self,
        incomplete: Sequence[int],
        mean: npt.NDArray[np.float64],
        std: npt.NDArray[np.float64],
    ) -> None:
        """Sets the trace of the chains, and whether they agree."""
        modelled = self._within
        self.trace_ = ChainTrace(tuple(modelled[c].name for c in incomplete), mean, std)
        self.r_hat_ = self.trace_.r_hat()

    def _sample(self, X: Any, n_draws: int, make_keys: Callable[[npt.NDArray[np.float64], int], Keys]) -> Any:
        drawn = super()._sample(X, n_draws, make_keys)
        drawn.analysis = self.analysis  # pool warns of terms that draws do not know
        return drawn

    def _pooling_reservations(self, n_draws: int) -> list[str]:
        found = []
        if n_draws > self.n_chains:
            found.append(
                f"{n_draws} draws share {self.n_chains} draws of the parameters; fit with n_chains={n_draws} "
                "or use halfseen.multiple_imputation."
            )
        r_hat = getattr(self, "r_hat_", {})  # there is none if no column can be modelled
        apart = [name for name, value in r_hat.items() if value > LARGEST_R_HAT]
        if self.n_cycles >= ENOUGH_CYCLES and apart:
            found.append(
                f"The chains differ in column {apart[0]!r} (r_hat {self.r_hat_[apart[0]]:.2f}); raise "
                "n_cycles."
            )
        return found

    def _numbers_per_row(self, n_draws: int) -> int:
        width = 2 * self._width  # numbers enter by their scores and values
        if self.analysis is not None:
            width += 2 * (N_UNIFORMS + len(NODES))  # noise and nodes of a cell, and densities there
        return DRAW_COPIES * max(1, width) * max(n_draws, draws_of_point(self.n_chains))

    def _state(self) -> dict[str, Tensor]:
        if self.model_ is None:
            return super()._state()
        positions = {column.name: c for c, column in enumerate(self._within)}
        trace = {name: torch.from_numpy(getattr(self.trace_, name).copy()) for name in ("mean", "std")}
        trace["columns"] = torch.tensor([positions[name] for name in self.trace_.names], dtype=torch.int64)
        return super()._state() | {f"trace.{name}": values for name, values in trace.items()}

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        super()._restore(state)
        if self.model_ is None:
            return
        mean, std, places = (state[f"trace.{name}"] for name in ("mean", "std", "columns"))
        fits = places.ndim == 1 and places.dtype == torch.int64 and mean.shape == std.shape
        known = set(range(len(self._within)))
        if not fits or mean.ndim != 3 or mean.shape[2] != len(places) or not set(places.tolist()) <= known:
            raise ValueError("The trace of the chains does not fit the columns.")
        self._set_trace(places.tolist(), mean.numpy(), std.numpy())

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularChain | GroupedChain:
        chain = TabularChain.from_state(self._within, state, self._parsed(), self.methods)
        constraints = Constraints.parse(self.constraints, self._within)
        blocks = read_blocks(self.blocks, self._within, [column.role for column in chain.inputs.columns])
        chain = replace(chain, constraints=constraints, passive=Passive.of(self._within))
        chain = chain.with_blocks(blocks)
        place = self._group_place
        if place is None:
            return chain
        groups = GroupModel.from_state(state, len(self._within), chain.n_chains, self._slope_place)
        if len(self._modelled[place].levels or ()) != groups.n_groups:
            raise ValueError(f"The model has {groups.n_groups} groups and the schema has others.")
        return GroupedChain(replace(chain, groups=groups), place)
