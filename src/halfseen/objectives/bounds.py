r"""Lower bounds on a log likelihood, from the log weights of latent draws.

Every latent-variable objective is one of three averages of the same log weights :math:`\log w =
\log p(x_o, z) - \log q(z)`. With *stratified* draws, :math:`S` of each of :math:`K` components, a component
counts by its weight :math:`\pi_k` and :math:`q` is the density of the whole mixture. Draws that are
independent are one stratum: :math:`K = 1` and :math:`\log \pi = 0`.

Shapes: ``log_w`` is :math:`(S, N, K)`, ``log_strata`` holds :math:`\log \pi`, :math:`(N, K)`, and a bound is
:math:`(N)`. For the same weights ``elbo <= looser_siwelbo <= iwelbo``, row by row.

Two estimators of the gradient with less noise concern the posterior alone. *Sticking the landing*: take
:math:`\log q` of the detached posterior, so that gradients reach it through the draws only (Roeder, Wu &
Duvenaud, 2017); unbiased for the ELBO, biased for importance weighted bounds. *Doubly reparametrised*: see
``doubly_reparametrised``; unbiased for the IWELBO of independent draws.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Bound = Callable[[Tensor, Tensor], Tensor]


def elbo(log_w: Tensor, log_strata: Tensor) -> Tensor:
    r"""Returns the evidence lower bound of each row; of stratified draws, the SELBO.

    .. math:: \sum_k \pi_k \frac{1}{S} \sum_s \log w_{sk}

    References
    ----------
    Kingma & Welling (2014), Auto-encoding variational Bayes. Simkus & Gutmann (2024), Improving
    variational autoencoder estimation from incomplete data with mixture variational families.

    Examples
    --------
    >>> log_w = torch.tensor([1.0, 3.0]).log().reshape(2, 1, 1)
    >>> elbo(log_w, torch.zeros(1, 1)).exp()
    tensor([1.7321])
    """
    return (log_strata.exp() * log_w.mean(dim=0)).sum(dim=-1)


def iwelbo(log_w: Tensor, log_strata: Tensor) -> Tensor:
    r"""Returns the importance weighted bound of each row; of stratified draws, the SIWELBO.

    .. math:: \log \sum_k \pi_k \frac{1}{S} \sum_s w_{sk}

    Its expectation grows with :math:`S` towards the log likelihood.

    References
    ----------
    Burda, Grosse & Salakhutdinov (2016), Importance weighted autoencoders. Morningstar et al. (2021),
    Automatic differentiation variational inference with mixtures.

    Examples
    --------
    >>> log_w = torch.tensor([1.0, 3.0]).log().reshape(2, 1, 1)
    >>> iwelbo(log_w, torch.zeros(1, 1)).exp()
    tensor([2.])
    """
    return (log_strata + log_w).logsumexp(dim=(0, 2)) - math.log(len(log_w))


def looser_siwelbo(log_w: Tensor, log_strata: Tensor) -> Tensor:
    r"""Returns the stratified bound with the logarithm inside the sum over components.

    .. math:: \sum_k \pi_k \log \frac{1}{S} \sum_s w_{sk}

    It is the SELBO for one draw of each component and the IWELBO for one component. No component can be
    left to the others, so that mixtures are less prone to collapse than under the SIWELBO.

    References
    ----------
    Simkus & Gutmann (2024), footnote 7.

    Examples
    --------
    >>> log_w = torch.tensor([1.0, 3.0]).log().reshape(1, 1, 2)
    >>> looser_siwelbo(log_w, torch.full((1, 2), 0.5).log()).exp()
    tensor([1.7321])
    """
    return (log_strata.exp() * (log_w.logsumexp(dim=0) - math.log(len(log_w)))).sum(dim=-1)


BOUNDS: Mapping[str, Bound] = {"elbo": elbo, "iwelbo": iwelbo, "siwelbo-loose": looser_siwelbo}
"""The bounds by the names under which users choose them."""


def scale_gradient(z: Tensor, factor: Tensor) -> Tensor:
    """Returns `z` unchanged; the gradient that arrives at it goes on multiplied by `factor`.

    Examples
    --------
    >>> z = torch.ones(2, requires_grad=True)
    >>> scale_gradient(z, torch.tensor([0.0, 3.0])).sum().backward()
    >>> z.grad
    tensor([0., 3.])
    """
    return z.detach() + factor * (z - z.detach())


def doubly_reparametrised(log_weights: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    r"""Returns log weights for whose IWELBO the gradient through the draws is the DReG estimator.

    .. math:: \nabla_\phi = \sum_s \bar w_s^2 \, \frac{\partial \log w_s}{\partial z_s}
              \frac{\partial z_s}{\partial \phi}, \qquad \bar w_s = \frac{w_s}{\sum_r w_r}

    where the IWELBO by itself gives :math:`\bar w_s` in place of its square and an additional term in
    :math:`\partial \log q / \partial \phi` of large variance. Parameters that `log_weights` reaches by
    another way than `z`, such as a decoder's, receive the ordinary gradient :math:`\sum_s \bar w_s \,
    \partial \log w_s / \partial \theta`. The weights must be known before the gradient is:
    `log_weights` is called twice, first without a graph, which costs a third more than the plain bound.

    Parameters
    ----------
    log_weights : callable
        Maps draws to their log weights, with :math:`\log q` of the **detached** posterior; it must give the
        same values when called again.
    z : Tensor
        The draws, attached to the posterior.

    Shapes
    ------
    z : :math:`(S, N, L)`
    output : :math:`(S, N, 1)`, as `log_weights` returns it

    Raises
    ------
    ValueError
        If the draws are stratified: then :math:`\partial \log q / \partial z` is not the score of the
        component that was sampled, and the estimator does not hold.

    References
    ----------
    Tucker, Lawson, Gu & Maddison (2019), Doubly reparameterized gradient estimators for Monte Carlo
    objectives.
    """
    with torch.no_grad():
        log_w = log_weights(z)
    if log_w.shape[-1] != 1:
        raise ValueError(f"Doubly reparametrised gradients need a single stratum, got {log_w.shape[-1]}.")
    return log_weights(scale_gradient(z, log_w.detach().softmax(dim=0)))
