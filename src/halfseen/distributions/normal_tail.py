r"""The tail of the normal distribution: its log probability and truncated moments, without cancellation.

For :math:`z \to -\infty` Mills' ratio has the series :math:`\Phi(z) = \frac{\phi(z)}{|z|} (1 - t)`, with
:math:`t = z^{-2} - 3 z^{-4} + 15 z^{-6} - 105 z^{-8} + \dots`, here to its seventh term.
"""

from math import log, pi, sqrt

import torch
from torch import Tensor

FAR = -20.0  # from here outwards the series is as good as exact, and the ratio itself is not


def log_normal_cdf(z: Tensor) -> Tensor:
    r"""Returns :math:`\log \Phi(z)`, like `torch.special.log_ndtr` but faster.

    Examples
    --------
    >>> log_normal_cdf(torch.tensor([0.0, -100.0]))
    tensor([-6.9315e-01, -5.0055e+03])
    """
    near = torch.log(0.5 * torch.erfc(-z.clamp(min=FAR) * sqrt(0.5)))
    if not bool((z < FAR).any()):
        return near
    far = z.clamp(max=FAR)
    tail = -0.5 * far**2 - torch.log(-far) + torch.log1p(-_shortfall(far)) - 0.5 * log(2 * pi)
    return torch.where(z < FAR, tail, near)


def truncation(z: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the effect of truncation at zero on a normal with mean z and variance one.

    .. math:: r = \frac{\phi(z)}{\Phi(z)}, \qquad k = r (z + r)

    The mean increases by r, and the variance decreases by the fraction k, between 0 and 1.

    Examples
    --------
    >>> truncation(torch.tensor(0.0))
    (tensor(0.7979), tensor(0.6366))
    """
    near = z.clamp(min=FAR)
    rise = sqrt(2 / pi) * torch.exp(-0.5 * near**2) / torch.erfc(-near * sqrt(0.5))
    excess = near + rise
    if bool((z < FAR).any()):
        far = z.clamp(max=FAR)
        tail = -far * _shortfall(far) / (1 - _shortfall(far))
        rise, excess = torch.where(z < FAR, tail - far, rise), torch.where(z < FAR, tail, excess)
    return rise, (rise * excess).clamp(0.0, 1.0)


def _shortfall(z: Tensor) -> Tensor:
    square = z**-2
    series = torch.ones_like(z)
    for factor in (13, 11, 9, 7, 5, 3):
        series = 1 - factor * square * series
    return square * series
