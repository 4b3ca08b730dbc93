"""A fast approximation of the distribution function of Student's t."""

import torch
from torch import Tensor

FAR = 5000.0  # in units of z: both tails are 0 to the last bit


def student_t_cdf(t: Tensor, df: Tensor) -> Tensor:
    r"""Returns the distribution function of Student's t for three degrees of freedom or more.

    With :math:`a = \nu - \tfrac12` and :math:`z = a \log(1 + t^2 / \nu)` a normal deviate of the same tail is

    .. math:: \sqrt{z} \left(1 + \frac{1}{b} \left(z + 3 - \frac{((0.4 z + 3.3) z + 24) z + 85.5}{0.8 z^2 +
              100 + b}\right)\right), \qquad b = 48 a^2

    whose error in probability is at most 1.1e-5 at :math:`\nu = 3`, 2e-7 at 5 and 1e-8 at 7. This is
    negligible compared with Monte Carlo errors, and the cost is a fraction of that of the exact function.

    References
    ----------
    Hill (1970), Algorithm 395: Student's t-distribution.

    Examples
    --------
    >>> student_t_cdf(torch.tensor([0.0, 2.353363]), torch.tensor(3.0))
    tensor([0.5000, 0.9500])
    """
    a = df - 0.5
    b = 48.0 * a.square()
    z = (a * torch.log1p(t.square() / df)).clamp(max=FAR)
    cubic = ((0.4 * z + 3.3) * z + 24.0) * z + 85.5
    deviate = z.sqrt() * (1.0 + (z + 3.0 - cubic / (0.8 * z.square() + 100.0 + b)) / b)
    below: Tensor = torch.special.ndtr(torch.copysign(deviate, t))
    return below
