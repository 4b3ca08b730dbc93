"""What NeuMiss regressor and classifier share: a law of rows, and networks on what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from halfseen._random import torch_generator
from halfseen._threads import task_threads
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.estimators._parameters import check_training, check_whole
from halfseen.estimators._table import TableEstimator, rows_at_once
from halfseen.estimators._transaction import all_or_nothing
from halfseen.estimators.imputers import SMALLEST_SPLIT, check_ridge, em_settings
from halfseen.estimators.model_file import Saveable
from halfseen.models.conditional import RowLaw, condition, law_from_state, law_state
from halfseen.nn.ensemble import EnsembleMLP
from halfseen.nn.normal_scores import NormalScores
from halfseen.objectives.protocols import Objective
from halfseen.objectives.supervised import Labelled
from halfseen.training.em import EMSettings
from halfseen.training.em_self_masked import OFFERED, fit_masked_gaussian
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import History, Progress
from halfseen.vocabulary import Missingness, check_missingness

TRIAL_ROWS = 4000  # enough to see which model of missingness predicts best
SMALLEST_TRIAL = 200  # with fewer rows a model of missingness is not worth its parameters
LAST_STEPS = 4  # from the fit without the held-out rows to that with them
FARTHEST = 6.0  # networks see inputs up to so many standard deviations from the mean
WEIGHT_DECAY = 1e-2
IQR = 1.349  # of a standard normal
FENCE = 6.0  # robust standard deviations from the median beyond which values may be drawn in


@dataclass(frozen=True)
class Rows:
    """Features (N, D) with holes, targets as the law sees them (N, J), targets, and how much rows count."""

    batch: Incomplete
    joint: Tensor
    target: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, rows: Tensor) -> "Rows":
        return Rows(self.batch[rows], self.joint[rows], self.target[rows], self.weights[rows])

    @property
    def joined(self) -> Incomplete:
        """Features and targets together, the targets all seen."""
        seen = torch.ones(self.joint.shape, dtype=torch.bool)
        return Incomplete(
            torch.cat([self.batch.x, self.joint], dim=1), torch.cat([self.batch.observed, seen], dim=1)
        )


@dataclass(frozen=True)
class View:
    """What is known of each row: what the networks see (N, P), and the first answer, with its spread."""

    inputs: Tensor
    base: Tensor
    spread: Tensor


class NeuMissBase(Saveable, TableEstimator):
    """Predicts from a law of rows and masks, corrected by networks as far as held-out rows ask for it.

    A subclass reads targets (`_targets`), turns the fitted law into one that answers (`_answering`), reads
    its answers (`_read_out`), and scores corrections (`_objective`) and calibrates them (`_calibrate`).
    """

    _saved: ClassVar[tuple[str, ...]] = ("missingness_", "head_weight_", "validation_errors_", "_n_answers")

    def __init__(
        self,
        *,
        missingness: str = "auto",
        head: str = "auto",
        n_networks: int = 4,
        width: int = 128,
        max_epochs: int = 200,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        patience: int = 8,
        validation_fraction: float = 0.2,
        ridge: float | str = "auto",
        callback: Callable[[Progress], None] | None = None,
        schema: Any = None,
        random_state: Any = None,
    ) -> None:
        self.missingness = missingness
        self.head = head
        self.n_networks = n_networks
        self.width = width
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.ridge = ridge
        self.callback = callback
        self.schema = schema
        self.random_state = random_state

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits the law of rows, chooses how cells are missing, and trains the networks.

        Parameters
        ----------
        X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
            Missing cells are None, NaN, NaT, NA or null.
        y : array-like of shape (n_samples,), or (n_samples, n_targets) for a regressor
            The targets, without holes.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts, relative to the others: to double all weights changes nothing. A row
            of weight 0 tells no more than of which kind its columns are.
        """
        self._check_parameters()
        self.history_ = History()  # of networks, if there will be any
        read = self._read(X, reset=True)
        weights = _weights(sample_weight, read.table.n_rows)
        counted = weights > 0  # a row that does not count is as good as not there
        joint, target = self._targets(y, counted)
        codes = read.codes[counted]
        generator = torch_generator(self.seed_)
        self._features = FeatureMap.fit(self._modelled, codes, all_indicators=False)
        rows = Rows(self._features.encode(codes), joint, target, weights[counted])
        self._incomplete = (~rows.batch.observed).any(dim=0)
        settings = em_settings(rows.joined, self.ridge, 200, 2e-5, generator)
        train, held = _split(len(rows), self.validation_fraction, generator)
        self._fence = _no_fence(rows.batch)
        if held is None:
            self._fit_short(rows, settings, generator)
            return self
        self._fence = self._choose_fence(rows[train], rows[held], settings, generator)
        rows = replace(rows, batch=self._fenced(rows.batch))
        law = self._choose_law(rows[train], rows[held], settings, generator)
        self.law_ = self._answering(law, rows[train])
        self._fit_head(rows[train], rows[held], generator)
        few_steps = replace(settings, max_iterations=LAST_STEPS)
        law = self._fit_law(rows, self.missingness_, few_steps, generator, law)
        self.law_ = self._answering(law)
        return self

    def _fit_short(self, rows: Rows, settings: EMSettings, generator: torch.Generator) -> None:
        """Fits a table too short to hold rows out: the law alone."""
        self.missingness_ = Missingness.MAR.value if self.missingness == "auto" else self.missingness
        self.validation_errors_: dict[str, float] = {}
        self.network_: EnsembleMLP | None = None
        self._scores: NormalScores | None = None
        self.head_weight_ = 0.0
        self.law_ = self._answering(self._fit_law(rows, self.missingness_, settings, generator), rows)
        self._calibrate(self._view(rows.batch), None, rows)

    def _choose_fence(
        self, train: Rows, held: Rows, settings: EMSettings, generator: torch.Generator
    ) -> Tensor:
        """Returns the bounds (2, D) of features: a fence, if there is any value beyond it and it helps."""
        bounds, fence = _no_fence(train.batch), _fence(train.batch, len(self._features.numeric))
        if torch.equal(train.batch.x, train.batch.x.clamp(*fence)):
            return bounds
        trial, judged = _some(train), _some(held)
        errors = []
        for self._fence in (bounds, fence):
            part = replace(trial, batch=self._fenced(trial.batch))
            law = self._fit_law(part, Missingness.MAR, settings, generator)
            errors.append(_errors(law, replace(judged, batch=self._fenced(judged.batch))).mean())
        return fence if errors[1] < errors[0] else bounds

    def _fenced(self, batch: Incomplete) -> Incomplete:
        return Incomplete(batch.x.clamp(*self._fence), batch.observed)

    def _choose_law(
        self, train: Rows, held: Rows, settings: EMSettings, generator: torch.Generator
    ) -> RowLaw:
        """Returns the law of the training rows whose missingness predicts held-out targets best."""
        trial, judged = _some(train), _some(held)
        kinds = [self.missingness]
        if self.missingness == "auto":
            tell = len(train) >= SMALLEST_TRIAL and bool(self._incomplete.any())
            kinds = [word.value for word in OFFERED] if tell else [Missingness.MAR.value]
        laws: dict[str, RowLaw] = {}
        errors: dict[str, Tensor] = {}
        law = None
        for kind in kinds:  # each starts from the one before
            law = laws[kind] = self._fit_law(trial, kind, settings, generator, law)
            errors[kind] = _errors(law, judged)
        chosen = min(kinds, key=lambda kind: float(errors[kind].mean()))
        gain = errors[kinds[0]] - errors[chosen]
        # It must be better, not only as good; of one row nobody can say.
        if len(gain) < 2 or not gain.mean() > 2 * gain.std() / len(gain) ** 0.5:
            chosen = kinds[0]
        self.missingness_ = chosen
        self.validation_errors_ = {kind: float(error.mean()) for kind, error in errors.items()}
        if len(trial) == len(train):
            return laws[chosen]
        return self._fit_law(train, chosen, settings, generator, laws[chosen])

    def _fit_law(
        self,
        rows: Rows,
        kind: str,
        settings: EMSettings,
        generator: torch.Generator,
        start: RowLaw | None = None,
    ) -> RowLaw:
        joined = rows.joined
        may_hide = torch.zeros(joined.n_features, dtype=torch.bool)
        numbers = [c not in self._features.ordinal for c in self._features.numeric]
        may_hide[: len(numbers)] = torch.tensor(numbers, dtype=torch.bool)
        return fit_masked_gaussian(
            joined, kind, may_hide, settings, generator=generator, weights=rows.weights, start=start
        ).model

    def _fit_head(self, train: Rows, held: Rows, generator: torch.Generator) -> None:
        """Trains networks to correct the answers of the law; held-out rows say how much they count."""
        view = self._view(held.batch)
        self.network_, self._scores, self.head_weight_ = None, None, 0.0
        correction = None
        if self.head != "linear":
            seen = self._view(train.batch)
            self._scores = NormalScores.fit(seen.inputs[:, : len(self._features.numeric)])
            inputs = self._with_scores(seen.inputs)
            network = EnsembleMLP(self.n_networks, inputs.shape[1], seen.base.shape[1], width=self.width)
            network.reset_parameters(generator)
            self.history_ = fit_module(
                network,
                self._objective(),
                _labelled(inputs, seen, train),
                generator=generator,
                validation=_labelled(self._with_scores(view.inputs), view, held),
                settings=TrainingSettings(
                    max_epochs=self.max_epochs,
                    batch_size=self.batch_size,
                    learning_rate=self.learning_rate,
                    patience=self.patience,
                    weight_decay=WEIGHT_DECAY,
                ),
                callback=self.callback,
            )
            self.network_ = network.requires_grad_(False)
            correction = self._correction(view.inputs)
        self._calibrate(view, correction, held)

    def _view(self, batch: Incomplete) -> View:
        """Returns what the law says of rows (N, D)."""
        mean, variance = condition(self.law_, batch, self._n_answers)
        base, spread = self._read_out(mean[:, batch.n_features :], variance[:, batch.n_features :])
        hidden = ~batch.observed[:, self._incomplete]
        deviation = variance[:, : batch.n_features][:, self._incomplete].sqrt()
        parts = [mean[:, : batch.n_features], base, deviation, hidden.to(mean.dtype)]
        return View(torch.cat(parts, dim=1).clamp(-FARTHEST, FARTHEST).float(), base, spread)

    @torch.no_grad()
    def _correction(self, inputs: Tensor) -> Tensor:
        assert self.network_ is not None
        return self.network_(self._with_scores(inputs)).mean(dim=0).double()

    def _with_scores(self, inputs: Tensor) -> Tensor:
        """Adds the ranks of numbers, on a normal scale, to what networks see."""
        assert self._scores is not None
        return torch.cat([inputs, self._scores(inputs[:, : len(self._features.numeric)])], dim=1)

    @task_threads()
    def _answers(self, X: Any) -> tuple[Tensor, Tensor]:
        """Returns the corrected answer (N, T) for each row of a table, and its spread."""
        codes = self._read(X, reset=False).codes
        size = rows_at_once(self._features.n_features + self._n_answers)
        answers, spreads = [], []
        for part in [*codes.chunks(size)] or [codes]:
            view = self._view(self._fenced(self._features.encode(part)))
            corrected = self.network_ is not None and self.head_weight_ > 0
            correction = self.head_weight_ * self._correction(view.inputs) if corrected else 0.0
            answers.append(self._tempered(view.base) + correction)
            spreads.append(view.spread)
        return torch.cat(answers), torch.cat(spreads)

    def _targets(self, y: Any, counted: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _answering(self, law: RowLaw, rows: Rows | None = None) -> RowLaw:
        raise NotImplementedError

    def _read_out(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _tempered(self, base: Tensor) -> Tensor:
        """Returns first answers as bold as held-out rows ask for; what the networks see stays as it was."""
        return base

    def _objective(self) -> Objective[Any, Labelled]:
        raise NotImplementedError

    def _calibrate(self, view: View, correction: Tensor | None, rows: Rows) -> None:
        raise NotImplementedError

    def _check_parameters(self) -> None:
        check_missingness(self.missingness, ("auto", *OFFERED))
        heads = ("auto", "linear", "mlp")
        if self.head not in heads:
            raise ValueError(f"head must be one of {', '.join(heads)}, got {self.head!r}.")
        for name, lowest in {"n_networks": 1, "width": 1, "batch_size": 1, "max_epochs": 0}.items():
            check_whole(name, getattr(self, name), lowest)
        check_training(self)
        check_ridge(self.ridge)

    def _state(self) -> dict[str, Tensor]:
        weights = {} if self.network_ is None else self.network_.state_dict()
        return (
            self._features.state()
            | law_state(self.law_)
            | {"incomplete": self._incomplete, "fence": self._fence}
            | ({} if self._scores is None else {"scores.knots": self._scores.knots})
            | {f"network.{name}": value for name, value in weights.items()}
        )

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._features = FeatureMap.from_state(self._modelled, state, all_indicators=False)
        self._incomplete, self._fence = state["incomplete"], state["fence"]
        self.law_ = law_from_state(state)
        weights = {name[8:]: value for name, value in state.items() if name.startswith("network.")}
        self.network_ = self._scores = None
        if weights:
            self._scores = NormalScores(state["scores.knots"])
            n_networks, n_inputs, _ = weights["weights.0"].shape
            self.network_ = EnsembleMLP(n_networks, n_inputs, self._n_outputs, width=self.width)
            self.network_.load_state_dict(weights)
            self.network_.eval().requires_grad_(False)

    @property
    def _n_outputs(self) -> int:
        """The number of answers of the networks."""
        return self._n_answers


def _weights(sample_weight: Any, n_rows: int) -> Tensor:
    """Returns weights (N) whose mean over the rows that count is one."""
    rows = np.empty((n_rows, 1))
    weights: npt.NDArray[np.float64] = _check_sample_weight(
        sample_weight, rows, dtype=np.float64, ensure_non_negative=True
    )
    relative = torch.from_numpy(weights / weights.max())  # sums of the largest floats overflow
    return relative / relative[relative > 0].mean()


def _split(n_rows: int, fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
    """Returns positions to train on and to hold out; None held out from a short table."""
    n_held_out = int(np.ceil(fraction * n_rows))
    order = torch.randperm(n_rows, generator=generator)
    if n_held_out == 0 or n_rows < SMALLEST_SPLIT:
        return order, None
    return order[n_held_out:], order[:n_held_out]


def _labelled(inputs: Tensor, view: View, rows: Rows) -> Labelled:
    target = rows.target.float() if rows.target.is_floating_point() else rows.target
    return Labelled(inputs, view.base.float(), target, rows.weights.float())


def _some(rows: Rows) -> Rows:
    """Returns enough rows to compare laws; they are in random order already."""
    return rows[torch.arange(min(len(rows), TRIAL_ROWS))]


def _errors(law: RowLaw, rows: Rows) -> Tensor:
    """Returns the weighted squared error (N) of a law's prediction of the targets that it sees."""
    mean, _ = condition(law, rows.batch, rows.joint.shape[1])
    return rows.weights * (mean[:, rows.batch.n_features :] - rows.joint).square().sum(dim=1)


def _no_fence(batch: Incomplete) -> Tensor:
    bound = torch.full((batch.n_features,), torch.inf, dtype=batch.x.dtype)
    return torch.stack([-bound, bound])


def _fence(batch: Incomplete, n_numbers: int) -> Tensor:
    """Returns bounds (2, D) so far out that a Gaussian number is never beyond; indicators have none."""
    fence = _no_fence(batch)
    for d in range(n_numbers):
        cells = batch.x[:, d][batch.observed[:, d]]
        if len(cells):
            low, middle, high = np.quantile(cells.numpy(), [0.25, 0.5, 0.75])
            reach = FENCE * ((high - low) / IQR if high > low else 1.0)
            fence[:, d] = torch.tensor([middle - reach, middle + reach], dtype=fence.dtype)
    return fence
