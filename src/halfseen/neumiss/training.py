"""Fits the NeuMiss predictor: the joint Gaussian, the model of missingness, the networks, the calibration.

Each step is a function of its inputs; `fit_neumiss` calls them in order.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from halfseen.base.predictor import HeldOutErrors
from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.em import EMSettings
from halfseen.gaussian.em_self_masked import OFFERED, fit_masked_gaussian
from halfseen.gaussian.self_masked import JointGaussian, condition, only_features, with_scores
from halfseen.neumiss.model import (
    Calibration,
    CorrectedPrediction,
    Correction,
    CorrectionRows,
    EnsembleMLP,
    FirstPrediction,
    HeadInputs,
    NeuMissModel,
    NormalScores,
    with_normal_scores,
)
from halfseen.training.logistic import LogisticLink, fit_blend, fit_logistic
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import History, Progress
from halfseen.training.step import AlignedRows, Objective
from halfseen.training.supervised import CrossEntropy, Labelled, SquaredError
from halfseen.words import Missingness

AUTO = "auto"
TRIAL_ROWS = 4000  # number of rows that suffices to compare models of missingness
SMALLEST_TRIAL = 200  # with fewer rows, no model of missingness other than MAR is tried
LAST_STEPS = 4  # number of EM steps when held-out rows are added to the fit
IQR = 1.349  # interquartile range of a standard normal
REACH = 6.0  # robust standard deviations from the median beyond which values may be clipped
LOGISTIC_ROUNDS = 3  # number of alternations between scores and their variances


@dataclass(frozen=True)
class SupervisedRows(AlignedRows):
    """Incomplete features (N, D), targets for the joint Gaussian (N, J), targets, and weights (N)."""

    batch: Incomplete
    joint: Tensor
    target: Tensor
    weights: Tensor

    @property
    def joined(self) -> Incomplete:
        """Features and targets together; all targets are observed."""
        return self.batch.beside(Incomplete(self.joint, torch.ones(self.joint.shape, dtype=torch.bool)))

    def clipped(self, bounds: Tensor) -> "SupervisedRows":
        """Returns the rows with features (N, D) clipped to the bounds (2, D)."""
        if bool(bounds.isinf().all()):
            return self
        return replace(self, batch=Incomplete(self.batch.x.clamp(*bounds), self.batch.observed))


class PredictionTask(Protocol):
    """The operations that differ between numeric targets and classes."""

    @property
    def objective(self) -> Objective[Any, Any]:
        """The loss of the networks."""
        ...

    def fit_link(self, joint: JointGaussian, rows: SupervisedRows) -> LogisticLink | None:
        """Returns the map from conditional moments to predictions, None if the joint Gaussian predicts."""
        ...

    def calibrate(
        self, head: HeadInputs, correction: Tensor | None, rows: SupervisedRows, *, full: bool
    ) -> Calibration:
        """Returns the combination of first prediction and correction (N, T) that is best on held-out rows."""
        ...


class Regression:
    """Targets are numbers, which the joint Gaussian predicts itself."""

    objective = SquaredError()

    def fit_link(self, joint: JointGaussian, rows: SupervisedRows) -> None:
        """Returns None."""

    def calibrate(
        self, head: HeadInputs, correction: Tensor | None, rows: SupervisedRows, *, full: bool
    ) -> Calibration:
        """Weights the correction by least squares, and keeps quantiles of the relative errors."""
        residual, weight = rows.target - head.base, 0.0
        if correction is not None:
            row_weights = rows.weights[:, None]
            size = (row_weights * correction.square()).sum().clamp(min=1e-12)
            best = float((row_weights * correction * residual).sum() / size)
            weight = 1.0 if full else min(1.0, max(0.0, best))
            residual = residual - weight * correction
        relative = residual / head.spread.clamp(min=1e-9)
        return Calibration(weight, 1.0, HeldOutErrors.of(relative, rows.weights))


@dataclass(frozen=True)
class Classification:
    """Targets are classes 0, 1, ..., predicted by linear scores of the conditional moments."""

    n_classes: int
    objective = CrossEntropy()

    def fit_link(self, joint: JointGaussian, rows: SupervisedRows) -> LogisticLink:
        """Fits the scores; their variances are those that the scores of the round before have."""
        features = only_features(joint, rows.batch.n_features)
        mean, _ = condition(features, rows.batch, 0)
        n_scores = 1 if self.n_classes == 2 else self.n_classes
        variance = torch.zeros(len(rows), n_scores, dtype=mean.dtype)
        link: LogisticLink | None = None
        for _ in range(1 if bool(rows.batch.observed.all()) else LOGISTIC_ROUNDS):
            link = fit_logistic(
                mean - features.loc, variance, rows.target, self.n_classes, weights=rows.weights, start=link
            )
            scored = with_scores(features, link.weights)
            variance = condition(scored, rows.batch, n_scores)[1][:, -n_scores:]
        assert link is not None
        return link

    def calibrate(
        self, head: HeadInputs, correction: Tensor | None, rows: SupervisedRows, *, full: bool
    ) -> Calibration:
        """Finds the weight of the correction and the temperature of the first logits."""
        share, weight = fit_blend(head.base, correction, rows.target, weights=rows.weights, full=full)
        none = torch.zeros(0, 0, dtype=torch.float64)
        return Calibration(weight, 1 / share, HeldOutErrors(none, len(rows)))


@dataclass(frozen=True)
class NeuMissSettings:
    """The settings of the fit; see the parameters of `NeuMissRegressor`."""

    missingness: str
    head: str
    n_networks: int
    width: int
    em: EMSettings
    training: TrainingSettings


@dataclass(frozen=True)
class NeuMissFit:
    """The fitted model, the chosen model of missingness, held-out errors, and the course of training."""

    model: NeuMissModel
    missingness: str
    validation_errors: dict[str, float]
    history: History


def fit_neumiss(
    train: SupervisedRows,
    held: SupervisedRows | None,
    task: PredictionTask,
    settings: NeuMissSettings,
    *,
    may_hide: Tensor,
    n_numbers: int,
    generator: torch.Generator,
    callback: Callable[[Progress], None] | None = None,
) -> NeuMissFit:
    """Fits the joint Gaussian to training rows, trains networks on its predictions, and calibrates both.

    Parameters
    ----------
    train, held : SupervisedRows
        Rows to fit, and rows that choose the model of missingness, stop the training and calibrate. Without
        held-out rows the joint Gaussian is used alone.
    task : PredictionTask
        Regression or classification.
    settings : NeuMissSettings
        What to fit.
    may_hide : Tensor
        (D), the features whose values may influence whether they are missing.
    n_numbers : int
        The number of numeric features; they come first.
    generator : torch.Generator
        Draws initial weights and batches.
    callback : callable, optional
        Called after each epoch of the networks.
    """
    fitter = _JointFitter(may_hide, settings.em, generator)
    bounds = _no_bounds(train.batch)
    if held is None:
        missingness = Missingness.MAR.value if settings.missingness == AUTO else settings.missingness
        first = _first_prediction(fitter(train, missingness), None, task, train, train, bounds)
        model = NeuMissModel(first, None, Calibration.none(train.joint.shape[1]))
        return NeuMissFit(model, missingness, {}, History())
    bounds = _choose_bounds(train, held, fitter, n_numbers)
    train, held = train.clipped(bounds), held.clipped(bounds)
    everything = _concatenated(train, held)
    joint, missingness, errors = _choose_missingness(train, held, settings.missingness, fitter, everything)
    first = _first_prediction(joint, None, task, train, everything, bounds)
    correction, history = None, History()
    if settings.head != "linear":
        correction, history = _fit_correction(
            first, train, held, task, settings, n_numbers=n_numbers, generator=generator, callback=callback
        )
    head = first(held.batch)
    corrected = None if correction is None else correction(head)
    calibration = task.calibrate(head, corrected, held, full=settings.head == "mlp")
    last = fitter(everything, missingness, joint, max_iterations=LAST_STEPS)
    first = _first_prediction(last, first.link, task, train, everything, bounds)
    return NeuMissFit(NeuMissModel(first, correction, calibration), missingness, errors, history)


@dataclass(frozen=True)
class _JointFitter:
    """Fits the joint Gaussian of features and targets under a model of missingness."""

    may_hide: Tensor
    settings: EMSettings
    generator: torch.Generator

    def __call__(
        self,
        rows: SupervisedRows,
        missingness: str,
        start: JointGaussian | None = None,
        max_iterations: int | None = None,
    ) -> JointGaussian:
        targets = torch.zeros(rows.joint.shape[1], dtype=torch.bool)
        settings = self.settings
        if max_iterations is not None:
            settings = replace(settings, max_iterations=max_iterations)
        return fit_masked_gaussian(
            rows.joined,
            missingness,
            torch.cat([self.may_hide, targets]),
            settings,
            generator=self.generator,
            weights=rows.weights,
            start=start,
        ).model


def _first_prediction(
    joint: JointGaussian,
    link: LogisticLink | None,
    task: PredictionTask,
    train: SupervisedRows,
    everything: SupervisedRows,
    bounds: Tensor,
) -> FirstPrediction:
    """Returns the first prediction of a joint Gaussian; without a link the task fits one if it needs one."""
    link = task.fit_link(joint, train) if link is None else link
    if link is not None:
        joint = with_scores(only_features(joint, train.batch.n_features), link.weights)
    return FirstPrediction(joint, (~everything.batch.observed).any(dim=0), bounds, link)


def _choose_bounds(
    train: SupervisedRows, held: SupervisedRows, fitter: _JointFitter, n_numbers: int
) -> Tensor:
    """Returns the range (2, D) of features: robust bounds if values lie beyond them and clipping helps."""
    unbounded, bounds = _no_bounds(train.batch), _robust_bounds(train.batch, n_numbers)
    if torch.equal(train.batch.x, train.batch.x.clamp(*bounds)):
        return unbounded
    errors = []
    for candidate in (unbounded, bounds):
        joint = fitter(_some(train).clipped(candidate), Missingness.MAR)
        errors.append(_errors(joint, _some(held).clipped(candidate)).mean())
    return bounds if errors[1] < errors[0] else unbounded


def _choose_missingness(
    train: SupervisedRows,
    held: SupervisedRows,
    wanted: str,
    fitter: _JointFitter,
    everything: SupervisedRows,
) -> tuple[JointGaussian, str, dict[str, float]]:
    """Returns the joint Gaussian, the model of missingness and the errors of all that were tried.

    A model of missingness other than the first must predict held-out targets significantly better.
    """
    trial, judged = _some(train), _some(held)
    words = [wanted]
    if wanted == AUTO:
        worth_trying = len(train) >= SMALLEST_TRIAL and not bool(everything.batch.observed.all())
        words = [word.value for word in OFFERED] if worth_trying else [Missingness.MAR.value]
    joints: dict[str, JointGaussian] = {}
    errors: dict[str, Tensor] = {}
    joint = None
    for word in words:  # each starts from the one before
        joint = joints[word] = fitter(trial, word, joint)
        errors[word] = _errors(joint, judged)
    chosen = min(words, key=lambda word: float(errors[word].mean()))
    gain = errors[words[0]] - errors[chosen]
    if len(gain) < 2 or not gain.mean() > 2 * gain.std() / len(gain) ** 0.5:
        chosen = words[0]
    found = joints[chosen] if len(trial) == len(train) else fitter(train, chosen, joints[chosen])
    return found, chosen, {word: float(error.mean()) for word, error in errors.items()}


def _fit_correction(
    first: FirstPrediction,
    train: SupervisedRows,
    held: SupervisedRows,
    task: PredictionTask,
    settings: NeuMissSettings,
    *,
    n_numbers: int,
    generator: torch.Generator,
    callback: Callable[[Progress], None] | None,
) -> tuple[Correction, History]:
    """Trains networks to correct the first prediction."""
    head = first(train.batch)
    scores = NormalScores.fit(head.inputs[:, :n_numbers])
    rows = _labelled(head, scores, train)
    network = EnsembleMLP(
        settings.n_networks, rows.rows.inputs.shape[1], head.base.shape[1], width=settings.width
    )
    network.reset_parameters(generator)
    history = fit_module(
        CorrectedPrediction(network),
        task.objective,
        rows,
        generator=generator,
        validation=_labelled(first(held.batch), scores, held),
        settings=settings.training,
        callback=callback,
    )
    return Correction(network.eval().requires_grad_(False), scores), history


def _labelled(head: HeadInputs, scores: NormalScores, rows: SupervisedRows) -> Labelled[CorrectionRows]:
    inputs = CorrectionRows(with_normal_scores(head.inputs, scores), head.base.float())
    target = rows.target.float() if rows.target.is_floating_point() else rows.target
    return Labelled(inputs, target, rows.weights.float())


def _concatenated(one: SupervisedRows, other: SupervisedRows) -> SupervisedRows:
    batch = Incomplete(
        torch.cat([one.batch.x, other.batch.x]), torch.cat([one.batch.observed, other.batch.observed])
    )
    pairs = ((one.joint, other.joint), (one.target, other.target), (one.weights, other.weights))
    return SupervisedRows(batch, *(torch.cat(pair) for pair in pairs))


def _some(rows: SupervisedRows) -> SupervisedRows:
    """Returns enough rows to compare models; they are in random order already."""
    return rows[torch.arange(min(len(rows), TRIAL_ROWS))]


def _errors(joint: JointGaussian, rows: SupervisedRows) -> Tensor:
    """Returns the weighted squared error (N) of the joint Gaussian's prediction of its own targets."""
    mean, _ = condition(joint, rows.batch, rows.joint.shape[1])
    return rows.weights * (mean[:, rows.batch.n_features :] - rows.joint).square().sum(dim=1)


def _no_bounds(batch: Incomplete) -> Tensor:
    bound = torch.full((batch.n_features,), torch.inf, dtype=batch.x.dtype)
    return torch.stack([-bound, bound])


def _robust_bounds(batch: Incomplete, n_numbers: int) -> Tensor:
    """Returns bounds (2, D) that a Gaussian number practically never exceeds; indicators have none."""
    bounds = _no_bounds(batch)
    for d in range(n_numbers):
        cells = batch.x[:, d][batch.observed[:, d]]
        if len(cells):
            low, middle, high = np.quantile(cells.numpy(), [0.25, 0.5, 0.75])
            reach = REACH * ((high - low) / IQR if high > low else 1.0)
            bounds[:, d] = torch.tensor([middle - reach, middle + reach], dtype=bounds.dtype)
    return bounds
