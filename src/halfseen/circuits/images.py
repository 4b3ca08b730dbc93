"""A circuit over images: tables whose columns are pixels of one kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import Keys, row_uniforms
from halfseen.base.completion import PixelModel
from halfseen.circuits.circuit import Circuit
from halfseen.circuits.structure import NOTHING, Structure
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.pixels import n_shades
from halfseen.data.schema import Column
from halfseen.distributions.leaves import GaussianLeaf, Leaf
from halfseen.distributions.leaves_pixels import BernoulliLeaf, DiscretisedLogisticLeaf
from halfseen.distributions.observation_model import ObservationModel, Part
from halfseen.nn.weights import load_module, module_state

Pixels = Literal["gaussian", "discretised"]
Averaging = Literal["geometric", "mixture"]

MIN_STD = 0.06
"""No component is narrower, where shades go from -1 to 1: black pixels cannot make a density infinite."""


def shifted_grids(planes: tuple[int, int, int], most: int) -> Tensor:
    """Returns the pixels (S, E) that a frame around the image shows, for each shift of the image within it.

    The frame is `most` pixels wider than the image on each side. The image is shifted by up to `most` pixels
    in both directions; the first of the shifts is none. Places without a pixel are -1.

    Examples
    --------
    >>> shifted_grids((1, 1, 2), 1)[0].view(3, 4)
    tensor([[-1, -1, -1, -1],
            [-1,  0,  1, -1],
            [-1, -1, -1, -1]])
    """
    channels, height, width = planes
    pixels = torch.arange(channels * height * width).view(channels, height, width)
    sides = sorted(range(-most, most + 1), key=abs)
    frames = [
        functional.pad(pixels, (most + x, most - x, most + y, most - y), value=NOTHING).flatten()
        for y, x in product(sides, repeat=2)
    ]
    return torch.stack(frames)


def seen_through(batch: Incomplete, places: Tensor) -> Incomplete:
    """Returns the pixels (N, E) at the places (E) of a frame; where a place is -1, the pixel is missing."""
    x = torch.cat([batch.x, torch.zeros_like(batch.x[:, :1])], dim=1)
    observed = torch.cat([batch.observed, torch.zeros_like(batch.observed[:, :1])], dim=1)
    return Incomplete(x[:, places], observed[:, places])


def shift_average(circuit: Circuit, batch: Incomplete, grids: Tensor, averaging: Averaging) -> Tensor:
    r"""Returns the log probability (N, K) of each class, averaged over shifts of the image.

    .. math:: p(y \mid x_o) \propto \exp \Bigl(\frac{1}{S} \sum_s \log p_s(y \mid x_o)\Bigr)

    This geometric mean is no longer a conditional distribution of one density. The mixture is that of

    .. math:: p(x_o, y) = \frac{1}{S} \sum_s p_s(x_o, y)

    a normalised density of images in which every image has one unknown shift.

    Parameters
    ----------
    circuit : Circuit
        Over the pixels of the frame.
    batch : Incomplete
        The pixels (N, D) of the image.
    grids : Tensor
        The frames (S, E), as `shifted_grids` returns them.
    averaging : {"geometric", "mixture"}
        The kind of average.
    """
    by_grid = [circuit.class_scores(seen_through(batch, grid)) for grid in grids]
    scores = torch.stack([score for score, _ in by_grid])  # (S, N, K)
    if averaging == "geometric":
        return scores.log_softmax(dim=-1).mean(dim=0).log_softmax(dim=-1)
    shifts = torch.stack([shift for _, shift in by_grid])  # (S, N)
    joint = scores + (shifts - shifts.amax(dim=0)).to(scores.dtype).unsqueeze(-1)
    return joint.logsumexp(dim=0).log_softmax(dim=-1)


def patch_likelihood(columns: Sequence[Column], structure: Structure, pixels: Pixels) -> ObservationModel:
    """Returns the likelihood of a patch: Bernoulli for pixels of two values, else the family `pixels`."""
    size, shades = len(structure.parts), n_shades(columns[0])
    leaf: Leaf
    if columns[0].levels is not None:
        leaf = BernoulliLeaf(size, low=-1.0)
    elif pixels == "gaussian":
        leaf = GaussianLeaf(size, std_floor=MIN_STD)
    elif shades is not None:
        leaf = DiscretisedLogisticLeaf(size, low=-1.0, high=1.0, n_bins=shades)
    else:
        raise ValueError("pixels='discretised' needs images of whole shades, such as 0 to 255, got numbers.")
    return ObservationModel([Part(leaf, range(size), range(size))])


def restore_image_circuit(
    columns: Sequence[Column], structure: Structure, pixels: Pixels, state: Mapping[str, Tensor]
) -> Circuit:
    """Rebuilds a circuit over images from its structure and its saved tensors."""
    circuit = Circuit(structure, patch_likelihood(columns, structure, pixels)).double()
    return load_module(circuit, state)


@dataclass(frozen=True)
class ImageCircuit(PixelModel):
    """A circuit over the codes of pixels; valid under MAR, with exact marginals and conditionals."""

    circuit: Circuit  # the fitted circuit, with one class

    @torch.no_grad()
    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, D) drawn jointly."""
        batch, n_noise = self.features.encode(codes), self.circuit.n_noise
        noises = (torch.from_numpy(row_uniforms(keys, s, n_noise)) for s in range(n_draws))
        drawn = [self._completed(codes, self.circuit.conditional_draw(batch, noise)) for noise in noises]
        return torch.stack(drawn) if drawn else codes.x.new_empty(0, *codes.x.shape)

    @torch.no_grad()
    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns the exact log density (N) of the observed pixels; of values, the log probability."""
        total: Tensor = self.circuit(self.features.encode(codes))
        is_density = self.circuit.leaves.observation.leaves[0].is_density
        return total + self.features.log_jacobian(codes) if is_density else total

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        return self.features.state() | module_state(self.circuit)

    @classmethod
    def from_state(
        cls, columns: Sequence[Column], structure: Structure, pixels: Pixels, state: Mapping[str, Tensor]
    ) -> "ImageCircuit":
        """Rebuilds the model from its columns, its structure and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        return cls(columns, features, restore_image_circuit(columns, structure, pixels, state))

    def _mean(self, codes: Incomplete) -> Tensor:
        return self.circuit.conditional_mean(self.features.encode(codes))

    def _feature_quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        return self.circuit.conditional_quantiles(self.features.encode(codes), list(probabilities))
