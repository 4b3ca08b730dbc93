"""Posteriors made of several Gaussians: the mixture-of-Gaussians study of Simkus & Gutmann.

Half of all cells of a table of 20,000 rows and 5 columns are missing, which makes the posteriors of a
variational autoencoder with 2 latents irregular. The same networks are trained by bounds with a Gaussian
posterior, with a mixture, and with one Gaussian for each of several imputations. Each method may decode 15
latents of a row in a step: a mixture has 15 components. The score is the log-likelihood of complete test
rows, by integration over a grid of latents. It is -2.095 for the law that the data come from, which no model
should pass but by chance, and -6.97 for a single Gaussian, which every trained model should.

Networks start at random and see zeros in the holes, and the mask. Rows that show nothing are left out of
training. Seeds change the mask, the first weights and all noise, never the rows. Gradients of posteriors go
through the draws only (sticking the landing). In place of Adam with the AMSGrad correction there is AdamW.

The scale "small" has a reduced budget: 2 blocks of 128 units in place of 3 of 200, and 20 epochs in batches
of 512 in place of 500 in batches of 64 (760 steps in place of 151,500), at a rate of 0.002 that falls to
zero in place of a constant 0.001; 3 seeds in place of 5, and one of the methods that no claim is about. So
its numbers are not the paper's, and methods that gain late are at a disadvantage. The paper has plots of
these scores and no numbers. Without the paper's file (see `halfseen.datasets`) another
mixture is drawn by the paper's recipe; it has another scale of scores.

The claims are those of the issue that asked for the methods. They are on trained networks: two epochs on
2,000 rows, the scale "smoke", show that everything runs and test no claim. (That was decided after a run of
"smoke" in which none was met, and before any other.)
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.datasets.loaders import is_present, load
from halfseen.datasets.problem import Floats
from halfseen.datasets.registry import describe
from halfseen.datasets.toys import MixtureOfGaussians
from halfseen.distributions.observation import Observation
from halfseen.errors import HalfseenWarning
from halfseen.evaluation.latent_diagnostics import gradient_snr
from halfseen.evaluation.latent_likelihood import MAX_UNEVENNESS, grid_log_likelihood
from halfseen.experiments.claims import Better, Setting
from halfseen.experiments.spec import Budget, Experiment
from halfseen.models.latent.completions import CompletedRows, Completions
from halfseen.models.latent.model import LatentModel
from halfseen.nn.residual import ResidualMLP
from halfseen.objectives.decomposed import DecomposedObjective
from halfseen.objectives.latent import BoundName, LatentObjective, Sampling
from halfseen.training.em import EMSettings, fit_gaussian
from halfseen.training.loop import TrainingSettings, fit_module

SCORE = "log-likelihood"
MVAE, MISSVAE, MISSSVAE = "MVAE", "MissVAE", "MissSVAE"
MIWAE, MISSIWAE, MISSSIWAE = "MIWAE", "MissIWAE", "MissSIWAE"
DEMISSVAE, TRUTH, GAUSSIAN = "DeMissVAE", "true mixture", "single Gaussian"

DATA = "mog_ground_truth/data_mog2_large"
MISSING = 0.5  # of all cells
N_LATENT = 2
N_PASSES = 15  # latents that are decoded for each row in a step
TRAINED: Setting = {"plan": ("small", "paper")}
SNR_STEPS = 50
NOISE_SEED = 1_000  # and more: the noise of diagnostics is not that of training


@dataclass(frozen=True)
class Plan:
    """How much data there is, how large the networks are, how they are trained, and on which grid scored.

    A grid of 300 points on (-6, 6) has the cells of the paper's, 500 on (-10, 10). After 12 epochs of MIWAE
    both give the same mean to 1e-8, and cells of half the side one that differs by 4e-5.
    """

    n_rows: int
    n_test: int
    n_blocks: int
    width: int
    training: TrainingSettings
    bounds: tuple[float, float]
    n_points: int


def _training(
    epochs: int, batch: int, rate: float, schedule: Literal["constant", "cosine"]
) -> TrainingSettings:
    return TrainingSettings(
        max_epochs=epochs,
        batch_size=batch,
        learning_rate=rate,
        schedule=schedule,
        gradient_clip=10.0,
        patience=max(1, epochs),  # bounds of different tightness must not stop at different times
        compile=False,  # imputations cannot be compiled, and times are to be compared
    )


PLANS = {
    "smoke": Plan(2_000, 200, 2, 64, _training(2, 256, 2e-3, "cosine"), (-6.0, 6.0), 100),
    "small": Plan(20_000, 1_000, 2, 128, _training(20, 512, 2e-3, "cosine"), (-6.0, 6.0), 300),
    "paper": Plan(20_000, 1_000, 3, 200, _training(500, 64, 1e-3, "constant"), (-10.0, 10.0), 500),
}


@dataclass(frozen=True)
class Task:
    """Rows with holes to learn from, complete ones to be scored on, the law of both, and what to spend."""

    train: Incomplete
    test: Incomplete
    law: MixtureOfGaussians
    plan: Plan
    seed: int

    @cached_property
    def true_score(self) -> float:
        """The mean log density of the test rows under their own law."""
        return float(self.law.log_prob(self.test.to_array()).mean())


def make_task(setting: Setting, seed: int) -> Task:
    """Returns the rows of a plan, with a share of all cells missing, exactly."""
    plan = PLANS[setting["plan"]]
    train, test, law = _complete_rows()
    rows = train[: plan.n_rows]
    hidden = np.random.default_rng(seed).permutation(rows.size) < round(MISSING * rows.size)
    batch = Incomplete.from_array(np.where(hidden.reshape(rows.shape), np.nan, rows), torch.float32)
    shown = batch[batch.observed.any(dim=1)]
    return Task(shown, Incomplete.from_array(test[: plan.n_test], torch.float32), law, plan, seed)


def _complete_rows() -> tuple[Floats, Floats, MixtureOfGaussians]:
    """Returns training rows, test rows and their law: the paper's, or others like them."""
    if is_present(describe(DATA)):
        found = {name: np.asarray(part, dtype=np.float64) for name, part in load(DATA).items()}
        law = MixtureOfGaussians(found["comp_probs"], found["means"], found["covs"], MISSING)
        return found["train"], found["test"], law
    warnings.warn(
        f"The paper's rows, {DATA}, are not there: another mixture is drawn, with another scale of scores.",
        HalfseenWarning,
        stacklevel=3,  # the caller of make_task
    )
    law = MixtureOfGaussians.draw(rate=MISSING, random_state=0)
    return law.sample(20_000, random_state=1).X, law.sample(1_000, random_state=2).X, law


@dataclass(frozen=True)
class Method:
    """A posterior and a bound by which to train.

    Parameters
    ----------
    posterior : {"gaussian", "mixture", "imputations"}
        One Gaussian; a mixture of `N_PASSES`; one Gaussian for each of `N_PASSES` imputations (DeMissVAE),
        for which the other choices do not count.
    bound : {"elbo", "iwelbo", "looser"}
        The bound.
    sampling : {"ancestral", "stratified"}
        Whether `N_PASSES` draws are of the whole posterior, or one of each component.
    """

    posterior: Literal["gaussian", "mixture", "imputations"] = "gaussian"
    bound: BoundName = "elbo"
    sampling: Sampling = "ancestral"

    @property
    def n_components(self) -> int:
        """The number of components that the encoder gives."""
        return N_PASSES if self.posterior == "mixture" else 1

    def objective(self, model: LatentModel) -> LatentObjective | DecomposedObjective:
        """Returns the loss, with `N_PASSES` latents of each row."""
        if self.posterior == "imputations":
            return DecomposedObjective.for_model(model, imputer="lair", gradient="stl", n_draws=1)
        n_each = 1 if self.sampling == "stratified" else N_PASSES
        return LatentObjective.for_model(
            model, bound=self.bound, sampling=self.sampling, gradient="stl", n_draws=n_each
        )

    def score(self, task: Task) -> dict[str, float]:
        """Trains, and returns the log-likelihood of the test rows and what else is known of the run."""
        fitted = train(self, task.train, task.plan, task.seed)
        grid = grid_log_likelihood(
            fitted.model, task.test, bounds=task.plan.bounds, n_points=task.plan.n_points
        )
        return {
            SCORE: float(grid.log_prob.mean()),
            "largest share on the grid's border": float(grid.border.max()),
            "rows narrower than cells": float((grid.unevenness > MAX_UNEVENNESS).sum()),
            "last bound": -fitted.losses[-1],
            **fitted.noise(task.plan.training.batch_size, task.seed),
        }


METHODS = {
    MVAE: Method(),
    MISSVAE: Method("mixture"),
    MISSSVAE: Method("mixture", sampling="stratified"),
    MIWAE: Method(bound="iwelbo"),
    MISSIWAE: Method("mixture", "iwelbo"),
    MISSSIWAE: Method("mixture", "iwelbo", "stratified"),
    DEMISSVAE: Method("imputations"),
}


@dataclass(frozen=True)
class Fitted:
    """A trained model, its objective, the rows as the objective takes them, and the loss of each epoch."""

    model: LatentModel
    objective: Any
    rows: Any
    losses: tuple[float, ...]

    def noise(self, batch_size: int, seed: int) -> dict[str, float]:
        """Returns the mean ratio of signal to noise of the gradients, at the weights where training ended."""
        found = gradient_snr(
            self.model,
            self.objective,
            self.rows,
            n_steps=SNR_STEPS,
            batch_size=batch_size,
            generator=torch_generator(NOISE_SEED + seed),
        )
        return {
            f"{name} gradient SNR": part.snr / max(1, part.n_parameters - part.n_dropped)
            for name, part in found.items()
        }


def train(method: Method, data: Incomplete, plan: Plan, seed: int) -> Fitted:
    """Trains networks from a random start, for all epochs of a plan."""
    generator = torch_generator(seed)
    model = build(method, data.n_features, plan, generator)
    objective: Any = method.objective(model)
    rows: Any = data
    if method.posterior == "imputations":
        completions = Completions.start(data, model.observation, N_PASSES, generator)
        rows = CompletedRows.of(data, completions)
    history = fit_module(model, objective, rows, generator=generator, settings=plan.training)
    return Fitted(model, objective, rows, history.train_loss)


def build(method: Method, n_features: int, plan: Plan, generator: torch.Generator) -> LatentModel:
    """Returns a model of Gaussian cells with random weights; the encoder sees zeros in holes and the mask."""
    observation = Observation.for_pixels(n_features, "gaussian")
    n_outputs = LatentModel.n_outputs(N_LATENT, method.n_components)
    encoder = ResidualMLP(2 * n_features, n_outputs, n_blocks=plan.n_blocks, width=plan.width)
    decoder = ResidualMLP(N_LATENT, observation.n_parameters, n_blocks=plan.n_blocks, width=plan.width)
    decoder.reset_parameters(generator)  # first, to be the same for all methods
    encoder.reset_parameters(generator)
    return LatentModel(encoder, decoder, observation, N_LATENT, method.n_components)


class Truth:
    """The law that the rows come from."""

    def score(self, task: Task) -> dict[str, float]:
        """Returns the log-likelihood of the test rows."""
        return {SCORE: task.true_score}


class SingleGaussian:
    """One Gaussian, fitted to the incomplete rows by EM."""

    def score(self, task: Task) -> dict[str, float]:
        """Fits, and returns the log-likelihood of the test rows."""
        rows, test = (part.to(torch.float64) for part in (task.train, task.test))
        settings = EMSettings(200, 1e-6, ridge=0.0)
        law = fit_gaussian(rows, settings, generator=torch_generator(task.seed)).gaussian
        return {SCORE: float(law.log_prob(test).mean())}


def score(model: Method | Truth | SingleGaussian, task: Task) -> dict[str, float]:
    """Returns the log-likelihood of the test rows, beside that of their own law."""
    found = model.score(task)
    return found | {"below the true mixture": task.true_score - found[SCORE]}


def _methods() -> dict[str, Any]:
    def fresh(method: Method) -> Any:
        return lambda: method

    return {name: fresh(method) for name, method in METHODS.items()} | {
        TRUTH: Truth,
        GAUSSIAN: SingleGaussian,
    }


EXPERIMENT = Experiment(
    name="missvae",
    question="Do posteriors made of several Gaussians help autoencoders to learn from incomplete rows?",
    paper="Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data",
    make_data=make_task,
    models=_methods(),
    score=score,
    metrics={SCORE: "higher"},
    budgets={
        "smoke": Budget.grid(n_seeds=1, plan=["smoke"]),
        "small": Budget.grid(
            n_seeds=3,
            models=[MVAE, MISSSVAE, MIWAE, MISSSIWAE, DEMISSVAE, TRUTH, GAUSSIAN],
            plan=["small"],
        )
        + Budget.grid(n_seeds=1, models=[MISSVAE, MISSIWAE], plan=["small"]),
        "paper": Budget.grid(n_seeds=5, plan=["paper"]),
    },
    claims=[
        Better(MISSSVAE, MVAE, on=SCORE, where=TRAINED),
        Better(MISSSIWAE, MIWAE, on=SCORE, where=TRAINED),
        Better(DEMISSVAE, MVAE, on=SCORE, where=TRAINED),
    ],
)
