r"""The NeuMiss predictor: a joint Gaussian, a network that corrects it, and a calibration.

.. math:: \hat y(x_o, m) = \frac{t(x_o, m)}{\tau} + c \, f(h(x_o, m))

where :math:`t` is the first prediction of a joint Gaussian of inputs and targets, :math:`h` the conditional
moments of the inputs with the mask, :math:`f` the mean of an ensemble of networks, and :math:`\tau` and
:math:`c` are chosen on held-out rows. Each part is a separate object that can be used alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.config import rows_within_budget
from halfseen.data.incomplete import Incomplete
from halfseen.models.conditional import JointGaussian, condition, joint_from_state, joint_state
from halfseen.models.logistic_link import LogisticLink
from halfseen.nn.ensemble import EnsembleMLP
from halfseen.nn.normal_scores import NormalScores

LARGEST_INPUT = 6.0  # inputs of networks are clipped at this many standard deviations from the mean
COPIES = 24  # numbers in memory per feature while a row is conditioned on
LAYER_COPIES = 8  # numbers in memory per unit of a layer while networks predict
NETWORK = "network."


@dataclass(frozen=True)
class HeadInputs:
    """Outputs of the joint Gaussian for rows: inputs of networks (N, P), a prediction and its scale."""

    inputs: Tensor
    base: Tensor
    spread: Tensor


@dataclass(frozen=True)
class FirstPrediction:
    r"""Predicts targets from the observed inputs of a row, by the conditional moments of a joint Gaussian.

    Parameters
    ----------
    joint : Gaussian or SelfMaskedGaussian
        Of D features followed by T targets or scores.
    incomplete : Tensor
        (D), the features that had missing values in training.
    bounds : Tensor
        (2, D), the range to which features are clipped.
    link : LogisticLink, optional
        From scores to the logits of classes; without it the targets are numbers.
    """

    joint: JointGaussian
    incomplete: Tensor
    bounds: Tensor
    link: LogisticLink | None = None

    def __call__(self, batch: Incomplete) -> HeadInputs:
        """Returns the inputs of the networks, the first prediction and its standard deviation.

        Rows are processed in chunks, because several arrays of their size are needed.
        """
        size = rows_within_budget(COPIES * len(self.joint.loc))
        if len(batch) <= size:
            return self._of(batch)
        parts = [self._of(part) for part in batch.chunks(size)]
        return HeadInputs(
            torch.cat([part.inputs for part in parts]),
            torch.cat([part.base for part in parts]),
            torch.cat([part.spread for part in parts]),
        )

    def _of(self, batch: Incomplete) -> HeadInputs:
        clipped = self.clip(batch)
        n_features = clipped.n_features
        mean, variance = condition(self.joint, clipped, len(self.joint.loc) - n_features)
        target_mean, target_variance = mean[:, n_features:], variance[:, n_features:]
        base = target_mean if self.link is None else self.link(target_mean, target_variance)
        missing = ~clipped.observed[:, self.incomplete]
        deviation = variance[:, :n_features][:, self.incomplete].sqrt()
        parts = [mean[:, :n_features], base, deviation, missing.to(mean.dtype)]
        inputs = torch.cat(parts, dim=1).clamp(-LARGEST_INPUT, LARGEST_INPUT).float()
        return HeadInputs(inputs, base, target_variance.sqrt())

    def clip(self, batch: Incomplete) -> Incomplete:
        """Returns the rows with features clipped to their range."""
        return Incomplete(batch.x.clamp(*self.bounds), batch.observed)


@dataclass(frozen=True)
class CorrectionRows:
    """Rows for training a correction: inputs (N, P) of the networks, and the first prediction (N, T)."""

    inputs: Tensor
    base: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice | Tensor) -> "CorrectionRows":
        return CorrectionRows(self.inputs[rows], self.base[rows])


class CorrectedPrediction(nn.Module):
    """Adds the output of each network of an ensemble to the first prediction, for training."""

    def __init__(self, network: EnsembleMLP) -> None:
        super().__init__()
        self.network = network

    def forward(self, rows: CorrectionRows) -> Tensor:
        """Returns the corrected predictions (E, N, T)."""
        corrected: Tensor = rows.base + self.network(rows.inputs)
        return corrected


@dataclass(frozen=True)
class Correction:
    """Networks on the conditional moments of the inputs, and on the normal scores of numeric inputs.

    Parameters
    ----------
    network : EnsembleMLP
        The trained networks.
    scores : NormalScores
        Of the first features, the numeric ones.
    """

    network: EnsembleMLP
    scores: NormalScores

    def inputs(self, head: HeadInputs) -> Tensor:
        """Returns the inputs (N, P') of the networks."""
        return with_normal_scores(head.inputs, self.scores)

    @torch.no_grad()
    def __call__(self, head: HeadInputs) -> Tensor:
        """Returns the mean output (N, T) of the networks, computed for some rows at a time."""
        n_networks, _, width = self.network.weights[0].shape
        size = rows_within_budget(LAYER_COPIES * n_networks * width, n_bytes=4)
        inputs = (with_normal_scores(part, self.scores) for part in head.inputs.split(size))
        return torch.cat([self.network(part).mean(dim=0).double() for part in inputs])


def with_normal_scores(inputs: Tensor, scores: NormalScores) -> Tensor:
    """Returns inputs (N, P) followed by the normal scores of the first of them."""
    return torch.cat([inputs, scores(inputs[:, : scores.knots.shape[1]])], dim=1)


@dataclass(frozen=True)
class Calibration:
    """The combination of the first prediction and its correction that is best on held-out rows.

    Parameters
    ----------
    head_weight : float
        The weight of the correction.
    temperature : float
        The divisor of the first prediction.
    errors : Tensor
        (Q, T), quantiles of the absolute held-out errors over the predicted spread.
    n_held_out : int
        The number of held-out rows.
    """

    head_weight: float
    temperature: float
    errors: Tensor
    n_held_out: int

    @classmethod
    def none(cls, n_targets: int) -> "Calibration":
        """Returns the calibration of a model that has no held-out rows: the first prediction as it is."""
        return cls(0.0, 1.0, torch.zeros(0, n_targets, dtype=torch.float64), 0)


@dataclass(frozen=True)
class NeuMissModel:
    """A first prediction, its correction if there is one, and their calibration."""

    first: FirstPrediction
    correction: Correction | None
    calibration: Calibration

    def predict(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns the prediction of each row of features (N, D), numbers or logits, and its spread."""
        head = self.first(batch)
        answer = head.base / self.calibration.temperature
        if self.correction is not None and self.calibration.head_weight > 0:
            answer = answer + self.calibration.head_weight * self.correction(head)
        return answer, head.spread

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor, to be saved."""
        calibration, link = self.calibration, self.first.link
        state = joint_state(self.first.joint) | {
            "incomplete": self.first.incomplete,
            "bounds": self.first.bounds,
            "calibration": torch.tensor(
                [calibration.head_weight, calibration.temperature, calibration.n_held_out],
                dtype=torch.float64,
            ),
            "errors": calibration.errors,
        }
        if link is not None:
            state |= {"link.weights": link.weights, "link.bias": link.bias}
        if self.correction is not None:
            weights = self.correction.network.state_dict()
            state |= {f"{NETWORK}{name}": value for name, value in weights.items()}
            state["scores.knots"] = self.correction.scores.knots
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "NeuMissModel":
        """Rebuilds the model from what `state` returned; sizes are those of the tensors."""
        link = LogisticLink(state["link.weights"], state["link.bias"]) if "link.weights" in state else None
        first = FirstPrediction(joint_from_state(state), state["incomplete"], state["bounds"], link)
        weight, temperature, n_held_out = state["calibration"].tolist()
        calibration = Calibration(weight, temperature, state["errors"], int(n_held_out))
        weights = {k.removeprefix(NETWORK): v for k, v in state.items() if k.startswith(NETWORK)}
        correction = None
        if weights:
            n_networks, n_inputs, width = weights["weights.0"].shape
            n_outputs = weights[f"weights.{sum(k.startswith('weights.') for k in weights) - 1}"].shape[-1]
            network = EnsembleMLP(n_networks, n_inputs, n_outputs, width=width)
            network.load_state_dict(weights)
            correction = Correction(network.eval().requires_grad_(False), NormalScores(state["scores.knots"]))
        return cls(first, correction, calibration)
