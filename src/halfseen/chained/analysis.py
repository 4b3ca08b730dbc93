r"""Draws of covariates that are compatible with an analysis, such as one with interactions or powers.

Given a model :math:`p(y \mid x, \psi)` of the outcome and a model :math:`f(x_c \mid x_{\setminus c})` of a
covariate without the outcome, missing values of the covariate have the density

.. math:: p(x_c \mid y, x_{\setminus c}) \propto f(x_c \mid x_{\setminus c}) \, p(y \mid x, \psi) .

For survival times, p is the density of a Cox model (`halfseen.chained.cox`). Levels are enumerated. For
numbers, the density is evaluated at nodes, a value is proposed from the histogram that they define, and it
replaces the current one with the probability of Metropolis and Hastings, which leaves the density invariant;
so do a few Metropolis steps that follow. A frequent value with a probability of its own (`Spike`) is one
more candidate beside the nodes.

References
----------
Bartlett, Seaman, White & Carpenter (2015), Multiple imputation of covariates by fully conditional
specification: accommodating the substantive model; Ritter & Tanner (1992), Facilitating the Gibbs sampler:
the Gibbs stopper and the griddy-Gibbs sampler; Hastings (1970), for the acceptance of proposals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import pdtrik
from torch import Tensor
from torch.special import ndtri

from halfseen.chained.cox import CoxModel, CumulativeHazard, RiskSets
from halfseen.chained.effects import (
    FIRST_SWEEPS,
    SWEEPS,
    EffectDraw,
    GroupedRows,
    MixedRegression,
    cross_products,
)
from halfseen.chained.formula import SubstantiveModel
from halfseen.chained.inputs import (
    InputColumn,
    Inputs,
    Prediction,
    Role,
    decode_scores,
    score_codes,
    score_intervals,
)
from halfseen.chained.mixed_outcome import MixedOutcome
from halfseen.chained.regressions import (
    EDGE,
    LogisticPosterior,
    Model,
    MultinomialModel,
    Noise,
    PoissonModel,
    draw_between,
    draw_linear,
    find_mode,
    follow_mode,
)
from halfseen.data.features import FeatureMap
from halfseen.data.schema import Column

# Nodes of scores, in deviations of the model without the outcome, and scales of further Metropolis steps, for
# peaks between two nodes. Both are guesses: five cycles suffice for values 3.5 deviations from the mean, and
# do not if candidates are drawn from that model (`tests/chained/test_analysis.py`).
NODES = torch.linspace(-6.0, 6.0, 41, dtype=torch.float64)
GAP = float(NODES[1] - NODES[0])
LOG_ROOT = 0.5 * math.log(2 * math.pi)
LEAST_SHARE = 1e-12  # of an interval, so that values which are no longer probable are always left
STEPS = (0.3, 0.1)
N_UNIFORMS = 4 + 2 * len(STEPS)  # per cell
TERMS_AT_ONCE = 2**22  # of the analysis at nodes, in memory: 32 MB
FLAT = 1e-3  # precision of the coefficients of the analysis, in rows: nearly flat
OUTCOME_FIELDS = ("coefficients", "scale", "loc", "unit")


@dataclass(frozen=True)
class OutcomeDraw:
    """Parameters of the analysis in every chain.

    Shapes
    ------
    coefficients : (S, Q), of standardised terms.
    scale : (S), the residual standard deviations of a linear analysis.
    loc, unit : (Q), the standardisation of the terms.
    hazard : the cumulative baseline hazards of a Cox model, whose constant is 0.
    effects : the effects of groups on the linear predictor.
    """

    coefficients: Tensor
    scale: Tensor
    loc: Tensor
    unit: Tensor
    hazard: CumulativeHazard | None = None
    effects: EffectDraw | None = None

    @classmethod
    def joined(cls, parts: Sequence["OutcomeDraw"]) -> "OutcomeDraw":
        """Returns the parameters of several groups of chains together."""
        coefficients, scale = (
            torch.cat([getattr(one, name) for one in parts]) for name in OUTCOME_FIELDS[:2]
        )
        hazards = [one.hazard for one in parts if one.hazard is not None]
        values = torch.cat([one.values for one in hazards]) if hazards else None
        hazard = None if values is None else CumulativeHazard(hazards[0].times, values)
        effects = [one.effects for one in parts if one.effects is not None]
        several = EffectDraw.joined(effects) if effects else None
        return cls(coefficients, scale, parts[0].loc, parts[0].unit, hazard, several)

    def state(self) -> dict[str, Tensor]:
        """Returns every tensor, by name."""
        found = {name: getattr(self, name) for name in OUTCOME_FIELDS}
        if self.hazard is not None:
            found |= {f"hazard.{name}": tensor for name, tensor in vars(self.hazard).items()}
        if self.effects is not None:
            found |= {f"effects.{name}": tensor for name, tensor in vars(self.effects).items()}
        return {f"analysis.{name}": tensor for name, tensor in found.items()}

    @classmethod
    def from_state(
        cls, state: Mapping[str, Tensor], analysis: SubstantiveModel, n_chains: int
    ) -> "OutcomeDraw":
        """Rebuilds the parameters from what `state` returned, and checks them."""
        tensors = [state[f"analysis.{name}"] for name in OUTCOME_FIELDS]
        hazard = None
        if analysis.family == "cox":
            hazard = CumulativeHazard(state["analysis.hazard.times"], state["analysis.hazard.values"])
            hazard.check(n_chains)
        coefficients, scale, loc, unit = tensors
        effects = None
        if "analysis.effects.values" in state:
            effects = EffectDraw(state["analysis.effects.values"], state["analysis.effects.covariance"])
        found = cls(coefficients, scale, loc, unit, hazard, effects)
        found.check(analysis, n_chains)
        return found

    def check(self, analysis: SubstantiveModel, n_chains: int) -> None:
        """Raises a ValueError unless the tensors fit an analysis and the number of chains."""
        one = [torch.zeros(1, dtype=torch.float64)] * len(analysis.names)
        width = analysis.design(one).shape[-1]
        tensors = [getattr(self, name) for name in OUTCOME_FIELDS]
        shapes = [tuple(tensor.shape) for tensor in tensors]
        floats = all(tensor.dtype == torch.float64 for tensor in tensors)
        if shapes != [(n_chains, width), (n_chains,), (width,), (width,)] or not floats:
            raise ValueError("The parameters of the analysis do not fit its terms.")
        if self.effects is not None and not self.effects.fits(n_chains, 1):
            raise ValueError("The effects of groups on the outcome do not fit the chains.")
        if not bool((self.unit > 0).all()) or not bool((self.scale >= 0).all()):
            raise ValueError("The scales of the analysis are not positive.")

    def of(self, which: Tensor) -> "OutcomeDraw":
        """Returns the parameters of some chains."""
        hazard = None if self.hazard is None else self.hazard.of(which)
        effects = None if self.effects is None else self.effects.of(which)
        return OutcomeDraw(self.coefficients[which], self.scale[which], self.loc, self.unit, hazard, effects)

    def index(self, design: Tensor) -> Tensor:
        """Returns the linear predictor (S, *) of a design (S, *, Q)."""
        scaled = (design - self.loc) / self.unit
        shape = (len(self.coefficients), *[1] * (design.ndim - 2), -1)
        return (scaled * self.coefficients.reshape(shape)).sum(dim=-1)


@dataclass(frozen=True)
class Response:
    """The outcomes of rows: y, and for survival times events and the cumulative baseline hazards at them.

    Shapes
    ------
    y : (S, R, 1), numbers, counts, levels, or whether there was an event.
    exposure : (S, R, 1), what the expected number of events is proportional to.
    offset : (S, R, 1), the effects of groups on the linear predictor.
    """

    y: Tensor
    exposure: Tensor | float = 1.0
    offset: Tensor | float = 0.0

    def of(self, rows: slice) -> "Response":
        """Returns the outcomes of some rows."""
        y, *others = (one[:, rows] if isinstance(one, Tensor) else one for one in vars(self).values())
        assert isinstance(y, Tensor)
        return Response(y, *others)


class CompatibleModel:
    """The analysis within chained equations: draws of its parameters, its covariates and its outcome.

    Parameters
    ----------
    analysis : SubstantiveModel
        The analysis.
    columns : sequence of Column
        The modelled columns.
    inputs : Inputs
        Of the regressions.
    units : pair of Tensor
        (Q), the means and deviations by which the terms of the analysis are standardised.
    groups : GroupedRows, optional
        The groups of the rows of `fit`, if they have effects on the outcome.
    """

    def __init__(
        self,
        analysis: SubstantiveModel,
        columns: Sequence[Column],
        inputs: Inputs,
        units: tuple[Tensor, Tensor],
        groups: GroupedRows | None = None,
    ) -> None:
        self.groups = groups
        self.mixed: MixedRegression | None = None
        self.mixed_outcome: MixedOutcome | None = None
        self.analysis, self.columns, self.inputs, self.units = analysis, columns, inputs, units
        self.posterior: LogisticPosterior | None = None
        self.risk: RiskSets | None = None

    def is_covariate(self, c: int) -> bool:
        """Returns whether a column is a covariate of the analysis."""
        return c in self.analysis.covariates

    def concerns(self, c: int) -> bool:
        """Returns whether draws of a column use the analysis: covariates, and outcomes other than times."""
        return self.is_covariate(c) or (c == self.analysis.outcome and self.analysis.family != "cox")

    def draw_parameters(self, completed: Tensor, noise: Noise) -> OutcomeDraw:
        """Draws the parameters of the analysis of completed codes (S, N, C)."""
        loc, unit = self.units
        design = (self.analysis.design(completed.unbind(-1)) - loc) / unit
        y, width = completed[..., self.analysis.outcome], design.shape[-1]
        prior = torch.full((width,), FLAT, dtype=torch.float64)
        if self.analysis.family == "linear":
            centre, size = y.mean(dim=1, keepdim=True), y.std(dim=1, keepdim=True)
            size = torch.where(size > 0, size, 1.0)
            every, places = torch.ones(y.shape[1], dtype=torch.bool), torch.arange(width)
            scaled = (y - centre) / size
            if self.groups is not None:
                return self._draw_mixed_linear(design, scaled, (centre, size), prior, self.groups, noise)
            drawn = draw_linear(design.mT @ design, design, places, scaled, every, prior, noise)
            coefficients = drawn.coefficients * size
            coefficients[:, :1] += centre
            return OutcomeDraw(coefficients, drawn.scale * size[:, 0], loc, unit)
        if self.analysis.family == "cox":
            return self._draw_cox(completed, design, prior, noise)
        model: Model = (
            PoissonModel(y, prior)
            if self.analysis.family == "poisson"
            else MultinomialModel(1 - y.long(), 2, prior)  # the last level is the reference
        )
        if self.groups is not None:
            return self._draw_mixed(model, design, y, prior, self.groups, noise)
        found = self._draw_coefficients(model, design, noise)
        return OutcomeDraw(found, torch.ones(len(y), dtype=torch.float64), loc, unit)

    def _draw_mixed(
        self, model: Model, design: Tensor, y: Tensor, prior: Tensor, groups: GroupedRows, noise: Noise
    ) -> OutcomeDraw:
        """Draws the parameters of a logistic or Poisson analysis with effects of groups on the outcome."""
        n_sweeps = SWEEPS
        if self.mixed_outcome is None:
            n_sweeps, start = FIRST_SWEEPS, find_mode(model, design)
            self.mixed_outcome = MixedOutcome(groups, self.analysis.family, prior, start)
        for _ in range(n_sweeps):
            self.mixed_outcome.sweep(design, y, noise)
        drawn, scale = self.mixed_outcome, torch.ones(len(y), dtype=torch.float64)
        return OutcomeDraw(drawn.coefficients, scale, *self.units, None, drawn.drawn())

    def _draw_mixed_linear(
        self,
        design: Tensor,
        scaled: Tensor,
        units: tuple[Tensor, Tensor],
        prior: Tensor,
        groups: GroupedRows,
        noise: Noise,
    ) -> OutcomeDraw:
        """Draws the parameters of a linear analysis with effects of groups on the outcome (S, N)."""
        centre, size = units
        every, places = torch.ones(1, scaled.shape[1], dtype=torch.bool), torch.arange(design.shape[-1])
        n_sweeps = SWEEPS
        if self.mixed is None:
            self.mixed, n_sweeps = (
                MixedRegression(groups, every, prior, len(design), latent=False),
                FIRST_SWEEPS,
            )
        products = cross_products(design.mT @ design, design, places, groups, every)
        for _ in range(n_sweeps):
            self.mixed.sweep(products, design, places, scaled, noise)
        coefficients = self.mixed.coefficients * size
        coefficients[:, :1] += centre
        scale, unit = self.mixed.variance.sqrt() * size[:, 0], size[:, :, None]
        effects = self.mixed.effects * unit, self.mixed.covariance * unit.square()
        found = EffectDraw(*(one.unsqueeze(1) for one in effects))
        return OutcomeDraw(coefficients, scale, *self.units, None, found)

    def _draw_coefficients(self, model: Model, design: Tensor, noise: Noise) -> Tensor:
        before = self.posterior
        if before is None:
            mode = find_mode(model, design)
            before = LogisticPosterior(mode, mode)
        self.posterior = follow_mode(model, design, before, refresh=True)
        return self.posterior.draw(noise)

    def _draw_cox(self, completed: Tensor, design: Tensor, prior: Tensor, noise: Noise) -> OutcomeDraw:
        if self.risk is None:
            time, event = completed[0, :, self.analysis.outcome], self._events(completed)[0]
            self.risk = RiskSets.of(time, event)
        before = None if self.posterior is None else self.posterior.mode
        model, inputs = CoxModel(self.risk, prior[1:], before), design[..., 1:]
        # Partial likelihoods may be far from quadratic, so every step has to increase the density
        mode = find_mode(model, inputs)
        factor = torch.linalg.cholesky(model.precision(inputs, model.gradient(inputs, mode)[1]))
        self.posterior = LogisticPosterior(mode, factor)
        drawn = self.posterior.draw(noise)
        hazard = model.draw_hazard(inputs, drawn, noise)
        coefficients = torch.nn.functional.pad(drawn, (1, 0))  # the constant belongs to the hazard
        return OutcomeDraw(coefficients, torch.ones(len(drawn), dtype=torch.float64), *self.units, hazard)

    def _events(self, cells: Tensor) -> Tensor:
        """Returns 1 for events and 0 for censored rows, from cells (*, C)."""
        if self.analysis.event is None:
            return torch.ones_like(cells[..., 0])
        return (cells[..., self.analysis.event] > 0.5).to(torch.float64)

    def response(self, cells: Tensor, drawn: OutcomeDraw, offset: Tensor | None = None) -> Response:
        """Returns what is known of the outcomes of rows (S, R, C), with effects of their groups (S, R)."""
        y = cells[..., self.analysis.outcome]
        if drawn.hazard is None:
            return Response(y.unsqueeze(-1), offset=0.0 if offset is None else offset.unsqueeze(-1))
        return Response(self._events(cells).unsqueeze(-1), drawn.hazard.at(y).unsqueeze(-1))

    def log_density(self, response: Response, index: Tensor, drawn: OutcomeDraw) -> Tensor:
        """Returns the log density (S, *) of outcomes with this linear predictor, up to a constant per row."""
        y, index = response.y, index + response.offset
        if self.analysis.family == "linear":
            scale = drawn.scale.reshape(-1, *[1] * (index.ndim - 1))
            return -0.5 * ((y - index) / scale).square()
        if self.analysis.family in ("poisson", "cox"):
            return y * index - response.exposure * index.exp()
        return torch.nn.functional.logsigmoid(torch.where(y > 0.5, index, -index))

    def draw_cells(
        self,
        c: int,
        cells: Tensor,
        predicted: Prediction,
        scores: Tensor | None,
        drawn: OutcomeDraw,
        margins: Sequence[FeatureMap],
        uniforms: Tensor,
        offset: Tensor | None = None,
    ) -> tuple[Tensor, Prediction, Tensor | None]:
        """Draws cells (S, R) of a column of the analysis.

        Parameters
        ----------
        c : int
            The position of the column.
        cells : Tensor
            (S, R, C), the rows with their current codes.
        predicted : Prediction
            The prediction of a covariate without the outcome, as of `Parameters.predict`.
        scores : Tensor or None
            (S, R), the current scores of a number; by default they follow from its codes.
        drawn : OutcomeDraw
            The parameters of the analysis.
        margins : sequence of FeatureMap
            The features of each chain.
        uniforms : Tensor
            (S, R, N_UNIFORMS), the source of noise.
        offset : Tensor, optional
            (S, R), the effects of groups on the outcome.

        Returns
        -------
        codes, prediction, scores
            The codes that were drawn, the prediction given the outcome, and the scores of a number.
        """
        column = self.inputs.columns[c]
        if c == self.analysis.outcome:
            return self._draw_outcome(column, cells, drawn, margins, uniforms, offset)
        y = self.response(cells, drawn, offset)
        others = [cells[..., k].unsqueeze(-1) for k in range(cells.shape[-1])]
        if column.role != Role.NUMBER:
            return self._draw_levels(column, others, y, predicted[0], drawn, uniforms[..., 0])
        if scores is None:
            # Those of a value that has an interval of scores are drawn, given the value, from the model
            low, high = score_intervals(column, cells[..., c], margins)
            among = draw_between(predicted.first, predicted.spread, low, high, uniforms[..., -2])
            scores = torch.where(high > low, among, low)
        shares = self._share_nodes(column, others, y, predicted, drawn, margins)
        of_nodes, spike = shares[..., : len(NODES)], None
        if column.spike is not None:
            spike = shares[..., -1]
            of_nodes = of_nodes / of_nodes.sum(dim=-1, keepdim=True)
        mean = (of_nodes * NODES).sum(dim=-1)
        square = (of_nodes * NODES.square()).sum(dim=-1) - mean.square()
        given = Prediction(
            predicted.first + predicted.spread * mean, predicted.spread * square.clamp(min=0.0).sqrt(), spike
        )
        picked, found = self._step(
            column, others, y, scores.unsqueeze(-1), predicted, shares, drawn, margins, uniforms
        )
        return found, given, picked

    def _share_nodes(
        self,
        column: InputColumn,
        others: Sequence[Tensor],
        y: Response,
        predicted: Prediction,
        drawn: OutcomeDraw,
        margins: Sequence[FeatureMap],
    ) -> Tensor:
        """Returns the probabilities (S, R, K) of intervals of scores around nodes; some rows at a time.

        That of the spike, if there is one, comes last.
        """
        c, (n_chains, n_rows) = column.position, predicted.first.shape
        size = max(1, TERMS_AT_ONCE // (n_chains * len(NODES) * drawn.coefficients.shape[1]))
        has_spike = column.spike is not None
        found = torch.empty(n_chains, n_rows, len(NODES) + has_spike, dtype=torch.float64)
        for rows in (slice(start, start + size) for start in range(0, n_rows, size)):
            centre, spread = (part[:, rows].unsqueeze(-1) for part in predicted[:2])
            places, cells = centre + spread * NODES, [cell[:, rows] for cell in others]
            codes = decode_scores(self.columns[c], column, places.flatten(1), margins)
            cells[c], weights = codes.reshape(places.shape), -0.5 * NODES.square()
            if column.spike is not None:
                assert predicted.spike is not None
                cells[c] = torch.nn.functional.pad(cells[c], (0, 1), value=column.spike.value)
                of_spike = _log_odds(predicted.spike[:, rows].unsqueeze(-1)) - math.log(GAP)
                weights = torch.cat([weights.expand(places.shape), of_spike], dim=-1)
            logs = self._log_weights(cells, y.of(rows), drawn) + weights
            found[:, rows] = torch.softmax(logs, dim=-1) + LEAST_SHARE
        return found / found.sum(dim=-1, keepdim=True)

    def _step(
        self,
        column: InputColumn,
        cells: list[Tensor],
        y: Response,
        scores: Tensor,
        predicted: Prediction,
        shares: Tensor,
        drawn: OutcomeDraw,
        margins: Sequence[FeatureMap],
        uniforms: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Returns scores and codes (S, R) of a number after Metropolis-Hastings steps.

        The first one proposes a value by the probabilities (S, R, K) of intervals around nodes and of the
        spike, the others move the value a little, unless it is the spike.
        """
        c = column.position
        centre, spread = (part.unsqueeze(-1) for part in predicted[:2])
        odds = None if predicted.spike is None else _log_odds(predicted.spike.unsqueeze(-1))

        def density(z: Tensor) -> Tensor:
            index = drawn.index(self.analysis.design(cells))
            outcome, own = self.log_density(y, index, drawn), -0.5 * ((z - centre) / spread).square()
            own = own if odds is None else torch.where(column.is_spike(cells[c]), odds, own)
            return torch.where(outcome.isnan(), -torch.inf, outcome) + own

        current, codes = density(scores), cells[c]
        for number in range(len(STEPS) + 1):
            noise, chance = uniforms[..., 2 * number, None], uniforms[..., 2 * number + 1, None]
            if number == 0:
                node = _choose(shares, uniforms[..., -1])
                standard = _draw_near(node.clamp(max=len(NODES) - 1), noise)
                tried, before = centre + spread * standard, (scores - centre) / spread
                is_spike, was_spike = node == len(NODES), column.is_spike(codes)
                ratio = _log_proposed(shares, before, was_spike) - _log_proposed(shares, standard, is_spike)
            else:
                tried, ratio = scores + STEPS[number - 1] * spread * ndtri(noise), torch.zeros_like(noise)
                is_spike = column.is_spike(codes)
            cells[c] = decode_scores(self.columns[c], column, tried.squeeze(-1), margins).unsqueeze(-1)
            cells[c] = column.with_spike(cells[c], is_spike)
            new = density(tried)
            accepted = (chance.log() < new - current + ratio) | (current == -torch.inf)
            scores, current = torch.where(accepted, tried, scores), torch.where(accepted, new, current)
            codes = torch.where(accepted, cells[c], codes)
        return scores.squeeze(-1), codes.squeeze(-1)

    def _weights(self, cells: Sequence[Tensor], y: Response, drawn: OutcomeDraw) -> Tensor:
        """Returns the probabilities (S, R, K) of candidates, proportional to the density of the outcome."""
        return torch.softmax(self._log_weights(cells, y, drawn), dim=-1)

    def _log_weights(self, cells: Sequence[Tensor], y: Response, drawn: OutcomeDraw) -> Tensor:
        """Returns the logarithms of these probabilities, up to a constant per row."""
        index = drawn.index(self.analysis.design(cells))
        logs = self.log_density(y, index, drawn)
        logs = torch.where(logs.isnan(), -torch.inf, logs)
        return torch.where(logs.amax(dim=-1, keepdim=True).isinf(), 0.0, logs)  # no candidate is possible

    def _draw_levels(
        self,
        column: InputColumn,
        cells: list[Tensor],
        y: Response,
        before: Tensor,
        drawn: OutcomeDraw,
        uniforms: Tensor,
    ) -> tuple[Tensor, Prediction, None]:
        block = column.block
        if block is None:
            codes, prior = column.values, before
        else:
            codes = torch.arange(len(block.group), dtype=torch.float64)
            prior = before[..., block.group] * block.share
        cells[column.position] = codes.expand(*prior.shape)
        shares = prior * self._weights(cells, y, drawn)
        shares = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-300)
        found = codes[_choose(shares, uniforms).squeeze(-1)]
        if block is not None:
            groups = torch.zeros_like(before)
            shares = groups.index_add(-1, block.group, shares)
        return found, Prediction(shares, shares), None

    def _draw_outcome(
        self,
        column: InputColumn,
        cells: Tensor,
        drawn: OutcomeDraw,
        margins: Sequence[FeatureMap],
        uniforms: Tensor,
        offset: Tensor | None,
    ) -> tuple[Tensor, Prediction, Tensor | None]:
        index = drawn.index(self.analysis.design(cells.unbind(-1)))
        index = index if offset is None else index + offset
        first = uniforms[..., 0]
        if self.analysis.family == "logistic":
            chance = torch.sigmoid(index)
            shares = torch.stack([1 - chance, chance], dim=-1)
            groups = shares if column.block is None else shares[..., torch.argsort(column.block.group)]
            return (first > 1 - chance).to(torch.float64), Prediction(groups, groups), None
        if self.analysis.family == "linear":
            values = index.unsqueeze(-1) + drawn.scale[:, None, None] * ndtri(uniforms)
        else:
            mean = index.clamp(max=50.0).exp().unsqueeze(-1).expand(uniforms.shape)
            values = torch.from_numpy(np.ceil(pdtrik(uniforms.numpy(), mean.numpy())).clip(min=0.0))
        codes = torch.from_numpy(self.columns[column.position].constrain(values.numpy()))
        if column.role == Role.ORDERED:
            level = column.level_of(codes).unsqueeze(-1) == torch.arange(column.n_levels)
            shares = level.to(torch.float64).mean(dim=-2)
            return codes[..., 0], Prediction(shares, shares), None
        scores = score_codes(column, codes.flatten(1), margins).reshape(codes.shape)
        given = Prediction(scores.mean(dim=-1), scores.std(dim=-1))
        return codes[..., 0], given, scores[..., 0]


def _choose(shares: Tensor, uniforms: Tensor) -> Tensor:
    """Returns positions (*, 1) drawn from probabilities (*, K) by uniforms (*)."""
    reached = uniforms.unsqueeze(-1) * shares.sum(dim=-1, keepdim=True) >= shares.cumsum(dim=-1)
    return reached[..., :-1].sum(dim=-1, keepdim=True)


def _log_odds(spike: Tensor) -> Tensor:
    """Returns the log density of spikes (*) with these probabilities, relative to that of normal scores."""
    return torch.logit(spike, eps=EDGE) + LOG_ROOT


def _draw_near(place: Tensor, noise: Tensor) -> Tensor:
    """Returns numbers (*, 1) in intervals around the nodes with these positions, by uniforms.

    Within an interval the distribution is uniform, and exponential beyond the first and the last one.
    """
    node = NODES[place]
    tail = NODES[-1] - 0.5 * GAP - GAP * torch.log1p(-noise)
    inner = node + GAP * (noise - 0.5)
    return torch.where(node == NODES[0], -tail, torch.where(node == NODES[-1], tail, inner))


def _log_proposed(shares: Tensor, standard: Tensor, is_spike: Tensor) -> Tensor:
    """Returns the log density of these draws (*, 1), or of the spike, in units of the distance of nodes."""
    node = ((standard - NODES[0]) / GAP).round().clamp(0, len(NODES) - 1).long()
    beyond = (standard.abs() - NODES[-1] + 0.5 * GAP).clamp(min=0.0) / GAP
    found = shares.gather(-1, node).log() - beyond
    return torch.where(is_spike, shares[..., -1:].log() + math.log(GAP), found)
