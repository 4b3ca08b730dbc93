r"""Diagnostics of importance weights: the effective sample size, and the shape of their tail."""

import math

import torch
from torch import Tensor

MIN_DRAWS = 25
"""The fewest draws whose tail holds the five weights that a fit needs."""

_PRIOR_SHAPE, _PRIOR_WEIGHT = 0.5, 10.0  # tames the fit of short tails


def effective_sample_size(log_w: Tensor) -> Tensor:
    r"""Returns the effective sample size: the equivalent number of draws with equal weights.

    .. math:: \frac{1}{\sum_s \alpha_s^2}, \qquad \alpha_s = \frac{w_s}{\sum_r w_r}

    Shapes
    ------
    log_w : :math:`(S, *)`; strata belong in the first axis, each with the logarithm of its weight added.
    output : :math:`(*)`, between 1 and :math:`S`

    References
    ----------
    Kong (1992), A note on importance sampling using standardized weights.

    Examples
    --------
    >>> effective_sample_size(torch.tensor([[0.0, 0.0], [0.0, -200.0]]))
    tensor([2., 1.])
    """
    return log_w.softmax(dim=0).square().sum(dim=0).reciprocal()


@torch.no_grad()
def pareto_k(log_w: Tensor) -> Tensor:
    r"""Returns the shape :math:`\hat k` of a generalised Pareto tail fitted to the largest weights.

    The weights have :math:`\lfloor 1 / k \rfloor` finite moments; above 0.7, an importance sampling estimate
    is unreliable for any practical number of draws. With :math:`x` the exceedances of the :math:`M =
    \lceil \min(S / 5, 3 \sqrt S) \rceil` largest weights over the next one, the fit averages over the profile
    likelihood of :math:`\theta = -k / \sigma`:

    .. math::
        k(\theta) = \frac{1}{M} \sum_i \log(1 - \theta x_i), \qquad
        \hat\theta = \frac{\sum_j \theta_j e^{\ell(\theta_j)}}{\sum_j e^{\ell(\theta_j)}}, \qquad
        \ell(\theta) = M \Bigl(\log \frac{-\theta}{k(\theta)} - k(\theta) - 1\Bigr)

    over :math:`m = 30 + \lfloor \sqrt M \rfloor` points :math:`\theta_j = 1 / x_{(M)} + (1 - \sqrt{m / (j -
    0.5)}) / (3 x_{(\lfloor M / 4 + 0.5 \rfloor)})`, and shrinks the result: :math:`\hat k = (M k(\hat\theta)
    + 5) / (M + 10)`.

    Shapes
    ------
    log_w : :math:`(S, *)`; strata belong in the first axis, each with the logarithm of its weight added.
    output : :math:`(*)`, in float64; minus infinity if the largest weights are all equal

    Raises
    ------
    ValueError
        If there are fewer than ``MIN_DRAWS`` draws.

    References
    ----------
    Zhang & Stephens (2009), A new and efficient estimation method for the generalized Pareto distribution;
    our :math:`k` is minus theirs. Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance
    sampling, for :math:`M`, the number of points and the shrinkage.

    Examples
    --------
    >>> uniforms = (torch.arange(1000) + 0.5) / 1000
    >>> pareto_k(-0.6 * uniforms.log())  # the weights are Pareto quantiles with shape 0.6
    tensor(0.5839, dtype=torch.float64)
    """
    n_draws = len(log_w)
    if n_draws < MIN_DRAWS:
        raise ValueError(f"A tail can be fitted to {MIN_DRAWS} draws or more, got {n_draws}.")
    n_tail = math.ceil(min(0.2 * n_draws, 3.0 * math.sqrt(n_draws)))
    weights = (log_w.double() - log_w.double().amax(dim=0)).exp()
    largest = weights.topk(n_tail + 1, dim=0).values  # falling
    exceedances = largest[:-1] - largest[-1]  # (M, *)

    shape = _pareto_shape(exceedances)
    shrunk = (n_tail * shape + _PRIOR_WEIGHT * _PRIOR_SHAPE) / (n_tail + _PRIOR_WEIGHT)
    return torch.where(exceedances[0] > 0, shrunk, -math.inf)


def _pareto_shape(falling: Tensor) -> Tensor:
    """Returns the estimate of Zhang and Stephens from exceedances (M, *), the largest first."""
    n_tail = len(falling)
    n_points = 30 + math.isqrt(n_tail)
    largest, quartile = falling[0], falling[-math.floor(n_tail / 4 + 0.5)]
    quartile = torch.maximum(quartile, torch.finfo(falling.dtype).eps * largest)  # ties with the threshold
    steps = 1.0 - (n_points / (torch.arange(n_points, dtype=falling.dtype) + 0.5)).sqrt()
    thetas = [largest.reciprocal() + step / (3.0 * quartile) for step in steps]  # each (*)

    shapes = torch.stack([torch.log1p(-theta * falling).mean(dim=0) for theta in thetas])  # (m, *)
    points = torch.stack(thetas)
    log_likelihood = n_tail * ((-points / shapes).log() - shapes - 1.0)
    theta = (log_likelihood.softmax(dim=0) * points).sum(dim=0)
    return torch.log1p(-theta * falling).mean(dim=0)
