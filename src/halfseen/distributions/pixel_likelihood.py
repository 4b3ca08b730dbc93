"""The likelihood of images: all pixels have one family, which follows from the values that they take."""

from collections.abc import Sequence

from halfseen.data.columns import Column
from halfseen.data.pixels import n_shades
from halfseen.distributions.families import RealFamily
from halfseen.distributions.observation_model import ObservationModel


def pixel_observation_model(columns: Sequence[Column], numeric: RealFamily) -> ObservationModel:
    """Returns the likelihood of pixels as `pixel_features` maps them: of two values, shades, or numbers."""
    size, shades = len(columns), n_shades(columns[0])
    if shades is None:
        return ObservationModel.for_pixels(size, numeric)
    if columns[0].levels is not None:
        return ObservationModel.for_pixels(size, "bernoulli", low=-1.0)
    return ObservationModel.for_pixels(size, "discretised-logistic", low=-1.0, n_bins=shades)
