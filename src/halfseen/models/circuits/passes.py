r"""Passes through a circuit: upwards to the root, and downwards to choose components or compute shares."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.distributions.observation_model import ObservationModel
from halfseen.models.circuits.layers import Leaves, Messages, ProductLayer, SumLayer
from halfseen.models.circuits.structure import Structure


@dataclass(frozen=True)
class UpwardPass:
    """An upward pass: the inputs (R, N, I) of the sums of each level, None without sums, and of the root."""

    inputs: list[Tensor | None]
    top: Tensor  # (N, trees * channels)
    log_likelihood: Tensor  # (N, classes), up to `shift`
    shift: Tensor  # (N)


class CircuitPasses(nn.Module):
    """Creates the layers of a circuit, and passes messages through them in both directions.

    Parameters
    ----------
    structure : Structure
        The regions that are summed and multiplied.
    observation : ObservationModel
        The likelihood of the columns in a window of the structure.
    """

    log_prior: Tensor
    regions: Tensor
    trees: Tensor

    def __init__(self, structure: Structure, observation: ObservationModel) -> None:
        super().__init__()
        self.structure = structure
        self.leaves = Leaves(structure, observation)
        sums: list[nn.Module] = []
        width = structure.n_leaves
        for level in structure.levels:
            if level.n_channels is None:
                sums.append(nn.Identity())
            else:
                sums.append(SumLayer(level.n_weight_sets, width, level.n_channels))
                width = level.n_channels
        self.sums = nn.ModuleList(sums)
        self.products = nn.ModuleList([ProductLayer(level) for level in structure.levels])
        self.root = SumLayer(1, structure.n_trees * width, structure.n_classes)
        even = torch.full((structure.n_classes,), 1.0 / structure.n_classes, dtype=torch.float64)
        self.register_buffer("log_prior", even.log())
        self.register_buffer("regions", torch.tensor(structure.regions), persistent=False)
        self._in_order = structure.regions == tuple(range(self.leaves.n_windows * self.leaves.n_parts))
        self.register_buffer("trees", torch.tensor(structure.tree_of_regions()), persistent=False)

    @property
    def _observation(self) -> ObservationModel:
        return self.leaves.observation

    def _up(self, terms: Tensor, *, best: bool = False) -> UpwardPass:
        """Passes log densities of leaves (L, N, M) up to the root, or only the best term of each sum."""
        messages = self._at_regions(terms)
        inputs: list[Tensor | None] = []
        for layer, product in zip(self.sums, self.products, strict=True):
            inputs.append(messages.values if isinstance(layer, SumLayer) else None)
            if best and isinstance(layer, SumLayer):
                messages = Messages(layer.best(messages.values), messages.shift)
            else:
                messages = layer(messages)
            messages = product(messages)
        # The trees are mixed: what their shifts have in common goes to the root's shift.
        common = messages.shift.amax(dim=0)  # (N)
        values = messages.values + (messages.shift - common).to(messages.values.dtype).unsqueeze(-1)
        top = values.movedim(0, 1).flatten(start_dim=1)  # (N, trees * channels)
        if best:  # there are no shifts
            return UpwardPass(inputs, top, self.root.best(top[None])[0], common)
        out = self.root(Messages(top[None], common[None]))
        return UpwardPass(inputs, top, out.values[0], out.shift[0])

    def _at_regions(self, terms: Tensor) -> Messages:
        shift = torch.zeros(terms.shape[:2], dtype=torch.float64)
        if self._in_order:
            return Messages(terms, shift)
        return Messages(terms.index_select(0, self.regions), shift.index_select(0, self.regions))

    def _down(
        self, reached: UpwardPass, classes: Tensor, choose: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Chooses a term of each sum, from the root to the leaves.

        Returns the components (L, N) of the leaves, those of the chosen tree (N), and that tree.
        """
        weights = self.root.weights[0].T[classes]  # (N, trees * channels)
        at_root = choose((reached.top + weights.log())[None])[0]
        tree = at_root // self.structure.top_channels
        channel = (at_root % self.structure.top_channels).expand(self.structure.n_trees, -1)
        for layer, product, values in self._downwards(reached):
            channel = channel[product.parents]  # (R, N)
            if isinstance(layer, SumLayer) and values is not None:
                weights = layer.of_regions(len(values)).transpose(1, 2)  # (R, O, I)
                index = channel.unsqueeze(-1).expand(-1, -1, weights.shape[-1])
                channel = choose(values + weights.gather(1, index).log())
        components = channel.new_zeros(self.leaves.n_windows * self.leaves.n_parts, len(tree))
        for number in range(self.structure.n_trees):
            of_tree = self.trees == number
            leaves = self.regions[of_tree]
            components[leaves] = torch.where(tree == number, channel[of_tree], components[leaves])
        return components, tree

    def _downwards(self, reached: UpwardPass) -> Iterator[tuple[nn.Module, ProductLayer, Tensor | None]]:
        """Yields the layers of each level from the top, and the inputs of its sums."""
        for layer, product, values in reversed([*zip(self.sums, self.products, reached.inputs, strict=True)]):
            assert isinstance(product, ProductLayer)  # for the type checker
            yield layer, product, values

    def _flows(
        self, reached: UpwardPass, share: Tensor
    ) -> Iterator[tuple[SumLayer | None, Tensor, Tensor, Tensor]]:
        """Yields, from the root down, the sums of each level (if any), their inputs, and two kinds of shares.

        The first are the shares (R, N, O) of the sums, the second the shares (R, N, I) of their inputs. At
        the root, the shares (N, K) of the classes are given.
        """
        top, above = reached.top[None], share[None]
        at_root = self.root.shares(top, above)
        flow = at_root[0].view(len(share), self.structure.n_trees, -1).movedim(1, 0)  # (trees, N, channels)
        yield self.root, top, above, flow
        for layer, product, values in self._downwards(reached):
            above = flow = flow[product.parents]
            if isinstance(layer, SumLayer) and values is not None:
                flow = layer.shares(values, above)
                yield layer, values, above, flow
            else:
                yield None, flow, above, flow

    def _of_tree(self, values: Tensor, tree: Tensor) -> Tensor:
        """Returns features (N, D) from those of windows (W, N, F), each row by its tree."""
        flat = values.movedim(0, 1).flatten(start_dim=1)  # (N, W * F)
        result = flat.new_empty(len(flat), self.leaves.n_features)
        for number in range(self.structure.n_trees):
            windows = self.regions[self.trees == number].div(self.leaves.n_parts, rounding_mode="floor")
            rows = (tree == number).nonzero().squeeze(1)
            where = self.leaves.positions(windows.unique())
            result[rows] = flat[rows][:, where]
        return result
