"""Toy problems on which a report found that not-MIWAE fails: a self-masked Gaussian, a ring and a disc.

The report's own configuration, which is simpler, is in `papers.notmiwae.report`. Here are default imputers.
The Gaussian has 500 rows of two features with correlation 0.8; the first is missing if it is above its mean.
The best imputation is its expectation given the second feature and the fact that it is missing. The ring has
1500 points; the first coordinate is missing in the upper quarter. There, both sides are equally probable and
the best imputation is 0, where there are no points. Since RMSE cannot distinguish a ring from a disc, draws
are judged too.

- ``RMSE`` over missing cells, of single best values.
- ``off the line``: the median distance of draws from the line around which the distribution
  lies, a circle or the regression line. That of the oracle's draws is as it should be.
- ``rarer side``: the share of the draws of a row on the side of the oracle's expectation that has fewer of
them,
  averaged over rows. It is near a half for the oracle's draws, and 0 if all draws are on one side.
- ``energy distance`` of draws to the true rows.

For an imputer without draws, its single value is used as a draw. The report had a linear decoder with one
latent variable, and its training on both toys left out the argument that chooses the loss, whose default is
that of MIWAE, so its not-MIWAE may have been MIWAE.

On the ring, the first coordinate is never observed at the top. Draws there are an extrapolation of the rest
of the circle by a network, and the likelihood of observed cells cannot distinguish one extrapolation from
another. The imputer called "chosen" is the one of two, MIWAE and MissIWAE with two latent variables, with
the better bound on held-out rows, regardless of its imputations. (On the first seed, MIWAE with one latent
variable was a third candidate; its bound was lower by 0.76, and it was left out afterwards.) Another imputer
is given the mechanism, up to a soft edge: it knows that a point whose first coordinate is missing is in the
upper quarter.

On the Gaussian, not-MIWAE gives the same result with and without a known direction. Its mask is initialised
from a probit fit, which is so steep here that the direction is certain.

The disc is one of images, see `papers.notmiwae.disc`; it has errors only, and one seed. For the
sake of time networks have half the usual width and 40 epochs, and the scale "small" has 500 of 2000 images.

The claims on the Gaussian and on the chosen imputer were set by the issue that asked for these toys. Before
they were written down here, one seed of the ring had been seen of MIWAE, MissIWAE, the given mechanism, the
Gaussian and the mean; the other claims were added after that. The bound of 0.7 on ``off the line`` asks for
little: there draws of a column's own marginal had 0.73. So energy distances are compared with a Gaussian's.
The claim on images was declared before any of them was run; white and the given mechanism stand beside them
since a first run, in which both other models were far worse than white. Until then the ring had a radius of
standard deviation 0.5, where the report has the variance 0.5: results that are stored under the name "ring"
are of that one, and no claim is about them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from halfseen.evaluation.energy import energy_distance
from halfseen.gaussian.imputer import GaussianImputer, MeanImputer
from halfseen.latent.presets import MissIWAEImputer, MIWAEImputer, NotMIWAEImputer
from halfseen.words import Missingness
from papers.amputed_table import AmputedArray
from papers.claims import AtLeast, Better, Published, Setting
from papers.notmiwae.disc import (
    DATA_SET,
    SHAPE,
    disc_error,
    hidden_if_bright,
    make_disc,
)
from papers.problems.problem import Sample
from papers.problems.toys import CorrelatedGaussian, Ring
from papers.spec import Budget, Experiment

Floats = npt.NDArray[np.float64]
Law = CorrelatedGaussian | Ring

RMSE, OFF, SIDES, ENERGY = "RMSE", "off the line", "rarer side", "energy distance"
GAUSSIAN, RING = "gaussian", "ring, radius variance 0.5"
DISC, FEW = "disc", "disc, 500 images"
LAWS: dict[str, Law] = {GAUSSIAN: CorrelatedGaussian(), RING: Ring()}
N_ROWS = {GAUSSIAN: 500, RING: 1500, DISC: 2000, FEW: 500}

ORACLE, CHOSEN, GIVEN = "oracle", "chosen by bound", "not-MIWAE, mechanism given"
NOT, KNOWN, MAR = "not-MIWAE", "not-MIWAE known", "MIWAE"
PROBIT, LINEAR = "GaussianImputer, probit", "GaussianImputer"
NEAREST, CHAINED, MEAN = "KNNImputer", "IterativeImputer", "mean"
IMAGES, MAR_IMAGES, WHITE = "not-MIWAE known, images", "MIWAE, images", "white"
GIVEN_IMAGES = "not-MIWAE, mechanism given, images"

DRAWN = "drawn"
PICTURED_SEED = 0
N_DRAWS = 50
ORACLE_SEED = 1_000  # and more: the oracle's draws have noise of their own
HELD_OUT = 0.2  # of the rows, by which an imputer is chosen
SOFTNESS = 0.1  # of the edge of a given mechanism, which must have a gradient

_OTHER_MASK = {MAR_IMAGES: 0.9286, NEAREST: 0.9354}
_OTHER_NETWORKS = "linear mask and decoder, one latent variable"
_PUBLISHED = {
    GAUSSIAN: {NOT: 1.152, MAR: 1.153, NEAREST: 1.320, CHAINED: 1.155},
    RING: {NOT: 1.971, MAR: 1.977, NEAREST: 3.046, CHAINED: 1.975},
    DISC: _OTHER_MASK,
    FEW: _OTHER_MASK,
}


@dataclass(frozen=True)
class Task:
    """Rows of a distribution, of which some first features are missing."""

    law: Law
    sample: Sample
    seed: int = 0

    @property
    def hidden(self) -> npt.NDArray[np.bool_]:
        """Which rows (N) lack their first feature."""
        return ~self.sample.observed[:, 0]

    @property
    def to_fill(self) -> Floats:
        """These rows (M, 2), with NaN for missing values."""
        return self.sample.incomplete[self.hidden]


@dataclass(frozen=True)
class ToyAnswer:
    """The single best rows (M, 2), draws of rows (S, M, 2), and how many latent draws count behind them."""

    best: Floats
    draws: Floats
    ess: float | None = None


def make_toy(toy: str, seed: int) -> Task:
    """Returns rows of the Gaussian or of the ring."""
    return Task(LAWS[toy], LAWS[toy].sample(N_ROWS[toy], seed), seed)


def make_task(setting: Setting, seed: int) -> Task | AmputedArray:
    """Returns the data of a toy; images are the same for all seeds."""
    toy = setting["toy"]
    return make_toy(toy, seed) if toy in LAWS else make_disc(N_ROWS[toy])


class ToyOracle:
    """Knows the distribution, and why values are missing."""

    def answer(self, task: Task) -> ToyAnswer:
        """Returns expectations and draws."""
        X = task.to_fill
        return ToyAnswer(task.law.predict_bayes(X), task.law.draw_bayes(X, N_DRAWS, ORACLE_SEED + task.seed))


class ByHeldOut:
    """Chooses an imputer by the likelihood of what was seen in rows held out from all candidates.

    The one that is chosen is fitted to all rows. What it fills in plays no part.
    """

    def __init__(self, candidates: Mapping[str, Any]) -> None:
        self.candidates = candidates

    def fit(self, X: Floats) -> Any:
        """Returns the chosen imputer."""
        order = np.random.default_rng(0).permutation(len(X))
        n_held_out = int(HELD_OUT * len(X))
        held_out, rest = X[order[:n_held_out]], X[order[n_held_out:]]
        self.bounds_ = {name: model.fit(rest).score(held_out) for name, model in self.candidates.items()}
        return self.candidates[max(self.bounds_, key=self.bounds_.__getitem__)].fit(X)


def hidden_at_the_top(x: torch.Tensor) -> torch.Tensor:
    """Returns the probability (N, 2) of points to lack a coordinate, that of the ring with a soft edge."""
    first = torch.sigmoid((x[..., 1] - x[..., 0].abs()) / SOFTNESS)
    return torch.stack([first, torch.zeros_like(first)], dim=-1)


def answer(model: Any, task: Task) -> ToyAnswer:
    """Fits a model to all rows and returns what it fills in; without draws, its single values for draws."""
    if isinstance(model, ToyOracle):
        return model.answer(task)
    fitted = model.fit(task.sample.incomplete)
    best = np.asarray(fitted.transform(task.to_fill))
    drawn = np.asarray(fitted.sample(task.to_fill, N_DRAWS)) if hasattr(fitted, "sample") else best[None]
    return ToyAnswer(best, drawn, getattr(fitted, "weight_diagnostics_", {}).get("median_ess"))


def judge(found: ToyAnswer, task: Task) -> dict[str, float]:
    """Returns how good fills and draws are."""
    truth = task.sample.X[task.hidden]
    above = found.draws[..., 0] - task.law.predict_bayes(task.to_fill)[:, 0]  # (S, M)
    rarer = np.minimum(np.mean(above < 0, axis=0), np.mean(above > 0, axis=0))
    return {
        RMSE: float(np.sqrt(np.mean((found.best - truth)[:, 0] ** 2))),
        OFF: float(np.median(task.law.distance(found.draws))),
        SIDES: float(rarer.mean()),
        ENERGY: energy_distance(found.draws.reshape(-1, 2), truth),
    }


def score(model: Any, task: Task | AmputedArray) -> dict[str, Any]:
    """Returns how good a model's fills and draws are; and, of a choice, the bounds that it was made by.

    Of the first seed, the first draws (M, 2) are kept for a picture.
    """
    if isinstance(task, AmputedArray):
        return {RMSE: disc_error(model, task)}
    found = answer(model, task)
    scores: dict[str, Any] = dict(judge(found, task))
    if task.seed == PICTURED_SEED:
        scores[DRAWN] = found.draws[0]
    if found.ess is not None:
        scores["effective draws of 200"] = found.ess
    return scores | {f"bound, {name}": bound for name, bound in getattr(model, "bounds_", {}).items()}


def published(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns the report's number, if it has one."""
    number = _PUBLISHED.get(setting["toy"], {}).get(model) if metric == RMSE else None
    if number is None:
        return None
    other = _OTHER_NETWORKS if model in (NOT, MAR) else ""
    return Published(number, label=model, other=other if setting["toy"] in LAWS else "another mask")


def _candidates() -> ByHeldOut:
    return ByHeldOut(
        {
            "2 latents": MIWAEImputer(n_latent=2, random_state=0),
            "2 latents, mixture": MissIWAEImputer(n_latent=2, random_state=0),
        }
    )


_SIMPLE = [LINEAR, NEAREST, CHAINED, MEAN]
_ON_GAUSSIAN = [ORACLE, NOT, KNOWN, PROBIT, MAR, *_SIMPLE]
_ON_IMAGES = [GIVEN_IMAGES, IMAGES, MAR_IMAGES, NEAREST, MEAN, WHITE]
_ON_RING = [ORACLE, CHOSEN, GIVEN, PROBIT, *_SIMPLE]


def _budget(n_seeds: int, disc: str) -> Budget:
    """Returns five seeds of both laws, so many of the report's own models of the ring, and one of a disc."""
    return (
        Budget.grid(n_seeds=5, models=_ON_GAUSSIAN, toy=[GAUSSIAN])
        + Budget.grid(n_seeds=5, models=_ON_RING, toy=[RING])
        + Budget.grid(n_seeds=n_seeds, models=[NOT, MAR], toy=[RING])
        + Budget.grid(n_seeds=1, models=_ON_IMAGES, toy=[disc])
    )


def _of_images(make: Callable[..., Any], **choices: Any) -> Any:
    """Returns an imputer with convolutional networks of half the usual width."""
    return make(image_shape=SHAPE, width=64, max_epochs=40, n_imputation_draws=50, random_state=0, **choices)


EXPERIMENT = Experiment(
    name="notmiwae-toys",
    question="Can latent-variable models impute a self-masked Gaussian, a ring and a disc?",
    paper="a report on not-MIWAE (the method: Ipsen, Mattei & Frellsen, 2021)",
    make_data=make_task,
    data_sets=lambda setting: () if setting["toy"] in LAWS else (DATA_SET,),
    models={
        ORACLE: ToyOracle,
        CHOSEN: _candidates,
        GIVEN: lambda: NotMIWAEImputer(missingness=hidden_at_the_top, n_latent=2, random_state=0),
        NOT: lambda: NotMIWAEImputer(random_state=0),
        KNOWN: lambda: NotMIWAEImputer(missingness=Missingness.LOGISTIC, signs=1, random_state=0),
        PROBIT: lambda: GaussianImputer(missingness=Missingness.PROBIT, random_state=0),
        MAR: lambda: MIWAEImputer(random_state=0),
        LINEAR: lambda: GaussianImputer(random_state=0),
        NEAREST: KNNImputer,
        CHAINED: lambda: IterativeImputer(random_state=0),
        MEAN: MeanImputer,
        IMAGES: lambda: _of_images(NotMIWAEImputer, missingness=Missingness.LOGISTIC, signs=1),
        GIVEN_IMAGES: lambda: _of_images(NotMIWAEImputer, missingness=hidden_if_bright),
        MAR_IMAGES: lambda: _of_images(MIWAEImputer),
        WHITE: lambda: SimpleImputer(strategy="constant", fill_value=1.0, keep_empty_features=True),
    },
    score=score,
    metrics={RMSE: "lower", OFF: "lower", SIDES: "higher", ENERGY: "lower"},
    budgets={
        "smoke": Budget.grid(n_seeds=1, models=[ORACLE, PROBIT, LINEAR, MEAN], toy=[GAUSSIAN, RING])
        + Budget.grid(n_seeds=1, models=[NOT], toy=[GAUSSIAN]),
        "small": _budget(1, FEW),
        "paper": _budget(5, DISC),
    },
    claims=[
        AtLeast(NOT, RMSE, 0.55, {"toy": GAUSSIAN}),
        Better(NOT, MAR, on=RMSE, by=0.05, where={"toy": GAUSSIAN}),
        *(
            AtLeast(model, metric, bound, {"toy": RING})
            for model in (CHOSEN, GIVEN)
            for metric, bound in ((RMSE, 1.96), (OFF, 0.7), (SIDES, 0.25))
        ),
        Better(CHOSEN, LINEAR, on=ENERGY, where={"toy": RING}),
        Better(GIVEN, LINEAR, on=ENERGY, where={"toy": RING}),
        Better(IMAGES, MAR_IMAGES, on=RMSE, by=0.05, where={"toy": (DISC, FEW)}),
    ],
    numbers=published,
)
