"""A circuit over images: tables whose columns are pixels of one kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen._random import Keys, row_uniforms
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.leaves_pixels import BernoulliLeaf
from halfseen.distributions.observation import Observation, Part
from halfseen.models.circuits.circuit import Circuit
from halfseen.models.circuits.structure import Structure
from halfseen.models.tabular import LevelProbabilities
from halfseen.nn.weights import load_module, module_state

MIN_STD = 0.02
"""No component is narrower, where shades go from -1 to 1: black pixels cannot make a density infinite."""


def patch_likelihood(columns: Sequence[Column], structure: Structure) -> Observation:
    """Returns the likelihood of a patch: Bernoulli for pixels of two values, otherwise Gaussian."""
    size = len(structure.parts)
    binary = columns[0].levels is not None
    leaf = BernoulliLeaf(size, low=-1.0) if binary else GaussianLeaf(size, std_floor=MIN_STD)
    return Observation([Part(leaf, range(size), range(size))])


def restore_image_circuit(
    columns: Sequence[Column], structure: Structure, state: Mapping[str, Tensor]
) -> Circuit:
    """Rebuilds a circuit over images from its structure and its saved tensors."""
    circuit = Circuit(structure, patch_likelihood(columns, structure)).double()
    return load_module(circuit, state)


@dataclass(frozen=True)
class ImageCircuit:
    """Codes of pixels under a circuit; valid under MAR, every answer exact.

    Parameters
    ----------
    columns : sequence of Column
        The D pixels, all of one kind, in the order (C, H, W).
    features : FeatureMap
        From codes (N, D) to features (N, D), as `pixel_features` makes it.
    circuit : Circuit
        The fitted circuit, with one class.
    """

    columns: Sequence[Column]
    features: FeatureMap
    circuit: Circuit

    @torch.no_grad()
    def point(self, codes: Incomplete) -> Tensor:
        """Returns codes (N, D) completed by expectations; of binary pixels, probabilities to be rounded."""
        return self._completed(codes, self.circuit.conditional_mean(self.features.encode(codes)))

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, D) drawn jointly."""
        batch, n_noise = self.features.encode(codes), self.circuit.n_noise
        noises = (torch.from_numpy(row_uniforms(keys, s, n_noise)) for s in range(n_draws))
        drawn = [self._completed(codes, self.circuit.conditional_draw(batch, noise)) for noise in noises]
        return torch.stack(drawn) if drawn else codes.x.new_empty(0, *codes.x.shape)

    @torch.no_grad()
    def quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns exact quantiles (Q, N, D) of shades and numbers; the more probable of two values."""
        if self._is_binary:
            return self.point(codes).expand(len(probabilities), -1, -1)
        found = self.circuit.conditional_quantiles(self.features.encode(codes), list(probabilities))
        return self._completed(codes, found)

    def level_probabilities(self, codes: Incomplete) -> dict[int, LevelProbabilities]:
        """Returns the probability of both values of binary pixels."""
        if not self._is_binary:
            return {}
        high = self.point(codes)
        pairs = torch.stack([1.0 - high, high], dim=-1)  # (N, D, 2)
        return {c: LevelProbabilities.of_levels(pairs[:, c], codes, c) for c in range(len(self.columns))}

    @torch.no_grad()
    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the exact log density (N) of the observed pixels; of binary ones, the log probability."""
        total: Tensor = self.circuit(self.features.encode(codes))
        return total if self._is_binary else total + self.features.log_jacobian(codes)

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        return self.features.state() | module_state(self.circuit)

    @classmethod
    def from_state(
        cls, columns: Sequence[Column], structure: Structure, state: Mapping[str, Tensor]
    ) -> "ImageCircuit":
        """Rebuilds the model from its columns, its structure and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        return cls(columns, features, restore_image_circuit(columns, structure, state))

    @property
    def _is_binary(self) -> bool:
        return self.columns[0].levels is not None

    def _completed(self, codes: Incomplete, features: Tensor) -> Tensor:
        return torch.where(codes.observed, codes.x, self.features.numbers(features.double()))
