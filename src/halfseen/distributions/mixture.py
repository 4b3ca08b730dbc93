r"""Mixtures of diagonal Gaussians: the family of latent posteriors, with draws that carry gradients."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen._threads import widest

MIN_LOG_DENSITY = -80.0  # a draw that its own density all but excludes must not overflow float32
_LOG_ROOT_TAU = math.log(math.sqrt(2.0 * math.pi))


@dataclass(frozen=True)
class GaussianMixture:
    r"""A mixture of diagonal Gaussians over :math:`L` latents, one for each entry of a batch.

    .. math:: q(z) = \sum_{k=1}^K \pi_k \prod_{l=1}^L \mathcal{N}(z_l \mid \mu_{kl}, \sigma_{kl}^2),
              \qquad \pi = \operatorname{softmax}(\text{logits})

    Draws are *ancestral*, of the mixture, or *stratified*, the same number of each component; both carry
    gradients to the parameters. A single component is the plain diagonal Gaussian, to the last bit, in its
    density, its draws and their gradients.

    Parameters
    ----------
    logits : Tensor
        The unnormalised log weights.
    loc : Tensor
        The means :math:`\mu`.
    scale : Tensor
        The standard deviations :math:`\sigma > 0`.

    Shapes
    ------
    logits : :math:`(*, K)`
    loc, scale : :math:`(*, K, L)`

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families. Figurnov, Mohamed & Mnih (2018), Implicit reparameterization gradients. Graves
    (2016), Stochastic backpropagation through mixture density distributions.

    Examples
    --------
    >>> loc = torch.tensor([[-1.0], [1.0]])
    >>> mixture = GaussianMixture(torch.zeros(2), loc, torch.ones(2, 1))
    >>> mixture.log_prob(torch.zeros(3, 1)).exp()
    tensor([0.2420, 0.2420, 0.2420])
    >>> mixture.stratified(torch.zeros(5, 2, 1)).shape
    torch.Size([5, 2, 1])
    """

    logits: Tensor
    loc: Tensor
    scale: Tensor

    def __post_init__(self) -> None:
        if self.logits.shape != self.loc.shape[:-1] or self.loc.shape != self.scale.shape:
            shapes = ", ".join(str(tuple(part.shape)) for part in (self.logits, self.loc, self.scale))
            raise ValueError(
                f"logits, loc and scale must have shapes (*, K), (*, K, L), (*, K, L), got {shapes}."
            )

    @classmethod
    def uniform(cls, loc: Tensor, scale: Tensor) -> "GaussianMixture":
        """Creates the mixture with equal weights."""
        return cls(loc.new_zeros(loc.shape[:-1]), loc, scale)

    @property
    def n_components(self) -> int:
        """The number of components K."""
        return self.loc.shape[-2]

    @property
    def log_weights(self) -> Tensor:
        r"""The normalised :math:`\log \pi`, with shape :math:`(*, K)`."""
        return self.logits.log_softmax(dim=-1)

    def detach(self) -> "GaussianMixture":
        """Returns the same mixture without gradients; sticking-the-landing bounds take their density so."""
        return GaussianMixture(self.logits.detach(), self.loc.detach(), self.scale.detach())

    def __getitem__(self, rows: Tensor) -> "GaussianMixture":
        """Returns the mixtures of some rows."""
        return GaussianMixture(self.logits[rows], self.loc[rows], self.scale[rows])

    def mean(self) -> Tensor:
        """Returns the mean of the mixture, with shape :math:`(*, L)`."""
        return (self.logits.softmax(dim=-1).unsqueeze(-1) * self.loc).sum(dim=-2)

    def log_prob(self, z: Tensor) -> Tensor:
        """Returns the log density of draws :math:`(S, *, L)`, with shape :math:`(S, *)`."""
        if self.n_components == 1:
            return _log_normal(z, self.loc.squeeze(-2), self.scale.squeeze(-2)).sum(dim=-1)
        each = _log_normal(z.unsqueeze(-2), self.loc, self.scale).sum(dim=-1)  # (S, *, K)
        return (self.log_weights + each).logsumexp(dim=-1)

    def log_prob_strata(self, z: Tensor) -> Tensor:
        r"""Returns the log density of the whole mixture at draws of each component.

        The squares are not expanded into matrix products: with narrow components that cancels all digits.

        Shapes
        ------
        z : :math:`(S, *, K, L)`
        output : :math:`(S, *, K)`; an array :math:`(S, *, K, K, L)` arises on the way.
        """
        if self.n_components == 1:
            return self.log_prob(z.squeeze(-2)).unsqueeze(-1)
        loc, scale = self.loc.unsqueeze(-3), self.scale.unsqueeze(-3)  # (*, 1, K, L)
        each = _log_normal(z.unsqueeze(-2), loc, scale).sum(dim=-1)  # (S, *, K, K)
        return (self.log_weights.unsqueeze(-2) + each).logsumexp(dim=-1)

    def stratified(self, normals: Tensor) -> Tensor:
        """Returns draws of every component from standard normals, both of shape :math:`(S, *, K, L)`."""
        return self.loc + self.scale * normals

    def ancestral(self, uniforms: Tensor, normals: Tensor) -> Tensor:
        r"""Returns draws of the mixture, with implicit gradients to all of its parameters.

        The weights are inverted at `uniforms` to choose a component, which `normals` then fill. The gradient
        is that of the map that takes independent uniforms through the inverse conditional distribution
        functions of the mixture, at the point of that map where the draw lies. Only first derivatives are
        valid.

        Shapes
        ------
        uniforms : :math:`(S, *)`, in :math:`[0, 1)`
        normals, output : :math:`(S, *, L)`
        """
        if self.n_components == 1:
            return self.loc.squeeze(-2) + self.scale.squeeze(-2) * normals
        draw = self.detach()._choose(uniforms, normals)
        if not torch.is_grad_enabled():
            return draw
        return draw + _implicit_tangent(self, draw).to(draw.dtype)

    def _choose(self, uniforms: Tensor, normals: Tensor) -> Tensor:
        """Returns the values of ancestral draws."""
        passed = (self.logits.softmax(dim=-1).cumsum(dim=-1) <= uniforms.unsqueeze(-1)).sum(dim=-1)  # (S, *)
        component = passed.clamp(max=self.n_components - 1)  # the sum of all may round to just below 1
        index = component[..., None, None]  # (S, *, 1, 1)
        lead = component.shape
        loc, scale = (
            part.expand(*lead, *part.shape[-2:]).take_along_dim(index, dim=-2).squeeze(-2)
            for part in (self.loc, self.scale)
        )  # (S, *, L)
        return loc + scale * normals

    @torch.no_grad()
    def component_distances(self) -> Tensor:
        r"""Returns how far apart the components lie, to see whether a mixture has collapsed.

        .. math:: d_{jk} = \Bigl(\frac{1}{L} \sum_l \frac{(\mu_{jl} - \mu_{kl})^2}
                  {(\sigma_{jl}^2 + \sigma_{kl}^2) / 2}\Bigr)^{1/2}

        Shapes
        ------
        output : :math:`(*, K, K)`, symmetric, zero on the diagonal; without gradients.
        """
        difference = self.loc.unsqueeze(-2) - self.loc.unsqueeze(-3)  # (*, K, K, L)
        variance = self.scale.square()
        pooled = 0.5 * (variance.unsqueeze(-2) + variance.unsqueeze(-3))
        return (difference.square() / pooled).mean(dim=-1).sqrt()


def _implicit_tangent(mixture: GaussianMixture, draw: Tensor) -> Tensor:
    r"""Returns zeros, in float64, whose gradient is that of the draw by implicit differentiation.

    The conditional distribution functions of the mixture turn a draw into independent uniforms:

    .. math:: u_j = \sum_k \rho_{kj} \Phi(t_{kj}), \qquad t_{kj} = (z_j - \mu_{kj}) / \sigma_{kj}, \qquad
              \rho_{kj} \propto \pi_k \prod_{i<j} \mathcal{N}(z_i \mid \mu_{ki}, \sigma_{ki}^2)

    Held fixed, they tie the draw to the parameters: :math:`J \, dz = -(\partial u / \partial \phi) \, d\phi`
    with the lower triangular :math:`J = \partial u / \partial z`. Divide each row by :math:`J_{jj} = \sum_k
    \rho_{kj} \mathcal{N}(z_j \mid \mu_{kj}, \sigma_{kj}^2)` and write :math:`c_{kj} = \rho_{kj} (\Phi(t_{kj})
    - u_j) / J_{jj}`; then

    .. math::
        dz_j - \sum_{i<j} \sum_k c_{kj} \frac{t_{ki}}{\sigma_{ki}} dz_i =
        \sum_k \rho_{k,j+1} (d\mu_{kj} + t_{kj} \, d\sigma_{kj}) - \sum_k c_{kj} \Bigl(d\text{logits}_k +
        \sum_{i<j} \frac{t_{ki} \, d\mu_{ki} + (t_{ki}^2 - 1) \, d\sigma_{ki}}{\sigma_{ki}}\Bigr)

    These are the tangents in the direction :math:`d\phi = \phi - \phi_\text{detached}`, which is zero; their
    transpose, the gradient, is left to autograd, which solves with :math:`J^\top` by back substitution.

    Shapes
    ------
    draw, output : :math:`(S, *, L)`
    """
    # Not an autograd Function: compiled gradients of torch.func ignore its backward (torch issue 193279).
    wide = widest(draw.device)
    parts = mixture.logits.to(wide), mixture.loc.to(wide), mixture.scale.to(wide)
    d_logits, d_loc, d_scale = (part - part.detach() for part in parts)
    logits, loc, scale = (part.detach() for part in parts)

    t = (draw.to(wide).unsqueeze(-2) - loc) / scale  # (S, *, K, L)
    after, spread = _conditional_weights(logits, t, scale)  # rho_{k,j+1}, c
    slope = t / scale
    pathwise = after * (d_loc + t * d_scale)
    d_log_normal = slope * d_loc + (t * slope - scale.reciprocal()) * d_scale  # (S, *, K, L)
    d_joint = d_logits.unsqueeze(-1) + d_log_normal.cumsum(dim=-1) - d_log_normal
    right = (pathwise - spread * d_joint).sum(dim=-2)  # (S, *, L)
    left = -(spread.mT @ slope)  # (S, *, L, L), of which what is below the diagonal is used
    right = right.unsqueeze(-1)
    tangent: Tensor = torch.linalg.solve_triangular(left, right, upper=False, unitriangular=True)
    return tangent.squeeze(-1)


def _conditional_weights(logits: Tensor, t: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the weights of the components once latent j is known, and c, both (S, *, K, L)."""
    log_normal = -0.5 * t.square() - scale.log() - _LOG_ROOT_TAU
    prior = logits.unsqueeze(-1).expand_as(t)[..., :1]
    joint = torch.cat([prior, log_normal], dim=-1).cumsum(dim=-1)  # (S, *, K, L + 1)
    weights = joint.softmax(dim=-2)
    before, after = weights[..., :-1], weights[..., 1:]
    log_density = joint.logsumexp(dim=-2, keepdim=True).diff(dim=-1)  # log J_jj, (S, *, 1, L)

    # From the nearer side: differences of distribution functions close to 1 would lose their digits.
    side = torch.where((before * t).sum(dim=-2, keepdim=True) > 0, -1.0, 1.0).to(t.dtype)
    tail = 0.5 * torch.erfc(-math.sqrt(0.5) * side * t)
    above_mean = side * (tail - (before * tail).sum(dim=-2, keepdim=True))
    return after, before * above_mean * (-log_density.clamp(min=MIN_LOG_DENSITY)).exp()


def _log_normal(z: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    return -((z - loc).square()) / (2.0 * scale.square()) - scale.log() - _LOG_ROOT_TAU
