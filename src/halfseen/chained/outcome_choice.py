r"""Choice of a complete column as an outcome, from whose regression missing values of the others are drawn.

The regression of a skewed number x on a column y that depends linearly on the values of x is linear on no
scale of x, and neither is that of a number on counts y that have a Poisson distribution. Missing values of x
are then better drawn from

.. math:: p(x \mid y, z) \propto f(x \mid z) \, p(y \mid x, z),

as for a stated analysis ``y ~ x + z``. The density of the observed values of x by this product is compared
with that by their own regression on y and z. The parameters of the product are estimated from all rows, by
EM, because the rows in which x is observed may be selected by y. For normal columns both are the same. If x
has two parts, f is a logistic regression of its frequent value and a normal one of the other scores.

References
----------
Bartlett, Seaman, White & Carpenter (2015), Multiple imputation of covariates by fully conditional
specification: accommodating the substantive model; Ibrahim (1990), Incomplete data in generalized linear
models, for the weights of EM.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.special import ndtr, ndtri

from halfseen.chained.formula import SubstantiveModel
from halfseen.chained.inputs import InputColumn, Inputs, Role, choose_features, reach
from halfseen.chained.regressions import PRIOR_SCALE
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.gaussian.tabular import TabularGaussian

MOST_COLUMNS = 20  # of a table in which an outcome is looked for: each pair of columns takes an EM; a guess
MOST_ROWS = 1_000  # on which densities are compared, chosen by their contents; a guess
ROWS_PER_INPUT = 20  # needed to compare regressions; a rule of thumb
# An outcome is used unless observed values are clearly less probable given it, because most analyses are
# regressions on values. Chosen by simulation of log-normal covariates and Poisson outcomes with 300 rows, and
# confirmed by other simulations (`tests/chained/test_outcome_choice.py`).
LEAST_GAIN = -2.0  # in nats, of the density of observed values over that of their own regressions
CLEARLY_COUNTS = 2.0  # nats by which a Poisson regression of the outcome is better than a linear one
DISPERSION = 1.3  # largest ratio, either way, of the variance of counts and that of a Poisson distribution
GRID = torch.linspace(-5.0, 5.0, 51, dtype=torch.float64)  # scores over which densities are integrated
SPACING = float(GRID[1] - GRID[0])
LEAST_SPREAD = 0.25  # residual standard deviation of scores that the grid resolves
# Steps of EM, and of Newton's method before it; guesses, after which gains change in their second digit.
N_STEPS, FIRST_STEPS = 15, 8
LARGEST_INDEX = 30.0  # of a Poisson regression, so that means are finite
RIDGE = 1e-6  # of cross-products, relative to their diagonal
TINY = 1e-300


def find_outcome(
    columns: Sequence[Column],
    inputs: Inputs,
    places: Sequence[Tensor],
    codes: Incomplete,
    start: TabularGaussian,
) -> tuple[SubstantiveModel, tuple[int, ...]] | None:
    """Returns the regression of a complete column on all others, or None if none explains more.

    With it come the positions of the numbers whose margins should be log-normal; see `_logarithms`.

    Parameters
    ----------
    columns : sequence of Column
        The C modelled columns.
    inputs : Inputs
        Of their regressions.
    places : sequence of Tensor
        The positions of the inputs of the regression of each column.
    codes : Incomplete
        The table (N, C).
    start : TabularGaussian
        What completes the other columns of a row.
    """
    some = codes[codes.chosen_rows(MOST_ROWS)]
    guess = torch.where(some.observed, some.x, start.point(some))
    incomplete = (~codes.observed).any(dim=0).tolist()
    numbers = [one for one in inputs.columns if incomplete[one.position] and one.role == Role.NUMBER]
    found = []
    for y, column in enumerate(columns):
        if incomplete[y] or column.levels is not None or column.is_censored(guess[:, y].numpy()).any():
            continue
        linear, counts = (SubstantiveModel.main_effects(columns, y, f) for f in ("linear", "poisson"))
        pairs = [_Pair.of(columns, inputs, places[x.position], some, guess, x, linear) for x in numbers]
        known = [one for one in pairs if one is not None]
        gain = _gain_of_counts(known) if column.integer and (column.observed_low or 0) >= 0 else None
        model = linear if gain is None else counts
        if gain is None and inputs.columns[y].role == Role.NUMBER:
            gain = _gain(known)
        if gain is not None:
            found.append((gain, _selection(guess[:, y], some, numbers), model))
    if not found:
        return None
    best = max(gain for gain, _, _ in found)
    model = max((one for one in found if one[0] >= best + LEAST_GAIN), key=lambda one: one[1])[2]
    return model, _logarithms(columns, inputs, places, codes, start, model)


def _selection(y: Tensor, codes: Incomplete, numbers: Sequence[InputColumn]) -> float:
    """Returns the greatest correlation of a column (N) with the missingness of others, in absolute value.

    Of outcomes that explain observed values about equally well, the one through which values are missing
    matters: the regressions differ most where these values lie.
    """
    missing = (~codes.observed[:, [one.position for one in numbers]]).to(torch.float64)
    missing, y = missing - missing.mean(dim=0), y - y.mean()
    size = (missing.square().sum(dim=0) * y.square().sum()).sqrt().clamp(min=TINY)
    return float(((y @ missing) / size).abs().amax()) if len(numbers) else 0.0


def _logarithms(
    columns: Sequence[Column],
    inputs: Inputs,
    places: Sequence[Tensor],
    codes: Incomplete,
    start: TabularGaussian,
    model: SubstantiveModel,
) -> tuple[int, ...]:
    """Returns the incomplete positive numbers that are log-normal given the regression of the outcome.

    Margins are chosen by the observed values. If large values are missing through the outcome, the observed
    ones have a shorter tail than the column, and another power than the logarithm may fit them better. A
    margin with further parameters is therefore kept only if all that is known of both columns is more
    probable under it, by the Bayesian information criterion.
    """
    some = codes[codes.chosen_rows(MOST_ROWS)]
    guess, found = torch.where(some.observed, some.x, start.point(some)), list[int]()
    for x in inputs.columns:
        c, known = x.position, codes.x[codes.observed[:, x.position], x.position]
        margin = inputs.features.margins[x.feature] if inputs.features.margins and x.with_value else None
        if len(known) == len(codes) or margin is None or margin.half or margin.has_atoms or x.spike:
            continue
        if margin.link.kind == "log" or len(margin.unlimited) or not float(known.min()) > 0:
            continue
        features = choose_features(columns, start.features, codes, (), [c])
        criteria = []
        for one in (inputs, Inputs.fit(columns, features, codes)):
            pair = _Pair.of(columns, one, places[c], some, guess, one.columns[c], model)
            if pair is not None and one.width == inputs.width:
                likelihood = _Factorised(pair, model.family).log_likelihood()
                criteria.append(likelihood + _log_slopes(one, c, some) - _penalty(one, c, some))
        if len(criteria) == 2 and criteria[1] >= criteria[0]:
            found.append(c)
    return tuple(found)


def _log_slopes(inputs: Inputs, c: int, codes: Incomplete) -> float:
    """Returns the sum of the logarithms of the derivatives of scores at the observed values of a column."""
    feature, x = inputs.columns[c].feature, codes.x[codes.observed[:, c], c]
    margin = inputs.features.margins[feature]
    assert margin is not None
    return float(margin.log_slope(x).sum() - len(x) * inputs.features.scaler.scale[feature].log())


def _penalty(inputs: Inputs, c: int, codes: Incomplete) -> float:
    """Returns the penalty of a margin: for the power of its link, or for the knots of a spline."""
    margin = inputs.features.margins[inputs.columns[c].feature]
    assert margin is not None
    n_more = 0 if margin.link.kind == "log" else len(margin.places) - 1
    return 0.5 * n_more * math.log(len(codes))


def _gain(pairs: Sequence["_Pair"]) -> float | None:
    """Returns the gain by a linear regression of y in nats, None if it is not enough."""
    each = [float((one.linear.density() - one.own_density()).sum()) for one in pairs if one.curved]
    return sum(each) if each and sum(each) > LEAST_GAIN else None


def _gain_of_counts(pairs: Sequence["_Pair"]) -> float | None:
    """Returns the gain by a Poisson regression of y, None if it is not enough or counts are not Poisson.

    The gain of the density of y over that of a linear regression is part of it.
    """
    total = 0.0
    for one in pairs:
        counts = _Factorised(one, "poisson")
        gain = float((counts.density() - one.own_density()).sum())
        better = counts.log_likelihood() - one.linear.log_likelihood()
        fits = 1 / DISPERSION < counts.dispersion() < DISPERSION
        if not fits or better < CLEARLY_COUNTS or gain < LEAST_GAIN:
            return None
        total += gain + better
    return total if pairs else None


@dataclass(frozen=True)
class _Pair:
    """An incomplete number x and a complete column y in some rows, with the inputs of their regressions.

    Shapes
    ------
    observed : (N), whether x is.
    low, high, score : (N), the ends of the score of x, and a value between them.
    full, rest : (N, P), the inputs of x with and without those of y.
    terms : (N, Q), the standardised terms of the regression of y, of which `place` is x.
    values : (K), standardised values of x on the grid of scores, and that of its spike if it has one.
    y : (N)
    spike : (N), which values of x are its spike; None if it has none.
    curved : whether values of x are no linear function of its scores.
    """

    observed: Tensor
    low: Tensor
    high: Tensor
    score: Tensor
    full: Tensor
    rest: Tensor
    terms: Tensor
    place: int
    values: Tensor
    y: Tensor
    spike: Tensor | None
    curved: bool

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        inputs: Inputs,
        places: Tensor,
        codes: Incomplete,
        guess: Tensor,
        x: InputColumn,
        analysis: SubstantiveModel,
    ) -> "_Pair | None":
        """Returns the pair; None if y is no input of x, or too few values of x are observed."""
        y, observed = inputs.columns[analysis.outcome], codes.observed[:, x.position]
        of_y = (places >= y.start) & (places < y.stop)
        n_inputs = max(len(places), len(analysis.sources))
        if not bool(of_y.any()) or int(observed.sum()) < ROWS_PER_INPUT * n_inputs:
            return None
        design = inputs.design(guess)
        low, high = inputs.features.score_interval(x.feature, guess[:, x.position])
        score = torch.where(high > low, ndtri((ndtr(low) + ndtr(high)) / 2), low)
        spike = None if x.spike is None else x.spike.is_at(guess[:, x.position])
        loc, unit = analysis.units(guess)
        place = 1 + analysis.sources.index(x.position)
        known = codes.x[observed, x.position]
        values = reach(columns[x.position], x, inputs.features, known, GRID)
        if x.spike is not None:
            values = torch.nn.functional.pad(values, (0, 1), value=x.spike.value)
        terms, values = (analysis.design(guess.unbind(-1)) - loc) / unit, (values - loc[place]) / unit[place]
        rest = design[:, places[~of_y]]
        full, curved = design[:, places], x.with_value or bool((high > low).any()) or spike is not None
        outcome = guess[:, y.position]
        return cls(observed, low, high, score, full, rest, terms, place, values, outcome, spike, curved)

    @cached_property
    def linear(self) -> "_Factorised":
        """Both regressions if that of y is linear; counts are compared with it, and may turn out to be so."""
        return _Factorised(self, "linear")

    @cached_property
    def scored(self) -> Tensor:
        """Which rows (N) have observed values of x that are not the spike."""
        return self.observed if self.spike is None else self.observed & ~self.spike

    def density(self, mean: Tensor, spread: Tensor, odds: Tensor | None) -> Tensor:
        """Returns log densities (N) of the scores of x, or of their intervals, up to log(2π)/2.

        With log odds (N) of the spike it is the density of both parts.
        """
        exact = _log_normal(self.score, mean, spread)
        mass = ndtr((self.high - mean) / spread) - ndtr((self.low - mean) / spread)
        found = torch.where(self.high > self.low, mass.clamp(min=TINY).log() + _ROOT, exact)
        if odds is None:
            return found
        assert self.spike is not None
        return torch.where(self.spike, logsigmoid(odds) + _ROOT, logsigmoid(-odds) + found)

    def own_density(self) -> Tensor:
        """Returns the log densities (R) of the observed values of x by their regression on y and others."""
        full, score, odds = self.full[self.scored], self.score[self.scored], None
        coefficients = _solve(full.mT @ full, full.mT @ score)
        spread = (score - full @ coefficients).square().mean().sqrt()
        if self.spike is not None:
            share, weights = self.spike.to(torch.float64), self.observed.to(torch.float64)
            odds = self.full @ _fit_logistic(self.full, share, weights)
        return self.density(self.full @ coefficients, spread, odds)[self.observed]


class _Factorised:
    """The regressions of x without y, and of y on x, estimated by EM from all rows.

    Parameters
    ----------
    pair : _Pair
        Both columns.
    family : {"linear", "poisson"}
        The model of y.
    """

    def __init__(self, pair: _Pair, family: str) -> None:
        self.pair, self.family = pair, family
        known, self.others = pair.observed, pair.terms.clone()
        self.others[:, pair.place] = 0.0
        every = self.others[~known].unsqueeze(1).repeat(1, len(pair.values), 1)
        every[..., pair.place] = pair.values
        self.terms = torch.cat([pair.terms[known], every.flatten(0, 1)])
        self.y = torch.cat([pair.y[known], pair.y[~known].repeat_interleave(len(pair.values))])
        some = pair.rest[pair.scored]
        self.scale = torch.ones((), dtype=torch.float64)
        self.of_x = _solve(some.mT @ some, some.mT @ pair.score[pair.scored])
        self.spread = (pair.score[pair.scored] - some @ self.of_x).square().mean().sqrt()
        self.of_spike: Tensor | None = None
        if pair.spike is not None:
            self.of_spike = _fit_logistic(pair.rest, pair.spike.to(torch.float64), known.to(torch.float64))
        self.of_y = self.others.new_zeros(self.others.shape[1])
        self.of_y[0] = pair.y.mean().clamp(min=1e-3).log()
        weights = torch.zeros(len(self.y), dtype=torch.float64)
        weights[: int(known.sum())] = 1.0
        self._fit_outcome(weights, FIRST_STEPS)
        for _ in range(N_STEPS):
            self._step()

    def _index(self) -> Tensor:
        """Returns the linear predictors (N, K) of y on the grid of x."""
        return (self.others @ self.of_y).unsqueeze(-1) + self.of_y[self.pair.place] * self.pair.values

    def _of_y(self, y: Tensor, index: Tensor) -> Tensor:
        """Returns the log densities of outcomes at linear predictors."""
        if self.family == "linear":
            return _log_normal(y, index, self.scale) - _ROOT
        index = index.clamp(max=LARGEST_INDEX)
        return y * index - index.exp() - torch.lgamma(y + 1)

    def _odds(self) -> Tensor | None:
        """Returns the log odds (N) of the spike of x without y."""
        return None if self.of_spike is None else self.pair.rest @ self.of_spike

    def _joint(self) -> Tensor:
        """Returns the log densities (N, K) of both columns on the grid, up to log(2π)/2.

        The spike comes last, with its probability in units of the distance of the scores.
        """
        of_x, odds = _log_normal(GRID, (self.pair.rest @ self.of_x).unsqueeze(-1), self.spread), self._odds()
        if odds is not None:
            of_spike = logsigmoid(odds) + _ROOT - math.log(SPACING)
            of_x = torch.cat([of_x + logsigmoid(-odds).unsqueeze(-1), of_spike.unsqueeze(-1)], dim=1)
        return of_x + self._of_y(self.pair.y.unsqueeze(-1), self._index())

    def _step(self) -> None:
        """Computes the weights of the grid where x is missing, then both regressions."""
        pair, known = self.pair, self.pair.observed
        shares = torch.softmax(self._joint(), dim=1)
        of_grid, weight = shares[:, : len(GRID)], torch.ones(len(shares), dtype=torch.float64)
        if pair.spike is not None:
            spiked = torch.where(known, pair.spike.to(torch.float64), shares[:, -1])
            weight, of_grid = 1 - spiked, of_grid / of_grid.sum(dim=1, keepdim=True).clamp(min=TINY)
            self.of_spike = _fit_logistic(pair.rest, spiked, torch.ones_like(spiked), self.of_spike)
        mean = torch.where(known, pair.score, of_grid @ GRID)
        variance = torch.where(known, 0.0, of_grid @ GRID.square() - mean.square())
        weighted = pair.rest * weight.unsqueeze(-1)
        self.of_x = _solve(weighted.mT @ pair.rest, weighted.mT @ mean)
        squares = (mean - pair.rest @ self.of_x).square() + variance
        self.spread = (weight @ squares / weight.sum()).sqrt()
        one = torch.ones(int(known.sum()), dtype=torch.float64)
        self.weights = torch.cat([one, shares[~known].flatten()])
        self._fit_outcome(self.weights, 1)

    def _fit_outcome(self, weights: Tensor, n_steps: int) -> None:
        if self.family == "linear":
            weighted = self.terms * weights.unsqueeze(-1)
            self.of_y = _solve(weighted.mT @ self.terms, weighted.mT @ self.y)
            squares = weights @ (self.y - self.terms @ self.of_y).square()
            self.scale = (squares / weights.sum()).sqrt()
            return
        for _ in range(n_steps):
            mean = weights * (self.terms @ self.of_y).clamp(max=LARGEST_INDEX).exp()
            precision = (self.terms * mean.unsqueeze(-1)).mT @ self.terms
            self.of_y = self.of_y + _solve(precision, self.terms.mT @ (weights * self.y - mean))

    def density(self) -> Tensor:
        """Returns the log densities (R) of the observed values of x given y and the others."""
        if float(self.spread) < LEAST_SPREAD:
            return torch.full((int(self.pair.observed.sum()),), -torch.inf, dtype=torch.float64)
        return (self._with_known() - self._integrated())[self.pair.observed]

    def log_likelihood(self) -> float:
        """Returns the log density of all that is known of both columns."""
        return float(torch.where(self.pair.observed, self._with_known(), self._integrated()).sum())

    def _with_known(self) -> Tensor:
        """Returns the log densities (N) of x and y, up to log(2π)/2."""
        pair = self.pair
        of_x = pair.density(pair.rest @ self.of_x, self.spread, self._odds())
        return of_x + self._of_y(pair.y, pair.terms @ self.of_y)

    def _integrated(self) -> Tensor:
        """Returns the log densities (N) of y, whatever x is."""
        return self._joint().logsumexp(dim=1) + math.log(SPACING) - _ROOT

    def dispersion(self) -> float:
        """Returns the mean squared residual of counts, in units of their variance."""
        mean = (self.terms @ self.of_y).clamp(max=LARGEST_INDEX).exp()
        return float(
            self.weights @ ((self.y - mean).square() / mean) / (len(self.pair.y) - self.terms.shape[1])
        )


_ROOT = 0.5 * math.log(2 * math.pi)


def _log_normal(z: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Returns log densities of normal distributions, up to log(2π)/2."""
    return -0.5 * ((z - mean) / spread).square() - spread.log()


def _fit_logistic(design: Tensor, share: Tensor, weights: Tensor, start: Tensor | None = None) -> Tensor:
    """Returns the coefficients (P) of a logistic regression of shares (N) by Newton's method.

    The prior is that of the regressions of levels, so that separation does no harm.
    """
    found = torch.zeros(design.shape[1], dtype=torch.float64) if start is None else start
    for _ in range(FIRST_STEPS if start is None else 1):
        chance = torch.sigmoid(design @ found)
        slope = design.mT @ (weights * (share - chance)) - found / PRIOR_SCALE**2
        precision = (design * (weights * chance * (1 - chance)).unsqueeze(-1)).mT @ design
        found = found + torch.linalg.solve(precision + torch.eye(len(found)) / PRIOR_SCALE**2, slope)
    return found


def _solve(gram: Tensor, cross: Tensor) -> Tensor:
    found: Tensor = torch.linalg.solve(gram + torch.diag(RIDGE * gram.diagonal() + TINY), cross)
    return found
