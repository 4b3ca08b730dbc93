"""NeuMiss networks trained by gradients on the target alone: the published ones, and ours beside them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor, nn

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.errors import TrainingError
from halfseen.gaussian.em import EMSettings, fit_gaussian
from halfseen.neumiss.gaussian_block import GaussianBlock, Solver
from halfseen.neumiss.network import NeuMissBlock, NeuMissNetwork
from halfseen.training.loop import TrainingSettings, fit_module

ARCHITECTURES = ("2020", "2021", "ours")
RECIPES = ("authors", "ours")

# The recipe behind the published tables.
AUTHORS_EPOCHS, AUTHORS_BATCH, AUTHORS_RATE = 100, 10, 1e-2  # the rate is divided by the number of features
PLATEAU_FACTOR, PLATEAU_PATIENCE, PLATEAU_THRESHOLD, LOWEST_RATE = 0.2, 2, 1e-4, 5e-6

# Our recipe. Rates and decays were chosen by the scores of data sets with seed 0 (n = 10,000, d = 10 and 20),
# for each architecture to do well: for the published ones, that is, in favour of what we compare with.
OURS = TrainingSettings(
    max_epochs=100,
    batch_size=512,
    schedule="cosine",
    gradient_clip=1.0,
    patience=30,
    min_improvement=1e-5,
    compile=False,
)
RATES = {"2020": 3e-2, "2021": 1e-2, "ours": 3e-4}  # what starts from EM has little to learn
DECAYS = {"2020": 0.3, "2021": 0.1, "ours": 0.0}
PREDICTED_AT_ONCE = 4096  # rows


@dataclass(frozen=True)
class TargetRows:
    """Rows with missing values (N, D) and their targets (N)."""

    batch: Incomplete
    target: Tensor

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, rows: slice | Tensor) -> "TargetRows":
        return TargetRows(self.batch[rows], self.target[rows])


class BlockPredictor(nn.Module):
    r"""The NeuMiss block of 2021 under a linear layer, which may see the mask also.

    .. math:: \hat y = b + \langle w, h \rangle \; [+ \, \langle u, m \rangle]

    Shapes
    ------
    batch : :math:`(N, D)`; output : :math:`(N)`
    """

    def __init__(self, n_features: int, depth: int, with_mask: bool = False) -> None:
        super().__init__()
        self.block = NeuMissBlock(n_features, depth)
        self.coef = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.intercept = nn.Parameter(torch.zeros(()))
        self.mask_coef = nn.Parameter(torch.zeros(n_features), requires_grad=with_mask)  # (D,)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the prediction of each row."""
        hidden = torch.where(batch.observed, 0.0, self.mask_coef).sum(dim=-1)
        return self.block(batch) @ self.coef + hidden + self.intercept

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws the block, and the coefficients with variance 2 / (D + 1)."""
        self.block.reset_parameters(generator)
        self.coef.normal_(generator=generator).mul_(math.sqrt(2 / (len(self.coef) + 1)))


class GaussianPredictor(nn.Module):
    r"""A Gaussian block under a linear layer: the Bayes form, with a solver of any depth.

    .. math:: \hat y = b + \langle w, h \rangle, \qquad (C + N_m) h = r_m

    Shapes
    ------
    batch : :math:`(N, D)`; output : :math:`(N)`
    """

    def __init__(self, n_features: int, depth: int, solver: Solver, self_masking: bool) -> None:
        super().__init__()
        self.block = GaussianBlock(n_features, solver=solver, depth=depth, self_masking=self_masking)
        self.coef = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.intercept = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the prediction of each row."""
        return self.block(batch).h @ self.coef + self.intercept

    @torch.no_grad()
    def start_from(self, rows: TargetRows, generator: torch.Generator) -> None:
        """Starts from EM on features and target together, of which the head is the covariance of the two."""
        seen = torch.ones(len(rows), 1, dtype=torch.bool)
        x = torch.cat([rows.batch.x, rows.target[:, None]], dim=1).double()
        joint = Incomplete(x, torch.cat([rows.batch.observed, seen], dim=1))
        law = fit_gaussian(joint, EMSettings(200, 2e-5), generator=generator).gaussian
        self.block.set_gaussian(law.loc[:-1], law.covariance[:-1, :-1])
        self.coef.copy_(law.covariance[:-1, -1])
        self.intercept.copy_(law.loc[-1])


@dataclass(frozen=True)
class PredictionError:
    r"""The squared error of a row, and minus its log-likelihood per feature as far as that is asked for.

    .. math:: \ell = (\hat y - y)^2 - \frac{\lambda}{D} \log p(x_o [, m])
    """

    likelihood_weight: float = 0.0

    def draw_noise(self, batch: TargetRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns nothing: the loss is deterministic."""
        return ()

    def __call__(self, module: Any, batch: TargetRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        loss: Tensor = (module(batch.batch) - batch.target).square()
        if self.likelihood_weight:
            density = module.block.log_prob(batch.batch) / batch.batch.n_features
            loss = loss - self.likelihood_weight * density
        return loss


@dataclass(eq=False, repr=False)
class TrainedNeuMiss(RegressorMixin, BaseEstimator):
    """A NeuMiss network trained by gradients, by the authors' recipe or ours.

    The authors' recipe is stochastic gradient descent in batches of 10 with a rate of 0.01 / D, in float32,
    on data as they are, for at most 100 epochs; the rate is divided by 5 when the training loss stands still,
    and below 5e-6 training stops. Ours standardises, takes AdamW in batches of 512 with a rate that falls to
    zero, and keeps the weights of the epoch that did best on held-out rows. With several depths each is
    trained, and held-out rows choose.

    A depth whose training ends in values that are not finite is in ``failed_depths_`` and is not chosen; if
    all of them do, or the only one, ``fit`` raises `TrainingError`.

    Parameters
    ----------
    architecture : {"2020", "2021", "ours"}
        `NeuMissNetwork`; `NeuMissBlock` with a linear head; or `GaussianBlock` with a linear head, started
        from EM on the training rows.
    depth : int or sequence of int
        The depth, or those to choose from.
    residual : bool
        Of "2020": whether it has residual connections.
    with_mask : bool
        Of "2021": whether the head sees the mask.
    solver, self_masking, likelihood_weight
        Of "ours": see `GaussianBlock` and `PredictionError`.
    recipe : {"ours", "authors"}
        How to train.
    max_epochs : int, optional
        In place of the recipe's.
    validation_fraction : float
        The share of rows that is held out, if ``fit`` is given no validation rows.
    random_state : int
        Seeds everything.

    Attributes
    ----------
    depth_ : int
        The depth that was chosen.
    validation_errors_ : dict
        The mean squared error of held-out rows for each depth, NaN where training failed.
    failed_depths_ : list
        The depths whose training failed.
    epochs_ : dict
        The number of epochs for each depth.
    n_backoffs_ : int
        How often our recipe went back to good weights with half the rate, over all depths.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks. Le Morvan, Josse, Scornet &
    Varoquaux (2021), What's a good imputation to predict with missing values?

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = X @ [1.0, 2.0]
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = TrainedNeuMiss("ours", depth=5, solver="chebyshev").fit(X, y)
    >>> model.predict(np.array([[1.0, 1.0]])).round(1)
    array([3.])
    """

    architecture: str = "2020"
    depth: int | Sequence[int] = 3
    _: KW_ONLY
    residual: bool = False
    with_mask: bool = False
    solver: Solver = "neumann"
    self_masking: bool = False
    likelihood_weight: float = 0.0
    recipe: str = "ours"
    max_epochs: int | None = None
    validation_fraction: float = 0.2
    random_state: int = 0

    @task_threads()
    def fit(self, X: Any, y: Any, validation: tuple[Any, Any] | None = None) -> "TrainedNeuMiss":
        """Trains each depth, and keeps the one with the least error on held-out rows.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            NaN where missing.
        y : array of shape (n_samples,)
            The targets.
        validation : pair of arrays like X and y, optional
            Rows to stop and to choose by; without them some of X are held out.
        """
        self._check_parameters()
        rows = TargetRows(Incomplete.from_array(X), torch.from_numpy(np.array(y, dtype=np.float64)))
        generator = torch_generator(self.random_state)
        if validation is None:
            order = torch.randperm(len(rows), generator=generator)
            n_held = math.ceil(self.validation_fraction * len(rows))
            held, rows = rows[order[:n_held]], rows[order[n_held:]]
        else:
            held = TargetRows(
                Incomplete.from_array(validation[0]), torch.from_numpy(np.array(validation[1], float))
            )
        self._fit_scale(rows)
        self._train_all(self._scaled(rows), self._scaled(held), generator)
        return self

    def _train_all(self, train: TargetRows, held: TargetRows, generator: torch.Generator) -> None:
        depths = [self.depth] if isinstance(self.depth, int) else list(self.depth)
        self.validation_errors_: dict[int, float] = {}
        self.epochs_: dict[int, int] = {}
        self.failed_depths_: list[int] = []
        self.n_backoffs_ = 0
        best = math.inf
        for depth in depths:
            module = self._module(depth, train, generator)
            error = self._train(module, train, held, generator, depth)
            self.validation_errors_[depth] = error
            if not math.isfinite(error):
                self.failed_depths_.append(depth)
            elif error < best:
                best, self.depth_, self.module_ = error, depth, module
        if not math.isfinite(best):
            raise TrainingError(f"Training diverged at depth {', '.join(map(str, depths))}.")

    def _train(
        self, module: nn.Module, train: TargetRows, held: TargetRows, generator: torch.Generator, depth: int
    ) -> float:
        """Returns the squared error of held-out rows, NaN if training failed."""
        if self.recipe == "authors":
            losses = list(descend(module, train, self.max_epochs or AUTHORS_EPOCHS, generator))
            self.epochs_[depth] = len(losses)
            failed = not math.isfinite(losses[-1])
        else:
            failed = not self._train_our_way(module, train, held, generator, depth)
        error = (self._outputs(module, held.batch) - held.target).square().mean()
        return math.nan if failed else float(error * self._target_scale**2)

    def _train_our_way(
        self, module: nn.Module, train: TargetRows, held: TargetRows, generator: torch.Generator, depth: int
    ) -> bool:
        """Returns whether training ended well."""
        objective = PredictionError(self.likelihood_weight)
        settings = replace(
            OURS,
            max_epochs=self.max_epochs or OURS.max_epochs,
            learning_rate=RATES[self.architecture],
            weight_decay=DECAYS[self.architecture],
        )
        try:
            history = fit_module(
                module, objective, train, generator=generator, validation=held, settings=settings
            )
        except TrainingError:
            return False
        self.epochs_[depth] = len(history.train_loss)
        self.n_backoffs_ += len(history.backoffs)
        return True

    @task_threads()
    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the prediction of each row of an array with NaN where missing."""
        batch = self._scaled_batch(Incomplete.from_array(X))
        outputs = self._outputs(self.module_, batch).double() * self._target_scale + self._target_loc
        predicted: npt.NDArray[np.float64] = outputs.numpy()
        return predicted

    @torch.no_grad()
    def _outputs(self, module: nn.Module, batch: Incomplete) -> Tensor:
        return torch.cat([module(part) for part in batch.chunks(PREDICTED_AT_ONCE)])

    def _module(self, depth: int, train: TargetRows, generator: torch.Generator) -> nn.Module:
        n_features = train.batch.n_features
        if self.architecture == "ours":
            ours = GaussianPredictor(n_features, depth, self.solver, self.self_masking)
            ours.start_from(train, generator)
            return ours
        module: NeuMissNetwork | BlockPredictor
        if self.architecture == "2020":
            module = NeuMissNetwork(n_features, depth, self.residual)
        else:
            module = BlockPredictor(n_features, depth, self.with_mask)
        module.reset_parameters(generator)
        return module

    def _fit_scale(self, rows: TargetRows) -> None:
        """Learns the scale of features and target; the authors' recipe takes them as they are."""
        n_features = rows.batch.n_features
        self._scaler = Standardizer(torch.zeros(n_features), torch.ones(n_features))
        self._target_loc, self._target_scale = 0.0, 1.0
        if self.recipe == "ours":
            self._scaler = Standardizer.fit(rows.batch)
            self._target_loc, self._target_scale = float(rows.target.mean()), float(rows.target.std())

    def _scaled(self, rows: TargetRows) -> TargetRows:
        target = (rows.target - self._target_loc) / self._target_scale
        return TargetRows(self._scaled_batch(rows.batch), target.float())

    def _scaled_batch(self, batch: Incomplete) -> Incomplete:
        return Incomplete(self._scaler.forward(batch.x).float(), batch.observed)

    def _check_parameters(self) -> None:
        choices = {"architecture": ARCHITECTURES, "recipe": RECIPES}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if self.likelihood_weight and (self.architecture, self.recipe) != ("ours", "ours"):
            raise ValueError("likelihood_weight needs architecture='ours' and recipe='ours'.")


def descend(
    module: nn.Module, rows: TargetRows, n_epochs: int, generator: torch.Generator
) -> Iterator[float]:
    """Yields the mean training loss of each epoch of the authors' recipe, until its own stop or a failure.

    The batches are slices of rows shuffled once an epoch, and the update is one fused call: nothing here is
    slower than it need be.
    """
    parameters: list[Tensor] = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rate = AUTHORS_RATE / rows.batch.n_features
    best, n_bad = math.inf, 0
    for _ in range(n_epochs):
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        total = torch.zeros(())
        for start in range(0, len(rows), AUTHORS_BATCH):
            batch = shuffled[start : start + AUTHORS_BATCH]
            loss = (module(batch.batch) - batch.target).square().mean()
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-rate)
                total += loss
        mean = float(total) / math.ceil(len(rows) / AUTHORS_BATCH)
        yield mean
        if not math.isfinite(mean):
            return
        improved = mean < best * (1 - PLATEAU_THRESHOLD)
        best, n_bad = (mean, 0) if improved else (best, n_bad + 1)
        if n_bad > PLATEAU_PATIENCE:
            rate, n_bad = rate * PLATEAU_FACTOR, 0
        if rate < LOWEST_RATE:
            return
