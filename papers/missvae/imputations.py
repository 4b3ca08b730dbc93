r"""How DeMissVAE depends on its imputations: exact ones, and two oracles that get worse.

The mixture of Gaussians of ``missvae``, half of whose cells are missing. In each step the imputations of the
rows are drawn anew from a given distribution, and an autoencoder is trained by the two objectives of
DeMissVAE, or by one of them for both networks (`CVI`, `MVB`). The distributions are

- the model's own conditional, :math:`p_\theta(x_m \mid x_o)`. The paper draws it by rejection; here latents
  are drawn from their posterior in the cells of a grid, which is as exact and wastes no draws. In the first
  epoch imputations are observed values of the columns, as in the paper;
- the true conditional of the mixture, :math:`p^*(x_m \mid x_o)`;
- oracle 1: wider ones, from the true conditional to its product of marginals, and on to standard normals;
- oracle 2: ones that oversample modes, from the true conditional to the mean of the conditionals of all
  components, whatever their weights.

"Half" is a mixture with equal weights of a distribution and the one before it in its list. "divergence" is
that of Jensen and Shannon between the imputations and the true conditional, in nats, of rows with missing
cells; it is the axis of the paper's figure. The score is the log-likelihood of complete test rows by
integration over a grid of latents.

The scale "small" has 5,000 of 20,000 rows, 5 imputations in place of 15, networks of 2 blocks of 64 units in
place of 3 of 200, 20 epochs in place of 500, and five of the distributions. The paper does not say how many
imputations it has there.

The claims are what the paper says of its figure 5: with exact imputations the two objectives are better than
either of them; with those of the oracles they are as good or better, up to `mixtures.COMPARABLE`, which is a
guess; and they are not with the most inaccurate ones, where an encoder that follows the objective of observed
cells can make up for them. These are "the last two points" of oracle 1 in the paper, which does not say what
they are: there is no claim about the product of marginals, and normals are taken for the most inaccurate
ones. The claims were written before any run.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import choose_by_cdf
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.completions import CompletedRows
from halfseen.latent.decomposed import DecomposedObjective
from halfseen.latent.model import LatentModel
from halfseen.training.loop import fit_module
from papers.claims import Better, Setting
from papers.missvae import mixtures
from papers.missvae.latent_likelihood import LatentGrid, grid_log_likelihood, log_joint
from papers.missvae.methods import NOISE_SEED, LatentMethod, build, rows_of
from papers.missvae.mixtures import COMPARABLE, CVI, DEMISSVAE, MVB, SCORE, TRAINED, GridPlan
from papers.problems.toys import MixtureOfGaussians
from papers.spec import Budget, Experiment

DIVERGENCE = "divergence"
N_DIVERGENCE = 2_000  # rows by which the divergence is estimated, with one draw of each
N_VISITS = 10  # of a row, whose imputations by an oracle differ; later visits see the same ones again
GRID = LatentGrid(2, (-4.0, 4.0), 48)  # of the latents of exact imputations

CONDITIONAL, MODES, MARGINALS, NORMAL = "conditional", "modes", "marginals", "normal"
MODEL = "model"
ORACLES: Mapping[str, Mapping[str, float]] = {
    "truth": {CONDITIONAL: 1.0},
    "half marginals": {CONDITIONAL: 0.5, MARGINALS: 0.5},
    "marginals": {MARGINALS: 1.0},
    "half normal": {MARGINALS: 0.5, NORMAL: 0.5},
    "normal": {NORMAL: 1.0},
    "half modes": {CONDITIONAL: 0.5, MODES: 0.5},
    "modes": {MODES: 1.0},
}
"""The share of draws from each distribution: of oracle 1 and, from "half modes" on, of oracle 2."""

PLANS = {
    "smoke": GridPlan(500, 100, 1, 16, mixtures.PLANS["smoke"].training, n_points=60),
    "small": GridPlan(5_000, 500, 2, 64, mixtures.PLANS["small"].training),
    "paper": mixtures.PLANS["paper"],
}
N_IMPUTATIONS = {"smoke": 2, "small": 5, "paper": 15}


@dataclass(frozen=True)
class Oracle:
    r"""Draws and densities of the missing cells of rows, under a mixture of Gaussians that is known.

    Parameters
    ----------
    law : MixtureOfGaussians
        The distribution of the rows.
    shares : mapping of str to float
        How much of the draws is from the true conditional, from :math:`\frac1C \sum_c p(x_m \mid x_o, c)`,
        from :math:`\prod_d p(x_d)` and from the standard normal.

    Shapes
    ------
    batch : :math:`(N, D)` in float64
    """

    law: MixtureOfGaussians
    shares: Mapping[str, float]

    def draws(self, batch: Incomplete, n_draws: int, generator: torch.Generator) -> Tensor:
        """Returns rows (S, N, D) whose missing cells are independent draws."""
        size = (n_draws, *batch.x.shape)
        which = torch.rand(size[:2], generator=generator, dtype=torch.float64).unsqueeze(-1)
        found, reached = batch.x.expand(size), 0.0
        for name, share in self.shares.items():
            drawn = self._draw(name, batch, size, generator)
            found = torch.where(batch.observed | (which < reached), found, drawn)
            reached += share
        return found

    def log_prob(self, batch: Incomplete, rows: Tensor) -> Tensor:
        """Returns the log density (N) of the missing cells of rows (N, D), given the observed ones."""
        parts = [math.log(share) + self._log_prob(name, batch, rows) for name, share in self.shares.items()]
        return torch.stack(parts).logsumexp(dim=0)

    def divergence(self, batch: Incomplete, generator: torch.Generator) -> float:
        """Returns the Jensen-Shannon divergence from the true conditional, of rows with missing cells."""
        batch = batch[~batch.observed.all(dim=1)][:N_DIVERGENCE]
        both = replace(self, shares={CONDITIONAL: 1.0}), self
        total = 0.0
        for law in both:
            (rows,) = law.draws(batch, 1, generator)
            mean = torch.stack([one.log_prob(batch, rows) for one in both]).logsumexp(dim=0) - math.log(2.0)
            total += 0.5 * float((law.log_prob(batch, rows) - mean).mean())
        return total

    def _draw(
        self, name: str, batch: Incomplete, size: tuple[int, ...], generator: torch.Generator
    ) -> Tensor:
        normals = torch.randn(size, generator=generator, dtype=torch.float64)
        if name == NORMAL:
            return normals
        if name == MARGINALS:
            seed = int(torch.randint(2**31, (), generator=generator))
            samples = [self.law.sample(size[0] * size[1], seed + place).X for place in range(size[2])]
            columns = [torch.from_numpy(rows[:, place]) for place, rows in enumerate(samples)]
            return torch.stack(columns, dim=1).view(size)
        log_weights = self._log_joint(batch)
        if name == MODES:
            log_weights = torch.zeros_like(log_weights)
        uniforms = torch.rand(size[1], size[0], generator=generator, dtype=torch.float64)
        chosen = choose_by_cdf(log_weights.softmax(dim=0).T, uniforms).T.unsqueeze(-1)  # (S, N, 1)
        found, x = normals, batch.x.expand(size)
        for place, (loc, covariance) in enumerate(zip(self.law.locs, self.law.covariances, strict=True)):
            component = Gaussian(torch.from_numpy(loc), torch.from_numpy(covariance))
            found = torch.where(chosen == place, component.complete(x, batch.observed, normals), found)
        return found

    def _log_prob(self, name: str, batch: Incomplete, rows: Tensor) -> Tensor:
        if name == NORMAL:
            of_cells = -0.5 * (rows.square() + math.log(2.0 * math.pi))
            return torch.where(batch.observed, 0.0, of_cells).sum(dim=1)
        if name == MARGINALS:
            alone = torch.eye(batch.n_features, dtype=torch.bool)
            seen = (Incomplete(rows, ~batch.observed & only) for only in alone)
            return torch.stack([self._log_joint(one).logsumexp(dim=0) for one in seen]).sum(dim=0)
        whole = self._log_joint(Incomplete(rows, torch.ones_like(batch.observed)))
        part = self._log_joint(batch)
        if name == MODES:
            return (whole - part).logsumexp(dim=0) - math.log(len(part))
        return whole.logsumexp(dim=0) - part.logsumexp(dim=0)

    def _log_joint(self, batch: Incomplete) -> Tensor:
        """Returns the log density (C, N) of the component and the observed cells."""
        rows = torch.where(batch.observed, batch.x, torch.nan)
        return self.law.log_joint(rows.numpy())


Source = Callable[[LatentModel, CompletedRows, tuple[Tensor, ...]], Tensor]


@torch.no_grad()
def from_model(model: LatentModel, batch: CompletedRows, noise: tuple[Tensor, ...]) -> Tensor:
    """Returns completions (N, K, D) by a model's own conditional, up to the side of the cells of the grid."""
    uniforms, within, cells = noise
    posterior = log_joint(model, batch.batch, GRID.points).T.softmax(dim=-1)  # (N, G)
    side = (GRID.bounds[1] - GRID.bounds[0]) / GRID.n_points
    z = GRID.points[choose_by_cdf(posterior, uniforms)] + side * (within - 0.5)
    return model.observation.sample(model.decoder(z.to(cells.dtype)), cells)


@dataclass(frozen=True)
class FromPool:
    """Draws of an oracle (V, K, N, D), made beforehand: others in each of V visits of a row."""

    pool: Tensor

    def __call__(self, model: LatentModel, batch: CompletedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the completions (N, K, D) of this visit."""
        visit = batch.completions.visits[batch.index] % len(self.pool)
        return self.pool[visit, :, batch.index].to(batch.batch.x.dtype)


@dataclass(frozen=True)
class GivenImputations:
    """The objective of DeMissVAE, with imputations from a given distribution in each step.

    Parameters
    ----------
    objective : DecomposedObjective
        Without rounds before an evaluation.
    source : callable
        From a model, rows and noise to new completions.
    n_skipped : int
        The number of first visits of each row in which it keeps the completions that it has.
    """

    objective: DecomposedObjective
    source: Source
    n_skipped: int
    resumable: ClassVar[bool] = False

    def draw_noise(self, batch: CompletedRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns the noise of the objective, and that of the source."""
        own = self.objective.draw_noise(batch, generator)
        rows, dtype = own[1].shape[1:], own[1].dtype
        within = torch.rand(*rows, self.objective.n_latent, generator=generator, dtype=dtype)
        cells = torch.rand(*rows, self.objective.n_noise, generator=generator, dtype=dtype)
        return (*own, torch.rand(rows, generator=generator, dtype=dtype), within, cells)

    def __call__(self, module: LatentModel, batch: CompletedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Replaces the imputations, and returns the loss of each row."""
        drawn = self.source(module, batch, noise[3:])
        batch.completions.update(batch.index, drawn, self.n_skipped)
        return self.objective(module, replace(batch, held_out=True), noise[:3])


@dataclass(frozen=True)
class Task:
    """The rows of ``missvae``, what imputations are drawn from, and draws of an oracle."""

    rows: mixtures.Task
    source: Source
    n_imputations: int
    scores: Mapping[str, float] = field(default_factory=dict)


def make_task(setting: Setting, seed: int) -> Task:
    """Returns rows with missing cells, and the imputations of an oracle for several visits of them."""
    rows = mixtures.make_task({}, seed, PLANS[setting["plan"]])
    size, name = N_IMPUTATIONS[setting["plan"]], setting["imputations"]
    if name == MODEL:
        return Task(rows, from_model, size)
    law = replace(rows.law, weights=rows.law.weights / rows.law.weights.sum())  # stored in single precision
    oracle, batch = Oracle(law, ORACLES[name]), rows.train.to(torch.float64)
    generator = torch_generator(NOISE_SEED + seed)
    pool = oracle.draws(batch, N_VISITS * size, generator).float()
    scores = {DIVERGENCE: oracle.divergence(batch, generator)}
    return Task(rows, FromPool(pool.unflatten(0, (N_VISITS, size))), size, scores)


def score(method: LatentMethod, task: Task) -> dict[str, float]:
    """Trains, and returns the log-likelihood of complete test rows."""
    rows, plan = task.rows, task.rows.plan
    method = replace(method, n_passes=task.n_imputations)
    generator = torch_generator(rows.seed)
    model = build(method, rows.train.n_features, plan, generator)
    own = DecomposedObjective.for_model(model, variant=method.variant, n_rounds=0)
    objective: Any = GivenImputations(own, task.source, n_skipped=int(task.source is from_model))
    completed = rows_of(method, rows.train, model, generator)
    fit_module(model, objective, completed, generator=generator, settings=plan.training)
    grid = grid_log_likelihood(model, rows.test, bounds=plan.bounds, n_points=plan.n_points)
    return {SCORE: float(grid.log_prob.mean()), **task.scores}


def _fresh(name: str) -> Callable[[], LatentMethod]:
    return lambda: mixtures.METHODS[name]


_METHODS = (DEMISSVAE, CVI, MVB)
_ALL = [MODEL, *ORACLES]
_USABLE = ("truth", "half marginals"), ("truth", "half modes", "modes")
"""Imputations by each oracle, without the inaccurate end of the first."""

EXPERIMENT = Experiment(
    name="missvae-imputations",
    question="How does DeMissVAE depend on the accuracy of its imputations?",
    paper="Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data",
    make_data=make_task,
    models={name: _fresh(name) for name in _METHODS},
    score=score,
    metrics={SCORE: "higher", DIVERGENCE: "lower"},
    budgets={
        "smoke": Budget.grid(1, imputations=[MODEL, "half normal", "half modes"], plan=["smoke"]),
        "small": Budget.grid(
            3,
            imputations=[MODEL, "truth", "half marginals", "modes", "normal"],
            plan=["small"],
        ),
        "paper": Budget.grid(5, imputations=_ALL, plan=["paper"]),
    },
    claims=[
        *(
            Better(DEMISSVAE, control, on=SCORE, where={**TRAINED, "imputations": MODEL})
            for control in (CVI, MVB)
        ),
        *(
            Better(DEMISSVAE, control, on=SCORE, by=-COMPARABLE, where={**TRAINED, "imputations": names})
            for names in _USABLE
            for control in (CVI, MVB)
        ),
        Better(CVI, DEMISSVAE, on=SCORE, where={**TRAINED, "imputations": "normal"}),
    ],
)
