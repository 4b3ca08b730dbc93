"""The report on not-MIWAE in its own configuration: a linear mask on all values and a linear decoder.

The toys are the report's Gaussian (500 rows, correlation 0.8, the first feature missing above its mean) and
its ring (1500 points, a radius of mean 4.5 and *variance* 0.5, the first coordinate missing in the upper
quarter). The models are the report's too: the probability that a value is missing is a logistic function of
all values of the row (section 5 and figure 3), the decoder is linear with one latent variable, and all
values of a column have one scale. Beside them stand its rivals (nearest neighbours, chained regressions and
a random forest, both by scikit-learn's `IterativeImputer`) and the mean.

- ``RMSE`` over missing cells.
- ``off the line``: the median distance of single best values from the circle or the regression line.
- ``mask log-loss``: of the inferred probability that the first value is missing, at the true complete rows;
  a constant probability has 0.693 on the Gaussian and 0.562 on the ring. The probabilities on a grid of
  both features, the map of figure 3, are kept with the first seed.

"ReLU mask" has one hidden layer of 128 rectified units in the mask model, which the report tried.

On MNIST (flat images scaled to [-1, 1]) pixels of a disc in the middle are missing whose absolute value is
above 0.5, which is nearly the whole disc, because the background is -1. Models see flat images, as in the
report, with one latent variable less than there are pixels. The scale "small" has no images, and the toys
with three seeds, the Gaussian with more: eight of both mask models, twenty of the others, as the spread of
three seeds said that these would decide most of the claims about it.

The report trained both of its toys without the argument that chooses the loss of not-MIWAE, so its numbers
for not-MIWAE may be those of MIWAE; that they differ by 0.006 at most says the same. The claims are the
report's statements. They were written before any run of this experiment; of one configuration, MIWAE with a
linear decoder, errors of 1.12 (Gaussian) and 2.02 (ring) were known.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer, KNNImputer
from sklearn.metrics import log_loss
from torch import Tensor
from torch.nn import functional

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.datasets.loaders import load
from halfseen.distributions.observation_model import ObservationModel
from halfseen.gaussian.imputer import MeanImputer
from halfseen.latent.architecture import LatentArchitecture
from halfseen.latent.mask_models import MaskModel, NonlinearMask
from halfseen.latent.presets import MIWAEImputer, NotMIWAEImputer
from halfseen.missingness import Disc
from halfseen.words import Missingness
from papers.amputed_table import AmputedArray
from papers.claims import AtLeast, Better, Published, Setting, Within
from papers.notmiwae.disc import DATA_SET, RADIUS, SHAPE, THRESHOLD
from papers.notmiwae.toys import GAUSSIAN, N_ROWS, OFF, RING, RMSE, Task, make_toy
from papers.spec import Budget, Experiment

Floats = npt.NDArray[np.float64]

LOSS, MAP = "mask log-loss", "map"
GRID = np.linspace(-1.0, 1.0, 41)  # of the map, in units of the largest absolute value
IMAGES = "disc, |x| > 0.5"
N_IMAGES = 2000

NOT, MAR, RELU = "not-MIWAE as in the report", "MIWAE as in the report", "not-MIWAE, ReLU mask"
NEAREST, CHAINED, FOREST, MEAN = "KNNImputer", "IterativeImputer", "random forest", "mean"
FLAT_NOT, FLAT = "not-MIWAE, flat images", "MIWAE, flat images"
CONSTANT = {GAUSSIAN: 0.693, RING: 0.562}  # the log-loss of the share of missing values
NEAR = {GAUSSIAN: 0.1, RING: 0.15}  # standard errors of the report's RMSE are about 0.05 and 0.08; guesses

_PUBLISHED: dict[str, dict[str, float]] = {
    GAUSSIAN: {NOT: 1.152, MAR: 1.153, NEAREST: 1.320, CHAINED: 1.155, FOREST: 1.328},
    RING: {NOT: 1.971, MAR: 1.977, NEAREST: 3.046, CHAINED: 1.975, FOREST: 4.034},
    IMAGES: {FLAT: 0.9286, NEAREST: 0.9354},
}
_DESIGN: dict[str, Any] = {"decoder": "linear", "numeric": "shared-gaussian", "random_state": 0}


class ReluMask(NonlinearMask):
    r"""The report's mask network: :math:`\ell(x) = A \max(W x + c, 0) + b`."""

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds (*, C) of being observed."""
        return functional.linear(torch.relu(self.inner(x)), self.weight, self.bias)


class ReluArchitecture(LatentArchitecture):
    """Networks for a table with the report's mask network."""

    def _mask_model(self, observation: ObservationModel) -> MaskModel:
        return ReluMask(self.layout(observation))


class ReluNotMIWAE(NotMIWAEImputer):
    """not-MIWAE with the report's mask network, which cannot be saved."""

    def _architecture(self, features: FeatureMap, codes: Incomplete) -> LatentArchitecture:
        made = super()._architecture(features, codes)
        return ReluArchitecture(**{field.name: getattr(made, field.name) for field in fields(made)})


def make_task(setting: Setting, seed: int) -> Task | AmputedArray:
    """Returns a toy, or flat images with a disc; other seeds have other images."""
    if setting["toy"] in N_ROWS:
        return make_toy(setting["toy"], seed)
    return hide_disc(load(DATA_SET)["x_train"][seed * N_IMAGES : (seed + 1) * N_IMAGES])


def hide_disc(images: npt.NDArray[Any]) -> AmputedArray:
    """Returns flat images on [-1, 1] without the pixels of the disc whose absolute value is above 0.5."""
    X = images.reshape(len(images), -1) / 127.5 - 1.0
    mechanism = Disc(radius=RADIUS, threshold=THRESHOLD, absolute=True, shape=SHAPE).fit(X)
    return AmputedArray(X, ~mechanism.sample(X))


@torch.no_grad()
def missing_probability(imputer: NotMIWAEImputer, rows: Floats) -> Floats:
    """Returns the learned probability (N) that the first value is missing, of complete rows."""
    assert imputer.model_ is not None
    features = imputer._encoding.features.encode(Incomplete.from_array(rows)).x
    found: Floats = torch.sigmoid(-imputer.model_.mask_model.logits(features)[:, 0]).numpy()
    return found


def score(model: Any, task: Task | AmputedArray) -> dict[str, Any]:
    """Fits a model and returns its errors, and of a model of the mask also how well that is inferred."""
    if isinstance(task, AmputedArray):
        filled = np.asarray(model.fit(task.incomplete).transform(task.incomplete))
        return {RMSE: float(np.sqrt(np.mean((filled - task.X)[task.missing] ** 2)))}
    model.fit(task.sample.incomplete)
    filled = np.asarray(model.transform(task.to_fill))
    found: dict[str, Any] = {
        RMSE: float(np.sqrt(np.mean((filled - task.sample.X[task.hidden])[:, 0] ** 2))),
        OFF: float(np.median(task.law.distance(filled))),
    }
    if not isinstance(model, NotMIWAEImputer):
        return found
    found[LOSS] = float(log_loss(task.hidden, missing_probability(model, task.sample.X)))
    if task.seed == 0:
        axis = GRID * np.abs(task.sample.X).max()
        at = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        found[MAP] = missing_probability(model, at).reshape(len(axis), len(axis))
    return found


def published(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns the report's number, if it has one."""
    number = _PUBLISHED[setting["toy"]].get(model) if metric == RMSE else None
    return None if number is None else Published(number, label="figure 4" if "flat" in model else "table 1")


def _forest() -> IterativeImputer:
    forest = RandomForestRegressor(n_estimators=100, random_state=0)
    return IterativeImputer(forest, max_iter=10, random_state=0)


MODELS: dict[str, Callable[[], Any]] = {
    NOT: partial(NotMIWAEImputer, missingness=Missingness.LINEAR, n_latent=1, **_DESIGN),
    MAR: partial(MIWAEImputer, n_latent=1, **_DESIGN),
    RELU: partial(ReluNotMIWAE, missingness=Missingness.NONLINEAR, n_latent=1, **_DESIGN),
    NEAREST: KNNImputer,
    CHAINED: partial(IterativeImputer, random_state=0),
    FOREST: _forest,
    MEAN: MeanImputer,
    FLAT_NOT: partial(NotMIWAEImputer, missingness=Missingness.LINEAR, n_latent=783, **_DESIGN),
    FLAT: partial(MIWAEImputer, n_latent=783, **_DESIGN),
}
_ON_TOYS = [NOT, MAR, RELU, NEAREST, CHAINED, FOREST, MEAN]
_TOYS = (GAUSSIAN, RING)

EXPERIMENT = Experiment(
    name="notmiwae-report",
    question="Do the numbers of the report on not-MIWAE come out again in its own configuration?",
    paper="a report on not-MIWAE (the method: Ipsen, Mattei & Frellsen, 2021)",
    make_data=make_task,
    data_sets=lambda setting: (DATA_SET,) if setting["toy"] == IMAGES else (),
    models=MODELS,
    score=score,
    metrics={RMSE: "lower", OFF: "lower", LOSS: "lower"},
    budgets={
        "smoke": Budget.grid(1, models=[MAR, NEAREST, FOREST, MEAN], toy=[GAUSSIAN]),
        "small": Budget.grid(8, models=[NOT, RELU], toy=[GAUSSIAN])
        + Budget.grid(20, models=[MAR, NEAREST, CHAINED, FOREST, MEAN], toy=[GAUSSIAN])
        + Budget.grid(3, models=_ON_TOYS, toy=[RING]),
        "paper": Budget.grid(5, models=_ON_TOYS, toy=_TOYS)
        + Budget.grid(3, models=[FLAT_NOT, FLAT, NEAREST, MEAN], toy=[IMAGES]),
    },
    claims=[
        *(
            Within(model, RMSE, number, NEAR[toy], {"toy": toy})
            for toy in _TOYS
            for model, number in _PUBLISHED[toy].items()
        ),
        *(
            Better(model, rival, on=RMSE, where={"toy": toy})
            for toy in _TOYS
            for model in (NOT, MAR)
            for rival in (NEAREST, FOREST)
        ),
        *(Better(NOT, MEAN, on=OFF, where={"toy": toy}) for toy in _TOYS),
        *(AtLeast(NOT, LOSS, bound, {"toy": toy}) for toy, bound in CONSTANT.items()),
        *(Better(NOT, RELU, on=RMSE, by=-0.05, where={"toy": toy}) for toy in _TOYS),
        *(Better(model, NEAREST, on=RMSE, by=-0.05, where={"toy": IMAGES}) for model in (FLAT_NOT, FLAT)),
    ],
    numbers=published,
)
