"""What a model over incomplete data can be asked: objectives depend on these, never on a class."""

from typing import Protocol, runtime_checkable

from torch import Tensor

from halfseen.data.incomplete import Incomplete


@runtime_checkable
class DensityModel(Protocol):
    r"""Answers :math:`\log p(x_o)`, the log density of what was observed, with shape :math:`(*)`."""

    def __call__(self, batch: Incomplete, /) -> Tensor:
        """Returns the log density of the observed cells of each row; zero for a row without any."""
        ...


@runtime_checkable
class ConditionalModel(DensityModel, Protocol):
    """Answers for the missing cells too, given the observed ones; observed cells come back exactly."""

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns the mean of every cell given the observed ones, with shape :math:`(*, D)`."""
        ...

    def conditional_quantile(self, batch: Incomplete, level: float) -> Tensor:
        """Returns the quantile of every cell given the observed ones, with shape :math:`(*, D)`."""
        ...


@runtime_checkable
class DrawableModel(ConditionalModel, Protocol):
    """Fills the holes with a draw; it makes no randomness, so a draw belongs to its row, not to its batch."""

    def conditional_draw(
        self, batch: Incomplete, uniforms: Tensor, normals: Tensor, block_uniforms: Tensor
    ) -> Tensor:
        """Returns one draw of the missing cells, given the observed ones and the noise of each row."""
        ...
