r"""Residual convolutional networks between images, as flat vectors, and codes.

An image of shape (C, H, W) is a row of :math:`D = C H W` features in that order, so these networks can
replace a `ResidualMLP`. With the default widths, the forward pass of a 28 x 28 image costs about 0.2 GFLOP
in each network. The cost is proportional to the square of `widths` and falls with the square of `patch`:
networks whose first and last layers process squares of pixels as a whole have no stage at full resolution,
which is the most expensive one.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.latent.mask_models import START_SLOPE, LearnedMask
from halfseen.nn.residual import check_dropout, drop, empty_linear, reset_layers

Normalisation = Literal["batch", "group"]
Size = tuple[int, int]

MIN_SIDE = 8  # four stages reduce it to one pixel
_MAX_GROUPS = 8
_MAPS_PER_GROUP = 4  # minimum, if possible: a group of one map of one pixel would become zero


class ConvEncoder(nn.Module):
    r"""Creates a residual network from an image and its mask to a code.

    The first layer is a 3 x 3 convolution, or a linear map of each `patch`. Stages of residual blocks follow,
    of which all but the first halve the sides (rounding up). The code is a linear function of the last maps,
    or of their means over positions.

    Parameters
    ----------
    shape : (int, int, int)
        The shape (C, H, W) of an image, with sides of at least 8.
    n_outputs : int
        The size of the code.
    widths : sequence of int
        The number of maps in each stage.
    dropout : float
        The fraction of maps that a block drops in training; `forward` then needs a generator.
    normalisation : {"group", "batch"}
        What is standardised: groups of maps of one image, or each map over the images of a batch. The default
        is "group", because with batch statistics the output for a row depends on its batch in training, and
        the draws of one row are not independent rows. The references use "batch".
    patch : int
        The side of the squares of pixels that are read at once; 1 for a convolution at every pixel. Zeros are
        added to images whose sides are no multiple of it.
    n_blocks : int
        The number of residual blocks in each stage.
    pooled : bool
        Whether maps are averaged over positions, or each position has weights of its own.

    Notes
    -----
    Shapes: from :math:`(*, 2D)`, as `encoder_input` returns it, to :math:`(*, n\_outputs)`. The mask enters
    as further channels, one for each channel of the image.

    References
    ----------
    He et al. (2016), Deep residual learning for image recognition, section 3. Simkus & Gutmann (2024),
    Improving variational autoencoder estimation from incomplete data with mixture variational families
    (the default widths are theirs for MNIST).

    Examples
    --------
    >>> encoder = ConvEncoder((1, 28, 28), 10, widths=(4, 8))
    >>> encoder(torch.zeros(5, 2 * 784)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        n_outputs: int,
        widths: Sequence[int] = (32, 64, 128, 256),
        *,
        dropout: float = 0.0,
        normalisation: Normalisation = "group",
        patch: int = 1,
        n_blocks: int = 2,
        pooled: bool = True,
    ) -> None:
        super().__init__()
        _check(shape, widths, dropout, normalisation, patch, n_blocks)
        channels, height, width = shape
        self.n_outputs = n_outputs
        self.planes = (2 * channels, height, width)
        self.beyond = (0, -width % patch, 0, -height % patch)
        self.pooled = pooled

        self.first = _empty_conv(self.planes[0], widths[0])
        if patch > 1:
            self.first = _empty_conv(self.planes[0], widths[0], kernel_size=patch, stride=patch, padding=0)
        self.first_norm = _norm(widths[0], normalisation)
        blocks: list[nn.Module] = []
        for stage, (before, maps) in enumerate(pairwise([widths[0], *widths])):
            stride = 1 if stage == 0 else 2
            blocks.append(_ConvBlock(before, maps, dropout, normalisation, stride=stride))
            blocks += [_ConvBlock(maps, maps, dropout, normalisation) for _ in range(n_blocks - 1)]
        self.blocks = nn.ModuleList(blocks)
        n_positions = math.prod(_sizes((height, width), patch, len(widths))[0])
        self.output = empty_linear(widths[-1] * (1 if pooled else n_positions), n_outputs)
        self.reset_parameters(torch_generator(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws new parameters, uniform within the inverse root of the number of inputs of each unit."""
        _reset(self, generator)

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Returns the codes; the generator is for dropout in training."""
        maps = functional.pad(inputs.reshape(-1, *self.planes), self.beyond)  # (N, C, H, W)
        maps = torch.relu(self.first_norm(self.first(maps)))
        for block in self.blocks:
            maps = block(maps, generator)
        code: Tensor = self.output(maps.mean(dim=(-2, -1)) if self.pooled else maps.flatten(1))

        return code.reshape(*inputs.shape[:-1], self.n_outputs)


class ConvDecoder(nn.Module):
    r"""Creates a residual network from a code to the parameters of every pixel.

    A linear layer produces small maps, and stages of residual blocks follow. Every stage but the last
    doubles the sides (4, 7, 14, 28 for 28 x 28) by nearest-neighbour interpolation before its last
    convolution. A final 3 x 3 convolution returns the parameters of all pixels of a `patch` at once.

    Parameters
    ----------
    n_inputs : int
        The size of the code.
    shape : (int, int, int)
        The shape (C, H, W) of an image, with sides of at least 8.
    widths : sequence of int
        The number of maps in each stage.
    n_parameters : int
        The number of parameters of each feature, as 1 for a logit, 2 for a mean and a scale.
    dropout : float
        The fraction of maps that a block drops in training; `forward` then needs a generator.
            normalisation : {"group", "batch"}
        As in `ConvEncoder`.
    patch : int
        The side of the squares of pixels that are produced at once; pixels beyond the edge are cut off.
    n_blocks : int
        The number of residual blocks in each stage.
    position_bias : bool
        Whether every parameter of every pixel has a bias ``bias`` of its own, 0 at first.

    Notes
    -----
    Shapes: from :math:`(*, n\_inputs)` to :math:`(*, n\_parameters \cdot D)`, all first parameters before all
    second ones. Unlike in the reference, the last convolution has a bias.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families (the default widths are theirs for MNIST).

    Examples
    --------
    >>> decoder = ConvDecoder(10, (3, 17, 23), widths=(8, 4), n_parameters=2)
    >>> mean, raw_scale = decoder(torch.zeros(5, 10)).chunk(2, dim=-1)
    >>> mean.shape == (5, 3 * 17 * 23)
    True
    """

    def __init__(
        self,
        n_inputs: int,
        shape: tuple[int, int, int],
        widths: Sequence[int] = (128, 64, 32, 32),
        *,
        n_parameters: int = 1,
        dropout: float = 0.0,
        normalisation: Normalisation = "group",
        patch: int = 1,
        n_blocks: int = 2,
        position_bias: bool = False,
    ) -> None:
        super().__init__()
        _check(shape, widths, dropout, normalisation, patch, n_blocks)
        channels, *self.side = shape
        sizes = _sizes((shape[1], shape[2]), patch, len(widths))
        self.start = (2 * widths[0], *sizes[0])
        self.n_outputs = n_parameters * math.prod(shape)
        self.patch = patch

        self.first = empty_linear(n_inputs, math.prod(self.start))
        self.first_norm = _norm(self.start[0], normalisation)
        blocks: list[nn.Module] = []
        sizes_after = [*sizes[1:], sizes[-1]]
        for before, width, size in zip([self.start[0], *widths[:-1]], widths, sizes_after, strict=True):
            inputs = [before] + [width] * (n_blocks - 1)
            blocks += [_ConvBlock(maps, width, dropout, normalisation) for maps in inputs[:-1]]
            blocks.append(_ConvBlock(inputs[-1], width, dropout, normalisation, size=size))
        self.blocks = nn.ModuleList(blocks)
        self.output = _empty_conv(widths[-1], n_parameters * channels * patch**2, bias=not position_bias)
        self.bias = nn.Parameter(torch.zeros(self.n_outputs)) if position_bias else None
        self.reset_parameters(torch_generator(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws new parameters, uniform within the inverse root of the number of inputs of each unit."""
        _reset(self, generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, code: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Returns the parameters of the pixels; the generator is for dropout in training."""
        maps = self.first(code).reshape(-1, *self.start)  # (N, C, H, W)
        maps = torch.relu(self.first_norm(maps))
        for block in self.blocks:
            maps = block(maps, generator)
        parameters = functional.pixel_shuffle(self.output(maps), self.patch)  # (N, P C, H, W)
        parameters = parameters[..., : self.side[0], : self.side[1]]
        parameters = parameters.reshape(*code.shape[:-1], self.n_outputs)

        return parameters if self.bias is None else parameters + self.bias


class PixelMask(LearnedMask):
    r"""Creates a model of masks of images: a bias for each position, and a filter shared by all positions.

    .. math:: \ell(x) = b + k * x, \quad \text{or} \quad \ell(x) = b + A \tanh(k * x + c)

    where :math:`*` is a convolution (zeros beyond the edge) and :math:`A` mixes the hidden maps of a pixel.
    A kernel of one pixel on one channel is self-masking: a shared slope, or a shared curve.

    Parameters
    ----------
    shape : (int, int, int)
        The shape (C, H, W) of an image.
    kernel_size : int
        The odd side of the filter.
    hidden : int
        The number of hidden maps; 0 for a linear filter.

    Notes
    -----
    Shapes: features and masks :math:`(*, C H W)`.

    Examples
    --------
    >>> model = PixelMask((3, 8, 8), kernel_size=3)
    >>> model.logits(torch.zeros(5, 192)).shape
    torch.Size([5, 192])
    """

    def __init__(self, shape: tuple[int, int, int], *, kernel_size: int = 1, hidden: int = 0) -> None:
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and positive, got {kernel_size}.")
        channels, height, width = shape
        super().__init__(channels * height * width)
        self.shape = (channels, height, width)
        self.is_self_masking = kernel_size == 1 and channels == 1
        self.filter = _empty_conv(channels, hidden or channels, kernel_size=kernel_size, bias=hidden > 0)
        self.mix = _empty_conv(hidden, channels, kernel_size=1) if hidden > 0 else None
        self._start()

    def logits(self, x: Tensor) -> Tensor:
        """Returns the log odds of being observed, for each mask."""
        maps: Tensor = self.filter(x.reshape(-1, *self.shape))
        if self.mix is not None:
            maps = self.mix(torch.tanh(maps))
        return maps.reshape(*x.shape[:-1], self.n_columns) + self.bias

    def column_logits(self, values: Tensor) -> Tensor:
        """Returns the log odds, pixel by pixel, if the model is self-masking."""
        return self.logits(values) if self.is_self_masking else super().column_logits(values)

    def _reset_slopes(self, generator: torch.Generator) -> None:
        reset_layers(self, generator)
        last = self.filter if self.mix is None else self.mix
        last.weight.normal_(0.0, START_SLOPE * last.weight[0].numel() ** -0.5, generator=generator)


class _ConvBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut connection; smaller by a stride, or of the size `size`."""

    def __init__(
        self,
        n_inputs: int,
        width: int,
        dropout: float,
        normalisation: Normalisation,
        *,
        stride: int = 1,
        size: Size | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.dropout = dropout
        self.inner = _empty_conv(n_inputs, width, stride=stride)
        self.inner_norm = _norm(width, normalisation)
        self.outer = _empty_conv(width, width)
        self.outer_norm = _norm(width, normalisation)
        self.short_cut: nn.Module = nn.Identity()
        if stride != 1 or n_inputs != width:
            conv = _empty_conv(n_inputs, width, kernel_size=1, stride=stride)
            self.short_cut = nn.Sequential(conv, _norm(width, normalisation))

    def forward(self, maps: Tensor, generator: torch.Generator | None) -> Tensor:
        change = torch.relu(self.inner_norm(self.inner(maps)))
        change = self.outer_norm(self.outer(self._resized(change)))
        if self.training:
            change = drop(change, self.dropout, generator, (*change.shape[:2], 1, 1))
        # A 1 x 1 convolution commutes with copying neighbours, and is cheaper before it.
        return torch.relu(self._resized(self.short_cut(maps)) + change)

    def _resized(self, maps: Tensor) -> Tensor:
        if self.size is None or maps.shape[-2:] == self.size:
            return maps
        return functional.interpolate(maps, size=self.size, mode="nearest")


def _empty_conv(
    n_inputs: int,
    width: int,
    *,
    kernel_size: int = 3,
    stride: int = 1,
    padding: int | None = None,
    bias: bool = False,
) -> nn.Conv2d:
    beyond = kernel_size // 2 if padding is None else padding
    conv: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d, n_inputs, width, kernel_size, stride=stride, padding=beyond, bias=bias
    )
    return conv


def _sizes(side: Size, patch: int, n_stages: int) -> list[Size]:
    """Returns the sides of the maps of each stage, smallest first; halves are rounded up."""
    height, width = (-(-one // patch) for one in side)
    return [(-(-height // 2**halving), -(-width // 2**halving)) for halving in range(n_stages - 1, -1, -1)]


def _norm(width: int, normalisation: Normalisation) -> nn.Module:
    if normalisation == "batch":
        return nn.BatchNorm2d(width)
    most = max(1, min(_MAX_GROUPS, width // _MAPS_PER_GROUP))
    n_groups = max(n for n in range(1, most + 1) if width % n == 0)
    return nn.GroupNorm(n_groups, width)


def _reset(network: nn.Module, generator: torch.Generator) -> None:
    reset_layers(network, generator)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
            layer.reset_parameters()


def _check(
    shape: tuple[int, int, int],
    widths: Sequence[int],
    dropout: float,
    normalisation: Normalisation,
    patch: int,
    n_blocks: int,
) -> None:
    if len(shape) != 3 or shape[0] < 1 or min(shape[1:]) < MIN_SIDE:
        raise ValueError(f"shape must be (C, H, W) with sides of at least {MIN_SIDE}, got {shape!r}.")
    if len(widths) == 0 or min(widths) < 1:
        raise ValueError(f"widths must be positive, one for each stage, got {widths!r}.")
    if normalisation not in ("batch", "group"):
        raise ValueError(f"normalisation must be 'batch' or 'group', got {normalisation!r}.")
    if patch < 1 or n_blocks < 1:
        raise ValueError(f"patch and n_blocks must be at least 1, got {patch} and {n_blocks}.")
    check_dropout(dropout)
