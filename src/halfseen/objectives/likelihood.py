"""The likelihood of the observed cells."""

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.models.protocols import DensityModel


class NegativeLogLikelihood:
    r"""Scores a density by the observed cells of each row.

    .. math:: \ell(x, o) = -\log p(x_o)

    Ignoring the mechanism is valid under MAR, if its parameters are distinct from those of the model; under
    MNAR, the estimate is biased.

    Notes
    -----
    Shapes: the batch holds :math:`(N, D)`, the loss is :math:`(N)`. No noise is needed.

    References
    ----------
    Rubin (1976), Inference and missing data, theorem 7.1.

    Examples
    --------
    >>> from halfseen.models.mixture import DiagonalMixture
    >>> batch = Incomplete(torch.zeros(2, 1), torch.tensor([[True], [False]]))
    >>> objective = NegativeLogLikelihood()
    >>> objective(DiagonalMixture(n_features=1, n_components=1), batch, noise=())
    tensor([0.9189, -0.0000], grad_fn=<NegBackward0>)
    """

    def draw_noise(self, batch: Incomplete, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the likelihood is exact."""
        return ()

    def __call__(self, module: DensityModel, batch: Incomplete, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the negative log density of the observed cells of each row."""
        return -module(batch)
