"""Calibration of logits by the number of observed values, on random parts of held-out rows."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.training.logistic import BLEND_ROWS, SHYEST, fit_scaling, minimise

QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.98)  # quantiles of the counts at which the knots are placed


@dataclass(frozen=True)
class CountScaling:
    r"""Rescales logits, by a factor and offsets that may depend on the number of observed values.

    .. math:: a(c) \, t + b(c)

    for logits :math:`t` of a row with :math:`c` observed values, where :math:`a` and :math:`b` are linear in
    :math:`\log(1 + c)` between knots, and constant beyond the first and the last.

    Shapes
    ------
    knots : :math:`(J)`, values of :math:`\log(1 + c)`, increasing; factors : :math:`(J)`; offsets :
    :math:`(J, K)`

    Examples
    --------
    >>> logits = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    >>> scaling = CountScaling(torch.tensor([1.0, 3.0]).log(), torch.tensor([1.0, 2.0]), torch.zeros(2, 2))
    >>> scaling(logits, torch.tensor([0, 2]))  # rows without values, and rows with two
    tensor([[0., 1.],
            [0., 2.]])
    """

    knots: Tensor
    factors: Tensor
    offsets: Tensor

    def __call__(self, logits: Tensor, counts: Tensor) -> Tensor:
        """Returns the rescaled logits (N, K) of rows with these numbers (N) of observed values."""
        basis = hat_functions(self.knots, counts.to(self.knots.dtype).log1p())
        return (basis @ self.factors).unsqueeze(-1) * logits + basis @ self.offsets


def hat_functions(knots: Tensor, x: Tensor) -> Tensor:
    """Returns weights (N, J) of the knots (J), with which numbers (N) are interpolated between them.

    Examples
    --------
    >>> hat_functions(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([-1.0, 0.5, 2.5]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.2500, 0.7500]])
    """
    one_at_each = torch.eye(len(knots), dtype=knots.dtype)
    if len(knots) == 1:
        return one_at_each.expand(len(x), 1)
    inside = x.clamp(knots[0], knots[-1])
    left = (torch.searchsorted(knots, inside, right=True) - 1).clamp(0, len(knots) - 2)
    share = ((inside - knots[left]) / (knots[left + 1] - knots[left])).unsqueeze(-1)
    return (1 - share) * one_at_each[left] + share * one_at_each[left + 1]


def fit_constant_scaling(logits: Tensor, target: Tensor) -> CountScaling:
    """Returns the scaling of logits (N, K) that predicts the classes (N) best and ignores counts."""
    even = torch.ones(len(target), dtype=logits.dtype)
    factor, offsets = fit_scaling(logits, target, weights=even)
    return CountScaling(logits.new_zeros(1), logits.new_tensor([factor]), offsets.unsqueeze(0))


def fit_count_scaling(logits: Tensor, counts: Tensor, target: Tensor) -> CountScaling:
    """Returns the scaling of logits (N, K), given counts (N), that predicts the classes (N) best.

    The knots are quantiles of the counts. The log-loss is minimised with a small penalty at each knot, as in
    `fit_scaling`, towards leaving logits as they are.
    """
    places = counts.to(logits.dtype).log1p()
    knots = places.quantile(places.new_tensor(QUANTILES)).unique()
    basis = hat_functions(knots, places)
    n_knots, n_classes = len(knots), logits.shape[1]
    neutral = torch.cat([logits.new_ones(n_knots), logits.new_zeros(n_knots * n_classes)])

    def split(point: Tensor) -> tuple[Tensor, Tensor]:
        return point[:n_knots], point[n_knots:].view(n_knots, n_classes)

    def loss(point: Tensor) -> Tensor:
        factors, offsets = split(point)
        scaled = (basis @ factors).unsqueeze(-1) * logits + basis @ offsets
        fit = functional.cross_entropy(scaled, target, reduction="sum")
        return (fit + 0.5 * BLEND_ROWS * (point - neutral).square().sum()) / len(target)

    bounds: list[tuple[float | None, float | None]] = [(SHYEST, None)] * n_knots
    bounds += [(None, None)] * (n_knots * n_classes)
    return CountScaling(knots, *split(minimise(loss, neutral, bounds)))
