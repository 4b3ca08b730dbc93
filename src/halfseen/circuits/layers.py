r"""The layers of a circuit: leaves, sums and products of log densities, for many rows at once.

A message consists of values of shape :math:`(R, N, K)` (regions, rows, channels) and a *shift* :math:`(R,
N)` in float64 that is common to all channels of a region; the log densities are their sum. Differences
between channels, and between classes at the root, are therefore precise even if log densities are large.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.circuits.structure import NOTHING, Level, Structure
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.distributions.quantiles import mixture_quantiles

WEIGHT_FLOOR = 1e-6
"""The share of every sum that is spread evenly over its inputs: no gradient of float32 is infinite."""

QUANTILE_TOLERANCE = 1e-7  # of the last step, in standard deviations


@dataclass(frozen=True)
class Messages:
    """Log densities of regions: `values` (R, N, K) plus `shift` (R, N)."""

    values: Tensor
    shift: Tensor


def log_matmul_exp(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns :math:`\log \sum_i e^{x_i - \max x} w_{io}` (S, B, O), and :math:`\max x` (S, B) beside it.

    Shapes: ``x`` :math:`(S, B, I)`, ``weights`` :math:`(S, I, O)`. The gradient of the sum of both outputs
    equals that of the first output with the maximum held constant, so the second output has no gradient. A
    hand-written gradient is not faster than that of autograd (``benchmarks/circuits.py``).
    """
    shift = x.detach().amax(dim=-1, keepdim=True)
    return torch.bmm((x - shift).exp_(), weights).log(), shift.squeeze(-1)


class SumLayer(nn.Module):
    r"""Creates sums with weights that are probabilities: :math:`\log \sum_i w_{io} e^{x_i}`.

    .. math:: w_{io} = (1 - \epsilon) \frac{e^{v_{io}}}{\sum_{i'} e^{v_{i'o}}} + \frac{\epsilon}{I}

    for unconstrained logits :math:`v`. For a region without an observed column, inputs and sums are zero.

    Parameters
    ----------
    n_sets : int
        The number of sets of weights :math:`S`; it divides the number of regions. Consecutive regions
        have the same set.
    n_inputs, n_outputs : int
        The channels :math:`I` below and :math:`O` above.
    """

    def __init__(self, n_sets: int, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(n_sets, n_inputs, n_outputs))

    def extra_repr(self) -> str:
        """Returns the sizes."""
        n_sets, n_inputs, n_outputs = self.logits.shape
        return f"n_sets={n_sets}, n_inputs={n_inputs}, n_outputs={n_outputs}"

    @property
    def weights(self) -> Tensor:
        """The weights (S, I, O); they sum to 1 over I and are never zero."""
        return self.logits.softmax(dim=1) * (1.0 - WEIGHT_FLOOR) + WEIGHT_FLOOR / self.logits.shape[1]

    @torch.no_grad()
    def set_weights(self, weights: Tensor) -> None:
        """Sets the logits so that the weights (S, I, O) are as given, up to the minimum weight."""
        above = (weights - WEIGHT_FLOOR / weights.shape[1]).clamp(min=1e-3 * WEIGHT_FLOOR)
        self.logits.copy_(above.log())

    def forward(self, messages: Messages) -> Messages:
        """Returns the messages (R, N, O) of the sums over those of shape (R, N, I)."""
        x = messages.values
        n_regions, n_rows, n_inputs = x.shape
        n_sets, _, n_outputs = self.logits.shape
        stacked = x.reshape(n_sets, n_regions // n_sets * n_rows, n_inputs)
        values, shift = log_matmul_exp(stacked, self.weights)
        return Messages(
            values.view(n_regions, n_rows, n_outputs), messages.shift + shift.view(n_regions, n_rows)
        )

    def shares(self, values: Tensor, outputs: Tensor) -> Tensor:
        """Returns the shares (R, N, I) of the inputs in shares (R, N, O) of the sums, of messages (R, N, I).

        That is the product of `outputs` with the derivative of the sums with respect to the messages.
        """
        n_sets, n_inputs, n_outputs = self.logits.shape
        stacked, weights = values.reshape(n_sets, -1, n_inputs), self.weights
        scaled = (stacked - stacked.amax(dim=-1, keepdim=True)).exp_()
        ratio = outputs.reshape(n_sets, -1, n_outputs) / torch.bmm(scaled, weights)
        return torch.bmm(ratio, weights.mT).mul_(scaled).view_as(values)

    def counts(self, values: Tensor, outputs: Tensor) -> Tensor:
        """Returns the expected uses (S, I, O) of the weights, of messages (R, N, I) and shares (R, N, O)."""
        n_sets, n_inputs, n_outputs = self.logits.shape
        stacked, weights = values.reshape(n_sets, -1, n_inputs), self.weights
        scaled = (stacked - stacked.amax(dim=-1, keepdim=True)).exp_()
        ratio = outputs.reshape(n_sets, -1, n_outputs) / torch.bmm(scaled, weights)
        return torch.bmm(scaled.mT, ratio) * weights

    def best(self, values: Tensor) -> Tensor:
        """Returns the largest term of each sum (R, N, O), for log densities (R, N, I)."""
        log_weights = self.of_regions(len(values)).log()  # (R, I, O)
        best = values[..., :1] + log_weights[:, None, 0]
        for channel in range(1, values.shape[-1]):  # an axis of both channels would not fit in memory
            best = torch.maximum(best, values[..., channel, None] + log_weights[:, None, channel])
        return best

    def of_regions(self, n_regions: int) -> Tensor:
        """Returns the weights (R, I, O) of each region."""
        return self.weights.repeat_interleave(n_regions // len(self.logits), dim=0)


class ProductLayer(nn.Module):
    """Creates products of the regions of each group, channel by channel: sums of log densities."""

    order: Tensor | None

    def __init__(self, level: Level) -> None:
        super().__init__()
        self.n_groups = len(level.groups)
        widest = max(len(group) for group in level.groups)
        padded = [[*group, *[level.n_regions] * (widest - len(group))] for group in level.groups]
        order = None if level.in_order else torch.tensor(padded).T.flatten()  # (widest * G)
        self.register_buffer("order", order, persistent=False)
        parents = torch.empty(level.n_regions, dtype=torch.long)
        for number, group in enumerate(level.groups):
            parents[list(group)] = number
        self.register_buffer("parents", parents, persistent=False)  # (R)

    parents: Tensor

    def forward(self, messages: Messages) -> Messages:
        """Returns the messages (G, N, K) of the groups."""
        return Messages(self._sum(messages.values), self._sum(messages.shift))

    def _sum(self, x: Tensor) -> Tensor:
        if self.order is not None:  # a region of zeros fills up groups that are smaller than others
            x = torch.cat([x, torch.zeros_like(x[:1])]).index_select(0, self.order)
        return x.view(-1, self.n_groups, *x.shape[1:]).sum(dim=0)


class Leaves(nn.Module):
    r"""Creates the leaves of a circuit: mixture components of columns, or of patches of an image.

    .. math:: x_{ld} = \sum_{j \in l, \, j \in o} \log p_j(x_j \mid \theta_d)

    for leaf :math:`l` and component :math:`d`; a missing column adds exactly zero. All windows share the
    parameters :math:`\theta`. Leaves of Gaussian patches are one matrix product.

    Parameters
    ----------
    structure : Structure
        Windows, parts and the number of components.
    observation : ObservationModel
        The likelihood of the columns of a window. If there are several windows, each of its columns must be a
        single feature.
    """

    places: Tensor
    parts_of_features: Tensor
    parts: Tensor

    def __init__(self, structure: Structure, observation: ObservationModel) -> None:
        super().__init__()
        n_windows, n_places = len(structure.windows), len(structure.parts)
        one_each = observation.n_features == observation.n_columns
        whole = structure.windows == (tuple(range(n_places)),)
        if observation.n_columns != n_places or not (one_each or whole):
            raise ValueError(
                f"The likelihood has {observation.n_columns} columns and {observation.n_features} features; "
                f"a window has {n_places} places, and windows of an image need one feature for each."
            )
        self.observation = observation
        self.n_features = observation.n_features if whole else structure.n_columns
        self.n_windows, self.n_parts = n_windows, structure.n_parts
        self.theta = nn.Parameter(
            observation.neutral_parameters().float().repeat(structure.n_leaves, 1)
        )  # (M, P)
        places = torch.arange(self.n_features)[None] if whole else torch.tensor(structure.windows)
        parts = torch.tensor(structure.parts)
        places = torch.where(places == NOTHING, self.n_features, places)  # (W, F)
        owners = observation.columns_of_features
        self.register_buffer("places", places, persistent=False)
        self.register_buffer("parts", parts, persistent=False)  # (J)
        self.register_buffer("parts_of_features", parts[owners], persistent=False)  # (F)
        self._whole = whole

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the log densities (L, N, M) of the observed columns of each leaf."""
        windows = self.windows(batch)
        leaf = self.observation.leaves[0]
        if self.n_parts == 1 and len(self.observation.leaves) == 1 and isinstance(leaf, GaussianLeaf):
            return self._gaussian(leaf, windows)
        observed = self.observation.observed_columns(windows.observed).unsqueeze(-2)  # (W, N, 1, J)
        return self._by_part(torch.where(observed, self.column_terms(windows), 0.0))

    def windows(self, batch: Incomplete) -> Incomplete:
        """Returns the features of the rows in each window, (W, N, F)."""
        if self._whole:
            return Incomplete(batch.x[None], batch.observed[None])
        x = torch.cat([batch.x, torch.zeros_like(batch.x[:, :1])], dim=1)
        observed = torch.cat([batch.observed, torch.zeros_like(batch.observed[:, :1])], dim=1)
        return Incomplete(x[:, self.places].movedim(1, 0), observed[:, self.places].movedim(1, 0))

    def column_terms(self, windows: Incomplete) -> Tensor:
        """Returns the log densities (W, N, M, J) of all columns; missing ones are evaluated at a filler."""
        filled = windows.filled(self.observation.filler()).to(self.theta.dtype).unsqueeze(-2)  # (W, N, 1, F)
        return self.observation.log_prob(self.theta, filled)

    def best(self, batch: Incomplete) -> Tensor:
        """Returns the log densities (L, N, M) with missing columns at the mode of each component."""
        windows = self.windows(batch)
        observed = self.observation.observed_columns(windows.observed).unsqueeze(-2)
        at_mode = self.observation.log_prob(self.theta, self.observation.mode(self.theta))
        inside = self.observation.observed_columns(self.places < self.n_features)[
            :, None, None
        ]  # (W, 1, 1, J)
        return self._by_part(
            torch.where(observed, self.column_terms(windows), torch.where(inside, at_mode, 0.0))
        )

    def _by_part(self, terms: Tensor) -> Tensor:
        """Adds the terms (W, N, M, J) of the columns of each part; returns (L, N, M)."""
        if self.n_parts == terms.shape[-1]:
            by_part = terms[..., self.parts.argsort()]
        else:
            member = nn.functional.one_hot(self.parts, self.n_parts).to(terms.dtype)  # (J, parts)
            by_part = terms @ member
        return by_part.movedim(-1, 1).flatten(end_dim=1)

    def _gaussian(self, leaf: GaussianLeaf, windows: Incomplete) -> Tensor:
        """Expands the square, so that one matrix product replaces an array (W, N, M, J)."""
        dtype = self.theta.dtype
        x, seen = windows.filled(0.0).to(dtype), windows.observed.to(dtype)
        order = self.observation.columns_of_features.argsort()
        loc, std = leaf.mean(self.theta)[:, order], leaf.variance(self.theta).sqrt()[:, order]
        precision = std.square().reciprocal()
        constant = -0.5 * (loc.square() * precision + math.log(2.0 * math.pi)) - std.log()
        coefficients = torch.cat([-0.5 * precision, loc * precision, constant], dim=1)  # (M, 3F)
        return torch.cat([x.square(), x, seen], dim=-1) @ coefficients.mT  # (W, N, M)

    def expectation(self, weights: Tensor, values: Tensor) -> Tensor:
        """Returns the mean (N, D) of features, from weights (L, N, M) of components and their values (M, F).

        The weights of the leaves that hold a column sum to 1.
        """
        by_window = weights.view(self.n_windows, self.n_parts, *weights.shape[1:])
        mean = torch.einsum("wfnm,mf->wfn", by_window[:, self.parts_of_features], values)
        return self._gathered(mean)

    def _gathered(self, x: Tensor) -> Tensor:
        """Adds the terms (W, F, N) of all windows for each feature; returns (N, D)."""
        total = x.new_zeros(self.n_features + 1, x.shape[-1])
        return total.index_add(0, self.places.flatten(), x.flatten(end_dim=1))[:-1].T

    def draw(self, components: Tensor, noise: Tensor) -> Tensor:
        """Returns features (W, N, F) drawn from components (L, N); `noise` (N, W * M) are uniforms."""
        by_window = noise.view(len(noise), self.n_windows, -1).movedim(1, 0).unsqueeze(-2)
        every = by_window.expand(-1, -1, len(self.theta), -1)
        parameters = self.theta.expand(self.n_windows, len(noise), -1, -1)
        return self.chosen(self.observation.sample(parameters, every), components)

    def chosen(self, values: Tensor, components: Tensor) -> Tensor:
        """Selects from values (W, N, M, F) those of the components (L, N); returns (W, N, F)."""
        by_window = components.view(self.n_windows, self.n_parts, -1)[:, self.parts_of_features]  # (W, F, N)
        return values.gather(2, by_window.transpose(1, 2).unsqueeze(2)).squeeze(2)

    @property
    def n_noise(self) -> int:
        """The number of uniforms that a draw of a row takes."""
        return self.n_windows * self.observation.n_noise

    def positions(self, windows: Tensor) -> Tensor:
        """Returns the place (D), counted over all windows, of each feature in some windows."""
        n_places = self.places.shape[1]
        numbers = (windows[:, None] * n_places + torch.arange(n_places)).flatten()
        result = numbers.new_zeros(self.n_features + 1)
        result[self.places[windows].flatten()] = numbers
        return result[:-1]

    def quantiles(self, weights: Tensor, levels: list[float]) -> Tensor:
        """Returns the quantiles (Q, W, N, J) of the columns of numbers of each window.

        The weights (L, N, M) are those of the components of each leaf.
        """
        numeric = list(self.observation.numeric)
        by_window = weights.view(self.n_windows, self.n_parts, *weights.shape[1:])  # (W, parts, N, M)
        of_columns = by_window[:, self.parts[numeric]].permute(3, 0, 2, 1)  # (M, W, N, J)
        found = mixture_quantiles(
            self.observation,
            self.theta[:, None],
            of_columns.flatten(1, 2),
            levels,
            tolerance=QUANTILE_TOLERANCE,
        )
        return found.view(len(levels), *of_columns.shape[1:])
