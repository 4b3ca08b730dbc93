r"""A circuit over incomplete rows, and the quantities that it computes exactly."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.choice import choose_by_cdf
from halfseen.models.circuits.layers import Messages, ProductLayer, SumLayer
from halfseen.models.circuits.passes import CircuitPasses

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
    structure : Structure
        The regions that are summed and multiplied.
            observation : ObservationModel
        The likelihood of the columns in a window of the structure.

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
    >>> from halfseen.distributions.leaves_levels import CategoricalLeaf
    >>> from halfseen.distributions.families import Part
    >>> from halfseen.distributions.observation_model import ObservationModel
    >>> from halfseen.models.circuits.structure import Structure
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
        return (scores.logsumexp(dim=-1).double() + shift).to(batch.x.dtype)

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
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level!r}.")
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
