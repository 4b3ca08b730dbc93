r"""Fully connected networks with and without residual blocks, which never use the global generator."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator

Activation = Literal["elu", "gelu", "relu", "silu", "softplus", "tanh"]

NetworkFactory = Callable[[int, int], nn.Module]
"""From the number of inputs and of outputs to a module."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": functional.elu,
    "gelu": functional.gelu,
    "relu": torch.relu,
    "silu": functional.silu,
    "softplus": functional.softplus,
    "tanh": torch.tanh,
}
"""The activations by name."""


class ResidualMLP(nn.Module):
    r"""Creates a network of residual blocks, with an optional linear path beside them.

    .. math:: h_0 = a(W_0 x + b_0), \quad h_i = a\big(h_{i-1} + V_i \, a(W_i h_{i-1} + b_i) + c_i\big), \quad
              f(x) = W h_n + b \, [+ A x]

    The linear path :math:`A x` makes the network contain the linear model, so that it can start from
    probabilistic PCA (see `set_linear`). A width of 0 leaves one linear layer. Without `residual` it is the
    plain network :math:`h_i = a(W_i h_{i-1} + b_i)` with :math:`h_0 = x`.

    Parameters
    ----------
    n_inputs, n_outputs : int
        The number of inputs and of outputs.
    n_blocks : int
        The number of residual blocks after one hidden layer; if not `residual`, that of hidden layers.
    width : int
        The size of every hidden layer; 0 (with no blocks) for one linear layer.
    activation : {"elu", "gelu", "relu", "silu", "softplus", "tanh"}
        The activation :math:`a`.
    dropout : float
        The fraction of hidden units that are dropped in training; `forward` then needs a generator.
    residual : bool
        Whether blocks add to what they receive.
    linear_skip : bool
        Whether there is a linear path from the inputs to the outputs.

    Notes
    -----
    Shapes: from :math:`(*, n\_inputs)` to :math:`(*, n\_outputs)`. All new networks have the same parameters,
    until `reset_parameters` draws new ones.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families (three blocks of 200, ReLU, for their mixture of Gaussians). Ipsen, Mattei & Frellsen
    (2021), not-MIWAE (plain, two tanh layers of 128).

    Examples
    --------
    >>> network = ResidualMLP(4, 3, n_blocks=2, width=16)
    >>> network.reset_parameters(torch.Generator().manual_seed(1))
    >>> network(torch.zeros(7, 5, 4)).shape
    torch.Size([7, 5, 3])
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        *,
        n_blocks: int = 2,
        width: int = 128,
        activation: Activation = "relu",
        dropout: float = 0.0,
        residual: bool = True,
        linear_skip: bool = False,
    ) -> None:
        super().__init__()
        _check_sizes(n_inputs, n_outputs, n_blocks, width)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {activation!r}.")
        check_dropout(dropout)
        self.n_inputs = n_inputs
        self.n_outputs = n_outputs
        function = ACTIVATIONS[activation]

        body: list[nn.Module] = []
        if residual and width > 0:
            body = [_Layer(n_inputs, width, function, 0.0)]
            body += [_ResidualBlock(width, function, dropout) for _ in range(n_blocks)]
        elif width > 0:
            sizes = [n_inputs] + [width] * n_blocks
            body = [_Layer(before, width, function, dropout) for before in sizes[:-1]]
        self.body = nn.ModuleList(body)
        self.output = empty_linear(width if body else n_inputs, n_outputs)
        self.skip = empty_linear(n_inputs, n_outputs, bias=False) if linear_skip and body else None
        self.reset_parameters(torch_generator(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws new parameters, uniform within the inverse root of the number of inputs of each layer."""
        reset_layers(self, generator)

    @torch.no_grad()
    def set_linear(self, weight: Tensor, bias: Tensor) -> None:
        r"""Makes the network equal to :math:`A x + b`; its hidden layers keep their parameters."""
        if self.skip is not None:
            self.skip.weight.copy_(weight)
            self.output.weight.zero_()
        elif not self.body:
            self.output.weight.copy_(weight)
        else:
            raise ValueError("The network does not contain the linear maps: build it with linear_skip=True.")
        self.output.bias.copy_(bias)

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Returns the outputs; the generator is for dropout in training."""
        hidden = x
        for layer in self.body:
            hidden = layer(hidden, generator)  # (*, width)
        output: Tensor = self.output(hidden)

        return output if self.skip is None else output + self.skip(x)


class LinearWithNetwork(nn.Module):
    r"""Creates a linear map plus a user-defined network.

    .. math:: f(x) = A x + b + g \, h(x)

    The gate :math:`g`, a number, starts at zero: the whole starts as a linear map and becomes non-linear in
    training.

    Parameters
    ----------
    factory : callable
        From `n_inputs` and `n_outputs` to a module :math:`h`. It may use PyTorch's global generator, whose
        state is restored afterwards.
    n_inputs, n_outputs : int
        The number of inputs and of outputs.
    name : str
        What the network is, for messages.

    Notes
    -----
    Shapes: from :math:`(*, n\_inputs)` to :math:`(*, n\_outputs)`, with any number of leading axes.

    Examples
    --------
    >>> network = LinearWithNetwork(lambda n, m: nn.Sequential(nn.Linear(n, m), nn.Tanh()), 4, 3)
    >>> network(torch.zeros(7, 5, 4)).shape
    torch.Size([7, 5, 3])
    """

    def __init__(self, factory: NetworkFactory, n_inputs: int, n_outputs: int, name: str = "network") -> None:
        super().__init__()
        self.factory, self.n_inputs, self.n_outputs, self.name = factory, n_inputs, n_outputs, name
        self.linear = empty_linear(n_inputs, n_outputs)
        self.gate = nn.Parameter(torch.zeros(()))
        self.reset_parameters(torch_generator(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws a new linear map and makes a new network, with a gate of zero."""
        reset_layers(self.linear, generator)
        seed = int(torch.randint(2**31, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = self._call_factory()
        if not isinstance(self.network, nn.Module):
            raise ValueError(f"The {self.name} factory must return a torch module, got {self.network!r}.")
        self.network.to(self.linear.weight.dtype)
        with torch.no_grad():
            self.gate.zero_()
            check_shapes(self.network, self.linear, f"The {self.name} network")

    def _call_factory(self) -> Any:
        """Returns what the factory makes; raises a ValueError that says how it is called if it fails."""
        wanted = (
            f"The {self.name} must be a function of the number of inputs and of outputs (here "
            f"{self.n_inputs} and {self.n_outputs}) that returns a torch module"
        )
        if isinstance(self.factory, nn.Module):
            raise ValueError(f"{wanted}, got the module {type(self.factory).__name__} itself.")
        try:
            return self.factory(self.n_inputs, self.n_outputs)
        except Exception as error:  # code of the user may raise anything
            raise ValueError(f"{wanted}, but it raised {type(error).__name__}: {error}") from error

    @torch.no_grad()
    def set_linear(self, weight: Tensor, bias: Tensor) -> None:
        r"""Makes the whole equal to :math:`A x + b`; the network keeps its parameters."""
        self.linear.weight.copy_(weight)
        self.linear.bias.copy_(bias)
        self.gate.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the outputs."""
        output: Tensor = self.linear(x) + self.gate * self.network(x)
        return output


class _Layer(nn.Module):
    def __init__(
        self, n_inputs: int, width: int, activation: Callable[[Tensor], Tensor], dropout: float
    ) -> None:
        super().__init__()
        self.linear = empty_linear(n_inputs, width)
        self.activation = activation
        self.dropout = dropout

    def forward(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        hidden = self.activation(self.linear(x))
        return drop(hidden, self.dropout, generator) if self.training else hidden


class _ResidualBlock(nn.Module):
    def __init__(self, width: int, activation: Callable[[Tensor], Tensor], dropout: float) -> None:
        super().__init__()
        self.inner = _Layer(width, width, activation, dropout)
        self.outer = empty_linear(width, width)
        self.activation = activation

    def forward(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.activation(x + self.outer(self.inner(x, generator)))


def check_shapes(network: nn.Module, twin: nn.Linear, name: str) -> None:
    """Raises a ValueError unless a network has the inputs and outputs of a linear map, with any other axes.

    The message names the shapes that are expected and those that were found: of the outputs or, if a layer
    fails, of its inputs.
    """
    inputs = twin.weight.new_zeros(3, 2, twin.in_features)
    expected = (3, 2, twin.out_features)
    wanted = f"{name} must map inputs of shape {tuple(inputs.shape)} to outputs of shape {expected}"
    entered: list[tuple[nn.Module, tuple[object, ...]]] = []  # layers whose forward pass has begun
    hooks = []
    for layer in network.modules():
        if not any(layer.children()):
            hooks.append(layer.register_forward_pre_hook(lambda one, given: entered.append((one, given))))
            hooks.append(layer.register_forward_hook(lambda one, given, output: entered.clear()))
    try:
        outputs: object = network(inputs)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        where = f", but its layer {entered[-1][0]} was given {_describe(entered[-1][1])}" if entered else ""
        raise ValueError(f"{wanted}{where}; it raised {type(error).__name__}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != expected:
        raise ValueError(f"{wanted}, got {_describe((outputs,))}.")


def _describe(values: tuple[object, ...]) -> str:
    """Returns the shapes of tensors, and the types of everything else."""
    return ", ".join(
        str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in values
    )


def empty_linear(n_inputs: int, n_outputs: int, bias: bool = True) -> nn.Linear:
    """Returns a linear layer with unset parameters; PyTorch's constructor would use the global generator."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_inputs, n_outputs, bias=bias)
    return layer


@torch.no_grad()
def reset_layers(module: nn.Module, generator: torch.Generator) -> None:
    r"""Draws all linear and convolutional layers of a module as PyTorch does, with a given generator.

    Weights and biases are uniform on :math:`\pm n^{-1/2}`, where :math:`n` is the number of inputs of a unit.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = layer.weight[0].numel() ** -0.5
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=generator)


def drop(
    x: Tensor, rate: float, generator: torch.Generator | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """Returns `x` with some units dropped and the others scaled up; the drawn mask has the shape `shape`."""
    if rate == 0.0:
        return x
    if generator is None:
        raise ValueError(f"Dropout of {rate} in training needs a generator: network(x, generator).")
    kept = x.new_empty(x.shape if shape is None else shape).bernoulli_(1.0 - rate, generator=generator)

    return x * (kept / (1.0 - rate))


def check_dropout(dropout: float) -> None:
    """Raises a ValueError if the rate is not at least 0 and below 1."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}.")


def _check_sizes(n_inputs: int, n_outputs: int, n_blocks: int, width: int) -> None:
    if n_inputs < 1 or n_outputs < 1:
        raise ValueError(f"n_inputs and n_outputs must be at least 1, got {n_inputs} and {n_outputs}.")
    if n_blocks < 0 or width < 0:
        raise ValueError(f"n_blocks and width must not be negative, got {n_blocks} and {width}.")
    if width == 0 and n_blocks > 0:
        raise ValueError(f"width must be at least 1 for {n_blocks} blocks, got 0.")
