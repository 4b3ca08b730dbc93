"""One optimisation step: a gradient and an AdamW update, done eagerly or as one compiled graph.

A step takes rows (`Rows`) and an objective (`Objective`): what these must be able to do is stated here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from halfseen.errors import warn_user
from halfseen.training.gradients import add_over_processes
from halfseen.words import Note


class Rows(Protocol):
    """Anything with a length that can be indexed by rows: an ``Incomplete``, or one together with labels."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | Tensor, /) -> Self: ...


@dataclass(frozen=True)
class AlignedRows:
    """The base class of records whose fields have an entry for each row: rows are taken from all of them."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def __getitem__(self, rows: slice | Tensor) -> Self:
        return type(self)(*(getattr(self, one.name)[rows] for one in fields(self)))


GivenModuleT = TypeVar("GivenModuleT", contravariant=True)
GivenRowsT = TypeVar("GivenRowsT", bound=Rows, contravariant=True)


class Objective(Protocol[GivenModuleT, GivenRowsT]):
    """A loss per row. Its noise is drawn separately, so that the loss itself is deterministic.

    An objective that needs no noise returns an empty tuple from ``draw_noise``. It may access parameters only
    through the `module` that it receives, by any of its methods. An objective with its own state, which a
    checkpoint does not contain, has an attribute ``resumable`` that is False.
    """

    def draw_noise(self, batch: GivenRowsT, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns the noise for one evaluation of the loss on `batch`."""
        ...

    def __call__(self, module: GivenModuleT, batch: GivenRowsT, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of each row, with shape :math:`(N)`; training minimises its mean."""
        ...


class WithoutNoise:
    """An objective whose loss is deterministic."""

    def draw_noise(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns no noise."""
        return ()


ModuleT = TypeVar("ModuleT", bound=nn.Module)
RowsT = TypeVar("RowsT", bound=Rows)

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # as torch.optim names them

LossOf = Callable[[list[Tensor], Any, tuple[Tensor, ...]], Tensor]


# A step as one function of parameters, moments, learning rate, batch and noise. It changes the parameters and
# moments in place, and returns the loss.
Update = Callable[[list[Tensor], list[dict[str, Tensor]], Tensor, Any, tuple[Tensor, ...]], Tensor]


class Optimiser(Generic[ModuleT, RowsT]):
    r"""Creates AdamW for the mean of an objective over a batch.

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \;
              \theta \leftarrow (1 - \eta \lambda) \theta - \eta \, \hat m / (\sqrt{\hat v} + \epsilon)

    The eager step is torch's fused AdamW, by its functional form: the classes of `torch.optim` load torch's
    compiler, which takes a second and 65 MiB in each process. The compiled step does the same arithmetic on
    the same moments within the graph of the gradient, which halves the time of steps that are too small to
    fill a processor. Without a working compiler it warns and continues eagerly. The compiled step cannot
    follow modules that change their buffers in ``forward``.

    Parameters
    ----------
    module : nn.Module
        Its parameters are changed in place.
    objective : Objective
        The loss per row.
    weight_decay : float
        The decoupled decay :math:`\lambda`.
    gradient_clip : float or None
        The largest norm of the whole gradient.
    penalties : mapping of str to float, optional
        The weight of half the sum of squares of a parameter, by its name. It takes the place of the decay.
        Its gradient is added within the update, after clipping, so it costs no pass over the parameter; the
        loss that is returned is without it.
    compiled : bool
        Whether to compile the whole step.

    References
    ----------
    Loshchilov & Hutter (2019), Decoupled weight decay regularization, algorithm 2.
    """

    def __init__(
        self,
        module: ModuleT,
        objective: Objective[ModuleT, RowsT],
        *,
        weight_decay: float = 0.0,
        gradient_clip: float | None = None,
        penalties: Mapping[str, float] | None = None,
        compiled: bool = False,
    ) -> None:
        penalties = penalties or {}
        if compiled and penalties:
            raise ValueError("Penalties are not part of the compiled step: use compiled=False.")
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not named:
            raise ValueError("module has no parameters to train.")
        self.module = module
        self.objective = objective
        self.gradient_clip = gradient_clip
        self.compiled = compiled
        self.names = list(named)
        self.parameters = list(named.values())
        # Made now and not at the first step, so that both kinds of step and a checkpoint share them.
        self.moments = [
            {
                "step": torch.zeros((), device=p.device),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }
            for p in map(Tensor.detach, self.parameters)
        ]
        self._groups = _group(self.names, weight_decay, penalties)
        self._update: Update | None = None
        if compiled:
            update = functional_update(self._loss_of(), weight_decay, gradient_clip)
            self._update = torch.compile(update, fullgraph=True, dynamic=False)

    def step(self, batch: RowsT, noise: tuple[Tensor, ...], learning_rate: float) -> float:
        """Changes the parameters once; returns the mean loss before the change."""
        if self._update is not None:
            return self._compiled_step(self._update, batch, noise, learning_rate)
        for parameter in self.parameters:
            parameter.grad = None
        loss = self.objective(self.module, batch, noise).mean()
        loss.backward()
        if self.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.gradient_clip)
        self._apply_gradients(learning_rate)
        return loss.item()

    def step_in_pieces(
        self, pieces: Sequence[tuple[RowsT, tuple[Tensor, ...]]], n_rows: int, learning_rate: float
    ) -> float:
        """Changes the parameters once, by the pieces of a batch that this process has.

        Parameters
        ----------
        pieces : sequence of (Rows, tuple of Tensor)
            The rows of each piece, and their noise.
        n_rows : int
            The number of rows of the whole batch.
        learning_rate : float
            The learning rate.

        Returns
        -------
        float
            The mean loss of the whole batch before the change.
        """
        for parameter in self.parameters:
            parameter.grad = None
        total = torch.zeros((), dtype=torch.float64)
        for batch, noise in pieces:
            loss = self.objective(self.module, batch, noise).sum() / n_rows
            loss.backward()
            total += loss.detach().cpu()
        mean = add_over_processes(self.parameters, total)
        if self.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.gradient_clip)
        self._apply_gradients(learning_rate)
        return mean

    @torch.no_grad()
    def _apply_gradients(self, learning_rate: float) -> None:
        """Changes the parameters that have a gradient."""
        for (update, decay), indices in self._groups.items():
            used = [i for i in indices if self.parameters[i].grad is not None]
            update(
                [self.parameters[i] for i in used],
                [cast(Tensor, self.parameters[i].grad) for i in used],
                [self.moments[i]["exp_avg"] for i in used],
                [self.moments[i]["exp_avg_sq"] for i in used],
                [],
                [self.moments[i]["step"] for i in used],
                fused=True,
                amsgrad=False,
                beta1=BETA_1,
                beta2=BETA_2,
                lr=learning_rate,
                weight_decay=decay,
                eps=EPSILON,
                maximize=False,
            )

    def is_finite(self) -> bool:
        """Whether all parameters and second moments are; an overflow of the latter freezes a parameter."""
        squares = [moments["exp_avg_sq"] for moments in self.moments]
        return all(bool(tensor.isfinite().all()) for tensor in [*self.parameters, *squares])

    def state(self) -> dict[str, Tensor]:
        """Returns a copy of the moments, by the names of the parameters."""
        named = zip(self.names, self.moments, strict=True)
        return {f"{name}/{key}": moments[key].clone() for name, moments in named for key in _MOMENTS}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Copies what ``state`` returned into the moments."""
        for name, moments in zip(self.names, self.moments, strict=True):
            for key in _MOMENTS:
                moments[key].copy_(state[f"{name}/{key}"])

    def _compiled_step(
        self, update: Update, batch: RowsT, noise: tuple[Tensor, ...], learning_rate: float
    ) -> float:
        # A tensor, as a changing number would be compiled anew. The detached parameters share memory.
        rate = torch.tensor(learning_rate, dtype=torch.float64)
        parameters = [parameter.detach() for parameter in self.parameters]
        try:
            return update(parameters, self.moments, rate, batch, noise).item()
        except torch._dynamo.exc.TorchDynamoException as error:
            # Compilation comes before execution, so nothing was changed yet.
            reason = str(error).strip().splitlines()[0]
            text = (
                f"The training step could not be compiled and runs eagerly ({reason}). "
                "Set compile=False to silence this, or install a C++ compiler."
            )
            warn_user(Note(text, "detail"))
            self._update, self.compiled = None, False
            return self.step(batch, noise, learning_rate)

    def _loss_of(self) -> LossOf:
        scored = _Scored(self.module, self.objective)
        names = [f"module.{name}" for name in self.names]

        def loss_of(parameters: list[Tensor], batch: RowsT, noise: tuple[Tensor, ...]) -> Tensor:
            named = dict(zip(names, parameters, strict=True))
            loss: Tensor = functional_call(scored, named, (batch, noise))
            return loss

        return loss_of


def _group(
    names: Sequence[str], weight_decay: float, penalties: Mapping[str, float]
) -> dict[tuple[Callable[..., None], float], list[int]]:
    """Returns the parameters that are updated together: AdamW for decay, Adam, whose decay is a penalty.

    Without decay both are the same, so that one Adam updates all parameters of a module with penalties.
    """
    unknown = set(penalties) - set(names)
    if unknown:
        raise ValueError(f"There are penalties of {sorted(unknown)}, which are no parameters of the module.")
    if penalties and weight_decay == 0.0:
        penalties = dict.fromkeys(names, 0.0) | dict(penalties)
    groups: dict[tuple[Callable[..., None], float], list[int]] = {}
    for i, name in enumerate(names):
        update, decay = (adam, penalties[name]) if name in penalties else (adamw, weight_decay)
        groups.setdefault((update, decay), []).append(i)
    return groups


def functional_update(loss_of: LossOf, weight_decay: float, gradient_clip: float | None) -> Update:
    """Returns the whole step, gradient and update, as one function that can be one compiled graph."""

    def update(
        parameters: list[Tensor],
        moments: list[dict[str, Tensor]],
        learning_rate: Tensor,
        batch: Any,
        noise: tuple[Tensor, ...],
    ) -> Tensor:
        gradients: Sequence[Tensor]
        loss: Tensor
        gradients, loss = grad_and_value(loss_of)(parameters, batch, noise)
        if gradient_clip is not None:
            norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
            factor = (gradient_clip / (norm + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
            gradients = [gradient * factor for gradient in gradients]
        for parameter, moment, gradient in zip(parameters, moments, gradients, strict=True):
            _adam_update(parameter, moment, gradient, learning_rate, weight_decay)
        return loss

    return update


def _adam_update(
    parameter: Tensor,
    moments: dict[str, Tensor],
    gradient: Tensor,
    learning_rate: Tensor,
    weight_decay: float,
) -> None:
    step = moments["step"].add_(1.0).double()
    first = moments["exp_avg"].lerp_(gradient, 1.0 - BETA_1)
    second = moments["exp_avg_sq"].mul_(BETA_2).addcmul_(gradient, gradient, value=1.0 - BETA_2)

    rate = (learning_rate / (1.0 - BETA_1**step)).to(parameter.dtype)
    spread = (second / (1.0 - BETA_2**step).to(parameter.dtype)).sqrt() + EPSILON
    parameter.mul_((1.0 - learning_rate * weight_decay).to(parameter.dtype)).sub_(rate * first / spread)


class _Scored(nn.Module):
    """Lets ``functional_call`` swap the parameters whichever method of the module the objective calls."""

    def __init__(self, module: nn.Module, objective: Objective[Any, Any]) -> None:
        super().__init__()
        self.module = module
        self.objective = objective

    def forward(self, batch: Any, noise: tuple[Tensor, ...]) -> Tensor:
        return self.objective(self.module, batch, noise).mean()
