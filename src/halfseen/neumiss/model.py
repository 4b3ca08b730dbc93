r"""The NeuMiss predictor: a joint Gaussian, a network that corrects it, and a calibration.

.. math:: \hat y(x_o, m) = \frac{t(x_o, m)}{\tau} + c \, f(h(x_o, m))

where :math:`t` is the first prediction of a joint Gaussian of inputs and targets, :math:`h` the conditional
moments of the inputs with the mask, :math:`f` the mean of an ensemble of networks, and :math:`\tau` and
:math:`c` are chosen on held-out rows. Each part is a separate object that can be used alone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.base.predictor import HeldOutErrors
from halfseen.data.incomplete import Incomplete, rows_in_piece
from halfseen.gaussian.self_masked import JointGaussian, condition, joint_from_state, joint_state
from halfseen.training.logistic import LogisticLink
from halfseen.training.step import AlignedRows

N_KNOTS = 200
SMALLEST_SHARE = 1e-3  # minimum share of rows on either side of a value


@dataclass(frozen=True)
class NormalScores:
    r"""The scores :math:`\Phi^{-1}(F_d(x_d))`, with F the distribution function of training values.

    F is linear between quantiles, and the middle of its jump at values that many rows share. The scores of a
    skewed feature have the same distribution as those of any other, which makes networks easier to train.

    Shapes
    ------
    knots : :math:`(Q, D)`, the quantiles of each feature, rising.
    x : :math:`(N, D)`

    Examples
    --------
    >>> x = torch.tensor([[1.0], [2.0], [4.0], [8.0], [1000.0]], dtype=torch.float64)
    >>> NormalScores.fit(x)(torch.tensor([[2.0], [4.0], [8.0]], dtype=torch.float64)).flatten()
    tensor([-0.6745,  0.0000,  0.6745], dtype=torch.float64)
    """

    knots: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> "NormalScores":
        """Learns the quantiles of features (N, D)."""
        ordered = x.sort(dim=0).values
        place = torch.linspace(0, len(x) - 1, min(N_KNOTS, len(x)), dtype=torch.float64).round().long()
        return cls(ordered[place])

    def __call__(self, x: Tensor) -> Tensor:
        """Returns the scores (N, D) of values."""
        n_knots = len(self.knots)
        knots, values = self.knots.T.contiguous(), x.T.contiguous()  # (D, Q), (D, N)
        left = torch.searchsorted(knots, values)  # knots below a value
        right = torch.searchsorted(knots, values, right=True)  # and up to it
        below = knots.gather(1, (left - 1).clamp(min=0))
        gap = knots.gather(1, left.clamp(max=n_knots - 1)) - below
        between = torch.where(gap > 0, (values - below) / torch.where(gap > 0, gap, 1.0), 0.0)
        rank = torch.where(left < right, (left + right - 1) / 2, left - 1 + between)
        share = rank / max(1, n_knots - 1)
        scores: Tensor = torch.special.ndtri(share.clamp(SMALLEST_SHARE, 1 - SMALLEST_SHARE))
        return scores.T


class EnsembleMLP(nn.Module):
    r"""E multilayer perceptrons with the same inputs and separate weights.

    .. math:: f_e(x) = W_e^{(H)} \, \sigma(\dots \sigma(W_e^{(0)} x + b_e^{(0)}) \dots) + b_e^{(H)}

    The layers of all networks are computed by one batched product. The last layer is initialised to zero, so
    that training starts from the prediction to which the networks are added.

    Parameters
    ----------
    n_networks : int
        The number of networks E.
    n_inputs, n_outputs : int
        The number of inputs and of outputs.
    width : int
        The width of hidden layers.
    n_layers : int
        The number H of hidden layers.

    Shapes
    ------
    x : :math:`(N, \text{inputs})`; output : :math:`(E, N, \text{outputs})`

    Examples
    --------
    >>> network = EnsembleMLP(n_networks=4, n_inputs=3, n_outputs=1)
    >>> network.reset_parameters(torch.Generator().manual_seed(0))
    >>> network(torch.zeros(5, 3)).shape
    torch.Size([4, 5, 1])
    """

    def __init__(
        self,
        n_networks: int,
        n_inputs: int,
        n_outputs: int,
        *,
        width: int = 128,
        n_layers: int = 2,
    ) -> None:
        super().__init__()
        sizes = [n_inputs, *[width] * n_layers, n_outputs]
        self.weights = nn.ParameterList(torch.zeros(n_networks, a, b) for a, b in pairwise(sizes))
        self.biases = nn.ParameterList(torch.zeros(n_networks, 1, b) for b in sizes[1:])

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws hidden weights whose variance preserves the scale of signals; the last layer is zero."""
        for weight in self.weights[:-1]:
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.data.copy_(noise * math.sqrt(2 / max(1, weight.shape[1])))
        for parameter in (self.weights[-1], *self.biases):
            parameter.data.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output of each network for each row."""
        hidden = x.expand(len(self.weights[0]), -1, -1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = functional.silu(torch.baddbmm(bias, hidden, weight))
        return torch.baddbmm(self.biases[-1], hidden, self.weights[-1])


LARGEST_INPUT = 6.0  # inputs of networks are clipped at this many standard deviations from the mean
COPIES = 24  # numbers in memory per feature while a row is conditioned on
LAYER_COPIES = 8  # numbers in memory per unit of a layer while networks predict
NETWORK = "network."


class HeadInputs(NamedTuple):
    """Outputs of the joint Gaussian for rows: inputs of networks (N, P), a prediction and its scale."""

    inputs: Tensor
    base: Tensor
    spread: Tensor


@dataclass(frozen=True)
class FirstPrediction:
    r"""Predicts targets from the observed inputs of a row, by the conditional moments of a joint Gaussian."""

    joint: JointGaussian  # of D features followed by T targets or scores
    incomplete: Tensor  # (D), the features that had missing values in training
    bounds: Tensor  # (2, D), the range to which features are clipped
    # From scores to the logits of classes; without it the targets are numbers.
    link: LogisticLink | None = None

    def __call__(self, batch: Incomplete) -> HeadInputs:
        """Returns the inputs of the networks, the first prediction and its standard deviation.

        Rows are processed in chunks, because several arrays of their size are needed.
        """
        size = rows_in_piece(len(self.joint.loc), COPIES * len(self.joint.loc))
        if len(batch) <= size:
            return self._of(batch)
        parts = [self._of(part) for part in batch.chunks(size)]
        return HeadInputs(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

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
class CorrectionRows(AlignedRows):
    """Rows for training a correction: inputs (N, P) of the networks, and the first prediction (N, T)."""

    inputs: Tensor
    base: Tensor


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
    """Networks on the conditional moments of the inputs, and on the normal scores of numeric inputs."""

    network: EnsembleMLP  # the trained networks
    scores: NormalScores  # of the first features, the numeric ones

    def inputs(self, head: HeadInputs) -> Tensor:
        """Returns the inputs (N, P') of the networks."""
        return with_normal_scores(head.inputs, self.scores)

    def check(self, n_moments: int, n_outputs: int) -> None:
        """Raises a ValueError unless the networks read so many moments, and have so many outputs."""
        knots, (first, *_, last) = self.scores.knots, self.network.weights
        if not knots.is_floating_point() or first.shape[1] != n_moments + knots.shape[1]:
            raise ValueError(f"the inputs of networks are not {n_moments} moments and their normal scores")
        if last.shape[-1] != n_outputs:
            raise ValueError(f"the networks have {last.shape[-1]} outputs for {n_outputs}")

    @torch.no_grad()
    def __call__(self, head: HeadInputs) -> Tensor:
        """Returns the mean output (N, T) of the networks, computed for some rows at a time."""
        n_networks, _, width = self.network.weights[0].shape
        size = rows_in_piece(width, LAYER_COPIES * n_networks * width, n_bytes=4)
        inputs = (with_normal_scores(part, self.scores) for part in head.inputs.split(size))
        return torch.cat([self.network(part).mean(dim=0).double() for part in inputs])


def with_normal_scores(inputs: Tensor, scores: NormalScores) -> Tensor:
    """Returns inputs (N, P) followed by the normal scores of the first of them."""
    return torch.cat([inputs, scores(inputs[:, : scores.knots.shape[1]])], dim=1)


@dataclass(frozen=True)
class Calibration:
    """The combination of the first prediction and its correction that is best on held-out rows."""

    head_weight: float  # the weight of the correction
    temperature: float  # the divisor of the first prediction
    # Quantiles (Q, T) of the held-out errors over the predicted spread, none for classes.
    errors: HeldOutErrors

    @classmethod
    def none(cls, n_targets: int) -> "Calibration":
        """Returns the calibration of a model that has no held-out rows: the first prediction as it is."""
        return cls(0.0, 1.0, HeldOutErrors(torch.zeros(0, n_targets, dtype=torch.float64), 0))


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

    def check(self, n_features: int, n_outputs: int, *, has_link: bool) -> None:
        """Raises a ValueError unless the parts fit together: D features, and T targets or K classes.

        It is called for models of files; those of a fit satisfy it.
        """
        first, link = self.first, self.first.link
        shape = (n_features,)
        if first.incomplete.dtype != torch.bool or first.incomplete.shape != shape:
            raise ValueError(f"the incomplete features are not flags of {n_features} features")
        low_to_high = first.bounds.is_floating_point() and first.bounds.shape == (2, n_features)
        if not low_to_high or (first.bounds[0] > first.bounds[1]).any():
            raise ValueError(f"the bounds of features are not those of {n_features} features")
        n_scores = len(first.joint.loc) - n_features
        if has_link != (link is not None) or (
            link is not None
            and (link.weights.shape, link.bias.shape) != ((n_features, n_scores), (n_scores,))
        ):
            raise ValueError("the scores of classes and their Gaussian do not fit together")
        n_found = 2 if has_link and n_scores == 1 else n_scores
        if n_found != n_outputs:
            raise ValueError(
                f"there are {n_found} outputs for {n_outputs} {'classes' if has_link else 'targets'}"
            )
        if not (self.calibration.head_weight >= 0 and self.calibration.temperature > 0):
            raise ValueError("the calibration has a weight or a divisor that no fit gives")
        if self.correction is not None:
            self.correction.check(n_features + n_outputs + 2 * int(first.incomplete.sum()), n_outputs)

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor, to be saved."""
        calibration, link = self.calibration, self.first.link
        state = joint_state(self.first.joint) | {
            "incomplete": self.first.incomplete,
            "bounds": self.first.bounds,
            "calibration": torch.tensor(
                [calibration.head_weight, calibration.temperature, calibration.errors.n_rows],
                dtype=torch.float64,
            ),
            "errors": calibration.errors.quantiles,
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
        weight, temperature, n_rows = state["calibration"].tolist()
        calibration = Calibration(weight, temperature, HeldOutErrors(state["errors"], int(n_rows)))
        weights = {k.removeprefix(NETWORK): v for k, v in state.items() if k.startswith(NETWORK)}
        correction = None
        if weights:
            n_networks, n_inputs, width = weights["weights.0"].shape
            n_outputs = weights[f"weights.{sum(k.startswith('weights.') for k in weights) - 1}"].shape[-1]
            network = EnsembleMLP(n_networks, n_inputs, n_outputs, width=width)
            network.load_state_dict(weights)
            correction = Correction(network.eval().requires_grad_(False), NormalScores(state["scores.knots"]))
        return cls(first, correction, calibration)
