"""The number of latent variables of images with a missing half: figure 13 of the paper.

The images, masks and score are those of ``missvae-images``. The paper finds that more latents change little
on MNIST, but for DeMissVAE, which gains, and that on Omniglot MVAE, MIWAE and MissSIWAE gain a little. The
figure's numbers of latents are not in its text: here they are half and twice the 50 of its other figures, and
at the scale "paper" 50 as well. DeMissVAE draws its imputations by one step of pseudo-Gibbs, as published.

The scale "small" has MNIST alone, three methods, 5,000 images, networks of one block of 128 units in place of
convolutional ones, 8 epochs in place of 500, and a bound by 300 draws on 300 test images in place of 1,000 on
all; its numbers are not the paper's.

The claims are the paper's; "little" is taken for a nat, which is a guess. They were written before any run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from papers.claims import Better, Setting
from papers.missvae import images
from papers.missvae.images import DATA_SETS, MIWAE, MNIST, MVAE, N_PASSES, OMNIGLOT, SCORE, Task
from papers.missvae.methods import LatentMethod, bound_of_complete, course
from papers.spec import Budget, Experiment

DEMISSVAE, MISSSIWAE = "DeMissVAE", "MissSIWAE"
FEW, USUAL, MANY = 25, 50, 100
LITTLE = 1.0  # nats
_MIXED: dict[str, Any] = {"posterior": "mixture", "n_passes": N_PASSES}
METHODS = {
    **images.METHODS,
    "MissVAE": LatentMethod(**_MIXED),
    "MissSVAE": LatentMethod(sampling="stratified", **_MIXED),
    MISSSIWAE: LatentMethod(bound="iwelbo", sampling="stratified", **_MIXED),
    DEMISSVAE: LatentMethod("imputations", imputer="pseudo-gibbs", n_passes=N_PASSES),
}
_NETWORK = {"width": 128, "n_blocks": 1}
_SPENT: dict[str, Any] = {"encoder": _NETWORK, "decoder": _NETWORK, "n_reference": 1}
PLANS = {
    "smoke": replace(images.PLANS["smoke", MNIST], **_SPENT),
    "small": replace(
        images.PLANS["small", MNIST],
        n_train=5_000, n_test=300, training=course(8, 50, 2e-3), refit=course(30, 50, 1e-3), n_draws=300,
        **_SPENT,
    ),
}  # fmt: skip
"""By scale; that of "paper" is the plan of ``missvae-images``."""


@dataclass(frozen=True)
class WithLatents:
    """A method with a number of latents."""

    method: LatentMethod
    n_latent: int


def make_task(setting: Setting, seed: int) -> Task:
    """Returns binary images with two quarters of each missing."""
    return images.make_task(setting, seed, PLANS.get(setting["plan"]))


def score(model: WithLatents, task: Task) -> dict[str, float]:
    """Trains, and returns the log-likelihood of complete test images."""
    fitted = images.train(model.method, task, model.n_latent)
    found = bound_of_complete(fitted, task.test, task.plan.refit, N_PASSES, task.plan.n_draws, task.seed)
    return {SCORE: float(found.mean()), "standard error over images": float(found.std() / len(found) ** 0.5)}


def with_latents(method: str, n_latent: int) -> str:
    """Returns the name of a method with a number of latents."""
    return f"{method}, {n_latent} latents"


def _fresh(method: str, n_latent: int) -> Callable[[], WithLatents]:
    return lambda: WithLatents(METHODS[method], n_latent)


def _gains(method: str, data: str, by: float = 0.0) -> Better:
    where = {"plan": ("small", "paper"), "data": data}
    return Better(with_latents(method, MANY), with_latents(method, FEW), on=SCORE, by=by, where=where)


def _loses(method: str, data: str) -> Better:
    gained = _gains(method, data)
    return replace(gained, model=gained.other, other=gained.model, by=-LITTLE)


EXPERIMENT = Experiment(
    name="missvae-latents",
    question="Do more latent variables make up for what is missing of images?",
    paper="Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data",
    make_data=make_task,
    data_sets=lambda setting: (DATA_SETS[setting["data"]],),
    models={
        with_latents(method, n_latent): _fresh(method, n_latent)
        for n_latent in (FEW, USUAL, MANY)
        for method in METHODS
    },
    score=score,
    metrics={SCORE: "higher"},
    budgets={
        "smoke": Budget.grid(
            1, models=[with_latents(method, FEW) for method in METHODS], data=[MNIST], plan=["smoke"]
        ),
        "small": Budget.grid(
            3,
            models=[with_latents(name, size) for name in (MVAE, MIWAE, DEMISSVAE) for size in (FEW, MANY)],
            data=[MNIST],
            plan=["small"],
        ),
        "paper": Budget.grid(5, data=[MNIST, OMNIGLOT], plan=["paper"]),
    },
    claims=[
        _gains(DEMISSVAE, MNIST),
        *(claim for name in (MVAE, MIWAE) for claim in (_gains(name, MNIST, -LITTLE), _loses(name, MNIST))),
        *(_gains(name, OMNIGLOT) for name in (MVAE, MIWAE, MISSSIWAE)),
    ],
)
