r"""A circuit over incomplete rows, and the quantities that it computes exactly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._threads import widest
from halfseen.base.parameters import check_level
from halfseen.circuits.layers import Leaves, Messages, ProductLayer, SumLayer
from halfseen.circuits.structure import Structure
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import GaussianLeaf, choose_by_cdf
from halfseen.distributions.observation_model import ObservationModel


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
        # The root mixes the trees, so their values need one common shift.
        common = messages.shift.amax(dim=0)  # (N)
        values = messages.values + (messages.shift - common).to(messages.values.dtype).unsqueeze(-1)
        top = values.movedim(0, 1).flatten(start_dim=1)  # (N, trees * channels)
        if best:  # maxima do not need shifts
            return UpwardPass(inputs, top, self.root.best(top[None])[0], common)
        out = self.root(Messages(top[None], common[None]))
        return UpwardPass(inputs, top, out.values[0], out.shift[0])

    def _at_regions(self, terms: Tensor) -> Messages:
        shift = torch.zeros(terms.shape[:2], dtype=widest(terms.device), device=terms.device)
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


Completion = Literal["integrated", "joint"]


class Circuit(CircuitPasses):
    r"""Creates a circuit of sums and products over incomplete rows, with classes at its root.

    .. math:: p(x_o, y) = \pi_y \sum_{d_1 \dots d_L} A^y_{d_1 \dots d_L} \prod_l \prod_{j \in l \cap o}
              p_j(x_j \mid \theta_{d_l})

    where :math:`o` are the observed columns, :math:`l` the leaves, and the tensor :math:`A^y` of
    non-negative numbers that sum to 1 is factorised by the levels of the structure: the weights of every sum
    are probabilities, and every product multiplies regions without a common column. The sum over all
    components, and the integral over any missing columns, can therefore be computed in one pass. Valid under
    MAR.

    Parameters
    ----------
    structure, observation : Structure, ObservationModel
        As of `CircuitPasses`.

    Notes
    -----
    Shapes: ``batch`` has :math:`(N, D)` features; entries where ``observed`` is False are never read. The
    conditional distributions of missing cells are mixtures of leaf distributions, whose weights are gradients
    of the log density with respect to the leaves' log densities (Darwiche's differential). This backward pass
    is written explicitly, because no other gradient is needed.

    References
    ----------
    Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models, eq. 2 and 5: we write :math:`l` for
    their patch :math:`i`, and mix trees at the root. Darwiche (2003), A differential approach to inference.

    Examples
    --------
    >>> from halfseen.distributions.leaves_counts import CategoricalLeaf
    >>> from halfseen.distributions.observation_model import ObservationModel, Part
    >>> from halfseen.circuits.structure import Structure
    >>> observation = ObservationModel([Part(CategoricalLeaf([2, 2]), [0, 1], [0, 1, 2, 3])])
    >>> circuit = Circuit(Structure.shallow(n_columns=2, n_leaves=2, n_channels=3), observation)
    >>> row = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    >>> circuit(Incomplete(row, torch.tensor([[True, True, False, False]]))).exp()
    tensor([0.5000], grad_fn=<ExpBackward0>)
    """

    def extra_repr(self) -> str:
        """Returns the table of levels."""
        return str(self.structure)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N) of the observed cells, summed over classes."""
        scores, shift = self.class_scores(batch)
        return (scores.logsumexp(dim=-1).to(shift.dtype) + shift).to(batch.x.dtype)

    def class_scores(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns scores (N, K) and a shift (N) in float64, whose sum is the log of p(x_o, y).

        The softmax of the scores is the probability of each class given the observed cells.
        """
        reached = self._up(self.leaves(batch))
        return reached.log_likelihood + self.log_prior.to(reached.top.dtype), reached.shift

    def class_log_likelihood(self, batch: Incomplete) -> Tensor:
        """Returns the log density (N, K) of the observed cells under each class."""
        reached = self._up(self.leaves(batch))
        return (reached.log_likelihood.double() + reached.shift[:, None]).to(batch.x.dtype)

    def class_probabilities(self, batch: Incomplete) -> Tensor:
        """Returns the probability (N, K) of each class given the observed cells."""
        return self.class_scores(batch)[0].softmax(dim=-1)

    def conditional_log_prob(
        self, batch: Incomplete, given: Tensor, *, of_class: int | None = None
    ) -> Tensor:
        """Returns the log density (N) of the observed cells given some of them.

        Parameters
        ----------
        batch : Incomplete
            The rows.
        given : Tensor
            The features (N, D) to condition on; missing cells are ignored.
                    of_class : int, optional
            A class to condition on as well.
        """
        both = (batch, Incomplete(batch.x, batch.observed & given))
        if of_class is None:
            after, before = (self.forward(rows) for rows in both)
        else:
            after, before = (self.class_log_likelihood(rows)[:, of_class] for rows in both)
        return after - before

    def top_channels(self, batch: Incomplete) -> Tensor:
        """Returns the inputs of the root (N, trees * channels): log densities up to a constant per row."""
        return self._up(self.leaves(batch)).top

    def messages(self, batch: Incomplete) -> Messages:
        """Returns the log densities (R, N, M) of the regions at the bottom."""
        return self._at_regions(self.leaves(batch))

    @torch.no_grad()
    def responsibilities(self, batch: Incomplete, *, of_class: int | None = None) -> Tensor:
        """Returns the probability (L, N, M) of the components of each leaf given the observed cells.

        They sum to 1 over the components of all leaves that read a column. With `of_class`, they are
        conditional on the class as well.
        """
        reached = self._up(self.leaves(batch))
        scores = reached.log_likelihood + self.log_prior.to(reached.top.dtype)
        share = scores.softmax(dim=-1)  # (N, K)
        if of_class is not None:
            share = functional.one_hot(torch.tensor(of_class), share.shape[1]).to(share).expand_as(share)
        *_, (_, _, _, flow) = self._flows(reached, share)
        if self._in_order:
            return flow
        n_leaves = self.leaves.n_windows * self.leaves.n_parts
        return flow.new_zeros(n_leaves, *flow.shape[1:]).index_add_(0, self.regions, flow)

    @torch.no_grad()
    def expected_counts(self, batch: Incomplete, classes: Tensor | None = None) -> list[Tensor]:
        """Returns the expected number of uses of each sum weight, added over the rows, the root's first.

        The expectation is conditional on the observed cells, and on the class (N) where it is known (not -1).
        The order is that of `sum_layers`; the shapes are those of their weights.
        """
        reached = self._up(self.leaves(batch))
        share = (reached.log_likelihood + self.log_prior.to(reached.top.dtype)).softmax(dim=-1)
        if classes is not None:
            known = functional.one_hot(classes.clamp(min=0), share.shape[1]).to(share)
            share = torch.where((classes >= 0)[:, None], known, share)
        flows = self._flows(reached, share)
        return [layer.counts(values, above) for layer, values, above, _ in flows if layer is not None]

    @property
    def sum_layers(self) -> list[SumLayer]:
        """All sums, from the root to the bottom."""
        return [self.root, *(layer for layer in reversed(self.sums) if isinstance(layer, SumLayer))]

    def squared_weights(self) -> Tensor:
        """Returns the sum of the squares of all sum weights, which is least if all are equal."""
        return torch.stack([layer.weights.square().sum() for layer in self.sum_layers]).sum()

    @torch.no_grad()
    def conditional_mean(self, batch: Incomplete, *, of_class: int | None = None) -> Tensor:
        """Returns the mean (N, D) of every feature given the observed cells, which are returned exactly.

        With `of_class`, this and the following results are conditional on the class as well.
        """
        values = self._observation.mean(self.leaves.theta)
        mean = self.leaves.expectation(self.responsibilities(batch, of_class=of_class), values)
        return torch.where(batch.observed, batch.x, mean.to(batch.x.dtype))

    @torch.no_grad()
    def conditional_variance(self, batch: Incomplete, *, of_class: int | None = None) -> Tensor:
        """Returns the variance (N, D) of every feature given the observed cells; 0 for these."""
        weights = self.responsibilities(batch, of_class=of_class)
        mean, variance = (
            of(self.leaves.theta) for of in (self._observation.mean, self._observation.variance)
        )
        first = self.leaves.expectation(weights, mean)
        second = self.leaves.expectation(weights, variance + mean.square())
        return torch.where(batch.observed, 0.0, (second - first.square()).clamp(min=0.0).to(batch.x.dtype))

    @torch.no_grad()
    def conditional_quantiles(
        self, batch: Incomplete, levels: list[float], *, of_class: int | None = None
    ) -> Tensor:
        """Returns exact quantiles (Q, N, D) of each feature separately, given the observed cells.

        For a feature that is not numeric, such as an indicator of a level, it is the quantile of a 0/1
        variable. Each column must be in one leaf: images with several grids have no quantiles.
        """
        places = self.leaves.places[self.leaves.places < self.leaves.n_features]
        if len(places.unique()) < len(places):
            raise ValueError("Quantiles need columns that belong to one leaf each; here, windows overlap.")
        weights = self.responsibilities(batch, of_class=of_class)
        mean = self.leaves.expectation(weights, self._observation.mean(self.leaves.theta))
        quantiles = torch.stack([(mean > 1.0 - level).to(mean.dtype) for level in levels])  # (Q, N, D)
        numeric = list(self._observation.numeric)
        if numeric:
            found = self.leaves.quantiles(weights, levels)  # (Q, W, N, J)
            owners = self._observation.columns_of_features.tolist()
            places = self.leaves.places[:, [owners.index(column) for column in numeric]]  # (W, J)
            inside = places < self.leaves.n_features
            quantiles[..., places[inside]] = found.movedim(2, 1)[:, :, inside]
        return torch.where(batch.observed, batch.x, quantiles.to(batch.x.dtype))

    def conditional_quantile(self, batch: Incomplete, level: float, *, of_class: int | None = None) -> Tensor:
        """Returns the `level` quantile (N, D) of each feature separately, given the observed cells."""
        check_level(level)
        return self.conditional_quantiles(batch, [level], of_class=of_class)[0]

    @torch.no_grad()
    def conditional_draw(self, batch: Incomplete, noise: Tensor, *, of_class: int | None = None) -> Tensor:
        """Returns the rows (N, D) with an exact joint draw of their missing cells.

        Parameters
        ----------
        batch : Incomplete
            The rows. For a row without observed cells, the draw is from the unconditional model.
        noise : Tensor
            Uniforms of shape (N, n_noise); the draw is a function of the row and its noise.
        of_class : int, optional
            A class to condition on as well.
        """
        reached = self._up(self.leaves(batch))
        uniforms = iter(noise.to(reached.top.dtype).T)

        def choose(log_weights: Tensor) -> Tensor:  # (R, N, I) -> (R, N)
            reach = torch.stack([next(uniforms) for _ in range(len(log_weights))])
            return choose_by_cdf(log_weights.softmax(dim=-1), reach.unsqueeze(-1)).squeeze(-1)

        chosen_class = choose((reached.log_likelihood + self.log_prior.to(reached.top.dtype))[None])[0]
        if of_class is not None:
            chosen_class = torch.full_like(chosen_class, of_class)
        components, tree = self._down(reached, chosen_class, choose)
        drawn = self.leaves.draw(components, noise[:, self.n_noise - self.leaves.n_noise :])
        return torch.where(batch.observed, batch.x, self._of_tree(drawn, tree).to(batch.x.dtype))

    @property
    def n_noise(self) -> int:
        """The number of uniforms that a draw of a row takes."""
        sums = [level.n_regions for level in self.structure.levels if level.n_channels is not None]
        return 2 + sum(sums) + self.leaves.n_noise

    @torch.no_grad()
    def most_probable(self, batch: Incomplete, missing: Completion = "integrated") -> tuple[Tensor, Tensor]:
        r"""Returns completed rows (N, D) and the log density (N) of the most probable latent assignment.

        Parameters
        ----------
        batch : Incomplete
            The rows.
        missing : {"integrated", "joint"}
            With ``"integrated"`` the assignment :math:`(y, d)` maximises :math:`p(x_o, y, d)`, and missing
            cells are the means of its leaves. With ``"joint"`` assignment and missing cells together maximise
            :math:`p(x, y, d)`, which favours narrow components. Neither is the mode of the missing cells
            given the observed ones, which is hard to find; `local_modes` ascends from both.
        """
        observation, joint = self._observation, missing == "joint"
        reached = self._up(self.leaves.best(batch) if joint else self.leaves(batch), best=True)
        best = (reached.log_likelihood + self.log_prior.to(reached.top.dtype)).max(dim=-1)
        components, tree = self._down(reached, best.indices, lambda scores: scores.argmax(dim=-1))
        values = (observation.mode if joint else observation.mean)(self.leaves.theta)
        values = values.expand(self.leaves.n_windows, len(batch), -1, -1)
        completed = self._of_tree(self.leaves.chosen(values, components), tree)
        return torch.where(batch.observed, batch.x, completed.to(batch.x.dtype)), best.values

    @torch.no_grad()
    def prototypes(self, level: int) -> Tensor:
        """Returns rows (K, D) that show what the channels of a level represent, in all regions at once.

        Row k shows, in each region, the means of the most probable components below channel k.

        Parameters
        ----------
        level : int
            The number of the level from the bottom, from 0 on; it must have sums. If there are several trees,
            the first is shown.
        """
        top = self.sums[level]
        if not isinstance(top, SumLayer):
            raise ValueError(f"Level {level} has no sums.")
        n_channels = top.logits.shape[2]
        channel = torch.arange(n_channels).expand(self.structure.levels[level].n_regions, -1)
        for number in range(level, -1, -1):
            layer, product = self.sums[number], self.products[number]
            if number < level and isinstance(product, ProductLayer):
                channel = channel[product.parents]
            if isinstance(layer, SumLayer):
                channel = layer.of_regions(len(channel)).argmax(dim=1).gather(1, channel)
        of_tree = self.trees == 0
        components = channel.new_zeros(self.leaves.n_windows * self.leaves.n_parts, n_channels)
        components[self.regions[of_tree]] = channel[of_tree]
        values = self._observation.mean(self.leaves.theta)
        values = values.expand(self.leaves.n_windows, n_channels, -1, -1)
        return self._of_tree(
            self.leaves.chosen(values, components), torch.zeros(n_channels, dtype=torch.long)
        )


@torch.no_grad()
def local_modes(
    circuit: Circuit, batch: Incomplete, *, max_steps: int = 100, tolerance: float = 1e-8
) -> tuple[Tensor, Tensor]:
    r"""Returns completed rows (N, D) at a local maximum of their density, and its logarithm (N).

    .. math:: x_j \leftarrow \frac{\sum_d g_{ld} \, q_{dj} \mu_{dj}}{\sum_d g_{ld} \, q_{dj}}

    for the missing cells, where :math:`g_{ld}` is the probability of component :math:`d` of leaf :math:`l`
    given the completed row, and :math:`q` are precisions. This is an EM step, which never decreases the
    density. The ascent starts from the conditional mean and from both completions of `Circuit.most_probable`,
    and the best result is kept. It need not be the global maximum, which is hard to find.

    Parameters
    ----------
    circuit : Circuit
        All of its columns must be Gaussian.
    batch : Incomplete
        The rows.
    max_steps : int
        The maximum number of steps from each start.
    tolerance : float
        The ascent stops when no row improves by more than this.
    """
    if not all(isinstance(leaf, GaussianLeaf) for leaf in circuit.leaves.observation.leaves):
        raise ValueError("Local modes need circuits whose columns are all Gaussian.")
    starts = [
        circuit.conditional_mean(batch),
        *(circuit.most_probable(batch, kind)[0] for kind in ("integrated", "joint")),
    ]
    ends = [_ascend(circuit, batch, start, max_steps, tolerance) for start in starts]
    values = torch.stack([log_prob for _, log_prob in ends])  # (starts, N)
    best = values.argmax(dim=0)
    rows = torch.arange(len(batch))
    return torch.stack([x for x, _ in ends])[best, rows], values[best, rows]


def _ascend(
    circuit: Circuit, batch: Incomplete, x: Tensor, max_steps: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Returns where the ascent from completed rows ends, and the log density there."""
    leaves = circuit.leaves
    mean, variance = (of(leaves.theta) for of in (leaves.observation.mean, leaves.observation.variance))
    everything = torch.ones_like(batch.observed)
    log_prob = circuit(Incomplete(x, everything))
    for _ in range(max_steps):
        weights = circuit.responsibilities(Incomplete(x, everything))
        total = leaves.expectation(weights, variance.reciprocal())
        centre = leaves.expectation(weights, mean / variance) / total
        x = torch.where(batch.observed, batch.x, centre.to(x.dtype))
        before, log_prob = log_prob, circuit(Incomplete(x, everything))
        if (log_prob - before).max() <= tolerance:
            break
    return x, log_prob
