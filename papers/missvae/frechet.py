r"""The Fréchet distance between samples of features, and features from the encoder of a latent model."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete, unmask
from halfseen.latent.model import LatentModel, Preimputed, encoder_input

Floats = npt.NDArray[np.float64]

CHUNK = 4096  # rows per pass of the network


def frechet_distance(first: npt.ArrayLike | Tensor, second: npt.ArrayLike | Tensor) -> float:
    r"""Returns the squared Fréchet distance between the Gaussians fitted to two samples of features.

    .. math:: \|\mu_1 - \mu_2\|^2 + \operatorname{tr}\bigl(C_1 + C_2 - 2 (C_1 C_2)^{1/2}\bigr)

    Parameters
    ----------
    first, second : array-like of shape (n_rows, n_features)
        Two rows or more of each; more rows than features, or the covariances are singular and the distance
        is mostly noise.

    References
    ----------
    Heusel, Ramsauer, Unterthiner, Nessler & Hochreiter (2017), GANs trained by a two time-scale update rule
    converge to a local Nash equilibrium, eq. 6.

    Examples
    --------
    >>> corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> round(frechet_distance(corners, corners + [3.0, 4.0]), 6)
    25.0
    """
    moments = [_moments(sample) for sample in (first, second)]
    if moments[0][0].shape != moments[1][0].shape:
        widths = f"{len(moments[0][0])} and {len(moments[1][0])}"
        raise ValueError(f"The samples have {widths} features; their numbers must be equal.")
    return gaussian_frechet_distance(*moments[0], *moments[1])


def gaussian_frechet_distance(
    loc_a: npt.ArrayLike, covariance_a: npt.ArrayLike, loc_b: npt.ArrayLike, covariance_b: npt.ArrayLike
) -> float:
    r"""Returns the squared Fréchet, or 2-Wasserstein, distance between two Gaussians.

    The trace of :math:`(C_1 C_2)^{1/2}` is the sum of the singular values of :math:`C_1^{1/2} C_2^{1/2}`,
    which is real and stable where the root of the product itself is neither.

    References
    ----------
    Dowson & Landau (1982), The Fréchet distance between multivariate normal distributions.

    Examples
    --------
    >>> gaussian_frechet_distance([0.0], [[1.0]], [3.0], [[4.0]])
    10.0
    """
    shift = np.asarray(loc_a, dtype=np.float64) - np.asarray(loc_b, dtype=np.float64)
    first, second = (np.asarray(one, dtype=np.float64) for one in (covariance_a, covariance_b))
    shared = np.linalg.svd(_root(first) @ _root(second), compute_uv=False).sum()
    distance = shift @ shift + np.trace(first) + np.trace(second) - 2 * shared
    return max(float(distance), 0.0)  # below 0 by rounding only


@torch.no_grad()
def encoder_features(model: LatentModel, batch: Incomplete) -> Tensor:
    r"""Returns the encoder's output for rows: the parameters of their posteriors.

    For a distance between samples, take the same model, trained on complete rows, for both.

    Shapes
    ------
    output : :math:`(N, 2KL + K)`, or :math:`(N, 2L)` for one component: means, scales before the softplus,
        logits
    """
    pieces = batch.chunks(CHUNK) if len(batch) else iter([batch])
    return torch.cat([model.encoder(encoder_input(rows, model.fill)) for rows in pieces])


@torch.no_grad()
def draw_rows(model: LatentModel, n_rows: int, *, generator: torch.Generator) -> Preimputed:
    """Returns complete rows (N, D) drawn from a model, as rows that any encoder can read."""
    dtype = next(model.parameters()).dtype
    pieces = []
    for start in range(0, n_rows, CHUNK):
        size = min(CHUNK, n_rows - start)
        z = torch.randn(size, model.n_latent, generator=generator, dtype=dtype)
        noise = torch.rand(size, model.observation.n_noise, generator=generator, dtype=dtype)
        pieces.append(model.observation.sample(model.decoder(z), noise))
    x = torch.cat(pieces) if pieces else torch.zeros(0, model.observation.n_features, dtype=dtype)
    return Preimputed(x, torch.ones_like(x, dtype=torch.bool), x)


def _moments(sample: npt.ArrayLike | Tensor) -> tuple[Floats, Floats]:
    given = sample.detach().numpy() if isinstance(sample, Tensor) else sample
    array = np.asarray(unmask(given), dtype=np.float64)
    if array.ndim != 2 or len(array) < 2:
        raise ValueError(f"Expected two rows or more of shape (n_rows, n_features), got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError("The features contain missing or infinite values.")
    return array.mean(axis=0), np.atleast_2d(np.cov(array, rowvar=False))


def _root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = (vectors * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
    return root
