"""Why MissIWAE and DeMissVAE are behind MIWAE here, where the paper has them ahead of it or level.

On images (``rows`` is "digits"): 5,000 incomplete images of MNIST, networks and quarters as in
``missvae-images``, two passes in batches of 50, with 5 latents of each image. The score is a bound by 100
weighted latents of the log-likelihood of the visible half of 500 other images. Beside the methods are
MissIWAE whose components start together, half a standard deviation apart, where otherwise random weights put
them several standard deviations apart in each of 50 dimensions; MissIWAE without limits of the gradient's
norm; and MissSIWAE, whose stratified draws need no implicit gradients. "components in use" is the exponential
of the mean entropy of the weights of a row: 1 if one component has all the weight, 5 if all have the same.
"encoder gradient at the start" is the norm of the encoder's gradient over that of the decoder's.

On the mixture of Gaussians ("mixture"): 5,000 rows of ``missvae`` and 20 epochs, which is a quarter of its
steps. In the paper, imputations are drawn again 500 times, once in each epoch; here as many times as there
are epochs, 20. One variant draws them five times in each step, another has exact imputations, those of
``missvae-imputations`` by the model's own conditional.

The claims are explanations that could turn out wrong: each says that the change makes the method better, or
as good as MIWAE. They were written after one run each of MIWAE, MissIWAE and MissIWAE that starts together
on 10,000 images, in which one component took nearly all of the weight in both ways of starting, and before
any other run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus
from halfseen.latent.completions import CompletedRows
from halfseen.latent.decomposed import DecomposedObjective
from halfseen.latent.model import LatentModel
from halfseen.latent.training import FIRST_SCALE, SPREAD, start_images
from halfseen.training.loop import fit_module
from papers.claims import Better, Setting
from papers.missvae import images, mixtures
from papers.missvae.imputations import GivenImputations, from_model
from papers.missvae.latent_likelihood import estimate_iwelbo, grid_log_likelihood
from papers.missvae.methods import NOISE_SEED, LatentMethod, build, course, rows_of
from papers.spec import Budget, Experiment

SCORE, IN_USE, GRADIENT = "log-likelihood", "components in use", "encoder gradient at the start"
MIWAE, MISSIWAE, MISSSIWAE, DEMISSVAE = "MIWAE", "MissIWAE", "MissSIWAE", "DeMissVAE"
TOGETHER, UNLIMITED = "MissIWAE, components start together", "MissIWAE, gradients unlimited"
FIVE_TIMES, EXACT = "DeMissVAE, five imputations in a step", "DeMissVAE, exact imputations"
DIGITS, MIXTURE = "digits", "mixture"
N_HELD_OUT, N_DRAWS = 500, 100
N_AT_START = 200  # images of the first gradients
N_UPDATES = 5
SIZES = {"smoke": (200, 1), "small": (5_000, 2), "paper": (20_000, 10)}
"""Images and epochs, by plan."""

MIXTURE_SIZES = {"smoke": (500, 1), "small": (5_000, 20), "paper": (20_000, 40)}
"""Rows and epochs, by plan."""


class SeveralUpdates:
    """The objective of DeMissVAE, with further draws of the imputations before each step.

    Parameters
    ----------
    objective : DecomposedObjective
        Whose imputations are by resampled latents (``"lair"``).
    n_updates : int
        How often imputations are drawn in a step, together with the objective's own draw.
    """

    resumable: ClassVar[bool] = False

    def __init__(self, objective: DecomposedObjective, n_updates: int) -> None:
        self.objective = objective
        self.n_updates = n_updates

    def draw_noise(self, batch: CompletedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns the noise of all draws, that of the objective first."""
        parts = [self.objective.draw_noise(batch, generator) for _ in range(self.n_updates)]
        return tuple(part for noise in parts for part in noise)

    def __call__(self, module: LatentModel, batch: CompletedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Draws imputations, and returns the loss of each row."""
        with torch.no_grad():
            for start in range(3, len(noise), 3):
                normals, uniforms, cells = (part[-1] for part in noise[start : start + 3])
                found = self.objective.evaluate(module, batch, batch.completed, normals)
                drawn = self.objective.impute(module, found, uniforms, cells)
                batch.update(drawn, batch.latents, self.objective.n_skipped)
        return self.objective(module, batch, noise[:3])


@torch.no_grad()
def start_together(model: LatentModel, generator: torch.Generator) -> None:
    """Gives all components of a model of images the weights of the first, with means a little apart."""
    output: Any = model.encoder.output
    size = model.n_components * model.n_latent
    for start in (0, size):
        block, first = slice(start, start + size), slice(start, start + model.n_latent)
        output.weight[block] = output.weight[first].repeat(model.n_components, 1)
        output.bias[block] = output.bias[first].repeat(model.n_components)
    output.bias[:size] += SPREAD * FIRST_SCALE * torch.randn(size, generator=generator)
    output.bias[size : 2 * size] = inverse_softplus(torch.tensor(FIRST_SCALE, dtype=torch.float64))
    output.weight[2 * size :], output.bias[2 * size :] = 0.0, 0.0


@dataclass(frozen=True)
class OnDigits:
    """A method on images, and how it departs from the experiment on images."""

    method: LatentMethod
    together: bool = False
    limited: bool = True

    def score(self, task: images.Task) -> dict[str, float]:
        """Trains, and returns the bound of held-out images and what components do."""
        model = images.build(self.method, task.plan)
        generator = torch_generator(task.seed)
        start_images(model, task.train, generator)
        if self.together:
            start_together(model, generator)
        objective: Any = self.method.objective(model)
        ratio = _gradient_ratio(model, objective, task.train[:N_AT_START], task.seed)
        settings = task.plan.training if self.limited else replace(task.plan.training, gradient_clip=None)
        fit_module(model, objective, task.train, generator=generator, settings=settings)
        held = task.holed
        with torch.no_grad():
            log_weights = model.posterior(held).log_weights
        entropy = -(log_weights.exp() * log_weights).sum(dim=-1)
        bound = estimate_iwelbo(model, held, N_DRAWS, generator=torch_generator(NOISE_SEED + task.seed))
        return {
            SCORE: float(bound.log_prob.mean()),
            IN_USE: float(entropy.mean().exp()),
            GRADIENT: ratio,
        }


def _gradient_ratio(model: LatentModel, objective: Any, rows: Incomplete, seed: int) -> float:
    noise = objective.draw_noise(rows, torch_generator(NOISE_SEED + seed))
    objective(model, rows, noise).mean().backward()
    norms = [
        sum(float(one.grad.square().sum()) for one in network.parameters() if one.grad is not None) ** 0.5
        for network in (model.encoder, model.decoder)
    ]
    model.zero_grad()
    return norms[0] / norms[1]


@dataclass(frozen=True)
class OnMixture:
    """A method on the mixture of Gaussians, and how often it draws imputations in a step, or exact ones."""

    method: LatentMethod
    n_updates: int = 1
    exact: bool = False

    def score(self, task: mixtures.Task) -> dict[str, float]:
        """Trains, and returns the log-likelihood of complete test rows."""
        generator = torch_generator(task.seed)
        model = build(self.method, task.train.n_features, task.plan, generator)
        objective: Any = self.method.objective(model)
        rows = rows_of(self.method, task.train, model, generator)
        if self.n_updates > 1:
            objective = SeveralUpdates(objective, self.n_updates)
        if self.exact:
            objective = GivenImputations(replace(objective, n_rounds=0), from_model, n_skipped=1)
        fit_module(model, objective, rows, generator=generator, settings=task.plan.training)
        grid = grid_log_likelihood(model, task.test, bounds=task.plan.bounds, n_points=task.plan.n_points)
        return {SCORE: float(grid.log_prob.mean())}


def make_task(setting: Setting, seed: int) -> images.Task | mixtures.Task:
    """Returns fewer images, or fewer rows of the mixture."""
    if setting["rows"] == DIGITS:
        size, epochs = SIZES[setting["plan"]]
        plan = images.PLANS["small", images.MNIST]
        plan = replace(plan, n_train=size, n_test=N_HELD_OUT, training=course(epochs, 50, 2e-3))
        return images.make_task({"plan": "small", "data": images.MNIST}, seed, plan)
    size, epochs = MIXTURE_SIZES[setting["plan"]]
    small = mixtures.PLANS["small"]
    training = replace(small.training, max_epochs=epochs, patience=epochs)
    return mixtures.make_task({}, seed, replace(small, n_rows=size, n_test=N_HELD_OUT, training=training))


def score(model: OnDigits | OnMixture, task: Any) -> dict[str, float]:
    """Returns the scores of a method on a task."""
    return model.score(task)


_IWAE: dict[str, Any] = {"bound": "iwelbo", "n_passes": images.N_PASSES}
_MIXED = LatentMethod("mixture", **_IWAE)
_IMPUTED = LatentMethod("imputations")
MODELS: dict[tuple[str, str], OnDigits | OnMixture] = {
    (DIGITS, MIWAE): OnDigits(LatentMethod(**_IWAE)),
    (DIGITS, MISSIWAE): OnDigits(_MIXED),
    (DIGITS, TOGETHER): OnDigits(_MIXED, together=True),
    (DIGITS, UNLIMITED): OnDigits(_MIXED, limited=False),
    (DIGITS, MISSSIWAE): OnDigits(replace(_MIXED, sampling="stratified")),
    (MIXTURE, f"{MIWAE}, mixture"): OnMixture(LatentMethod(bound="iwelbo")),
    (MIXTURE, DEMISSVAE): OnMixture(_IMPUTED),
    (MIXTURE, FIVE_TIMES): OnMixture(_IMPUTED, N_UPDATES),
    (MIXTURE, EXACT): OnMixture(_IMPUTED, exact=True),
}
ON_MIXTURE = f"{MIWAE}, mixture"


def _fresh(model: OnDigits | OnMixture) -> Callable[[], OnDigits | OnMixture]:
    return lambda: model


def _budget(plan: Literal["smoke", "small", "paper"], n_seeds: int) -> Budget:
    digits, mixture = ([name for rows, name in MODELS if rows == wanted] for wanted in (DIGITS, MIXTURE))
    return Budget.grid(n_seeds, models=digits, rows=[DIGITS], plan=[plan]) + Budget.grid(
        n_seeds, models=mixture, rows=[MIXTURE], plan=[plan]
    )


_TRAINED = {"plan": ("small", "paper")}

EXPERIMENT = Experiment(
    name="missvae-causes",
    question="Why are MissIWAE on images and DeMissVAE on the mixture of Gaussians behind MIWAE?",
    paper="Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data",
    make_data=make_task,
    models={name: _fresh(model) for (_, name), model in MODELS.items()},
    score=score,
    metrics={SCORE: "higher", IN_USE: "higher", GRADIENT: "lower"},
    budgets={"smoke": _budget("smoke", 1), "small": _budget("small", 3), "paper": _budget("paper", 5)},
    claims=[
        Better(MIWAE, MISSIWAE, on=SCORE, where=_TRAINED),
        *(Better(one, MISSIWAE, on=SCORE, where=_TRAINED) for one in (TOGETHER, UNLIMITED, MISSSIWAE)),
        *(Better(one, MISSIWAE, on=IN_USE, where=_TRAINED) for one in (TOGETHER, UNLIMITED, MISSSIWAE)),
        *(Better(one, DEMISSVAE, on=SCORE, where=_TRAINED) for one in (FIVE_TIMES, EXACT)),
        *(
            Better(one, ON_MIXTURE, on=SCORE, by=-mixtures.COMPARABLE, where=_TRAINED)
            for one in (DEMISSVAE, FIVE_TIMES, EXACT)
        ),
    ],
    data_sets=lambda setting: (images.DATA_SETS[images.MNIST],) if setting["rows"] == DIGITS else (),
)
